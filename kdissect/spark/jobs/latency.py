"""Exchanges -> their service times, what clients waited, and their number by kind: by api, topic, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY = keys.OF_EXCHANGE
USUAL = ("api",)

WAITED = (
    "service_us is null and queued_us is not null and throttled_us is not null "
    "and network_us is not null and wait_us is not null"
)


def latency(
    exchanges: DataFrame,
    *,
    by: Sequence[str] = USUAL,
    window: str | None = None,
    sketches: bool = False,
) -> DataFrame:
    """Service times and number of exchanges; the largest groups first.

    Numbers are those of ``kdissect summary``. Exchanges that waited, and those whose service time cannot be
    known (docs/columns.md), are counted, but excluded from service times. An exchange counts for each of its
    topics.

    Args:
        exchanges: the table.
        by: cluster, api, client, broker, topic, group, connection, capture, software, principal.
        window: duration of a time window.
        sketches: whether to add the column ``buckets``, which add up with those of other captures and of
            ``kdissect summary --sketches``: ``percentile(middle, 0.99D, count)``.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        exchanges bigint: number of exchanges
        answered bigint: those with request and response
        unanswered bigint: those without a response, or whose response was not captured
        no_answer bigint: those that the broker did not answer: their ``outcome`` is unanswered
        abandoned bigint: those to which no response was due: their ``outcome`` is abandoned
        incomplete bigint: those with a message that began but did not end
        unacknowledged bigint: those that expect no response: acks=0
        orphans bigint: responses without a request
        request_bytes bigint: frames of requests, in bytes
        response_bytes bigint: frames of responses, in bytes
        measured bigint: exchanges with a known service time
        min_us bigint: minimum service time, in microseconds
        mean_us double: mean service time, in microseconds
        p50_us bigint: median, in microseconds
        p95_us bigint: 95th percentile, in microseconds
        p99_us bigint: 99th percentile, in microseconds
        max_us bigint: maximum service time, in microseconds
        total_p50_us bigint: median of what clients waited at least, waits included, in microseconds: both
            transfers and the latency; null if it is not known of any exchange, as the next ones
        total_p99_us bigint: its 99th percentile
        total_max_us bigint: its maximum
        latency_p50_us bigint: median latency, from the last byte of the request to the first byte of the
            response, waits included, in microseconds
        latency_p99_us bigint: its 99th percentile
        latency_max_us bigint: its maximum
        waits bigint: exchanges that the broker delayed on purpose
        long_polls bigint: those of them that are fetches
        undetermined bigint: the other answered exchanges
        errors bigint: exchanges with an error in the response that is not expected
        first timestamp: time of the first
        last timestamp: time of the last
        buckets array<struct<middle:bigint,count:bigint>>: with ``sketches``, the buckets of the service
        times, in microseconds, that are not empty (stats/quantiles.py); null if all are
    """
    values = {
        "exchanges": "count(*)",
        "answered": keys.count_if("kind = 'answered'"),
        "unanswered": keys.count_if("kind = 'unanswered'"),
        "no_answer": keys.count_if("outcome = 'unanswered'"),
        "abandoned": keys.count_if("outcome = 'abandoned'"),
        "incomplete": keys.count_if("outcome like 'incomplete%'"),
        "unacknowledged": keys.count_if("kind = 'unacknowledged'"),
        "orphans": keys.count_if("kind = 'orphan'"),
        "request_bytes": keys.total("request_bytes"),
        "response_bytes": keys.total("response_bytes"),
        "measured": "count(service_us)",
        **keys.quantiles("service_us", "us"),
        **_seen_by_clients("total"),
        **_seen_by_clients("latency"),
        "waits": keys.count_if(WAITED),
        "long_polls": keys.count_if("long_poll"),
        "undetermined": keys.count_if(f"kind = 'answered' and service_us is null and not ({WAITED})"),
        "errors": keys.count_if("size(array_except(errors, expected_errors)) > 0"),
        "first": "min(time)",
        "last": "max(time)",
    }
    source, order = keys.exchanges(by), keys.most_first(by, window, "exchanges")
    text = keys.aggregate(source, by, window, BY, values)
    if sketches:
        text = keys.with_buckets(text, "service_us", source, by, window, BY)
    return keys.query(f"{text}{order}", exchanges=exchanges)


def _seen_by_clients(name: str) -> dict[str, str]:
    """Two percentiles and the maximum of a duration."""
    values = keys.quantiles(f"{name}_us", "us")
    return {f"{name}_{each}": values[each] for each in ("p50_us", "p99_us", "max_us")}
