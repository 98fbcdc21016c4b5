"""Exchanges -> whom quotas slow down, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY = keys.OF_EXCHANGE
USUAL = ("client",)

_MS = "if(throttle_time_ms > 0, throttle_time_ms, null)"


def throttle(exchanges: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None) -> DataFrame:
    """Throttle times that brokers tell, where there are any; those that wait longest first.

    Counts and sums are those of ``kdissect summary``. From 2.0 on brokers answer first, and the client waits
    then (KIP-219): the times are no part of the latency.

    Args:
        exchanges: the table.
        by: api, client, broker, topic, group, connection, capture, software, principal.
        window: a row for each piece of time.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        exchanges bigint: how many, throttled or not
        throttled bigint: of those, whose response tells a throttle time
        share double: throttled by exchanges
        throttle_time_ms bigint: the sum of the times, in milliseconds
        min_ms int: the shortest, in milliseconds
        mean_ms double: the arithmetic mean, in milliseconds
        p50_ms int: the median, in milliseconds
        p95_ms int: 19 of 20 are no longer, in milliseconds
        p99_ms int: 99 of 100 are no longer, in milliseconds
        max_ms int: the longest, in milliseconds
        first timestamp: time of the first exchange that is throttled
        last timestamp: time of the last
    """
    frame, names = keys.keyed(exchanges, by, window, BY)
    rows = frame.groupBy(*names).agg(
        F.count("*").alias("exchanges"),
        F.expr(f"count({_MS})").alias("throttled"),
        F.expr(f"round(count({_MS}) / count(*), 4)").alias("share"),
        keys.total(_MS).alias("throttle_time_ms"),
        *keys.quantiles(_MS, "ms"),
        F.expr("min(time) filter (where throttle_time_ms > 0)").alias("first"),
        F.expr("max(time) filter (where throttle_time_ms > 0)").alias("last"),
    )
    throttled = rows.where("throttled > 0")
    return keys.most_first(throttled, names, by, F.col("throttle_time_ms"))
