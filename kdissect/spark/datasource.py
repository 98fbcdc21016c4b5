"""``spark.read.format("kdissect")``: captures as tables, in a batch or as a stream. See options.py.

The schema is that of the table, or the columns of it that the user names by ``.schema(...)``: only these are
read. All work is done in workers of Spark, which get ``Part``s; the driver looks for files, and reads the
captures once for names of topics where several tasks share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kdissect.errors import UsageError
from kdissect.sinks import sparkschema
from kdissect.spark.batches import columns_of
from kdissect.spark.options import parse
from kdissect.spark.planning import plan
from kdissect.spark.pushdown import test_of
from kdissect.spark.reading import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader, Filter

    from kdissect.spark.options import Asked


class KdissectSource(DataSource):
    """The data source.

    Raises:
        UsageError: an option does not exist, or its value is none.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._asked = parse(options)

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kdissect"

    def schema(self) -> StructType:
        """All columns of the table."""
        return StructType.fromJson(sparkschema.struct_type(columns_of(self._asked.table)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what is there now."""
        columns = names_in(schema, self._asked.table)
        return PushingReader(self._asked, columns) if self._asked.pushdown else Reader(self._asked, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Read what is there, and what comes."""
        from kdissect.spark.stream import StreamReader

        return StreamReader(self._asked, names_in(schema, self._asked.table))


class Reader(DataSourceReader):
    """Reads captures that are complete."""

    def __init__(self, asked: Asked, columns: Sequence[str]) -> None:
        self._asked = asked
        self._columns = columns
        self._filters: list[Filter] = []

    def partitions(self) -> list[InputPartition]:
        """What each task reads."""
        return [InputPartition(part) for part in plan(self._asked, self._columns)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task."""
        if partition.value is None:  # Spark's own, when there are no parts
            return
        known = {column.name: column for column in columns_of(self._asked.table)}
        tests = [test for each in self._filters if (test := test_of(each, known)) is not None]
        meant = (lambda row: all(test(row) for test in tests)) if tests else None
        yield from read(partition.value, self._asked, self._columns, meant)


class PushingReader(Reader):
    """The same, with filters of Spark. A class of its own: Spark fails every query of a reader that has
    ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is false, as it is by default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Take filters; give back those that Spark has to look after."""
        known = {column.name: column for column in columns_of(self._asked.table)}
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
    own = StructType.fromJson(sparkschema.struct_type(columns))
    for wanted, field in zip(schema.fields, own.fields, strict=True):
        if wanted.dataType.simpleString() != field.dataType.simpleString():
            raise UsageError(
                f"column {field.name} of {table} is {field.dataType.simpleString()}, "
                f"not {wanted.dataType.simpleString()}"
            )
    return tuple(schema.fieldNames())
