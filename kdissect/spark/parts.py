"""What a worker does: a part of the connections -> what they say about topic ids; and -> files of all tables.

A part is a shard of the connections, whose task reads all captures, or what a shuffle has brought together,
of which each connection is dissected alone (shuffle.py).

Each part has its own files, whose numbers begin at a multiple of ``FILES_OF_PART``, and so has each attempt
of a task: what attempts that failed have left is not among the files that are told, and the driver removes
it. What tables have of the whole capture, and not of a connection, is handed to the driver: ids of topics,
and what was told of captures.

Holds what dissecting and writing hold (pipeline.py, tables/table_files.py).
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from socket import gethostname
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from kdissect.capture.reader import Readable, open_capture
from kdissect.exchanges.learned import LearnedFacts
from kdissect.exchanges.topic_names import mentions
from kdissect.model import Lull
from kdissect.net.tcp import Share
from kdissect.pipeline import Dissection
from kdissect.query.records import records_of
from kdissect.spark.planning import learn_all, learned_from
from kdissect.spark.shuffle import Rows
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables.columns import filter_of
from kdissect.tables.export import files_of, format_of, table_of
from kdissect.tables.rows import TABLES, TableRows
from kdissect.tables.table_files import Listing, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.options import ExportOptions, Options
    from kdissect.query.filters import Filter
    from kdissect.spark.ranges import Fingerprint
    from kdissect.stats.survey import Census
    from kdissect.tables.rows import Row
    from kdissect.tables.table_files import TableFiles

FILES_OF_PART, FILES_OF_ATTEMPT = 10_000, 1_000
TOPIC_IDS, CAPTURES = "topic_ids", "captures"
MERGED = (TOPIC_IDS, CAPTURES)
"""Tables that the driver writes."""

COLUMNS = "told binary"
_SCHEMA = pa.schema([("told", pa.binary())])


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done with all packets.

    Attributes:
        paths: of the files, in the order in which they begin.
        first_ns: time of the first packet; None: there is none.
    """

    paths: tuple[str, ...]
    first_ns: int | None
    options: Options
    export: ExportOptions

    @property
    def limits(self) -> Limits:
        """Bounds of every stage."""
        return self.options.limits

    def files(self, name: str) -> TableFiles:
        """The files of a table. Rows of ``topic_ids`` are lists of values."""
        table = table_of(name, self.export)
        if name == TOPIC_IDS:
            read = (replace(column, get=itemgetter(place)) for place, column in enumerate(table.columns))
            table = replace(table, columns=tuple(read))
        return files_of(table, self.export, format_of(self.export, self.limits), self.limits)

    def filter(self) -> Filter:
        """The filter of exchanges.

        Raises:
            UsageError: a criterion or the expression is not understood.
        """
        filter_ = filter_of(self.options)
        if self.first_ns is not None:
            filter_.begin(self.first_ns)
        return filter_


class PartTold(NamedTuple):
    """What came of a part, apart from rows.

    Attributes:
        part: which.
        host: that wrote it.
        files: written, by table.
        topics: of each pair of id and name its first row of ``topic_ids``: where it stands among those of all
            parts, and values.
        counts, notices: as ``Dissection`` has them.
        ids: topic ids that exchanges have; and of these, those that have a name in any.
        read: of a part that has read the captures itself: them, and what was odd.
    """

    part: int
    host: str
    files: dict[str, list[Written]]
    topics: dict[tuple[str, str], tuple[tuple[int, int, int], list[Any]]]
    counts: Counter[str]
    notices: list[str]
    ids: tuple[set[str], set[str]]
    read: Read | None


class Read(NamedTuple):
    """Captures that were read to their end."""

    sources: Sequence[Source]
    census: Census
    warnings: list[str]
    skipped: Counter[str]


def see(token: Path, batches: Iterable[Any]) -> Iterator[Any]:
    """Look for a file of the driver's; yield the name of this host, and whether it is there."""
    for _ in batches:
        pass
    yield _told((gethostname(), token.exists()))


