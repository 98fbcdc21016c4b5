"""Workers together write what one process writes; tested without Spark."""

from __future__ import annotations

import errno
import gc
import json
import os
from collections import Counter
from functools import partial
from io import FileIO
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow.parquet import read_table

from kdissect.capture import stores
from kdissect.capture.reader import open_capture
from kdissect.errors import UsageError, WriteError
from kdissect.options import PARQUET
from kdissect.spark import parts
from kdissect.spark.shuffle import Bundle, batch_of, stored
from kdissect.tables.export import PartRows
from kdissect.tables.rows import DEFAULT_TABLES
from kdissect.tables.table_files import TableFiles
from samples.golden import captures, name_of
from tests.core import needs_core, without_core
from tests.damage import DAMAGES, resegmented
from tests.depth import IS_DEEP
from tests.disguises import FILES, NETWORKS, in_two_files
from tests.exports import json_rows
from tests.frames import heartbeats
from tests.late import late
from tests.segments import MILLISECOND, START_NS, Talk
from tests.shuffling import alone, counted, cut_up, decoded, job_of, numbers
from tests.sources import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.model import Exchange, Packet

SAMPLES = {name_of(path): path for path in captures()}
QUICK = ("quickstart", "kafka-4-basics", "mock-rebalance")
LOST = ("10 % lost", "10 % lost, duplicated, shuffled", "snaplen 200", "mid-frame start")


def test_what_stays_is_not_searched_for_garbage_again() -> None:
    kept = [[each] for each in range(2 * parts._MANY_OBJECTS)]
    assert list(parts._in_task(lambda batches: map(str, batches), iter(range(2)))) == ["0", "1"]
    assert len(gc.get_objects()) < parts._MANY_OBJECTS < len(kept)


def test_workers_of_another_user_can_read_lists(tmp_path: Path) -> None:
    names = parts.ListIn.new(tmp_path / "names", ["a", "b"], 0o660)
    assert [*names] == ["a", "b"]
    assert (tmp_path / "names").stat().st_mode & 0o777 == 0o660


def test_a_list_that_cannot_be_written_is_reported_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=rf"^cannot write {tmp_path}/file/names: Not a directory$"):
        parts.ListIn.new(tmp_path / "file" / "names", ["a"], 0o600)


def test_a_part_comes_once_even_if_not_all_of_it_is_read(tmp_path: Path) -> None:
    bundles = [Bundle(part, time, time, 0, time, b"", b"") for part in (1, 2) for time in (3, 4, 5)]
    in_files = parts.parts_in_files(stored(bundles, 4, tmp_path / "packets"), numbers(*range(4)))
    in_rows = parts.parts_in_rows([batch_of([each]) for each in bundles[:3]])
    for divided, expected in ((in_files, [1, 2]), (in_rows, [1])):
        assert [(number, next(iter(own)).key) for number, own in divided] == [
            (number, (3, 0, 3)) for number in expected
        ]


def packets_of(name: str) -> list[Packet]:
    with open_capture(SAMPLES[name]) as capture:
        return list(capture)


def check(names: Sequence[str], directory: Path, *, size: int = 3000, first_is_known: bool = True) -> None:
    """Check that all ways give the same rows and results.

    Args:
        names: of the captures.
        directory: to write to.
        size: of the ranges in bytes.
        first_is_known: whether all ways find the same exchange first with a topic ID. If packets are not in
            order of time, that may depend on the way: then, only the pairs in ``topic_ids`` are compared.
    """

    def written(way: str) -> dict[str, Counter[Any]]:
        tables: dict[str, Counter[Any]] = {**counted(directory / way)}
        if not first_is_known:
            pairs = map(itemgetter("topic_id", "topic"), json_rows(directory / way / "topic_ids"))
            tables["topic_ids"] = Counter(pairs)
        return tables

    one = alone(names, directory / "one")
    expected = written("one")
    many = decoded(names, directory / "many", size=size, count=5)
    assert written("many") == expected
    assert (one.rows, one.packets, one.warnings) == (many.rows, many.packets, many.warnings)
    assert (one.skipped, one.notices) == (many.skipped, many.notices)
    assert one.counts["exchanges"] == many.counts["exchanges"]


