"""Record data that is truncated, malformed, empty, a decompression bomb, or has wrong checksums."""

from __future__ import annotations

import gzip
import tracemalloc
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from crc32c import crc32c

from kdissect.anomalies import CATALOGUE
from kdissect.kafka import batches, compression, messageset
from kdissect.kafka.batches import Batch, check_crcs, read_records
from kdissect.kafka.compression import Budget
from kdissect.kafka.recordbatch import Record
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT, MIB, Limits
from tests.kafka.decoded_batches import (
    EVERY_FORMAT,
    ITEMS,
    decoded_batches,
    expected,
    kinds,
    marker,
    only,
    places,
    transactional,
)
from tests.record_batches import (
    ABORT_KEY,
    BASE_MS,
    CODECS,
    COMMIT_KEY,
    CONTROL,
    GZIP,
    LOG_APPEND,
    ZSTD,
    Item,
    batch,
    entries,
    message,
    message_set,
    messages,
    streamed_zstd,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# --- cut off, lying, damaged --------------------------------------------------------------------------------


@EVERY_FORMAT
def test_a_cut_off_last_entry_is_left_out_byte_by_byte(magic: int, codec: str) -> None:
    first = entries(magic, ITEMS, codec=CODECS[codec])
    second = entries(magic, ITEMS[:1], codec=CODECS[codec], base_offset=3)
    for kept in range(len(second)):
        assert [place for each in decoded_batches(first + second[:kept]) for place in places(each)] == [
            0,
            1,
            2,
        ]
    assert places(decoded_batches(first + second)[-1])[-1] == 3


@EVERY_FORMAT
@pytest.mark.parametrize("tail", [b"\0" * 17, b"\xff" * 17])
def test_too_few_bytes_for_an_entry_are_left_out(magic: int, codec: str, tail: bytes) -> None:
    result = decoded_batches(entries(magic, ITEMS, codec=CODECS[codec]) + tail)
    assert [place for each in result for place in places(each)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"\0" * 16 + b"\3" + b"\0" * 40, "magic 3; 57 bytes are not read"),
        (b"\0" * 16 + b"\xff" + b"\0" * 40, "magic -1; 57 bytes are not read"),
        (batch(ITEMS, length=48), "an entry of 48 bytes"),
        (batch(ITEMS, length=-1), "an entry of -1 bytes"),
    ],
)
def test_what_is_no_batch_ends_the_reading(data: bytes, detail: str) -> None:
    first, second = decoded_batches(batch(ITEMS) + data)
    assert kinds(first) == []
    assert kinds(second) == ["malformed_records"]
    assert detail in second.anomalies[0].detail
    assert second.anomalies[0].detail.startswith(f"batch at byte {len(batch(ITEMS))}: ")
    assert second.records == []
    assert second.pos + second.size == len(batch(ITEMS)) + len(data)


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
@pytest.mark.parametrize("count", [-1, 0, 2, 4, 2**31 - 1])
def test_a_batch_that_lies_about_its_count_shows_what_is_there(codec: int, count: int) -> None:
    result = only(batch(ITEMS, codec=codec, count=count))
    assert result.records == expected(2, ITEMS)
    assert kinds(result) == ["wrong_record_count"]
    assert f"{count} records declared, 3 present" in result.anomalies[0].detail


def test_a_batch_that_lies_about_its_length_shows_what_is_there() -> None:
    complete = batch(ITEMS)
    short, *_ = decoded_batches(batch(ITEMS, length=len(complete) - 12 - 4) + bytes(80))
    assert short.records == expected(2, ITEMS)[:2]
    assert kinds(short) == ["crc_mismatch", "malformed_records"]
    assert "2 of 3 records are shown" in short.anomalies[1].detail
    long = only(batch(ITEMS, length=len(complete) - 12 + 30) + bytes(30))
    assert long.records[:3] == expected(2, ITEMS)
    assert kinds(long) == ["crc_mismatch", "malformed_records"]
    assert decoded_batches(batch(ITEMS, length=len(complete))) == []  # cut off, as far as anybody can tell


