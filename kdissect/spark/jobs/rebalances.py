"""Events of groups -> their rebalances: how long each took, and what started it.

The workers compute the rebalances of each group with the functions of ``kdissect summary --groups``, so they
need kdissect. A worker holds the events of one group, as many as the summary (limits.py,
``summary_group_events``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.exchanges.group_events import GroupEvent
from kdissect.limits import DEFAULT
from kdissect.spark.jobs import keys
from kdissect.spark.jobs.folds import folded
from kdissect.stats.groups import timeline
from kdissect.tables.columns import FLOAT64, INT32, INT64, STRING, TIMESTAMP, Array, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from kdissect.stats.rebalances import Rebalance
    from kdissect.tables.columns import Type

TABLES = ("groups", "exchanges")
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()

_CAUSE: tuple[tuple[str, Type], ...] = (
    ("cause", STRING),
    ("time", TIMESTAMP),
    ("member_id", STRING),
    ("client", STRING),
    ("reason", STRING),
)
_TYPES: dict[str, Type] = {
    "cluster_id": STRING,
    "group": STRING,
    "start": TIMESTAMP,
    "end": TIMESTAMP,
    "seconds": FLOAT64,
    "cause": STRING,
    "causes": Array(Struct(_CAUSE)),
    "generation_before": INT32,
    "generation_after": INT32,
    "members_before": INT32,
    "members_after": INT32,
    "joins": INT64,
    "protocol": STRING,
    "leader": STRING,
    "exchange": STRING,
}
_SAME_NAMES = (
    *("generation_before", "generation_after", "members_before", "members_after", "joins"),
    *("protocol", "leader", "exchange"),
)


def rebalances(groups: DataFrame, exchanges: DataFrame, *, window: str | None = None) -> DataFrame:
    """Rebalances in order of time; with a window, their number by group.

    They are those of ``kdissect summary --groups``, to the microsecond. The member of a heartbeat is the last
    one that joined on the same connection.

    Args:
        groups: the table.
        exchanges: the table; its heartbeats show how long members were alive.
        window: duration of a time window.

    Returns:
        cluster_id string: cluster of the group; null if it is not known
        group string: the group ID
        start timestamp: time of its first exchange; with a window, the start of the window
        end timestamp: when the last member got its assignment; null if no assignment was captured
        seconds double: how long that took
        cause string: what started it: first, join, return, leave, timeout, subscription, revocation,
            protocol, metadata, rejoin, unknown
        causes array<struct<cause:string,time:timestamp,member_id:string,client:string,reason:string>>: that,
            and what happened meanwhile
        generation_before int: generation before it; null if it was not captured
        generation_after int: generation after it
        members_before int: members before it; null if that was not captured
        members_after int: members in the leader's response; if that was not captured, members seen
        joins bigint: number of JoinGroup requests
        protocol string: the assignor that was chosen
        leader string: member ID of the leader
        exchange string: its first exchange, for ``read --exchange``

        With a window, instead of the columns of a single rebalance:
        rebalances bigint: with a window, how many started
        max_seconds double: with a window, the longest of them
        by_cause map<string,bigint>: with a window, what started them, and how often
    """
    events = keys.query(_EVENTS, groups=groups, exchanges=exchanges)
    rows = folded(events, ["cluster", "group_id"], _rebalances_of_group, _TYPES)
    return keys.query(_ORDERED if window is None else _counted(window), rebalances=rows)


_EVENTS = f"""with signs as (
  select {keys.cluster("exchanges")} as cluster, group_id, connection, number, member_id,
    case when event <> 'leave' and error is null then unix_micros(completed) end as alive_us,
    case when event in ('join', 'sync') then member_id end as own
  from groups
  where member_id is not null
  union all
  select {keys.cluster("exchanges")}, group_id, connection, number, null, unix_micros(time) + latency_us, null
  from exchanges
  where api = 'Heartbeat' and kind = 'answered' and size(errors) = 0
),
accepted as (
  select cluster, group_id, coalesce(member_id, joined) as member_id, max(alive_us) as alive_us
  from (
    select *, last_value(own) ignore nulls over
      (partition by cluster, group_id, connection order by number) as joined
    from signs
  ) as members
  where coalesce(member_id, joined) is not null and alive_us is not null
  group by all
),
alive as (
  select cluster, group_id, 1 as place, map_from_entries(collect_list((member_id, alive_us))) as alive_us
  from accepted
  group by all
),
numbered as (
  select *, unix_micros(time) as time_us, unix_micros(completed) as completed_us,
    row_number() over (
      partition by cluster, group_id order by time, connection, number, member_id
    ) as place
  from (select *, {keys.cluster("exchanges")} as cluster from groups) as of_clusters
  where event <> 'commit' and group_id is not null and time is not null
)
select * from numbered left join alive using (cluster, group_id, place)
where place <= {DEFAULT.summary_group_events}
"""
"""The events of each group without commits, as many as the summary keeps; the first one says when the broker
last accepted a request of each member.
"""
_ORDERED = "select * from rebalances order by 2, 1, start, generation_after"


def _counted(window: str) -> str:
    return f"""with counts as (
  select cluster_id, rebalances.group, {keys.start("rebalances.start", window)} as start, cause,
    count(*) as number, sum(joins) as joins, max(seconds) as seconds
  from rebalances
  group by all
)
select cluster_id, counts.group, start, cast(sum(joins) as bigint) as joins,
  cast(sum(number) as bigint) as rebalances, max(seconds) as max_seconds,
  map_from_entries(sort_array(collect_list((cause, number)))) as by_cause
