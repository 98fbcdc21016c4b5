"""Exchanges -> how long requests waited before or instead of being served, by what for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys
from kdissect.spark.jobs.latency import WAITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY = keys.OF_EXCHANGE
USUAL: tuple[str, ...] = ()

_PARTS = ("queued", "throttled", "network")
_SOURCE = f"""(
select *,
  case part when 'wait' then wait_kind else part end as wait,
  case part when 'wait' then case when {WAITED} then wait_us end
    {" ".join(f"when '{part}' then {part}_us" for part in _PARTS)} end as us
from {{exchanges}} cross join (values ('wait'), {", ".join(f"('{part}')" for part in _PARTS)}) as parts(part)
where case part when 'wait' then wait_kind is not null and service_us is null
  {" ".join(f"when '{part}' then {part}_us is distinct from 0" for part in _PARTS)} end
) as each_wait"""
"""Kinds of waits: the name, which exchanges may have waited, and how long they did; null: unknown."""


def waits(exchanges: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None) -> DataFrame:
    """Time that was not service time, by kind; the longest sum first.

    Numbers are those of the table "Waits and delays" of ``kdissect summary``. An exchange counts for each
    kind of wait that it had, and for each of its topics.

    Args:
        exchanges: the table.
        by: cluster, api, client, broker, topic, group, connection, capture, software, principal.
        window: duration of a time window.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``
        wait string: API whose requests the broker delays until there is something to answer, with the reader
            if that is not a consumer: ``Fetch (replica)``, ``Fetch (KRaft)``; or ``queued``, ``throttled``,
            ``network`` (docs/columns.md)
        waits bigint: how many waited
        total_us bigint: the sum of their waits, in microseconds
        min_us bigint: shortest wait, in microseconds
        mean_us double: mean wait, in microseconds
        p50_us bigint: median, in microseconds
        p95_us bigint: 95th percentile, in microseconds
        p99_us bigint: 99th percentile, in microseconds
        max_us bigint: longest wait, in microseconds
        undetermined bigint: answered exchanges of which it is unknown whether they waited
    """
    source = _SOURCE.format(exchanges=keys.exchanges(by, "kind = 'answered'"))
    values = {
        "wait": "wait",
        "waits": "count(us)",
        "total_us": keys.total("us"),
        **keys.quantiles("us", "us"),
        "undetermined": keys.count_if("us is null"),
    }
    text = keys.aggregate(
        source, by, window, BY, values, keys.most_first(by, window, "total_us", *by, "wait")
    )
    return keys.query(text, exchanges=exchanges)
