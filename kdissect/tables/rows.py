"""Exchanges, connections, capture files -> rows, each with the name of its table. Holds the open connections
and what the row makers hold (others.py, whole.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.model import Endpoint
from kdissect.tables import groups, others, partitions
from kdissect.tables.exchanges import exchanges, records
from kdissect.tables.groups import GROUPS
from kdissect.tables.others import ANOMALIES, CAPTURES, CONNECTIONS, TOPIC_IDS
from kdissect.tables.partitions import PARTITIONS
from kdissect.tables.whole import WHOLE_TABLES, WholeRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from kdissect.capture.source import Source
    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Exchange
    from kdissect.query.records import Records
    from kdissect.stats.connection_log import ConnectionLog, ConnectionLogRow
    from kdissect.tables.whole import Advertised, NamedByCore


if TYPE_CHECKING:
    Maker = Callable[[Exchange], Iterable[Any]]

Row = tuple[str, Any]
"""A table name and a row for its columns; for records also a batch, see ``Records.records_or_batches``."""


class TableRows:
    """Makes the rows of the requested tables.

    Args:
        tables: their names; exchanges come last.
        log: the connections; it is fed every exchange, if a table needs it.
        records: opens the records of an exchange, for their table.
        limits: see ``Limits``.
        every_connection: whether connections without a matching exchange get a row too.

    Attributes:
        whole: makes the rows that are known at the end; None: no table has any.
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
        self._needs_log = needs_log(tables)
        self.log = log
        self.every_connection = every_connection
        self.topic_ids = others.TopicIds(limits)
        self.whole = None if WHOLE_TABLES.keys().isdisjoint(tables) else WholeRows(tables, limits)
        makers: dict[str, Maker] = {
            "records": lambda exchange: records.records_or_batches((exchange,)),
            "partitions": partitions.rows,
            "groups": groups.rows,
            "topic_ids": self.topic_ids.rows,
            "anomalies": others.anomalies_of,
            "exchanges": lambda exchange: (exchange,),  # last: writing it may drop the bodies
        }
        self._makers = [(name, make) for name, make in makers.items() if name in tables]

    def feed(self, exchange: Exchange) -> Iterator[Row]:
        """The rows that an exchange adds."""
        if self._needs_log:
            self.log.exchange(exchange)
        if self.whole is not None:
            self.whole.feed(exchange)
        for name, make in self._makers:
            for row in make(exchange):
                yield name, row
        yield from self._connection_rows(self.log.finished())

    def finished(self) -> Iterator[Row]:
        """The rows of connections that the native core completed."""
        yield from self._connection_rows(self.log.finished())

    def skip(self, exchange: Exchange) -> Iterator[Row]:
        """The rows added by an exchange that the filters excluded."""
        if self._needs_log:
            self.log.exchange(exchange, is_selected=False)
        yield from self._connection_rows(self.log.finished())

    def finish_capture(self, source: Source) -> Iterator[Row]:
        """The row of a capture that was read to its end while others follow it; its counts are dropped."""
        if "captures" in self._tables:
            for row in others.captures((source,), self.log.census, source.warnings):
                yield "captures", row
        self.log.census.forget(source.name)

    def close(self, sources: Sequence[Source], warnings: Sequence[str]) -> Iterator[Row]:
        """The remaining rows: connections that are still open, and captures."""
        yield from self._connection_rows(self.log.close())
        if "captures" in self._tables:
            for row in others.captures(sources, self.log.census, warnings):
                yield "captures", row

    @property
    def needs_brokers(self) -> bool:
        """Whether ``take_brokers`` needs what exchanges name."""
        return self._needs_log or self.whole is not None

    def take_brokers(
        self,
        info: ConnectionInfo,
        is_selected: bool,
        advertised: Sequence[Advertised],
        named: Sequence[NamedByCore],
    ) -> None:
        """Note brokers that exchanges of the core name, see ``WholePlan``."""
        if self._needs_log:
            for _, end in advertised:
                if end is not None:
                    self.log.listeners.add(Endpoint(*end))
        if self.whole is not None and is_selected:
            self.whole.take_brokers(info, advertised, named)

    def _connection_rows(self, connections: Iterable[ConnectionLogRow]) -> Iterator[Row]:
        for connection in connections:
            if not (connection.is_selected or self.every_connection):
                continue
            if "connections" in self._tables:
                yield "connections", connection
            if "anomalies" in self._tables:
                for row in others.anomalies_after(connection):
                    yield "anomalies", row


# ------------------------------------------------------------------------------------------------------------
# All tables of an export, by name.
# ------------------------------------------------------------------------------------------------------------


TABLES = {
    table.name: table
    for table in (
        exchanges(), records(), PARTITIONS, CONNECTIONS, GROUPS, *WHOLE_TABLES.values(), TOPIC_IDS, ANOMALIES,
        CAPTURES,
    )
}  # fmt: skip
EXCHANGES = "exchanges"
RECORDS = "records"
"""The table that is written only on request: it opens every batch."""
NATIVE_TABLES = frozenset({EXCHANGES, "partitions", "groups"})
"""Tables to which the native core can add rows."""
_OF_CONNECTIONS = frozenset({"connections", "anomalies"})


def needs_log(tables: Collection[str]) -> bool:
    """Whether any of these tables has rows of connections: if not, the log need not observe a dissection."""
    return not _OF_CONNECTIONS.isdisjoint(tables)


def are_native(tables: Collection[str], *, has_joined: bool = False) -> bool:
    """Whether the native core can make the rows of usual exchanges for all of these tables. ``has_joined``:
    those of records, too, because their rows wait until they are joined.
    """
    others = set(tables) - NATIVE_TABLES - ({RECORDS} if has_joined else set())
    known = {"topic_ids", "connections", "anomalies", "captures", *WHOLE_TABLES}
    return others < set(tables) and others <= known


DEFAULT_TABLES = tuple(name for name in TABLES if name != RECORDS)
