from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from struct import pack
from typing import Any

import pytest

from kdissect.kafka.records import RecordData
from kdissect.model import Embedded, Redacted
from kdissect.tables.values import date, json_bytes, json_document, plain, text_and_encoding, timestamp
from tests.exchange_factory import START_NS

BATCH = pack(">qiiBIhiqqqhii", 7, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)


def written(value: Any) -> Any:
    return json.loads(json_bytes(value))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"", {"base64": ""}),
        (b"\x00\xff\xfe", {"base64": "AP/+"}),
        (b"\x00", {"base64": "AA=="}),
        (Redacted(16), {"withheld": 16}),
        (Embedded(b"\x00", {"version": 1}), {"base64": "AA==", "decoded": {"version": 1}}),
        (Embedded(Redacted(9), {"key": b""}), {"withheld": 9, "decoded": {"key": {"base64": ""}}}),
        (RecordData(b"", 0, 0), []),
        ({7: b"\x01"}, {"7": {"base64": "AQ=="}}),
        ({"_tags": {7: Redacted(1)}}, {"_tags": {"7": {"withheld": 1}}}),
        ([float("nan"), float("inf"), -0.5], [None, None, -0.5]),
        ([2**63 - 1, -(2**63), None, True, "\u2028\x00"], [2**63 - 1, -(2**63), None, True, "\u2028\x00"]),
    ],
    ids=repr,
)
def test_values_of_bodies(value: Any, shown: Any) -> None:
    assert written(value) == shown
    assert b"\n" not in json_bytes(value)


@dataclass(slots=True)
class File:
    name: str
    first: datetime
    warnings: list[str]
    counts: dict[str, int]


@pytest.mark.parametrize(("name", "shown"), [("ä.pcap", "ä.pcap"), ("\udcff.pcap", "\\udcff.pcap")])
def test_documents_name_files_whose_names_are_no_text(name: str, shown: str) -> None:
    result = json.loads(
        json_document([File(name, datetime(2026, 11, 21, tzinfo=UTC), [f"{name}: cut"], {name: 1})])
    )
    assert result == [
        {"name": shown, "first": "2026-11-21T00:00:00Z", "warnings": [f"{shown}: cut"], "counts": {shown: 1}}
    ]


def test_record_data_is_an_array_of_batch_headers() -> None:
    (batch,) = written(RecordData(b"before" + BATCH, 6, 6 + len(BATCH)))
    assert (batch["base_offset"], batch["magic"], batch["records_count"]) == (7, 2, 1)


@pytest.mark.parametrize(
    ("payload", "text", "encoding"),
    [
        (None, None, None),
        (b"", "", "utf-8"),
        ("ключ\0".encode(), "ключ\0", "utf-8"),
        (b"\xed\xa0\x80", "7aCA", "base64"),
        (Redacted(3), None, "withheld"),
        (Embedded(Redacted(3), {"a": Redacted(2)}), '{"a":{"withheld":2}}', "json"),
    ],
)
def test_keys_and_values_of_records(payload: Any, text: str | None, encoding: str | None) -> None:
    assert text_and_encoding(payload) == (text, encoding)


def test_values_that_no_body_has_are_rejected() -> None:
    with pytest.raises(TypeError, match="set cannot be in a body"):
        plain(set())


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (START_NS, "2026-09-21T14:13:20.123456Z"),
        (999, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (253_402_300_799_999_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000_000, "+010000-01-01T00:00:00.000000Z"),
        (951_782_400 * 10**9, "2000-02-29T00:00:00.000000Z"),
    ],
)
def test_times(time_ns: int, text: str) -> None:
    assert timestamp(time_ns) == text
    assert date(time_ns) == text.partition("T")[0]
