"""What kafka-python and aiokafka put into the bytes of a group, decoded by us."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioStickyAssignor,
)
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.structs import TopicPartition as AioTopicPartition

from kdissect.kafka.internal.payloads import Context, GroupProtocol, decode_payload
from kdissect.model import Body, Embedded
from tests.kafka.internal.framed import shown
from tests.kafka.oracles import kafka_python  # noqa: F401  silences what importing kafka warns about
from tests.kafka.oracles.both import LETTERS

# Only now, see above.
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor  # isort: skip
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData  # isort: skip
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription  # isort: skip
from kafka.structs import TopicPartition  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Callable

STICKY = Context(GroupProtocol("consumer", "sticky"))
RANGE = Context(GroupProtocol("consumer", "range"))
INSTANCES = 20


def text(random: Random) -> str:
    return "".join(random.choices(LETTERS, k=random.choice([1, 3, 20])))


def assigned(random: Random) -> list[Body]:
    partitions = [random.randrange(2**31) for _ in range(random.choice([0, 1, 5]))]
    return [{"topic": text(random), "partitions": partitions} for _ in range(random.choice([0, 1, 4]))]


def body_of(role: str, data: bytes, context: Context = RANGE) -> Body:
    result = decode_payload(role, data, context)
    assert isinstance(result, Embedded)
    return shown(result.decoded)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_kafka_python(version: int, oracle: Callable[..., None]) -> None:
    random = Random(version)
    for _ in range(INSTANCES):
        body: Body = {
            "topics": [text(random) for _ in range(3)],
            "user_data": random.choice([None, b"", b"x"]),
        }
        more: Body = {"owned_partitions": assigned(random), "generation_id": 7, "rack_id": "r"}
        partitions = [ConsumerProtocolSubscription.TopicPartition(**one) for one in more["owned_partitions"]]
        theirs = ConsumerProtocolSubscription(
            version=version, **body, **more | {"owned_partitions": partitions}
        )
        names = [*body, *list(more)[:version]]
        expected = {name: (body | more)[name] for name in names}
        assert body_of("subscription", theirs.encode()) == expected
    oracle("payloads of kafka-python", instances=INSTANCES)


@pytest.mark.parametrize("version", range(4))
def test_assignments_of_kafka_python(version: int, oracle: Callable[..., None]) -> None:
    random = Random(version)
    for _ in range(INSTANCES):
        body: Body = {"assigned_partitions": assigned(random), "user_data": random.choice([None, b"", b"x"])}
        partitions = [ConsumerProtocolAssignment.TopicPartition(**one) for one in body["assigned_partitions"]]
        theirs = ConsumerProtocolAssignment(version=version, **body | {"assigned_partitions": partitions})
        assert body_of("assignment", theirs.encode()) == body
    oracle("payloads of kafka-python", instances=INSTANCES)


@pytest.mark.parametrize("version", range(2))
def test_sticky_user_data_of_kafka_python(version: int, oracle: Callable[..., None]) -> None:
    random = Random(version)
    for _ in range(INSTANCES):
        body: Body = {"previous_assignment": assigned(random)}
        more: Body = {"generation": random.randrange(2**31)} if version else {}
        partitions = [StickyAssignorUserData.TopicPartition(**one) for one in body["previous_assignment"]]
        theirs = StickyAssignorUserData(version=version, previous_assignment=partitions, **more)
        for data in (theirs.encode(header=False), theirs.encode()):  # as Kafka, and as it sends it itself
            assert body_of("subscription_data", bytes(data), STICKY) == body | more
    oracle("payloads of kafka-python", instances=INSTANCES)


def tuples(partitions: list[Body]) -> list[tuple[Any, ...]]:
    return [tuple(one.values()) for one in partitions]


def test_subscriptions_of_aiokafka(oracle: Callable[..., None]) -> None:
    random = Random(4)
    for _ in range(INSTANCES):
        body: Body = {"topics": [text(random) for _ in range(3)], "user_data": b"mine"}
        assert body_of("subscription", ConsumerProtocolMemberMetadata(0, *body.values()).encode()) == body
    oracle("payloads of aiokafka", instances=INSTANCES)


def test_assignments_of_aiokafka(oracle: Callable[..., None]) -> None:
    random = Random(5)
    for _ in range(INSTANCES):
        body: Body = {"assigned_partitions": assigned(random), "user_data": b""}
        theirs = ConsumerProtocolMemberAssignment(0, tuples(body["assigned_partitions"]), b"")
        assert body_of("assignment", theirs.encode()) == body
    oracle("payloads of aiokafka", instances=INSTANCES)


def test_sticky_user_data_of_aiokafka(oracle: Callable[..., None]) -> None:
    random = Random(6)
    for _ in range(INSTANCES):
        body: Body = {"previous_assignment": assigned(random), "generation": 5}
        theirs = StickyAssignorUserDataV1(tuples(body["previous_assignment"]), 5)
        assert body_of("subscription_data", theirs.encode(), STICKY) == body
    oracle("payloads of aiokafka", instances=INSTANCES)


def aiokafka_subscription() -> bytes:
    partitions = [AioTopicPartition("orders", 0), AioTopicPartition("orders", 3)]
    return bytes(AioStickyAssignor._metadata(["orders"], partitions, 8).encode())


def kafka_python_subscription() -> bytes:
    partitions = [TopicPartition("orders", 0), TopicPartition("orders", 3)]
    return bytes(StickyPartitionAssignor._metadata(["orders"], partitions, 8).encode())


@pytest.mark.parametrize("subscription", [aiokafka_subscription, kafka_python_subscription])
def test_a_whole_sticky_subscription(subscription: Callable[[], bytes]) -> None:
    result = body_of("subscription", subscription(), STICKY)
    assert result["topics"] == ["orders"]
    assert shown(result["user_data"].decoded) == {
        "previous_assignment": [{"topic": "orders", "partitions": [0, 3]}],
        "generation": 8,
    }


def test_a_cooperative_generation_alone() -> None:
    context = Context(GroupProtocol("consumer", "cooperative-sticky"))
    assert body_of("subscription_data", pack(">i", 12), context) == {"generation": 12}
