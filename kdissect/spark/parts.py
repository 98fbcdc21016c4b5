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
from kdissect.files import PRIVATE
from kdissect.model import Lull
from kdissect.net.tcp import Share
from kdissect.pipeline import dissect
from kdissect.query import filters
from kdissect.query.record_filters import RecordFilter, Wanted
from kdissect.query.records import Records
from kdissect.query.where import compile_where
from kdissect.spark.batches import BOTH
from kdissect.spark.planning import learn_all, learned_from
from kdissect.spark.shuffle import Rows
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables import columns
from kdissect.tables.exchanges import BODIES, exchanges
from kdissect.tables.parquet import ParquetFormat
from kdissect.tables.rows import TABLES, TableRows
from kdissect.tables.table_files import NONE, ZST, JsonFormat, Listing, TableFiles, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.pipeline import Dissection
    from kdissect.spark.ranges import Fingerprint
    from kdissect.stats.survey import Census
    from kdissect.tables.form import Table
    from kdissect.tables.rows import Row
    from kdissect.tables.table_files import Format

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
        criteria, where: which exchanges are wanted.
    """

    paths: tuple[str, ...]
    first_ns: int | None
    folder: Path
    form: str
    compression: str | None
    tables: tuple[str, ...]
    bodies: str
    partition_by: tuple[str, ...]
    rotate_bytes: int
    criteria: Mapping[str, Sequence[str]]
    where: str | None
    ports: frozenset[int]
    kafka_ports: frozenset[int]
    show_secrets: bool
    limits: Limits
    mode: int = PRIVATE

    def format(self) -> Format:
        """The format of the files."""
        if self.form == "jsonl":
            return JsonFormat(self.compression or NONE)
        return ParquetFormat(self.compression or ZST, self.limits)

    def table(self, name: str) -> Table:
        """A table, with the bodies that are wanted. Rows of ``topic_ids`` are lists of values."""
        table = TABLES[name]
        if name == TOPIC_IDS:
            read = (replace(column, get=itemgetter(place)) for place, column in enumerate(table.columns))
            return replace(table, columns=tuple(read))
        if name != "exchanges":
            return table
        return exchanges(frozenset(BODIES) if self.bodies == BOTH else frozenset({self.bodies}))

    def files(self, name: str) -> TableFiles:
        """The files of a table."""
        return TableFiles(
            self.folder / name,
            self.table(name),
            self.format(),
            partition_by=self.partition_by,
            rotate_bytes=self.rotate_bytes,
            limits=self.limits,
            mode=self.mode,
        )

    def wanted(self) -> filters.Filter:
        """The filters, as one.

        Raises:
            UsageError: one of them is none.
        """
        where = compile_where(self.where, columns.resolve) if self.where else None
        wanted = filters.build(**self.criteria, where=where)
        if self.first_ns is not None:
            wanted.begin(self.first_ns)
        return wanted

    @property
    def is_filtered(self) -> bool:
        """Whether some exchanges may not be wanted."""
        return bool(self.where) or any(self.criteria.values())

    def options(self) -> dict[str, Any]:
        """What ``Dissection`` takes."""
        return {
            "limits": self.limits,
            "ports": self.ports,
            "kafka_ports": self.kafka_ports,
            "show_secrets": self.show_secrets,
        }


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
        yield _told(learned_from(job.paths, share=Share(number, shards), **job.options()))


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
            options = {**job.options(), "learned": learned, "share": Share(number, shards)}
            if number:
                yield _told(_written(job, number, [dissect(packets, survey=log, **options)], log))
                continue
            dissection = dissect(log.watch(packets), survey=log, **options)
            told = _written(job, number, [dissection], log)
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


def _alone(job: Job, rows: Rows, end_ns: int, **options: Any) -> Iterator[Dissection]:
    """A dissection of each connection, up to the end of all captures."""
    for segments in rows.connections():
        yield dissect(chain(segments, [Lull(end_ns)]), **job.options(), **options)


def _written(job: Job, part: int, dissections: Iterable[Dissection], log: ConnectionLog) -> PartTold:
    files = {name: job.files(name) for name in job.tables if name not in MERGED}
    task = TaskContext.get()
    attempt = 0 if task is None else task.attemptNumber()
    for each in files.values():
        each.go_on((part + 1) * FILES_OF_PART + attempt * FILES_OF_ATTEMPT, Listing(FILES_OF_PART))
    records = Records(
        RecordFilter(
            Wanted(topics=job.criteria.get("topic", ()), partitions=job.criteria.get("partition", ())),
            job.limits,
        ),
        job.limits,
        show_secrets=job.show_secrets,
    )
    topics: dict[tuple[str, str], Any] = {}
    wanted = job.wanted()
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
            rows = TableRows(job.tables, log, records, job.limits, every_connection=not job.is_filtered)
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
