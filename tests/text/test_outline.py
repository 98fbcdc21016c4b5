from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka import schema
from kdissect.kafka.records import RecordData
from kdissect.model import Body, Embedded, Redacted
from kdissect.tables.record_bodies import Opener
from kdissect.text.outline import MAX_ELEMENTS, BodyContext, outline
from tests.record_batches import COMMIT_KEY, CONTROL, Item, batch
from tests.record_exchanges import fetch, produce

if TYPE_CHECKING:
    from kdissect.model import Exchange


def lines(api: int, version: int, body: Body, *, full: bool = False, **names: Any) -> list[str]:
    message = schema.request(api)
    assert message is not None
    return list(outline(BodyContext(message, version, names, full), body, message.fields))


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


def test_long_arrays_are_cut_unless_full() -> None:
    many = {"topic_names": [str(number) for number in range(50)]}
    assert lines(20, 4, many)[0].endswith(f'"{MAX_ELEMENTS - 1}", … 30 more]')
    assert lines(20, 4, many, full=True)[0].endswith('"48", "49"]')
    structs: Body = {"topics": [{"name": str(number)} for number in range(50)]}
    shown = lines(3, 9, structs)
    assert len(shown) == 1 + MAX_ELEMENTS + 1
    assert shown[-1] == "  … 30 more (--full shows all)"
    assert len(lines(3, 9, structs, full=True)) == 51


def test_partial_bodies_and_bytes_without_a_layout() -> None:
    assert lines(3, 9, {"topics": [{}], "_undecoded": b"\1"}) == [
        "topics: [1]",
        "  [0]",
        "(not decoded): 1 byte: 01",
    ]
    assert list(outline(BodyContext(None, 0, {}), {"_undecoded": Redacted(5)})) == [
        "(not decoded): redacted (5 bytes)"
    ]


def test_embedded_messages_are_below_their_bytes() -> None:
    inner = Embedded(Redacted(40), {"header": {"correlation_id": 5}, "body": {"name": "x"}})
    assert lines(58, 0, {"request_data": inner}) == [
        "request_data: redacted (40 bytes)",
        "  header:",
        "    correlation_id: 5",
        "  body:",
        '    name: "x"',
    ]


def test_a_line_for_each_batch_up_to_a_limit() -> None:
    batch = bytes(8) + (49).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(44)
    body = {"topic_data": [{"partition_data": [{"records": RecordData(batch * 30, 0, 30 * 61)}]}]}
    shown = lines(0, 9, body)
    assert "records: 30 batches, 0 records, 1,830 bytes" in shown[4]
    assert len(shown) == 5 + MAX_ELEMENTS + 1
    assert shown[-1].strip() == "… 10 more (--full shows all)"


def with_records(exchange: Exchange, *, full: bool = False) -> list[str]:
    """The lines after that of the record data."""
    produced = exchange.request is not None and "topic_data" in exchange.request
    body = exchange.request if produced else exchange.response
    view = BodyContext(None, 0, {}, full, Opener().of(exchange, produced=produced))
    shown = list(outline(view, body or {}))
    at = next(number for number, line in enumerate(shown) if "records: " in line)
    return [line.removeprefix(" " * 10) for line in shown[at + 1 :]]


def test_records_below_their_batch() -> None:
    items = [Item(b"k", b"v"), Item(b"k", b"\xff", ((b"h", b"x"),)), Item(None, None, timestamp_ms=-1)]
    assert with_records(fetch(batch(items, base_offset=7)))[1:] == [
        '  [0] offset 7, 2023-11-14T22:13:20.000Z, key: "k", value: "v"',
        "  [1] offset 8, 2023-11-14T22:13:20.000Z",
        '    key: "k"',
        "    headers: [1]",
        '      h: "x"',
        "    value: 1 byte: ff",
        "  [2] offset 9, key: null, value: null",
    ]


def test_offsets_of_a_produce_are_those_of_the_response() -> None:
    raw = batch([Item()])
    known = with_records(produce(raw, {"error_code": 0, "base_offset": 40, "log_append_time_ms": 1000}))
    assert known[0].startswith("[0] offsets 40 to 40, 1 record, ")
    assert known[1].startswith("  [0] offset 40, 1970-01-01T00:00:01.000Z, ")
    assert ", LogAppendTime, " in known[0]
    unknown = with_records(produce(raw))
    assert unknown[0].startswith("[0] 1 record, ")
    assert unknown[1].startswith("  [0] offset unknown, ")


def test_control_and_aborted_records_are_marked() -> None:
    hidden = {"aborted_transactions": [{"producer_id": 9, "first_offset": 0}]}
    raw = batch([Item()], producer_id=9, flags=0x10)
    assert ", transactional, aborted, " in with_records(fetch(raw, partition=hidden))[0]
    mark = batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")], flags=CONTROL)
    shown = with_records(fetch(mark))
    assert "control" in shown[0]
    assert shown[1].endswith(", control COMMIT")
    assert "      coordinator_epoch: 7" in shown


def test_payloads_of_kafkas_own_topics_are_decoded_and_credentials_redacted() -> None:
    shown = with_records(fetch(batch([Item(b"\0\2\0\2g1", None)]), topic="__consumer_offsets"))
    assert '      group: "g1"' in shown
    shown = with_records(fetch(batch([Item(None, b"hunter2")]), topic="__cluster_metadata"))
    assert shown[1].endswith("key: null, value: redacted (7 bytes)")


def test_anomalies_are_below_their_batch() -> None:
    shown = with_records(fetch(batch([Item()], crc=1)))
    assert shown[1] == "  ! crc_mismatch: batch at byte 0: CRC32C stored 1, computed 2559870729"


def test_long_lists_of_records_are_cut_unless_full() -> None:
    raw = batch([Item()] * 50)
    shown = with_records(fetch(raw))
    assert len(shown) == 1 + MAX_ELEMENTS + 1
    assert shown[-1] == "  … 30 more (--full shows all)"
    assert len(with_records(fetch(raw), full=True)) == 51
    shown = with_records(fetch(batch([Item()]) * 30))
    assert len(shown) == 2 * MAX_ELEMENTS + 1
    assert shown[-1] == "… 10 more (--full shows all)"
    many_headers = with_records(fetch(batch([Item(headers=((b"h", b"x"),) * 50)])))
    assert "      … 30 more (--full shows all)" in many_headers
