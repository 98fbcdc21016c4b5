"""Filters that Spark hands down -> a test of rows, made before anything else of a row is. Holds the filters.

Taken are comparisons of a column with values, as SQL means them: a null is never equal, nor less. Bodies and
structs are left to Spark.
"""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as spark

from kdissect.sinks.types import BINARY, OBJECT, TIMESTAMP, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kdissect.sinks.columns import Column

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
    wanted = _comparable(filter_.value)  # type: ignore[attr-defined]  # all of these have one
    if wanted is None:
        return lambda _: False
    return lambda row: (value := get(row)) is not None and compare(value, wanted)


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
