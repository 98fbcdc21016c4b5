"""A part of the connections -> their learned facts, and the files of all tables: the work of one task.

A part is all of them, whose task reads all captures, or gets its packets from a shuffle (shuffle.py).

Each attempt of a task writes to its own directory, where no reader looks (``unpublished``). The driver moves
the files of the attempts whose results it has got. So one that it has given up, and that continues, publishes
nothing.

Holds what dissecting and writing hold (pipeline.py, tables/table_files.py).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from socket import gethostname
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, Self, TypeVar, cast

import pyarrow as pa
from pyspark import TaskContext

from kdissect.capture import stores
from kdissect.capture.reader import Readable, open_capture
from kdissect.errors import WriteError
from kdissect.exchanges.learned import LearnedFacts
from kdissect.files import create, make_directory, publish
from kdissect.model import IdleTick
from kdissect.pipeline import Dissection, learned_from
from kdissect.sinks.sink import Demand
from kdissect.spark.ranges import examine
from kdissect.spark.shuffle import SortedPackets, bundles_in_files, bundles_in_rows
from kdissect.spark.values import from_json, known, to_json
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables.export import PartResult, write_part
from kdissect.tables.table_files import UNFINISHED, FinishedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame

    from kdissect.capture.inputs import Candidate
    from kdissect.capture.reader import Capture
    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.query.filters import FilterNotes
    from kdissect.spark.ranges import Fingerprint
    from kdissect.spark.shuffle import Bundle, PacketFile
    from kdissect.stats.survey import Census
    from kdissect.tables.export import ExportJob

    NewLog = Callable[[Limits], ConnectionLog]
    PartBundles = Callable[[Iterable[Any]], Iterator[tuple[int, Iterable[Bundle]]]]

    class PartOpener(Protocol):
        """Opens the parts of a partition; ``new_log`` makes what sees the connections of each."""

        def __call__(self, batches: Iterable[Any], *, new_log: NewLog = ...) -> Iterator[OpenPart]:
            """See ``open_all`` and ``open_shuffled``."""


Value = TypeVar("Value")

UNPUBLISHED = "_unpublished"
"""Directory beside the tables; readers ignore names that begin like this."""
COLUMNS = "result binary"
_MANY_OBJECTS = 10_000
_SCHEMA = pa.schema([("result", pa.binary())])


@known
class WorkerPart(NamedTuple):
    """What a worker wrote.

    Attributes:
        host: name of the worker's machine.
        attempt: directory of its files, below ``unpublished``.
        result: the files and counts of the part.
        notes: of its filter.
        read: see ``OpenPart``.
    """

    host: str
    attempt: str
    result: PartResult
    notes: FilterNotes
    read: ReadResult | None


@known
class ReadResult(NamedTuple):
    """What was counted while reading the captures."""

    sources: Sequence[Source]
    census: Census
    warnings: list[str]
    skipped: Counter[str]


class ListIn(Sequence[Value]):
    """A list in a file that all workers see, such as the names of captures: a task gets its name only, and a
    process reads it once.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def new(cls, file: Path, values: Sequence[Value], mode: int) -> Self:
        """Write the file.

        Raises:
            WriteError: it cannot be written.
        """
        try:
            with create(file, mode) as written:
                written.write(to_json(tuple(values)))
        except OSError as error:
            raise WriteError.of(file, error) from None
        return cls(file)

    def __getitem__(self, place: Any) -> Any:
        return _list_in(self._file)[place]

    def __len__(self) -> int:
        return len(_list_in(self._file))


@lru_cache(maxsize=3)
def _list_in(file: Path) -> tuple[Any, ...]:
    values: tuple[Any, ...] = from_json(file.read_bytes())
    return values


def by_tasks(
    frame: DataFrame, work: Callable[[Iterator[Any]], Iterator[Any]], columns: str = COLUMNS
) -> DataFrame:
    """The rows that ``work`` makes of each partition."""
    return frame.mapInArrow(partial(_in_task, work), columns)


def _in_task(work: Callable[[Iterator[Any]], Iterator[Any]], batches: Iterator[Any]) -> Iterator[Any]:
    """Spark searches for garbage after each task. What is left when the next one begins will stay, and need
    not be searched again: that takes longer than a small task. What goes after all is freed when nothing
    refers to it; only cycles of it stay.
    """
    if len(gc.get_objects()) > _MANY_OBJECTS:
        gc.freeze()
    return work(batches)


def examine_files(
    limits: Limits, size: int, tokens: Sequence[Path], files: Iterable[tuple[str, Candidate] | None]
) -> Iterator[Any]:
    """Yield this machine's name, whether each of the tokens exists, and the ``FileRanges`` of each capture.

    Args:
        limits: see ``Limits``.
        size: approximate size of the ranges.
        tokens: files that the driver created.
        files: name, and what is known of it; None: nothing.
    """
    captures = (file[0] for file in files if file is not None and file[1].begins_as_capture(file[0]))
    examined = [examine(name, limits, size) for name in captures]
    yield _row((gethostname(), list(map(_exists, tokens)), examined))


def _exists(token: Path) -> bool:
    with suppress(PermissionError):  # a worker may run as another user
        return token.exists()
    return False


def learn_all(job: ExportJob, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the ``LearnedFacts`` of all captures, for the number in the column ``id``."""
    for _ in _numbers(batches):
        yield _row(learned_from(job.paths, job.options, key_log=job.key_log))


class OpenPart(NamedTuple):
    """A part that is ready to be dissected.

    Attributes:
        number: of the part.
        log: of its connections.
        dissection: of its packets.
        read: what was counted when the dissection has ended; None: a part of a shuffle.
    """

    number: int
    log: ConnectionLog
    dissection: Dissection
    read: Callable[[], ReadResult | None]


def open_all(
    job: ExportJob,
    files: Mapping[str, Fingerprint],
    learned: LearnedFacts | None,
    batches: Iterable[Any],
    *,
    new_log: NewLog = ConnectionLog,
) -> Iterator[OpenPart]:
    """Open all captures as the part whose number is in the column ``id``.

    Args:
        job: what to do.
        files: fingerprints of the captures, taken by the driver.
        learned: facts learned in all captures; None: they are learned while reading.
        batches: the number, unless Spark gives the partition nothing.
        new_log: makes the observer.

    Raises:
        CaptureError: a file is not the one that the driver saw.
    """
    options = job.options
    for number in _numbers(batches):
        for path, fingerprint in files.items():
            fingerprint.check(path)
        log = new_log(options.limits)
        with open_capture(*job.paths, limits=options.limits) as capture:
            packets = Readable(capture.packet_blocks())
            dissection = Dissection(
                log.watch(packets), options, observer=log, learned=learned, key_log=job.key_log
            )
            yield OpenPart(number, log, dissection, partial(_read, capture, packets, log, dissection))


def _read(capture: Capture, packets: Readable, log: ConnectionLog, dissection: Dissection) -> ReadResult:
    warnings = [*capture.warnings, *([] if packets.fault is None else [packets.fault])]
    return ReadResult(capture.sources, log.census, warnings, Counter(dissection.skipped))


def parts_in_rows(batches: Iterable[Any]) -> Iterator[tuple[int, Iterable[Bundle]]]:
    """The number and bundles of the part whose rows Spark has sorted, unless it is empty."""
    rest = iter(batches)
    if (first := next(rest, None)) is not None:
        yield first.column("part")[0].as_py(), bundles_in_rows(chain((first,), rest))


def parts_in_files(
    files: Sequence[PacketFile], batches: Iterable[Any]
) -> Iterator[tuple[int, Iterable[Bundle]]]:
    """The numbers and bundles of the parts whose numbers are in the column ``id``, without empty ones."""
    for number in _numbers(batches):
        rest = bundles_in_files(files, number)
        if (first := next(rest, None)) is not None:
            yield number, chain((first,), rest)


def open_shuffled(
    job: ExportJob,
    end_ns: int,
    divided: PartBundles,
    learned: LearnedFacts,
    batches: Iterable[Any],
    *,
    new_log: NewLog = ConnectionLog,
) -> Iterator[OpenPart]:
    """Open parts of a shuffle.

    Args:
        job: what to do.
        end_ns: time of the latest packet in all parts.
        divided: finds the bundles of each part.
        learned: facts learned in all parts.
        batches: of the partition.
        new_log: makes the observer of each.
    """
    for number, bundles in divided(batches):
        log = new_log(job.options.limits)
        dissection = _shuffled(job, end_ns, bundles, observer=log, learned=learned)
        yield OpenPart(number, log, dissection, lambda: None)


def learn_shuffled(
    job: ExportJob, end_ns: int, divided: PartBundles, batches: Iterable[Any]
) -> Iterator[Any]:
    """Yield the ``LearnedFacts`` of parts of a shuffle, together; see ``open_shuffled``."""
    facts = LearnedFacts(job.options.limits, job.options.names)
    for _, bundles in divided(batches):
        own = LearnedFacts(job.options.limits, job.options.names)
        _shuffled(job, end_ns, bundles).learn(own)
        facts.merge(own)
    yield _row(facts)


def _shuffled(job: ExportJob, end_ns: int, bundles: Iterable[Bundle], **settings: Any) -> Dissection:
    """A dissection of a part until the end of all captures."""
    packets = chain(SortedPackets(bundles, job.paths), (IdleTick(end_ns),))
    return Dissection(packets, job.options, key_log=job.key_log, **settings)


def write(job: ExportJob, opened: PartOpener, batches: Iterable[Any]) -> Iterator[Any]:
    """Write the tables of the parts that ``opened`` opens; yield a ``WorkerPart`` for each."""
    task = TaskContext.get()
    for part in opened(batches):
        attempt = f"{part.number}-{0 if task is None else task.taskAttemptId()}"
        own = replace(job, export=replace(job.export, directory=unpublished(job) / attempt))
        filter_ = job.filter()
        result = write_part(
            own, part.number, part.dissection, part.log, filter_.matches, Demand.of(job.options, filter_), 1
        )  # not 0: the driver writes the empty file of a table without rows
        yield _row(WorkerPart(gethostname(), attempt, result, filter_.notes, part.read()))


@known
class TaskFile(NamedTuple):
    """A file that a task wrote.

    Attributes:
        host: name of the worker's machine.
        attempt: directory of the file, below ``unpublished``.
        table: name of the table.
        file: its path, below the directory of the table.
    """

    host: str
    attempt: str
    table: str
    file: FinishedFile

    def path(self, job: ExportJob) -> Path:
        """Where it is until the driver moves it."""
        return unpublished(job) / self.attempt / self.table / self.file.path


def of_values(work: Callable[[Iterable[Any]], Iterator[Any]], batches: Iterable[Any]) -> Iterator[Any]:
    """What ``work`` makes of the values in the column ``value``."""
    return work(from_json(value) for batch in batches for value in batch.column("value").to_pylist())


def combine(job: ExportJob, groups: Iterable[tuple[int, Sequence[TaskFile]]]) -> Iterator[Any]:
    """Make one file of the files of each numbered group; yield a ``TaskFile``."""
    task = TaskContext.get()
    for number, group in groups:
        attempt = f"combined-{number}-{0 if task is None else task.taskAttemptId()}"
        combined = group[0]._replace(host=gethostname(), attempt=attempt)
        path = combined.path(job)
        unfinished = path.with_name(f".{path.name}{UNFINISHED}")
        make_directory(path.parent, job.export.mode, below=unpublished(job))
        with ExitStack() as stack:
            parts = (stack.enter_context(stores.open_file(str(each.path(job)))) for each in group)
            file = stack.enter_context(create(unfinished, job.export.mode))
            job.format.concatenate(file, cast("Iterable[BinaryIO]", parts))
            publish(file, unfinished, path)
        rows = sum(each.file.rows or 0 for each in group)
        yield _row(combined._replace(file=FinishedFile(group[0].file.path, rows, path.stat().st_size)))


def unpublished(job: ExportJob) -> Path:
    """The directory of the files of a run that are not in the tables yet."""
    return job.export.directory / UNPUBLISHED / job.run


def _numbers(batches: Iterable[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()


def _row(value: Any) -> Any:
    return as_row(to_json(value))


def as_row(data: bytes) -> Any:
    """What a task returns as a batch, for ``COLUMNS``."""
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], schema=_SCHEMA)
