"""What a worker does: the packets of a part -> what they teach of topic ids; and -> files of all tables.

Each part has its own files, whose numbers begin at a multiple of ``FILES_OF_PART``, and so has each attempt
of a task: what attempts that failed have left is not among the files that are told, and the driver removes
it. What tables have of the whole capture, and not of a connection, is handed to the driver: ids of topics,
and what was told of captures.

Holds what dissecting and writing hold (pipeline.py, sinks/tablefiles.py).
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from socket import gethostname
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
from pyspark import TaskContext

from kdissect.analysis import filters
from kdissect.analysis.connectionlog import ConnectionLog
from kdissect.analysis.naming import can_teach, teachings
from kdissect.analysis.recordfilters import RecordFilter, Wanted
from kdissect.analysis.records import Records
from kdissect.analysis.where import compile_where
from kdissect.capture.readable import Readable
from kdissect.capture.reader import open_capture
from kdissect.files import PRIVATE
from kdissect.sinks import columns
from kdissect.sinks.parquet import ParquetFormat
from kdissect.sinks.rowfiles import NONE, ZST, JsonFormat
from kdissect.sinks.tablefiles import Listing, TableFiles, Written
from kdissect.sinks.tables.catalogue import TABLES
from kdissect.sinks.tables.exchanges import BODIES, exchanges
from kdissect.sinks.tables.rows import TableRows
from kdissect.spark.arrival import FilesApart, Noting, PartDissection
from kdissect.spark.batches import BOTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kdissect.analysis.census import Census
    from kdissect.analysis.naming import Taught
    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Exchange, Packet
    from kdissect.sinks.rowfiles import Format
    from kdissect.sinks.tables.form import Table
    from kdissect.sinks.tables.rows import Row
    from kdissect.spark.arrival import Arrivals
    from kdissect.spark.ranges import Fingerprint
    from kdissect.spark.shuffle import RangeTold

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
        topics: rows of ``topic_ids``: where they stand among those of all parts, id and name, and values.
        counts, notices: as ``Dissection`` has them.
        unresolved: topic ids that nobody has named.
        read: of a part that has read the captures itself: them, and what was odd.
    """

    part: int
    host: str
    files: dict[str, list[Written]]
    topics: list[tuple[tuple[int, int, int], tuple[str, str], list[Any]]]
    counts: Counter[str]
    notices: list[str]
    unresolved: set[str]
    read: Read | None


class Read(NamedTuple):
    """Captures that were read to their end."""

    sources: Sequence[Source]
    census: Census
    warnings: list[str]
    skipped: Counter[str]


class TeachingTold(NamedTuple):
    """What a part teaches of topic ids, and what was told of ranges."""

    taught: dict[str, tuple[str, int]]
    ranges: list[RangeTold]


def see(token: Path, batches: Iterable[Any]) -> Iterator[Any]:
    """Look for a file of the driver's; yield the name of this host, and whether it is there."""
    for _ in batches:
        pass
    yield _told((gethostname(), token.exists()))


def teach(job: Job, batches: Iterable[Any]) -> Iterator[Any]:
    """Look for names of topic ids in a part; yield a ``TeachingTold``."""
    dissection = _Teaching(batches, job.paths, FilesApart(), taught={}, **job.options())
    taught: dict[str, tuple[str, int]] = {}
    for exchange in dissection:
        for topic_id, name in teachings(exchange):
            known = taught.get(topic_id)
            if known is None or exchange.completed_ns < known[1]:
                taught[topic_id] = name, exchange.completed_ns
    yield _told(TeachingTold(taught, dissection.told))


def write(job: Job, arrivals: Arrivals, taught: Taught, batches: Iterable[Any]) -> Iterator[Any]:
    """Write the tables of a part; yield a ``PartTold``."""
    rest = iter(batches)
    first = next(rest, None)
    if first is None or not first.column("heads")[0].as_py():  # nothing, or what was told of ranges
        return
    part = first.column("part")[0].as_py()
    log = ConnectionLog(job.limits)
    dissection = PartDissection(
        chain((first,), rest), job.paths, arrivals, survey=log, taught=taught, **job.options()
    )
    yield _told(_written(job, part, dissection, log))


def write_alone(job: Job, files: Mapping[str, Fingerprint], batches: Iterable[Any]) -> Iterator[Any]:
    """Read all captures, and write their tables; yield a ``PartTold``.

    Raises:
        CaptureError: a file is not the one that the driver saw.
    """
    for _ in batches:
        for path, fingerprint in files.items():
            fingerprint.check(path)
        log = ConnectionLog(job.limits)
        with open_capture(*job.paths, limits=job.limits) as capture:
            packets = Readable(capture)
            watched = log.watch(cast("Iterator[Packet]", packets))
            dissection = Noting(watched, survey=log, **job.options())
            told = _written(job, 0, dissection, log)
            warnings = [*capture.warnings, *([] if packets.fault is None else [packets.fault])]
            read = Read(capture.sources, log.census, warnings, Counter(dissection.skipped))
            yield _told(told._replace(read=read))


class _Teaching(PartDissection):
    """Decodes no more than what may have names of topic ids."""

    def decode(self, exchange: Exchange) -> None:
        """Open what an exchange consists of, if need be."""
        if exchange.api_key is not None and can_teach(exchange.api_key, exchange.api_version or 0):
            super().decode(exchange)


def _written(job: Job, part: int, dissection: Noting, log: ConnectionLog) -> PartTold:
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
    rows = TableRows(job.tables, log, records, job.limits, every_connection=not job.is_filtered)
    topics: list[Any] = []
    wanted = job.wanted()
    getters = [column.get for column in TABLES[TOPIC_IDS].columns]
    ranks = {path: rank for rank, path in enumerate(job.paths)}

    def keep(made: Iterable[Row]) -> None:
        for name, row in made:
            if name in files:
                files[name].feed(row)
            elif name == TOPIC_IDS:
                completed_ns, packet = row.exchange.order
                rank = ranks[row.exchange.first_frame.interface.capture]
                values = [get(row) for get in getters]
                topics.append(((completed_ns, rank, packet), (row.topic_id, row.topic), values))

    try:
        for exchange in dissection:
            keep(rows.feed(exchange) if wanted.matches(exchange) else rows.pass_over(exchange))
        keep(rows.close((), ()))
        for each in files.values():
            each.close()
    except BaseException:
        for each in files.values():
            each.abandon()
        raise
    counts, notices = Counter(dissection.counts), dissection.notices
    written = {name: list(each.files) for name, each in files.items()}
    return PartTold(part, gethostname(), written, topics, counts, notices, dissection.unresolved, None)


def _told(told: tuple[Any, ...]) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(told)], pa.binary())], schema=_SCHEMA)
