"""``spark.read.format("kdissect")``: captures -> tables, in a batch or as a stream. Options: options.py.

The schema is that of the table, or the columns that the user selects with ``.schema(...)``; only these are
computed. Spark's Python workers do the work, one ``Part`` per task. The driver lists the files.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kdissect.errors import CaptureError, UnexpectedError, UsageError
from kdissect.kafka.apis import all_apis
from kdissect.spark.batches import columns_of
from kdissect.spark.options import parse
from kdissect.spark.planning import find, plan
from kdissect.spark.reading import read
from kdissect.tables import arrow, spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader, Filter

    from kdissect.spark.options import SourceOptions
    from kdissect.spark.planning import Part


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
        types = types_of(self._options.table)
        masks = [mask for each in self._filters if (mask := mask_of(each, types)) is not None]
        with _errors_in_one_line():
            yield from read(part, narrowed(self._options, self._filters), self._columns, masks)


class PushingReader(Reader):
    """A reader that applies Spark's filters. Not part of ``Reader``: Spark fails every query of a reader that
    has ``pushFilters`` unless ``spark.sql.python.filterPushdown.enabled`` is true, and it is false by
    default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keep the filters that this reader can apply; yield the others, for Spark to apply."""
        types = types_of(self._options.table)
        for each in filters:
            if mask_of(each, types) is None:
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
# Filters that Spark pushes down -> criteria of exchanges, decided before bodies are decoded, and masks of
# record batches, which are exact.
#
# Supported are comparisons of a column with constants, with the semantics of SQL: a comparison with null is
# never true. Filters on arrays, structs and their fields are left to Spark.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Mask = Callable[[pa.RecordBatch], pa.Array]

_CORRUPT = "What is wrong with a damaged capture; null in all other rows."
_COMPARISONS: dict[type, Callable[..., Any]] = {
    spark.EqualTo: pc.equal,
    spark.GreaterThan: pc.greater,
    spark.GreaterThanOrEqual: pc.greater_equal,
    spark.LessThan: pc.less,
    spark.LessThanOrEqual: pc.less_equal,
}
_OF_STRINGS: dict[type, Callable[..., Any]] = {
    spark.StringStartsWith: pc.starts_with,
    spark.StringEndsWith: pc.ends_with,
    spark.StringContains: pc.match_substring,
}
_MAX_PUSHED_US = 10**15  # more digits are no duration
_OF_EXCHANGES = frozenset({"exchanges", "partitions"})
"""Tables in which these columns are those of the exchange, and rows depend on no other exchange."""


def types_of(table: str) -> dict[str, pa.DataType]:
    """The Arrow types of a table's columns."""
    return {field.name: field.type for field in arrow.schema(columns_of(table))}


def mask_of(filter_: spark.Filter, types: Mapping[str, pa.DataType]) -> Mask | None:
    """Which rows of a batch a filter includes; None if Spark has to apply the filter."""
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    name = path[0] if len(path) == 1 else ""
    if name not in types or pa.types.is_nested(types[name]):
        return None
    kind, value = types[name], getattr(filter_, "value", None)
    if isinstance(filter_, spark.IsNull):
        return lambda batch: batch[name].is_null()
    if isinstance(filter_, spark.IsNotNull):
        return lambda batch: batch[name].is_valid()
    if isinstance(filter_, spark.In):
        values = pa.array([each for each in filter_.value if each is not None], kind)
        return lambda batch: pc.is_in(batch[name], values)
    if (of_strings := _OF_STRINGS.get(type(filter_))) is not None:
        return lambda batch: of_strings(batch[name], value)
    if (compare := _COMPARISONS.get(type(filter_))) is None:
        return None
    constant = pa.scalar(value, kind)
    return lambda batch: compare(batch[name], constant)


def narrowed(options: SourceOptions, filters: Iterable[spark.Filter]) -> SourceOptions:
    """Options that select fewer exchanges, among them all whose rows the filters include."""
    if options.table not in _OF_EXCHANGES:
        return options
    criteria = dict(options.criteria)
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        value: Any = getattr(each, "value", None)
        if path == ("api",) and isinstance(each, spark.EqualTo | spark.In):
            names = value if isinstance(each, spark.In) else (value,)
            if names and _APIS.issuperset(names):
                criteria.setdefault("api", tuple(names))
        if path == ("latency_us",) and isinstance(each, spark.GreaterThan | spark.GreaterThanOrEqual):
            min_us = -1 if value is None else value + isinstance(each, spark.GreaterThan)
            if 0 < min_us <= _MAX_PUSHED_US:
                criteria.setdefault("slower_than", (f"{1000 * min_us - 1}ns",))
    return replace(options, criteria=criteria)


_APIS = frozenset(api.name for api in all_apis())
