from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.tables import is_number, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = """
select timestamp '2026-11-21 09:05:00.123456+01:00' time, date '2026-11-21' day, binary('abc') bytes,
       null nothing, array(1, null) numbers, named_struct('a', 1, 'b', 'x') struct, map('k', 2) map,
       9223372036854775807 large, 0.5D half, true yes, 1 yes, double('NaN') nan
"""


def test_values(spark: SparkSession) -> None:
    assert list(rows(spark.sql(VALUES))) == [
        [
            *("2026-11-21T08:05:00.123456Z", "2026-11-21", "YWJj", None, [1, None], {"a": 1, "b": "x"}),
            *({"k": 2}, 9223372036854775807, 0.5, True, 1, "NaN"),
        ]
    ]


def test_order_and_number_of_rows(spark: SparkSession) -> None:
    frame = spark.range(0, 10, 1, 3).selectExpr("id").orderBy("id", ascending=False)
    assert [row[0] for row in rows(frame)] == [*range(9, -1, -1)]
    assert list(rows(frame, 2)) == [[9], [8]]
    assert list(rows(spark.sql("create or replace temporary view v as select 1"))) == []


def test_which_columns_are_numbers(spark: SparkSession) -> None:
    frame = spark.sql("select 1 a, 1L b, 1.5 c, 1D d, 'x' e, array(1) f, true g")
    assert [is_number(frame, place) for place in range(7)] == [True] * 4 + [False] * 3
