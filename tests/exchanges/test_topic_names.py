from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kdissect.exchanges.learned import LearnedFacts
from kdissect.exchanges.resolver import NO_REFS, Refs
from kdissect.exchanges.topic_names import (
    TopicNameResolver,
    Waiting,
    WaitingPart,
    WaitingRoom,
    may_name_topic_ids,
    topic_refs,
    undecoded_topic_refs,
)
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.primitives import DecodeBudget
from kdissect.limits import Limits
from kdissect.model import ANSWERED, ConnectionInfo, Endpoint, Exchange
from tests.frames import FETCH, METADATA, frame, request_payload, response_payload

INFO = ConnectionInfo("0123", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))
ORDERS, PAYMENTS = "5RzwtLHbTWqVAuyWxeBeRQ", "bm90LWEtcmVhbC11dWlkIQ"
SECOND = 1_000_000_000
WINDOW = Limits(naming_window_ns=2 * SECOND)


def exchange(api: int, version: int, requested: dict[str, Any], answered: dict[str, Any]) -> Exchange:
    result = Exchange(
        INFO,
        1,
        ANSWERED,
        frame(request_payload(api, version, requested)),
        frame(response_payload(api, version, answered)),
        api,
        version,
        1,
    )
    decode_exchange(result)
    return result


def feed(naming: TopicNameResolver[Exchange], one: Exchange, now_ns: int) -> list[Exchange]:
    one.completed_ns = now_ns
    return naming.feed(one)


def fetch(*topic_ids: str) -> Exchange:
    return exchange(FETCH, 13, {"topics": [{"topic_id": topic_id} for topic_id in topic_ids]}, {})


def metadata(**topics: str) -> Exchange:
    return exchange(
        METADATA, 12, {}, {"topics": [{"name": name, "topic_id": id_} for name, id_ in topics.items()]}
    )


def test_an_id_that_was_learned_is_named_at_once() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    known, requested = metadata(orders=ORDERS), fetch(ORDERS)
    assert feed(naming, known, 0) == [known]
    assert feed(naming, requested, 100 * SECOND) == [requested]
    assert requested.topic_ids == {ORDERS: "orders"}
    assert naming.known(ORDERS) == "orders"


def test_an_id_that_is_learned_within_the_window_is_named_and_order_is_kept() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    first, second, known = fetch(ORDERS), fetch(), metadata(orders=ORDERS)
    assert feed(naming, first, 0) == []
    assert feed(naming, second, SECOND) == []
    assert feed(naming, known, 2 * SECOND - 1) == [first, second, known]
    assert first.topic_ids == {ORDERS: "orders"}


def test_an_id_that_is_learned_too_late_stays_without_a_name() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    first, known, second = fetch(ORDERS), metadata(orders=ORDERS), fetch(ORDERS)
    assert feed(naming, first, 0) == []
    assert feed(naming, known, 2 * SECOND) == [first, known]
    assert feed(naming, second, 2 * SECOND) == [second]
    assert first.topic_ids == {}
    assert second.topic_ids == {ORDERS: "orders"}


def test_the_last_ones_come_out_at_the_end() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    waiting = fetch(ORDERS, PAYMENTS)
    feed(naming, waiting, 0)
    assert list(naming.close()) == [waiting]
    assert waiting.topic_ids == {}


def test_live_nothing_waits() -> None:
    naming = TopicNameResolver(Limits(naming_window_ns=0), topic_refs)
    requested = fetch(ORDERS)
    assert feed(naming, requested, 0) == [requested]


def test_the_zero_id_and_the_reserved_one_need_no_teaching() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    requested = fetch("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ")
    assert feed(naming, requested, 0) == [requested]
    assert requested.topic_ids == {"AAAAAAAAAAAAAAAAAAAAAQ": "__cluster_metadata"}


def test_past_the_bound_nobody_waits_longer_and_it_is_reported() -> None:
    naming = TopicNameResolver(Limits(naming_rows=3), topic_refs)
    requested = [fetch(ORDERS) for _ in range(6)]
    out = [done for one in requested for done in feed(naming, one, 0)]
    assert out == requested[:3]
    assert [anomaly.kind for anomaly in out[0].anomalies] == ["name_not_waited_for"]


