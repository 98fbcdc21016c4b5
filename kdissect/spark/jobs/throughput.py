"""Partitions -> records and bytes produced and fetched, by topic, partition, client, ..."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

TABLES = ("partitions", "exchanges")
BY = keys.OF_PARTITION
USUAL = ("cluster", "topic")

_WRITES = "(api = 'Produce' and bytes is not null)"
_PRODUCED = f"({_WRITES} and (error_code = 0 or kind = 'unacknowledged'))"  # not those that nothing confirms
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
        by: cluster, topic, partition, api, client, group, connection.
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
    values = {
        "partitions": f"count(distinct cluster || '/' || {keys.OF_PARTITION['topic']} || '/' || partition)",
        "producers": f"count(distinct case when {_WRITES} then {keys.CLIENT} end)",
        "consumers": f"count(distinct case when {_READS} then {keys.CLIENT} end)",
        **_volume("produced", _PRODUCED),
        **_volume("fetched", f"{_READS} and bytes > 0"),
        "replicated_bytes": keys.total(f"case when {_REPLICATED} then bytes end"),
        "errors": keys.count_if("not error_expected"),
    }
    source = (
        f"(select *, {keys.cluster('partitions')} as cluster from partitions "
        "where bytes is not null or coalesce(error_code, 0) <> 0) as with_records"
    )
    volumes = keys.aggregate(source, by, window, BY, values)
    names = ", ".join([*(["start"] if window else []), *by, "partitions", "producers", "consumers"])
    seconds = (
        f"{keys.length_us(window)} / 1e6 as seconds"
        if window
        else "(max(time_ns) - min(time_ns)) / 1e9 as seconds from exchanges"
    )
    text = f"""with volumes as (
{volumes})
select
  {names},
  {_rates("produced")},
  {_rates("fetched")},
  replicated_bytes, errors
from volumes cross join (select {seconds}) as span
{keys.most_first(by, window, "produced_bytes + fetched_bytes + replicated_bytes")}"""
    return keys.query(text, partitions=partitions, exchanges=exchanges)


def _volume(name: str, condition: str) -> dict[str, str]:
    written = {"records": "records - markers", "bytes": "bytes", "batches": "batches - control_batches"}
    sums = {name: keys.total(f"case when {condition} then {what} end") for name, what in written.items()}
    hidden = f"{keys.count_if(f'{condition} and records is null')} > 0"
    sums["records"] = f"case when {hidden} then null else {sums['records']} end"
    return {f"{name}_{what}": text for what, text in sums.items()}


def _rates(name: str) -> str:
    rates = [
        f"case when seconds > 0 then round({name}_{what} / seconds, 3) end as {name}_{what}_per_second"
        for what in ("records", "bytes")
    ]
    return ",\n  ".join([f"{name}_records, {name}_bytes, {name}_batches", *rates])
