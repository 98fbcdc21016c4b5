"""Captures -> tables, as Spark's workers make them, without Spark: for tests."""

from __future__ import annotations

from collections import Counter, namedtuple
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from kdissect.capture.write import PcapngWriter
from kdissect.files import make_directory, remove_all
from kdissect.limits import DEFAULT, Limits
from kdissect.options import WHOLE, WINDOW, ExportOptions, Options
from kdissect.spark import decode, parts
from kdissect.spark.ranges import RANGE_BYTES, examine, in_order
from kdissect.spark.shuffle import (
    ORDER,
    ExpectedRange,
    RangeCounts,
    batch_of,
    completed,
    counts_in,
    read_ranges,
    stored,
)
from kdissect.spark.values import from_json, to_json
from kdissect.tables import manifest
from kdissect.tables.export import ExportJob
from kdissect.tables.rows import TABLES
from tests.exports import json_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kdissect.model import Packet
    from kdissect.spark.decode import DecodeResult
    from kdissect.spark.parts import ReadResult, WorkerPart
    from kdissect.spark.ranges import CaptureRanges
    from kdissect.spark.shuffle import PacketFile

CORES = 17


def job_of(
    paths: Sequence[str],
    directory: Path,
    limits: Limits = DEFAULT,
    first_ns: int | None = None,
    **changed: Any,
) -> ExportJob:
    """A job that writes all tables as JSON lines, but for what is ``changed`` of its options."""
    export_options = ExportOptions(directory, tables=tuple(TABLES), rotate_bytes=1 << 40)
    job = ExportJob(Options(limits=limits, names=WINDOW), export_options, tuple(paths), first_ns)
    export = {name: changed.pop(name) for name in list(changed) if name in {"tables", "form", "rotate_bytes"}}
    return replace(job, options=replace(job.options, **changed), export=replace(job.export, **export))


def find_ranges(names: Iterable[str], limits: Limits = DEFAULT, size: int = RANGE_BYTES) -> CaptureRanges:
    """The ranges of files, of about ``size`` bytes."""
    return in_order(examine(name, limits, size) for name in names)


def decoded(
    names: Sequence[str],
    directory: Path,
    *,
    size: int = 1000,
    count: int = 3,
    limits: Limits = DEFAULT,
    **changed: Any,
) -> DecodeResult:
    """Write the tables: by ``count`` parts, from ranges of about ``size`` bytes."""
    capture_ranges = find_ranges(names, limits, size)
    job = job_of(list(capture_ranges.files), directory, limits, first_ns=capture_ranges.first_ns, **changed)
    scratch = parts.unpublished(job)
    make_directory(scratch)
    files, stats, skipped = shuffled_to_files(capture_ranges, count, scratch, limits)
    read = decode._read(added_up(stats, limits), skipped)
    end_ns = read.census.span_ns[1] if read.census.span_ns else 0
    in_parts = partial(parts.parts_in_files, files)
    learned = [
        _only(parts.learn_shuffled(job, end_ns, in_parts, numbers(*range(count)[part : part + 2])))
        for part in range(0, count, 2)
    ]
    facts = decode._merged(job, learned)
    write = partial(parts.write, job, partial(parts.open_shuffled, job, end_ns, in_parts, facts))
    written = [_only([batch]) for part in range(count) for batch in write(numbers(part))]
    assert not list(write([]))
    return finished(job, names, written, read, capture_ranges)


def expected_ranges(captures: CaptureRanges) -> list[ExpectedRange]:
    """The ranges, as the driver gives them to tasks."""
    return [
        ExpectedRange(place, each, captures.files[each.path]) for place, each in enumerate(captures.ranges)
    ]


def shuffled(
    captures: CaptureRanges, count: int, limits: Limits = DEFAULT
) -> tuple[Any, list[RangeCounts], Counter[str]]:
    """The rows of all parts in Spark's order, what was counted in ranges, and what came of fragments that are
    in none of these.
    """
    rows, stats = _read(captures, count, None, limits)
    bundles, skipped = completed(added_up(stats, limits).fragments, count, limits)
    rows = rows.filter(pc.less(rows["part"], count))
    if bundles:
        rows = pa.concat_tables([rows, pa.Table.from_batches([batch_of(bundles)])])
    return rows.sort_by([(name, "ascending") for name in ORDER]), stats, skipped


def shuffled_to_files(
    captures: CaptureRanges, count: int, directory: Path, limits: Limits = DEFAULT
) -> tuple[list[PacketFile], list[RangeCounts], Counter[str]]:
    """The same, but the packets are in files."""
    rows, stats = _read(captures, count, directory, limits)
    assert rows["part"].to_pylist() == [count] * len(stats)
    counts = added_up(stats, limits)
    bundles, skipped = completed(counts.fragments, count, limits)
    files = counts.files + stored(bundles, count, directory / "completed")
    return sorted(files, key=attrgetter("first_ns")), stats, skipped


def _read(
    captures: CaptureRanges, count: int, directory: Path | None, limits: Limits
) -> tuple[Any, list[RangeCounts]]:
    ranges = expected_ranges(captures)
    batches = list(read_ranges(len(ranges), count, limits, directory, [[each] for each in ranges]))
    rows = pa.Table.from_batches(batches)
    return rows, [counts_in(data) for data in rows.filter(pc.equal(rows["part"], count))["data"].to_pylist()]


def added_up(stats: Iterable[RangeCounts], limits: Limits = DEFAULT) -> RangeCounts:
    """What was counted in all ranges."""
    counts = RangeCounts(limits)
    for each in stats:
        counts.add(from_json(to_json(each)))  # as it comes from a task
    return counts