from counts
group by all
order by start, 2, 1
"""


def _rebalances_of_group(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events of one group -> its rebalances."""
    events = list(rows)
    instances = {each["member_id"]: each["group_instance_id"] for each in events if each["group_instance_id"]}
    alive = next((each["alive_us"] for each in events if each["alive_us"]), ())
    alive_ns = {member: alive_us * keys.US_NS for member, alive_us in alive}
    for each in timeline([_event(event, instances) for event in events], alive_ns):
        first = events[0]
        yield {"cluster_id": first["cluster"] or None, "group": first["group_id"], **_row(each)}


def _event(row: dict[str, Any], instances: Mapping[str, str]) -> GroupEvent:
    """A row of ``groups`` as the ``GroupEvent`` from which it was made."""
    values: dict[str, Any] = {name: value for name, value in row.items() if name in GroupEvent._fields}
    assignment, members = row["assignment"], row["members"]
    for name in ("subscribed", "members"):
        values[name] = None if row[name] is None else tuple(row[name])
    values["assignment"] = (
        None
        if assignment is None
        else tuple((each["topic"], tuple(each["partitions"])) for each in assignment)
    )
    values["instances"] = None if members is None else tuple(instances.get(each) for each in members)
    completed_us = row["completed_us"]
    return GroupEvent(
        time_ns=row["time_us"] * keys.US_NS,
        completed_ns=None if completed_us is None else completed_us * keys.US_NS,
        **values,
    )


def _row(each: Rebalance) -> dict[str, Any]:
    start_us, end_us = _us(each.start_ns), _us(each.end_ns)
    causes = [
        {
            "cause": cause.cause,
            "time": _us(cause.time_ns),
            "member_id": cause.member_id,
            "client": cause.client_id,
            "reason": cause.reason,
        }
        for cause in each.causes
    ]
    return {
        "start": start_us,
        "end": end_us,
        "seconds": None if start_us is None or end_us is None else (end_us - start_us) / 1e6,
        "cause": causes[0]["cause"] if causes else None,
        "causes": causes,
        **{name: getattr(each, name) for name in _SAME_NAMES},
    }


def _us(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // keys.US_NS
