from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kdissect.exchanges.partition_records import decode_batches, partition_records
from kdissect.kafka.records import RecordData
from kdissect.tables.columns import RECORD, text_getter
from tests.exchange_factory import START_NS, exchange
from tests.record_batches import BASE_MS, Item, batch
from tests.record_exchanges import fetch, opened, produce

if TYPE_CHECKING:
    from kdissect.model import Exchange

# The contract, repeated: a change here breaks programs that read our output.
CONTRACT = """\
capture string, connection string, number int64, time timestamp, request_time timestamp
api string, correlation_id int32, client_id string
client_ip string, client_port int32, broker_ip string, broker_port int32, cluster_id string
topic string, topic_id string, partition int32, offset int64
before_fetch_offset boolean, e2e_latency_us int64, also_in string, error string
timestamp timestamp, timestamp_type string
key string, key_encoding string, value string, value_encoding string
key_schema_id int32, key_schema_guid string, schema_id int32, schema_guid string
headers array<struct<key:string;value:string;value_encoding:string>>
trace_id string, span_id string, trace_format string
magic int16, compression string, base_offset int64, producer_id int64, producer_epoch int16
base_sequence int32, leader_epoch int32
transactional boolean, control boolean, control_type string, aborted boolean
anomalies array<struct<kind:string;where:string;detail:string>>"""

GUID = UUID("7e6be6ae-3a1c-4c9c-8f0e-1d3a5b7c9e10")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_names_and_types_are_the_contract() -> None:
    contract = [tuple(entry.split()) for line in CONTRACT.splitlines() for entry in line.split(", ")]
    assert [(c.name, str(c.type).replace(",", ";")) for c in RECORD] == contract


def test_names_are_unique_in_any_case() -> None:
    assert len({column.name.lower() for column in RECORD}) == len(RECORD)


def one_record(record: Item, **options: Any) -> dict[str, Any]:
    """The columns of a fetched record."""
    raw = batch([record], **options)
    partitions = [{"partition_index": 3, "records": RecordData(raw, 0, len(raw))}]
    example = exchange("Fetch", 3, {}, {"responses": [{"topic": "orders", "partitions": partitions}]})
    (carrier,) = partition_records(example)
    (records,) = decode_batches(carrier)
    (row,) = records
    return {column.name: text_getter(column)(row) for column in RECORD}


def test_a_record() -> None:
    item = Item(b"k", b"\xff", ((b"h", b"x"), (b"h", None)), timestamp_ms=BASE_MS)
    row = one_record(item, base_offset=7, producer_id=9, base_sequence=4, leader_epoch=2)
    assert (row["topic"], row["topic_id"], row["partition"], row["offset"]) == ("orders", None, 3, 7)
    assert (row["timestamp"], row["timestamp_type"]) == ("2023-11-14T22:13:20.000000Z", "CreateTime")
    assert (row["key"], row["key_encoding"]) == ("k", "utf-8")
    assert (row["value"], row["value_encoding"]) == ("/w==", "base64")
    assert [list(header.values()) for header in row["headers"]] == [["h", "x", "utf-8"], ["h", None, None]]
    assert (row["producer_id"], row["base_sequence"], row["leader_epoch"], row["base_offset"]) == (9, 4, 2, 7)
    assert (row["transactional"], row["control"], row["control_type"], row["aborted"]) == (
        False,
        False,
        None,
        None,
    )


def test_the_times_of_a_record_are_those_of_the_message_with_it_and_of_the_request() -> None:
    get = {column.name: column.get for column in RECORD}

    def times(example: Exchange) -> tuple[int, int | None]:
        (row,) = opened(example)
        return get["time"](row), get["request_time"](row)

    produced, fetched = produce(batch([Item()]), {"base_offset": 7}), fetch(batch([Item()]))
    assert times(produced) == (START_NS, START_NS)
    assert times(fetched) == (START_NS + 5_000_000, START_NS)
    orphan = fetch(batch([Item()]))
    orphan.request_frame = None
    assert times(orphan) == (START_NS + 5_000_000, None)


def test_end_to_end_latency() -> None:
    get = next(column.get for column in RECORD if column.name == "e2e_latency_us")
    fetched = fetch(batch([Item()], base_offset=7))
    (row,) = opened(fetched)
    assert get(row) is None
    fetched.produced_ns = {("orders", 3, 7, BASE_MS): START_NS - 1_000_000}
    assert get(row) == 6_000
    (other,) = opened(fetch(batch([Item()], base_offset=8)))
    other.source.exchange.produced_ns = fetched.produced_ns
    assert get(other) is None


def test_a_record_without_a_time() -> None:
    row = one_record(Item(None, None, timestamp_ms=-1), base_ms=-1)
    assert row["timestamp"] is None
    assert [row[name] for name in ("key", "key_encoding", "value", "value_encoding")] == [None] * 4


def test_a_record_of_any_time_can_be_written() -> None:
    assert one_record(Item(timestamp_ms=2**62), base_ms=2**62)["timestamp"].startswith("+146140482")


def test_schemas() -> None:
    row = one_record(Item(pack(">bi", 0, 3) + b"k", pack(">bi", 0, 17) + b"{}"))
    assert (row["key_schema_id"], row["schema_id"], row["schema_guid"]) == (3, 17, None)
    row = one_record(Item(b"k", b"{}", ((b"__value_schema_id", b"\1" + GUID.bytes),)))
    assert (row["key_schema_id"], row["schema_id"], row["schema_guid"]) == (None, None, str(GUID))
    row = one_record(Item(b"k", b"{}", ((b"__key_schema_id", b"\1" + GUID.bytes),)))
    assert (row["key_schema_guid"], row["schema_guid"]) == (str(GUID), None)


def test_traces() -> None:
    row = one_record(Item(headers=((b"traceparent", f"00-{TRACE}-{SPAN}-01".encode()),)))
    assert (row["trace_id"], row["span_id"], row["trace_format"]) == (TRACE, SPAN, "w3c")
    row = one_record(Item(headers=((b"traceparent", None),)))
    assert (row["trace_id"], row["span_id"], row["trace_format"]) == (None, None, None)


def test_anomalies_are_those_of_the_batch() -> None:
    (anomaly,) = one_record(Item(), crc=1)["anomalies"]
    assert (anomaly["kind"], anomaly["where"]) == ("crc_mismatch", "response")
    assert one_record(Item())["anomalies"] == []
