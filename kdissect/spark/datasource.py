"""``spark.read.format("kdissect")``: captures as tables, in a batch or as a stream. See options.py.

The schema is that of the table, or the columns of it that the user names by ``.schema(...)``: only these are
read. All work is done in workers of Spark, which get ``Part``s; the driver looks for files, and reads the
captures once for names of topics where several tasks share them.
"""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kdissect.errors import UsageError
from kdissect.spark.batches import columns_of
from kdissect.spark.options import parse
from kdissect.spark.planning import plan
from kdissect.spark.reading import read
from kdissect.tables import spark_schema
from kdissect.tables.columns import BINARY, OBJECT, TIMESTAMP, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader, Filter

    from kdissect.spark.options import SourceOptions
    from kdissect.tables.columns import Column


class KdissectSource(DataSource):
    """The data source.

    Raises:
        UsageError: an option does not exist, or its value is none.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = parse(options)

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kdissect"

    def schema(self) -> StructType:
        """All columns of the table."""
        return StructType.fromJson(spark_schema.struct_type(columns_of(self._options.table)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what is there now."""
        columns = names_in(schema, self._options.table)
        return (
            PushingReader(self._options, columns)
            if self._options.pushdown
            else Reader(self._options, columns)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Read what is there, and what comes."""
        from kdissect.spark.stream import StreamReader

        return StreamReader(self._options, names_in(schema, self._options.table))


class Reader(DataSourceReader):
    """Reads captures that are complete."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """What each task reads."""
        return [InputPartition(part) for part in plan(self._options, self._columns)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task."""
        if partition.value is None:  # Spark's own, when there are no parts
            return
        known = {column.name: column for column in columns_of(self._options.table)}
        tests = [test for each in self._filters if (test := test_of(each, known)) is not None]
        row_filter = (lambda row: all(test(row) for test in tests)) if tests else None
        yield from read(partition.value, self._options, self._columns, row_filter)


class PushingReader(Reader):
    """The same, with filters of Spark. A class of its own: Spark fails every query of a reader that has
    ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is false, as it is by default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Take filters; give back those that Spark has to look after."""
        known = {column.name: column for column in columns_of(self._options.table)}
        for each in filters:
            if test_of(each, known) is None:
                yield each
            else:
                self._filters.append(each)


def names_in(schema: StructType, table: str) -> tuple[str, ...]:
    """The columns that the user's schema names.

    Raises:
        UsageError: the table has no such column, or it is of another type.
    """
    columns = columns_of(table, schema.fieldNames())
    known = StructType.fromJson(spark_schema.struct_type(columns))
    for requested, field in zip(schema.fields, known.fields, strict=True):
        if requested.dataType.simpleString() != field.dataType.simpleString():
            raise UsageError(
                f"column {field.name} of {table} is {field.dataType.simpleString()}, "
                f"not {requested.dataType.simpleString()}"
            )
    return tuple(schema.fieldNames())


# ------------------------------------------------------------------------------------------------------------
# Filters that Spark hands down -> a test of rows, made before anything else of a row is. Holds the filters.
#
# Taken are comparisons of a column with values, as SQL means them: a null is never equal, nor less. Bodies
# and structs are left to Spark.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Test = Callable[[Any], bool]

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
    """What a filter asks of a row; None where Spark has to ask it itself."""
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
    """How to read what the filters compare with: of times microseconds, as Spark has them."""
    get = column.get
    if column.type != TIMESTAMP:
        return get
    return lambda row: None if (time_ns := get(row)) is None else time_ns // 1000


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    return value.isoformat() if isinstance(value, date) else value
