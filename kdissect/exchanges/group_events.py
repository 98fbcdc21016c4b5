"""An exchange -> group membership events: join, assignment, leave, commit, rejection.

    JoinGroup, SyncGroup, Heartbeat, LeaveGroup                                  classic groups
    ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat           KIP-848, KIP-932, KIP-1071
    OffsetCommit, TxnOffsetCommit                                                any group

A heartbeat that changes nothing is an event only with ``include_alive``. Bodies may be partial or missing.
Missing values are None. Holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka.codes import error_name
from kdissect.model import Body, Embedded
from kdissect.phrases import TopicId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kdissect.model import Exchange

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
KINDS = (CLASSIC, CONSUMER, SHARE, STREAMS)

JOIN, SYNC, HEARTBEAT, ALIVE, LEAVE, COMMIT = "join", "sync", "heartbeat", "alive", "leave", "commit"
EVENTS = (JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT)

_NOTHING: Body = {}
HANDSHAKE = "MEMBER_ID_REQUIRED"  # KIP-394: a new member gets its ID, and joins again with it
_JOINING, _LEAVING = 0, -1  # member epochs; below -1: a static member leaves temporarily (KIP-848)

Assignment = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics (for a streams group, subtopologies) with their partitions, both sorted."""


class GroupEvent(NamedTuple):
    """One event in the life of a group.

    Attributes:
        time_ns: last byte of the request.
        completed_ns: when the response arrived. None without a response.
        connection, number: the exchange.
        kind: one of ``KINDS``. None for commits, which are the same in all groups.
        event: one of ``EVENTS``, or ``alive``. In groups that only use heartbeats, a member's first and last
            are ``join`` and ``leave``.
        member_id: the one assigned by this response, if any, otherwise the request's.
        is_new: for a join, whether the member had no ID yet, or an ID unknown to the group.
        generation: for classic groups. For others the member epoch, from the response if there is one.
        session_timeout_ms: requested by a classic member when it joins.
        protocol_type: for classic groups: ``consumer``, ``connect``.
        protocol: the assignor that was chosen, or the member's first choice if none was chosen yet.
        error: name of the error code. None for NONE and without a response.
        reason: as stated by the client (KIP-800).
        assignment: the partitions that the member now owns. None if the exchange has no assignment.
        subscribed: the topics that the member subscribes to. None if the exchange has no subscription.
        leads: for a join, whether the member is the leader.
        members: for a join, all member IDs. Only the leader receives them.
        instances: the same members' group instance IDs, None for dynamic members.
    """

    time_ns: int
    completed_ns: int | None
    connection: str
    number: int
    group_id: str
    kind: str | None
    event: str
    client_id: str | None
    client_ip: str
    member_id: str | None = None
    group_instance_id: str | None = None
    is_new: bool = False
    generation: int | None = None
    session_timeout_ms: int | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    error: str | None = None
    reason: str | None = None
    assignment: Assignment | None = None
    subscribed: tuple[str, ...] | None = None
    leads: bool | None = None
    members: tuple[str, ...] | None = None
    instances: tuple[str | None, ...] | None = None
    cluster_id: str | None = None

    @property
    def key(self) -> tuple[int, str, int, str]:
        """Sort key: by time, regardless of the order in which the events were collected."""
        return self.time_ns, self.connection, self.number, self.member_id or ""

    @property
    def is_refused(self) -> bool:
        """Whether the response says that the member did not join. Being told its ID is part of joining."""
        return self.event == JOIN and self.error not in (None, HANDSHAKE)


