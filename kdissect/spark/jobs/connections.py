"""Connections -> by client: their number, how long they last, and how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("connections",)
BY = {**keys.OF_CONNECTION, "protocol": "coalesce(protocol, 'not recognized')", "address": "client_ip"}
USUAL = ("protocol", "client")

_UNOPENED = "coalesce(opening in ('refused', 'unanswered', 'one_way'), false)"
_CLOSED = f"not {_UNOPENED} and close_reason in ('fin', 'reset', 'reused')"
_LASTED_MS = (
    f"case when {_CLOSED} then cast(floor((unix_micros(last_time) - unix_micros(time)) / 1000) as bigint) end"
)


def connections(connections: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None) -> DataFrame:
    """Connections, Kafka or not, by the time of their start; the largest groups first.

    Args:
        connections: the table.
        by: cluster, protocol, client, broker, address, connection, capture, software, principal.
        window: duration of a time window, to see churn.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        connections bigint: connections that started, without those that did not open
        unopened bigint: connections to Kafka listeners that did not open
        from_start bigint: those whose TCP handshake was captured
        closed bigint: those that were closed: fin, reset, reused
        reset bigint: those that were closed by RST
        unused bigint: those without any exchange
        min_ms bigint: shortest duration of the closed ones, in milliseconds
        mean_ms double: mean duration, in milliseconds
        p50_ms bigint: median duration, in milliseconds
        p95_ms bigint: 95th percentile, in milliseconds
        p99_ms bigint: 99th percentile, in milliseconds
        max_ms bigint: longest duration, in milliseconds
        exchanges bigint: exchanges on all of them
        unanswered bigint: exchanges without response
        no_answer bigint: those that the broker did not answer
        incomplete bigint: exchanges with a message that did not end
        request_bytes bigint: frames of requests, in bytes
        response_bytes bigint: frames of responses, in bytes
        gaps bigint: number of gaps
        lost_bytes bigint: bytes that are not in the capture, including those truncated by the snaplen
    """
    sums = ("exchanges", "unanswered", "no_answer", "incomplete", "request_bytes", "response_bytes", "gaps")
    values = {
        "connections": keys.count_if(f"not {_UNOPENED}"),
        "unopened": keys.count_if(_UNOPENED),
        "from_start": keys.count_if(f"not {_UNOPENED} and from_start"),
        "closed": keys.count_if(_CLOSED),
        "reset": keys.count_if(f"not {_UNOPENED} and close_reason = 'reset'"),
        "unused": keys.count_if(f"not {_UNOPENED} and coalesce(exchanges, 0) = 0"),
        **keys.quantiles(_LASTED_MS, "ms"),
        **{name: keys.total(name) for name in sums},
        "lost_bytes": keys.total("coalesce(lost_bytes, 0) + coalesce(cut_bytes, 0)"),
    }
    text = keys.aggregate("connections", by, window, BY, values, keys.most_first(by, window, "connections"))
    return keys.query(text, connections=connections)
