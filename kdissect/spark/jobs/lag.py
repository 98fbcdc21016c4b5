"""Partitions -> the lag of readers: of clients by what they fetch, of groups by what they commit. Exchanges
-> whether they took their time, or waited.

The workers compute the lag with the functions of ``kdissect summary --lag``, so they need kdissect. SQL makes
what these take: commits, ends of partitions, and positions. An incremental Fetch (KIP-227) contains only
changes: a client's position, and the high watermark that it knows, remain valid on its connection until a
response changes them. A worker holds the samples of one partition, of each time window.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.fetch_sessions import Position
from kdissect.limits import DEFAULT
from kdissect.spark.jobs import keys
from kdissect.spark.jobs.folds import folded
from kdissect.stats.lag import MEMBERS, Lag
from kdissect.tables.columns import FLOAT64, INT32, INT64, STRING, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from kdissect.tables.columns import Type

TABLES = ("partitions", "exchanges")
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()

_TYPES: dict[str, Type] = {
    "start": TIMESTAMP,
    "cluster": STRING,
    "kind": STRING,
    "name": STRING,
    "topic": STRING,
    "partition": INT32,
    "position": INT64,
    "committed_offset": INT64,
    "high_watermark": INT64,
    "last_stable_offset": INT64,
    "log_start_offset": INT64,
    "lag": INT64,
    "lag_first": INT64,
    "lag_worst": INT64,
    "worst": TIMESTAMP,
    "seconds": FLOAT64,
    "seconds_worst": FLOAT64,
    "first": TIMESTAMP,
    "last": TIMESTAMP,
    "count": INT64,
}
_OF_READER = [name for name in _TYPES if name not in ("start", "cluster")]
_ALL_READERS = replace(DEFAULT, summary_rows=sys.maxsize)
_TIME = "timestamp_micros(unix_micros(time) + coalesce(latency_us, 0))"


def lag(partitions: DataFrame, exchanges: DataFrame, *, window: str | None = None) -> DataFrame:
    """The lag of clients and groups; the largest first.

    Numbers are those of ``kdissect summary --lag``, to the microsecond. But the table ``partitions`` does not
    show which partitions of its fetch session a response leaves out: for a client ``last``, ``count`` and
    ``seconds`` cover only responses that contain the partition. In a window in which a group commits nothing,
    but its lag changes, ``count`` is 0, and ``first`` and ``last`` are null.

    Args:
        partitions: the table.
        exchanges: the table; its fetches show how long consumers request nothing.
        window: duration of a time window; windows without any data have no row.

    Returns:
        start timestamp: with a window, where it begins
        cluster_id string: cluster of the partition; null if it is not known
        kind string: ``client`` or ``group``
        name string: client ID, or group ID
        topic string: name or ID of the topic
        partition int: partition of the topic
        position bigint: of a client, the offset after the last record it fetched, or the one it fetches
            from again although records came
        committed_offset bigint: of a group, the last offset committed, or in a response to OffsetFetch
        high_watermark bigint: last known high watermark
        last_stable_offset bigint: last known last stable offset
        log_start_offset bigint: last known log start offset
        lag bigint: records between position or committed offset and the high watermark, at the end
        lag_first bigint: the first lag that is known
        lag_worst bigint: the largest lag
        worst timestamp: time of the largest lag
        seconds double: age of the newest record it fetched, if there were more to read; otherwise 0
        seconds_worst double: the largest such age
        think_us bigint: time between the fetches of the client from any partition, the sum of ``think_us``;
            of a group: of the clients that commit its offsets; null if it is not known
        waited_us bigint: what it waited for those fetches
        first timestamp: time of the first fetch or commit
        last timestamp: time of the last fetch or commit
        count bigint: responses to Fetch with a known lag; of a group, commits and responses to OffsetFetch
    """
    events = keys.query(_EVENTS, partitions=partitions)
    window_us = None if window is None else keys.length_us(window)
    readers = folded(
        events, ["cluster", "topic", "partition"], partial(_readers, window_us=window_us), _TYPES
    )
    start = "cast(null as timestamp)" if window is None else keys.start("time", window)
    polls = keys.query(_POLLS.format(start=start), partitions=partitions, exchanges=exchanges)
    return keys.query(
        _ROWS.format(start="" if window is None else "readers.start, "), readers=readers, polls=polls
    )


_LAST_KNOWN = ",\n    ".join(
    f"last_value({offset}) ignore nulls over so_far as {name}"
    for name, offset in {
        "position": "case when is_repeated then requested else coalesce(last_offset + 1, fetch_offset) end",
        **{
            name: f"case when {name} >= 0 then {name} end"
            for name in ("high_watermark", "last_stable_offset", "log_start_offset")
        },
    }.items()
)
_COMMITS = f"""with answered as (
  select {keys.cluster("partitions")} as cluster,
    connection, number, api, group_id, replica_id, error_code,
    coalesce(latency_us, error_code) is not null as is_answered, {keys.CLIENT} as client,
    {keys.OF_PARTITION["topic"]} as topic, partition, max_timestamp,
    {_TIME} as time,
    fetch_offset, last_offset, high_watermark, last_stable_offset, log_start_offset,
    base_offset, records, requested_timestamp_ms,
    coalesce(committed_offset, partitions.offset) as found_offset
  from partitions
),
commits as (
  select cluster, group_id as name, topic, partition, time, found_offset as committed_offset,
    case when api <> 'OffsetFetch' then client end as client
  from answered
  where api in ('OffsetCommit', 'TxnOffsetCommit', 'OffsetFetch') and coalesce(error_code, 0) = 0
    and group_id is not null and found_offset >= 0
)"""
_EVENTS = f"""{_COMMITS},
requests as ( -- what a request does not name is requested as before
  select *, last_value(fetch_offset) ignore nulls over so_far as requested
  from answered
  where api = 'Fetch'
  window so_far as (partition by connection, topic, partition order by number)
),
repeats as ( -- whether it was requested before, and records came
  select *, coalesce(lag(error_code) over before = 0
    and case when fetch_offset is null then last_offset <= lag(last_offset) over before
      else lag(last_offset) over before >= 0 and fetch_offset = lag(requested) over before
    end, false) as is_repeated
  from requests
  where is_answered
  window before as (partition by connection, topic, partition order by number)
),
fetched as (
  select cluster, time, topic, partition, client, replica_id, error_code, max_timestamp,
    {_LAST_KNOWN}
  from repeats
  window so_far as (partition by connection, topic, partition order by number)
),
events as (
  select cluster, topic, partition, time, case when replica_id is null then client end as client,
    cast(null as string) as name, position, high_watermark, last_stable_offset, log_start_offset,
    unix_micros(max_timestamp) as newest_us
  from fetched
  where error_code = 0 -- null: not in the response
  union all
  select cluster, topic, partition, time, null, null, null, high_watermark, null, null, null from (
    select cluster, time, topic, partition,
      case when api = 'Produce' and base_offset >= 0 then base_offset + records
        when api = 'ListOffsets' and requested_timestamp_ms = -1 and found_offset >= 0 then found_offset
      end as high_watermark
    from answered
    where error_code = 0
  ) as others
  where high_watermark is not null
  union all
  select cluster, topic, partition, time, null, name, committed_offset, null, null, null, null from commits
)
select *, unix_micros(time) as time_us from events
"""
"""Commits have the ``name`` of a group; positions that of a ``client``, if it is not a replica."""
_POLLS = f"""{_COMMITS},
polls as (
  select {{start}} as start, cluster, client, sum(think_us) as think_us,
    sum(coalesce(total_us, latency_us, 0)) as waited_us
  from (
    select {keys.cluster("partitions")} as cluster, {keys.CLIENT} as client,
      {_TIME} as time, think_us, total_us, latency_us
    from exchanges
    where wait_kind = 'Fetch' and think_us is not null
  ) as fetches
  group by all
),
committers as (
  select *, row_number() over (partition by start, cluster, name order by client) as place
  from (select distinct {{start}} as start, cluster, name, client from commits where client is not null)
    as clients
)
select start, cluster, 'client' as kind, client as name, think_us, waited_us from polls
union all
select committers.start, cluster, 'group', name, sum(think_us), sum(waited_us)
from committers join polls using (cluster, client)
where committers.start is not distinct from polls.start and place <= {MEMBERS}
group by all
"""
_ROWS = """select {start}nullif(readers.cluster, '') as cluster_id, readers.kind, readers.name,
  topic, partition, position, committed_offset, high_watermark, last_stable_offset, log_start_offset,
  lag, lag_first, lag_worst, worst, seconds, seconds_worst,
  cast(think_us as bigint) as think_us, cast(waited_us as bigint) as waited_us, first, last, count
