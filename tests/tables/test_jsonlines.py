from __future__ import annotations

import json
import math
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.kafka.records import RecordData
from kdissect.model import Anomaly, Embedded, Exchange, Redacted
from kdissect.tables.columns import EXCHANGE
from kdissect.tables.lines import JsonLines
from kdissect.tables.values import json_bytes
from tests.exchange_factory import exchange
from tests.kafka import random_bodies


def written(*exchanges: Exchange) -> list[dict[str, Any]]:
    chunks: list[bytes] = []
    sink = JsonLines(chunks.append)
    for item in exchanges:
        sink.feed(item)
    sink.close()
    data = b"".join(chunks)
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def test_one_object_a_line_in_the_order_of_the_columns() -> None:
    rows = written(exchange(), exchange(number=2))
    assert [row["number"] for row in rows] == [1, 2]
    assert list(rows[0]) == [column.name for column in EXCHANGE]


def test_a_complete_row() -> None:
    example = exchange(
        "Metadata",
        9,
        {"topics": [{"name": "orders"}]},
        {"throttle_time_ms": 7, "topics": [{"error_code": 5, "name": "orders"}]},
        client_id="app",
        client_software_name="librdkafka",
        client_software_version="2.6.0",
        principal="alice",
        sasl_mechanism="PLAIN",
        anomalies=[Anomaly("trailing_bytes", "request", "3 bytes")],
    )
    assert written(example) == [
        {
            "capture": "test.pcap",
            "connection": "c0ffee",
            "number": 1,
            "packet": 7,
            "kind": "answered",
            "outcome": "answered",
            "time": "2026-09-21T14:13:20.123456Z",
            "latency_us": 5000,
            "queued_us": 0,
            "throttled_us": 0,
            "network_us": 0,
            "wait_us": 0,
            "service_us": 5000,
            "think_us": None,
            "request_transfer_us": None,
            "response_transfer_us": None,
            "total_us": None,
            "client_ip": "10.0.0.5",
            "client_port": 41234,
            "broker_ip": "10.0.0.1",
            "broker_port": 9092,
            "cluster_id": None,
            "hop_ip": None,
            "hop_port": None,
            "proxy": None,
            "community_id": "1:m+kyznPFbyu3mDVLmaL65+Rm6jQ=",
            "client_id": "app",
            "client_software_name": "librdkafka",
            "client_software_version": "2.6.0",
            "principal": "alice",
            "sasl_mechanism": "PLAIN",
            "api": "Metadata",
            "api_key": 3,
            "api_version": 9,
            "correlation_id": 42,
            "request_bytes": 100,
            "response_bytes": 200,
            "request_size": None,
            "request_received": None,
            "response_size": None,
            "response_received": None,
            "topics": ["orders"],
            "group_id": None,
            "transactional_id": None,
            "errors": ["LEADER_NOT_AVAILABLE"],
            "expected_errors": [],
            "throttle_time_ms": 7,
            "records": None,
            "records_bytes": None,
            "request": {"topics": [{"name": "orders"}]},
            "response": {"throttle_time_ms": 7, "topics": [{"error_code": 5, "name": "orders"}]},
            "anomalies": [{"kind": "trailing_bytes", "where": "request", "detail": "3 bytes"}],
        }
    ]


def batch(count: int) -> bytes:
    header = pack(">iBIhiqqqhii", 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return pack(">qi", 0, len(header)) + header


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x00\xff", {"base64": "AP8="}),
        (b"", {"base64": ""}),
        (Redacted(16), {"withheld": 16}),
        (Embedded(b"\x01", {"version": 1}), {"base64": "AQ==", "decoded": {"version": 1}}),
        (Embedded(Redacted(3), {"a": b"\x01"}), {"withheld": 3, "decoded": {"a": {"base64": "AQ=="}}}),
        ({7: b"\x01", 300: b""}, {"7": {"base64": "AQ=="}, "300": {"base64": ""}}),
        (math.nan, None),
        (-math.inf, None),
        (1.5, 1.5),
        (-(2**63), -(2**63)),
        (2**32 - 1, 2**32 - 1),
        ("line\nseparator\u2028 \x00 \U0001f600", "line\nseparator\u2028 \x00 \U0001f600"),
    ],
)
def test_values_inside_a_body(value: Any, shown: Any) -> None:
    (row,) = written(exchange("Metadata", 9, {"value": value}))
    assert row["request"] == {"value": shown}


def test_record_data_is_its_batch_headers() -> None:
    data = b"....." + batch(3) + batch(1)
    (row,) = written(exchange("Metadata", 9, {"records": RecordData(data, 5, len(data))}))
    batches = row["request"]["records"]
    assert [header["records_count"] for header in batches] == [3, 1]
    assert batches[0]["magic"] == 2


def test_values_that_no_body_has_raise_type_error() -> None:
    with pytest.raises(TypeError):
        json_bytes({"value": object()})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), json_values))
def test_json_values_round_trip(body: dict[str, Any]) -> None:
    assert written(exchange("Metadata", 9, body))[0]["request"] == body


def test_every_message_in_every_version_can_be_written() -> None:
    """Random bodies of all layouts: every column can be read, every key of the body is in the line."""
    cases = [case for case in random_bodies.cases(random_bodies.rpc_messages()) if case.draft is None]
    seen: set[str] = set()
    for case in cases:
        kind, body = case.message.kind, random_bodies.random_body(case.layout, case.random("json"))
        bodies = (body, None) if kind == "request" else ({}, body)
        (row,) = written(exchange(str(case.message.api_key), case.version, *bodies))
        assert row["api_key"] == case.message.api_key
        assert list(row[kind]) == list(map(str, body))
        seen.update(name for name, value in row.items() if value not in (None, []))
    assert len(cases) == 736
    assert seen >= {"topics", "group_id", "transactional_id", "errors", "throttle_time_ms", "records_bytes"}


def test_lines_are_buffered_unless_flush_each() -> None:
    chunks: list[bytes] = []
    sink = JsonLines(chunks.append)
    for _ in range(3):
        sink.feed(exchange())
    assert chunks == []
    sink.close()
    sink.close()
    assert [chunk.count(b"\n") for chunk in chunks] == [3]

    chunks.clear()
    sink = JsonLines(chunks.append, flush_each=True)
    for number in range(1, 4):
        sink.feed(exchange())
        assert len(chunks) == number


def test_long_output_is_written_on_the_way() -> None:
    chunks: list[bytes] = []
    sink = JsonLines(chunks.append)
    for _ in range(1000):
        sink.feed(exchange(client_id="c" * 200))
    assert max(map(len, chunks)) < 70_000
    sink.close()
    assert b"".join(chunks).count(b"\n") == 1000


def test_nothing_in_nothing_out() -> None:
    chunks: list[bytes] = []
    JsonLines(chunks.append).close()
    assert chunks == []
