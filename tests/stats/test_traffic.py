from __future__ import annotations

from typing import Any

from kdissect.limits import DEFAULT
from kdissect.model import LatencyParts
from kdissect.stats.facts import Facts
from kdissect.stats.tallies import Summing
from kdissect.stats.traffic import BY, Failure, Traffic
from tests.exchange_factory import CAPTURED, START_NS, connection, exchange


def produce(error: int, *, topic: str = "orders", number: int = 1, **options: Any) -> Facts:
    request = {"acks": -1, "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": None}]}]}
    response = {"responses": [{"name": topic, "partition_responses": [{"index": 0, "error_code": error}]}]}
    return Facts(exchange("Produce", 7, request, response, number=number, client_id="shop", **options))


def traffic(*facts: Facts, **options: Any) -> Traffic:
    return fed(Traffic(DEFAULT, frozenset(BY), **options), *facts, by_group=True)


def fed(result: Traffic, *facts: Facts, by_group: bool = False) -> Traffic:
    summing = Summing(DEFAULT, [result.tables.feed], by_group=by_group, by_connection=by_group)
    for each in facts:
        result.feed(each)
        summing.feed(each)
    summing.settle()
    return result


def test_an_error_counts_once_for_each_topic_and_remembers_its_first_example() -> None:
    result = traffic(
        produce(6, number=2, time_ns=START_NS + 5), produce(6), produce(0), produce(6, topic="payments")
    )
    orders = result.failures[Failure("NOT_LEADER_OR_FOLLOWER", "Produce", "orders", "shop")]
    assert (orders.count, orders.example) == (2, "c0ffee/1")
    assert (orders.first_ns, orders.last_ns) == (START_NS, START_NS + 5)
    assert len(result.failures) == 2


def test_an_error_of_no_partition_has_no_topic() -> None:
    result = traffic(Facts(exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 27}, client_id="shop")))
    assert list(result.failures) == [Failure("REBALANCE_IN_PROGRESS", "Heartbeat", None, "shop")]


def test_the_first_message_of_the_broker_is_kept() -> None:
    def created(number: int, message: str | None) -> Facts:
        answer = {"topics": [{"name": "t", "error_code": 44, "error_message": message}]}
        example = exchange("CreateTopics", 5, {}, answer, number=number, time_ns=START_NS + number)
        return Facts(example)

    parts = [traffic(created(3, "later")), traffic(created(1, None), created(2, "replication factor 1"))]
    for first, second in (parts, parts[::-1]):
        merged = traffic()
        merged.merge(first)
        merged.merge(second)
        (failures,) = [each for _, each in merged.failures.items()]
        assert (failures.count, failures.example, failures.message) == (3, "c0ffee/1", "replication factor 1")
    (failures,) = [each for _, each in traffic(created(1, None)).failures.items()]
    assert failures.message is None


def test_the_slowest_are_kept_slowest_first() -> None:
    result = traffic(
        *(produce(0, number=number, latency_ns=number * 10**6) for number in (3, 9, 1, 7)), slowest=2
    )
    assert [(slow.exchange, slow.parts.service_us, slow.topics) for slow in result.slowest.all()] == [
        ("c0ffee/9", 9000, ("orders",)),
        ("c0ffee/7", 7000, ("orders",)),
    ]


def fetch(*, latency_ms: int = 100, error: int = 0, **request: Any) -> Facts:
    request = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "topics": [{"topic": "orders"}],
        **request,
    }
    response = {"responses": [{"topic": "orders", "partitions": [{"error_code": error, "records": None}]}]}
    return Facts(exchange("Fetch", 4, request, response, latency_ns=latency_ms * 1_000_000, **CAPTURED))


def test_waits_are_none_of_the_slowest() -> None:
    result = traffic(
        fetch(),
        fetch(latency_ms=499),
        fetch(error=3),
        fetch(max_wait_ms=0, latency_ms=2),
        fetch(replica_id=4),
    )
    assert [slow.latency_us for slow in result.slowest.all()] == [2000]
    row = result.tables.apis["Fetch"]
    assert (row.wait_us.count, row.service_us.count, row.undetermined) == (3, 1, 1)
    assert {kind: (each.us.max, each.undetermined) for kind, each in result.waits.items()} == {
        "Fetch": (499_000, 1),
        "Fetch (replica)": (100_000, 0),
    }


def test_what_delays_a_request_is_counted_by_its_cause() -> None:
    delayed, unknown = (
        exchange("Metadata", 9, {}, {}, parts=LatencyParts(*parts))
        for parts in ((1000, 20, 0, 0, 3980), (None, None, 0, 0, None))
    )
    result = traffic(Facts(delayed), Facts(unknown))
    assert {kind: (each.us.total, each.undetermined) for kind, each in result.waits.items()} == {
        "queued": (1000, 1),
        "throttled": (20, 1),
    }
    assert [slow.parts.service_us for slow in result.slowest.all()] == [3980]


def test_what_a_client_is() -> None:
    software = {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}
    result = traffic(
        produce(0, principal="User:alice", **software),
        produce(0, connection=connection("beef", client="10.0.0.6")),
    )
    client = result.tables.clients["shop", None]
    assert client.software.first(5) == ["librdkafka 2.16.0"]
    assert client.addresses.first(5) == ["10.0.0.5", "10.0.0.6"]
    assert client.principals.first(5) == ["User:alice"]
    assert len(client.connections) == 2
    assert client.apis == {"Produce": 2}
    assert result.tables.apis["Produce"].versions == {7: 2}
    assert len(result.tables.brokers["10.0.0.1:9092"].connections) == 2
    assert result.tables.connections["beef"].client_address == "10.0.0.6:41234"


def test_groups_and_connections_are_counted_only_on_request() -> None:
    facts = Facts(exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 0}, client_id="reader"))
    assert traffic(facts).tables.groups["g"].apis == {"Heartbeat": 1}
    result = fed(Traffic(DEFAULT), facts)
    assert (dict(result.tables.groups), dict(result.tables.connections)) == ({}, {})


def unanswered(number: int, age_s: float, *, ended: bool | None = True) -> Facts:
    completed_ns = START_NS + round(age_s * 1e9)
    more = {"number": number, "client_id": "shop", "completed_ns": completed_ns, "ended": ended}
    return Facts(exchange("Metadata", 9, {"topics": []}, **more))


def test_the_oldest_unanswered_requests_come_first() -> None:
    result = traffic(
        *(unanswered(1, 2), unanswered(2, 9), unanswered(3, 4), produce(0)),
        *(unanswered(4, 20, ended=False), unanswered(5, 50, ended=None)),
        slowest=2,
    )
    assert [(each.exchange, each.age_us, each.api) for each in result.unanswered.all()] == [
        ("c0ffee/2", 9_000_000, "Metadata"),
        ("c0ffee/3", 4_000_000, "Metadata"),
    ]
    api = result.tables.apis["Metadata"]
    assert (api.no_answer, api.pending, api.kinds["unanswered"]) == (3, 1, 5)
    assert (result.tables.all.no_answer, result.tables.clients["shop", None].no_answer) == (3, 3)


def test_expected_errors_are_counted_apart() -> None:
    moved = {"expected_errors": ("NOT_LEADER_OR_FOLLOWER",)}
    result = traffic(produce(6, **moved), produce(6, number=2), produce(87, number=3))
    api = result.tables.apis["Produce"]
    assert (api.failed, api.expected) == (2, 1)
    (failures,) = [each for key, each in result.failures.items() if key.error == "NOT_LEADER_OR_FOLLOWER"]
    assert (failures.count, failures.expected) == (2, 1)
