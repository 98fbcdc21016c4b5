from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.exchanges.partition_records import decode_batches, partition_records
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded, Redacted
from tests.exchange_factory import exchange
from tests.record_batches import BASE_MS, COMMIT_KEY, CONTROL, Item, batch

if TYPE_CHECKING:
    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.model import Exchange

TOPIC_ID = "5RzwtLHbTWqVAuyWxeBeRQ"
CLUSTER_METADATA_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
TWO = batch([Item(b"a", b"1"), Item(b"b", b"2")])


def data(raw: bytes = TWO) -> RecordData:
    return RecordData(b"??" + raw, 2, 2 + len(raw))


def records_in(sample: Exchange, **options: Any) -> list[CarriedRecord]:
    return [
        record
        for each in partition_records(sample)
        for records in decode_batches(each, **options)
        for record in records
    ]


def produce(answer: dict[str, Any] | None, *, version: int = 9, **topic: Any) -> Exchange:
    topic = topic or {"name": "orders"}
    sent = {"topic_data": [{**topic, "partition_data": [{"index": 3, "records": data()}]}]}
    response = None if answer is None else {"responses": [{**topic, "partition_responses": [answer]}]}
    return exchange("Produce", version, sent, response)


def fetch(raw: bytes = TWO, *, version: int = 11, partition: Any = None, **topic: Any) -> Exchange:
    partitions = [{"partition_index": 3, "records": data(raw), **(partition or {})}]
    return exchange(
        "Fetch", version, {}, {"responses": [{**(topic or {"topic": "orders"}), "partitions": partitions}]}
    )


def test_a_produce_counts_from_what_the_response_says() -> None:
    sample = records_in(produce({"index": 3, "error_code": 0, "base_offset": 40}))
    assert [record.offset for record in sample] == [40, 41]
    assert {(record.source.topic, record.source.partition, record.source.produced) for record in sample} == {
        ("orders", 3, True)
    }


def test_without_such_a_response_there_are_no_offsets() -> None:
    for answer in (
        None,
        {"index": 3, "error_code": 6, "base_offset": 0},
        {"index": 3, "error_code": 0, "base_offset": -1},
        {"index": 4, "error_code": 0, "base_offset": 40},
    ):
        assert [record.offset for record in records_in(produce(answer))] == [None, None]


def test_topic_ids_become_names() -> None:
    sample = produce({"index": 3, "error_code": 0, "base_offset": 7}, version=13, topic_id=TOPIC_ID)
    assert [(each.topic, each.topic_id) for each in partition_records(sample)] == [(None, TOPIC_ID)]
    sample.topic_ids = {TOPIC_ID: "orders"}
    (each,) = partition_records(sample)
    assert (each.topic, each.topic_id, each.base_offset) == ("orders", TOPIC_ID, 7)
    assert each.names == ["orders", TOPIC_ID]


def test_a_fetch_has_offsets_and_aborted_transactions() -> None:
    raw = batch([Item()], base_offset=5, producer_id=9, flags=0x10)
    aborted = {"aborted_transactions": [{"producer_id": 9, "first_offset": 5}]}
    (record,) = records_in(fetch(raw, partition=aborted))
    assert (record.offset, record.batch.aborted, record.source.produced) == (5, True, False)
    (each,) = partition_records(fetch(raw))
    assert each.aborted is None


def test_share_fetches_and_snapshots() -> None:
    partitions = [{"partition_index": 0, "records": data()}]
    shard = exchange("ShareFetch", 1, {}, {"responses": [{"topic_id": TOPIC_ID, "partitions": partitions}]})
    assert [record.value for record in records_in(shard)] == [b"1", b"2"]

    def snapshot(position: int) -> Exchange:
        slices = [{"index": 0, "position": position, "unaligned_records": data()}]
        return exchange("FetchSnapshot", 0, {}, {"topics": [{"name": "", "partitions": slices}]})

    assert [record.value for record in records_in(snapshot(0))] == [Redacted(1), Redacted(1)]
    assert [record.offset for record in records_in(snapshot(0))] == [None, None]
    assert records_in(snapshot(100)) == []


def test_what_carries_no_records() -> None:
    assert list(partition_records(exchange("Metadata", 9, {"topics": []}, {"topics": []}))) == []
    assert list(partition_records(exchange("Fetch", 11, {}, None))) == []
    nothing = {"topic": "orders", "partitions": [{"partition_index": 3, "records": None}, {}]}
    assert list(partition_records(exchange("Fetch", 11, {}, {"responses": [nothing, {}]}))) == []


