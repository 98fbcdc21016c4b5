from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.names import kept
from kdissect.spark.jobs.latency import latency
from kdissect.spark.tables import tables
from tests.row_assertions import as_json, by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

COUNTS = (
    *(
        "exchanges",
        "answered",
        "unanswered",
        "no_answer",
        "abandoned",
        "unacknowledged",
        "orphans",
        "request_bytes",
        "response_bytes",
    ),
    *("undetermined", "errors", "first", "last"),
)
TABLES = {
    "api": "apis",
    "client": "clients",
    "broker": "brokers",
    "group": "groups",
    "connection": "connections",
}


def same_row(row: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    same(row, other, COUNTS)
    spread = other["service_us"]
    assert (row["measured"], row["min_us"], row["max_us"]) == (spread["count"], spread["min"], spread["max"])
    total_us = [row[f"total_{name}_us"] for name in ("p50", "p99", "max")]
    assert total_us == [other["total_us"][name] for name in ("p50", "p99", "max")]
    assert total_us.count(None) in (0, 3)
    assert row["waits"] == other["wait_us"]["count"]
    if spread["mean"] is not None:
        assert row["mean_us"] == pytest.approx(spread["mean"], abs=0.11)


def same_quantiles(row: Mapping[str, Any], spread: Mapping[str, Any]) -> None:
    assert [row[f"{name}_us"] for name in ("p50", "p95", "p99")] == [
        spread[name] for name in ("p50", "p95", "p99")
    ]


@pytest.mark.parametrize("by", TABLES)
def test_everything_as_the_summary_has_it(everything: Any, run_job: Callable[..., Any], by: str) -> None:
    rows = {kept(key): row for key, row in by_key(run_job(everything, "latency", by=[by]), by).items()}
    others = by_key(everything.summary[TABLES[by]], by)
    assert rows.keys() - {(None,)} == others.keys()
    for key, other in others.items():
        same_row(rows[key], other)
        same_quantiles(rows[key], other["service_us"])
    assert by != "api" or sum(other["service_us"]["count"] > 256 for other in others.values()) > 2


def test_a_time_series_as_the_summary_has_it(spark: SparkSession, lagging: Any) -> None:
    (exchanges,) = tables(spark, str(lagging.directory), ["exchanges"]).values()
    rows = as_json(latency(exchanges, by=(), window="10s"))
    others = [row for row in lagging.summary["intervals"] if row["key"] is None]
    assert len(rows) == len(others) > 1
    for row, other in zip(rows, others, strict=True):
        same(row, other, ["start"])
        same_row(row, other)
        same_quantiles(row, other["service_us"])


def test_exchanges_by_client_and_api(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(lagging, "latency", by=["client", "api"]), "client", "api")
    counts = {
        (row["client"], api): count
        for row in lagging.summary["clients"]
        for api, count in row["apis"].items()
    }
    assert {key: row["exchanges"] for key, row in rows.items()} == counts


def test_an_exchange_counts_for_each_of_its_topics(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(lagging, "latency", by=["topic"]), "topic")
    assert rows["orders",]["exchanges"] > 0
    assert sum(row["exchanges"] for row in rows.values()) >= lagging.summary["capture"]["exchanges"]