def group_events(exchange: Exchange, *, include_alive: bool = False) -> list[GroupEvent]:
    """The events in an exchange: usually one, several if several members leave at once.

    Args:
        exchange: any. Most have no events. A response without its request does not identify its group.
        include_alive: include heartbeats that change nothing.
    """
    read = _READERS.get(exchange.api or "")
    request = exchange.request
    if read is None or request is None or not (group := request.get("group_id")):
        return []
    answered = exchange.response is not None
    template = GroupEvent(
        time_ns=exchange.time_ns,
        completed_ns=exchange.completed_ns or _response_end_ns(exchange) if answered else None,
        connection=exchange.connection.id,
        number=exchange.number,
        group_id=group,
        kind=None,
        event=COMMIT,
        client_id=exchange.client_id,
        client_ip=exchange.connection.client.ip,
        cluster_id=exchange.cluster_id,
        member_id=request.get("member_id") or None,
        group_instance_id=request.get("group_instance_id") or request.get("instance_id") or None,
    )
    events = read(template, request, exchange.response or {}, exchange.topic_ids)
    return [event for event in events if include_alive or event.event != ALIVE]


def usual_events(api: str | None) -> str:
    """Which events an API's exchanges are: ``never`` any, ``commit``, only ``errors`` in the response, or
    ``others``.
    """
    read = _READERS.get(api or "")
    if read is None:
        return "never"
    return "errors" if read is _heartbeat else COMMIT if read is _commit else "others"


def _response_end_ns(exchange: Exchange) -> int | None:
    return None if exchange.response_frame is None else exchange.response_frame.end_ns


