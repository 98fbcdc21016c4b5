"""``spark.read.format("kdissect")``: captures -> tables, in a batch or as a stream. Options: options.py.

The schema is that of the table, or the columns that the user selects with ``.schema(...)``; only these are
computed. Spark's Python workers do the work, one ``Part`` per task. The driver lists the files.
"""

from __future__ import annotations

import operator
import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kdissect.errors import CaptureError, UnexpectedError, UsageError
from kdissect.spark.batches import columns_of
from kdissect.spark.options import parse
from kdissect.spark.planning import find, plan
from kdissect.spark.reading import read
from kdissect.tables import spark_schema
from kdissect.tables.columns import BINARY, OBJECT, TIMESTAMP, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader, Filter

    from kdissect.spark.options import SourceOptions
    from kdissect.spark.planning import Part
    from kdissect.tables.columns import Column


class KdissectSource(DataSource):
    """The data source.

    Raises:
        UsageError: unknown option or invalid value.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        with _errors_in_one_line():
            self._options = parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kdissect"

    def schema(self) -> StructType:
        """All columns of the table."""
        columns = StructType.fromJson(spark_schema.struct_type(columns_of(self._options.table)))
        corrupt = self._options.corrupt_column
        return columns if corrupt is None else columns.add(corrupt, "string", metadata={"comment": _CORRUPT})

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the captures that exist now."""
        reader = PushingReader if self._options.pushdown else Reader
        with _errors_in_one_line():
            return reader(self._options.for_batch, names_in(schema, self._options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """A reader of captures as they are written."""
        from kdissect.spark.stream import StreamReader

        with _errors_in_one_line():
            if self._options.corrupt_column is not None:
                raise UsageError("option columnNameOfCorruptRecord is not for streams")
            return StreamReader(self._options.for_stream, names_in(schema, self._options))


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Have a worker report an error of the user without its traceback, in the first line; it ends then."""
    try:
        yield
    except (UsageError, CaptureError) as error:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if not isinstance(error, UnexpectedError) and main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


class Reader(DataSourceReader):
    """Reads captures that are complete."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        if options.corrupt_column in {column.name for column in columns_of(options.table)}:
            raise UsageError(f"{options.table} has a column {options.corrupt_column}")
        joins_batches = options.table == "records" and not {"e2e_latency_us", "also_in"}.isdisjoint(columns)
        self._options = replace(options, end_to_end=joins_batches)
        self._captures = find(options)  # here, because Spark sends the reader only once
        self._columns = columns
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """A partition per task, with the ``Part`` that it reads."""
        with _errors_in_one_line():
            return [InputPartition(part) for part in plan(self._options, self._captures)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task."""
        if partition.value is None:  # Spark passes None if there are no partitions
            return
        files, part = self._captures.files, cast("Part", partition.value)
        paths = tuple(path for path in part.paths or files if files[path].begins_as_capture(path))
        if not paths and part.paths:
            return
        part = replace(part, paths=paths, key_log=self._captures.key_log)
        known = {column.name: column for column in columns_of(self._options.table)}
        tests = [test for each in self._filters if (test := test_of(each, known)) is not None]
        row_filter = (lambda row: all(test(row) for test in tests)) if tests else None
        with _errors_in_one_line():
            yield from read(part, self._options, self._columns, row_filter)


class PushingReader(Reader):
    """A reader that applies Spark's filters. Not part of ``Reader``: Spark fails every query of a reader that
    has ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is true, and it is false by
    default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep the filters that this reader can apply; yield the others, for Spark to apply."""
        known = {column.name: column for column in columns_of(self._options.table)}
        for each in filters:
            if test_of(each, known) is None:
                yield each
            else:
                self._filters.append(each)


def names_in(schema: StructType, options: SourceOptions) -> tuple[str, ...]:
    """The column names of the user's schema.

    Raises:
        UsageError: the table has no such column, or the column has another type.
    """
    table = options.table
    columns = columns_of(table, [name for name in schema.fieldNames() if name != options.corrupt_column])
    known = StructType.fromJson(spark_schema.struct_type(columns))
    if options.corrupt_column in schema.fieldNames():
        known.add(options.corrupt_column, "string")
    for requested in schema.fields:
        field = known[requested.name]
        if requested.dataType.simpleString() != field.dataType.simpleString():
            raise UsageError(
                f"column {field.name} of {table} is {field.dataType.simpleString()}, "
                f"not {requested.dataType.simpleString()}"
            )
    return tuple(schema.fieldNames())


# ------------------------------------------------------------------------------------------------------------
# Filters that Spark pushes down -> tests of rows, applied before any column of a row is computed.
#
# Supported are comparisons of a column with constants, with the semantics of SQL: a comparison with null is
# never true. Filters on bodies and structs are left to Spark.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Test = Callable[[Any], bool]

_CORRUPT = "What is wrong with a damaged capture; null in all other rows."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.StringStartsWith: str.startswith,
    spark.StringEndsWith: str.endswith,
    spark.StringContains: operator.contains,
}


def test_of(filter_: spark.Filter, columns: Mapping[str, Column]) -> Test | None:
    """The test of a row for a filter; None if Spark has to apply the filter."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    column = columns.get(path[0]) if len(path) == 1 else None
    if column is None or not isinstance(column.type, Scalar) or column.type in (OBJECT, BINARY):
        return None
    get = _value_of(column)
    if isinstance(filter_, spark.IsNull):
        return lambda row: get(row) is None
    if isinstance(filter_, spark.IsNotNull):
        return lambda row: get(row) is not None
    if isinstance(filter_, spark.In):
        values = frozenset(_comparable(value) for value in filter_.value if value is not None)
        return lambda row: get(row) in values
    compare = _COMPARISONS.get(type(filter_))
    if compare is None:
        return None
    operand = _comparable(filter_.value)  # type: ignore[attr-defined]  # all of these have one
    if operand is None:
        return lambda _: False
    return lambda row: (value := get(row)) is not None and compare(value, operand)


def _value_of(column: Column) -> Callable[[Any], Any]:
    """A function that gets the value to compare; times are in microseconds, Spark's unit."""
    get = column.get
    if column.type != TIMESTAMP:
        return get
    return lambda row: None if (time_ns := get(row)) is None else time_ns // 1000


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    return value.isoformat() if isinstance(value, date) else value