from readers left join polls
  on readers.start is not distinct from polls.start and readers.cluster = polls.cluster
  and readers.kind = polls.kind and readers.name = polls.name
order by readers.start, coalesce(lag, 0) desc, coalesce(lag_worst, 0) desc, readers.kind, readers.name, topic,
  partition, cluster_id
"""


def _readers(rows: Iterable[dict[str, Any]], window_us: int | None) -> Iterator[dict[str, Any]]:
    """The events of one partition -> its readers, in each time window."""
    windows: dict[int | None, Lag] = {}
    cluster = None
    for row in rows:
        cluster, time_us = row["cluster"], row["time_us"]
        start_us = None if window_us is None else time_us - time_us % window_us
        if (lag := windows.get(start_us)) is None:
            lag = windows[start_us] = Lag(_ALL_READERS)
        time_ns, partition = time_us * keys.US_NS, (row["topic"], row["partition"])
        if row["name"] is not None:
            lag.commits[row["name"], *partition].add(time_ns, row["position"])
        else:
            lag.add_position(time_ns, _position(row), row["client"])
    earlier = None
    for start_us in sorted(windows, key=lambda start_us: start_us or 0):
        lag = windows[start_us]
        if earlier is not None:
            lag.follow(earlier)
        for each in lag.rows():
            reader = {name: getattr(each, name) for name in _OF_READER}
            if not each.count:
                reader |= {"first": None, "last": None}
            yield {"start": start_us, "cluster": cluster, **reader}
        earlier = lag


def _position(row: dict[str, Any]) -> Position:
    return Position(
        row["topic"],
        row["partition"],
        fetch_offset=None,
        next_offset=row["position"],
        newest_ms=None if row["newest_us"] is None else row["newest_us"] // 1000,
        high_watermark=row["high_watermark"],
        last_stable_offset=row["last_stable_offset"],
        log_start_offset=row["log_start_offset"],
        error=0,
    )
