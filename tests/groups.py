"""Exchanges of groups for tests: each member on a connection of its own, times in seconds from START_NS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.exchanges.content import errors
from kdissect.exchanges.expected import expected_errors
from kdissect.limits import DEFAULT
from kdissect.model import Embedded
from kdissect.stats.facts import Facts
from kdissect.stats.groups import Groups, histories
from tests.exchange_factory import START_NS, connection, exchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange
    from kdissect.stats.document import GroupHistory

SECOND_NS = 1_000_000_000
MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_MEMBER_EPOCH = 79, 25, 27, 110


def group_exchange(
    api: str, version: int, client: str, at: float, request: Body, response: Body | None, took: float = 0.001
) -> Exchange:
    time_ns = START_NS + round(at * SECOND_NS)
    built = exchange(
        api,
        version,
        {"group_id": "g", **request},
        response,
        time_ns=time_ns,
        latency_ns=round(took * SECOND_NS),
        client_id=client,
        connection=connection(f"of-{client}", f"10.0.0.{len(client)}"),
        number=round(at * 1000) + 1,
    )
    built.completed_ns = time_ns + round(took * SECOND_NS)
    return built


def _topics(assigned: dict[str, list[int]]) -> list[Body]:
    return [{"topic": topic, "partitions": partitions} for topic, partitions in assigned.items()]


def join(
    client: str,
    at: float,
    generation: int,
    *,
    members: Sequence[str | tuple[str, str | None]] = (),
    request_member_id: str | None = None,
    error: int = 0,
    until: float | None = None,
    topics: Sequence[str] = ("t",),
    protocol: str = "range",
    instance: str | None = None,
    reason: str | None = None,
    answered: bool = True,
    member: str | None = None,
    session_s: float = 10,
) -> Exchange:
    """A JoinGroup. ``members``: the list that the leader gets; ``request_member_id``: ``member`` by default,
    which is the client's name by default.
    """
    member = client if member is None else member
    member_pairs = [each if isinstance(each, tuple) else (each, None) for each in members]
    subscription = Embedded(b"", {"_message": "ConsumerProtocolSubscription", "topics": list(topics)})
    response = {
        "throttle_time_ms": 0,
        "error_code": error,
        "generation_id": -1 if error else generation,
        "protocol_type": "consumer",
        "protocol_name": None if error else protocol,
        "leader": member if members else "" if error else "somebody else",
        "skip_assignment": False,
        "member_id": member,
        "members": [
            {"member_id": name, "group_instance_id": each, "metadata": b""} for name, each in member_pairs
        ],
    }
    request = {
        "session_timeout_ms": round(session_s * 1000),
        "rebalance_timeout_ms": 60_000,
        "member_id": member if request_member_id is None else request_member_id,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [{"name": protocol, "metadata": subscription}],
        "reason": reason,
    }
    took = 0.001 if until is None else until - at
    return group_exchange("JoinGroup", 9, client, at, request, response if answered else None, took)


def sync(
    client: str,
    at: float,
    generation: int,
    assigned: dict[str, list[int]] | None = None,
    *,
    error: int = 0,
    member: str | None = None,
    instance: str | None = None,
) -> Exchange:
    request = {
        "generation_id": generation,
        "member_id": member or client,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }
    response = {
        "throttle_time_ms": 0,
        "error_code": error,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": Embedded(b"", {"assigned_partitions": _topics(assigned or {})}),
    }
    return group_exchange("SyncGroup", 5, client, at, request, response)


def heartbeat(client: str, at: float, generation: int, error: int = 0) -> Exchange:
    request = {"generation_id": generation, "member_id": client, "group_instance_id": None}
    return group_exchange("Heartbeat", 4, client, at, request, {"throttle_time_ms": 0, "error_code": error})


def leave(client: str, at: float, reason: str | None = None) -> Exchange:
    member = {"member_id": client, "group_instance_id": None}
    answer = {"throttle_time_ms": 0, "error_code": 0, "members": [{**member, "error_code": 0}]}
    return group_exchange("LeaveGroup", 5, client, at, {"members": [{**member, "reason": reason}]}, answer)


def consumer(
    client: str,
    at: float,
    sent: int,
    given: int,
    assigned: dict[str, list[int]] | None = None,
    *,
    topics: list[str] | None = None,
    error: int = 0,
    api: str = "ConsumerGroupHeartbeat",
    **others: Any,
) -> Exchange:
    """A heartbeat of KIP-848 or a share group, from the epoch that is sent to the one that is given."""
    request = {"member_id": client, "member_epoch": sent, "subscribed_topic_names": topics, **others}
    assignment = None
    if assigned is not None:
        assignment = {
            "topic_partitions": [{"topic_id": name, "partitions": each} for name, each in assigned.items()]
        }
    response = {
        "throttle_time_ms": 0,
        "error_code": error,
        "member_id": client,
        "member_epoch": given,
        "assignment": assignment,
    }
    return group_exchange(api, 1, client, at, request, response)


def commit(client: str, at: float, offsets: dict[int, int], error: int = 0, *, group: str = "g") -> Exchange:
    """Of partitions of topic ``t``."""
    partitions = [
        {"partition_index": number, "committed_offset": offset} for number, offset in offsets.items()
    ]
    response = [{"partition_index": number, "error_code": error} for number in offsets]
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": 1,
        "member_id": client,
        "topics": [{"name": "t", "partitions": partitions}],
    }
    return group_exchange(
        "OffsetCommit", 8, client, at, request, {"topics": [{"name": "t", "partitions": response}]}
    )


def counted(exchanges: Iterable[Exchange], limits: Limits = DEFAULT) -> Groups:
    groups = Groups(limits)
    for each in exchanges:
        each.expected_errors = expected_errors(each, errors(each))
        groups.feed(Facts(each))
    return groups


def history(*exchanges: Exchange, limits: Limits = DEFAULT) -> GroupHistory:
    """Of the only group."""
    (only,) = histories(counted(exchanges, limits))
    return only
