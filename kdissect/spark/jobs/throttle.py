"""Exchanges -> which clients are throttled by quotas, and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY = keys.OF_EXCHANGE
USUAL = ("client",)

_MS = "case when throttle_time_ms > 0 then throttle_time_ms end"


def throttle(exchanges: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None) -> DataFrame:
    """Throttle times in responses, of groups that have any; the largest sums first.

    Counts and sums are those of ``kdissect summary``. Since Kafka 2.0, brokers respond first, and then the
    client waits (KIP-219): throttle times are not part of latencies.

    Args:
        exchanges: the table.
        by: cluster, api, client, broker, topic, group, connection, capture, software, principal.
        window: duration of a time window.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        exchanges bigint: exchanges, throttled or not
        throttled bigint: those with a throttle time in the response
        share double: throttled divided by exchanges
        throttle_time_ms bigint: sum of the throttle times, in milliseconds
        min_ms int: shortest throttle time, in milliseconds
        mean_ms double: mean throttle time, in milliseconds
        p50_ms bigint: median, in milliseconds
        p95_ms bigint: 95th percentile, in milliseconds
        p99_ms bigint: 99th percentile, in milliseconds
        max_ms int: longest throttle time, in milliseconds
        first timestamp: time of the first throttled exchange
        last timestamp: time of the last throttled exchange
    """
    values = {
        "exchanges": "count(*)",
        "throttled": f"count({_MS})",
        "share": f"round(count({_MS}) / count(*), 4)",
        "throttle_time_ms": keys.total(_MS),
        **keys.quantiles(_MS, "ms"),
        "first": "min(time) filter (where throttle_time_ms > 0)",
        "last": "max(time) filter (where throttle_time_ms > 0)",
    }
    order = keys.most_first(by, window, "throttle_time_ms")
    text = keys.aggregate(keys.exchanges(by), by, window, BY, values, f"having count({_MS}) > 0\n{order}")
    return keys.query(text, exchanges=exchanges)
