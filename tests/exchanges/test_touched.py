from __future__ import annotations

from typing import Any

import pytest

from kdissect.exchanges.touched import touched
from kdissect.kafka.records import RecordData
from tests.exchange_factory import exchange

ORDERS = "5RzwtLHbTWqVAuyWxeBeRQ"


def test_both_structs_of_a_partition_stand_side_by_side() -> None:
    requested = {"topics": [{"topic": "orders", "partitions": [{"partition": 3, "fetch_offset": 41}]}]}
    records = RecordData(b"", 0, 0)
    answer = {"partition_index": 3, "error_code": 6, "high_watermark": 57, "records": records}
    responded = {"responses": [{"topic": "orders", "partitions": [answer]}]}
    (result,) = touched(exchange("Fetch", 4, requested, responded))
    assert (result.topic, result.topic_id, result.partition, result.error) == ("orders", None, 3, 6)
    assert (result.value("fetch_offset"), result.value("high_watermark")) == (41, 57)
    assert (result.fetched, result.produced) == (records, None)
    assert result.value("nothing of that name") is None


def test_what_only_one_of_them_names() -> None:
    # An incremental fetch names what changed only (KIP-227).
    requested = {"topics": [{"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 1}]}]}
    responded = {"responses": [{"topic": "orders", "partitions": [{"partition_index": 1, "error_code": 0}]}]}
    first, second = touched(exchange("Fetch", 7, requested, responded))
    assert (first.partition, bool(first.request), bool(first.response), first.error) == (0, True, False, None)
    assert (second.partition, bool(second.request), bool(second.response), second.error) == (
        1,
        False,
        True,
        0,
    )


@pytest.mark.parametrize(("names", "topic"), [({}, ORDERS), ({ORDERS: "orders"}, "orders")])
def test_a_topic_id_is_named_where_it_was_learned(names: dict[str, str], topic: str) -> None:
    requested = {"topics": [{"topic_id": ORDERS, "partitions": [{"partition": 0, "fetch_offset": 1}]}]}
    (result,) = touched(exchange("Fetch", 13, requested, {"responses": []}, topic_ids=names))
    assert (result.topic, result.topic_id) == (topic, ORDERS)


def test_groups_side_by_side_are_distinguished() -> None:
    def group(name: str, offset: int) -> dict[str, Any]:
        partition = {"partition_index": 0, "committed_offset": offset, "error_code": 0}
        return {"group_id": name, "topics": [{"name": "orders", "partitions": [partition]}], "error_code": 0}

    responded = {"throttle_time_ms": 0, "groups": [group("a", 1), group("b", 2)]}
    result = touched(exchange("OffsetFetch", 8, {"groups": []}, responded))
    assert [(each.group, each.value("committed_offset")) for each in result] == [("a", 1), ("b", 2)]


def test_what_describes_a_cluster_touches_nothing() -> None:
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 1}
    responded = {"topics": [{"name": "orders", "partitions": [partition]}]}
    assert touched(exchange("Metadata", 9, {"topics": []}, responded)) == []


def test_bodies_that_end_early() -> None:
    assert touched(exchange("Fetch", 4, {}, {})) == []
    assert touched(exchange("Fetch", 4, {"topics": [{"topic": "orders"}]}, None)) == []
    assert touched(exchange("Fetch", 4, {"topics": [{"topic": "orders", "partitions": [{}]}]}, None)) == []
    assert touched(exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 0})) == []
