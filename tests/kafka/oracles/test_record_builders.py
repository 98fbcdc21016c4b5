"""Records that kafka-python and aiokafka write, we read; what our tests' encoder writes, all three read."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lz4.frame
import pytest

from kdissect.kafka.batches import read_records
from kdissect.kafka.records import RecordData
from tests.kafka.oracles.record_builders import (
    BASE_MS,
    IMPLEMENTATIONS,
    Implementation,
    expected,
    header_checksum,
    kafka_python_codec,
    ours,
    read,
    write,
    writes,
)
from tests.kafka.random_bodies import TIMES
from tests.record_batches import CODECS, LOG_APPEND, LZ4, Item, batch, entries, message_set

if TYPE_CHECKING:
    from kdissect.kafka.recordbatch import Record

EACH = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda each: each.name)
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in CODECS]
WRITTEN = [(magic, codec) for magic, codec in FORMATS if writes(magic, CODECS[codec])]
BATCHES = 12 * TIMES
RECORDS_A_BATCH = (1, 2, 5, 70)


def random_items(random: Random, count: int) -> list[Item]:
    """Nulls, empty and long parts, headers, times forwards and backwards."""

    def content() -> bytes | None:
        length = random.choice((None, 0, 1, 10, 63, 64, 100, 1000, 8192, 9000))
        return None if length is None else random.randbytes(length)

    def headers() -> tuple[tuple[bytes, bytes | None], ...]:
        names = (b"trace", "größe".encode(), b"", b"n" * 100)
        return tuple((random.choice(names), content()) for _ in range(random.choice((0, 0, 1, 2, 70))))

    return [
        Item(content(), content(), headers(), BASE_MS + random.choice((0, 1, 63, -64, 9000, -9000, 2**33)))
        for _ in range(count)
    ]


def decoded_records(data: bytes) -> list[Record]:
    result = list(read_records(RecordData(data, 0, len(data))))
    assert [anomaly for each in result for anomaly in each.anomalies] == []
    return [record for each in result for record in each.records]


def test_how_many_formats_are_compared() -> None:
    assert (len(FORMATS), len(WRITTEN)) == (15, 12)


@EACH
@pytest.mark.parametrize(("magic", "codec"), WRITTEN)
def test_what_they_write_we_read(implementation: Implementation, magic: int, codec: str, oracle: Any) -> None:
    random = Random(f"{implementation.name} {magic} {codec}")
    records = 0
    for number in range(BATCHES):
        items = random_items(random, RECORDS_A_BATCH[number % 4])
        data = write(implementation, magic, CODECS[codec], items)
        assert ours(decoded_records(data)) == read(implementation, data)
        shown = [
            record._replace(timestamp_ms=None) if magic == 0 else record for record in decoded_records(data)
        ]
        assert ours(shown) == expected(magic, items)
        records += len(shown)
    assert records == BATCHES * sum(RECORDS_A_BATCH) // 4
    oracle(f"{implementation.name}'s builders: magic and codec", instances=records)


@EACH
@pytest.mark.parametrize(("magic", "codec"), WRITTEN)
def test_what_our_tests_write_everybody_reads(
    implementation: Implementation, magic: int, codec: str, oracle: Any
) -> None:
    random = Random(f"ours {magic} {codec}")
    records = 0
    for number in range(BATCHES):
        items = random_items(random, RECORDS_A_BATCH[number % 4])
        data = entries(magic, items, codec=CODECS[codec], base_offset=1000)
        data += entries(magic, items[:1], codec=CODECS[codec], base_offset=1000 + len(items))
        expected_records = expected(magic, items, 1000) + expected(magic, items[:1], 1000 + len(items))
        assert ours(decoded_records(data)) == read(implementation, data) == expected_records
        records += len(expected_records)
    assert records == BATCHES * (sum(RECORDS_A_BATCH) + 4) // 4
    oracle(f"{implementation.name}'s readers: magic and codec", instances=records)


def test_lz4_of_magic_0_as_kafka_python_writes_it(monkeypatch: pytest.MonkeyPatch, oracle: Any) -> None:
    """With the header checksum that old brokers want (KAFKA-3160), which is another than the format's."""
    monkeypatch.setattr(kafka_python_codec, "xxhash", SimpleNamespace(xxh32=header_checksum))
    right = lz4.frame.compress(b"abc", store_size=False)
    assert right[6] == header_checksum(right[4:6]).digest()[-2]
    wrong = kafka_python_codec.lz4_encode_old_kafka(b"abc")
    assert wrong[:6] == right[:6]
    assert wrong[6] != right[6]
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(wrong)

    kafka_python, random = IMPLEMENTATIONS[0], Random("KAFKA-3160")
    for count in RECORDS_A_BATCH * 3:
        items = random_items(random, count)
        data = write(kafka_python, 0, LZ4, items)
        assert wrong[:7] in data[:60]
        assert ours(decoded_records(data)) == read(kafka_python, data)
        assert ours([each._replace(timestamp_ms=None) for each in decoded_records(data)]) == expected(
            0, items
        )
        written = entries(0, items, codec=LZ4, base_offset=1000)
        assert ours(decoded_records(written)) == read(kafka_python, written) == expected(0, items, 1000)
    oracle("kafka-python's builders: LZ4 of magic 0", instances=3 * sum(RECORDS_A_BATCH))


@EACH
@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_and_gaps_as_they_see_them(implementation: Implementation, codec: str) -> None:
    items = [Item(b"a", offset=2), Item(b"b", offset=3), Item(b"c", offset=9)]
    number = CODECS[codec]
    written = [batch(items, codec=number, flags=LOG_APPEND, max_ms=BASE_MS + 5, base_offset=50)]
    if codec not in ("none", "zstd"):
        stamp = BASE_MS + 5
        written.append(
            message_set(1, items, codec=number, flags=LOG_APPEND, wrapper_ms=stamp, base_offset=100)
        )
    for data in written:
        result = ours(decoded_records(data))
        assert result == read(implementation, data)
        assert {seen.timestamp_ms for seen in result} == {BASE_MS + 5}


@EACH
def test_producer_and_transaction_as_they_write_them(implementation: Implementation) -> None:
    data = write(implementation, 2, LZ4, [Item()] * 3, producer=(1234567890123, 7, 42), transactional=True)
    (result,) = read_records(RecordData(data, 0, len(data)))
    assert (result.producer_id, result.producer_epoch, result.base_sequence) == (1234567890123, 7, 42)
    assert result.transactional
