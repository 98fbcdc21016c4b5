"""Exchanges, connections, capture files -> the files of all tables of an export. Holds what ``TableRows`` and
``TableFiles`` hold.

Several processes (``export -j``, Spark workers) divide the connections among them, and each writes its own
files. The process that combines the parts writes the rows that do not belong to a connection: brokers,
rebalances, topic IDs, captures.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from kdissect.errors import OutputError
from kdissect.exchanges.topic_names import topic_refs
from kdissect.files import is_stored
from kdissect.limits import SECOND_NS
from kdissect.options import BOTH, JSONL
from kdissect.query.records import records_of
from kdissect.sinks.columns import Columns
from kdissect.tables import manifest
from kdissect.tables.columns import filter_of
from kdissect.tables.exchanges import BODIES, exchanges
from kdissect.tables.native_rows import table_plan
from kdissect.tables.rows import (
    DEFAULT_TABLES,
    NATIVE_TABLES,
    RECORDS,
    TABLES,
    TableRows,
    are_native,
    needs_log,
)
from kdissect.tables.table_files import (
    NONE,
    ZST,
    FinishedFile,
    JsonFormat,
    Listing,
    TableFiles,
    remove_unfinished,
)
from kdissect.tables.values import timestamp
from kdissect.tables.whole import WHOLE_TABLES

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kdissect.capture.source import Source
    from kdissect.exchanges.written import WrittenText
    from kdissect.model import Exchange
    from kdissect.options import ExportOptions, Options
    from kdissect.pipeline import Dissection
    from kdissect.query.filters import Filter
    from kdissect.query.records import RecordMatches, Records
    from kdissect.sinks.plan import PlanContext, RowPlan
    from kdissect.sinks.sink import Demand
    from kdissect.stats.by_cluster import ByCluster
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.form import Table
    from kdissect.tables.rows import Row
    from kdissect.tables.table_files import Format
    from kdissect.tls.keylog import KeyLog


def tables_of(export: ExportOptions) -> tuple[str, ...]:
    """The tables to write, in the order of the catalogue."""
    names = export.tables or DEFAULT_TABLES
    return tuple(name for name in TABLES if name in names)


class Export:
    """Writes the tables.

    Args:
        job: what to write.
        files: of each table.
        described: the job as the manifests describe it.
        log: the connections; it is fed every exchange.
        records: opens the records of an exchange, for their table.
        earlier: for a live export: the runs before this one, by table. Its manifests list files as soon as
            they are finished.
        kept: other jobs of the tables, by table, as manifests have them.

    Attributes:
        tables: makes the rows.
        warnings: what tables lack because of limits; known when they are closed.

    Raises:
        OutputError: something cannot be written; the methods raise this too.
    """

    def __init__(
        self,
        job: ExportJob,
        files: Mapping[str, TableFiles],
        described: manifest.Job,
        log: ConnectionLog,
        records: Records,
        earlier: Mapping[str, Sequence[Any]] | None = None,
        kept: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    ) -> None:
        options = job.options
        self._is_native = job.is_native
        self._directory = job.export.directory
        self._files = files
        self._form = job.format
        self._job = described
        self._limits = options.limits
        self._records = records
        self.tables = TableRows(files, log, records, options.limits, every_connection=not options.is_filtered)
        self.warnings: list[str] = []
        self._rotate_ns = job.export.rotate_ns
        self._earlier = earlier
        self._kept = kept
        self._first_file = job.first_file
        self._files_started_ns: int | None = None  # when the open files were started
        self._listed: dict[str, int] = {}  # how many files each table's manifest lists
        self._listed_ns = 0
        self._before = 0, 0
        self._before = self.files, self.bytes
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._writer = job.run  # stores have no locks, so another program may write here at the same time
        for name, table in files.items():
            if earlier is None:
                table.continue_from(job.first_file, Listing())
            manifest.begin(self._directory / name, table, self._form, described, self._end_fields(name, {}))
            self._listed[name] = len(table.files)

    def feed(self, exchange: Exchange) -> None:
        """Write the rows of an exchange."""
        if self._rotate_ns is not None:
            self.tick(exchange.completed_ns)
        self._write(self.tables.feed(exchange))

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """What the native core must know to make rows of usual exchanges; None: it cannot make them."""
        if not self._is_native:
            return None
        return partial(
            _core_plan,
            files=self._files,
            tables=self.tables,
            records=self._records,
            has_topic_ids=TOPIC_IDS in self._files,
        )

    def release(self, written: WrittenText) -> None:
        """Write rows of the core that no longer wait, see ``Plan``."""
        _release(self._files, written, self.settle)

    def settle(self) -> None:
        """Count and write the rows that the core has made."""
        for table in self._files.values():
            table.settle()
        self._write(self.tables.finished())

    def adopt(
        self, parts: Sequence[PartResult], files: Mapping[str, Sequence[FinishedFile]] | None = None
    ) -> None:
        """Take over the files that parts have written, and what only all of them know; write the first row of
        each pair of topic ID and name, in the order of the whole capture. ``files`` are those that came of
        them, if others did.
        """
        for name, table in self._files.items():
            own = [file for part in parts for file in part.files.get(name, ())]
            written = own if files is None else list(files.get(name, ()))
            table.continue_from(self._first_file + len(written), Listing(written))
            table.rows = sum(file.rows or 0 for file in written)
        if TOPIC_IDS in self._files:
            first: dict[tuple[str, str], Any] = {}
            for part in parts:
                for pair, row in part.topics.items():
                    first[pair] = min(first.get(pair, row), row)
            for _, values in sorted(first.values()):
                self._files[TOPIC_IDS].feed(values)
        if self.tables.whole is not None:
            for part in parts:
                if part.whole is not None:
                    self.tables.whole.merge(part.whole)

    def skip(self, exchange: Exchange) -> None:
        """Count an exchange that the filters excluded."""
        self._write(self.tables.skip(exchange))

    def tick(self, now_ns: int) -> None:
        """Advance packet time: finish files that are due, and list them in the manifests."""
        if self._files_started_ns is None or now_ns < self._files_started_ns:  # a clock was set back
            self._files_started_ns = self._listed_ns = now_ns
            return
        if self._rotate_ns is not None and now_ns - self._files_started_ns >= self._rotate_ns:
            self._files_started_ns = now_ns
            for table in self._files.values():
                table.rotate()
        if self._earlier is not None and now_ns - self._listed_ns >= SECOND_NS:
            self._listed_ns = now_ns
            self._list(complete=False)

    def finish_capture(self, source: Source) -> None:
        """A capture was read to its end, and others follow it."""
        self._write(self.tables.finish_capture(source))

    def close(
        self, sources: Sequence[Source], warnings: Sequence[str], *, complete: bool, packets: int
    ) -> None:
        """Finish all files and write the final manifests.

        Args:
            sources: the captures.
            warnings: about them.
            complete: whether all input was read.
            packets: number of packets read.
        """
        self._write(self.tables.close(sources, warnings))
        for name, table in self._files.items():  # before the others get rows, to hold fewer
            if name not in WHOLE_TABLES:
                table.close()
        if self.tables.whole is not None:
            self._write(self.tables.whole.close())
            self.warnings = self.tables.whole.left_out()
            for name in WHOLE_TABLES.keys() & self._files:
                self._files[name].close()
        self.check_ours()
        if self._earlier is None:  # files of a live export may have been removed because of their age
            for name, table in self._files.items():
                known = {
                    file["path"]: file["bytes"] for job in self._kept.get(name, ()) for file in job["files"]
                }
                known |= {file.path: file.bytes for file in table.files}
                manifest.compare(self._directory / name, known)
        self._listed.clear()
        first, last = (
            timestamp(time_ns) if time_ns is not None else None
            for time_ns in self.tables.log.census.span_ns or (None, None)
        )
        clock = {"started": self._started, "first_packet": first, "last_packet": last}
        self._list(complete=complete, clock=clock, packets=packets, warnings=[*warnings, *self.warnings])

    def check_ours(self) -> None:
        """Check that no other program has started to write to the tables: a store has no locks.

        Raises:
            OutputError: one has.
        """
        for name in self._files:
            if not self._is_ours(name):
                raise OutputError(f"{self._directory / name}: another program has started to write to it")

    def abandon(self) -> None:
        """Remove unfinished files; the manifests say that the export is not complete."""
        with suppress(OutputError):
            self._files = {name: table for name, table in self._files.items() if self._is_ours(name)}
        for name, table in self._files.items():
            table.abandon()
            with suppress(OSError):  # of workers that were stopped
                remove_unfinished(self._directory / name)
        with suppress(OutputError):  # which may be why the export is abandoned
            self._list(complete=False)

    def _list(self, *, complete: bool, **end: Any) -> None:
        """Write the manifests that do not list all files yet."""
        for name, table in self._files.items():
            if len(table.files) != self._listed.get(name):
                fields = self._end_fields(name, {"complete": complete, **end})
                manifest.write(self._directory / name, table, self._form, self._job, fields)
                self._listed[name] = len(table.files)

    def _end_fields(self, name: str, end: Mapping[str, Any]) -> Mapping[str, Any]:
        runs = {} if self._earlier is None else {"runs": self._earlier[name]}
        jobs = {"jobs": self._kept[name]} if self._kept.get(name) else {}
        return {**end, **runs, **jobs, "writer": self._writer}

    def _is_ours(self, name: str) -> bool:
        """Whether no other program has written the manifest of a table since this one did."""
        return manifest.read(self._directory / name).get("writer") == self._writer

    def _write(self, rows: Iterable[Row]) -> None:
        for name, row in rows:
            self._files[name].feed(row)

    @property
    def rows(self) -> dict[str, int]:
        """Rows written by this run, by table."""
        return {name: table.rows for name, table in self._files.items()}

    @property
    def bytes(self) -> int:
        """Bytes of all files that were finished by this run."""
        return sum(table.files.bytes for table in self._files.values()) - self._before[1]

    @property
    def files(self) -> int:
        """Number of files finished by this run."""
        return sum(len(table.files) for table in self._files.values()) - self._before[0]


def _core_plan(
    context: PlanContext,
    files: Mapping[str, TableFiles],
    tables: TableRows,
    records: Records,
    *,
    has_topic_ids: bool,
) -> RowPlan:
    waits = RECORDS in files
    shared = {name: files[name].shared(waits=waits) for name in _native_tables(files)}
    of_records = None
    if (table := shared.pop(RECORDS, None)) is not None:
        plan = files[RECORDS].form.record_plan(context, table.columns)
        selected = plan._replace(directions=records.directions, is_partition=records.is_partition)
        of_records = selected, table.batch
    topic_ids = tables.topic_ids if has_topic_ids else None
    log = tables.log if needs_log(files) else None
    are_lines = any(isinstance(each.form, JsonFormat) for each in files.values())
    return table_plan(context, shared, topic_ids, log, tables, are_lines=are_lines, records=of_records)


def _native_tables(files: Mapping[str, TableFiles]) -> list[str]:
    """Those to which the core adds rows, records first."""
    return [name for name in files if name == RECORDS] + [name for name in files if name in NATIVE_TABLES]


def _release(files: Mapping[str, TableFiles], written: WrittenText, settle: Callable[[], object]) -> None:
    for name, rows in zip(_native_tables(files), written.rows, strict=True):
        files[name].release(rows, written.joined() if name == RECORDS else ())
    if written.later:
        settle()


# ------------------------------------------------------------------------------------------------------------
# Some of the connections -> their own files, and a result for the process that combines the parts.
# ------------------------------------------------------------------------------------------------------------


TOPIC_IDS, CAPTURES = "topic_ids", "captures"
NOT_IN_PARTS = frozenset({TOPIC_IDS, CAPTURES, *WHOLE_TABLES})
"""Tables that a part cannot write."""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What to export; picklable.

    Attributes:
        options: what to dissect.
        export: which tables to write, and how; ``tables`` names all of them.
        paths: of the captures.
        first_ns: time of the first packet; None if there is none.
        key_log: secrets of TLS sessions, for processes that cannot read key logs; None: see ``Dissection``.
        first_file: number of the first file of each table.
        run: unique; marks the manifests of this run, and its files in a store.
    """

    options: Options
    export: ExportOptions
    paths: Sequence[str] = ()
    first_ns: int | None = None
    key_log: KeyLog | None = None
    first_file: int = 0
    run: str = field(default_factory=lambda: uuid4().hex)

    @property
    def format(self) -> Format:
        """The format of files.

        Raises:
            UsageError: the library for it is missing.
        """
        export = self.export
        if export.form == JSONL:
            return JsonFormat(export.compression or NONE)
        from kdissect.tables.parquet import ParquetFormat

        return ParquetFormat(export.compression or ZST, self.options.limits)

    @property
    def is_native(self) -> bool:
        """Whether the native core can make the rows of usual exchanges."""
        export = self.export
        is_plain = not export.partition_by and export.rotate_ns is None
        return is_plain and are_native(export.tables, has_joined=self.options.end_to_end)

    def files(self, *, in_parts: bool = False) -> dict[str, TableFiles]:
        """The files of each table. With ``in_parts``, rows of ``topic_ids`` are lists of values."""
        tables = {name: self.table(name) for name in self.export.tables}
        if in_parts and TOPIC_IDS in tables:
            columns = tables[TOPIC_IDS].columns
            read = (replace(column, get=itemgetter(index)) for index, column in enumerate(columns))
            tables[TOPIC_IDS] = replace(tables[TOPIC_IDS], columns=tuple(read))
        return {
            name: TableFiles(
                self.export.directory / name,
                table,
                self.format,
                partition_by=self.export.partition_by,
                rotate_bytes=self.export.rotate_bytes,
                limits=self.options.limits,
                mode=self.export.mode,
                tag=f"-{self.run[:8]}" if is_stored(self.export.directory) else "",
            )
            for name, table in tables.items()
        }

    def table(self, name: str) -> Table:
        """A table; the bodies that are not exported are null."""
        if name != "exchanges":
            return TABLES[name]
        return exchanges(frozenset(BODIES) if self.export.bodies == BOTH else frozenset({self.export.bodies}))

    def filter(self) -> Filter:
        """The filter of exchanges.

        Raises:
            UsageError: a criterion or the expression is not understood.
        """
        filter_ = filter_of(self.options)
        if self.first_ns is not None:
            filter_.begin(self.first_ns)
        return filter_