@pytest.mark.parametrize("name", SAMPLES if IS_DEEP else QUICK)
def test_samples_in_ranges(tmp_path: Path, name: str) -> None:
    size = SAMPLES[name].stat().st_size // 100
    check([str(SAMPLES[name])], tmp_path, size=size)


@pytest.mark.parametrize("name", SAMPLES if IS_DEEP else QUICK[1:2])
def test_samples_in_twenty_files(tmp_path: Path, name: str) -> None:
    check(cut_up(packets_of(name), tmp_path / "ring", 20), tmp_path)


@pytest.mark.parametrize("damage", DAMAGES if IS_DEEP else LOST)
@pytest.mark.parametrize("name", [*QUICK, "tansu-sasl"] if IS_DEEP else QUICK[:1])
def test_what_was_lost_or_came_late(tmp_path: Path, name: str, damage: str) -> None:
    left = DAMAGES[damage](resegmented(packets_of(name), 300), Random(7)).packets
    check(cut_up(left, tmp_path / "whole", 1), tmp_path)
    is_known = (name, damage) != ("quickstart", "duplicated, shuffled")
    check(cut_up(left, tmp_path / "ring", 20), tmp_path / "cut", first_is_known=is_known)


@pytest.mark.parametrize("network", NETWORKS if IS_DEEP else ["VXLAN", "fragments", "cooked"])
def test_whatever_carries_it(tmp_path: Path, network: str) -> None:
    check(cut_up(NETWORKS[network](packets_of("quickstart")), tmp_path / "ring", 3), tmp_path)


@pytest.mark.parametrize("name", FILES if IS_DEEP else ["pcapng several interfaces"])
def test_whatever_wrote_it_down(tmp_path: Path, name: str) -> None:
    path = tmp_path / "capture"
    path.write_bytes(FILES[name](packets_of("quickstart")))
    check([str(path)], tmp_path)


def test_the_end_of_the_capture_decides_what_is_unanswered(tmp_path: Path) -> None:
    packets = [
        packet
        for port, second in ((40_001, 0), (40_002, 10), (40_003, 50))
        for packet in Talk(("10.0.0.1", port), start_ns=START_NS + second * 1000 * MILLISECOND)
        .handshake()
        .client_sends(heartbeats(1)[0])
        .broker_acks()
        .packets
    ]
    check(cut_up(packets, tmp_path / "ring", 5), tmp_path)
    outcomes = Counter(row["outcome"] for row in json_rows(tmp_path / "one" / "exchanges"))
    assert outcomes == {"unanswered": 2, "pending": 1}
    files = Counter[str]()
    for row, count in rows(tmp_path / "ring", "exchanges", split="files", lookback="1000").items():
        files[next(each for each in ("unanswered", "pending") if f"'outcome': '{each}'" in row)] += count
    assert files == outcomes


def test_captures_of_two_machines_at_the_same_time(tmp_path: Path) -> None:
    names = []
    for place, data in enumerate(in_two_files(packets_of("kafka-4-basics"))):
        names.append(str(tmp_path / f"{place}.pcap"))
        Path(names[-1]).write_bytes(data)
    check(names, tmp_path)


@pytest.mark.parametrize("cut", [10, 5001])
def test_damaged_files(tmp_path: Path, cut: int) -> None:
    data = SAMPLES["quickstart"].read_bytes()
    middle = len(data) // 2
    names = []
    for name, left in (
        ("cut", data[:-cut]),
        ("spoilt", data[:middle] + b"\xff" * 40 + data[middle + 40 :]),
        ("none", b"nothing that anybody could read"),
    ):
        (tmp_path / name).write_bytes(left)
        names.append(str(tmp_path / name))
    check(names, tmp_path)
    check(names[1:2], tmp_path / "alone")