def test_control_records_have_names() -> None:
    raw = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")], flags=CONTROL)
    (record,) = records_in(fetch(raw))
    assert record.control == "COMMIT"
    assert isinstance(record.value, Embedded)
    (record,) = records_in(fetch(batch([Item(b"?", b"?")], flags=CONTROL)))
    assert (record.control, record.key) == ("unknown", b"?")


def test_the_metadata_log_shows_nothing_that_it_cannot_read() -> None:
    raw = batch([Item(b"k", b"v", ((b"h", b"x"),))])
    for topic in ({"topic_id": CLUSTER_METADATA_ID}, {"topic_id": "A" * 22}):
        sample = fetch(raw, version=13, **topic)
        (record,) = records_in(sample)
        assert (record.key, record.value, record.headers) == (Redacted(1), Redacted(1), ())
        (record,) = records_in(sample, show_secrets=True)
        assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))


def test_faults_stand_in_the_batch() -> None:
    (each,) = partition_records(fetch(batch([Item()], crc=1)))
    (sample,) = decode_batches(each)
    assert [(anomaly.kind, anomaly.where) for anomaly in sample.batch.anomalies] == [
        ("crc_mismatch", "response")
    ]


def test_log_append_time_of_a_produce_is_reported_by_the_response() -> None:
    expected = {"index": 3, "error_code": 0, "base_offset": 7, "log_append_time_ms": 1000}
    sample = records_in(produce(expected))
    assert {(record.timestamp_ms, record.timestamp_type) for record in sample} == {(1000, "LogAppendTime")}
    for answer in ({**expected, "log_append_time_ms": -1}, {**expected, "error_code": 6}, None):
        sample = records_in(produce(answer))
        assert {(record.timestamp_ms, record.timestamp_type) for record in sample} == {
            (BASE_MS, "CreateTime")
        }


def test_places_count_on_from_batch_to_batch() -> None:
    assert [record.ordinal for record in records_in(fetch(TWO + TWO))] == [0, 1, 2, 3]


def test_a_later_slice_of_a_snapshot_says_that_it_cannot_be_read() -> None:
    slices = [{"index": 0, "position": 100, "size": 900, "unaligned_records": data()}]
    sample = exchange("FetchSnapshot", 0, {}, {"topics": [{"name": "", "partitions": slices}]})
    (each,) = partition_records(sample)
    (records,) = decode_batches(each)
    assert [anomaly.kind for anomaly in records.batch.anomalies] == ["unaligned_records"]
    assert list(records) == []


def test_where_it_is() -> None:
    assert [each.place for each in partition_records(fetch())] == ["orders-3"]
    assert [each.place for each in partition_records(fetch(topic=""))] == ["3"]


def test_schemas_and_traces() -> None:
    value = b"\0\0\0\0\x11v"
    (record,) = records_in(fetch(batch([Item(value, value, ((b"b3", b"0" * 31 + b"1-" + b"1" * 16),))])))
    assert (str(record.schema), str(record.key_schema)) == ("17", "17")
    assert record.trace is not None
    assert record.trace.id == "0" * 31 + "1"
    for hidden in (
        fetch(batch([Item(value, value)]), topic="__cluster_metadata"),
        fetch(batch([Item(value, value)], flags=CONTROL)),
    ):
        (record,) = records_in(hidden)
        assert (record.schema, record.key_schema, record.trace) == (None, None, None)


@pytest.mark.parametrize("fetch_offset", [0, 41, 43, 45, 46, 99])
def test_records_before_the_requested_offset(fetch_offset: int) -> None:
    raw = batch([Item(b"a", b"%d" % number) for number in range(6)], base_offset=40)
    sample = fetch(raw)
    partition = {"partition": 3, "fetch_offset": fetch_offset}
    sample.request = {"topics": [{"topic": "orders", "partitions": [partition]}]}
    records = records_in(sample)
    assert [(record.offset, record.ordinal, record.value) for record in records] == [
        (40 + number, number, b"%d" % number) for number in range(6)
    ]
    assert [record.is_before_fetch for record in records] == [
        offset < fetch_offset for offset in range(40, 46)
    ]
    parts = [part for each in partition_records(sample) for part in decode_batches(each)]
    assert [{record.is_before_fetch for record in part} for part in parts] == (
        [{True}, {False}] if 40 < fetch_offset <= 45 else [{fetch_offset > 45}]
    )
    assert {part.batch.number for part in parts} == {6}


def test_what_a_request_does_not_name_is_not_known_to_be_before_it() -> None:
    assert [record.is_before_fetch for record in records_in(fetch())] == [None, None]
    assert [record.is_before_fetch for record in records_in(produce({"index": 3, "base_offset": 4}))] == [
        None,
        None,
    ]