class PartResult(NamedTuple):
    """The result of a part, apart from rows.

    Attributes:
        part: its number.
        files: written, by table.
        topics: for each pair of topic ID and name its first row of ``topic_ids``: the order among the rows of
            all parts, and the values.
        whole: what it has for ``WHOLE_TABLES``, see ``WholeRows``; None: none of them is requested.
        counts, noticed: see ``Dissection``.
        ids: topic IDs in exchanges, and those that an exchange resolves to a name.
        selected: how many exchanges passed the filters.
        records: counts of records and batches.
    """

    part: int
    files: dict[str, list[FinishedFile]]
    topics: dict[tuple[str, str], tuple[tuple[int, int, int], list[Any]]]
    counts: Counter[str]
    noticed: list[tuple[int, str]]
    ids: tuple[set[str], set[str]]
    selected: int
    records: RecordMatches
    whole: ByCluster | None


class PartRows:
    """The rows of some connections in all tables except ``NOT_IN_PARTS``; counts what a ``PartResult`` has.

    Args:
        job: which tables to make, and from which exchanges.
        log: the connections.

    Attributes:
        tables: makes the rows.
        log, topic_ids, whole: those of the tables.
        records: opens the records of an exchange.
        topics: see ``PartResult``.
    """

    def __init__(self, job: ExportJob, log: ConnectionLog) -> None:
        options = job.options
        self._limits = options.limits
        self.records = records_of(options)
        tables = {*job.export.tables, TOPIC_IDS}  # these are counted in any case
        self.tables = TableRows(
            tables, log, self.records, options.limits, every_connection=not options.is_filtered
        )
        self.log, self.topic_ids, self.whole = log, self.tables.topic_ids, self.tables.whole
        self._getters = [column.get for column in TABLES[TOPIC_IDS].columns]
        self._ranks = {path: rank for rank, path in enumerate(job.paths)}
        self.topics: dict[tuple[str, str], Any] = {}
        self._ids: set[str] = set()
        self._named: set[str] = set()

    def feed(self, exchange: Exchange) -> Iterator[Row]:
        """The rows that an exchange adds."""
        self._note_ids(exchange)
        return self._without_topics(self.tables.feed(exchange))

    def skip(self, exchange: Exchange) -> Iterator[Row]:
        """The rows added by an exchange that the filters excluded."""
        self._note_ids(exchange)
        return self._without_topics(self.tables.skip(exchange))

    def finished(self) -> Iterator[Row]:
        """The rows of connections that the native core completed."""
        return self._without_topics(self.tables.finished())

    def close(self, sources: Sequence[Source] = (), warnings: Sequence[str] = ()) -> Iterator[Row]:
        """The remaining rows."""
        return self._without_topics(self.tables.close(sources, warnings))

    def result(
        self, part: int, dissection: Dissection, files: dict[str, list[FinishedFile]], selected: int
    ) -> PartResult:
        """What was counted, and the files written."""
        ids, records = (self._ids, self._named), self.records.result()
        counts, noticed = dissection.counts, dissection.noticed
        return PartResult(part, files, self.topics, counts, noticed, ids, selected, records, self.whole_part)

    @property
    def whole_part(self) -> ByCluster | None:
        """See ``PartResult.whole``."""
        return None if self.whole is None else self.whole.of_clusters

    def _note_ids(self, exchange: Exchange) -> None:
        if len(self._ids) < self._limits.topic_names:
            self._ids.update(topic_refs(exchange).keys)
            self._named.update(exchange.topic_ids)

    def _without_topics(self, rows: Iterable[Row]) -> Iterator[Row]:
        for name, row in rows:
            if name not in NOT_IN_PARTS:
                yield name, row
            elif name == TOPIC_IDS:
                completed_ns, packet = row.exchange.order
                rank = completed_ns, self._ranks[row.exchange.first_frame.interface.capture], packet
                pair = row.topic_id, row.topic
                if pair not in self.topics or rank < self.topics[pair][0]:
                    self.topics[pair] = rank, [get(row) for get in self._getters]


