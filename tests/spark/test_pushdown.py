from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from kdissect.spark.batches import TableBatches, columns_of
from kdissect.spark.datasource import KdissectSource, mask_of, types_of
from samples.golden import ROOT
from tests.exchange_factory import START_NS, exchange

ROW = exchange("Fetch", 12, {"topics": []}, {"responses": []}, client_id="web-shop")
TIME = datetime.fromtimestamp(START_NS // 1_000_000_000, UTC).replace(
    microsecond=START_NS // 1000 % 1_000_000
)


TYPES = types_of("exchanges")


def path(name: str) -> tuple[str, ...]:
    return (name,)


@pytest.mark.parametrize(
    ("filter_", "answer"),
    [
        (spark.EqualTo(path("api"), "Fetch"), True),
        (spark.EqualTo(path("api"), "Produce"), False),
        (spark.EqualTo(path("api"), None), False),
        (spark.EqualTo(path("group_id"), "x"), False),
        (spark.In(path("api"), ("Produce", "Fetch")), True),
        (spark.In(path("api"), ("Produce", None)), False),
        (spark.In(path("group_id"), (None,)), False),
        (spark.GreaterThan(path("latency_us"), 4999), True),
        (spark.GreaterThan(path("latency_us"), 5000), False),
        (spark.GreaterThanOrEqual(path("latency_us"), 5000), True),
        (spark.LessThan(path("api_version"), 12), False),
        (spark.LessThanOrEqual(path("api_version"), 12), True),
        (spark.EqualTo(path("time"), TIME), True),
        (spark.LessThan(path("time"), TIME), False),
        (spark.GreaterThanOrEqual(path("date"), date(2026, 9, 21)), True),
        (spark.GreaterThan(path("date"), date(2026, 9, 21)), False),
        (spark.EqualTo(path("request"), '{"topics":[]}'), True),
        (spark.IsNull(path("group_id")), True),
        (spark.IsNotNull(path("group_id")), False),
        (spark.StringStartsWith(path("client_id"), "web"), True),
        (spark.StringEndsWith(path("client_id"), "web"), False),
        (spark.StringContains(path("client_id"), "-"), True),
        (spark.StringContains(path("transactional_id"), "-"), False),
    ],
)
def test_filters_that_are_applied(filter_: Any, answer: bool) -> None:
    mask = mask_of(filter_, TYPES)
    assert mask is not None
    batches = TableBatches({"exchanges": columns_of("exchanges")})
    batches.feed(ROW)
    ((_, batch),) = batches.close()
    assert batch.filter(mask(batch)).num_rows == answer


@pytest.mark.parametrize(
    "filter_",
    [
        spark.EqualTo(path("topics"), "x"),
        spark.EqualTo(("anomalies", "kind"), "x"),
        spark.EqualTo(path("nothing"), "x"),
        spark.EqualNullSafe(path("api"), "Fetch"),
        spark.Not(spark.EqualTo(path("api"), "Fetch")),
    ],
)
def test_filters_that_are_left_to_spark(filter_: Any) -> None:
    assert mask_of(filter_, TYPES) is None


def latencies(table: str, *filters: spark.Filter) -> list[int | None]:
    capture = ROOT / "samples" / "mock-librdkafka.pcap"
    options = {"path": str(capture), "table": table, "pushdown": "true"}
    reader = KdissectSource(options).reader(StructType().add("latency_us", "long"))
    assert list(reader.pushFilters(list(filters))) == []
    batches = (batch for partition in reader.partitions() for batch in reader.read(partition))
    return [value for batch in batches for value in batch["latency_us"].to_pylist()]


@pytest.mark.parametrize("table", ["exchanges", "partitions"])
def test_pushed_down_latencies_include_the_boundary(table: str) -> None:
    every = [value for value in latencies(table) if value is not None]
    assert 17 in every
    for min_us in (0, 1, 17, 18, 10**15, 2**63 - 1):
        expected = [value for value in every if value >= min_us]
        assert latencies(table, spark.GreaterThanOrEqual(path("latency_us"), min_us)) == expected
        assert latencies(table, spark.GreaterThan(path("latency_us"), min_us - 1)) == expected
    assert latencies(table, spark.GreaterThan(path("latency_us"), 2**63 - 1)) == []
