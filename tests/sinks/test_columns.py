from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kdissect.analysis.carried import carried, open_carried
from kdissect.analysis.where import compile_where
from kdissect.errors import UsageError
from kdissect.kafka.records import RecordData
from kdissect.model import Anomaly
from kdissect.sinks import columns
from kdissect.sinks.csvlines import CsvLines
from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.types import DATE, INT16, INT32, INT64, OBJECT, STRING, TIMESTAMP, Array, Scalar
from tests.exchanges import INTERFACE, START_NS, exchange, frame
from tests.record_batches import BASE_MS, Item, batch

# The contract, written once more: a change here breaks somebody's reader.
CONTRACT = """\
capture string, connection string, number int64, packet int64, kind string, time timestamp, latency_us int64
client_ip string, client_port int32, broker_ip string, broker_port int32
client_id string, client_software_name string, client_software_version string
principal string, sasl_mechanism string
api string, api_key int16, api_version int16, correlation_id int32, request_bytes int64, response_bytes int64
topics array<string>, group_id string, transactional_id string, errors array<string>, throttle_time_ms int32
records int64, records_bytes int64, request object, response object
anomalies array<struct<kind:string;where:string;detail:string>>"""

CONTRACT_OF_RECORDS = """\
capture string, connection string, number int64, time timestamp, api string, correlation_id int32
client_id string, topic string, topic_id string, partition int32, offset int64
timestamp timestamp, timestamp_type string
key string, key_encoding string, value string, value_encoding string
headers array<struct<key:string;value:string;value_encoding:string>>
magic int16, compression string, base_offset int64, producer_id int64, producer_epoch int16
base_sequence int32, leader_epoch int32
transactional boolean, control boolean, control_type string, aborted boolean"""

PYTHON_TYPES = {STRING: str, INT16: int, INT32: int, INT64: int, TIMESTAMP: int, DATE: str, OBJECT: dict}


def test_names_and_types_are_the_contract() -> None:
    for contract, found in ((CONTRACT, columns.EXCHANGE), (CONTRACT_OF_RECORDS, columns.RECORD)):
        told = [tuple(entry.split()) for line in contract.splitlines() for entry in line.split(", ")]
        assert [(c.name, str(c.type).replace(",", ";")) for c in found] == told


def test_names_are_unique_in_any_case() -> None:
    names = [column.name.lower() for column in columns.EXCHANGE + columns.EXPORT_ONLY]
    assert len(names) == len(set(names))


def one_record(record: Item, **options: Any) -> dict[str, Any]:
    """The columns of a record that was fetched."""
    raw = batch([record], **options)
    partitions = [{"partition_index": 3, "records": RecordData(raw, 0, len(raw))}]
    found = exchange("Fetch", 3, {}, {"responses": [{"topic": "orders", "partitions": partitions}]})
    (carrier,) = carried(found)
    ((_, opened),) = open_carried(carrier)
    (row,) = opened
    return {column.name: columns.text_getter(column)(row) for column in columns.RECORD}


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


def test_a_record_without_a_time() -> None:
    row = one_record(Item(None, None, timestamp_ms=-1), base_ms=-1)
    assert row["timestamp"] is None
    assert [row[name] for name in ("key", "key_encoding", "value", "value_encoding")] == [None] * 4


def test_a_record_of_any_time_can_be_written() -> None:
    assert one_record(Item(timestamp_ms=2**62), base_ms=2**62)["timestamp"].startswith("+146140482")


def test_values_have_their_columns_types() -> None:
    full = exchange(
        "Metadata",
        9,
        {"topics": [{"name": "orders"}]},
        {"throttle_time_ms": 0, "topics": [{"error_code": 3}]},
        client_id="app",
        anomalies=[Anomaly("left_over", "request", "3 bytes")],
    )
    for column in columns.EXCHANGE + columns.EXPORT_ONLY:
        value = column.get(full)
        if isinstance(column.type, Array):
            assert isinstance(value, list), column.name
        elif value is not None:
            assert isinstance(column.type, Scalar)
            assert isinstance(value, PYTHON_TYPES[column.type]), column.name


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a.pcap", "a.pcap"), ("f\u00fcr.pcap", "f\u00fcr.pcap"), ("\udcff\udc80.pcap", "\\udcff\\udc80.pcap")],
)
def test_a_file_can_have_any_name(name: str, shown: str) -> None:
    made = exchange()
    made.request_frame = frame()._replace(interface=replace(INTERFACE, capture=name))
    (column,) = (column for column in columns.EXCHANGE if column.name == "capture")
    assert column.get(made) == shown
    for sink in (JsonLines, CsvLines):
        chunks: list[bytes] = []
        lines = sink(chunks.append)
        lines.feed(made)
        lines.close()
        assert shown.encode() in b"".join(chunks).replace(b"\\\\", b"\\")


