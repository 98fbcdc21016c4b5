from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture
from kdissect.exchanges.group_events import EVENTS, KINDS, group_events
from kdissect.model import ORPHAN, Embedded, Exchange
from samples.golden import captures, name_of
from tests import groups as g
from tests.exchange_factory import START_NS, exchange

if TYPE_CHECKING:
    from collections.abc import Iterator


def one(exchange: Exchange) -> dict[str, object]:
    (event,) = group_events(exchange, include_alive=True)
    return event._asdict()


def has(exchange: Exchange, **expected: object) -> None:
    event = one(exchange)
    assert {name: event[name] for name in expected} == expected


def test_a_join_of_the_leader() -> None:
    joined = g.join(
        "a", 1, 3, members=[("a", "static-a"), ("b", None)], request_member_id="", instance="static-a"
    )
    has(
        joined,
        time_ns=START_NS + g.SECOND_NS,
        completed_ns=START_NS + 1_001_000_000,
        connection="of-a",
        number=1001,
        group_id="g",
        kind="classic",
        event="join",
        client_id="a",
        member_id="a",
        group_instance_id="static-a",
        is_new=True,
        generation=3,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocol="range",
        error=None,
        subscribed=("t",),
        leads=True,
        members=("a", "b"),
        instances=("static-a", None),
    )


def test_a_join_of_a_follower() -> None:
    has(
        g.join("b", 1, 3, reason="metadata has changed"),
        is_new=False,
        leads=False,
        members=None,
        reason="metadata has changed",
    )


def test_a_join_that_receives_its_member_id() -> None:
    joined = g.join("a", 1, 0, request_member_id="", error=g.MEMBER_ID_REQUIRED)
    has(
        joined,
        error="MEMBER_ID_REQUIRED",
        member_id="a",
        generation=None,
        protocol="range",
        leads=None,
    )


def test_a_join_that_is_never_answered() -> None:
    has(
        g.join("a", 1, 0, request_member_id="", answered=False), completed_ns=None, member_id=None, error=None
    )


def test_a_sync() -> None:
    has(
        g.sync("a", 1, 3, {"t": [2, 0], "s": [1]}),
        event="sync",
        generation=3,
        assignment=(("s", (1,)), ("t", (0, 2))),
        protocol="range",
    )


def test_an_assignment_that_cannot_be_read_is_not_known() -> None:
    raw = exchange("SyncGroup", 0, {"group_id": "g"}, {"error_code": 0, "assignment": b"\x00"})
    has(raw, assignment=None)


def test_heartbeats_are_events_when_they_bring_news() -> None:
    assert group_events(g.heartbeat("a", 1, 3)) == []
    has(g.heartbeat("a", 1, 3), event="alive", generation=3)
    has(g.heartbeat("a", 1, 3, g.REBALANCE_IN_PROGRESS), event="heartbeat", error="REBALANCE_IN_PROGRESS")


def test_members_leave_alone() -> None:
    has(g.leave("a", 1, "closed"), event="leave", member_id="a", reason="closed", error=None)
    old = exchange("LeaveGroup", 1, {"group_id": "g", "member_id": "a"}, {"error_code": 25})
    has(old, event="leave", member_id="a", error="UNKNOWN_MEMBER_ID")


def test_members_leave_together() -> None:
    """As an administrator removes static members (KIP-345)."""
    members = [{"member_id": "", "group_instance_id": name} for name in ("x", "y")]
    answers = [{"member_id": "m-x", "error_code": 0}, {"member_id": "", "error_code": 25}]
    removed = exchange(
        "LeaveGroup", 4, {"group_id": "g", "members": members}, {"error_code": 0, "members": answers}
    )
    result = [(event.member_id, event.group_instance_id, event.error) for event in group_events(removed)]
    assert result == [("m-x", "x", None), (None, "y", "UNKNOWN_MEMBER_ID")]


def test_a_commit() -> None:
    has(g.commit("a", 1, {0: 5}), event="commit", kind=None, generation=1, error=None)
    has(g.commit("a", 1, {0: 5}, error=22), error="ILLEGAL_GENERATION")


def test_members_of_consumer_groups_join_and_leave_by_epoch() -> None:
    joined = g.consumer("a", 1, 0, 4, {"id": [1, 0]}, topics=["t", "s"], server_assignor="uniform")
    joined.topic_ids = {"id": "t"}
    has(
        joined,
        event="join",
        kind="consumer",
        generation=4,
        subscribed=("s", "t"),
        assignment=(("t", (0, 1)),),
        protocol="uniform",
    )
    has(g.consumer("a", 1, -1, -1), event="leave", generation=-1)
    has(g.consumer("a", 1, -2, -2), event="leave", generation=-2)