def _join(
    event: GroupEvent, request: Body, response: Body, _names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    protocols = request.get("protocols") or []
    chosen = response.get("protocol_name") or None
    subscription: Body | None = next((each for each in protocols if each.get("name") == chosen), None)
    subscription = subscription or next(iter(protocols), None) or _NOTHING
    members = response.get("members") or []
    member = response.get("member_id") or event.member_id
    yield event._replace(
        kind=CLASSIC,
        event=JOIN,
        is_new=event.member_id is None,
        member_id=member,
        generation=_at_least_0(response.get("generation_id")),
        session_timeout_ms=request.get("session_timeout_ms"),
        protocol_type=request.get("protocol_type") or None,
        protocol=chosen or subscription.get("name") or None,
        error=_error(response),
        reason=request.get("reason") or None,
        subscribed=_names_in(_decoded(subscription.get("metadata")).get("topics")),
        leads=response["leader"] == member if response.get("leader") else None,
        members=tuple(each.get("member_id") or "" for each in members) or None,
        instances=tuple(each.get("group_instance_id") for each in members) or None,
    )


def _sync(
    event: GroupEvent, request: Body, response: Body, _names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    assigned = _decoded(response.get("assignment"))
    yield event._replace(
        kind=CLASSIC,
        event=SYNC,
        generation=_at_least_0(request.get("generation_id")),
        protocol_type=request.get("protocol_type") or response.get("protocol_type") or None,
        protocol=response.get("protocol_name") or request.get("protocol_name") or None,
        error=_error(response),
        assignment=_assignment(assigned.get("assigned_partitions"), "topic", {}),
    )


def _heartbeat(
    event: GroupEvent, request: Body, response: Body, _names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    error = _error(response)
    yield event._replace(
        kind=CLASSIC,
        event=HEARTBEAT if error else ALIVE,
        generation=_at_least_0(request.get("generation_id")),
        error=error,
    )


def _leave(
    event: GroupEvent, request: Body, response: Body, _names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    event = event._replace(kind=CLASSIC, event=LEAVE, error=_error(response))
    if "members" not in request:
        yield event
        return
    results = response.get("members") or []
    for index, member in enumerate(request["members"] or []):
        result = results[index] if index < len(results) else {}
        yield event._replace(
            member_id=member.get("member_id") or result.get("member_id") or None,
            group_instance_id=member.get("group_instance_id"),
            reason=member.get("reason") or None,
            error=event.error or _error(result),
        )


def _commit(
    event: GroupEvent, request: Body, response: Body, _names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    generation = request.get("generation_id_or_member_epoch")
    partitions = [each for topic in response.get("topics") or [] for each in topic.get("partitions") or []]
    errors = [error for each in partitions if (error := _error(each))]
    yield event._replace(generation=_at_least_0(generation), error=next(iter(errors), None))


def _consumer_heartbeat(
    event: GroupEvent, request: Body, response: Body, names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    assignment = response.get("assignment")
    topics = None
    if assignment is not None:
        topics = assignment.get("topic_partitions", assignment.get("assigned_topic_partitions"))
    yield _with_event(
        event._replace(
            kind=CONSUMER,
            protocol=request.get("server_assignor") or None,
            subscribed=_subscribed(request),
            assignment=_assignment(topics, "topic_id", names),
        ),
        request,
        response,
    )


def _share_heartbeat(
    event: GroupEvent, request: Body, response: Body, names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    for heartbeat in _consumer_heartbeat(event, request, response, names):
        yield heartbeat._replace(kind=SHARE)


def _streams_heartbeat(
    event: GroupEvent, request: Body, response: Body, _names: Mapping[str, str]
) -> Iterator[GroupEvent]:
    topology = request.get("topology")
    subscribed = None
    if topology is not None:
        subtopologies = topology.get("subtopologies") or []
        subscribed = _names_in([name for each in subtopologies for name in each.get("source_topics") or ()])
    yield _with_event(
        event._replace(
            kind=STREAMS,
            subscribed=subscribed,
            assignment=_assignment(response.get("active_tasks"), "subtopology_id", {}),
        ),
        request,
        response,
    )


def _with_event(event: GroupEvent, request: Body, response: Body) -> GroupEvent:
    """Set the event of a heartbeat from the member epochs in it."""
    sent, assigned = request.get("member_epoch"), response.get("member_epoch")
    error = _error(response)
    has_changed = (
        error is not None
        or event.assignment is not None
        or event.subscribed is not None
        or (assigned is not None and assigned != sent)
    )
    event_name = HEARTBEAT if has_changed else ALIVE
    if sent == _JOINING:
        event_name = JOIN
    elif sent is not None and sent <= _LEAVING:
        event_name = LEAVE
    return event._replace(
        event=event_name,
        member_id=response.get("member_id") or event.member_id,
        is_new=event_name == JOIN,
        generation=sent if assigned is None or error else assigned,
        error=error,
    )


def _subscribed(request: Body) -> tuple[str, ...] | None:
    topics = _names_in(request.get("subscribed_topic_names"))
    if regex := request.get("subscribed_topic_regex"):
        return (*(topics or ()), f"/{regex}/")
    return topics


def _names_in(topics: list[Any] | None) -> tuple[str, ...] | None:
    return None if topics is None else tuple(sorted({topic for topic in topics if topic}))


def _assignment(topics: list[Body] | None, key: str, names: Mapping[str, str]) -> Assignment | None:
    if topics is None:
        return None
    assigned: dict[str, set[int]] = {}
    for topic in topics:
        if (name := topic.get(key)) is not None:
            topic_name = names.get(name) or (TopicId(name) if key == "topic_id" else name)
            assigned.setdefault(topic_name, set()).update(topic.get("partitions") or ())
    return tuple(sorted((name, tuple(sorted(partitions))) for name, partitions in assigned.items()))


def _decoded(value: Any) -> Body:
    """The decoded member data, empty if it could not be decoded."""
    return value.decoded if isinstance(value, Embedded) else {}


def _error(struct: Body) -> str | None:
    return error_name(code) if (code := struct.get("error_code")) else None


def _at_least_0(generation: int | None) -> int | None:
    """A generation. -1 means none: a failed join, or a commit outside a group."""
    return None if generation is None or generation < 0 else generation


_READERS: dict[str, Callable[[GroupEvent, Body, Body, Mapping[str, str]], Iterator[GroupEvent]]] = {
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave,
    "OffsetCommit": _commit,
    "TxnOffsetCommit": _commit,
    "ConsumerGroupHeartbeat": _consumer_heartbeat,
    "ShareGroupHeartbeat": _share_heartbeat,
    "StreamsGroupHeartbeat": _streams_heartbeat,
}
