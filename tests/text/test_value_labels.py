from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka import schema
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded, Redacted
from kdissect.text.value_labels import batch_text, bytes_text, described, records_text, value_text

if TYPE_CHECKING:
    from kdissect.kafka.schema import Field, Message

TOPIC_ID = "AaH9bNnceCGcRuXtjz1Y_A"
BASE_MS = (1_790_000_000_000).to_bytes(8, "big")
BATCH = (
    (7).to_bytes(8, "big")  # base offset
    + (49 + 12).to_bytes(4, "big")
    + (5).to_bytes(4, "big")  # leader epoch
    + b"\2"
    + bytes(4)
    + (0x13).to_bytes(2, "big")  # lz4, transactional
    + (2).to_bytes(4, "big")
    + BASE_MS * 2
    + (4000).to_bytes(8, "big")
    + (1).to_bytes(2, "big")
    + (30).to_bytes(4, "big")
    + (3).to_bytes(4, "big")
    + bytes(12)
)


def find(message: Message | None, path: str) -> tuple[Message, Field]:
    assert message is not None
    fields = message.fields
    for name in path.split("."):
        field = next(field for field in fields if field.name == name)
        fields = field.fields
    return message, field


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (-1, "-1"),
        (1.5, "1.5"),
        ("a\x1bb", '"a\\x1bb"'),
        ("", '""'),
        (b"", "0 bytes"),
        (b"\1\2", "2 bytes: 01 02"),
        (Redacted(9), "redacted (9 bytes)"),
        (Embedded(b"\1", {}), "1 byte: 01"),
        (Embedded(Redacted(1), {}), "redacted (1 byte)"),
    ],
)
def test_values_by_their_type(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_long_values_are_cut_unless_full() -> None:
    assert bytes_text(bytes(40)) == f"40 bytes: {bytes(32).hex(' ')} …"
    assert bytes_text(bytes(40), full=True) == f"40 bytes: {bytes(40).hex(' ')}"
    assert value_text("x" * 500).endswith('" … 100 more characters')
    assert value_text("x" * 500, full=True) == f'"{"x" * 500}"'


@pytest.mark.parametrize(
    ("api", "kind", "path", "value", "text"),
    [
        (0, "request", "acks", -1, "-1 (ALL_ISR)"),
        (0, "request", "timeout_ms", 30000, "30000"),
        (0, "response", "responses.partition_responses.error_code", 6, "6 (NOT_LEADER_OR_FOLLOWER)"),
        (0, "response", "responses.partition_responses.log_append_time_ms", -1, "-1"),
        (
            0,
            "response",
            "responses.partition_responses.log_append_time_ms",
            1_790_000_000_123,
            "1790000000123 (2026-09-21T14:13:20.123Z)",
        ),
        (1, "request", "isolation_level", 1, "1 (READ_COMMITTED)"),
        (1, "request", "isolation_level", 9, "9"),
        (1, "request", "topics.topic_id", TOPIC_ID, f'{TOPIC_ID} ("orders")'),
        (1, "request", "topics.topic_id", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA"),
        (2, "request", "topics.partitions.timestamp", -2, "-2 (EARLIEST)"),
        (3, "response", "topics.topic_authorized_operations", -(2**31), "-2147483648 (not requested)"),
        (3, "response", "topics.topic_authorized_operations", 0b11000, "24 (READ, WRITE)"),
        (18, "response", "api_keys.api_key", 18, "18 (ApiVersions)"),
        (18, "response", "api_keys.api_key", 999, "999"),
        (3, "request", "allow_auto_topic_creation", True, "true"),
    ],
)
def test_meanings_of_numbers(api: int, kind: str, path: str, value: Any, text: str) -> None:
    message, field = find(schema.request(api) if kind == "request" else schema.response(api), path)
    assert described(message, path, field, value, {TOPIC_ID: "orders"}) == text


def test_without_a_schema_a_value_is_just_shown() -> None:
    assert described(None, "acks", None, -1, {}) == "-1"


def test_batches_in_one_line() -> None:
    records = RecordData(BATCH, 0, len(BATCH))
    assert records_text(records) == "1 batch, 3 records, 73 bytes"
    assert ", ".join(batch_text(batch) for batch in records.batches()) == (
        "offsets 7 to 9, 3 records, 73 bytes, lz4, CreateTime 2026-09-21T14:13:20.000Z, "
        "producer 4000 epoch 1 sequence 30, transactional, leader epoch 5"
    )


def test_records_that_end_early_or_are_none() -> None:
    assert records_text(RecordData(BATCH * 2, 0, 100)) == (
        "1 batch, 3 records, 100 bytes, 27 bytes of a truncated entry at the end"
    )
    assert records_text(RecordData(bytes(16) + b"\7" + bytes(20), 0, 37)).endswith("magic 7 at byte 0")


def test_messages_before_batches() -> None:
    compressed = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + b"\1\1" + BASE_MS + bytes(8)
    records = RecordData(compressed, 0, len(compressed))
    assert records_text(records) == "1 message, records not counted, 34 bytes"
    assert [batch_text(message) for message in records.batches()] == [
        "offset 0, 34 bytes, magic 1, gzip, CreateTime 2026-09-21T14:13:20.000Z"
    ]
