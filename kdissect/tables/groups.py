"""Exchange -> the rows of ``groups``: who joins, is given partitions, leaves, commits, is refused. Holds
nothing.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.group_events import GroupEvent, group_events
from kdissect.tables.columns import BOOLEAN, INT32, INT64, STRING, TIMESTAMP, Array, Column, Struct
from kdissect.tables.form import Table, time_columns, within

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


def _text(name: str, sentence: str) -> Column:
    return Column(name, STRING, attrgetter(name), sentence)


GROUPS = Table(
    "groups",
    "Something that happens to a group: a join, an assignment, a departure, a commit, a refused heartbeat.",
    (
        _text("connection", "As in `exchanges`."),
        Column("number", INT64, attrgetter("number"), "As in `exchanges`."),
        *time_columns(attrgetter("time_ns"), "As in `exchanges`."),
        Column(
            "completed",
            TIMESTAMP,
            within(attrgetter("completed_ns")),
            "When the answer was there; null where it never came.",
        ),
        _text("group_id", "The group."),
        _text("kind", "`classic`, `consumer` (KIP-848), `share` or `streams`; null for commits."),
        _text(
            "event",
            "`join`, `sync`, `heartbeat` (refused, or with news), `leave` or `commit`; where members only "
            "beat, the first and last beat of one are `join` and `leave`.",
        ),
        _text("client_id", "As in `exchanges`."),
        _text("client_ip", "As in `exchanges`."),
        _text("member_id", "The member: the id that the broker gave it, once it did."),
        _text("group_instance_id", "Of a static member (KIP-345)."),
        Column(
            "is_new",
            BOOLEAN,
            attrgetter("is_new"),
            "Of a join: whether the member had no id yet, or none that the group knows.",
        ),
        Column(
            "generation",
            INT32,
            attrgetter("generation"),
            "Of classic groups; of the others the member's epoch.",
        ),
        Column(
            "session_timeout_ms",
            INT32,
            attrgetter("session_timeout_ms"),
            "As a classic member asks for when it joins.",
            "ms",
        ),
        _text("protocol_type", "Of classic groups: `consumer`, `connect`."),
        _text("protocol", "The assignor that was chosen; where nothing was yet, the one asked for first."),
        _text("error", "Name of the error code; null for NONE, and where nothing was answered."),
        _text("reason", "What the client gave as the cause (KIP-800)."),
        Column(
            "assignment",
            Array(ASSIGNED),
            _assignment,
            "What the member is to work on from now on (of a streams group by subtopology); null where "
            "nothing is told about it.",
        ),
        Column(
            "subscribed",
            Array(STRING),
            lambda event: _names(event.subscribed),
            "Topics that the member wants; null where nothing is told.",
        ),
        Column("leads", BOOLEAN, attrgetter("leads"), "Of a join: whether the member is the leader."),
        Column(
            "members",
            Array(STRING),
            lambda event: _names(event.members),
            "Of a join: all member ids, as only the leader is told them.",
        ),
    ),
)