def test_files_that_could_not_be_read_to_their_ends_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk, or a store, fails from the third quarter on: not damage, so another run may read more."""
    name = str(SAMPLES["kafka-4-basics"])
    most = Path(name).stat().st_size * 3 // 4
    monkeypatch.setattr("kdissect.capture.source.FILE_BLOCK_BYTES", 4096)
    for way, write in {"single": alone, "shuffle": decoded}.items():
        with monkeypatch.context() as broken:
            broken.setattr(stores, "open_file", lambda name: Failing(name, most))
            done = write([name], tmp_path / way)
        assert not done.complete, way
        assert 0 < done.rows["exchanges"] < rows(name, "exchanges").total()
        assert any("broken" in warning for warning in done.warnings)
        manifests = (tmp_path / way).glob("*/_kdissect/manifest.json")
        assert {json.loads(path.read_text())["complete"] for path in manifests} == {False}
    assert alone([name], tmp_path / "again").complete


class Failing(FileIO):
    """A file that cannot be read behind a place."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        if self.seek(0, os.SEEK_CUR) + (size or 0) > self._most:
            raise OSError(errno.EIO, "broken")
        return super().read(size)


def test_names_of_topics_come_from_other_parts(tmp_path: Path) -> None:
    name = str(SAMPLES["kafka-4-basics"])
    result = decoded([name], tmp_path, size=20_000, count=5)
    assert result.rows["topic_ids"] > 3
    assert result.counts["unresolved topic IDs"] == 0
    parts_that_write = {path.name for path in (tmp_path / "exchanges").glob("part-*")}
    assert len(parts_that_write) == 5


@needs_core
@pytest.mark.parametrize("way", ["single", "shuffle"])
def test_rows_of_the_core_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    fed: list[Exchange] = []
    feed = PartRows.feed
    monkeypatch.setattr(
        PartRows, "feed", lambda rows, exchange: (fed.append(exchange), feed(rows, exchange))[1]
    )
    names = cut_up(packets_of("kafka-4-basics"), tmp_path / "ring", 3)
    write = {"single": alone, "shuffle": decoded}[way]
    changed = {"tables": DEFAULT_TABLES, "form": PARQUET}
    by_core = write(names, tmp_path / "core", **changed)
    assert len(fed) < by_core.rows["exchanges"] - 50
    fed.clear()
    with without_core():
        pure = write(names, tmp_path / "pure", **changed)
        assert len(fed) == pure.rows["exchanges"]
    assert by_core.rows == pure.rows
    assert (by_core.counts["exchanges"], by_core.skipped) == (pure.counts["exchanges"], pure.skipped)
    for table in DEFAULT_TABLES:
        tables = [read_table(tmp_path / each / table).to_pylist() for each in ("core", "pure")]
        assert tables[0] == tables[1] != []


def test_filters_are_those_of_export(tmp_path: Path) -> None:
    names = [str(SAMPLES["quickstart"])]
    changed = {
        "criteria": {"api": ("Fetch",)},
        "where": "latency_us > 10",
        "tables": ("exchanges", "connections"),
    }
    alone(names, tmp_path / "one", **changed)
    decoded(names, tmp_path / "many", **changed)
    assert counted(tmp_path / "one") == counted(tmp_path / "many")
    assert {row.split(b'"api":')[1][:7] for row in counted(tmp_path / "one")["exchanges"]} == {b'"Fetch"'}
    with pytest.raises(UsageError, match="unknown API"):
        job_of([], tmp_path, criteria={"api": ("Fetsch",)}).filter()


def test_a_filter_says_what_no_part_could_check(tmp_path: Path) -> None:
    capture = str(late(tmp_path / "late.pcapng"))
    criteria = {"topic": ("orders",)}
    result = decoded([capture], tmp_path / "shuffle", size=20_000, criteria=criteria)
    assert (result.notes.unnamed, len(result.notes.unnamed_ids)) == (193, 1)


def test_a_task_that_fails_leaves_no_unfinished_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of([str(SAMPLES["quickstart"])], tmp_path)
    monkeypatch.setattr(TableFiles, "close", _fails)
    with pytest.raises(OSError, match="no space"):
        list(parts.write(job, partial(parts.open_all, job, {}, None), numbers(0)))
    assert not list(tmp_path.rglob("*part-*"))


def _fails(_: object) -> None:
    raise OSError("no space")
