from __future__ import annotations

from typing import Any

from kdissect.exchanges.partition_records import field_values, plan_for
from kdissect.kafka import schema
from kdissect.kafka.bodies import BodyLayout

TOPIC_ID = "5RzwtLHbTWqVAuyWxeBeRQ"


def result(message: schema.Message | None, version: int, target: str, body: dict[str, Any]) -> list[Any]:
    assert message is not None
    plan = plan_for(BodyLayout(message, version), target)
    assert plan is not None
    return [(place.topic, place.topic_id, place.partition, place.value) for place in field_values(plan, body)]


def test_values_of_a_type_with_what_is_around_them() -> None:
    partitions = [{"index": 3, "records": b"1"}, {"index": 4, "records": None}, {"index": 5, "records": b"2"}]
    body = {"topic_data": [{"name": "orders", "partition_data": partitions}, {"name": "x"}]}
    assert result(schema.request(0), 9, "records", body) == [
        ("orders", None, 3, b"1"),
        ("orders", None, 5, b"2"),
    ]


def test_values_of_a_name() -> None:
    partitions = [{"index": 3, "base_offset": 40}]
    body = {"responses": [{"topic_id": TOPIC_ID, "partition_responses": partitions}]}
    assert result(schema.response(0), 13, "base_offset", body) == [(None, TOPIC_ID, 3, 40)]


def test_no_topic_id_is_none() -> None:
    body = {"responses": [{"topic_id": "A" * 22, "partitions": [{"partition_index": 0, "records": b"1"}]}]}
    assert result(schema.response(1), 13, "records", body) == [(None, None, 0, b"1")]


def test_a_layout_without_such_a_field() -> None:
    message = schema.request(3)
    assert message is not None
    assert plan_for(BodyLayout(message, 9), "records") is None
