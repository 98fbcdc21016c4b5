from __future__ import annotations

from typing import Any

from kdissect.kafka.records import RecordData
from kdissect.tables.partitions import PARTITIONS, rows
from tests.exchange_factory import exchange
from tests.record_batches import GZIP, Item, batch

ORDERS = "5RzwtLHbTWqVAuyWxeBeRQ"


def shown(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """The rows of an exchange, without null and empty values."""
    example = exchange(*arguments, **options)
    values = [{column.name: column.get(row) for column in PARTITIONS.columns} for row in rows(example)]
    return [{name: value for name, value in row.items() if value not in (None, [])} for row in values]


def data(*batches: bytes) -> RecordData:
    joined = b"".join(batches)
    return RecordData(joined, 0, len(joined))


def produce(records: RecordData | None, answer: Any) -> dict[str, Any]:
    request = {"acks": -1, "transactional_id": "tx",
             "topic_data": [{"name": "t", "partition_data": [{"index": 2, "records": records}]}]}  # fmt: skip
    response = {"responses": [{"name": "t", "partition_responses": [{"index": 2, **answer}]}]}
    (row,) = shown("Produce", 8, request, response)
    return row


def test_produced() -> None:
    records = data(batch([Item(), Item()], producer_id=7, producer_epoch=1, base_sequence=40))
    row = produce(records, {"error_code": 0, "base_offset": 100, "log_start_offset": 3})
    expected = {"topic": "t", "partition": 2, "error_code": 0, "bytes": len(records), "records": 2,
                "batches": 1, "control_batches": 0, "markers": 0, "compression": ["none"], "magic": 2,
                "producer_id": 7, "producer_epoch": 1, "base_sequence": 40, "base_offset": 100,
                "log_start_offset": 3, "transactional_id": "tx"}  # fmt: skip
    assert {name: row.get(name) for name in expected} == expected
    assert row["transactional"] is False
    assert not {"error", "last_offset", "fetch_offset", "topic_id", "group_id"} & row.keys()


def test_produced_and_refused() -> None:
    row = produce(data(batch([Item()])), {"error_code": 6, "base_offset": -1})
    assert (row["error"], row["error_code"], row["base_offset"]) == ("NOT_LEADER_OR_FOLLOWER", 6, -1)


def test_fetched() -> None:
    records = data(batch([Item(), Item()], base_offset=50), batch([Item()], codec=GZIP, base_offset=60))
    answer = {"partition_index": 0, "error_code": 0, "high_watermark": 75, "last_stable_offset": 70,
              "log_start_offset": 5, "records": records}  # fmt: skip
    request = {"partition": 0, "fetch_offset": 51, "current_leader_epoch": 9}
    (row,) = shown(
        "Fetch",
        13,
        {"topics": [{"topic_id": ORDERS, "partitions": [request]}]},
        {"responses": [{"topic_id": ORDERS, "partitions": [answer]}]},
        topic_ids={ORDERS: "orders"},
    )
    expected = {"topic": "orders", "topic_id": ORDERS, "bytes": len(records), "records": 3, "batches": 2,
                "control_batches": 0, "markers": 0, "compression": ["none", "gzip"],
                "base_offset": 50, "last_offset": 60,
                "fetch_offset": 51,
                "high_watermark": 75, "last_stable_offset": 70, "log_start_offset": 5, "fetch_lag": 24,
                "leader_epoch": 9}  # fmt: skip
    assert {name: row.get(name) for name in expected} == expected


def test_a_topic_of_which_only_the_id_is_known() -> None:
    request = {"topics": [{"topic_id": ORDERS, "partitions": [{"partition": 0, "fetch_offset": 1}]}]}
    (row,) = shown("Fetch", 13, request)
    assert row["topic_id"] == ORDERS
    assert not {"topic", "fetch_lag", "error_code", "bytes"} & row.keys()


def test_committed() -> None:
    request = {"group_id": "g", "topics": [{"name": "t", "partitions": [
        {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 4}]}]}  # fmt: skip
    response = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 22}]}]}
    (row,) = shown("OffsetCommit", 8, request, response)
    assert (row["group_id"], row["committed_offset"], row["leader_epoch"]) == ("g", 7, 4)
    assert row["error"] == "ILLEGAL_GENERATION"


def test_exchanges_that_describe_a_cluster_have_no_rows() -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]
    assert shown("Metadata", 9, {}, {"topics": topics}) == []


def test_the_newest_record() -> None:
    records = data(batch([Item()], max_ms=1_700_000_000_000), batch([Item()], max_ms=1_600_000_000_000))
    row = produce(records, {"error_code": 0, "base_offset": 1})
    assert row["max_timestamp"] == 1_700_000_000_000_000_000


def test_list_offsets() -> None:
    request = {
        "replica_id": -1,
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }
    response = {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 9, "timestamp": 5}]}]
    }
    (row,) = shown("ListOffsets", 5, request, response)
    assert (row["requested_timestamp_ms"], row["offset"]) == (-1, 9)


def test_a_broker_that_copies() -> None:
    request = {
        "replica_id": 2,
        "topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 3}]}],
    }
    (row,) = shown("Fetch", 11, request, None)
    assert row["replica_id"] == 2
