"""Exchanges, connections, files -> all tables of an export. Holds what the tables do, and the connections
that are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.sinks import manifest
from kdissect.sinks.tables import groups, others, partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kdissect.analysis.connectionlog import ConnectionLog, ConnectionRow
    from kdissect.analysis.records import Records
    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.sinks.rowfiles import Format
    from kdissect.sinks.tablefiles import TableFiles

    Maker = Callable[[Exchange], Iterable[Any]]


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
    ) -> None:
        self._folder = folder
        self._files = files
        self._form = form
        self._job = job
        self._log = log
        self._every_connection = every_connection
        makers: dict[str, Maker] = {
            "exchanges": lambda exchange: (exchange,),
            "records": lambda exchange: records.of((exchange,)),
            "partitions": partitions.rows,
            "groups": groups.rows,
            "topic_ids": others.TopicIds(limits).rows,
            "anomalies": others.anomalies_of,
        }
        self._makers = [(makers[name], table.feed) for name, table in files.items() if name in makers]
        for name, table in files.items():
            manifest.begin(folder / name, table, form, job)

    def feed(self, exchange: Exchange) -> None:
        """Write what an exchange adds to the tables."""
        self._log.exchange(exchange)
        for make, feed in self._makers:
            for row in make(exchange):
                feed(row)
        self._write_connections()

    def pass_over(self, exchange: Exchange) -> None:
        """Take note of an exchange that was not asked for."""
        self._log.exchange(exchange, is_wanted=False)
        self._write_connections()

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
        for row in self._log.close():
            self._write_connection(row)
        if "captures" in self._files:
            for found in others.captures(sources, self._log.census, warnings):
                self._files["captures"].feed(found)
        for table in self._files.values():
            table.close()
        for name, table in self._files.items():
            manifest.write(self._folder / name, table, self._form, self._job, {"complete": complete, **end})

    def abandon(self) -> None:
        """Remove files that are not finished; the manifests already say that the export is not complete."""
        for table in self._files.values():
            table.abandon()

    def _write_connections(self) -> None:
        for row in self._log.finished():
            self._write_connection(row)

    def _write_connection(self, row: ConnectionRow) -> None:
        if not (row.is_wanted or self._every_connection):
            return
        if "connections" in self._files:
            self._files["connections"].feed(row)
        if "anomalies" in self._files:
            for found in others.anomalies_behind(row):
                self._files["anomalies"].feed(found)

    @property
    def rows(self) -> dict[str, int]:
        """Rows written so far, by table."""
        return {name: table.rows for name, table in self._files.items()}

    @property
    def bytes(self) -> int:
        """Bytes of all files that are finished."""
        return sum(file.bytes for table in self._files.values() for file in table.files)

    @property
    def files(self) -> int:
        """How many of them there are."""
        return sum(len(table.files) for table in self._files.values())
