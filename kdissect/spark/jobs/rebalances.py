"""Events of groups -> their rebalances: how long each took, and what started it.

The workers compute the rebalances of each group with the functions of ``kdissect summary --groups``, so they
need kdissect. A worker holds the events of one group, as many as the summary (limits.py,
``summary_group_events``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from kdissect.exchanges.group_events import GroupEvent
from kdissect.limits import DEFAULT
from kdissect.spark.jobs import keys
from kdissect.stats.groups import timeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from kdissect.stats.rebalances import Rebalance

TABLES = ("groups", "exchanges")
BY: Mapping[str, str] = {}
USUAL: Sequence[str] = ()

_COLUMNS = (
    "group string, start_us bigint, end_us bigint, generation_before int, generation_after int, "
    "members_before int, members_after int, joins bigint, protocol string, leader string, exchange string, "
    "causes array<struct<cause:string,time_us:bigint,member_id:string,client:string,reason:string>>"
)
_SAME_NAMES = (
    *("generation_before", "generation_after", "members_before", "members_after", "joins"),
    *("protocol", "leader", "exchange"),
)
_COMPLETED_US = "unix_micros(time) + latency_us"


def rebalances(groups: DataFrame, exchanges: DataFrame, *, window: str | None = None) -> DataFrame:
    """Rebalances in order of time; with a window, their number by group.

    They are those of ``kdissect summary --groups``, to the microsecond. The member of a heartbeat is the last
    one that joined on the same connection.

    Args:
        groups: the table.
        exchanges: the table; its heartbeats show how long members were alive.
        window: duration of a time window.

    Returns:
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
    rows = (
        _events(groups)
        .groupBy("group_id")
        .cogroup(_alive(groups, exchanges).groupBy("group_id"))
        .applyInArrow(_rebalances_of_group, _COLUMNS)
        .withColumns(
            {
                "start": F.expr("timestamp_micros(start_us)"),
                "end": F.expr("timestamp_micros(end_us)"),
                "seconds": F.expr("(end_us - start_us) / 1e6"),
                "cause": F.expr("causes[0].cause"),
            }
        )
    )
    if window is not None:
        return _counted(rows.withColumn("start", keys.start("start", window)))
    causes = (
        "transform(causes, c -> named_struct('cause', c.cause, 'time', timestamp_micros(c.time_us), "
        "'member_id', c.member_id, 'client', c.client, 'reason', c.reason))"
    )
    return rows.select(
        *("group", "start", "end", "seconds", "cause"),
        F.expr(causes).alias("causes"),
        *_SAME_NAMES,
    ).orderBy("group", "start", "generation_after")


def _counted(rows: DataFrame) -> DataFrame:
    return (
        rows.groupBy("group", "start", "cause")
        .agg(F.count("*").alias("count"), F.sum("joins").alias("joins"), F.max("seconds").alias("seconds"))
        .groupBy("group", "start")
        .agg(
            F.sum("joins").alias("joins"),
            F.sum("count").alias("rebalances"),
            F.max("seconds").alias("max_seconds"),
            F.expr("map_from_entries(sort_array(collect_list(struct(cause, count))))").alias("by_cause"),
        )
        .orderBy("start", "group")
    )


def _events(groups: DataFrame) -> DataFrame:
    """The events of each group without commits, as many as the summary keeps."""
    place = Window.partitionBy("group_id").orderBy("time", "connection", "number", "member_id")
    return (
        groups.where("event <> 'commit' and group_id is not null and time is not null")
        .withColumn("place", F.row_number().over(place))
        .where(F.col("place") <= DEFAULT.summary_group_events)
        .withColumns({"time_us": F.unix_micros("time"), "completed_us": F.unix_micros("completed")})
        .drop("date", "time", "completed", "place")
    )


def _alive(groups: DataFrame, exchanges: DataFrame) -> DataFrame:
    """When the broker last accepted a request of each member."""
    place = ("group_id", "connection", "number")
    group_rows = groups.where("member_id is not null").select(
        *place,
        "member_id",
        F.expr("if(event <> 'leave' and error is null, unix_micros(completed), null)").alias("alive_us"),
        F.expr("event in ('join', 'sync')").alias("is_own"),
    )
    heartbeats = exchanges.where("api = 'Heartbeat' and kind = 'answered' and size(errors) = 0").select(
        *place,
        F.expr("cast(null as string)").alias("member_id"),
        F.expr(_COMPLETED_US).alias("alive_us"),
        F.expr("false").alias("is_own"),
    )
    so_far = Window.partitionBy("group_id", "connection").orderBy("number")
    joined = F.last(F.expr("if(is_own, member_id, null)"), ignorenulls=True).over(so_far)
    return (
        group_rows.unionByName(heartbeats)
        .withColumn("joined", joined)
        .select("group_id", F.expr("coalesce(member_id, joined)").alias("member_id"), "alive_us")
        .where("member_id is not null and alive_us is not null")
        .groupBy("group_id", "member_id")
        .agg(F.max("alive_us").alias("alive_us"))
    )


def _rebalances_of_group(events: Any, alive: Any) -> Any:
    """Arrow tables with the events and the members of one group -> an Arrow table with its rebalances."""
    import pyarrow as pa

    rows = events.to_pylist()
    instances = {each["member_id"]: each["group_instance_id"] for each in rows if each["group_instance_id"]}
    alive_ns = {each["member_id"]: each["alive_us"] * keys.US_NS for each in alive.to_pylist()}
    history = timeline([_event(each, instances) for each in rows], alive_ns)
    text, number, us = pa.string(), pa.int32(), pa.int64()
    cause = {"cause": text, "time_us": us, "member_id": text, "client": text, "reason": text}
    simple = {
        "group": text,
        "start_us": us,
        "end_us": us,
        "generation_before": number,
        "generation_after": number,
        "members_before": number,
        "members_after": number,
        "joins": us,
        "protocol": text,
        "leader": text,
        "exchange": text,
    }
    schema = pa.schema([*simple.items(), ("causes", pa.list_(pa.struct(cause.items())))])
    output = [{"group": rows[0]["group_id"], **_row(each)} for each in history]
    return pa.Table.from_pylist(output, schema)


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
    return {
        "start_us": each.start_ns // keys.US_NS,
        "end_us": None if each.end_ns is None else each.end_ns // keys.US_NS,
        **{name: getattr(each, name) for name in _SAME_NAMES},
        "causes": [
            {
                "cause": cause.cause,
                "time_us": None if cause.time_ns is None else cause.time_ns // keys.US_NS,
                "member_id": cause.member_id,
                "client": cause.client_id,
                "reason": cause.reason,
            }
            for cause in each.causes
        ],
    }
