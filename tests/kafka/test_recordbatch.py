"""Records of magic 2: every width of varint, complete, truncated, followed by others, malformed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.errors import DecodeError, Malformed, Oversized, Truncated
from kdissect.kafka.recordbatch import Record, read_batch
from kdissect.limits import DEFAULT, Limits
from tests.record_batches import BASE_MS, Item, nullable, offsets, record, varint

BASE = 1000
LENGTHS = (0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 8193)
DELTAS = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 2**20, -(2**20), 2**31 - 1, -(2**31))


def read(
    data: bytes, pos: int = 0, end: int | None = None, limits: Limits = DEFAULT
) -> tuple[list[Record], DecodeError | None]:
    return read_batch(data, pos, len(data) if end is None else end, BASE, BASE_MS, limits)


def expected(items: list[Item]) -> list[Record]:
    return [
        Record(
            BASE + offset,
            item.timestamp_ms,
            item.key,
            item.value,
            tuple((key.decode(), value) for key, value in item.headers),
        )
        for item, offset in zip(items, offsets(items), strict=True)
    ]


def written(items: list[Item]) -> bytes:
    return b"".join(record(item, offset) for item, offset in zip(items, offsets(items), strict=True))


def filled(length: int) -> bytes:
    return bytes(n * 7 % 256 for n in range(length))


@pytest.mark.parametrize("key", [None, *LENGTHS])
@pytest.mark.parametrize("value", [None, *LENGTHS])
def test_lengths_of_every_width(key: int | None, value: int | None) -> None:
    item = Item(None if key is None else filled(key), None if value is None else filled(value))
    assert read(written([item, item])) == (expected([item, item]), None)


@pytest.mark.parametrize("offset", DELTAS)
@pytest.mark.parametrize("milliseconds", [*DELTAS, 2**40, -(2**40), 2**62, -(2**62) - BASE_MS])
def test_deltas_of_every_width_and_sign(offset: int, milliseconds: int) -> None:
    items = [Item(b"k", b"v", (), BASE_MS + milliseconds, offset), Item(offset=7)]
    assert read(written(items)) == (expected(items), None)


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 200])
@pytest.mark.parametrize("length", [None, *LENGTHS])
def test_headers_of_every_width(count: int, length: int | None) -> None:
    value = None if length is None else filled(length)
    name = b"n" * (length or 0)
    items = [Item(headers=((name, value), (b"trace", b"1")) * (count // 2) + ((b"x", value),) * (count % 2))]
    assert read(written(items * 2))[0] == expected([items[0], items[0]])


def test_header_keys_are_text_whatever_their_bytes_and_may_come_twice() -> None:
    item = Item(
        headers=((b"a", b"1"), (b"a", None), ("schlüssel".encode(), b""), (b"\xff", b"2"), (b"", b""))
    )
    assert read(written([item]))[0][0].headers == (
        ("a", b"1"), ("a", None), ("schlüssel", b""), ("\\xff", b"2"), ("", b""),
    )  # fmt: skip


def test_any_number_of_header_keys_is_read() -> None:
    items = [Item(headers=((b"key-%d" % n, b"%d" % n),)) for n in range(6000)]
    assert read(written(items)) == (expected(items), None)


items_of_any_sort = st.lists(
    st.builds(
        Item,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(
            st.tuples(st.text(max_size=80).map(str.encode), st.none() | st.binary(max_size=80)), max_size=4
        ).map(tuple),
        st.integers(-(2**50), 2**50),
        st.none() | st.integers(-(2**31), 2**31 - 1),
    ),
    max_size=8,
)


@given(items_of_any_sort)
def test_what_is_written_is_read_completely_and_between_other_bytes(items: list[Item]) -> None:
    for item, offset in zip(items, offsets(items), strict=True):
        if abs(offset) >= 2**31:
            return
        assert item
    data = written(items)
    assert read(data) == (expected(items), None)
    assert read(b"\x7f" * 9 + data + b"\x20" * 500, 9, 9 + len(data)) == (expected(items), None)


@given(items_of_any_sort, st.data())
def test_cut_anywhere_keeps_the_records_before(items: list[Item], choices: st.DataObject) -> None:
    items = [item._replace(offset=None) for item in items] or [Item()]
    data = written(items)
    kept = choices.draw(st.integers(0, len(data) - 1))
    for records, fault in (read(data[:kept]), read(data, 0, kept)):
        assert records == expected(items)[: len(records)]
        complete_bytes = len(written(items[: len(records)]))
        assert complete_bytes <= kept
        assert (fault is None) == (kept == complete_bytes)


def test_byte_by_byte() -> None:
    items = [
        Item(b"key", b"v" * 100, ((b"a", b"b"), (b"c", None))),
        Item(None, None),
        Item(b"", filled(9000), ((b"long" * 20, b"w" * 100),)),
    ]
    data = written(items)
    ends = [len(written(items[:count])) for count in range(4)]
    for kept in range(len(data)):
        records, fault = read(data + b"\0" * 64, 0, kept)
        count = sum(end <= kept for end in ends) - 1
        assert records == expected(items)[:count]
        if kept in ends:
            assert fault is None
        else:
            assert isinstance(fault, Truncated)
            assert fault.pos == ends[count]


GOOD = record(Item(b"key", b"value", ((b"h", b"x"),)), 0)


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (record(Item(b"key"), 1, length=5), "bytes"),
        (record(Item(b"key"), 1, length=15), "1 bytes after the headers of a record"),
        (varint(40) + record(Item(), 1)[1:], "it has 40 bytes"),
        (varint(-1) + b"\0" * 9, "a length of -1"),
        (varint(-100) + b"\0" * 9, "a length of -100"),
        (varint(9) + b"\0\0\0" + varint(-3) + b"\0" * 5, "a length of -3"),
        (varint(9) + b"\0\0\0\1" + varint(-2) + b"\0" * 4, "a length of -2"),
        (varint(9) + b"\0\0\0\1\1" + varint(-1) + b"\0" * 3, "-1 headers"),
        (varint(9) + b"\0\0\0\1\1" + varint(60) + b"\0" * 3, "60 headers declared, 3 bytes left"),
        (varint(12) + b"\0\0\0\1\1" + varint(2**30) + b"\0", "headers declared"),
        (varint(14) + b"\0\0\0" + varint(2**31 - 1) + b"\0" * 6, "bytes declared"),
        (varint(14) + b"\0" + b"\xff" * 13, "a varint of more than 10 bytes"),
        (varint(14) + b"\0\0" + b"\xff" * 12, "a varint of more than 5 bytes"),
        (b"\xff" * 20, "a varint of more than 5 bytes"),
        (varint(7) + b"\0\0\0\x81\x00\1\0", "a length of -1"),
    ],
)
def test_lies_end_the_reading_and_keep_what_was_before(lie: bytes, reason: str) -> None:
    records, fault = read(GOOD * 3 + lie + GOOD)
    assert len(records) == 3
    assert isinstance(fault, Malformed | Truncated)
    assert reason in fault.reason
    assert fault.pos == 3 * len(GOOD)


def test_numbers_that_pass_64_bits_go_on_from_the_other_end() -> None:
    data = record(Item(timestamp_ms=BASE_MS + 5), 5)
    (result,), fault = read_batch(data, 0, len(data), 2**63 - 3, 2**63 - 2, DEFAULT)
    assert (result.offset, result.timestamp_ms, fault) == (-(2**63) + 2, -(2**63) + 3, None)
    data = record(Item(timestamp_ms=2**63 - 1), 0, base_ms=0)
    (result,), fault = read_batch(data, 0, len(data), 0, 2**61, DEFAULT)
    assert result.timestamp_ms == 2**61 - 2**63 - 1
    data = varint(15) + b"\0" + b"\xff" * 9 + b"\x7f\0\1\1\0"
    (result,), _ = read_batch(data, 0, len(data), 0, 0, DEFAULT)
    assert result.timestamp_ms == -(2**63)


def test_a_batch_of_nothing_but_records_is_bounded() -> None:
    limits = Limits(batch_items=100)
    data = written([Item(None, None)] * 101)
    assert read(data[: 7 * 64 + 8 * 36], limits=limits)[1] is None
    records, fault = read(data, limits=limits)
    assert len(records) == 100
    assert isinstance(fault, Oversized)


def test_a_batch_of_nothing_but_headers_is_bounded() -> None:
    limits = Limits(batch_items=100)
    one = Item(headers=((b"", None),) * 40)
    assert read(written([one] * 2), limits=limits)[1] is None
    records, fault = read(written([one] * 3), limits=limits)
    assert len(records) == 2
    assert isinstance(fault, Oversized)
    many = Item(headers=((b"", None),) * 1000)
    assert isinstance(read(written([many]), limits=limits)[1], Oversized)


def test_mutations_raise_nothing_and_never_go_round_in_circles() -> None:
    random = Random(11)
    items = [
        Item(b"k%d" % n, filled(n * 9), ((b"trace", filled(n)),) * (n % 3), BASE_MS + n * 700)
        for n in range(12)
    ]
    plain = written(items)
    complete_bytes = 0
    for _ in range(2000):
        data = bytearray(plain)
        for _ in range(random.randint(1, 3)):
            data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        records, fault = read(bytes(data))
        assert len(records) <= len(plain) // 7
        complete_bytes += fault is None
        for result in records:
            assert -(2**63) <= result.offset < 2**63
            assert result.timestamp_ms is not None
            assert -(2**63) <= result.timestamp_ms < 2**63
    assert 0 < complete_bytes < 2000


def test_nullable_is_what_the_tests_think() -> None:
    assert (nullable(None), nullable(b""), varint(-2), varint(64)) == (b"\1", b"\0", b"\3", b"\x80\1")