def test_orphan() -> None:
    made = exchange(None, response={}, correlation_id=7)
    row = {column.name: columns.text_getter(column)(made) for column in columns.EXCHANGE}
    assert row["kind"] == "orphan"
    assert row["packet"] == 9
    assert row["time"] == "2026-09-21T14:13:20.123456Z"
    absent = ("latency_us", "api", "api_key", "api_version", "client_id", "request_bytes", "request")
    assert [row[name] for name in absent] == [None] * len(absent)
    assert (row["correlation_id"], row["response_bytes"], row["topics"], row["errors"]) == (7, 200, [], [])


def test_api_that_is_not_known_keeps_its_number() -> None:
    made = exchange(None, 3, {}, api_key=200, api_version=3)
    by_name = {column.name: column.get(made) for column in columns.EXCHANGE}
    assert (by_name["api"], by_name["api_key"], by_name["api_version"]) == (None, 200, 3)


def test_export_only() -> None:
    values = {column.name: column.get(exchange()) for column in columns.EXPORT_ONLY}
    assert values == {"date": "2026-09-21", "time_ns": START_NS}


def test_a_latency_below_zero_is_shown() -> None:
    made = exchange("Metadata", 9, {}, {}, latency_ns=-1500)
    assert next(c for c in columns.EXCHANGE if c.name == "latency_us").get(made) == -2


def test_markdown_has_a_row_for_each_column() -> None:
    text = columns.markdown()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows]
    assert names == [column.name for column in columns.EXCHANGE + columns.EXPORT_ONLY + columns.RECORD]
    assert all(row.count(" | ") == 3 for row in rows)
    assert text.endswith("\n")


def test_sentences_end() -> None:
    for column in columns.EXCHANGE + columns.EXPORT_ONLY + columns.RECORD:
        assert column.sentence.endswith("."), column.name
        assert "|" not in column.sentence


@pytest.mark.parametrize("column", columns.EXCHANGE, ids=lambda column: str(column.name))
def test_every_column_resolves(column: columns.Column) -> None:
    reference = columns.resolve(column.name)
    assert reference.needs_bodies == column.needs_bodies
    reference.get(exchange())


def test_resolve_reads_times_as_text() -> None:
    assert columns.resolve("time").get(exchange()) == "2026-09-21T14:13:20.123456Z"


def test_resolve_paths() -> None:
    made = exchange(
        "Metadata", 9, {"topics": [{"name": "a"}, {"name": "b"}]}, anomalies=[Anomaly("gap", "x", "y")]
    )
    assert columns.resolve("request.topics.name").get(made) == ["a", "b"]
    assert columns.resolve("anomalies.kind").get(made) == ["gap"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("latency", 'no column "latency"; did you mean "latency_us"?'),
        ("Topics", 'no column "Topics"; did you mean "topics"?'),
        ("qqqqqq", 'no column "qqqqqq"; a text stands in quotes ("qqqqqq"), docs/columns.md has the columns'),
        ("kafka.api_key", 'no column "kafka"; did you mean "api_key"?'),
        (
            "kafka.xyzzy",
            'no column "kafka"; a text stands in quotes ("kafka"), docs/columns.md has the columns',
        ),
        ("client_id.x", 'no "x" in column client_id; it has no parts'),
        ("anomalies.sort", 'no "sort" in column anomalies; its parts are kind, where, detail'),
        ("topics.name", 'no "name" in column topics; it has no parts'),
    ],
)
def test_resolve_names_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        columns.resolve(name)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "objection"),
    [
        ('api == "Fecth"', 'no api "Fecth"; did you mean "Fetch"?'),
        ('"Fecth" != api', 'no api "Fecth"; did you mean "Fetch"?'),
        ('kind == "orfan"', 'no kind "orfan"; did you mean "orphan"?'),
        ('"NOT_LEADER" in errors', 'no error "NOT_LEADER"; did you mean "NOT_LEADER_OR_FOLLOWER"?'),
        ("api == 1", "api is a text; write it in quotes"),
        ("5 in topics", "topics is a text; write it in quotes"),
        ("time > 2026", "time is a text; write it in quotes"),
        ('client_port == "58808"', "client_port is a number; write it without quotes"),
        ('1 < 2 and latency_us > "50"', "latency_us is a number; write it without quotes"),
    ],
)
def test_what_a_column_can_never_be_is_told(text: str, objection: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_where(text, columns.resolve)
    reason, shown, carets = str(caught.value).split("\n")
    assert reason == f"--where: {objection}"
    assert shown.strip() == text
    assert "^" in carets


@pytest.mark.parametrize(
    "text",
    [
        *(
            '"Fet" in api',
            'api < "M"',
            'api in ["Fetch", "x"]',
            "api == null",
            'errors == "UNKNOWN_ERROR_999"',
        ),
        *('"5" + 1 == api_key', "latency_us == 1.5", 'request.acks == "x"', "records_bytes / records < 9"),
        *('client_id == "5"', 'anomalies.kind == "gap"', "kind == client_id", 'not "x" in topics'),
    ],
)
def test_what_may_be_is_not_objected_to(text: str) -> None:
    compile_where(text, columns.resolve)
