"""Exchanges -> record batches of Arrow, table by table. Holds what the rows' makers do, and of each table the
rows of its next batch: at most ``rows``, and of ``bytes`` what one more row brings.

Columns that nobody asked for are not read; that is how a table is made narrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError
from kdissect.exchanges.partition_records import OpenBatch
from kdissect.limits import DEFAULT, MIB, Limits
from kdissect.query.nearest import did_you_mean
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from kdissect.query.records import Records
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables.arrow import RowBatch
from kdissect.tables.exchanges import BODIES, exchanges
from kdissect.tables.rows import TABLES, TableRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kdissect.capture.source import Source
    from kdissect.model import Exchange
    from kdissect.tables.columns import Column
    from kdissect.tables.rows import Row

ROWS = 5000
"""Of a batch: Spark takes 1,000 to 10,000 fastest."""
BYTES = 16 * MIB
"""Of a batch: what a worker holds twice, as Python's values and as Arrow's."""
BOTH = "both"


def columns_of(table: str, names: Sequence[str] | None = None, bodies: str = BOTH) -> tuple[Column, ...]:
    """The columns of a table that are asked for, in the order of their names; all of them without names.

    Args:
        table: its name.
        names: of columns.
        bodies: ``none``, ``request``, ``response`` or ``both``: which are not left null.

    Raises:
        UsageError: there is no such table or column.
    """
    if table not in TABLES:
        hint = did_you_mean(table, TABLES) or f"; known: {', '.join(TABLES)}"
        raise UsageError(f'unknown table "{table}"{hint}')
    included_bodies = frozenset(BODIES) if bodies == BOTH else frozenset({bodies})
    table_columns = exchanges(included_bodies) if table == "exchanges" else TABLES[table]
    if names is None:
        return table_columns.binary_columns
    known = {column.name: column for column in table_columns.binary_columns}
    for name in names:
        if name not in known:
            raise UsageError(f'no column "{name}" in {table}{did_you_mean(name, known)}')
    return tuple(known[name] for name in names)


class TableBatches:
    """Makes the batches.

    Args:
        tables: names of those that are wanted.
        columns: of a table, by its name; of others all.
        bodies: which exchanges have, see ``columns_of``.
        limits: bounds.
        rows: at most in a batch.
        bytes: after which a batch is full.
        records: finds the records of an exchange; all of them unless it is given.
        log: knows the connections; a new one unless it is given.
        meant: tells of a row whether it is wanted; None: all are.
        every_connection: those too of which no exchange was asked for.

    Attributes:
        log: knows the connections. Give it to ``dissect`` as survey and let it watch the packets, and
            ``connections`` and ``captures`` know all there is.

    Raises:
        UsageError: there is no such table or column.
    """

    def __init__(
        self,
        tables: Sequence[str],
        columns: Mapping[str, Sequence[str]] | None = None,
        bodies: str = BOTH,
        limits: Limits = DEFAULT,
        *,
        rows: int = ROWS,
        bytes: int = BYTES,  # noqa: A002  (what it is)
        records: Records | None = None,
        log: ConnectionLog | None = None,
        every_connection: bool = True,
        row_filter: Callable[[Any], bool] | None = None,
    ) -> None:
        requested = columns or {}
        self._batches = {name: RowBatch(columns_of(name, requested.get(name), bodies)) for name in tables}
        self._most_rows = rows
        self._most_bytes = bytes
        self.log = log or ConnectionLog(limits)
        self._row_filter = row_filter
        record_source = records or Records(RecordFilter(RecordCriteria(), limits), limits)
        self._rows = TableRows(tables, self.log, record_source, limits, every_connection=every_connection)

    def feed(self, exchange: Exchange) -> Iterator[tuple[str, Any]]:
        """Take an exchange; get the name of its table and a ``pyarrow.RecordBatch`` for each that is full."""
        return self._full_batches(self._rows.feed(exchange))

    def pass_over(self, exchange: Exchange) -> Iterator[tuple[str, Any]]:
        """The same for an exchange that was not asked for."""
        return self._full_batches(self._rows.pass_over(exchange))

    def close(
        self, sources: Sequence[Source] = (), warnings: Sequence[str] = ()
    ) -> Iterator[tuple[str, Any]]:
        """What is left; ``captures`` come from sources and warnings."""
        yield from self._full_batches(self._rows.close(sources, warnings))
        for name, batch in self._batches.items():
            if batch.rows:
                yield name, batch.take()

    def _full_batches(self, rows: Iterable[Row]) -> Iterator[tuple[str, Any]]:
        for name, row in rows:
            batch = self._batches[name]
            for _ in self._feed_rows(batch, row):
                if batch.rows >= self._most_rows or batch.held >= self._most_bytes:
                    yield name, batch.take()

    def _feed_rows(self, batch: RowBatch, row: Any) -> Iterator[None]:
        """Feed a row, or of records a whole batch; stop whenever it may be full."""
        if isinstance(row, OpenBatch) and self._row_filter is None:
            prepared, start = batch.prepare(row), 0
            while start < len(row):
                room = self._most_bytes - batch.held - 1
                start = batch.feed_some(prepared, start, self._most_rows - batch.rows, room)
                yield
            return
        for each in row if isinstance(row, OpenBatch) else (row,):
            if self._row_filter is None or self._row_filter(each):
                batch.feed(each)
                yield
