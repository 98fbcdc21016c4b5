"""Exchanges and partitions -> errors, by client and topic: how often, and in what share of exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("exchanges", "partitions")
BY = {"error": "error", **keys.OF_EXCHANGE, "topic": "about"}
USUAL = ("error", "api", "topic", "client")


def errors(
    exchanges: DataFrame, partitions: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None
) -> DataFrame:
    """Error codes in responses; the most frequent first.

    Counts are those of ``kdissect summary``: one for each exchange and topic with the error.

    Args:
        exchanges: the table.
        partitions: the table; it has the topics of errors.
        by: cluster, error, api, topic, client, broker, group, connection, capture, software, principal.
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
    shared = [name for name in by if name not in ("error", "topic")]
    serious = "where not array_contains(expected_errors, error)"
    values = {
        "count": "count(*)",
        "expected": keys.count_if("array_contains(expected_errors, error)"),
        "exchanges": "count(distinct (connection, number))",
        "serious": f"count(distinct (connection, number)) filter ({serious})",
        "first": "min(time)",
        "last": "max(time)",
        "example": keys.EXAMPLE,
    }
    counts = keys.aggregate(
        "failed left join about using (connection, number, error)", by, window, BY, values
    )
    totals = keys.aggregate("exchanges", shared, window, BY, {"of_exchanges": "count(*)"})
    common = [*(["start"] if window else []), *shared]
    same = " and ".join(f"counts.{name} is not distinct from totals.{name}" for name in common)
    names = ", ".join(f"counts.{name}" for name in [*(["start"] if window else []), *by])
    text = f"""with failed as (select *, explode(errors) as error from exchanges),
about as (
select distinct connection, number, error, {keys.OF_PARTITION["topic"]} as about
from partitions
where error is not null
),
counts as (
{counts}),
totals as (
{totals})
select
  {names}, counts.count, expected, exchanges, of_exchanges,
  round(serious / of_exchanges, 4) as share, counts.first, counts.last, example
from counts join totals on {same or "true"}
{keys.most_first(by, window, "count", "first", "example", *by)}"""
    return keys.query(text, exchanges=exchanges, partitions=partitions)
