from __future__ import annotations

from typing import Any

from kdissect.kafka import schema
from kdissect.kafka.records import RecordData
from kdissect.model import Body, Embedded, Withheld
from kdissect.sinks.outline import MOST_ELEMENTS, View, outline


def lines(api: int, version: int, body: Body, *, whole: bool = False, **names: Any) -> list[str]:
    message = schema.request(api)
    assert message is not None
    return list(outline(View(message, version, names, whole), body, message.fields))


def test_names_values_and_meanings() -> None:
    body = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 30000,
        "topic_data": [
            {"name": "orders", "partition_data": [{"index": 0, "records": None}]},
            {"name": "payments", "partition_data": []},
        ],
        "_tags": {7: b"\1\2"},
    }
    assert lines(0, 9, body) == [
        "transactional_id: null",
        "acks: -1 (ALL_ISR)",
        "timeout_ms: 30000",
        "topic_data: [2]",
        "  [0]",
        '    name: "orders"',
        "    partition_data: [1]",
        "      [0] index: 0, records: null",
        "  [1]",
        '    name: "payments"',
        "    partition_data: []",
        "(unknown tag 7): 2 bytes: 01 02",
    ]


def test_values_in_one_line_and_structs_that_fit() -> None:
    assert lines(3, 9, {"topics": [{"name": "orders"}]}) == ["topics: [1]", '  [0] name: "orders"']
    wide = {"name": "x" * 100}
    assert lines(3, 9, {"topics": [wide]}) == ["topics: [1]", "  [0]", f'    name: "{"x" * 100}"']
    assert lines(20, 4, {"topic_names": ["a", "b"]}) == ['topic_names: ["a", "b"]']
    assert lines(1, 15, {"replica_state": {"replica_id": 2, "replica_epoch": 9}}) == [
        "replica_state:",
        "  replica_id: 2",
        "  replica_epoch: 9",
    ]


def test_long_arrays_stop_unless_all_of_them_is_asked_for() -> None:
    many = {"topic_names": [str(number) for number in range(50)]}
    assert lines(20, 4, many)[0].endswith(f'"{MOST_ELEMENTS - 1}", … 30 more]')
    assert lines(20, 4, many, whole=True)[0].endswith('"48", "49"]')
    structs: Body = {"topics": [{"name": str(number)} for number in range(50)]}
    shown = lines(3, 9, structs)
    assert len(shown) == 1 + MOST_ELEMENTS + 1
    assert shown[-1] == "  … 30 more (--full shows all)"
    assert len(lines(3, 9, structs, whole=True)) == 51


def test_partial_bodies_and_what_no_layout_describes() -> None:
    assert lines(3, 9, {"topics": [{}], "_undecoded": b"\1"}) == [
        "topics: [1]",
        "  [0]",
        "(not decoded): 1 byte: 01",
    ]
    assert list(outline(View(None, 0, {}), {"_undecoded": Withheld(5)})) == [
        "(not decoded): withheld (5 bytes)"
    ]


def test_what_is_inside_bytes_stands_below_them() -> None:
    inner = Embedded(Withheld(40), {"header": {"correlation_id": 5}, "body": {"name": "x"}})
    assert lines(58, 0, {"request_data": inner}) == [
        "request_data: withheld (40 bytes)",
        "  header:",
        "    correlation_id: 5",
        "  body:",
        '    name: "x"',
    ]


def test_a_line_for_each_batch_up_to_a_bound() -> None:
    batch = bytes(8) + (49).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(44)
    body = {"topic_data": [{"partition_data": [{"records": RecordData(batch * 30, 0, 30 * 61)}]}]}
    shown = lines(0, 9, body)
    assert "records: 30 batches, 0 records, 1,830 bytes" in shown[4]
    assert len(shown) == 5 + MOST_ELEMENTS + 1
    assert shown[-1].strip() == "… 10 more (--full shows all)"
