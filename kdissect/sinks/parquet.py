"""Rows -> Parquet. A file holds the rows of the next row group: at most ``limits.export_rows``, and what the
caller lets it hold.

Types are those that Spark, DuckDB, polars and pandas read without a hint: timestamps in microseconds with
UTC, bodies as strings of JSON, every column nullable. pyarrow is imported here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from kdissect.errors import UsageError
from kdissect.sinks.rowfiles import GZ, NONE, ZST
from kdissect.sinks.types import (
    BINARY,
    BOOLEAN,
    DATE,
    INT16,
    INT32,
    INT64,
    OBJECT,
    STRING,
    TIMESTAMP,
    Array,
    Scalar,
)
from kdissect.sinks.values import json_bytes

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise UsageError("Parquet needs pyarrow: pip install 'kdissect[parquet]'") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from kdissect.limits import Limits
    from kdissect.sinks.columns import Column
    from kdissect.sinks.rowfiles import RowFile
    from kdissect.sinks.tables.form import Table
    from kdissect.sinks.types import Type

_CODECS = {NONE: "none", GZ: "gzip", ZST: "zstd"}
_SCALARS = {
    STRING: pa.string(),
    BOOLEAN: pa.bool_(),
    INT16: pa.int16(),
    INT32: pa.int32(),
    INT64: pa.int64(),
    BINARY: pa.binary(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    OBJECT: pa.string(),
}
_VALUE_COST = 8  # bytes, of whatever is no text


def schema(columns: Sequence[Column]) -> Any:
    """The columns' types as pyarrow has them."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(kind: Type) -> Any:
    """A type as pyarrow has it."""
    if isinstance(kind, Scalar):
        return _SCALARS[kind]
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    return pa.struct([(name, arrow_type(inner)) for name, inner in kind.fields])


class ParquetFormat:
    """Parquet."""

    name = "parquet"
    suffix = ".parquet"
    using = "PARQUET"

    def __init__(self, compression: str, limits: Limits) -> None:
        self.compression = compression
        self._most_rows = limits.export_rows

    def columns(self, table: Table) -> tuple[Column, ...]:
        """The columns of a table: Parquet has bytes."""
        return table.binary_columns

    def open(self, file: BinaryIO, columns: Sequence[Column]) -> RowFile:
        """Begin a file."""
        return _ParquetFile(file, columns, _CODECS[self.compression], self._most_rows)


class _ParquetFile:
    """The rows of the next row group, column by column."""

    def __init__(self, file: BinaryIO, columns: Sequence[Column], codec: str, most_rows: int) -> None:
        self._schema = schema(columns)
        self._writer = parquet.ParquetWriter(file, self._schema, compression=codec)
        self._most_rows = most_rows
        self._values: list[list[Any]] = [[] for _ in columns]
        self._getters = [_getter(column) for column in columns]
        self._rows = 0
        self.held = 0

    def feed(self, row: Any) -> None:
        """Take a row."""
        values = [get(row) for get in self._getters]  # all of them, before any is kept
        for kept, value in zip(self._values, values, strict=True):
            kept.append(value)
        self.held += sum(map(_cost, values))
        self._rows += 1
        if self._rows >= self._most_rows:
            self.flush()

    def flush(self) -> None:
        """Write a row group."""
        if not self._rows:
            return
        arrays = [
            pa.array(values, field.type) for values, field in zip(self._values, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        for values in self._values:
            values.clear()
        self._rows = self.held = 0

    def close(self) -> None:
        """Write the rest, and what is told at a file's end."""
        self.flush()
        self._writer.close()


def _cost(value: Any) -> int:
    if isinstance(value, str | bytes):
        return _VALUE_COST + len(value)
    if isinstance(value, list):
        return _VALUE_COST + sum(map(_cost, value))
    if isinstance(value, dict):
        return _VALUE_COST + sum(map(_cost, value.values()))
    return _VALUE_COST


def _getter(column: Column) -> Callable[[Any], Any]:
    """How to read a column as pyarrow takes it."""
    get = column.get
    convert = _CONVERSIONS.get(column.type)
    if convert is None:
        return get

    def converted(row: Any) -> Any:
        value = get(row)
        return None if value is None else convert(value)

    return converted


def _microseconds(time_ns: int) -> int:
    return time_ns // 1000


def _date(text: str) -> date:
    from datetime import date

    return date.fromisoformat(text)


def _json(value: Any) -> str:
    return json_bytes(value).decode()


_CONVERSIONS: dict[Type, Callable[[Any], Any]] = {TIMESTAMP: _microseconds, DATE: _date, OBJECT: _json}
