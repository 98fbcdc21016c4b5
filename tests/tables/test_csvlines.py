from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from kdissect.model import Anomaly, Redacted
from kdissect.tables.columns import EXCHANGE
from kdissect.tables.lines import CsvLines, printable_cells
from kdissect.tables.values import json_bytes
from tests.exchange_factory import exchange


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
    example = exchange(
        "Metadata",
        9,
        {"topics": [{"name": "orders"}, {"name": "pay"}]},
        {"topics": [{"error_code": 3, "name": "orders"}]},
        client_id='a "quoted", id\nwith a second line',
        anomalies=[Anomaly("trailing_bytes", "request", "3 bytes")],
    )
    text, (row,) = written(example)
    assert text.count("\r\n") == 2
    assert row["client_id"] == 'a "quoted", id\nwith a second line'
    assert row["time"] == "2026-09-21T14:13:20.123456Z"
    assert row["topics"] == "orders;pay"
    assert row["errors"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert row["latency_us"] == "5000"
    assert row["throttle_time_ms"] == ""
    assert json.loads(row["request"]) == {"topics": [{"name": "orders"}, {"name": "pay"}]}
    assert json.loads(row["anomalies"]) == [
        {"kind": "trailing_bytes", "where": "request", "detail": "3 bytes"}
    ]


def test_absent_values_are_empty() -> None:
    _, (row,) = written(exchange("Heartbeat", 0, {"group_id": "g"}))
    assert [row[name] for name in ("response", "latency_us", "client_id", "records", "topics")] == [""] * 5
    assert row["anomalies"] == "[]"


def test_credentials_are_lengths() -> None:
    _, (row,) = written(exchange("SaslAuthenticate", 1, {"auth_bytes": Redacted(16)}))
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


def test_lines_are_buffered_unless_flush_each() -> None:
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


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("name", ["client_id", "request", "topics"])
@pytest.mark.parametrize("text", ["x", 'a "quote", a comma', "\u00e9\u20ac\U0001f600", "a line\r\n", "\x9b"])
def test_long_cells_are_written_as_the_csv_module_does(text: str, name: str, *, is_terminal: bool) -> None:
    long = text * (200_000 // len(text))
    columns = [column for column in EXCHANGE if column.name in ("client_id", "request", "topics")]
    values: dict[str, Any] = {"client_id": "c", "request": {"a": 1}, "topics": ["t"]}
    values[name] = {"client_id": long, "request": {"a": long}, "topics": [long, "t"]}[name]
    example = exchange("Metadata", 9, values["request"], {"topics": []}, client_id=values["client_id"])
    chunks: list[bytes] = []
    getters = {"topics": lambda _row: values["topics"]}
    columns = [replace(column, get=getters.get(column.name, column.get)) for column in columns]
    sink = CsvLines(chunks.append, columns=columns, is_terminal=is_terminal)
    chunks.clear()
    sink.feed(example)
    sink.close()
    expected = io.StringIO(newline="")
    cells = [values["client_id"], ";".join(values["topics"]), json_bytes(values["request"]).decode()]
    writer = csv.writer(expected)
    writer.writerow([column.name for column in columns])
    writer.writerow(printable_cells(cells) if is_terminal else cells)
    assert b"".join(chunks) == expected.getvalue().encode()
    assert max(map(len, chunks)) < 1_000_000


@pytest.mark.parametrize("text", ["x" * 100_000, "," * 100_000])
def test_a_long_cell_can_be_the_only_one(text: str) -> None:
    chunks: list[bytes] = []
    columns = [column for column in EXCHANGE if column.name == "client_id"]
    sink = CsvLines(chunks.append, columns=columns)
    sink.feed(exchange(client_id=text))
    sink.feed(exchange(client_id=None))
    sink.close()
    expected = io.StringIO(newline="")
    csv.writer(expected).writerows([["client_id"], [text], [None]])
    assert b"".join(chunks) == expected.getvalue().encode()