@EVERY_FORMAT
def test_a_checksum_that_does_not_hold_is_reported_and_costs_nothing(magic: int, codec: str) -> None:
    data = bytearray(entries(magic, ITEMS, codec=CODECS[codec]))
    data[17 if magic == 2 else 12] ^= 0xFF
    result, after = (
        decoded_batches(bytes(data) + batch(ITEMS))
        if CODECS[codec] or magic == 2
        else (only(bytes(data)), None)
    )
    assert result.records == expected(magic, ITEMS)
    assert kinds(result) == ["crc_mismatch"]
    assert after is None or after.anomalies == []
    record_data = RecordData(b"??" + bytes(data), 2, 2 + len(data))
    stored = int.from_bytes(data[17:21] if magic == 2 else data[12:16], "big")
    computed = crc32c(data[21:]) if magic == 2 else crc32(data[16 : 12 + int.from_bytes(data[8:12], "big")])
    where = "batch at byte 0: CRC32C" if magic == 2 else "message at byte 0: CRC32"
    assert check_crcs(record_data, "here") == [
        ("crc_mismatch", "here", f"{where} stored {stored}, computed {computed}")
    ]
    assert [each.detail for each in result.anomalies] == [f"{where} stored {stored}, computed {computed}"]


@EVERY_FORMAT
def test_checksums_hold_without_opening(magic: int, codec: str) -> None:
    data = entries(magic, ITEMS, codec=CODECS[codec]) * 2
    assert check_crcs(RecordData(data, 0, len(data))) == []
    assert check_crcs(RecordData(data, 0, len(data) - 1)) == []
    assert check_crcs(RecordData(data[:16] + b"\7" + data[17:], 0, len(data))) == []


def test_checksums_inside_a_compressed_message_are_checked_too() -> None:
    inner = message(1, offset=0, crc=1) + message(1, offset=1, crc=1) + message(1, offset=2)
    result = only(message(1, Item(None, gzip.compress(inner)), offset=2, attributes=GZIP))
    assert places(result) == [0, 1, 2]
    computed = crc32(message(1)[16:])
    first, second = (
        f"batch at byte 0: message {number} inside it: CRC32 stored 1, computed {computed}"
        for number in (0, 1)
    )
    assert accused(result) == [[first], [second], []]
    assert [each.detail for each in result.anomalies] == [f"{first}; 2 such messages"]


def test_only_the_message_with_the_wrong_checksum_is_accused() -> None:
    good, bad = message(1), message(1, crc=1)
    result = only(good + bad + good + bad)
    computed = crc32(bad[16:])
    details = [
        f"message at byte {pos}: CRC32 stored 1, computed {computed}" for pos in (len(good), 3 * len(good))
    ]
    assert accused(result) == [[], details[:1], [], details[1:]]
    assert [each.detail for each in result.anomalies] == [f"{details[0]}; 2 such messages"]


def test_all_in_a_compressed_message_with_a_wrong_checksum_are_accused() -> None:
    inner = message(1, offset=0) + message(1, offset=1, crc=1)
    result = only(message(1, Item(None, gzip.compress(inner)), offset=1, attributes=GZIP, crc=1))
    outer, own = accused(result)
    assert len(outer) == 1
    assert own[:1] == outer
    assert own[1].startswith("batch at byte 0: message 1 inside it: CRC32 stored 1, ")


def test_messages_in_parts_are_accused_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MESSAGES", 3)
    monkeypatch.setattr(messageset, "MESSAGES", 3)
    good, bad = message(1), message(1, crc=1)
    parts = decoded_batches(good * 4 + bad + good * 3)
    assert [len(part.records) for part in parts] == [3, 3, 2]
    assert [bool(each) for part in parts for each in accused(part)] == [number == 4 for number in range(8)]


def accused(result: Batch) -> list[list[str]]:
    """The details of the anomalies of each record."""
    places = range(result.first, result.first + len(result.records))
    return [[each.detail for each in result.around(place).anomalies] for place in places]


