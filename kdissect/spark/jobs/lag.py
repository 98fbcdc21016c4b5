"""Partitions -> the lag of readers: of clients by what they fetch, of groups by what they commit. Exchanges
-> whether they took their time, or waited.

The high watermark of a partition comes from responses to Fetch, ListOffsets (latest) and accepted Produce
requests. An incremental Fetch (KIP-227) contains only changes: a client's position, and the high watermark
that it knows, remain valid on its connection until a response changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.spark.jobs import keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

TABLES = ("partitions", "exchanges")
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()

_ENDS = ("high_watermark", "last_stable_offset", "log_start_offset")
_ANSWERED = "timestamp_micros(unix_micros(time) + coalesce(latency_us, 0))"
_SAMPLES = "1s"
"""Of so much time, lags of groups are computed for the largest and the last high watermark: all of them, for
each of the hundreds of groups that may read a busy partition, would be too many rows.
"""


def lag(partitions: DataFrame, exchanges: DataFrame, *, window: str | None = None) -> DataFrame:
    """The lag of clients and groups; the largest first.

    Lags and offsets are those of ``kdissect summary --lag``, to the microsecond, with two differences. For a
    group, ``lag_first``, ``lag_worst`` and ``worst`` come from samples: the summary has at most 64 of its
    commits and of the high watermark; this has all of its commits, and of high watermarks the last one
    before each commit, and the largest and the last one of each second. And for a client
    it also counts responses that leave a partition of the fetch session out: here ``last``, ``count`` and
    ``seconds`` cover only responses that contain the partition.

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
    start = "cast(null as timestamp)" if window is None else keys.start("time", window)
    last_known = ",\n    ".join(
        f"last_value({text}) ignore nulls over so_far as {name}"
        for name, text in {
            "position": "case when is_repeated then requested "
            "else coalesce(last_offset + 1, fetch_offset) end",
            **{name: f"case when {name} >= 0 then {name} end" for name in _ENDS},
        }.items()
    )
    ends = ", ".join(_ENDS)
    text = f"""with answered as (
  select {keys.cluster("partitions")} as cluster,
    connection, number, api, group_id, replica_id, error_code,
    coalesce(latency_us, error_code) is not null as is_answered, {keys.CLIENT} as client,
    {keys.OF_PARTITION["topic"]} as topic, partition, max_timestamp,
    {_ANSWERED} as time,
    fetch_offset, last_offset, {ends},
    base_offset, records, requested_timestamp_ms,
    coalesce(committed_offset, partitions.offset) as found_offset
  from partitions
),
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
    {last_known}
  from repeats
  window so_far as (partition by connection, topic, partition order by number)
),
positions as (select * from fetched where error_code = 0), -- null: not in the response
ends as (
  select cluster, time, topic, partition, {ends} from positions
  union all
  select cluster, time, topic, partition, high_watermark, null, null from (
    select cluster, time, topic, partition,
      case when api = 'Produce' and base_offset >= 0 then base_offset + records
        when api = 'ListOffsets' and requested_timestamp_ms = -1 and found_offset >= 0 then found_offset
      end as high_watermark
    from answered
    where error_code = 0
  ) as others
  where high_watermark is not null
),
clients as (
  select cluster, 'client' as kind, client as name, topic, partition, time, position,
    cast(null as bigint) as committed_offset, behind as lag,
    case when behind = 0 then 0e0 when max_timestamp is not null
      then round(greatest(unix_micros(time) - unix_micros(max_timestamp), 0) / 1e6, 3) end as seconds,
    1 as counts
  from (
    select *, greatest(high_watermark - position, 0) as behind
    from positions
    where replica_id is null and high_watermark is not null and position is not null
  ) as consumers
),
commits as (
  select cluster, group_id as name, topic, partition, time, found_offset as committed_offset,
    case when api <> 'OffsetFetch' then client end as client
  from answered
  where api in ('OffsetCommit', 'TxnOffsetCommit', 'OffsetFetch') and coalesce(error_code, 0) = 0
    and group_id is not null and found_offset >= 0
),
samples as (
  select cluster, topic, partition,
    max(high_watermark) as largest, min_by(time, (-high_watermark, time)) as largest_time,
    max(time) as last_time, max_by(high_watermark, (time, high_watermark)) as last
  from ends
  where high_watermark is not null
  group by cluster, topic, partition, {keys.start("time", _SAMPLES)}, {start}
),
known as ( -- with the last high watermark before each commit
  select *,
    last_value(high_watermark) ignore nulls over so_far as last_watermark,
    last_value(case when high_watermark is not null then time end) ignore nulls over so_far as last_time
  from (
    select cluster, name, topic, partition, time, committed_offset, cast(null as bigint) as high_watermark
    from commits
    union all
    select cluster, null, topic, partition, time, null, high_watermark
    from ends where high_watermark is not null
  ) as all_events
  window so_far as (partition by cluster, topic, partition order by time)
),
events as (
  select cluster, name, topic, partition, time, max(committed_offset) as committed_offset,
    max(high_watermark) as high_watermark, sum(counts) as counts
  from (
    select cluster, name, topic, partition, time, committed_offset, high_watermark, 1 as counts
    from known where name is not null
    union all
    select cluster, name, topic, partition, last_time, null, last_watermark, 0
    from known where name is not null
    union all
    select cluster, name, topic, partition, time, null, high_watermark, 0
    from (
      select cluster, topic, partition, largest_time as time, largest as high_watermark from samples
      union all
      select cluster, topic, partition, last_time, last from samples
    ) as moves join (select distinct cluster, name, topic, partition from commits) as groups
      using (cluster, topic, partition)
  ) as sampled
  where time is not null
  group by cluster, name, topic, partition, time
),
offsets as (
  select cluster, name, topic, partition, time, counts,
    last_value(committed_offset) ignore nulls over so_far as committed_offset,
    last_value(high_watermark) ignore nulls over so_far as high_watermark
  from events
  window so_far as (partition by cluster, name, topic, partition order by time)
),
series as (
  select * from clients
  union all
  select cluster, 'group', name, topic, partition, time, null, committed_offset,
    case when high_watermark is not null then greatest(high_watermark - committed_offset, 0) end, null, counts
  from offsets
  where committed_offset is not null
),
readers as (
  select {start} as start, cluster, kind, name, topic, partition,
    {_latest("position")}, {_latest("committed_offset")}, {_latest("lag")},
    {_latest("lag", "lag_first", "min_by")},
    max(lag) as lag_worst, min_by(time, (-lag, time)) filter (where lag is not null) as worst,
    {_latest("seconds")}, max(seconds) as seconds_worst,
    min(time) filter (where counts > 0) as first, max(time) filter (where counts > 0) as last,
    cast(sum(counts) as bigint) as count
  from series
  group by all
),
polls as (
  select {start} as start, cluster, client, sum(think_us) as think_us,
    sum(coalesce(total_us, latency_us, 0)) as waited_us
  from (
    select {keys.cluster("partitions")} as cluster, {keys.CLIENT} as client, {_ANSWERED} as time,
      think_us, total_us, latency_us
    from exchanges
    where wait_kind = 'Fetch' and think_us is not null
  ) as fetches
  group by all
),
polling as (
  select start, cluster, 'client' as kind, client as name, think_us, waited_us from polls
  union all
  select committers.start, cluster, 'group', name, sum(think_us), sum(waited_us)
  from (select distinct {start} as start, cluster, name, client from commits) as committers
    join polls using (cluster, client)
  where committers.start is not distinct from polls.start
  group by all
),
last_ends as (
  select {start} as start, cluster, topic, partition,
    {", ".join(map(_latest, _ENDS))}
  from ends
  group by all
)
select {"" if window is None else "readers.start, "}nullif(readers.cluster, '') as cluster_id,
  readers.kind, readers.name, readers.topic, readers.partition, position,
  committed_offset, {ends}, lag, lag_first, lag_worst, worst, seconds, seconds_worst,
  cast(think_us as bigint) as think_us, cast(waited_us as bigint) as waited_us,
  readers.first, readers.last, readers.count
from readers left join last_ends
  on readers.start is not distinct from last_ends.start
  and readers.cluster = last_ends.cluster
  and readers.topic is not distinct from last_ends.topic
  and readers.partition is not distinct from last_ends.partition
left join polling
  on readers.start is not distinct from polling.start
  and readers.cluster = polling.cluster and readers.kind = polling.kind and readers.name = polling.name
order by readers.start, coalesce(lag, 0) desc, coalesce(lag_worst, 0) desc, readers.kind, readers.name,
  readers.topic, readers.partition,
  cluster_id
"""
    return keys.query(text, partitions=partitions, exchanges=exchanges)


def _latest(name: str, alias: str | None = None, which: str = "max_by") -> str:
    """The last known value; of several at one time the largest. With ``min_by`` the first, the smallest."""
    return f"{which}({name}, (time, {name})) filter (where {name} is not null) as {alias or name}"
