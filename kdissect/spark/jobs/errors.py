"""Exchanges and partitions -> errors, by client and topic: how often, and in what share of exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges", "partitions")
BY = {"error": "error", **keys.OF_EXCHANGE, "topic": "about"}
USUAL = ("error", "api", "topic", "client")

_EXCHANGE = ["connection", "number"]
_SERIOUS = "count(distinct connection, number) filter (where not array_contains(expected_errors, error))"


def errors(
    exchanges: DataFrame, partitions: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None
) -> DataFrame:
    """Error codes in responses; the most frequent first.

    Counts are those of ``kdissect summary``: one for each exchange and topic with the error.

    Args:
        exchanges: the table.
        partitions: the table; it has the topics of errors.
        by: error, api, topic, client, broker, group, connection, capture, software, principal.
        window: duration of a time window.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``; topic is null if the response names none
        count bigint: number of errors
        expected bigint: how many of them are normal steps of the protocol
        exchanges bigint: exchanges with the error, or with any error if not grouped by error
        of_exchanges bigint: exchanges with and without errors that have the same api, client, broker ...
        share double: exchanges with an error that is not expected, divided by of_exchanges
        first timestamp: time of the first
        last timestamp: time of the last
        example string: CONNECTION/NUMBER of the first, for ``read --exchange``
    """
    partition_errors = partitions.where("error is not null").selectExpr(
        *_EXCHANGE, "error", f"{keys.OF_PARTITION['topic']} as about"
    )
    errors_by_exchange = exchanges.withColumn("error", F.explode("errors"))
    with_topic = errors_by_exchange.join(partition_errors.distinct(), [*_EXCHANGE, "error"], "left")
    frame, names = keys.keyed(with_topic, by, window, BY)
    counts = frame.groupBy(*names).agg(
        F.count("*").alias("count"),
        keys.count_if("array_contains(expected_errors, error)").alias("expected"),
        F.count_distinct(*_EXCHANGE).alias("exchanges"),
        F.expr(_SERIOUS).alias("serious"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.expr(f"min(struct(time_ns, connection, number, {keys.EXAMPLE} as example)).example").alias(
            "example"
        ),
    )
    shared = [name for name in by if name not in ("error", "topic")]
    all_exchanges, common = keys.keyed(exchanges, shared, window, BY)
    totals = all_exchanges.groupBy(*common).agg(F.count("*").alias("of_exchanges"))
    same = [counts[name].eqNullSafe(totals[name]) for name in common] or [F.expr("true")]
    joined = counts.join(totals, same).select(
        *(counts[name] for name in (*names, "count", "expected", "exchanges")),
        totals["of_exchanges"],
        F.expr("round(serious / of_exchanges, 4)").alias("share"),
        *(counts[name] for name in ("first", "last", "example")),
    )
    return keys.most_first(joined, names, by, F.col("count"), "first", "example")
