"""Exchange -> rows of ``groups``: joins, assignments, departures, commits, rejected heartbeats. Stateless."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.group_events import GroupEvent, group_events
from kdissect.tables.columns import BOOLEAN, INT32, INT64, STRING, TIMESTAMP, Array, Column, Struct
from kdissect.tables.form import Table, time_columns, valid_time

if TYPE_CHECKING:
    from kdissect.model import Exchange

ASSIGNED = Struct((("topic", STRING), ("partitions", Array(INT32))))


def rows(exchange: Exchange) -> list[GroupEvent]:
    """The events in an exchange."""
    return group_events(exchange)


def _assignment(event: GroupEvent) -> list[dict[str, Any]] | None:
    if event.assignment is None:
        return None
    return [{"topic": topic, "partitions": list(partitions)} for topic, partitions in event.assignment]


def _names(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)


def _text(name: str, description: str) -> Column:
    return Column(name, STRING, attrgetter(name), description)


GROUPS = Table(
    "groups",
    "A group event: a join, an assignment, a departure, a commit, a rejected heartbeat.",
    (
        _text("connection", "See `exchanges`."),
        Column("number", INT64, attrgetter("number"), "See `exchanges`."),
        *time_columns(attrgetter("time_ns"), "See `exchanges`."),
        Column(
            "completed",
            TIMESTAMP,
            valid_time(attrgetter("completed_ns")),
            "Time of the response; null if it never came.",
        ),
        _text("group_id", "Group ID."),
        _text("kind", "`classic`, `consumer` (KIP-848), `share` or `streams`; null for commits."),
        _text(
            "event",
            "`join`, `sync`, `heartbeat` (rejected, or with a new assignment or epoch), `leave` or "
            "`commit`; for members that only send heartbeats, the first and last heartbeat are `join` "
            "and `leave`.",
        ),
        _text("cluster_id", "See `exchanges`."),
        _text("client_id", "See `exchanges`."),
        _text("client_ip", "See `exchanges`."),
        _text("member_id", "Member ID; null before the broker has assigned one."),
        _text("group_instance_id", "Group instance ID of a static member (KIP-345)."),
        Column(
            "is_new",
            BOOLEAN,
            attrgetter("is_new"),
            "For a join: whether the member had no ID yet, or one unknown to the group.",
        ),
        Column(
            "generation",
            INT32,
            attrgetter("generation"),
            "Generation of classic groups; otherwise the member epoch.",
        ),
        Column(
            "session_timeout_ms",
            INT32,
            attrgetter("session_timeout_ms"),
            "Session timeout in a classic member's join request.",
            "ms",
        ),
        _text("protocol_type", "Protocol type of classic groups: `consumer`, `connect`."),
        _text(
            "protocol", ("Partition assignor chosen for the group; until then, the member's preferred one.")
        ),
        _text("error", "Error name; null for NONE, or if there is no response."),
        _text("reason", "Reason given by the client (KIP-800)."),
        Column(
            "assignment",
            Array(ASSIGNED),
            _assignment,
            "New assignment of the member (by subtopology in a streams group); null if the response has "
            "none.",
        ),
        Column(
            "subscribed",
            Array(STRING),
            lambda event: _names(event.subscribed),
            "Topics the member subscribes to; null if not stated.",
        ),
        Column("leads", BOOLEAN, attrgetter("leads"), "For a join: whether the member is the leader."),
        Column(
            "members",
            Array(STRING),
            lambda event: _names(event.members),
            "For a join: all member IDs, which only the leader receives.",
        ),
    ),
)
