"""Exchanges -> how long requests waited before or instead of being served, by what for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys
from kdissect.spark.jobs.latency import WAITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges",)
BY = keys.OF_EXCHANGE
USUAL: tuple[str, ...] = ()

_KINDS = {
    "wait_kind": ("wait_kind is not null and service_us is null", f"if({WAITED}, wait_us, null)"),
    **{f"'{part}'": (f"not {part}_us <=> 0", f"{part}_us") for part in ("queued", "throttled", "network")},
}
"""Kinds of waits, as SQL: the name, which exchanges may have waited, and how long they did; null: unknown."""

_WAITS = ", ".join(
    f"if({condition}, named_struct('wait', {name}, 'us', {us}), null)"
    for name, (condition, us) in _KINDS.items()
)


def waits(exchanges: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None) -> DataFrame:
    """Time that was not service time, by kind; the longest sum first.

    Numbers are those of the table Waits of ``kdissect summary``. An exchange counts for each kind of wait
    that it had, and for each of its topics.

    Args:
        exchanges: the table.
        by: api, client, broker, topic, group, connection, capture, software, principal.
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
    answered = exchanges.where("kind = 'answered'")
    each = answered.withColumn("_wait", F.expr(f"explode(filter(array({_WAITS}), each -> each is not null))"))
    frame, names = keys.keyed(each, by, window, BY)
    rows = (
        frame.withColumns({"wait": F.expr("_wait.wait"), "_us": F.expr("_wait.us")})
        .groupBy(*names, "wait")
        .agg(
            F.count("_us").alias("waits"),
            keys.total("_us").alias("total_us"),
            *keys.quantiles("_us", "us"),
            keys.count_if("_us is null").alias("undetermined"),
        )
    )
    return keys.most_first(rows, names, by, F.col("total_us"), *by, "wait")
