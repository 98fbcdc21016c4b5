"""Sketches of latencies: kdissect and Spark can merge their own and each other's."""

from __future__ import annotations

from base64 import b64decode
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from kdissect import dissect, open_capture
from kdissect.stats.quantiles import RANK_ERROR, Quantiles
from kdissect.stats.summarizer import Summarizer
from kdissect.text.summary_page import SCHEMA, lines
from samples.golden import captures
from tests.row_assertions import by_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

SURE = 3 * RANK_ERROR  # the stated error holds with a probability of 99%
MERGED = """
    with of_both as (
        select key as api, sketch from summary where by = 'api' and quantity = 'service_us' and start is null
        union all select api, sketch from spark where sketch is not null)
    select api, kll_sketch_get_n_double(kll_merge_agg_double(sketch)) as n,
        kll_sketch_get_quantile_double(kll_merge_agg_double(sketch), 0.5D) as p50,
        kll_sketch_get_quantile_double(kll_merge_agg_double(sketch), 0.99D) as p99
    from of_both group by api"""


def test_sketches_merge_both_ways(
    spark: SparkSession, everything: Any, run_job: Callable[..., Any], tmp_path: Path
) -> None:
    kept: dict[str, list[int]] = {}
    summarizer = Summarizer()
    with open_capture(*captures()) as packets:
        for exchange in dissect(packets):
            summarizer.feed(exchange)
    for row in spark.read.json(
        str(everything.directory / "exchanges"), "api string, service_us bigint"
    ).collect():
        if row.service_us is not None and row.api is not None:
            kept.setdefault(row.api, []).append(row.service_us)
    path = tmp_path / "sketches.jsonl"
    path.write_bytes(b"".join(lines(summarizer, None)))
    rows = by_key(run_job(everything, "latency", sketches=True), "api")
    from_spark = {api: b64decode(row["sketch"]) for (api,), row in rows.items() if row["sketch"]}

    spark.read.schema(SCHEMA).json(str(path)).createOrReplaceTempView("summary")
    spark.createDataFrame(list(from_spark.items()), "api string, sketch binary").createOrReplaceTempView(
        "spark"
    )
    by_spark = {row.api: (row.n, {0.5: row.p50, 0.99: row.p99}) for row in spark.sql(MERGED).collect()}

    assert by_spark.keys() >= kept.keys()
    for api, numbers in kept.items():
        ours = summarizer.traffic.tables.apis[api].service_us
        ours.merge(Quantiles.deserialize(from_spark[api], sum(numbers)))
        assert (ours.count, ours.total) == (2 * len(numbers), 2 * sum(numbers))
        count, quantiles = by_spark[api]
        assert count == ours.count
        p50, p99 = ours.at((0.5, 0.99))
        for quantile_values in (quantiles, {0.5: p50, 0.99: p99}):
            assert_ranks(numbers, quantile_values)


def assert_ranks(numbers: list[int], quantile_values: dict[float, Any]) -> None:
    """The quantiles of numbers do not change if each occurs twice."""
    ordered = sorted(numbers)
    for fraction, value in quantile_values.items():
        slack = SURE + 1 / len(ordered)
        assert bisect_left(ordered, value) / len(ordered) - slack <= fraction
        assert fraction <= bisect_right(ordered, value) / len(ordered) + slack
