from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from kdissect.errors import CaptureError, UsageError
from kdissect.limits import SECOND_NS
from kdissect.query.filters import DAY_NS
from kdissect.spark.batches import columns_of
from kdissect.spark.options import parse
from kdissect.spark.stream import StreamReader
from samples.golden import ROOT
from tests.rings import hold_back, packets_of, pieces, write
from tests.sources import OF_EARLIER, OF_STARTS, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PACKETS = packets_of(ROOT / "samples" / "mock-rebalance.pcapng")
ALL = ReadAllAvailable()


def reader(directory: Path, **options: str) -> StreamReader:
    return StreamReader(parse({"path": str(directory), **options}), ["api", "correlation_id", "time"])


def names(offset: dict[str, Any]) -> tuple[int, str]:
    return offset["files"], offset["name"]


def paths(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[list[list[str]]]:
    """For each part, its own files and all files that it reads, by the number in their names."""
    parts = [each.value for each in source.partitions(start, end)]
    return [[[path[-8:-7] for path in group] for group in (part.own, part.paths)] for part in parts]


# --- what it reads ------------------------------------------------------------------------------------------


def test_the_newest_file_is_not_read_while_it_may_be_written(tmp_path: Path) -> None:
    source, complete = reader(tmp_path), reader(tmp_path, includeLast="true")
    start = source.initialOffset()
    assert source.latestOffset(start, ALL) == start
    pieces(PACKETS, tmp_path, 4)
    assert names(source.latestOffset(start, ALL)) == (3, "ring-002.pcapng")
    assert names(source.latestOffset(start, ReadMaxFiles(2))) == (2, "ring-001.pcapng")
    assert names(complete.latestOffset(start, ALL)) == (4, "ring-003.pcapng")
    end = source.latestOffset(start, ReadMaxFiles(2))
    assert names(source.latestOffset(end, ReadMaxFiles(2))) == (3, "ring-002.pcapng")
    last = source.latestOffset(end, ALL)
    assert source.latestOffset(last, ALL) == last


def test_a_micro_batch_follows_from_its_offsets_alone(tmp_path: Path) -> None:
    pieces(PACKETS, tmp_path, 5)
    source = reader(tmp_path)
    start = source.initialOffset()
    middle = source.latestOffset(start, ReadMaxFiles(2))
    end = source.latestOffset(middle, ALL)
    for other in (source, reader(tmp_path), reader(tmp_path, includeLast="true")):
        assert paths(other, start, middle) == [[["0"], ["0"]], [["1"], ["0", "1"]]]
        assert paths(other, middle, end) == [[["2"], ["1", "2"]], [["3"], ["2", "3"]]]
    together = reader(tmp_path, filesPerTask="2", lookback="2")
    assert paths(together, middle, end) == [[["2", "3"], ["0", "1", "2", "3"]]]
    assert [part.value.begins for part in together.partitions(start, end)] == [True, True]
    assert not source.partitions(middle, end)[1].value.begins


def test_with_available_now_new_files_are_ignored(tmp_path: Path) -> None:
    held_back = hold_back(*pieces(PACKETS, tmp_path, 6)[3:])
    source = reader(tmp_path, maxFilesPerTrigger="1")
    source.prepareForTriggerAvailableNow()
    for path, data in held_back.items():
        path.write_bytes(data)
    offset, steps = source.initialOffset(), []
    while (following := source.latestOffset(offset, source.getDefaultReadLimit())) != offset:
        offset = following
        steps.append(names(offset))
    assert steps == [(1, "ring-000.pcapng"), (2, "ring-001.pcapng")]
    assert names(source.reportLatestOffset()) == (5, "ring-004.pcapng")


def test_a_missing_file_is_reported_unless_it_is_only_look_back(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 5)
    source = reader(tmp_path)
    start = source.initialOffset()
    middle = source.latestOffset(start, ReadMaxFiles(2))
    end = source.latestOffset(middle, ALL)
    files[1].unlink()
    assert paths(source, middle, end) == [[["2"], ["0", "2"]], [["3"], ["2", "3"]]]
    with pytest.raises(CaptureError, match=r"1 of 2 captures up to ring-001.pcapng were gone before they"):
        source.partitions(start, middle)
    with pytest.warns(match="1 of 2 captures up to ring-001.pcapng were gone"):
        assert paths(reader(tmp_path, failOnDataLoss="false"), start, middle) == [[["0"], ["0"]]]


def test_a_file_removed_before_it_was_read_is_reported(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 5)
    source, lenient = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    offsets = [each.latestOffset(each.initialOffset(), ReadMaxFiles(1)) for each in (source, lenient)]
    files[0].unlink()
    assert names(source.latestOffset(offsets[0], ReadMaxFiles(1))) == (2, "ring-001.pcapng")
    files[2].unlink()
    with pytest.raises(
        CaptureError, match=r"removed before they were read: ring-002.pcapng; use a larger ring"
    ):
        source.latestOffset(offsets[0], ReadMaxFiles(1))
    with pytest.warns(match=r"removed before they were read: ring-002.pcapng"):
        assert names(lenient.latestOffset(offsets[1], ALL)) == (3, "ring-003.pcapng")


def test_a_rewritten_file_is_reported_by_its_task(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 3)
    source = reader(tmp_path)
    start = source.initialOffset()
    first, second = source.partitions(start, source.latestOffset(start, ALL))
    assert sum(batch.num_rows for batch in source.read(second)) > 0
    files[1].write_bytes(files[2].read_bytes())
    with pytest.raises(CaptureError, match=r"ring-001.pcapng: removed or rewritten before it was read"):
        list(source.read(second))
    files[1].unlink()
    with pytest.raises(CaptureError, match=r"ring-001.pcapng: removed or rewritten"):
        list(source.read(second))
    assert sum(batch.num_rows for batch in source.read(first)) > 0
    with pytest.warns(match=r"ring-001.pcapng: removed or rewritten"):
        assert list(reader(tmp_path, failOnDataLoss="false").read(second)) == []


@pytest.mark.parametrize("name", ["quickstart.pcap", "mock-rebalance.pcapng"])
def test_its_micro_batches_together_have_the_rows_of_a_batch(name: str, tmp_path: Path) -> None:
    """But for what still waits at the end, and for what was sent at a connection's start: the file before a
    file does not always have it.
    """
    held_back = hold_back(*pieces(packets_of(ROOT / "samples" / name), tmp_path, 5))
    but = OF_STARTS | OF_EARLIER | {"anomalies"}
    columns = [column.name for column in columns_of("exchanges") if column.name not in but]
    counted: Counter[str] = Counter()
    source = StreamReader(parse({"path": str(tmp_path), "includeLast": "true", "kind": "answered"}), columns)
    offset = source.initialOffset()
    for path, data in held_back.items():
        path.write_bytes(data)
        start, offset = offset, source.latestOffset(offset, ALL)
        for part in source.partitions(start, offset):
            for batch in source.read(part):
                counted.update(map(repr, batch.to_pylist()))
    assert counted == rows(tmp_path, "exchanges", but, kind="answered")


# --- files that come late, several writers, the end ---------------------------------------------------------


def kinds(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> Counter[str]:
    """The exchanges of a micro-batch, by API and kind."""
    counted: Counter[str] = Counter()
    for part in source.partitions(start, json.loads(json.dumps(end))):
        for batch in source.read(part):
            counted.update(map(repr, batch.to_pylist()))
    return counted


def exchanges(directory: Path, **options: str) -> StreamReader:
    return StreamReader(parse({"path": str(directory), **options}), ["kind", "api"])


def later(directory: Path, number: int, by_ns: int, name: str = "ring") -> Path:
    """A file of the ring whose packets have another time."""
    start = number * 20
    packets = [packet._replace(time_ns=packet.time_ns + by_ns) for packet in PACKETS[start : start + 20]]
    return write(directory / f"{name}-{number:03}.pcapng", packets)


def test_a_file_that_comes_late_is_read(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 8)
    held_back = hold_back(files[3], *files[6:])
    source = exchanges(tmp_path, lookback="1")
    start = source.initialOffset()
    middle = source.latestOffset(start, ALL)
    assert names(middle) == (4, "ring-004.pcapng")
    for path, data in held_back.items():
        path.write_bytes(data)
    end = source.latestOffset(middle, ALL)
    assert names(end) == (7, "ring-006.pcapng")
    parts = [each.value for each in source.partitions(middle, end)]
    read = [[[path[-8:-7] for path in group] for group in (part.own, sorted(part.lost))] for part in parts]
    # 4 was read without 3, so nobody else will say that a request in 3 is unanswered
    assert read == [[["3"], ["2", "3"]], [["5"], ["4"]], [["6"], ["5"]]]
    actual = kinds(source, start, middle) + kinds(source, middle, end)
    in_time = kinds(source, start, source.latestOffset(start, ALL))
    assert actual.total() >= in_time.total()
    assert (in_time - actual).total() < 5  # those that start in 3 and end in 4
    assert source.latestOffset(end, ALL) == end


def test_a_file_of_an_older_clock_is_read(tmp_path: Path) -> None:
    for number in range(3):
        later(tmp_path, number, 0)
    source = reader(tmp_path)
    middle = source.latestOffset(source.initialOffset(), ALL)
    assert names(middle) == (2, "ring-001.pcapng")
    later(tmp_path, 3, -3600 * SECOND_NS)  # while it is written, either 2 or this may be the newest
    assert source.latestOffset(middle, ALL) == middle
    later(tmp_path, 4, -3500 * SECOND_NS)
    assert names(end := source.latestOffset(middle, ALL)) == (3, "ring-003.pcapng")
    assert paths(source, middle, end) == [[["3"], ["3"]]]


def test_what_comes_late_changes_no_micro_batch_that_was_planned(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 7)
    held_back = hold_back(files[1], files[3])
    source = reader(tmp_path, lookback="2")
    start = source.initialOffset()
    middle = source.latestOffset(start, ReadMaxFiles(1))
    end = source.latestOffset(middle, ReadMaxFiles(2))
    planned = [[["2"], ["0", "2"]], [["4"], ["0", "2", "4"]]]
    assert paths(source, middle, end) == planned
    for path, data in held_back.items():
        path.write_bytes(data)
    os.utime(files[-1])  # it is being written
    restarted = json.loads(json.dumps([middle, end]))
    assert paths(reader(tmp_path, lookback="2"), *restarted) == planned
    last = source.latestOffset(end, ALL)
    assert paths(source, end, last) == [
        [["1"], ["0", "1"]], [["3"], ["1", "2", "3"]], [["5"], ["3", "4", "5"]],
    ]  # fmt: skip


def test_of_two_writers_in_a_directory_each_has_a_newest_file(tmp_path: Path) -> None:
    for host, packets in (("hostA", PACKETS[::2]), ("hostB", PACKETS[1::2])):
        for number, file in enumerate(pieces(packets, tmp_path, 3)):
            file.rename(tmp_path / f"{host}-{number}.pcapng")
    source, together = reader(tmp_path), reader(tmp_path, ring="^host")
    start = source.initialOffset()
    parts = [each.value for each in source.partitions(start, source.latestOffset(start, ALL))]
    assert [[Path(path).stem for path in part.paths] for part in parts] == [
        ["hostA-0"], ["hostA-0", "hostA-1"], ["hostB-0"], ["hostB-0", "hostB-1"],
    ]  # fmt: skip
    assert together.latestOffset(start, ALL)["files"] == 5


def test_files_whose_names_have_nothing_in_common_wait_with_a_warning(tmp_path: Path) -> None:
    for name, file in zip(("a7f-x", "b1c-y", "c0d-z"), pieces(PACKETS, tmp_path, 3), strict=True):
        file.rename(tmp_path / name)
    start = reader(tmp_path).initialOffset()
    with pytest.warns(
        match="3 captures are waiting, each alone in its ring; see the options ring and includeLast"
    ):
        assert reader(tmp_path).latestOffset(start, ALL) == start
    assert reader(tmp_path, ring="-").latestOffset(start, ALL)["files"] == 2


def test_a_file_that_is_too_late_is_counted(tmp_path: Path) -> None:
    for number in (1, 2):
        later(tmp_path, number, 8 * DAY_NS)
    source, lenient = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    middle = source.latestOffset(source.initialOffset(), ALL)
    later(tmp_path, 0, 0)
    later(tmp_path, 3, 8 * DAY_NS)
    for each in (source, reader(tmp_path)):
        with pytest.raises(
            CaptureError,
            match=r"1 capture arrived too late: more than maxFileAge before ring-001.pcapng; read them in",
        ):
            each.latestOffset(middle, ALL)
    with pytest.warns(match="1 capture arrived too late"):
        end = lenient.latestOffset(middle, ALL)
    assert (*names(end), end["late"]) == (2, "ring-002.pcapng", 1)
    assert lenient.latestOffset(end, ALL) == end  # reported once
    tolerant = reader(tmp_path, maxFileAge="9d")
    (tmp_path / "ring-000.pcapng").rename(tmp_path / "out-of-the-way")
    middle = tolerant.latestOffset(tolerant.initialOffset(), ReadMaxFiles(1))
    (tmp_path / "out-of-the-way").rename(tmp_path / "ring-000.pcapng")
    os.utime(tmp_path / "ring-003.pcapng")
    assert names(tolerant.latestOffset(middle, ReadMaxFiles(1))) == (2, "ring-000.pcapng")


def test_a_file_that_waits_is_not_late(tmp_path: Path) -> None:
    """An interface with little traffic starts a file once a month."""
    later(tmp_path, 0, 0, "quiet")
    for number in (1, 2, 3):
        later(tmp_path, number, number * 8 * DAY_NS)
    source = reader(tmp_path)
    offset = source.initialOffset()
    for expected in (1, 2):
        offset = source.latestOffset(offset, ReadMaxFiles(1))
        assert names(offset) == (expected, f"ring-{expected:03}.pcapng")
    later(tmp_path, 4, 30 * DAY_NS, "quiet")
    assert names(source.latestOffset(offset, ALL)) == (3, "quiet-000.pcapng")


def test_files_that_are_gone_are_forgotten_with_time(tmp_path: Path) -> None:
    source = reader(tmp_path)
    offset = source.initialOffset()
    for number in range(6):
        later(tmp_path, number, number * 3 * DAY_NS)
        offset = source.latestOffset(offset, ALL)
        if number > 1:
            (tmp_path / f"ring-{number - 2:03}.pcapng").unlink()
    assert offset["files"] == 5
    assert len(offset["seen"]) == 3  # of 7 days, with a file for 3 days


def read_all(source: StreamReader) -> Any:
    """The last offset, and what each had."""
    offset, steps = source.initialOffset(), []
    while (following := source.latestOffset(offset, ALL)) != offset:
        assert len(paths(source, offset, following)) == following["files"] - offset["files"]
        offset = following
        steps.append((offset["files"], len(offset["seen"]), offset["forgotten"]))
    return offset, *steps


def test_the_number_of_remembered_files_is_limited(tmp_path: Path) -> None:
    for number in range(7):
        later(tmp_path, number, 0)
    source = reader(tmp_path, limits="seen_files=3")
    with pytest.warns(match=r"limit seen_files \(3\) binds before maxFileAge: a file may be late by "):
        offset, *steps = read_all(source)
    assert steps == [(3, 3, 0), (6, 3, 3)]
    later(tmp_path, 7, 0)
    # no file is read twice, or is too late
    assert names(source.latestOffset(offset, ALL)) == (7, "ring-006.pcapng")


def test_a_late_file_that_the_limit_excludes_is_reported_as_such(tmp_path: Path) -> None:
    for number in range(1, 8):
        later(tmp_path, number, number * 60 * SECOND_NS)
    source = reader(tmp_path, limits="seen_files=3")
    with pytest.warns(match="binds before maxFileAge"):
        offset, *_ = read_all(source)
    later(tmp_path, 0, 0)
    later(tmp_path, 9, 600 * SECOND_NS)
    with pytest.raises(
        CaptureError, match=r"1 capture arrived too late: before the 3 files that the stream "
    ):
        source.latestOffset(offset, ALL)


def test_a_file_that_grows_after_it_was_read_is_reported(tmp_path: Path) -> None:
    files = pieces(PACKETS, tmp_path, 3)
    data = files[1].read_bytes()
    files[1].write_bytes(data[: len(data) // 2])
    source, lenient = (
        reader(tmp_path, includeLast="true", failOnDataLoss=fails) for fails in ("true", "false")
    )
    offset = source.latestOffset(source.initialOffset(), ALL)
    lenient.latestOffset(source.initialOffset(), ALL)
    files[1].write_bytes(data)
    with pytest.raises(
        CaptureError, match=r"modified after they were read: ring-001.pcapng; set the option ring"
    ):
        source.latestOffset(offset, ALL)
    with pytest.warns(match=r"modified after they were read: ring-001.pcapng"):
        assert lenient.latestOffset(offset, ALL) == offset


def test_files_after_the_end_of_a_ring_are_not_joined_with_those_before(tmp_path: Path) -> None:
    held_back = hold_back(*pieces(PACKETS, tmp_path, 4)[2:])
    source = reader(tmp_path, includeLast="true", lookback="9")
    source.prepareForTriggerAvailableNow()
    end = source.latestOffset(source.initialOffset(), ALL)
    going_on, offsets = reader(tmp_path, includeLast="true", lookback="9"), [end]
    for path, data in held_back.items():
        path.write_bytes(data)
        offsets.append(going_on.latestOffset(offsets[-1], ALL))
    assert [part.value.is_last for part in source.partitions(source.initialOffset(), end)] == [
        False,
        True,
    ]
    assert paths(source, end, offsets[1]) == [[["2"], ["2"]]]
    assert paths(source, offsets[1], offsets[2]) == [[["3"], ["2", "3"]]]
    assert not any(part.value.is_last for part in source.partitions(end, offsets[2]))


@pytest.mark.parametrize("most", ["1", "9"])
def test_with_available_now_the_newest_file_can_be_the_end(tmp_path: Path, most: str) -> None:
    """Unanswered requests are reported at the end."""
    for host, packets in (
        ("a", PACKETS[:400]),
        ("b", packets_of(ROOT / "samples" / "quickstart.pcap")[:-40]),
    ):
        for number, file in enumerate(pieces(packets, tmp_path, 2)):
            file.rename(tmp_path / f"{host}-{number}.pcapng")
    source = exchanges(tmp_path, includeLast="true", maxFilesPerTrigger=most, lookback="9")
    source.prepareForTriggerAvailableNow()
    offset, counted = source.initialOffset(), Counter[str]()
    while (following := source.latestOffset(offset, source.getDefaultReadLimit())) != offset:
        counted += kinds(source, offset, following)
        offset = following
    others = {column.name for column in columns_of("exchanges")} - {"api", "kind"}
    assert counted == rows(tmp_path, "exchanges", others)
    assert any("unanswered" in each for each in counted)


def test_names_of_topics_are_those_of_the_files_that_a_task_reads(tmp_path: Path) -> None:
    packets = packets_of(ROOT / "samples" / "kafka-4-transactions.pcap")
    pieces(packets, tmp_path, 12)

    def values(table: str, column: str, lookback: str) -> list[Any]:
        options = parse({"path": str(tmp_path), "lookback": lookback, "table": table}).for_stream
        source = StreamReader(options, [column])
        start = source.initialOffset()
        parts = source.partitions(start, source.latestOffset(start, ALL))
        return [value for part in parts for batch in source.read(part) for value in batch[column].to_pylist()]

    ids = set(values("topic_ids", "topic_id", "0"))
    topics = {
        lookback: [name for names in values("exchanges", "topics", lookback) for name in names]
        for lookback in ("0", "99")
    }
    unnamed = {lookback: sum(name in ids for name in names) for lookback, names in topics.items()}
    assert unnamed["0"] > unnamed["99"] == 0


def test_invalid_streams_are_rejected() -> None:
    with pytest.raises(UsageError, match="no path given; use"):
        StreamReader(parse({}), ["api"])
    with pytest.raises(UsageError, match="connections covers all files together"):
        StreamReader(parse({"path": "x", "table": "connections"}), ["connection"])


# --- in Spark -----------------------------------------------------------------------------------------------


def run(spark: SparkSession, form: str, directory: Path, **options: str) -> DataFrame:
    """Read all existing files into ``out``, and return its rows."""
    source = spark.readStream.format(form).options(lookback="9", batchRows="10", **options)
    query = (
        source.load(str(directory / "ring"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    query.awaitTermination(300)
    return spark.read.parquet(str(directory / "out"))


def batch_rows(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.read.format("kdissect").load(str(directory / "ring"))


def test_in_several_runs_each_exchange_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    """The look-back reaches the start here, so the rows are exactly those of a batch, but that only its first
    pass knows the cluster of a connection from its start.
    """
    pieces(PACKETS, tmp_path / "ring", 3)
    first = run(spark, "kdissect", tmp_path, maxFilesPerTrigger="1").count()
    stream, batch = run(spark, "kdissect", tmp_path, includeLast="true"), batch_rows(spark, tmp_path)
    assert 0 < first < stream.count() == batch.count()
    others = batch.drop("cluster_id")
    assert others.exceptAll(stream.select(*others.columns)).count() == 0


@pytest.fixture
def deadly(spark: SparkSession, tmp_path: Path) -> Path:
    """A source ``deadly`` that ends the reading process once, if this file exists."""
    from kdissect.spark.datasource import KdissectSource

    sign = str(tmp_path / "die")

    class Deadly(KdissectSource):
        @classmethod
        def name(cls) -> str:
            return "deadly"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            source = super().streamReader(schema)
            read = source.read

            def dies(partition: Any) -> Any:
                import os
                from pathlib import Path

                for batch in read(partition):
                    yield batch
                    if partition.value.own[0].endswith("ring-003.pcapng") and Path(sign).exists():
                        Path(sign).unlink()
                        os._exit(1)

            source.read = dies
            return source

    spark.dataSource.register(Deadly)
    return tmp_path / "die"


@pytest.mark.deep
def test_killed_inside_a_micro_batch_and_started_again_each_exchange_is_there_once(
    spark: SparkSession, deadly: Path, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    files = pieces(PACKETS, tmp_path / "ring", 8)
    held_back = hold_back(*files[-2:])
    deadly.touch()
    with pytest.raises(StreamingQueryException):
        run(spark, "deadly", tmp_path, maxFilesPerTrigger="3")
    assert not deadly.exists()
    so_far = spark.read.parquet(str(tmp_path / "out")).count()
    between = run(spark, "deadly", tmp_path, maxFilesPerTrigger="3").count()
    assert 0 < so_far < between
    for path, data in held_back.items():
        path.write_bytes(data)
    stream, batch = run(spark, "deadly", tmp_path, includeLast="true"), batch_rows(spark, tmp_path)
    assert between < stream.count() == batch.count()
    others = batch.drop("cluster_id")
    assert others.exceptAll(stream.select(*others.columns)).count() == 0