def learn_shard(job: Job, shards: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Look for what crosses connections in the shards whose numbers stand in the column ``id``; yield the
    ``LearnedFacts`` of each.
    """
    for number in _numbers(batches):
        yield _told(learned_from(job.paths, job.options, Share(number, shards)))


def write_shard(
    job: Job,
    files: Mapping[str, Fingerprint],
    shards: int,
    learned: LearnedFacts | None,
    batches: Iterable[Any],
) -> Iterator[Any]:
    """Write the tables of these shards; yield a ``PartTold`` for each. The first one tells of the captures.

    Args:
        job: what to do.
        files: as the driver saw them.
        shards: how many there are.
        learned: from all of them; None: there is but one.
        batches: numbers of shards.

    Raises:
        CaptureError: a file is not the one that the driver saw.
    """
    for number in _numbers(batches):
        for path, fingerprint in files.items():
            fingerprint.check(path)
        log = ConnectionLog(job.limits)
        with open_capture(*job.paths, limits=job.limits) as capture:
            packets = Readable(capture.stretches())
            watched = packets if number else log.watch(packets)
            dissection = Dissection(
                watched, job.options, survey=log, learned=learned, share=Share(number, shards)
            )
            told = _written(job, number, [dissection], log)
            if number:
                yield _told(told)
                continue
            warnings = [*capture.warnings, *([] if packets.fault is None else [packets.fault])]
            read = Read(capture.sources, log.census, warnings, Counter(dissection.skipped))
            yield _told(told._replace(read=read))


def learn_shuffled(job: Job, end_ns: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Look for what crosses connections in a part of a shuffle; yield the ``LearnedFacts``."""
    facts = LearnedFacts(job.limits)
    for dissection in _alone(job, Rows(batches, job.paths), end_ns):
        learn_all(dissection, facts)
    yield _told(facts)


def write_shuffled(job: Job, end_ns: int, learned: LearnedFacts, batches: Iterable[Any]) -> Iterator[Any]:
    """Write the tables of a part of a shuffle; yield a ``PartTold``.

    Args:
        job: what to do.
        end_ns: latest time of a packet of all parts.
        learned: from all of them.
        batches: rows of the part.
    """
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        return
    part = first.column("part")[0].as_py()
    log = ConnectionLog(job.limits)
    rows = Rows(chain((first,), rest), job.paths)
    yield _told(_written(job, part, _alone(job, rows, end_ns, survey=log, learned=learned), log))


def _numbers(batches: Iterable[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()


def _alone(job: Job, rows: Rows, end_ns: int, **parts: Any) -> Iterator[Dissection]:
    """A dissection of each connection, up to the end of all captures."""
    for segments in rows.connections():
        yield Dissection(chain(segments, [Lull(end_ns)]), job.options, **parts)


def _written(job: Job, part: int, dissections: Iterable[Dissection], log: ConnectionLog) -> PartTold:
    files = {name: job.files(name) for name in job.export.tables if name not in MERGED}
    task = TaskContext.get()
    attempt = 0 if task is None else task.attemptNumber()
    for each in files.values():
        each.go_on((part + 1) * FILES_OF_PART + attempt * FILES_OF_ATTEMPT, Listing(FILES_OF_PART))
    records = records_of(job.options)
    topics: dict[tuple[str, str], Any] = {}
    wanted = job.filter()
    getters = [column.get for column in TABLES[TOPIC_IDS].columns]
    ranks = {path: rank for rank, path in enumerate(job.paths)}
    counts: Counter[str] = Counter()
    notices: list[str] = []
    ids: set[str] = set()
    named: set[str] = set()

    def keep(made: Iterable[Row]) -> None:
        for name, row in made:
            if name in files:
                files[name].feed(row)
            elif name == TOPIC_IDS:
                completed_ns, packet = row.exchange.order
                place = completed_ns, ranks[row.exchange.first_frame.interface.capture], packet
                pair = row.topic_id, row.topic
                if pair not in topics or place < topics[pair][0]:
                    topics[pair] = place, [get(row) for get in getters]

    try:
        for dissection in dissections:
            # Anew for each: they keep what was first in their input, which is not in order over all of these.
            rows = TableRows(
                job.export.tables,
                log,
                records,
                job.limits,
                every_connection=not job.options.is_filtered,
            )
            for exchange in dissection:
                if len(ids) < job.limits.topic_names:
                    ids.update(mentions(exchange).ids)
                    named.update(exchange.topic_names)
                keep(rows.feed(exchange) if wanted.matches(exchange) else rows.pass_over(exchange))
            keep(rows.close((), ()))
            counts.update(dissection.counts)
            notices += dissection.notices[: job.limits.notices - len(notices)]
        for each in files.values():
            each.close()
    except BaseException:
        for each in files.values():
            each.abandon()
        raise
    written = {name: list(each.files) for name, each in files.items()}
    return PartTold(part, gethostname(), written, topics, counts, notices, (ids, named), None)


def _told(told: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(told)], pa.binary())], schema=_SCHEMA)
