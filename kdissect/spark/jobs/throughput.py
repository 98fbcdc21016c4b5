"""Partitions -> records and bytes produced and fetched, by topic, partition, client, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

TABLES = ("partitions", "exchanges")
BY = keys.OF_PARTITION
USUAL = ("topic",)

_WRITES = "(api = 'Produce' and bytes is not null)"
_PRODUCED = f"({_WRITES} and coalesce(error_code, 0) = 0)"
_READS = "(api <> 'Produce' and bytes is not null and replica_id is null)"
_REPLICATED = "(api <> 'Produce' and replica_id is not null)"


def throughput(
    partitions: DataFrame, exchanges: DataFrame, *, by: Sequence[str] = USUAL, window: str | None = None
) -> DataFrame:
    """Records and bytes produced and fetched; the groups with most bytes first.

    Numbers are those of ``kdissect summary``. A record that two consumers fetch counts twice; rejected
    records do not count.

    Args:
        partitions: the table.
        exchanges: the table; its first and last time give the rates without a window.
        by: topic, partition, api, client, group, connection.
        window: duration of a time window.

    Returns:
        start timestamp: with a window, where it begins
        ... string: the columns of ``by``; partition is an int
        partitions bigint: number of partitions
        producers bigint: number of clients that produced
        consumers bigint: number of clients that fetched
        produced_records bigint: accepted records; null if compressed message sets hide the number
        produced_bytes bigint: their batches on the wire, in bytes
        produced_batches bigint: record batches, or messages of magic 0 and 1
        produced_records_per_second double: per window, otherwise from the first exchange to the last
        produced_bytes_per_second double: likewise
        fetched_records bigint: records sent to consumers; null as for produced_records
        fetched_bytes bigint: their batches on the wire, in bytes
        fetched_batches bigint: record batches, or messages of magic 0 and 1
        fetched_records_per_second double: as for produced_records_per_second
        fetched_bytes_per_second double: likewise
        replicated_bytes bigint: batches sent to other brokers, in bytes
        errors bigint: errors of partitions in responses that are not expected
    """
    with_records = partitions.where("bytes is not null or coalesce(error_code, 0) <> 0")
    frame, names = keys.keyed(with_records, by, window, BY)
    rows = frame.groupBy(*names).agg(
        F.expr(f"count(distinct {keys.OF_PARTITION['topic']}, partition)").alias("partitions"),
        F.expr(f"count(distinct if({_WRITES}, {keys.CLIENT}, null))").alias("producers"),
        F.expr(f"count(distinct if({_READS}, {keys.CLIENT}, null))").alias("consumers"),
        *_volume("produced", _PRODUCED),
        *_volume("fetched", f"({_READS} and bytes > 0)"),
        keys.total(f"if({_REPLICATED}, bytes, 0)").alias("replicated_bytes"),
        keys.count_if("not error_expected").alias("errors"),
    )
    length = keys.seconds(window)
    if length is None:
        span = exchanges.selectExpr("(max(time_ns) - min(time_ns)) / 1e9 as seconds")
        rows = rows.crossJoin(F.broadcast(span))
    else:
        rows = rows.withColumn("seconds", length)
    rows = rows.select(
        *(*names, "partitions", "producers", "consumers"),
        *_rates("produced"),
        *_rates("fetched"),
        *("replicated_bytes", "errors"),
    )
    return keys.most_first(rows, names, by, F.expr("produced_bytes + fetched_bytes + replicated_bytes"))


def _volume(name: str, condition: str) -> list[Column]:
    hidden = f"count_if({condition} and records is null) > 0"
    return [
        F.expr(f"if({hidden}, null, coalesce(sum(if({condition}, records, 0)), 0))").alias(f"{name}_records"),
        keys.total(f"if({condition}, bytes, 0)").alias(f"{name}_bytes"),
        keys.total(f"if({condition}, batches, 0)").alias(f"{name}_batches"),
    ]


def _rates(name: str) -> list[Column]:
    counts = [F.col(f"{name}_{what}") for what in ("records", "bytes", "batches")]
    rates = [
        F.expr(f"if(seconds > 0, round({name}_{what} / seconds, 3), null)").alias(f"{name}_{what}_per_second")
        for what in ("records", "bytes")
    ]
    return [*counts, *rates]
