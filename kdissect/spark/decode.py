"""Captures -> the tables of an export, written by Spark's workers: ``decode``.

One task reads small captures. Larger ones are read once, by many tasks, and their packets are shuffled:

    ranges.py     files     -> ranges that tasks can read
    shuffle.py    a range   -> bundles of packets, by part of the connections, in files or kept by Spark
                  a part    -> its packets, in order

Then parts.py collects the learned facts of each part, and with those of all parts writes its tables.

Holds what the tasks report: the counts of each range and part, the names of topic IDs, and the names of
files.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate, count
from operator import attrgetter
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa

from kdissect.capture import inputs, stores
from kdissect.errors import CaptureError, OutputError, WriteError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.files import is_stored, make_directory, move, remove_all, sync
from kdissect.limits import MIB
from kdissect.options import WHOLE, Options
from kdissect.phrases import many
from kdissect.pipeline import notices_of
from kdissect.query.records import records_of
from kdissect.spark import parts, shuffle
from kdissect.spark.options import check_where
from kdissect.spark.parts import ListIn, ReadResult, TaskFile
from kdissect.spark.planning import OPEN_BYTES, PART_BYTES, key_log_of
from kdissect.spark.ranges import RANGE_BYTES, UNSHARED_CAPTURES, in_order
from kdissect.spark.requirements import local_directory
from kdissect.spark.session import MAX_TASKS, own_python
from kdissect.spark.shuffle import ExpectedRange, RangeCounts
from kdissect.spark.values import from_json, to_json
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables import manifest
from kdissect.tables.columns import filter_of
from kdissect.tables.export import Export, ExportJob, tables_of
from kdissect.tables.others import captures as capture_rows
from kdissect.tables.rows import RECORDS
from kdissect.tables.table_files import FinishedFile, locked, visible_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kdissect.capture.inputs import Candidate
    from kdissect.limits import Limits
    from kdissect.options import ExportOptions
    from kdissect.query.filters import FilterNotes
    from kdissect.spark.parts import WorkerPart
    from kdissect.spark.ranges import CaptureRanges, FileRanges

SINGLE_BYTES = 256 * MIB
"""Up to this size one task finishes sooner than several can be started."""
_DEFAULT = Options()
_TASKS_PER_CORE = 4  # enough that no core waits for long for the last one
_TASK_BYTES = 32 * MIB  # of captures or of small files, below which a task costs more than its work
_MAX_COMBINING = 1000  # tasks that combine files
_MOVES = 16  # at a time
_SPREAD = 4000  # rows that Spark divides among all cores


class UnsharedError(OutputError):
    """Workers do not see the directory of the tables.

    Attributes:
        who: the workers, and what they do not see.
    """

    def __init__(self, who: str, remedy: str = "DIR must be") -> None:
        super().__init__(f"{who}; {remedy} on storage shared by the driver and all workers")
        self.who = who


class DecodeResult(NamedTuple):
    """What was written.

    Attributes:
        tasks: number of tasks that wrote files.
        rows: number of rows by table; empty if the directory already had the complete export.
        files, bytes: number and size of the files of all tables.
        packets: number of packets read.
        warnings: problems of the captures, and what tables lack because of limits.
        damaged: number of captures with problems.
        notices: messages about connections, for people.
        counts: ``Dissection.counts`` of all tasks, and ``unresolved topic IDs``.
        skipped: number of packets not dissected, by reason.
        notes: of the filters of all tasks.
        complete: whether all captures were read to their ends.
        unreadable: whether one of them cannot be read.
    """

    tasks: int
    rows: dict[str, int]
    files: int
    bytes: int
    packets: int
    warnings: list[str]
    damaged: int
    notices: list[str]
    counts: Counter[str]
    skipped: Counter[str]
    notes: FilterNotes
    complete: bool
    unreadable: bool = False


def decode(
    session: SparkSession,
    captures: Sequence[str],
    export: ExportOptions,
    options: Options = _DEFAULT,
    *,
    overwrite: bool = False,
    redo: bool = False,
    range_bytes: int = RANGE_BYTES,
    tasks: int | None = None,
) -> DecodeResult:
    """Dissect captures on a session's workers, and write their tables, as ``kdissect export`` does.

    All workers must see captures and directory under the same paths; this is checked before anything is read,
    and for each file again after it was written. Only this process adds files to the tables.

    Args:
        session: Spark session, classic or Connect.
        captures: names of files and directories, and globs; paths or URLs.
        export: how tables are written; ``rotate_ns`` is ignored.
        options: what to dissect.
        overwrite: whether to replace another export in the directory.
        redo: whether to replace what the directory has of these captures. Otherwise only others are added.
        range_bytes: approximate size of the ranges of a shuffle.
        tasks: number of tasks that dissect, but at most 4 per core, unless each has 32 MiB of captures; None:
            depends on the size of the captures and the cores. A single one reads everything; otherwise tasks
            read ranges, and packets are shuffled by connection.

    Raises:
        UsageError: a table, column, filter value or file name is invalid.
        CaptureError: no capture can be read.
        OutputError: the tables cannot be written, or workers wrote them to their own disks.
        SparkError: a worker does not see the captures that this process sees.
    """
    directory = inputs.output_directory(export.directory).absolute()
    files = inputs.candidates(captures, exclude=directory)
    if not files:
        raise CaptureError(f"{', '.join(captures)}: {inputs.NOTHING}")
    return decode_files(
        session,
        files,
        replace(export, directory=directory),
        options,
        overwrite=overwrite,
        redo=redo,
        range_bytes=range_bytes,
        tasks=tasks,
    )


def decode_files(
    session: SparkSession,
    files: Mapping[str, Candidate],
    export: ExportOptions,
    options: Options,
    *,
    overwrite: bool = False,
    redo: bool = False,
    range_bytes: int = RANGE_BYTES,
    tasks: int | None = None,
) -> DecodeResult:
    """``decode`` of files that were found; the directory is absolute."""
    directory, tables = export.directory, tables_of(export)
    options = replace(options, end_to_end=RECORDS in tables)
    notes = filter_of(options).notes  # fails here rather than in every task
    if options.where is not None:
        check_where(options.where)
    with own_python(session), locked(directory, export.mode), ExitStack() as stack:
        scratch = temporary(session, stack) if is_stored(directory) else None
        directories = [each for each in (directory, scratch) if each is not None]
        surveyed = survey(session, files, options.limits, range_bytes, directories)
        divided = in_order(surveyed.files)
        regular = {name: status for name, status in divided.statuses.items() if status.size is not None}
        begins = {name: fingerprint.crc for name, fingerprint in divided.files.items()}
        manifest_job = manifest.job_of(regular, options, export, statuses=regular, begins=begins)
        lacks = manifest.missing(directory, tables, manifest_job, overwrite=overwrite, redo=redo)
        if not lacks.tables:
            return DecodeResult(0, {}, 0, 0, 0, divided.faults, 0, [], Counter(), Counter(), notes, True)
        _check_shared(directory, surveyed.unshared[directory])
        if len(lacks.captures) < len(regular):
            divided = in_order(each for each in surveyed.files if each.name in lacks.captures)
        own = replace(export, tables=tuple(lacks.tables))
        first_file = manifest.prepare(directory, lacks, overwrite=overwrite)
        key_log = key_log_of(options, divided.pcapng_files)
        options = replace(options, pcapng_files=divided.pcapng_files)
        job = ExportJob(options, own, tuple(divided.files), divided.first_ns, key_log, first_file)
        output = _new_export(job, lacks.job, lacks.kept)
        stack.callback(remove_all, parts.unpublished(job).parent)  # also of runs that were killed
        scratch = surveyed.shared(scratch) if is_stored(directory) else parts.unpublished(job)
        division = divide(session, job, divided, tasks, surveyed.cores, stack, scratch)
        written = _run_tasks(division.rows, partial(parts.write, division.job, division.opened))
        if written:
            written[0].result.counts.update(division.forgotten)
        read = with_unread(division.read_by([each.read for each in written]), divided)
        combined = _combined(session, division.job, written, surveyed.cores)
        finished = _finished(job, output, written, combined, read)
        return finished._replace(unreadable=bool(divided.faults))


class Division(NamedTuple):
    """The connections, divided among tasks.

    Attributes:
        tasks: number of tasks.
        job: for them.
        rows: with a partition for each task: its packets, or a number for one that reads everything.
        opened: opens the parts of a partition.
        learned: facts learned in all parts; None: a single task learns them while it reads.
        read: what was counted; None: the task reports it.
    """

    tasks: int
    job: ExportJob
    rows: DataFrame
    opened: parts.PartOpener
    learned: LearnedFacts | None
    read: ReadResult | None = None

    @property
    def forgotten(self) -> dict[str, int]:
        """Counts of what the learned facts lack, because of limits."""
        facts = self.learned
        if facts is None:
            return {}
        return {"produced_evicted": facts.dropped_batches, "names_forgotten": facts.dropped_names}

    def read_by(self, reads: Sequence[ReadResult | None]) -> ReadResult:
        """What was counted, here or by a part."""
        read = self.read or reads[0]
        assert read is not None
        return read


def divide(
    session: SparkSession,
    job: ExportJob,
    divided: CaptureRanges,
    tasks: int | None,
    cores: int,
    stack: ExitStack,
    scratch: Path | None,
) -> Division:
    """Divide the connections among tasks.

    Args:
        session: Spark session.
        job: what to do.
        divided: the captures.
        tasks: see ``decode``.
        cores: number of tasks that run concurrently.
        stack: frees the disks of the workers.
        scratch: a directory that all workers see; None: there is none.
    """
    count = task_count(divided.bytes, cores, tasks)
    if count > 1:
        return _shuffled(session, job, divided, count, cores, stack, scratch)
    numbers = session.range(0, 1, 1, 1)
    learned = None
    if job.options.names == WHOLE:
        learned = _merged(job, _run_tasks(numbers, partial(parts.learn_all, job)))
    opened = partial(parts.open_all, job, divided.files, learned)
    return Division(1, job, numbers, opened, learned)


def _shuffled(
    session: SparkSession,
    job: ExportJob,
    divided: CaptureRanges,
    count: int,
    cores: int,
    stack: ExitStack,
    scratch: Path | None,
) -> Division:
    """Read the captures, and shuffle their packets into ``count`` parts, sorted by time."""
    ranges = divided.ranges
    if scratch is not None:
        make_directory(scratch, job.export.mode)
        job = _without_names(job, scratch)
    runs = _runs(divided, min(MAX_TASKS, max(cores, -(-divided.bytes // PART_BYTES))))
    read_ranges = partial(shuffle.read_ranges, len(ranges), count, job.options.limits, scratch)
    spread = _spread(session, runs, len(runs), cores)
    rows = parts.by_tasks(spread, partial(parts.of_values, read_ranges), shuffle.COLUMNS)
    if scratch is None:
        rows = _sorted(rows, count, stack)
    counts = RangeCounts(job.options.limits)
    counted = rows.where(rows.part == count).select("number", "data").collect()
    for row in sorted(counted, key=attrgetter("number")):  # in the order of the ranges
        counts.add(shuffle.counts_in(row.data))
    completed, skipped = shuffle.completed(counts.fragments, count, job.options.limits)
    in_parts: parts.PartBundles = parts.parts_in_rows
    if scratch is not None:
        files = counts.files + shuffle.stored(completed, count, scratch / "completed", job.export.mode)
        files.sort(key=attrgetter("first_ns"))
        in_parts = partial(parts.parts_in_files, ListIn.new(scratch / "files", files, job.export.mode))
        few = min(count, _TASKS_PER_CORE * cores)  # what they learn is small, and collected
        learners = session.range(0, count, 1, few)
        rows = session.range(0, count, 1, count)
    else:
        learners = rows = rows.where(rows.part < count)
        if completed:  # rare: only captures with fragments are sorted again
            batch = pa.Table.from_batches([shuffle.batch_of(completed)])
            learners = rows = _sorted(rows.union(session.createDataFrame(batch)), count, stack)
    read = _read(counts, skipped)
    span_ns = read.census.span_ns
    end_ns = 0 if span_ns is None else span_ns[1]
    if (warning := shuffle.uneven(counts)) is not None:
        read.warnings.append(warning)
    learned = _merged(job, _run_tasks(learners, partial(parts.learn_shuffled, job, end_ns, in_parts)))
    opened = partial(parts.open_shuffled, job, end_ns, in_parts, learned)
    return Division(count, job, rows, opened, learned, read)


def _without_names(job: ExportJob, scratch: Path) -> ExportJob:
    """The job, with the names of captures in files instead of the code."""
    mode = job.export.mode
    files = ListIn.new(scratch / "captures", job.paths, mode)
    pcapng_files = ListIn.new(scratch / "pcapng", job.options.pcapng_files, mode)
    return replace(job, paths=files, options=replace(job.options, pcapng_files=pcapng_files))


def _runs(divided: CaptureRanges, count: int) -> list[list[ExpectedRange]]:
    """Runs of consecutive ranges, at most ``count``, which cost about the same."""
    numbers = Counter(each.path for each in divided.ranges)
    costs = [OPEN_BYTES + divided.files[each.path].bytes // numbers[each.path] for each in divided.ranges]
    before, total = accumulate(costs, initial=0), sum(costs)
    runs: dict[int, list[ExpectedRange]] = {}
    for place, (each, cost) in enumerate(zip(divided.ranges, before, strict=False)):
        run = runs.setdefault(cost * count // total, [])
        run.append(ExpectedRange(place, each, divided.files[each.path]))
    return list(runs.values())


def _sorted(rows: DataFrame, count: int, stack: ExitStack) -> DataFrame:
    """Rows partitioned by part and sorted in each, on disk until ``stack`` is closed."""
    rows = rows.repartitionById(count + 1, "part").sortWithinPartitions(*shuffle.ORDER).persist(disk())
    stack.callback(rows.unpersist)
    return rows


def examined_job(
    session: SparkSession,
    files: Mapping[str, Candidate],
    options: Options,
    export: ExportOptions,
    range_bytes: int,
    directories: Sequence[Path],
) -> tuple[ExportJob, CaptureRanges, Surveyed]:
    """What to do with captures besides writing an export; see ``survey``.

    Returns:
        The job, the captures, and what tasks have found.

    Raises:
        CaptureError: none can be read, a worker does not see one, or a key log cannot be read.
    """
    surveyed = survey(session, files, options.limits, range_bytes, directories)
    divided = in_order(surveyed.files)
    key_log = key_log_of(options, divided.pcapng_files)
    options = replace(options, pcapng_files=divided.pcapng_files)
    return ExportJob(options, export, tuple(divided.files), divided.first_ns, key_log), divided, surveyed


def _merged(job: ExportJob, learned: Sequence[LearnedFacts]) -> LearnedFacts:
    """The learned facts of all parts."""
    facts = LearnedFacts(job.options.limits, job.options.names)
    for each in learned:
        facts.merge(each)
    return facts


def _read(counts: RangeCounts, skipped: Counter[str]) -> ReadResult:
    """The counts of all ranges, as if one task had read the files; ``skipped`` has the counts of fragments
    that waited for other ranges.
    """
    files = counts.census.files
    for name, source in counts.sources.items():
        source.packets = files[name].packets if name in files else 0
    warnings = list(dict.fromkeys(counts.warnings))
    return ReadResult(list(counts.sources.values()), counts.census, warnings, skipped + counts.skipped)


def with_unread(read: ReadResult, divided: CaptureRanges) -> ReadResult:
    """Add the files that could not be read, and thus went to no task."""
    sources, warnings = [*read.sources, *divided.unread], [*divided.faults, *read.warnings]
    return read._replace(sources=sources, warnings=warnings)


def _new_export(job: ExportJob, manifest_job: manifest.Job, kept: Mapping[str, Sequence[Any]]) -> Export:
    """An export without any files of its own."""
    log, records = ConnectionLog(job.options.limits), records_of(job.options)
    return Export(job, job.files(in_parts=True), manifest_job, log, records, kept=kept)


def _finished(
    job: ExportJob,
    output: Export,
    written: Sequence[WorkerPart],
    files: Sequence[TaskFile],
    read: ReadResult,
) -> DecodeResult:
    """Publish the files of tasks, and write the tables that no part can write, and all manifests."""
    _check_written(job, files)
    output.check_ours()
    results = [each.result for each in sorted(written, key=lambda each: each.result.part)]
    output.adopt(results, _published(job, files))
    output.tables.log.census = read.census
    packets = sum(file.packets for file in read.census.files.values())
    complete = not any(source.failed for source in read.sources)
    output.close(read.sources, read.warnings, complete=complete, packets=packets)
    counts = sum((each.counts for each in results), Counter[str]())
    counts["packets"] = packets
    ids, named = (set().union(*(each.ids[place] for each in results)) for place in (0, 1))
    counts["unresolved topic IDs"] = len(ids - named)
    notes = job.filter().notes
    for part in written:
        notes.merge(part.notes)
    return DecodeResult(
        len(results),
        output.rows,
        output.files,
        output.bytes,
        packets,
        [*read.warnings, *output.warnings],
        sum(1 for row in capture_rows(read.sources, read.census, read.warnings) if row.warnings),
        notices_of((each for result in results for each in result.noticed), job.options.limits),
        counts,
        read.skipped,
        notes,
        complete,
    )


def task_files(written: Sequence[WorkerPart]) -> list[TaskFile]:
    """The files of all parts, in the order of the parts."""
    return [
        TaskFile(part.host, part.attempt, name, file)
        for part in sorted(written, key=lambda each: each.result.part)
        for name, files in part.result.files.items()
        for file in files
    ]


def _combined(
    session: SparkSession, job: ExportJob, written: Sequence[WorkerPart], cores: int
) -> list[TaskFile]:
    """The files of all tasks; tasks combine small ones of a table to files of about ``PART_BYTES``."""
    files = task_files(written)
    _check_written(job, files)
    max_bytes = min(PART_BYTES, job.export.rotate_bytes)
    groups: dict[tuple[str, PurePath], list[list[TaskFile]]] = {}
    sizes: dict[tuple[str, PurePath], int] = {}
    for each in files:
        place = each.table, PurePath(each.file.path).parent
        if place not in groups or sizes[place] + each.file.bytes > max_bytes:
            groups.setdefault(place, []).append([])
            sizes[place] = 0
        groups[place][-1].append(each)
        sizes[place] += each.file.bytes
    listed = [group for of_place in groups.values() for group in of_place]
    small = [group for group in listed if len(group) > 1]
    if not small:
        return files
    small_bytes = sum(each.file.bytes for group in small for each in group)
    tasks = min(len(small), 1 + small_bytes // _TASK_BYTES, _MAX_COMBINING)
    rows = _spread(session, enumerate(small), tasks, cores)
    return [group[0] for group in listed if len(group) == 1] + _run_tasks(
        rows, partial(parts.of_values, partial(parts.combine, job))
    )


def _check_shared(directory: Path, unshared: Sequence[str]) -> None:
    """Check that workers see the directory of the tables.

    Raises:
        UnsharedError: some do not.
    """
    if unshared:
        more = f" and {len(unshared) - 3:,} more" if len(unshared) > 3 else ""
        raise UnsharedError(f"{directory}: not shared with {', '.join(unshared[:3])}{more}")


def _check_written(job: ExportJob, files: Sequence[TaskFile]) -> None:
    """Check that the driver sees the files that workers wrote.

    Raises:
        UnsharedError: a file is missing or has a different size.
    """
    directory = parts.unpublished(job)
    stored = visible_files(directory) if is_stored(directory) else None
    for each in files:
        path = each.path(job)
        size = stores.size(str(path)) if stored is None else stored.get(str(path.relative_to(directory)))
        if size != each.file.bytes:
            raise UnsharedError(f"worker {each.host} wrote {path}, which the driver does not see")


def _published(job: ExportJob, files: Sequence[TaskFile]) -> dict[str, list[FinishedFile]]:
    """Move the files of tasks into the tables, and return them by table; those of other attempts stay behind.

    Raises:
        OutputError: one cannot be moved.
    """
    tables, moves, moved = job.files(), list[tuple[Path, Path]](), dict[str, list[FinishedFile]]()
    numbers = {name: count(job.first_file) for name in tables}
    directory = job.export.directory
    for each in files:
        path = PurePath(each.file.path).with_name(tables[each.table].name(next(numbers[each.table])))
        moves.append((each.path(job), directory / each.table / path))
        moved.setdefault(each.table, []).append(each.file._replace(path=path.as_posix()))
    try:
        targets = {target.parent for _, target in moves}
        for target in targets:
            make_directory(target, job.export.mode, below=directory)
        with ThreadPoolExecutor(_MOVES) as pool:  # a store takes some time for each
            list(pool.map(lambda each: move(*each), moves))
        for target in targets:
            sync(target)
    except OSError as error:
        raise WriteError.of(directory, error) from None
    return moved


def _spread(
    session: SparkSession, values: Iterable[Any], tasks: int | None = None, cores: int = 1
) -> DataFrame:
    """Rows with values, for ``parts.of_values``. A task gets only its own, unlike what Spark sends with the
    code.

    Args:
        session: Spark session.
        values: one for each row.
        tasks: number of tasks, not more than ``values``; None: as many as run concurrently.
        cores: number of tasks that run concurrently.
    """
    rows = session.createDataFrame(pa.table({"value": pa.array(map(to_json, values), pa.binary())}))
    if tasks is None:
        return rows
    return rows.repartition(tasks) if tasks > cores else rows.coalesce(tasks)  # which shuffles nothing


def _run_tasks(frame: DataFrame, work: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
    """Run ``work`` on each partition; return the values that it yields."""
    return [from_json(row[0]) for row in parts.by_tasks(frame, work).collect()]


class Surveyed(NamedTuple):
    """What tasks have found before captures are read.

    Attributes:
        files: the captures, as named.
        cores: how many tasks run concurrently: as many as Spark makes by default.
        unshared: by directory, machines of workers that do not see a file that this process created there.
    """

    files: list[FileRanges]
    cores: int
    unshared: dict[Path, list[str]]

    def shared(self, directory: Path | None) -> Path | None:
        """The directory, if there is one that all workers see."""
        return None if directory is None or self.unshared[directory] else directory


def survey(
    session: SparkSession,
    files: Mapping[str, Candidate],
    limits: Limits,
    range_bytes: int,
    directories: Sequence[Path],
) -> Surveyed:
    """Examine the captures, and directories that workers should see. This process only lists the captures,
    and tasks open them.

    Args:
        session: Spark session.
        files: from ``inputs.candidates``.
        limits: see ``Limits``.
        range_bytes: approximate size of the ranges.
        directories: they exist.

    Raises:
        CaptureError: there is no capture, or a worker does not see one.
        OutputError: a directory cannot be written to.
    """
    rows = max(len(files), _SPREAD)
    spread = {place * rows // len(files): file for place, file in enumerate(files.items())}
    with ExitStack() as stack:
        tokens = [stack.enter_context(_token(directory)) for directory in directories]
        examine = partial(parts.of_values, partial(parts.examine_files, limits, range_bytes, tokens))
        by_task: list[tuple[str, list[bool], list[FileRanges]]] = _run_tasks(
            _spread(session, map(spread.get, range(rows))), examine
        )
    for host, _, of_task in by_task:
        for file in of_task:
            if file.fault and file.status.size is None and stores.size(file.name) is not None:
                raise CaptureError(f"worker {host} cannot read {file.fault}; {UNSHARED_CAPTURES}")
    examined = {file.name: file for _, _, of_task in by_task for file in of_task}
    if not examined:
        raise CaptureError(f"no capture among {many(len(files), 'file')}; the first is {next(iter(files))}")
    unshared = {
        directory: sorted({host for host, is_seen, _ in by_task if not is_seen[place]})
        for place, directory in enumerate(directories)
    }
    return Surveyed([examined[name] for name in files if name in examined], len(by_task), unshared)


@contextmanager
def _token(directory: Path) -> Iterator[Path]:
    """A file in a directory, while tasks look for it.

    Raises:
        OutputError: it cannot be created.
    """
    token = (
        directory / f".kdissect-{uuid4().hex}"
    )  # a new name, which no network file system has cached as missing
    try:
        token.touch()
    except OSError as error:
        raise WriteError.of(directory, error) from None
    try:
        yield token
    finally:
        token.unlink(missing_ok=True)


def temporary(session: SparkSession, stack: ExitStack) -> Path | None:
    """A temporary directory until ``stack`` is closed, if there can be one; workers may not see it."""
    parent = local_directory(session.conf)
    try:
        directory = TemporaryDirectory(prefix="kdissect-packets-", dir=parent, ignore_cleanup_errors=True)
        return Path(stack.enter_context(directory))  # errors: a task may still write a file
    except OSError:  # Spark's configuration may be about the workers
        return None


def task_count(captures_bytes: int, cores: int, chosen: int | None = None) -> int:
    """The number of tasks that dissect: that which the user wants, unless these would be small, or one that
    depends on the captures.
    """
    if chosen is not None:
        return min(chosen, max(_TASKS_PER_CORE * cores, captures_bytes // _TASK_BYTES))
    if captures_bytes <= SINGLE_BYTES:
        return 1
    return min(MAX_TASKS, max(2 * cores, -(-captures_bytes // PART_BYTES)))


def disk() -> Any:
    from pyspark import StorageLevel

    return StorageLevel.DISK_ONLY
