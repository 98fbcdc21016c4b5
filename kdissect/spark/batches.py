"""Exchanges -> Arrow record batches of each table.

Holds what making rows holds, and for each table the rows of its next batch: at most ``rows`` of them, and
``bytes`` plus one row. Only requested columns are computed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kdissect.errors import UsageError
from kdissect.exchanges.partition_records import DecodedBatch
from kdissect.limits import MIB
from kdissect.nearest import did_you_mean
from kdissect.options import BOTH, Options
from kdissect.query.records import records_of
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables.arrow import RowBatch
from kdissect.tables.exchanges import BODIES, exchanges
from kdissect.tables.native_rows import NativeTable, table_plan
from kdissect.tables.rows import NATIVE_TABLES, TABLES, TableRows, are_native, needs_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kdissect.capture.source import Source
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PlanContext, RowPlan
    from kdissect.tables.columns import Column
    from kdissect.tables.rows import Row

ROWS = 5000
"""Rows per batch: Spark is fastest with 1,000 to 10,000."""
BYTES = 16 * MIB
"""Bytes per batch. A worker holds them twice, as Python values and in Arrow."""
_DEFAULT = Options()


def columns_of(table: str, names: Sequence[str] | None = None, bodies: str = BOTH) -> tuple[Column, ...]:
    """The columns of a table.

    Args:
        table: name of the table.
        names: names of the columns, in the order of the result; None: all columns.
        bodies: ``none``, ``request``, ``response`` or ``both``: bodies that are not left null.

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
    """Makes the rows of exchanges, in batches.

    Args:
        columns: of each table.
        options: of the dissection.
        rows: maximum rows per batch.
        bytes: size at which a batch is full.

    Attributes:
        tables: makes the rows.
        log: log of the connections. The tables ``connections`` and ``captures`` are complete if it is the
            dissection's observer and watches the packets.
    """

    def __init__(
        self,
        columns: Mapping[str, Sequence[Column]],
        options: Options = _DEFAULT,
        *,
        rows: int = ROWS,
        bytes: int = BYTES,  # noqa: A002
    ) -> None:
        self.tables = TableRows(
            tuple(columns),
            ConnectionLog(options.limits),
            records_of(options),
            options.limits,
            every_connection=not options.is_filtered,
        )
        self.log = self.tables.log
        self._batches = {name: RowBatch(each) for name, each in columns.items()}
        self._max_rows = rows
        self._max_bytes = bytes
        self._columns = columns
        self._filled: deque[Iterator[tuple[str, Any]]] = deque()

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """What the native core must know to add rows; None: it cannot."""
        return self._form if are_native(self._batches) else None

    def _form(self, context: PlanContext) -> RowPlan:
        limits = self._max_rows, self._max_bytes
        tables = {
            name: NativeTable(self._columns[name], batch.columns, limits)
            for name, batch in self._batches.items()
            if name in NATIVE_TABLES
        }
        topic_ids = self.tables.topic_ids if "topic_ids" in self._batches else None
        log = self.log if needs_log(self._batches) else None
        return table_plan(context, tables, topic_ids, log, self.tables)

    def settle(self) -> None:
        """Take the batches that became full as the native core added rows, and rows of connections."""
        for name, batch in self._batches.items():
            if name in NATIVE_TABLES and self._is_full(batch):
                self._filled.append(iter([(name, batch.take())]))
        self._filled.append(self.feed_rows(self.tables.finished()))

    def feed(self, exchange: Exchange) -> None:
        """Take a selected exchange. Its rows are made in ``filled``: it may have many batches."""
        self._filled.append(self.feed_rows(self.tables.feed(exchange)))

    def skip(self, exchange: Exchange) -> None:
        """Take an exchange that is not selected."""
        self._filled.append(self.feed_rows(self.tables.skip(exchange)))

    def filled(self) -> Iterator[tuple[str, Any]]:
        """Yield the batches that are full: table name and ``pyarrow.RecordBatch``. To be called after each
        exchange.
        """
        while self._filled:
            yield from self._filled.popleft()

    def feed_rows(self, rows: Iterable[Row]) -> Iterator[tuple[str, Any]]:
        """Take rows; yield as ``made`` does."""
        for name, row in rows:
            batch = self._batches[name]
            for _ in self._feed_row(batch, row):
                if self._is_full(batch):
                    yield name, batch.take()

    def close(
        self, sources: Sequence[Source] = (), warnings: Sequence[str] = ()
    ) -> Iterator[tuple[str, Any]]:
        """Yield the last batches; rows of ``captures`` are made from sources and warnings."""
        yield from self.feed_rows(self.tables.close(sources, warnings))
        if self.tables.whole is not None:
            yield from self.feed_rows(self.tables.whole.close())
        yield from self.rest()

    def rest(self) -> Iterator[tuple[str, Any]]:
        """Yield the last batches."""
        yield from self.filled()
        for name, batch in self._batches.items():
            if batch.rows:
                yield name, batch.take()

    def _is_full(self, batch: RowBatch) -> bool:
        return batch.rows >= self._max_rows or batch.held >= self._max_bytes

    def _feed_row(self, batch: RowBatch, row: Any) -> Iterator[None]:
        """Add a row, or all records of a record batch; yield whenever ``batch`` may be full."""
        if isinstance(row, DecodedBatch):
            prepared, start = batch.prepare(row), 0
            while start < len(row):
                room = self._max_bytes - batch.held - 1
                start = batch.feed_some(prepared, start, self._max_rows - batch.rows, room)
                yield
            return
        batch.feed(row)
        yield
