"""Rows -> Arrow record batches. Holds the rows of the next batch, column by column.

The types are those that Spark, DuckDB, polars and pandas read without hints: timestamps in microseconds with
UTC, bodies as strings of JSON, every column nullable. Needs pyarrow.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import deque
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kdissect import core
from kdissect.errors import UsageError
from kdissect.nearest import did_you_mean
from kdissect.tables.columns import BY_NAME, EXCHANGE, OBJECT, Array, Scalar, arrow_getter
from kdissect.tables.form import with_valid_time
from kdissect.tables.lines import RecordValues
from kdissect.tables.native_rows import NativeTable, table_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PlanContext, RowPlan
    from kdissect.tables.columns import Column, Type


class _NoPandas:
    """An import finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        """Raise ImportError for pandas; leave other modules to the next finder."""
        if name == "pandas":
            raise ImportError(name, name=name)


# pyarrow imports pandas before it makes its first array, to distinguish lists from series. That takes 50 MB
# and a third of a second, and is not needed here. Data frames still work later: pyarrow tries again.
if "pandas" not in sys.modules:
    sys.meta_path.insert(0, _NoPandas)
    pa.array([])
    sys.meta_path.remove(_NoPandas)

_VALUE_COST = 8  # bytes of a value, besides its text


def schema(columns: Sequence[Column]) -> Any:
    """The pyarrow schema of these columns."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(kind: Type) -> Any:
    """The pyarrow type of a column type."""
    if isinstance(kind, Scalar):
        name, *arguments = kind.arrow
        return getattr(pa, name)(*arguments)
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    return pa.struct([(name, arrow_type(inner)) for name, inner in kind.fields])


_FORMATS = {
    "string": "u", "bool_": "b", "int16": "s", "int32": "i", "int64": "l", "binary": "z", "date32": "tdD",
    "timestamp": "tsu:UTC",
}  # fmt: skip
"""From pyarrow's functions for types to the format strings of the Arrow C data interface."""

_LIST, _STRUCT = "+l", "+s"

Kind = tuple[str, list[tuple[str, "Kind"]]]


def native_kind(kind: Type) -> Kind:
    """The type for the native core: a format string, and name and type of what is inside."""
    if isinstance(kind, Scalar):
        return _FORMATS[kind.arrow[0]], []
    if isinstance(kind, Array):
        return _LIST, [("element", native_kind(kind.element))]
    return _STRUCT, [(name, native_kind(inner)) for name, inner in kind.fields]


class Prepared(NamedTuple):
    """All records of a batch, converted for ``RowBatch.feed_some``.

    Attributes:
        columns: see ``RecordValues.of``.
        sums: running totals of the rows' sizes: 0 first, the total last.
    """

    columns: list[list[Any]]
    sums: list[int]


class RowBatch:
    """The rows of the next batch: ``rows`` rows of about ``held`` bytes.

    Args:
        columns: of the rows.
        capacity: rows and bytes with which it is full.

    Attributes:
        capacity: rows and bytes with which it is full.
        schema: of the batch.
        columns: the values: the native core's ``Columns``, or lists.
    """

    __slots__ = ("_counted", "_getters", "_records", "_waiting", "capacity", "columns", "schema")

    def __init__(self, columns: Sequence[Column], capacity: tuple[int, int] = (0, 0)) -> None:
        self.capacity = capacity
        self._counted = 0
        self.schema = schema(columns)
        self._getters = [arrow_getter(column) for column in columns]
        self._records = RecordValues(zip(self.schema.names, self._getters, strict=True))
        self.columns: Any
        if not core.is_used:
            self.columns = _Lists(self.schema, [column.type == OBJECT for column in columns])
        else:
            kind = _STRUCT, [(column.name, native_kind(column.type)) for column in columns]
            self.columns = core.native.Columns(kind)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.columns.rows)

    @property
    def held(self) -> int:
        """About how many bytes they have."""
        return int(self.columns.held)

    @property
    def is_full(self) -> bool:
        """Whether it has as many rows or bytes."""
        rows, size = self.capacity
        return self.rows >= rows or self.held >= size

    def wait(self) -> core.native.WaitingColumns:
        """Where the core adds rows that wait."""
        waiting: core.native.WaitingColumns = self.columns.waiting()
        self._waiting = waiting
        return waiting

    def move(self, rows: int, latency_us: int | None, also_in: str | None) -> int:
        """Add the first of these, see ``SharedRows``."""
        later = (("e2e_latency_us", latency_us), ("also_in", also_in))
        return self._waiting.move_to(self.columns, rows, self.capacity, later)

    @property
    def uncounted(self) -> int:
        """Number of rows since ``note_counted``."""
        return self.rows - self._counted

    def note_counted(self) -> None:
        """Note that all rows are counted, those that were taken and those that are here."""
        self._counted = self.rows

    def feed(self, row: Any) -> None:
        """Add a row."""
        self.columns.feed([get(row) for get in self._getters])

    def prepare(self, records: DecodedBatch) -> Prepared:
        """Convert all records of a batch, which must be plain."""
        columns = self._records.of(records)
        count = len(records)
        costs = [map(_cost, values) for values in columns if len(values) == count]
        shared = sum(_cost(values[0]) for values in columns if len(values) < count)
        rows = map(sum, zip(repeat(shared, count), *costs, strict=True))
        return Prepared(columns, list(accumulate(rows, initial=0)))

    def feed_some(self, prepared: Prepared, start: int, rows: int, room: int) -> int:
        """Add records from ``start`` on: at least one, at most ``rows``, and none after the one that exceeds
        ``room`` bytes.

        Returns:
            The index of the next record.
        """
        columns, sums = prepared
        stop = max(start + 1, min(start + rows, bisect_right(sums, sums[start] + room), len(sums) - 1))
        self.columns.feed_some(columns, start, stop, sums[stop] - sums[start])
        return stop

    def take(self) -> Any:
        """Return the rows as a ``pyarrow.RecordBatch`` and start the next batch."""
        return pa.record_batch(self.columns.take(), schema=self.schema)


