"""Buckets of latencies: those of kdissect and of Spark are the same, and add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect import dissect, open_capture
from kdissect.spark.report import report
from kdissect.stats.summarizer import Summarizer
from kdissect.text.summary_page import SCHEMA, lines
from tests.row_assertions import as_json, by_key
from tests.spark.jobs.conftest import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

OF_BOTH = """
    select api, count(*) as rows, sum(count) as count, percentile(middle, 1.0D, count) as largest from (
        select key as api, inline(buckets) from summary
        where by = 'api' and quantity = 'service_us' and start is null
        union all select api, inline(buckets) from rollups)
    group by api"""


def test_buckets_add_up(
    spark: SparkSession,
    everything: Any,
    frame_of: Callable[..., Any],
    run_job: Callable[..., Any],
    tmp_path: Path,
) -> None:
    summarizer = Summarizer()
    with open_capture(*SAMPLES.values()) as packets:
        for exchange in dissect(packets):
            summarizer.feed(exchange)
    path = tmp_path / "sketches.jsonl"
    path.write_bytes(b"".join(lines(summarizer, None)))
    summary = spark.read.schema(SCHEMA).json(str(path))
    summary.createOrReplaceTempView("summary")
    ours = by_key(as_json(summary.where("by = 'api' and quantity = 'service_us' and start is null")), "key")
    rows = by_key(run_job(everything, "latency", sketches=True), "api")
    frame_of(everything, "latency", sketches=True).createOrReplaceTempView("rollups")
    both = {row.api: row for row in spark.sql(OF_BOTH).collect()}

    assert len(ours) > 20
    assert {key for key, row in rows.items() if row["buckets"]} == ours.keys() == {(api,) for api in both}
    for (api,), row in ours.items():
        row_of_spark = rows[api,]
        assert row["buckets"] == row_of_spark["buckets"]
        assert (row["count"], row["min"], row["max"]) == tuple(
            row_of_spark[name] for name in ("measured", "min_us", "max_us")
        )
        assert both[api].rows == 2 * len(row["buckets"])
        assert both[api]["count"] == 2 * row["count"]
        assert both[api].largest == row["buckets"][-1]["middle"]


def test_buckets_are_those_of_their_rows(everything: Any, run_job: Callable[..., Any], database: Any) -> None:
    options = {"sketches": True, "window": "10s", "by": ["client", "topic"]}
    rows = run_job(everything, "latency", **options)
    for row in rows:
        assert sum(bucket["count"] for bucket in row["buckets"] or ()) == row["measured"]
    ((_, frame),) = report(database, str(everything.directory), ["latency"], **options)
    assert as_json(frame) == rows
