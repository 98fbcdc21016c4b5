from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.spark.tables import tables
from tests.row_assertions import by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def test_protocols_as_the_summary_has_them(
    spark: SparkSession, everything: Any, run_job: Callable[..., Any]
) -> None:
    rows = run_job(everything, "connections", by=["protocol"])
    counts = {row["protocol"]: row["connections"] for row in rows}
    assert counts["Kafka"] == everything.summary["capture"]["connections"]["Kafka"]
    assert counts["HTTP"] == everything.summary["capture"]["connections"]["HTTP"]
    assert sum(counts.values()) == sum(everything.summary["capture"]["connections"].values())
    (connections,) = tables(spark, str(everything.directory), ["connections"]).values()
    unopened = connections.where("opening in ('refused', 'unanswered')").count()
    assert sum(row["unopened"] for row in rows) == unopened > 0


def test_each_connection_as_the_summary_has_it(everything: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(everything, "connections", by=["connection"]), "connection")
    others = by_key(everything.summary["connections"], "connection")
    assert {key for key, row in rows.items() if row["exchanges"]} == others.keys()
    for key, other in others.items():
        same(rows[key], other, ["exchanges", "unanswered", "no_answer", "request_bytes", "response_bytes"])


def test_lives_are_of_those_that_were_closed(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(lagging, "connections", by=["client"]), "client")
    quick = rows["quick",]
    assert (quick["connections"], quick["closed"], quick["reset"]) == (3, 3, 1)
    assert 0 < quick["min_ms"] <= quick["p50_ms"] <= quick["max_ms"]


def test_churn(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = run_job(lagging, "connections", by=["broker"], window="1s")
    assert len(rows) > 3
    assert sum(row["connections"] for row in rows) == sum(lagging.summary["capture"]["connections"].values())
