from __future__ import annotations

from kdissect.model import Embedded, Redacted
from kdissect.tables.columns import BINARY, EXCHANGE, RECORD, STRING
from kdissect.tables.exchanges import EXCHANGE_EXPORT_ONLY, RECORD_EXPORT_ONLY, exchanges, payload, records
from tests.exchange_factory import START_NS, exchange


def test_exchanges_have_the_columns_of_every_command_and_some_more() -> None:
    table = exchanges()
    assert [column.name for column in table.columns] == [
        column.name for column in (*EXCHANGE, *EXCHANGE_EXPORT_ONLY)
    ]
    values = {column.name: column.get(exchange()) for column in EXCHANGE_EXPORT_ONLY}
    assert values == {"date": "2026-09-21", "time_ns": START_NS, "long_poll": False, "wait_kind": None}


def test_bodies_that_are_not_requested_are_null() -> None:
    example = exchange("Metadata", 9, {"topics": []}, {"throttle_time_ms": 0})
    for bodies in (frozenset[str](), frozenset({"response"})):
        values = {column.name: column.get(example) for column in exchanges(bodies).columns}
        assert values["request"] is None
        assert (values["response"] is not None) == ("response" in bodies)
        assert values["throttle_time_ms"] == 0


def test_records_are_bytes_where_a_format_has_them() -> None:
    table = records()
    assert [column.name for column in table.columns] == [
        column.name for column in (*RECORD, *RECORD_EXPORT_ONLY)
    ]
    kinds = {column.name: column.type for column in table.columns}
    packed = {column.name: column.type for column in table.binary_columns}
    assert {name for name in kinds if kinds[name] != packed[name]} == {"key", "value"}
    assert (kinds["key"], packed["key"], packed["value"]) == (STRING, BINARY, BINARY)


def test_payload() -> None:
    assert payload(b"\xff") == b"\xff"
    assert payload(None) is None
    assert payload(Redacted(5)) is None
    assert payload(Embedded(b"raw", {"a": 1})) == b'{"a":1}'