class ExchangeBatches:
    """Batches of exchanges: the ``Tables`` of a sink.

    Args:
        names: of the columns, in order; None: all.
        limits: of a batch: as of a row group.

    Raises:
        UsageError: there is no such column.
    """

    def __init__(self, names: Iterable[str] | None, limits: Limits) -> None:
        self._columns = list(EXCHANGE) if names is None else [_known(name) for name in names]
        self._batch = RowBatch([with_valid_time(column) for column in self._columns])
        self._capacity = limits.export_rows, limits.export_bytes
        self._filled: deque[Any] = deque()
        self.schema = self._batch.schema

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """See ``sinks.columns.Tables``."""
        return self._row_plan

    def _row_plan(self, context: PlanContext) -> RowPlan:
        table = NativeTable(self._columns, self._batch.columns, self._capacity)
        return table_plan(context, {"exchanges": table})

    def feed(self, exchange: Exchange) -> None:
        """Add a row."""
        self._batch.feed(exchange)
        self.settle()

    def skip(self, exchange: Exchange) -> None:
        """Do nothing: it has no row."""

    def settle(self) -> None:
        """Finish the batch if it is full."""
        rows, size = self._capacity
        if self._batch.rows >= rows or self._batch.held >= size:
            self._filled.append(self._batch.take())

    def filled(self) -> Iterator[Any]:
        """Yield the batches that are full. To be called after each exchange."""
        while self._filled:
            yield self._filled.popleft()

    def close(self) -> Iterator[Any]:
        """Yield the last batches."""
        yield from self.filled()
        if self._batch.rows:
            yield self._batch.take()


def _known(name: str) -> Column:
    if name not in BY_NAME:
        raise UsageError(f'no column "{name}"{did_you_mean(name, BY_NAME)}')
    return BY_NAME[name]


class _Lists:
    """Columns as lists of Python's values, without the native core."""

    __slots__ = ("_are_json", "_schema", "_values", "held", "rows")

    def __init__(self, schema: Any, are_json: Sequence[bool]) -> None:
        self._schema = schema
        self._are_json = are_json
        self._values: list[list[Any]] = [[] for _ in are_json]
        self.rows = self.held = 0

    def feed(self, values: Sequence[Any]) -> None:
        """Add a row: a value for each column."""
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self.held += sum(map(_cost, values))
        self.rows += 1

    def feed_some(self, columns: Sequence[list[Any]], start: int, stop: int, size: int) -> None:
        """Add rows ``start`` to ``stop``, of this size: the values are those of more rows, or one for all."""
        rows = stop - start
        for column, values in zip(self._values, columns, strict=True):
            column += values * rows if len(values) == 1 else values[start:stop]
        self.held += size
        self.rows += rows

    def take(self) -> list[Any]:
        """The arrays; the next batch begins."""
        arrays = [
            _json_array(values) if is_json else pa.array(values, field.type)
            for values, field, is_json in zip(self._values, self._schema, self._are_json, strict=True)
        ]
        for values in self._values:
            values.clear()
        self.rows = self.held = 0
        return arrays


def _json_array(values: list[bytes | None]) -> Any:
    """The array that ``pa.array`` makes from JSON texts; a single text is not copied, it can have tens of
    MB.
    """
    texts = [value or b"" for value in values]
    offsets = array("i", accumulate(map(len, texts), initial=0))
    present = pa.array([value is not None for value in values]).buffers()[1]
    buffers = [present, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _cost(value: Any) -> int:
    if isinstance(value, str):  # one character beyond U+FFFF makes all take four bytes
        return _VALUE_COST + len(value) * (1 if value.isascii() else 4)
    if isinstance(value, bytes):
        return _VALUE_COST + len(value)
    if isinstance(value, list):
        return _VALUE_COST + sum(map(_cost, value))
    if isinstance(value, dict):
        return _VALUE_COST + sum(map(_cost, value.values()))
    return _VALUE_COST
