"""Connections -> who opens how many, for how long, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("connections",)
BY = {**keys.OF_CONNECTION, "protocol": "coalesce(protocol, 'not recognized')", "address": "client_ip"}
USUAL = ("protocol", "client")

_LASTED_MS = "if(close_reason in ('fin', 'reset', 'reused'), {}, null)".format(
    "(unix_micros(last_time) - unix_micros(time)) div 1000"
)


def connections(connections: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None) -> DataFrame:
    """Connections, Kafka's or not, by when they began; the most first.

    Args:
        connections: the table.
        by: protocol, client, broker, address, connection, capture, software, principal.
        window: a row for each piece of time: churn.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        connections bigint: how many began
        from_start bigint: of those, whose opening was captured
        closed bigint: of those, that an end closed: fin, reset, reused
        reset bigint: of those closed, by a reset
        unused bigint: without any exchange
        min_ms bigint: shortest life of those that were closed, in milliseconds
        mean_ms double: its arithmetic mean, in milliseconds
        p50_ms bigint: its median, in milliseconds
        p95_ms bigint: 19 of 20 are no longer, in milliseconds
        p99_ms bigint: 99 of 100 are no longer, in milliseconds
        max_ms bigint: the longest, in milliseconds
        exchanges bigint: over all of them
        unanswered bigint: of those, without response
        request_bytes bigint: frames of requests, in bytes
        response_bytes bigint: frames of responses, in bytes
        gaps bigint: places where bytes are missing
        lost_bytes bigint: bytes that are not in the capture, snaplen's included
    """
    frame, names = keys.keyed(connections, by, window, BY)
    rows = frame.groupBy(*names).agg(
        F.count("*").alias("connections"),
        keys.count_if("from_start").alias("from_start"),
        keys.count_if("close_reason in ('fin', 'reset', 'reused')").alias("closed"),
        keys.count_if("close_reason = 'reset'").alias("reset"),
        keys.count_if("coalesce(exchanges, 0) = 0").alias("unused"),
        *keys.quantiles(_LASTED_MS, "ms"),
        *(
            keys.total(name).alias(name)
            for name in ("exchanges", "unanswered", "request_bytes", "response_bytes", "gaps")
        ),
        keys.total("coalesce(lost_bytes, 0) + coalesce(cut_bytes, 0)").alias("lost_bytes"),
    )
    return keys.most_first(rows, names, by, F.col("connections"))