def test_many_bad_checksums_are_one_anomaly() -> None:
    good = message(0)
    result = only(good + message(0, crc=1) * 500)
    (anomaly,) = result.anomalies
    assert anomaly.detail.startswith(f"message at byte {len(good)}: CRC32 stored 1, ")
    assert anomaly.detail.endswith("; 500 such messages")
    data = good + message(0, crc=1) * 5
    assert len(check_crcs(RecordData(data, 0, len(data)))) == 5


def test_a_message_that_lies_is_stepped_over() -> None:
    lying = bytearray(message(1, Item(b"key", b"value"), offset=1))
    lying[29] = 200
    first, second = decoded_batches(message(1, offset=0) + bytes(lying) + message(1, offset=2))
    assert (places(first), kinds(first)) == ([0], ["malformed_records"])
    assert (places(second), kinds(second)) == ([2], [])


def test_one_level_of_nesting_and_no_more() -> None:
    inner = message_set(1, ITEMS, codec=GZIP)
    twice = message(1, Item(None, gzip.compress(messages(1, ITEMS) + inner)), offset=9, attributes=GZIP)
    result = only(twice)
    assert len(result.records) == 3
    assert "compressed message inside a compressed one" in result.anomalies[0].detail


@pytest.mark.parametrize(
    ("inner", "shown", "what"),
    [
        (messages(1, ITEMS)[:-1], 2, "a message is truncated"),
        (messages(1, ITEMS) + b"\0" * 10, 3, "a message is truncated"),
        (messages(1, ITEMS) + batch(ITEMS), 3, "magic 2 in a message set"),
        (messages(1, ITEMS) + message(1, size=3), 3, "a message of 3 bytes"),
        (b"no messages at all, but some text", 0, "magic"),
    ],
)
def test_inside_a_compressed_message_too_what_is_there_is_shown(inner: bytes, shown: int, what: str) -> None:
    result = only(message(1, Item(None, gzip.compress(inner)), offset=2, attributes=GZIP))
    assert len(result.records) == shown
    assert kinds(result) == ["malformed_records"]
    assert what in result.anomalies[0].detail


def test_messages_of_both_magics_inside_a_compressed_one() -> None:
    inner = messages(0, ITEMS) + messages(1, ITEMS, base_offset=3)
    result = only(message(1, Item(None, gzip.compress(inner)), offset=15, attributes=GZIP))
    assert places(result) == [10, 11, 12, 13, 14, 15]
    assert result.anomalies == []


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_nobody_knows(magic: int, codec: int) -> None:
    payload = b"who knows"
    if magic == 2:
        data = batch(codec=codec, payload=payload, count=4)
    else:
        data = message(magic, Item(None, payload), attributes=codec)
    result = only(data)
    assert (result.records, kinds(result), result.compression) == ([], ["unknown_codec"], f"codec {codec}")


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_damaged_compression_is_reported(magic: int, codec: str) -> None:
    number = CODECS[codec]
    if magic == 2:
        data = batch(codec=number, payload=b"not compressed at all", count=3)
    else:
        data = message(magic, Item(None, b"not compressed at all"), attributes=number)
    result = only(data)
    assert (result.records, kinds(result)) == ([], ["damaged_compression"])
    if magic < 2:
        assert kinds(only(message(magic, Item(None, None), attributes=number))) == ["damaged_compression"]