def test_heartbeats_of_consumer_groups_are_events_when_they_bring_news() -> None:
    has(g.consumer("a", 1, 4, 4), event="alive")
    has(g.consumer("a", 1, 4, 5), event="heartbeat", generation=5)
    has(g.consumer("a", 1, 4, 4, {}), event="heartbeat", assignment=())
    has(g.consumer("a", 1, 4, 0, error=g.FENCED_MEMBER_EPOCH), error="FENCED_MEMBER_EPOCH", generation=4)
    has(g.consumer("a", 1, 4, 4, subscribed_topic_regex="t.*"), subscribed=("/t.*/",))


def test_the_layout_of_kafka_3_5() -> None:
    early = {"error": 0, "assigned_topic_partitions": [{"topic_id": "i", "partitions": [7]}]}
    body = {"error_code": 0, "member_id": "a", "member_epoch": 2, "assignment": early}
    result = exchange("ConsumerGroupHeartbeat", 0, {"group_id": "g", "member_epoch": 0}, body, draft=0)
    has(result, assignment=(("i", (7,)),))


def test_share_groups() -> None:
    has(g.consumer("a", 1, 0, 1, {"t": [0]}, api="ShareGroupHeartbeat"), kind="share", event="join")


def test_streams_groups_are_given_tasks() -> None:
    subtopologies = [{"subtopology_id": "0", "source_topics": ["in"]}]
    request = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "topology": {"subtopologies": subtopologies},
    }
    tasks = [{"subtopology_id": "0", "partitions": [1]}]
    response = {"error_code": 0, "member_id": "a", "member_epoch": 1, "active_tasks": tasks}
    has(
        exchange("StreamsGroupHeartbeat", 0, request, response),
        kind="streams",
        event="join",
        subscribed=("in",),
        assignment=(("0", (1,)),),
    )


@pytest.mark.parametrize(
    "api",
    [
        *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "TxnOffsetCommit"),
        *("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"),
    ],
)
def test_bodies_that_end_early(api: str) -> None:
    """What a cut frame leaves: each field may be missing, an array may hold an empty struct."""
    assert group_events(exchange(api, 0, {}, {})) == []
    assert group_events(exchange(api, 0, None, {"error_code": 3}, kind=ORPHAN)) == []
    for response in (None, {}, {"members": [{}], "topics": [{}], "assignment": None}):
        for event in group_events(exchange(api, 0, {"group_id": "g"}, response), include_alive=True):
            assert event.group_id == "g"
    broken = {"group_id": "g", "protocols": [{}], "members": [{}, {}], "topology": {}}
    response = {"members": [{}], "topics": [{"partitions": [{}]}], "assignment": Embedded(b"", {})}
    if "Group" in api and "Heartbeat" in api and api != "Heartbeat":
        response["assignment"] = {"topic_partitions": [{}]}
    assert group_events(exchange(api, 0, broken, response), include_alive=True)


def cuts(value: Any) -> Iterator[Any]:
    """All that a decoder may leave of a value when its bytes end early: each struct's first fields."""
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        for name, each in value.items():
            yield dict(kept)
            for shorter in cuts(each):
                yield {**kept, name: shorter}
            kept[name] = each
    elif isinstance(value, list) and value:
        for place, each in enumerate(value[:3]):
            yield value[:place]
            for shorter in cuts(each):
                yield [*value[:place], shorter]


@pytest.mark.parametrize("sample", ["mock-rebalance", "mock-next-groups", "kafka-4-basics"])
def test_real_bodies_cut_anywhere(sample: str) -> None:
    (path,) = (path for path in captures() if name_of(path) == sample)
    with open_capture(path) as packets:
        exchanges = [each for each in dissect(packets) if group_events(each, include_alive=True)]
    assert exchanges
    for each in exchanges:
        request, response = each.request, each.response
        for each.request in cuts(request):
            group_events(each)
        each.request = request
        for each.response in cuts(response):
            assert group_events(each, include_alive=True)


def test_other_exchanges_have_none() -> None:
    assert group_events(exchange("Metadata", 9, {"topics": []}, {"topics": []})) == []
    assert group_events(exchange("ListGroups", 0, {}, {})) == []


def test_every_event_in_the_samples_is_of_a_known_sort() -> None:
    selected = {"mock-rebalance", "mock-next-groups", "kafka-4-basics"}
    kinds, names = set(), set()
    for path in captures():
        if name_of(path) in selected:
            with open_capture(path) as packets:
                for each in dissect(packets):
                    for event in group_events(each):
                        kinds.add(event.kind)
                        names.add(event.event)
    assert kinds <= {*KINDS, None}
    assert names == set(EVENTS)
