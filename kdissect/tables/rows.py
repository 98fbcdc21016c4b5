"""Exchanges, connections, files -> the rows of all tables that are wanted, each with the name of its table.
Holds what the makers of rows do, and the connections that are open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.tables import groups, others, partitions
from kdissect.tables.exchanges import exchanges, records
from kdissect.tables.groups import GROUPS
from kdissect.tables.others import ANOMALIES, CAPTURES, CONNECTIONS, TOPIC_IDS
from kdissect.tables.partitions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.query.records import Records
    from kdissect.stats.connection_log import ConnectionLog, ConnectionLogRow


if TYPE_CHECKING:
    Maker = Callable[[Exchange], Iterable[Any]]

Row = tuple[str, Any]
"""The name of a table, and what its columns read; of records also a batch of them, see ``Records.whole``."""


class TableRows:
    """Makes the rows.

    Args:
        tables: names of those that are wanted; exchanges come last.
        log: knows the connections; it is told of every exchange.
        records: finds the records of an exchange, for their table.
        limits: bounds.
        every_connection: those too of which no exchange was asked for.
    """

    def __init__(
        self,
        tables: Collection[str],
        log: ConnectionLog,
        records: Records,
        limits: Limits,
        *,
        every_connection: bool,
    ) -> None:
        self._tables = frozenset(tables)
        self.log = log
        self.every_connection = every_connection
        makers: dict[str, Maker] = {
            "records": lambda exchange: records.whole((exchange,)),
            "partitions": partitions.rows,
            "groups": groups.rows,
            "topic_ids": others.TopicIds(limits).rows,
            "anomalies": others.anomalies_of,
            "exchanges": lambda exchange: (exchange,),  # last: its files may let go of the bodies
        }
        self._makers = [(name, make) for name, make in makers.items() if name in tables]

    def feed(self, exchange: Exchange) -> Iterator[Row]:
        """The rows that an exchange adds."""
        self.log.exchange(exchange)
        for name, make in self._makers:
            for row in make(exchange):
                yield name, row
        yield from self._connection_rows(self.log.finished())

    def skip(self, exchange: Exchange) -> Iterator[Row]:
        """The rows that an exchange adds which was not asked for."""
        self.log.exchange(exchange, is_wanted=False)
        yield from self._connection_rows(self.log.finished())

    def finish_capture(self, source: Source) -> Iterator[Row]:
        """The row of a capture that was read to its end, while others follow it; it is forgotten then."""
        if "captures" in self._tables:
            for row in others.captures((source,), self.log.census, source.warnings):
                yield "captures", row
        self.log.census.forget(source.name)

    def close(self, sources: Sequence[Source], warnings: Sequence[str]) -> Iterator[Row]:
        """The rest: connections that were still open, and the captures."""
        yield from self._connection_rows(self.log.close())
        if "captures" in self._tables:
            for row in others.captures(sources, self.log.census, warnings):
                yield "captures", row

    def _connection_rows(self, connections: Iterable[ConnectionLogRow]) -> Iterator[Row]:
        for connection in connections:
            if not (connection.is_wanted or self.every_connection):
                continue
            if "connections" in self._tables:
                yield "connections", connection
            if "anomalies" in self._tables:
                for row in others.anomalies_after(connection):
                    yield "anomalies", row


# ------------------------------------------------------------------------------------------------------------
# All tables of an export, by name. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


TABLES = {
    table.name: table
    for table in (
        exchanges(), records(), PARTITIONS, CONNECTIONS, GROUPS, TOPIC_IDS, ANOMALIES, CAPTURES,
    )
}  # fmt: skip
RECORDS = "records"
"""The one that is written only when asked for: it opens every batch."""
DEFAULT_TABLES = tuple(name for name in TABLES if name != RECORDS)
