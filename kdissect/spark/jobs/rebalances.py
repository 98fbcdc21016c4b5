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
from kdissect.stats.groups import timeline
from kdissect.tables import duck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from kdissect.stats.rebalances import Rebalance

TABLES = ("groups", "exchanges")
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()

_COLUMNS = (
    "cluster_id string, group string, start timestamp, end timestamp, seconds double, cause string, "
    "causes array<struct<cause:string,time:timestamp,member_id:string,client:string,reason:string>>, "
    "generation_before int, generation_after int, members_before int, members_after int, "
    "joins bigint, protocol string, leader string, exchange string"
)
_KEY = ["cluster", "group_id"]
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
    rows: DataFrame = _rebalances(groups, exchanges)
    return keys.query(_ORDERED if window is None else _counted(window), rebalances=rows)


_EVENTS = f"""select * from (
select *, unix_micros(time) as time_us, unix_micros(completed) as completed_us,
  row_number() over (
    partition by cluster, group_id order by time, connection, number, member_id
  ) as place
from (select *, {keys.cluster("exchanges")} as cluster from groups) as of_clusters
where event <> 'commit' and group_id is not null and time is not null
) as numbered
where place <= {DEFAULT.summary_group_events}
"""
"""The events of each group without commits, as many as the summary keeps."""
_ALIVE = f"""with signs as (
  select {keys.cluster("exchanges")} as cluster, group_id, connection, number, member_id,
    case when event <> 'leave' and error is null then unix_micros(completed) end as alive_us,
    case when event in ('join', 'sync') then member_id end as own
  from groups
  where member_id is not null
  union all
  select {keys.cluster("exchanges")}, group_id, connection, number, null, unix_micros(time) + latency_us, null
  from exchanges
  where api = 'Heartbeat' and kind = 'answered' and size(errors) = 0
)
select cluster, group_id, coalesce(member_id, joined) as member_id, max(alive_us) as alive_us
from (
  select *, last_value(own) ignore nulls over
    (partition by cluster, group_id, connection order by number) as joined
  from signs
) as members
where coalesce(member_id, joined) is not null and alive_us is not null
group by all
"""
"""When the broker last accepted a request of each member."""
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


def _rebalances(groups: Any, exchanges: Any) -> Any:
    """A table of rebalances, in the same engine."""
    events = keys.query(_EVENTS, groups=groups, exchanges=exchanges)
    alive = keys.query(_ALIVE, groups=groups, exchanges=exchanges)
    if isinstance(events, duck.DuckFrame):
        import pyarrow as pa
        from pyarrow import compute

        both = events.to_arrow(), alive.to_arrow()
        results = [_rebalances_of_group(*(each.slice(0, 0) for each in both))]  # the columns, without groups
        for key in both[0].group_by(_KEY).aggregate([]).to_pylist():
            of_group = list(both)
            for name in _KEY:
                of_group = [each.filter(compute.equal(each[name], key[name])) for each in of_group]
            results.append(_rebalances_of_group(*of_group))
        return duck.DuckFrame(events.connection, events.connection.from_arrow(pa.concat_tables(results)))
    both = events.groupBy(*_KEY).cogroup(alive.groupBy(*_KEY))
    return both.applyInArrow(_rebalances_of_group, _COLUMNS)


def _rebalances_of_group(events: Any, alive: Any) -> Any:
    """Arrow tables with the events and the members of one group -> an Arrow table with its rebalances."""
    import pyarrow as pa

    rows = events.to_pylist()
    instances = {each["member_id"]: each["group_instance_id"] for each in rows if each["group_instance_id"]}
    alive_ns = {each["member_id"]: each["alive_us"] * keys.US_NS for each in alive.to_pylist()}
    history = timeline([_event(each, instances) for each in rows], alive_ns)
    text, number, time = pa.string(), pa.int32(), pa.timestamp("us", "UTC")
    cause = {"cause": text, "time": time, "member_id": text, "client": text, "reason": text}
    types = {
        "cluster_id": text,
        "group": text,
        "start": time,
        "end": time,
        "seconds": pa.float64(),
        "cause": text,
        "causes": pa.list_(pa.struct(cause.items())),
        "generation_before": number,
        "generation_after": number,
        "members_before": number,
        "members_after": number,
        "joins": pa.int64(),
        "protocol": text,
        "leader": text,
        "exchange": text,
    }
    output = [
        {"cluster_id": rows[0]["cluster"] or None, "group": rows[0]["group_id"], **_row(each)}
        for each in history
    ]
    return pa.Table.from_pylist(output, pa.schema(types.items()))


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
