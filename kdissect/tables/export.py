"""Exchanges, connections, files -> all tables of an export, in files. Holds what the tables' rows and files
do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdissect.errors import OutputError
from kdissect.limits import SECOND_NS
from kdissect.options import BOTH, JSONL
from kdissect.tables import manifest
from kdissect.tables.exchanges import BODIES, exchanges
from kdissect.tables.rows import DEFAULT_TABLES, TABLES, TableRows
from kdissect.tables.table_files import NONE, ZST, JsonFormat, TableFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.options import ExportOptions
    from kdissect.query.records import Records
    from kdissect.stats.connection_log import ConnectionLog
    from kdissect.tables.form import Table
    from kdissect.tables.rows import Row
    from kdissect.tables.table_files import Format


def tables_of(export: ExportOptions) -> tuple[str, ...]:
    """The tables to write, in the order of the catalogue."""
    names = export.tables or DEFAULT_TABLES
    return tuple(name for name in TABLES if name in names)


def format_of(export: ExportOptions, limits: Limits) -> Format:
    """The format of files.

    Raises:
        UsageError: a library for it is missing.
    """
    if export.form == JSONL:
        return JsonFormat(export.compression or NONE)
    from kdissect.tables.parquet import ParquetFormat

    return ParquetFormat(export.compression or ZST, limits)


def table_of(name: str, export: ExportOptions) -> Table:
    """A table with the bodies that are written."""
    if name != "exchanges":
        return TABLES[name]
    return exchanges(frozenset(BODIES) if export.bodies == BOTH else frozenset({export.bodies}))


def files_of(table: Table, export: ExportOptions, form: Format, limits: Limits) -> TableFiles:
    """The files of a table."""
    return TableFiles(
        export.folder / table.name,
        table,
        form,
        partition_by=export.partition_by,
        rotate_bytes=export.rotate_bytes,
        limits=limits,
        mode=export.mode,
    )


class Export:
    """Writes the tables.

    Args:
        folder: of the export.
        files: of each table that is wanted, by its name.
        form: of the files.
        job: what they are made of.
        log: knows the connections; it is told of every exchange.
        records: finds the records of an exchange, for their table.
        limits: bounds.
        every_connection: write those too of which no exchange was asked for.
        rotate_ns: packet time after which files are finished, in all tables at once; None: never.
        earlier: of an export of what comes live: the runs before, by table. Its manifests name files as soon
            as they are finished.

    Raises:
        OutputError: now or later, something cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, TableFiles],
        form: Format,
        job: manifest.Job,
        log: ConnectionLog,
        records: Records,
        limits: Limits,
        *,
        every_connection: bool,
        rotate_ns: int | None = None,
        earlier: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self._folder = folder
        self._files = files
        self._form = form
        self._job = job
        self.tables = TableRows(files, log, records, limits, every_connection=every_connection)
        self._rotate_ns = rotate_ns
        self._earlier = earlier
        self._begun_ns: int | None = None  # when the files that are open now were begun
        self._listed: dict[str, int] = {}  # how many files its manifest names, by table
        self._listed_ns = 0
        self._before = 0, 0
        self._before = self.files, self.bytes
        for name, table in files.items():
            manifest.begin(folder / name, table, form, job, self._end(name, {}))
            self._listed[name] = len(table.files)

    def feed(self, exchange: Exchange) -> None:
        """Write what an exchange adds to the tables."""
        if self._rotate_ns is not None:
            self.tick(exchange.completed_ns)
        self._write(self.tables.feed(exchange))

    def pass_over(self, exchange: Exchange) -> None:
        """Take note of an exchange that was not asked for."""
        self._write(self.tables.pass_over(exchange))

    def tick(self, now_ns: int) -> None:
        """Packet time has come so far: finish the files whose time has come, and name them."""
        if self._begun_ns is None or now_ns < self._begun_ns:  # clocks are set back too
            self._begun_ns = self._listed_ns = now_ns
            return
        if self._rotate_ns is not None and now_ns - self._begun_ns >= self._rotate_ns:
            self._begun_ns = now_ns
            for table in self._files.values():
                table.rotate()
        if self._earlier is not None and now_ns - self._listed_ns >= SECOND_NS:
            self._listed_ns = now_ns
            self._list(complete=False)

    def leave(self, source: Source) -> None:
        """A capture was read to its end, and others follow it."""
        self._write(self.tables.leave(source))

    def close(
        self, sources: Sequence[Source], warnings: Sequence[str], *, complete: bool, end: Mapping[str, Any]
    ) -> None:
        """Finish all files, and say so beside them.

        Args:
            sources: the captures.
            warnings: what was odd about them.
            complete: whether all that was asked for was read.
            end: what else to say.
        """
        self._write(self.tables.close(sources, warnings))
        for table in self._files.values():
            table.close()
        self._listed.clear()
        self._list(complete=complete, **end)

    def abandon(self) -> None:
        """Remove files that are not finished; the manifests say that the export is not complete."""
        for table in self._files.values():
            table.abandon()
        with suppress(OutputError):  # it may be the reason
            self._list(complete=False)

    def _list(self, *, complete: bool, **end: Any) -> None:
        """Write the manifests of the tables that have more files than these say."""
        for name, table in self._files.items():
            if len(table.files) != self._listed.get(name):
                told = self._end(name, {"complete": complete, **end})
                manifest.write(self._folder / name, table, self._form, self._job, told)
                self._listed[name] = len(table.files)

    def _end(self, name: str, end: Mapping[str, Any]) -> Mapping[str, Any]:
        return end if self._earlier is None else {**end, "runs": self._earlier[name]}

    def _write(self, rows: Iterable[Row]) -> None:
        for name, row in rows:
            self._files[name].feed(row)

    @property
    def rows(self) -> dict[str, int]:
        """Rows written so far, by table."""
        return {name: table.rows for name, table in self._files.items()}

    @property
    def bytes(self) -> int:
        """Bytes of all files that were finished by this run."""
        return sum(table.files.bytes for table in self._files.values()) - self._before[1]

    @property
    def files(self) -> int:
        """How many of them there are."""
        return sum(len(table.files) for table in self._files.values()) - self._before[0]