def test_names_are_bounded() -> None:
    naming = TopicNameResolver(Limits(topic_names=2), topic_refs)
    for number in range(10):
        feed(naming, metadata(**{f"t{number}": ORDERS[:20] + f"{number}Q"}), 0)
    assert sum(naming.known(ORDERS[:20] + f"{number}Q") is not None for number in range(10)) == 2
    assert naming.evicted == 8  # the name of the metadata topic stays


def test_an_id_has_the_first_name_that_was_learned() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    for known in (metadata(orders=ORDERS), metadata(payments=ORDERS)):
        feed(naming, known, 0)
    assert naming.known(ORDERS) == "orders"


def test_an_id_stands_for_itself_once_no_name_can_come() -> None:
    naming = TopicNameResolver(WINDOW, topic_refs)
    assert naming.name(ORDERS, 0) is None
    feed(naming, metadata(orders=ORDERS), 0)
    naming.unnamed = frozenset([ORDERS])  # the name came after the exchange had waited
    assert (naming.name(ORDERS, 0), naming.known(ORDERS)) == (ORDERS, "orders")
    learned = TopicNameResolver(WINDOW, topic_refs, LearnedFacts(WINDOW))
    assert learned.name(ORDERS, 0) == ORDERS


def test_an_exchange_mentions_each_id_once_and_lists_the_names_it_has() -> None:
    assert topic_refs(fetch(ORDERS, PAYMENTS, ORDERS, "AAAAAAAAAAAAAAAAAAAAAA")) == Refs(
        [ORDERS, PAYMENTS], []
    )
    assert topic_refs(metadata(orders=ORDERS)) == Refs([ORDERS], [(ORDERS, "orders")])
    assert topic_refs(metadata(orders=ORDERS, payments=PAYMENTS)).learned == [
        (ORDERS, "orders"),
        (PAYMENTS, "payments"),
    ]
    assert topic_refs(fetch(ORDERS)).learned == []


@pytest.mark.parametrize(
    ("learned_ns", "name"), [(0, "orders"), (7 * SECOND - 1, "orders"), (7 * SECOND, None)]
)
def test_names_of_other_parts_count_up_to_a_window_before(learned_ns: int, name: str | None) -> None:
    facts = LearnedFacts()
    facts.learn_topic(ORDERS, "orders", learned_ns)
    naming = TopicNameResolver(WINDOW, topic_refs, facts)
    requested = fetch(ORDERS, PAYMENTS)
    assert feed(naming, requested, 5 * SECOND) == [requested]
    assert requested.topic_ids == ({ORDERS: name} if name else {})


def test_of_two_names_the_one_that_was_learned_first_holds_whichever_part_has_it() -> None:
    facts = LearnedFacts()
    facts.learn_topic(ORDERS, "orders", 1)
    naming = TopicNameResolver(WINDOW, topic_refs, facts)
    feed(naming, metadata(payments=ORDERS), 2)
    requested = fetch(ORDERS)
    assert feed(naming, requested, 5 * SECOND) == [requested]
    assert requested.topic_ids == {ORDERS: "orders"}


def test_what_has_no_names_need_not_be_decoded() -> None:
    assert may_name_topic_ids(METADATA, 10)
    assert may_name_topic_ids(METADATA, 99)  # read as the latest that is known
    assert not may_name_topic_ids(METADATA, 9)
    assert not may_name_topic_ids(FETCH, 13)
    assert not may_name_topic_ids(9999, 0)


def waiting(exchanges: int, now_ns: int, *topic_ids: str) -> Waiting:
    return Waiting(None, exchanges, 10 * exchanges, now_ns, Refs(list(topic_ids), []))


def test_exchanges_that_wait_undecoded_count_each_with_their_frames() -> None:
    naming: TopicNameResolver[Any] = TopicNameResolver(
        Limits(naming_rows=6, naming_bytes=60, naming_window_ns=SECOND), lambda item: item.refs
    )
    assert naming.room is None
    first, behind, named = waiting(1, 0, ORDERS), waiting(4, 7), waiting(1, 8, PAYMENTS)
    assert naming.feed(first) == naming.feed(behind) == naming.feed(named) == []
    assert naming.room == (8, 0, 0)
    last = waiting(1, 9)
    assert naming.feed(last) == [first, behind]
    assert [each.detail for each in first.anomalies] == ["7 exchanges of 70 bytes were waiting"]
    assert naming.room == (9, 4, 40)
    naming.learn(PAYMENTS, "payments")
    assert naming.close() == [named, last]
    assert (first.unnamed, behind.unnamed) == ({ORDERS}, frozenset())
    assert named.topic_ids == {PAYMENTS: "payments"}