def test_records_before_the_damage_are_shown() -> None:
    items = [Item(value=Random(n).randbytes(3000)) for n in range(100)]
    complete = batch(items, codec=GZIP)
    result = only(batch(codec=GZIP, payload=complete[61 : len(complete) * 2 // 3], count=100))
    assert 50 < len(result.records) < 100
    assert (
        result.records
        == [Record(place, BASE_MS, None, item.value) for place, item in enumerate(items)][
            : len(result.records)
        ]
    )
    assert kinds(result) == ["damaged_compression"]


# --- bombs and noise ----------------------------------------------------------------------------------------


def test_small_bombs_in_one_field_share_a_bound() -> None:
    bomb = batch(codec=ZSTD, payload=streamed_zstd(bytes(MIB)))
    limits = Limits(inflated_always_bytes=2 * MIB, inflated_ratio=10)
    result = decoded_batches(bomb * 200, limits=limits)
    assert len(result) == 200
    assert [kinds(each) for each in result[2:]] == [["oversized_records"]] * 198
    assert "oversized_records" not in kinds(result[0])


def test_small_bombs_in_the_fields_of_one_frame_share_a_bound() -> None:
    bomb = batch(codec=ZSTD, payload=streamed_zstd(bytes(MIB)))
    wrapped = message(1, Item(None, gzip.compress(bytes(MIB))), attributes=GZIP)
    limits = Limits(inflated_always_bytes=2 * MIB, inflated_ratio=10)
    budget = Budget()
    result = [only(data, limits=limits) for data in (bomb, wrapped) * 3]
    assert not any("oversized_records" in kinds(each) for each in result)
    fields = [RecordData(data, 0, len(data)) for data in (bomb, wrapped) * 3]
    result = [each for field in fields for each in read_records(field, limits, budget=budget)]
    assert ["oversized_records" in kinds(each) for each in result] == [False] * 2 + [True] * 4
    assert budget.inflated == 2 * MIB


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_number_of_records_is_bounded(magic: int) -> None:
    limits = Limits(batch_items=100)
    data = entries(magic, [Item()] * 101, codec=GZIP)
    result = only(data, limits=limits)
    assert (len(result.records), kinds(result)) == (100, ["oversized_records"])
    assert only(entries(magic, [Item()] * 100, codec=GZIP), limits=limits).anomalies == []


def test_messages_past_the_number_are_a_set_of_their_own() -> None:
    result = decoded_batches(messages(1, [Item()] * 250), limits=Limits(batch_items=100))
    assert [len(each.records) for each in result] == [100, 100, 50]


def mutated(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.randint(1, 5)):
        place = random.randrange(len(out) + 1)
        match random.randrange(5):
            case 0 | 1 if place < len(out):
                out[place] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
            case 2:
                out[place : place + random.randrange(12)] = b""
            case 3:
                out[place:place] = random.randbytes(random.randrange(12))
            case _:
                out[place : place + 4] = random.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\x10\0\0"))
        out = out or bytearray(1)
    return bytes(out)


def test_ten_thousand_mutated_batches_are_anomalies_and_nothing_more() -> None:
    random = Random(20260101)
    items = [Item(b"k%d" % n, bytes(n * 11), ((b"h", b"v"),) * (n % 3), BASE_MS + n * 90) for n in range(9)]
    plain = [item._replace(headers=()) for item in items]
    seeds = [
        *(
            entries(magic, items if magic == 2 else plain, codec=codec)
            for magic in range(3)
            for codec in range(5)
        ),
        marker(COMMIT_KEY, 5, 3) + transactional(5, 4) + marker(ABORT_KEY, 5, 6),
        messages(0, plain[:2]) + messages(1, plain[:2]) + batch(items),
    ]
    seen: set[str] = set()
    odd = 0
    tracemalloc.start()
    for number in range(10_000):
        data = mutated(seeds[number % len(seeds)], random)
        reported = [{"producer_id": 5, "first_offset": 4}] if number % 2 else None
        base = random.choice((None, 0, 7, 2**63 - 1))
        record_data = RecordData(data, 0, len(data))
        result = list(read_records(record_data, base_offset=base, aborted=reported))
        check_crcs(record_data)
        wrong = {anomaly.kind for each in result for anomaly in each.anomalies}
        seen |= wrong
        odd += bool(wrong)
        assert sum(each.size for each in result) <= len(data)
        for each in result:
            for record in each.records:
                assert -(2**63) <= record.offset < 2**63
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert odd > 7000
    assert seen >= {
        "crc_mismatch",
        "malformed_records",
        "damaged_compression",
        "wrong_record_count",
        "unknown_codec",
    }
    assert seen <= set(CATALOGUE)
    assert peak < 2 * DEFAULT.inflated_always_bytes + 8 * MIB


# --- large batches ------------------------------------------------------------------------------------------


def complete_count(parts: list[Batch]) -> list[Batch]:
    """Batches put together from their parts."""
    result: list[Batch] = []
    for part in parts:
        if part.first:
            so_far = result[-1]
            assert part.first == len(so_far.records)
            assert (part.number, part.anomalies) == (so_far.number, so_far.anomalies)
            records = [*so_far.records, *part.records]
            result[-1] = so_far._replace(records=records, elsewhere=so_far.number - len(records))
        else:
            result.append(part)
    assert not any(each.elsewhere for each in result)
    return result


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def patch(kept: int) -> None:
        monkeypatch.setattr(compression, "HELD_BYTES", 40)
        monkeypatch.setattr(compression, "_PIECE_BYTES", 64)
        monkeypatch.setattr(batches, "HELD_BYTES", 40)
        monkeypatch.setattr(batches, "MESSAGES", 2)
        monkeypatch.setattr(messageset, "MESSAGES", 2)
        monkeypatch.setattr(batches, "_KEPT_RECORDS", kept)

    return patch


@pytest.mark.parametrize("kept", [0, 10_000])
def test_parts_are_what_the_whole_batch_is(small_parts: Callable[[int], None], kept: int) -> None:
    random = Random(20261122)
    items = [
        Item(b"k%d" % n, bytes(n * 29), ((b"h", b"v"),) * (n % 3 * 40), BASE_MS + n * 90) for n in range(20)
    ]
    plain = [item._replace(headers=()) for item in items]
    seeds = [
        *(
            entries(magic, items if magic == 2 else plain, codec=codec, base_offset=7)
            for magic in range(3)
            for codec in range(5)
        ),
        messages(0, plain[:5]) + messages(1, plain) + batch(items),
        batch(items, flags=LOG_APPEND, max_ms=7) + message_set(1, plain, codec=GZIP, flags=LOG_APPEND),
    ]
    cases = []
    for number in range(1500):
        data = seeds[number % len(seeds)]
        data = data if number < len(seeds) else mutated(data, random)
        options: dict[str, Any] = {"base_offset": random.choice((None, 0, 7, 2**63 - 1))}
        options["limits"] = Limits(batch_items=random.choice((10, 100_000)))
        cases.append((RecordData(data, 0, len(data)), options))
    complete = [list(read_records(data, **options)) for data, options in cases]
    small_parts(kept)
    several = compared = 0
    for (data, options), expected_ones in zip(cases, complete, strict=True):
        parts = list(read_records(data, **options))
        several += len(parts) > len(expected_ones)
        # Of control records a part is enough: each batch of them has one, in Kafka. What gzip says before it
        # finds damage depends on the size of pieces.
        if not any(each.control or "damaged_compression" in kinds(each) for each in expected_ones):
            assert complete_count(parts) == expected_ones
            compared += 1
    assert several > 500
    assert compared > 900


def test_a_record_of_a_large_batch_has_a_bound(small_parts: Callable[[int], None]) -> None:
    small_parts(0)
    limits = Limits(record_bytes=1000)
    for magic in (1, 2):
        items = [Item(value=b"a" * 700), Item(value=b"b" * 1001), Item()]
        result = only(entries(magic, items, codec=GZIP), limits=limits)
        assert (len(result.records), kinds(result)) == (1, ["oversized_records"])


def test_headers_of_a_record_have_a_bound() -> None:
    many = Item(headers=((b"", b""),) * 101)
    result = only(batch([Item(), many, Item()]), limits=Limits(record_headers=100))
    assert (len(result.records), kinds(result)) == (1, ["oversized_records"])
    assert only(batch([many]), limits=Limits(record_headers=101)).anomalies == []


def test_malformed_control_records_are_counted_together() -> None:
    result = only(batch([Item(None, None)] * 1000, flags=CONTROL))
    assert (len(result.records), len(result.controls), len(result.anomalies)) == (1000, 1000, 11)
    assert "990 more control records" in result.anomalies[-1].detail