class PartTables:
    """The files of a part.

    Args:
        job: what to write.
        log: the connections.
        first: number of the first file, after those of earlier jobs.
        step: difference between the numbers of consecutive files.
    """

    def __init__(self, job: ExportJob, log: ConnectionLog, first: int, step: int) -> None:
        self._is_native = job.is_native
        self.files = {name: each for name, each in job.files().items() if name not in NOT_IN_PARTS}
        for each in self.files.values():
            each.continue_from(job.first_file + first, Listing(), step)
        self.rows = PartRows(job, log)

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """See ``Export``. Exchanges with new pairs of topic ID and name are fed, also if only their IDs
        count.
        """
        if not self._is_native:
            return None
        return partial(
            _core_plan,
            files=self.files,
            tables=self.rows.tables,
            records=self.rows.records,
            has_topic_ids=True,
        )

    def release(self, written: WrittenText) -> None:
        """See ``Export``."""
        _release(self.files, written, self.settle)

    def feed(self, exchange: Exchange) -> None:
        """Write the rows of an exchange."""
        self._write(self.rows.feed(exchange))

    def skip(self, exchange: Exchange) -> None:
        """Count an exchange that the filters excluded."""
        self._write(self.rows.skip(exchange))

    def settle(self) -> None:
        """Count and write the rows that the core has made."""
        for each in self.files.values():
            each.settle()
        self._write(self.rows.finished())

    def close(self) -> None:
        """Finish all files."""
        self._write(self.rows.close())
        for each in self.files.values():
            each.close()

    def abandon(self) -> None:
        """Remove unfinished files."""
        for each in self.files.values():
            each.abandon()

    def _write(self, rows: Iterable[Row]) -> None:
        for name, row in rows:
            self.files[name].feed(row)


def write_part(
    job: ExportJob,
    part: int,
    dissection: Dissection,
    log: ConnectionLog,
    selects: Callable[[Exchange], bool],
    demand: Demand,
    first: int,
    step: int = 1,
) -> PartResult:
    """Write the tables of some connections.

    Args:
        job: what to write.
        part: number of the part.
        dissection: of the connections.
        log: the connections.
        selects: whether an exchange passes the filters.
        demand: which exchanges that are.
        first: see ``PartTables``.
        step: see ``PartTables``.
    """
    tables = PartTables(job, log, first, step)
    sink = Columns(tables, demand, release=tables.release)
    try:
        for _ in dissection.into(sink, selects):
            pass
        tables.close()
    except BaseException:
        tables.abandon()
        raise
    files = {name: list(each.files) for name, each in tables.files.items()}
    return tables.rows.result(part, dissection, files, sink.rows)
