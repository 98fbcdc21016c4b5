"""``--names``: of a topic ID whose name is learned late, and the same with all ways to read a file."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kdissect.cli.main import kdissect
from kdissect.errors import OutputError
from kdissect.limits import SECOND_NS
from kdissect.options import WHOLE, WINDOW
from tests.exports import json_rows
from tests.late import TRUTH, late, late_packets
from tests.rings import pieces
from tests.shared import say, summary

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

ORDERS = ("--topic", "orders")
FIRST_OFFSETS = Counter(row["partition"] for row in TRUTH["produced"][:15])
"""Records in each partition when all clients were at rest."""
PRODUCED = {
    ("orders", row["partition"], row["offset"])
    for row in TRUTH["produced"]
    if row["offset"] >= FIRST_OFFSETS[row["partition"]]
}
FETCHED = dict.fromkeys(PRODUCED, 2)  # by billing and by shipping


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return late(tmp_path_factory.mktemp("late") / "late.pcapng")


def rows(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in say(*arguments).out.splitlines()]


def fetched(*arguments: object) -> Counter[tuple[Any, ...]]:
    matches = rows("records", "--json", "--fetched", *ORDERS, *arguments)
    return Counter((row["topic"], row["partition"], row["offset"]) for row in matches)


def test_metadata_comes_nine_seconds_late() -> None:
    first_ns = late_packets()[0].time_ns
    assert TRUTH["facts"]["the latecomer"] - first_ns > 9 * SECOND_NS


def test_all_that_was_fetched_of_a_topic_is_shown(capture: Path) -> None:
    assert fetched(capture) == FETCHED
    assert fetched("-j", 3, capture) == FETCHED
    assert fetched("--names", WINDOW, capture).total() < 0.3 * fetched(capture).total()


def test_each_record_is_shown_once(capture: Path) -> None:
    shown = rows("records", "--json", "--unique", *ORDERS, capture)
    places = [(row["topic"], row["partition"], row["offset"]) for row in shown]
    assert len(places) == len(PRODUCED)
    assert set(places) == PRODUCED


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("names", [WHOLE, WINDOW])
def test_a_topic_is_one_row(capture: Path, names: str, jobs: int) -> None:
    document = json.loads(summary("--names", names, "-j", jobs, capture).out)
    assert [
        (row["topic"], row["produced_records"], row["fetched_records"]) for row in document["topics"]
    ] == [("orders", len(PRODUCED), 2 * len(PRODUCED))]
    assert {topic for row in document["slowest"] for topic in row["topics"]} <= {"orders"}
    parts = ("--lag", "--groups", "--transactions", "--findings")
    for options in (("--by", "partition"), ("--interval", "1s", "--by", "topic"), parts):
        assert summary(*options, "--names", names, "-j", jobs, capture) == summary(*options, capture)


def test_no_exported_record_lacks_its_topic(capture: Path, tmp_path: Path) -> None:
    assert say("export", "--records", capture, "-o", tmp_path / "tables").status == 0
    exported = json_rows(tmp_path / "tables" / "records")
    assert Counter(row["topic"] for row in exported) == {"orders": 3 * len(PRODUCED)}


def test_a_filter_says_what_it_could_not_check(capture: Path) -> None:
    for arguments in (("-j", 1), ("-j", 3)):
        *_, notice = say("records", "--names", WINDOW, *ORDERS, *arguments, capture).err.decode().splitlines()
        assert re.match(r"kdissect: the filter could not check \d+ exchanges: no name for 1 topic ID", notice)
        assert notice.endswith("; --names whole searches the whole input for the name")
    assert b"could not check" not in say("records", *ORDERS, capture).err
    assert b"could not check" not in say("records", "--names", WINDOW, "--api", "Fetch", capture).err


def test_an_unknown_name_is_reported_and_its_id_can_be_filtered(tmp_path: Path) -> None:
    early = pieces(late_packets(), tmp_path / "ring", 4)[0]
    stderr = say("read", *ORDERS, early).err.decode()
    assert "no name for 1 topic ID (" in stderr
    assert "no message in the input has the name; filter by topic ID" in stderr
    topic_id = stderr.rpartition("(")[2].partition(")")[0]
    by_id = say("read", "--topic", topic_id, early)
    assert by_id.out
    assert not by_id.err


def test_reading_waits_for_nothing_unless_a_filter_needs_it(capture: Path) -> None:
    assert say("read", capture) == say("read", "--names", WINDOW, capture)
    assert say("read", *ORDERS, capture) == say("read", "--names", WHOLE, *ORDERS, capture)
    assert say("read", "--partition", "orders:1", capture).out == (
        say("read", "--names", WHOLE, "--partition", "orders:1", capture).out
    )
    where = ("--where", '"orders" in topics')
    assert say("read", *where, capture) == say("read", "--names", WHOLE, *where, capture)
    assert say("read", "--partition", "1", capture) == (
        say("read", "--names", WINDOW, "--partition", "1", capture)
    )


def through_stdin(capture: Path, *arguments: str) -> Result:
    return CliRunner().invoke(kdissect, [*arguments, "-"], input=capture.read_bytes())


@pytest.mark.parametrize("command", ["read --json", "records --json", "summary --by topic", "check"])
def test_a_file_through_stdin_is_read_once(capture: Path, command: str) -> None:
    result = through_stdin(capture, *command.split())
    assert result.exit_code == 0
    expected = say(*command.split(), "--names", WINDOW, capture).out.decode()
    shown = result.stdout.replace('"capture":"-"', '"capture":"stdin"')
    assert shown == expected.replace(str(capture), "stdin")


def test_stdin_cannot_be_read_twice(capture: Path) -> None:
    for result in (
        through_stdin(capture, "records", "--names", WHOLE),
        CliRunner().invoke(kdissect, ["records", "-i", "lo", "--names", WHOLE]),
    ):
        assert (result.stdout, result.exit_code) == ("", 2)
        assert "Error: --names whole reads the input twice, so it needs files" in result.stderr


@pytest.mark.parametrize("names", [WHOLE, WINDOW])
@pytest.mark.parametrize(
    "command", ["read", "read --json --topic orders", "read -V --api Fetch", "records", "records --csv"]
)
def test_all_ways_agree(capture: Path, tmp_path: Path, command: str, names: str) -> None:
    arguments = [*command.split(), "--names", names]
    expected = say(*arguments, "-j", 1, capture)
    assert expected.out
    assert say(*arguments, "-j", 3, capture) == expected
    if "--json" not in arguments and "-V" not in arguments and "--csv" not in arguments:
        ring = pieces(late_packets(), tmp_path / "ring", 5)
        for jobs in (1, 3):
            assert say(*arguments, "-j", jobs, *ring).out == expected.out


@pytest.mark.parametrize("names", [WHOLE, WINDOW])
def test_summaries_agree(capture: Path, names: str) -> None:
    one, several = (summary("--names", names, "-j", jobs, capture) for jobs in (1, 3))
    assert one == several


@pytest.mark.parametrize("names", [WHOLE, WINDOW])
def test_exports_agree(capture: Path, tmp_path: Path, names: str) -> None:
    tables = []
    for jobs in (1, 3):
        directory = tmp_path / f"by {jobs}"
        tables_of = ("--tables", "exchanges,records,partitions,topic_ids")
        assert say("export", "--names", names, *tables_of, "-j", jobs, capture, "-o", directory).status == 0
        tables.append({path.name: Counter(map(json.dumps, json_rows(path))) for path in directory.iterdir()})
    assert tables[0] == tables[1]
    read = Counter(json.dumps(row) for row in rows("read", "--json", "--names", names, capture))
    topics = Counter(str(json.loads(row)["topics"]) for row in read.elements())
    exported = Counter(str(json.loads(row)["topics"]) for row in tables[0]["exchanges"].elements())
    assert exported == topics


def test_another_rule_is_another_export(capture: Path, tmp_path: Path) -> None:
    assert say("export", capture, "-o", tmp_path / "tables").status == 0
    assert b"already has this export" in say("export", capture, "-o", tmp_path / "tables").err
    with pytest.raises(OutputError, match="with other options"):
        say("export", "--names", WINDOW, capture, "-o", tmp_path / "tables")


def test_a_file_may_grow_between_the_passes(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kdissect.cli import run

    growing = tmp_path / "growing.pcapng"
    early, rest = capture.read_bytes()[: capture.stat().st_size // 2], capture.read_bytes()
    growing.write_bytes(early)
    learn = run.learned_from

    def grown(*arguments: Any, **others: Any) -> Any:
        try:
            return learn(*arguments, **others)
        finally:
            growing.write_bytes(rest)

    monkeypatch.setattr(run, "learned_from", grown)
    done = say("records", "-q", growing)
    assert done.status == 0
    assert done.out.startswith(b"813 records")
