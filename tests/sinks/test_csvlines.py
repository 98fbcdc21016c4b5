from __future__ import annotations

import csv
import io
import json

from kdissect.model import Anomaly, Withheld
from kdissect.sinks.columns import EXCHANGE
from kdissect.sinks.csvlines import CsvLines
from tests.exchanges import exchange


def written(*exchanges: object) -> tuple[str, list[dict[str, str]]]:
    chunks: list[bytes] = []
    sink = CsvLines(chunks.append)
    for item in exchanges:
        sink.feed(item)  # type: ignore[arg-type]
    sink.close()
    text = b"".join(chunks).decode()
    return text, list(csv.DictReader(io.StringIO(text, newline="")))


def test_header_line_comes_even_alone() -> None:
    text, rows = written()
    assert text == ",".join(column.name for column in EXCHANGE) + "\r\n"
    assert rows == []


def test_cells() -> None:
    made = exchange(
        "Metadata",
        9,
        {"topics": [{"name": "orders"}, {"name": "pay"}]},
        {"topics": [{"error_code": 3, "name": "orders"}]},
        client_id='a "quoted", id\nwith a second line',
        anomalies=[Anomaly("left_over", "request", "3 bytes")],
    )
    text, (row,) = written(made)
    assert text.count("\r\n") == 2
    assert row["client_id"] == 'a "quoted", id\nwith a second line'
    assert row["time"] == "2026-09-21T14:13:20.123456Z"
    assert row["topics"] == "orders;pay"
    assert row["errors"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert row["latency_us"] == "5000"
    assert row["throttle_time_ms"] == ""
    assert json.loads(row["request"]) == {"topics": [{"name": "orders"}, {"name": "pay"}]}
    assert json.loads(row["anomalies"]) == [{"kind": "left_over", "where": "request", "detail": "3 bytes"}]


def test_absent_values_are_empty() -> None:
    _, (row,) = written(exchange("Heartbeat", 0, {"group_id": "g"}))
    assert [row[name] for name in ("response", "latency_us", "client_id", "records", "topics")] == [""] * 5
    assert row["anomalies"] == "[]"


def test_credentials_are_lengths() -> None:
    _, (row,) = written(exchange("SaslAuthenticate", 1, {"auth_bytes": Withheld(16)}))
    assert json.loads(row["request"]) == {"auth_bytes": {"withheld": 16}}


def test_a_formula_stays_as_it_was() -> None:
    assert written(exchange(client_id="=1+1"))[1][0]["client_id"] == "=1+1"


def test_on_a_terminal_texts_are_escaped() -> None:
    chunks: list[bytes] = []
    sink = CsvLines(chunks.append, is_terminal=True)
    sink.feed(exchange(client_id="a\x9b\r\nb\u202e"))
    sink.close()
    lines = b"".join(chunks).decode().split("\r\n")
    assert len(lines) == 3
    assert r",a\x9b\r\nb\u202e," in lines[1]


def test_buffered_unless_each_line_is_wanted() -> None:
    chunks: list[bytes] = []
    sink = CsvLines(chunks.append)
    for _ in range(3):
        sink.feed(exchange())
    assert chunks == []
    sink.close()
    assert len(chunks) == 1

    chunks.clear()
    sink = CsvLines(chunks.append, flush_each=True)
    for number in range(1, 4):
        sink.feed(exchange())
        assert len(chunks) == number
    sink.close()
    assert len(chunks) == 3


def test_long_output_is_written_on_the_way() -> None:
    chunks: list[bytes] = []
    sink = CsvLines(chunks.append)
    for _ in range(1000):
        sink.feed(exchange(client_id="c" * 200))
    assert chunks
    sink.close()
    assert b"".join(chunks).count(b"\r\n") == 1001
