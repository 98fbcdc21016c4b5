"""Rows -> record batches of Arrow. Holds the rows of the next batch, column by column.

Types are those that Spark, DuckDB, polars and pandas read without a hint: timestamps in microseconds with
UTC, bodies as strings of JSON, every column nullable. Needs pyarrow.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kdissect.tables.columns import OBJECT, Array, Scalar, arrow_getter
from kdissect.tables.lines import RecordValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.exchanges.partition_records import DecodedBatch
    from kdissect.tables.columns import Column, Type


class _NoPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        """Fail for pandas, leave others to other finders."""
        if name == "pandas":
            raise ImportError(name, name=name)


# Before its first array pyarrow imports pandas, to tell a list from a series: 50 MB and a third of a second
# for what nothing here needs. Who wants a data frame later still gets one: pyarrow tries again.
if "pandas" not in sys.modules:
    sys.meta_path.insert(0, _NoPandas)
    pa.array([])
    sys.meta_path.remove(_NoPandas)

_VALUE_COST = 8  # bytes, of whatever is no text


def schema(columns: Sequence[Column]) -> Any:
    """The columns' types as pyarrow has them."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(kind: Type) -> Any:
    """A type as pyarrow has it."""
    if isinstance(kind, Scalar):
        name, *arguments = kind.arrow
        return getattr(pa, name)(*arguments)
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    return pa.struct([(name, arrow_type(inner)) for name, inner in kind.fields])


class Prepared(NamedTuple):
    """All records of a batch, for ``RowBatch.feed_some``.

    Attributes:
        columns: see ``RecordValues.of``.
        sums: what the rows in front of each, and all of them, cost.
    """

    columns: list[list[Any]]
    sums: list[int]


class RowBatch:
    """The rows of the next batch; ``held`` bytes, about, in ``rows`` rows."""

    __slots__ = ("_are_json", "_getters", "_records", "_values", "held", "rows", "schema")

    def __init__(self, columns: Sequence[Column]) -> None:
        self.schema = schema(columns)
        self._values: list[list[Any]] = [[] for _ in columns]
        self._getters = [arrow_getter(column) for column in columns]
        self._are_json = [column.type == OBJECT for column in columns]
        self._records = RecordValues(zip(self.schema.names, self._getters, strict=True))
        self.rows = self.held = 0

    def feed(self, row: Any) -> None:
        """Take a row."""
        values = [get(row) for get in self._getters]  # all of them, before any is kept
        for column, value in zip(self._values, values, strict=True):
            column.append(value)
        self.held += sum(map(_cost, values))
        self.rows += 1

    def prepare(self, records: DecodedBatch) -> Prepared:
        """Make all records of a batch ready, which are plain."""
        columns = self._records.of(records)
        count = len(records)
        costs = [map(_cost, values) for values in columns if len(values) == count]
        shared = sum(_cost(values[0]) for values in columns if len(values) < count)
        rows = map(sum, zip(repeat(shared, count), *costs, strict=True))
        return Prepared(columns, list(accumulate(rows, initial=0)))

    def feed_some(self, prepared: Prepared, start: int, rows: int, room: int) -> int:
        """Take those from ``start`` on, one at least: not more than ``rows``, and none behind the one with
        which they cost more than ``room``.

        Returns:
            How far it came.
        """
        columns, sums = prepared
        count = len(sums) - 1
        stop = max(start + 1, min(start + rows, bisect_right(sums, sums[start] + room), count))
        for column, values in zip(self._values, columns, strict=True):
            column += values[start:stop] if len(values) == count else values * (stop - start)
        self.held += sums[stop] - sums[start]
        self.rows += stop - start
        return stop

    def take(self) -> Any:
        """The rows as a ``pyarrow.RecordBatch``; another one begins."""
        arrays = [
            _json_array(values) if is_json else pa.array(values, field.type)
            for values, field, is_json in zip(self._values, self.schema, self._are_json, strict=True)
        ]
        for values in self._values:
            values.clear()
        self.rows = self.held = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _json_array(values: list[bytes | None]) -> Any:
    """What ``pa.array`` makes of JSON, but of a single text without a copy: one can have tens of MB."""
    texts = [value or b"" for value in values]
    offsets = array("i", accumulate(map(len, texts), initial=0))
    present = pa.array([value is not None for value in values]).buffers()[1]
    buffers = [present, pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _cost(value: Any) -> int:
    if isinstance(value, str | bytes):
        return _VALUE_COST + len(value)
    if isinstance(value, list):
        return _VALUE_COST + sum(map(_cost, value))
    if isinstance(value, dict):
        return _VALUE_COST + sum(map(_cost, value.values()))
    return _VALUE_COST