NO_ROOM = WaitingRoom(0, 0, 0)
Completed = tuple[int, int, list[str], dict[str, str]]
"""Time since the exchange before, size, topic IDs, names by ID."""


def in_runs(completed: list[Completed], most: int, limits: Limits) -> list[tuple[Any, ...]]:
    """What becomes of each exchange if up to so many wait as one."""
    naming: TopicNameResolver[Waiting] = TopicNameResolver(limits, lambda item: item.refs)
    became: list[tuple[Any, ...]] = []

    def note(items: list[Waiting]) -> None:
        for item in items:
            for number in range(item.exchanges):
                each = item.of(number)
                known = {topic_id: each.topic_ids.get(topic_id) for topic_id in each.refs.keys}
                became.append((known, each.unnamed, each.held_bytes, each.anomalies))
                assert each.unnamed <= item.unnamed

    def wait() -> None:
        if run:
            ids = list(dict.fromkeys(topic_id for part in run for topic_id in part.ids))
            size = sum(part.held_bytes for part in run)
            parts = run.copy() if len(run) > 1 else []
            item = Waiting(None, len(run), size, run[-1].completed_ns, Refs(ids, []), parts)
            note(naming.feed(item))
        run.clear()

    run: list[WaitingPart] = []
    now_ns = 0
    for since_ns, size, ids, names in completed:
        now_ns += since_ns
        own = list(dict.fromkeys([*ids, *names]))
        _, rows, left = naming.room or NO_ROOM
        is_full = len(run) >= min(most, rows) or sum(part.held_bytes for part in run) + size > left
        if names or is_full or since_ns < 0:
            wait()
        room = naming.room or NO_ROOM
        if names or room.exchanges <= 0 or size > room.bytes or now_ns < room.since_ns:
            note(naming.feed(Waiting(None, 1, size, now_ns, Refs(own, list(names.items())))))
        else:
            run.append(WaitingPart(1, size, now_ns, own))
    wait()
    note(naming.close())
    return became


@pytest.mark.parametrize("rows", [4, 12, 100])
@pytest.mark.parametrize("topic_names", [2, 100])
def test_runs_end_as_if_each_exchange_had_waited_by_itself(rows: int, topic_names: int) -> None:
    limits = Limits(naming_rows=rows, naming_bytes=4 * rows, naming_window_ns=6, topic_names=topic_names)
    chance = Random(rows * topic_names)
    for _ in range(60):
        topics = chance.sample("ABCDEFGH", 5)
        completed: list[Completed] = []
        for _ in range(60):
            ids = chance.choices(topics, k=chance.choice((0, 0, 1, 1, 2)))
            names = {chance.choice(topics): "name"} if chance.random() < 0.06 else {}
            completed.append((chance.choice((0, 0, 1, 1, 2, -1, -3)), chance.randint(1, 8), ids, names))
        assert in_runs(completed, 8, limits) == in_runs(completed, 1, limits)


def test_ids_of_an_exchange_that_stays_undecoded() -> None:
    damaged = exchange(FETCH, 13, {"topics": [{"topic_id": ORDERS}]}, {})
    damaged.request = damaged.response = None
    frame_ = damaged.request_frame
    assert frame_ is not None
    damaged.request_frame = frame_._replace(data=frame_.data + b"\0", size=frame_.size + 1)
    assert undecoded_topic_refs(damaged, DecodeBudget()) == Refs([ORDERS], [])
    assert (damaged.request, damaged.anomalies) == (None, [])
    assert undecoded_topic_refs(exchange(FETCH, 12, {}, {}), DecodeBudget()) is NO_REFS


def test_nothing_is_learned_again_from_exchanges_that_have_waited() -> None:
    naming: TopicNameResolver[Exchange] = TopicNameResolver(WINDOW, topic_refs)
    naming.learns = False
    naming.learn(ORDERS, "orders")
    assert naming.known(ORDERS) is None
