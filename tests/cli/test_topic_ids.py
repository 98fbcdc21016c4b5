"""``--topic-ids``: names of topics that no message in the capture has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kdissect.cli import options
from kdissect.cli.terminal import OK, USAGE
from tests.cli.commands import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Named = Callable[[str], str]

MIDSTREAM, BASICS = "samples/midstream.pcap", "samples/kafka-4-basics.pcap"
SPREAD = "WTlKInpRSfaderRrD6KIZw"
DESCRIBED = f"""\
Topic: spread\tTopicId: {SPREAD}\tPartitionCount: 4\tReplicationFactor: 1\tConfigs: segment.bytes=1073741824
\tTopic: spread\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:
\tTopic: spread\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr:
"""
FORMS = {
    "kafka-topics": DESCRIBED,
    "lines": f"AAAAAAAAAAAAAAAAAAAAEA other\n\n{SPREAD}  spread\n",
    "assignments": f"{SPREAD}=spread\n",
    "export": json.dumps({"topic_id": SPREAD, "topic": "spread", "number": 2}) + "\n",
    "json": json.dumps({"name": "spread", "id": SPREAD}) + "\n",
}


@pytest.fixture
def named(tmp_path: Path) -> Named:
    """Write a file of names."""

    def write(text: str) -> str:
        path = tmp_path / "names"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.usefixtures("with_core_and_without")
@pytest.mark.parametrize("form", FORMS)
def test_names_from_a_file(named: Named, capsys: pytest.CaptureFixture[str], form: str) -> None:
    without = run(capsys, "read", MIDSTREAM).out
    done = run(capsys, "read", "--topic-ids", named(FORMS[form]), MIDSTREAM)
    assert (done.status, without.count(f"<id {SPREAD}>")) == (OK, 46)
    assert done.out == without.replace(f"<id {SPREAD}>", "spread")


def test_the_same_in_every_way(named: Named, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("--topic-ids", named(DESCRIBED))
    lines = run(capsys, "read", "--json", *names, MIDSTREAM).lines
    assert {topic for line in lines for topic in json.loads(line)["topics"]} == {"spread"}
    for others in (("-j", "2"), ("--names", "whole"), ("-j", "2", "--names", "whole")):
        assert run(capsys, "read", "--json", *names, *others, MIDSTREAM).lines == lines
    of_topic = [line for line in lines if json.loads(line)["topics"]]
    assert run(capsys, "read", "--json", *names, "--topic", "spread", MIDSTREAM).lines == of_topic != []
    for command in (("records", "--json"), ("summary", "--json"), ("check", "--json"), ("live", "--json")):
        source = ("--follow", MIDSTREAM, "-c", "60") if command[0] == "live" else (MIDSTREAM,)
        assert SPREAD not in run(capsys, *command, *names, *source).out.replace(f'"topic_id":"{SPREAD}"', "")


def test_records_are_joined_by_a_name_that_was_given(
    named: Named, capsys: pytest.CaptureFixture[str]
) -> None:
    def joined(*names: str) -> int:
        rows = map(json.loads, run(capsys, "records", "--json", "--fetched", *names, MIDSTREAM).lines)
        return sum(row["e2e_latency_us"] is not None for row in rows)

    assert joined("--topic-ids", named(DESCRIBED)) >= joined()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "# Names\n",
            ", line 1 has no topic ID and name; use the output of kafka-topics --describe, lines such",
        ),
        ("{}\n", ", line 1 has no topic ID and name"),
        (f'{{"topic_id": "{SPREAD}", "topic": null}}', ", line 1 has no topic ID and name"),
        (f"{SPREAD} spread\nshort spread", ", line 2 has no topic ID and name"),
        ("Topic:spread\tPartitionCount:4", " has no topic IDs; kafka-topics prints them since Kafka 2.8"),
        ("", " has no topic IDs"),
    ],
)
def test_files_without_names(named: Named, capsys: pytest.CaptureFixture[str], text: str, error: str) -> None:
    done = run(capsys, "read", "--topic-ids", named(text), MIDSTREAM)
    assert (done.status, done.out) == (USAGE, "")
    assert f"names{error}" in done.err


def test_a_file_that_cannot_be_used(
    named: Named, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cannot read nowhere: No such file" in run(capsys, "read", "--topic-ids", "nowhere", MIDSTREAM).err
    monkeypatch.setattr(options, "MAX_TOPIC_IDS", 1)
    assert "more than 1 topic IDs" in run(capsys, "read", "--topic-ids", named(FORMS["lines"]), MIDSTREAM).err


def test_an_earlier_export_has_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "export", "--tables", "topic_ids", BASICS, "-o", str(tmp_path / "tables")).status == OK
    (path,) = (tmp_path / "tables" / "topic_ids").glob("part-*")
    names = options.to_topic_ids(str(path))
    assert {*names.values()} >= {"spread", "plain", "orders"}
