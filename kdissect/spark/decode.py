"""Captures -> the tables of an export, written by the workers of Spark. See ``decode``.

There are two ways to divide the connections among tasks.

    shards        each task reads all captures, and takes its shard. What is small is one shard.
    shuffle       each capture is read once:
                  ranges.py     files     -> ranges that tasks can read
                  shuffle.py    a range   -> bundles of segments, by connection
                    Spark       sorts the rows of each part by connection and time, and keeps them on disk

Then parts.py makes of a part what it says about other connections, and with what all parts say its tables.
Few tasks are done sooner in shards, which are spared sorting and the disk; of many each would read too much.

Holds what the tasks report: of each range and part some numbers, the names of topic ids, and of the files.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from kdissect.capture import inputs
from kdissect.errors import OutputError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import MIB
from kdissect.options import Options
from kdissect.query.records import records_of
from kdissect.spark import parts, shuffle
from kdissect.spark.parts import ReadResult
from kdissect.spark.planning import PART_BYTES
from kdissect.spark.ranges import RANGE_BYTES, find_ranges
from kdissect.stats.connection_log import ConnectionLog
from kdissect.stats.survey import Census
from kdissect.tables import manifest
from kdissect.tables.columns import filter_of
from kdissect.tables.export import Export, ExportJob, tables_of
from kdissect.tables.table_files import cannot_write, locked, own_files
from kdissect.tables.values import timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kdissect.capture.source import Source
    from kdissect.options import ExportOptions
    from kdissect.spark.parts import WorkerPart
    from kdissect.spark.ranges import CaptureRanges
    from kdissect.spark.shuffle import RangeStats

AUTO, SINGLE, SHARDS, SHUFFLE = "auto", "single", "shards", "shuffle"
SPLITS = (AUTO, SINGLE, SHARDS, SHUFFLE)
SINGLE_BYTES = 256 * MIB
"""Captures that one task reads sooner than several are started."""
SHUFFLE_TASKS = 16
"""From so many tasks at a time a shuffle is cheaper than that each reads everything
(docs/decisions/shards-or-a-shuffle.md)."""
_DEFAULT = Options()
_SHARED_STORAGE = "DIR must be on storage shared by the driver and all workers"
_BATCH_BYTES = 8 * MIB
_BATCH_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"


class DecodeResult(NamedTuple):
    """What was written.

    Attributes:
        split: how it was done: ``single``, ``shards`` or ``shuffle``.
        tasks: how many wrote files.
        rows: by table; empty where the folder held all of it already.
        files, bytes: of all tables.
        packets: read.
        warnings: what was odd about the captures.
        notices: sentences about connections, for a person.
        counts: what ``Dissection.counts`` counts, of all tasks together, and ``unresolved topic ids``.
        skipped: packets that were not looked at, by reason.
    """

    split: str
    tasks: int
    rows: dict[str, int]
    files: int
    bytes: int
    packets: int
    warnings: list[str]
    notices: list[str]
    counts: Counter[str]
    skipped: Counter[str]


def decode(
    session: SparkSession,
    captures: Sequence[str],
    export: ExportOptions,
    options: Options = _DEFAULT,
    *,
    split: str = AUTO,
    overwrite: bool = False,
    range_bytes: int = RANGE_BYTES,
    tasks: int | None = None,
) -> DecodeResult:
    """Dissect captures on the workers of a session, and write their tables, as ``kdissect export`` does.

    Captures and folder have to be where all workers see them, under the same names; that is checked before
    anything is read, and of each file again when it was written.

    Args:
        session: of Spark, classic or Connect.
        captures: names of files, folders and patterns.
        export: how tables are written; ``rotate_ns`` is not looked at.
        options: what to dissect.
        split: ``single``: one task; ``shards``: each task reads all captures, and takes some of the
            connections; ``shuffle``: each reads a piece of them, and segments are brought together by
            connection; ``auto``: one task for small captures, shards where few tasks run at a time.
        overwrite: remove another export that the folder holds.
        range_bytes: captures are read by tasks in pieces of about so many bytes.
        tasks: that write tables; None: by the size of the captures and the cores.

    Raises:
        UsageError: something that was asked for does not exist.
        CaptureError: no capture can be read.
        OutputError: the tables cannot be written, or workers write them to folders of their own.
        SparkError: a worker does not see the captures that this process sees.
    """
    folder = Path(inputs.local(str(export.folder)))
    names = inputs.captures(captures, but=folder)
    divided = find_ranges(names, options.limits, range_bytes)
    size = sum(Path(name).stat().st_size for name in divided.paths)
    if split == AUTO and size <= SINGLE_BYTES:
        split = SINGLE
    folder, tables = folder.absolute(), tables_of(export)
    filter_of(options)  # raises here what would be raised by every task
    manifest_job = manifest.job_of(filter(os.path.isfile, names), options, export)
    with locked(folder, export.mode):
        missing = manifest.missing(folder, tables, manifest_job, overwrite=overwrite)
        if not missing:
            return DecodeResult(split, 0, {}, 0, 0, 0, divided.faults, [], Counter(), Counter())
        cores = _cores(session, folder)
        own = replace(export, folder=folder, tables=tuple(missing))
        job = ExportJob(options, own, tuple(divided.paths), divided.first_ns)
        output = _new_export(job, manifest_job)
        started = datetime.now(UTC)
        with _settings(session):
            at_a_time = 1 if split == SINGLE else tasks or cores
            if split == AUTO:
                split = SHARDS if at_a_time < SHUFFLE_TASKS else SHUFFLE
            if split == SHUFFLE:
                count = tasks or max(2 * cores, -(-size // PART_BYTES))
                written, read = _shuffled(session, job, divided, count)
            else:
                written, read = _in_shards(session, job, divided, at_a_time)
        return _finished(job, output, split, written, _with_unread(read, divided), started)


def _in_shards(
    session: SparkSession, job: ExportJob, divided: CaptureRanges, count: int
) -> tuple[list[WorkerPart], ReadResult]:
    numbers = session.range(0, count, 1, count)
    learned = None
    if count > 1:
        learned = _merged(job, _run_tasks(numbers, partial(parts.learn_shard, job, count)))
    written: list[WorkerPart] = _run_tasks(
        numbers, partial(parts.write_shard, job, divided.files, count, learned)
    )
    (read,) = (each.read for each in written if each.read is not None)
    return written, read


def _shuffled(
    session: SparkSession, job: ExportJob, divided: CaptureRanges, count: int
) -> tuple[list[WorkerPart], ReadResult]:
    ranges = divided.ranges
    read_ranges = partial(shuffle.read_ranges, ranges, divided.files, count, job.options.limits)
    rows = session.range(0, len(ranges), 1, len(ranges)).mapInArrow(read_ranges, shuffle.COLUMNS)
    with ExitStack() as stack:
        rows = _sorted(rows, count, stack)
        stats = [pickle.loads(row.data) for row in rows.where(rows.part == count).select("data").collect()]
        rows = rows.where(rows.part < count)
        completed, skipped = shuffle.completed(stats, count, job.options.limits)
        if completed:  # few captures have fragments: only these are sorted again
            rows = _sorted(
                rows.union(session.createDataFrame(pa.Table.from_batches(completed))), count, stack
            )
        read = _read(job, stats, skipped)
        span_ns = read.census.span_ns
        end_ns = 0 if span_ns is None else span_ns[1]
        learned = _merged(job, _run_tasks(rows, partial(parts.learn_shuffled, job, end_ns)))
        return _run_tasks(rows, partial(parts.write_shuffled, job, end_ns, learned)), read


def _sorted(rows: DataFrame, count: int, stack: ExitStack) -> DataFrame:
    """The rows by part, those of each in their order, on disk until ``stack`` is closed."""
    rows = rows.repartitionById(count + 1, "part").sortWithinPartitions(*shuffle.ORDER).persist(_disk())
    stack.callback(rows.unpersist)
    return rows


def _merged(job: ExportJob, learned: Sequence[LearnedFacts]) -> LearnedFacts:
    """What all parts say."""
    facts = LearnedFacts(job.options.limits)
    for each in learned:
        facts.merge(each)
    return facts


def _read(job: ExportJob, stats: Sequence[RangeStats], skipped: Counter[str]) -> ReadResult:
    """What was counted in the ranges of each file, as one that reads all of it would count; ``skipped`` is
    what came of fragments that waited for other ranges.
    """
    sources: dict[str, Source] = {}
    census = Census(job.options.limits)
    warnings: list[str] = []
    for each in sorted(stats, key=attrgetter("place")):
        name, source = each.range.path, each.source
        first = sources.setdefault(name, source)
        first.bytes_read = source.bytes_read
        first.interfaces.update(source.interfaces)
        first.statistics.update(source.statistics)
        census.merge(each.census)
        warnings += source.warnings
        if each.fault is not None:
            warnings.append(each.fault)
        skipped = skipped + each.skipped
    for name, source in sources.items():
        source.packets = census.files[name].packets if name in census.files else 0
    return ReadResult(list(sources.values()), census, list(dict.fromkeys(warnings)), skipped)


def _with_unread(read: ReadResult, divided: CaptureRanges) -> ReadResult:
    """The files too that no task was given."""
    sources, warnings = [*read.sources, *divided.unread], [*divided.faults, *read.warnings]
    return read._replace(sources=sources, warnings=warnings)


def _new_export(job: ExportJob, manifest_job: manifest.Job) -> Export:
    """An export before anything is written."""
    log, records = ConnectionLog(job.options.limits), records_of(job.options)
    return Export(job, job.files(in_parts=True), manifest_job, log, records)


def _finished(
    job: ExportJob,
    output: Export,
    split: str,
    written: Sequence[WorkerPart],
    read: ReadResult,
    started: datetime,
) -> DecodeResult:
    """Write the tables that no part can write, and what stands beside all of them."""
    written = sorted(written, key=lambda each: each.result.part)
    results = [each.result for each in written]
    _check_written(job, written)
    for name in job.export.tables:
        known = {file.path for each in results for file in each.files.get(name, ())}
        _keep(job.export.folder / name, known)
    output.adopt(results)
    output.tables.log.census = read.census
    span = read.census.span_ns
    packets = sum(file.packets for file in read.census.files.values())
    clock = {
        "started": started.isoformat(timespec="seconds"),
        "first_packet": None if span is None else timestamp(span[0]),
        "last_packet": None if span is None else timestamp(span[1]),
    }
    end = {"clock": clock, "packets": packets, "warnings": read.warnings}
    output.close(read.sources, read.warnings, complete=True, end=end)
    counts = sum((each.counts for each in results), Counter[str]())
    counts["packets"] = packets
    ids, named = (set().union(*(each.ids[place] for each in results)) for place in (0, 1))
    counts["unresolved topic ids"] = len(ids - named)
    notices = [notice for each in results for notice in each.notices]
    return DecodeResult(
        split,
        len(results),
        output.rows,
        output.files,
        output.bytes,
        packets,
        read.warnings,
        notices[: job.options.limits.notices],
        counts,
        read.skipped,
    )


def _check_written(job: ExportJob, written: Sequence[WorkerPart]) -> None:
    """See whether the files that workers have written are in the folder.

    Raises:
        OutputError: one is not, or has another size.
    """
    for part in written:
        for name, files in part.result.files.items():
            for file in files:
                path = job.export.folder / name / file.path
                if not path.is_file() or path.stat().st_size != file.bytes:
                    raise OutputError(
                        f"worker {part.host} wrote {path}, which the driver does not see; {_SHARED_STORAGE}"
                    )


def _keep(folder: Path, known: Collection[str]) -> None:
    """Remove files that tasks have left which failed, and were run again."""
    for path in list(own_files(folder)):
        if path.relative_to(folder).as_posix() not in known:
            path.unlink()


def _run_tasks(frame: DataFrame, work: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
    """Do something with each partition; get what tasks tell of it."""
    rows = frame.mapInArrow(work, parts.COLUMNS).collect()
    return [pickle.loads(row[0]) for row in rows]  # which a task of ours made


@contextmanager
def _settings(session: SparkSession) -> Iterator[None]:
    """Let no worker get more at once than it should hold: a row can have 64 KiB."""
    before = session.conf.get(_BATCH_LIMIT, None)
    session.conf.set(_BATCH_LIMIT, str(_BATCH_BYTES))
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_BATCH_LIMIT)
        else:
            session.conf.set(_BATCH_LIMIT, before)


def _cores(session: SparkSession, folder: Path) -> int:
    """How many tasks run at a time: as many as Spark makes of what it can divide as it likes. Each sees
    whether it can find what this process writes to a folder.

    Raises:
        OutputError: one does not.
    """
    token = folder / f".kdissect-{uuid4().hex}"  # a new name: no network file system has it cached as missing
    try:
        token.touch()
    except OSError as error:
        raise cannot_write(folder, error) from None
    try:
        probes = _run_tasks(session.range(10_000), partial(parts.probe_token, token))
    finally:
        token.unlink(missing_ok=True)
    unshared = sorted({host for host, is_shared in probes if not is_shared})
    if unshared:
        more = f" and {len(unshared) - 3:,} more" if len(unshared) > 3 else ""
        raise OutputError(f"{folder}: not shared with {', '.join(unshared[:3])}{more}; {_SHARED_STORAGE}")
    return len(probes)


def _disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY
