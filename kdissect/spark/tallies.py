"""Captures -> counts, without tables: ``tally``.

Each task dissects its part of the connections, divided as in decode.py, and counts its exchanges with the
sink of ``kdissect summary``. Then tasks add up the counts of other tasks, until the driver has few left to
add. So the counts are those of one process, in the same bounded memory.

Holds the counts of at most ``_MERGED`` tasks, compressed, and those of one.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.capture import inputs
from kdissect.errors import CaptureError
from kdissect.options import PARQUET, ExportOptions
from kdissect.pipeline import notices_of
from kdissect.spark import parts
from kdissect.spark.decode import divide, examined_job, temporary, with_unread
from kdissect.spark.options import check_where
from kdissect.spark.ranges import RANGE_BYTES
from kdissect.spark.session import own_python
from kdissect.spark.values import from_json, known, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.options import Options
    from kdissect.query.filters import FilterNotes
    from kdissect.sinks.tallies import Tallies
    from kdissect.spark.parts import PartOpener, ReadResult
    from kdissect.stats.connection_log import ConnectionFeed
    from kdissect.stats.summarizer import Summarizer
    from kdissect.tables.export import ExportJob

_MERGED = 16
"""Most tasks whose counts one task, or the driver, adds up."""


class Tallied(NamedTuple):
    """What is known besides the counts.

    Attributes:
        rows: number of exchanges that match the filters.
        counts: ``Dissection.counts`` of all tasks.
        skipped: number of packets not dissected, by reason.
        notices: messages about connections, for people.
        warnings, sources: of the captures.
        notes: of the filters of all tasks.
        complete: whether all captures were read to their ends.
        unreadable: whether one of them cannot be read.
    """

    rows: int
    counts: Counter[str]
    skipped: Counter[str]
    notices: list[str]
    warnings: list[str]
    sources: Sequence[Source]
    notes: FilterNotes
    complete: bool
    unreadable: bool


@known
class TaskTally(NamedTuple):
    """What a task has counted.

    Attributes:
        part: of its sink.
        rows, counts, notes: as in ``Tallied``.
        noticed: ``Dissection.noticed``, as far as it is shown.
        read: by number of the part, see ``OpenPart``.
    """

    part: Any
    rows: int
    counts: Counter[str]
    noticed: list[tuple[int, str]]
    notes: FilterNotes
    read: dict[int, ReadResult | None]


def tally(
    session: SparkSession,
    captures: Sequence[str],
    options: Options,
    sink: Tallies[Summarizer, ConnectionFeed],
    *,
    range_bytes: int = RANGE_BYTES,
    tasks: int | None = None,
) -> Tallied:
    """Dissect captures on a session's workers, and count their exchanges.

    Args:
        session: Spark session, classic or Connect.
        captures: names of files and directories, and globs; paths or URLs that all workers can read.
        options: what to dissect.
        sink: gets the counts; of a ``Summarizer`` that has not counted anything.
        range_bytes: as for ``decode``.
        tasks: number of tasks that dissect, as for ``decode``.

    Raises:
        UsageError: a filter value or file name is invalid.
        CaptureError: no capture can be read.
        SparkError: a worker does not see the captures that this process sees, or a task failed.
    """
    if options.where is not None:
        check_where(options.where)
    files = inputs.candidates(captures)
    if not files:
        raise CaptureError(f"{', '.join(captures)}: {inputs.NOTHING}")
    empty = pickle.dumps(sink.counts)
    with own_python(session), ExitStack() as stack:
        nothing = ExportOptions(Path(), PARQUET, tables=())
        scratch = temporary(session, stack)
        directories = [] if scratch is None else [scratch]
        job, divided, surveyed = examined_job(session, files, options, nothing, range_bytes, directories)
        division = divide(session, job, divided, tasks, surveyed.cores, stack, surveyed.shared(scratch))
        frame = parts.by_tasks(division.rows, partial(_tally, division.job, empty, division.opened))
        count = division.tasks
        while count > _MERGED:
            count = -(-count // _MERGED)
            frame = parts.by_tasks(frame.repartition(count), partial(_add_up, job, empty))
        total = _Total(job, sink)
        for row in frame.collect():
            total.add(row[0])
    read = with_unread(division.read_by([total.read[number] for number in sorted(total.read)]), divided)
    sink.connections.census = read.census
    total.counts.update(division.forgotten)
    total.counts["packets"] = sum(file.packets for file in read.census.files.values())
    return Tallied(
        total.rows,
        total.counts,
        read.skipped,
        notices_of(total.noticed, options.limits),
        read.warnings,
        read.sources,
        total.notes,
        not any(source.failed for source in read.sources),
        bool(divided.faults),
    )


def _tally(job: ExportJob, empty: bytes, opened: PartOpener, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the counts of the parts that ``opened`` opens, all together.

    Args:
        job: what to read.
        empty: the ``Summarizer`` that counts, pickled by the driver.
        opened: opens them.
        batches: of the partition.
    """
    criteria = job.filter()
    sink = pickle.loads(empty).sink(job.options, criteria)
    total = _Total(job, sink)

    def log(_: Limits) -> ConnectionFeed:
        feed: ConnectionFeed = sink.connections
        return feed

    def selects(exchange: Exchange) -> bool:
        matches = criteria.matches(exchange)
        if not matches and not sink.rows:  # so that a message can say why nothing matched
            criteria.note_unmatched(exchange)
        return matches

    for part in opened(batches, new_log=log):
        for _ in part.dissection.into(sink, None if criteria.is_empty else selects):
            pass
        sink.close()
        part.dissection.pass_on()
        total.counts.update(part.dissection.counts)
        total.notice(part.dissection.noticed)
        total.read[part.number] = part.read()
    total.rows = sink.rows
    total.notes = criteria.notes
    yield from total.packed()


def _add_up(job: ExportJob, empty: bytes, batches: Iterable[Any]) -> Iterator[Any]:
    """Add up the counts of other tasks; see ``_tally``."""
    total = _Total(job, pickle.loads(empty).sink(job.options, job.filter()))
    for batch in batches:
        for data in batch.column("result").to_pylist():
            total.add(data)
    yield from total.packed()


class _Total:
    """The counts of tasks."""

    def __init__(self, job: ExportJob, sink: Tallies[Summarizer, ConnectionFeed]) -> None:
        self._limits = job.options.limits
        self._sink = sink
        self.rows = 0
        self.counts = Counter[str]()
        self.noticed: list[tuple[int, str]] = []
        self.notes = job.filter().notes
        self.read: dict[int, ReadResult | None] = {}

    def add(self, data: bytes) -> None:
        """Add those of ``packed``."""
        task: TaskTally = from_json(zlib.decompress(data))
        self._sink.merge(task.part)
        self.rows += task.rows
        self.counts.update(task.counts)
        self.notice(task.noticed)
        self.notes.merge(task.notes)
        self.read |= task.read

    def notice(self, noticed: Iterable[tuple[int, str]]) -> None:
        """Keep the first notices."""
        self.noticed = sorted((*self.noticed, *noticed))[: self._limits.notices]

    def packed(self) -> Iterator[Any]:
        """Yield a row with all counts, unless there are none."""
        if self.read:
            task = TaskTally(self._sink.part(), self.rows, self.counts, self.noticed, self.notes, self.read)
            yield parts.as_row(zlib.compress(to_json(task), 1))