def alone(
    names: Sequence[str],
    directory: Path,
    limits: Limits = DEFAULT,
    *,
    learns_first: bool = False,
    **changed: Any,
) -> DecodeResult:
    """Write the tables by one task."""
    capture_ranges = find_ranges(names, limits)
    job = job_of(list(capture_ranges.files), directory, limits, first_ns=capture_ranges.first_ns, **changed)
    facts = None
    if learns_first:
        job = replace(job, options=replace(job.options, names=WHOLE))
        facts = decode._merged(job, [_only(parts.learn_all(job, numbers(0)))])
    worker_part = _only(parts.write(job, partial(parts.open_all, job, {}, facts), numbers(0)))
    return finished(job, names, [worker_part], worker_part.read, capture_ranges)


class Tasks:
    """What ``decode`` and ``tally`` need of a session, and of the data frames that it makes. Tasks run here,
    each with its own copy of what is sent to it.

    Args:
        partitions: batches of each.

    Attributes:
        works: do again what the tasks of each stage have done.
        sent: the code that each stage sent to its tasks.
        part: the column of that name.
    """

    def __init__(self, partitions: Sequence[Sequence[Any]] = (), session: Tasks | None = None) -> None:
        self._partitions = partitions
        self.works: list[Any] = [] if session is None else session.works
        self.sent: list[bytes] = [] if session is None else session.sent
        self.part = pc.field("part")
        self.conf: dict[str, str] = {}

    def range(self, start: int, end: int | None = None, step: int = 1, count: int = CORES) -> Tasks:
        numbers = range(start)[::step] if end is None else range(start, end, step)
        size = -(-len(numbers) // count)
        ids = [list(numbers[size * each : size * (each + 1)]) for each in range(count)]
        return self._with([[pa.RecordBatch.from_pydict({"id": pa.array(each, pa.int64())})] for each in ids])

    def mapInArrow(self, work: Any, _: str) -> Tasks:  # noqa: N802  (Spark's name)
        self.works.append(lambda: [list(work(iter(each))) for each in self._partitions])
        sent = cloudpickle.dumps(work)
        self.sent.append(sent)
        return self._with([list(cloudpickle.loads(sent)(iter(each))) for each in self._partitions])

    def createDataFrame(self, rows: pa.Table) -> Tasks:  # noqa: N802  (Spark's name)
        size = -(-len(rows) // CORES)
        slices = [rows.slice(size * each, size) for each in range(CORES)]
        return self._with([each.to_batches(max_chunksize=1) for each in slices])

    def repartition(self, count: int) -> Tasks:
        batches = [batch for each in self._partitions for batch in each]
        return self._with([batches[place::count] for place in range(count)])

    def coalesce(self, count: int) -> Tasks:
        return self._with(
            [list(chain.from_iterable(self._partitions[place::count])) for place in range(count)]
        )

    def repartitionById(self, count: int, _: str) -> Tasks:  # noqa: N802  (Spark's name)
        rows = pa.Table.from_batches([batch for each in self._partitions for batch in each])
        return self._with([rows.filter(self.part == number).to_batches() for number in range(count)])

    def sortWithinPartitions(self, *names: str) -> Tasks:  # noqa: N802  (Spark's name)
        order = [(name, "ascending") for name in names]
        return self._with(
            [
                pa.Table.from_batches(each).sort_by(order).to_batches() if each else []
                for each in self._partitions
            ]
        )

    def where(self, condition: pc.Expression) -> Tasks:
        return self._with(
            [
                pa.Table.from_batches(each).filter(condition).to_batches() if each else []
                for each in self._partitions
            ]
        )

    def select(self, *names: str) -> Tasks:
        return self._with([[batch.select(names) for batch in each] for each in self._partitions])

    def union(self, other: Tasks) -> Tasks:
        return self._with([*self._partitions, *other._partitions])

    def persist(self, _: object) -> Tasks:
        return self

    def unpersist(self) -> None:
        """Nothing to free."""

    def collect(self) -> list[Any]:
        """The results of all tasks; many would not fit in the driver's memory."""
        rows = [row for each in self._partitions for batch in each for row in batch.to_pylist()]
        return [namedtuple("Row", row)(**row) for row in rows]

    def _with(self, partitions: Sequence[Sequence[Any]]) -> Tasks:
        return Tasks(partitions, self)


def numbers(*numbers: int) -> list[Any]:
    """What Spark asks tasks for."""
    return [pa.RecordBatch.from_pydict({"id": list(numbers)})]


def finished(
    job: ExportJob,
    names: Sequence[str],
    worker_parts: Sequence[WorkerPart],
    read: ReadResult,
    capture_ranges: CaptureRanges,
) -> DecodeResult:
    """What the driver does in the end."""
    output = decode._new_export(job, manifest.job_of(names, job.options, job.export), {})
    files = decode.task_files(worker_parts)
    read = decode.with_unread(read, capture_ranges)
    result = decode._finished(job, output, worker_parts, files, read)
    remove_all(parts.unpublished(job).parent)
    return result


def _only(batches: Any) -> Any:
    (batch,) = batches
    return from_json(batch.column("result")[0].as_py())


def counted(directory: Path) -> dict[str, Counter[bytes]]:
    """The rows of all tables of JSON lines, without regard to their order."""
    return {
        path.name: Counter(orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in json_rows(path))
        for path in sorted(directory.iterdir())
    }


def cut_up(packets: Sequence[Packet], directory: Path, files: int) -> list[str]:
    """Write packets into so many files, one after another; their names."""
    directory.mkdir(exist_ok=True)
    size = max(1, -(-len(packets) // files))
    names = []
    for begin in range(0, len(packets), size):
        path = directory / f"ring-{begin:06}.pcapng"
        with path.open("wb") as file:
            writer = PcapngWriter(file)
            for packet in packets[begin : begin + size]:
                writer.write(packet)
        names.append(str(path))
    return names
