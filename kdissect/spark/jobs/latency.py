"""Exchanges -> how fast they are answered, and what became of them: by api, client, broker, topic, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY = keys.OF_EXCHANGE
USUAL = ("api",)

_US = "case when coalesce(long_poll, false) then null when latency_us < 0 then 0 else latency_us end"


def latency(
    exchanges: DataFrame,
    *,
    by: Sequence[str] = USUAL,
    window: str | None = None,
    sketches: bool = False,
) -> DataFrame:
    """How fast exchanges are answered; the busiest rows first.

    Counts are those of ``kdissect summary``. Long polls, Fetches that found nothing to read for as long as
    they might wait, are counted, and no part of the latency. An exchange counts for each of its topics.

    Args:
        exchanges: the table.
        by: api, client, broker, topic, group, connection, capture, software, principal.
        window: a row for each piece of time.
        sketches: the column ``sketch`` too, to merge with those of other captures and of ``kdissect summary
            --sketches``: ``kll_merge_agg_double``, ``kll_sketch_get_quantile_double``.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        exchanges bigint: how many
        answered bigint: of those, with request and response
        unanswered bigint: whose response never came, or was not captured
        unacknowledged bigint: that wanted no response: acks=0
        orphans bigint: responses whose request was not captured
        request_bytes bigint: frames of requests, in bytes
        response_bytes bigint: frames of responses, in bytes
        min_us bigint: least latency, in microseconds
        mean_us double: its arithmetic mean, in microseconds
        p50_us bigint: its median, in microseconds
        p95_us bigint: 19 of 20 are no larger, in microseconds
        p99_us bigint: 99 of 100 are no larger, in microseconds
        max_us bigint: the largest, in microseconds
        long_polls bigint: exchanges that are long polls
        errors bigint: exchanges with an error code in the response
        first timestamp: time of the first
        last timestamp: time of the last
        sketch binary: if asked for, a KLL sketch of the latencies in microseconds; null where there are none
    """
    frame, names = keys.keyed(exchanges, by, window, BY)
    rows = frame.groupBy(*names).agg(
        F.count("*").alias("exchanges"),
        *(keys.count_if(f"kind = '{kind}'").alias(kind) for kind in ("answered", "unanswered")),
        keys.count_if("kind = 'unacknowledged'").alias("unacknowledged"),
        keys.count_if("kind = 'orphan'").alias("orphans"),
        keys.total("request_bytes").alias("request_bytes"),
        keys.total("response_bytes").alias("response_bytes"),
        *keys.quantiles(_US, "us"),
        keys.count_if("long_poll").alias("long_polls"),
        keys.count_if("size(errors) > 0").alias("errors"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        *([keys.sketch(_US).alias("sketch")] if sketches else []),
    )
    return keys.most_first(rows, names, by, F.col("exchanges"))
