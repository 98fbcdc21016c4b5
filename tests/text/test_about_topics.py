from __future__ import annotations

from kdissect.kafka.records import RecordData
from kdissect.text.about import (
    no_records,
    partitions_of,
    partitions_with_records,
    topics_text,
)
from tests.exchange_factory import exchange

TOPIC_ID = "AaH9bNnceCGcRuXtjz1Y_A"


def test_topics_with_their_partitions() -> None:
    topics = [
        {"name": "orders", "partitions": [{"index": 0}, {"index": 1}]},
        {"topic": "payments", "partition_indexes": list(range(12))},
        {"topic_name": "refunds"},
    ]
    assert topics_text(exchange(), topics) == "orders-0,1, payments (12 partitions), refunds"
    assert (
        topics_text(exchange(), topics * 3)
        == "orders-0,1, payments (12 partitions), refunds and 6 more topics"
    )
    assert topics_text(exchange(), None) == topics_text(exchange(), []) == ""


def test_ids_are_resolved_where_the_name_was_learned() -> None:
    topics = [{"topic_id": TOPIC_ID, "partitions": [3]}]
    assert topics_text(exchange(), topics) == f"<id {TOPIC_ID}>-3"
    assert topics_text(exchange(topic_ids={TOPIC_ID: "orders"}), topics) == "orders-3"


def test_a_topic_named_for_each_partition_is_named_once() -> None:
    flat = [{"topic_name": "orders", "partition_index": number} for number in (0, 2)]
    assert topics_text(exchange(), flat) == "orders-0,2"


def test_partial_structs() -> None:
    assert partitions_of({"name": "orders", "partitions": [{"index": 1}, {}]}) == [1, "?"]
    assert topics_text(exchange(), [{}]) == ""


def test_partitions_that_carry_records() -> None:
    some, none = RecordData(bytes(100), 10, 90), RecordData(b"", 0, 0)
    partitions = [{"index": 0, "records": none}, {"index": 1, "records": some}, {"index": 2, "records": None}]
    topics = [{"name": "orders", "partitions": partitions}, {"name": "payments"}]
    carrying, records = partitions_with_records(topics)
    assert records == [some]
    assert topics_text(exchange(), carrying) == "orders-1"
    assert partitions_with_records(None) == ([], [])


def test_only_a_complete_body_shows_that_there_are_no_records() -> None:
    assert no_records([]) == "no records"
    assert no_records([{"name": "orders", "partitions": [{"records": None}]}]) == "no records"
    assert no_records(None) == ""
    assert no_records([{"name": "orders", "partitions": [{"records": None}, {"index": 1}]}]) == ""
