"""Messages of magic 0 and 1: complete, truncated, followed by others, malformed, wrong checksums."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.errors import Malformed
from kdissect.kafka.messageset import MessageSet, read_messages
from kdissect.kafka.recordbatch import Record
from tests.record_batches import BASE_MS, Item, message, messages

MAGIC = pytest.mark.parametrize("magic", [0, 1])
CONTENT = st.none() | st.binary(max_size=40)
ITEMS = [Item(b"key", b"value"), Item(None, None), Item(b"", b""), Item(b"k" * 300, b"v" * 3000)]


def read(data: bytes, max_messages: int = 1000) -> MessageSet:
    return read_messages(data, 0, len(data), max_messages)


def expected(magic: int, items: list[Item], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + place, item.timestamp_ms if magic else None, item.key, item.value)
        for place, item in enumerate(items)
    ]


@MAGIC
@given(pairs=st.lists(st.tuples(CONTENT, CONTENT), max_size=6))
def test_what_is_written_is_read_completely_and_between_other_bytes(
    magic: int, pairs: list[tuple[bytes | None, bytes | None]]
) -> None:
    items = [Item(), *(Item(*pair) for pair in pairs)]
    data = messages(magic, items, base_offset=40)
    result = expected(magic, items, 40)
    assert read(data) == MessageSet(result, len(data), [], None)
    end = 5 + len(data)
    assert read_messages(b"?" * 5 + data + b"?" * 99, 5, end, 1000) == MessageSet(result, end, [], None)


@MAGIC
def test_byte_by_byte_an_incomplete_message_is_left_where_it_is(magic: int) -> None:
    data = messages(magic, ITEMS)
    ends = [len(messages(magic, ITEMS[:count])) for count in range(5)]
    for kept in range(18, len(data)):
        count = sum(end <= kept for end in ends) - 1
        complete = MessageSet(expected(magic, ITEMS[:count]), ends[count], [], None)
        assert read(data[:kept]) == complete
        assert read_messages(data, 0, kept, 1000) == complete


def test_messages_of_another_kind_are_another_set() -> None:
    data = messages(1, ITEMS)
    for other in (messages(0, ITEMS), messages(1, ITEMS, attributes=8), message(1, attributes=1)):
        assert read(data + other).end == len(data)


@MAGIC
def test_at_most_as_many_as_requested(magic: int) -> None:
    result = read(messages(magic, ITEMS), max_messages=2)
    assert result == MessageSet(expected(magic, ITEMS[:2]), len(messages(magic, ITEMS[:2])), [], None)


@MAGIC
def test_a_checksum_that_does_not_hold_costs_nothing(magic: int) -> None:
    good = message(magic, offset=0)
    data = good + message(magic, offset=1, crc=7) + message(magic, offset=2)
    result = read(data)
    assert [record.offset for record in result.records] == [0, 1, 2]
    assert [(bad.pos, bad.stored) for bad in result.bad_crcs] == [(len(good), 7)]
    assert (result.fault, result.end) == (None, len(data))


def with_lengths(magic: int, key_length: int, value_length: int) -> bytes:
    """A message of good size whose lengths lie."""
    checked = struct.pack(">bb", magic, 0) + (struct.pack(">q", BASE_MS) if magic else b"")
    checked += struct.pack(">i", key_length) + b"key" + struct.pack(">i", value_length) + b"value"
    return struct.pack(">qiI", 1, len(checked) + 4, 0) + checked


@MAGIC
@pytest.mark.parametrize(
    ("key_length", "value_length"),
    [
        (3, 4),
        (3, 6),
        (3, 2**31 - 1),
        (3, -1),
        (3, -2),
        (-1, 5),
        (-2, 5),
        (2**31 - 1, 5),
        (-(2**31), 5),
        (12, -1),
    ],
)
def test_lengths_that_do_not_fit(magic: int, key_length: int, value_length: int) -> None:
    good = message(magic, offset=0)
    for tail in (b"", b"\0" * 50, good):
        result = read(good + with_lengths(magic, key_length, value_length) + tail)
        assert len(result.records) == 1
        assert isinstance(result.fault, Malformed)
        assert result.end == result.fault.pos == len(good)


@MAGIC
@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13])
def test_sizes_that_cannot_be(magic: int, size: int) -> None:
    assert isinstance(read(message(magic, size=size)).fault, Malformed)
    assert read(message(magic, size=2**31 - 1)) == MessageSet([], 0, [], None)


def test_a_length_of_magic_1_is_more_than_one_of_magic_0() -> None:
    assert isinstance(read(message(1, Item(None, None), size=21)).fault, Malformed)
