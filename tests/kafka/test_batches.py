"""Decoding record data: every format and codec, offsets and timestamps, control records, transactions."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from kdissect.kafka.batches import read_records
from kdissect.kafka.records import RecordData
from kdissect.limits import MIB
from kdissect.model import Embedded
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
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND,
    LZ4,
    TRANSACTIONAL,
    ZSTD,
    Item,
    batch,
    entries,
    message,
    message_set,
    messages,
)

# --- what is in a batch -------------------------------------------------------------------------------------


@EVERY_FORMAT
def test_every_format_in_every_codec(magic: int, codec: str) -> None:
    data = entries(magic, ITEMS, codec=CODECS[codec], base_offset=90)
    result = only(data)
    assert result.records == expected(magic, ITEMS, 90)
    assert (result.pos, result.size, result.magic) == (0, len(data), magic)
    assert (result.base_offset, result.last_offset) == (90, 92)
    assert result.compression == codec
    assert result.timestamp_type == ("CreateTime" if magic else None)
    assert result.anomalies == []
    assert (result.transactional, result.control, result.aborted) == (False, False, False)


@EVERY_FORMAT
def test_log_append_time_is_that_of_every_record(magic: int, codec: str) -> None:
    if magic == 0:
        return
    number = CODECS[codec]
    if magic == 1:
        items = [item._replace(timestamp_ms=BASE_MS + 77) for item in ITEMS] if not number else ITEMS
        data = message_set(1, items, codec=number, flags=LOG_APPEND, wrapper_ms=BASE_MS + 77)
    else:
        data = batch(ITEMS, codec=number, flags=LOG_APPEND, max_ms=BASE_MS + 77)
    result = only(data)
    assert result.timestamp_type == "LogAppendTime"
    assert {record.timestamp_ms for record in result.records} == {BASE_MS + 77}
    assert [record.value for record in result.records] == [item.value for item in ITEMS]


def test_what_a_batch_says_about_its_producer() -> None:
    data = batch(
        ITEMS,
        base_offset=10,
        leader_epoch=3,
        producer_id=77,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        flags=TRANSACTIONAL | DELETE_HORIZON,
    )
    result = only(data)
    assert (result.leader_epoch, result.producer_id, result.producer_epoch) == (3, 77, 2)
    assert [result.sequence(record) for record in result.records] == [2**31 - 2, 2**31 - 1, 0]
    assert (result.transactional, result.control, result.delete_horizon_ms) == (True, False, BASE_MS)
    assert result.records == expected(2, ITEMS, 10)


def test_what_the_others_do_not_say() -> None:
    for result in (only(batch(ITEMS)), only(messages(1, ITEMS))):
        assert result.sequence(result.records[0]) is None
        assert result.delete_horizon_ms is None
    assert only(messages(1, ITEMS)).producer_id is None


def test_formats_may_be_mixed_and_unlike_messages_are_batches_of_their_own() -> None:
    data = [
        messages(0, ITEMS, base_offset=0),
        message_set(0, ITEMS, codec=GZIP, base_offset=3),
        messages(1, ITEMS, base_offset=6),
        messages(1, ITEMS[:1], base_offset=9, attributes=LOG_APPEND),
        message_set(1, ITEMS, codec=LZ4, base_offset=10),
        batch(ITEMS, base_offset=13),
        batch(ITEMS, base_offset=16, codec=ZSTD),
    ]
    result = decoded_batches(b"".join(data))
    assert [each.size for each in result] == [len(each) for each in data]
    assert [each.pos for each in result] == [sum(map(len, data[:place])) for place in range(len(data))]
    assert [place for each in result for place in places(each)] == list(range(19))
    assert [kinds(each) for each in result] == [[]] * 7


def test_nothing_is_decoded_before_it_is_needed() -> None:
    bomb = batch(codec=GZIP, payload=gzip.compress(bytes(20 * MIB)))
    data = batch(ITEMS) + bomb
    tracemalloc.start()
    batches = read_records(RecordData(data, 0, len(data)))
    assert next(batches).records == expected(2, ITEMS)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()
    assert kinds(next(batches)) == ["oversized_records"]


def test_an_empty_field_has_no_batches() -> None:
    assert decoded_batches(b"") == []


def test_an_empty_batch_keeps_its_place() -> None:
    result = only(batch([], base_offset=5, last_offset_delta=9, producer_id=7, base_sequence=3))
    assert (result.records, result.base_offset, result.last_offset, result.anomalies) == ([], 5, 14, [])
    assert only(batch([], codec=GZIP, payload=b"")).anomalies == []


def test_a_compacted_batch_has_gaps() -> None:
    items = [Item(offset=2), Item(offset=5), Item(offset=6)]
    result = only(batch(items, base_offset=100, last_offset_delta=9))
    assert (places(result), result.base_offset, result.last_offset) == ([102, 105, 106], 100, 109)


# --- offsets ------------------------------------------------------------------------------------------------


@EVERY_FORMAT
def test_offsets_of_a_produce_count_from_what_the_response_says(magic: int, codec: str) -> None:
    data = entries(magic, ITEMS, codec=CODECS[codec]) + entries(magic, ITEMS[:2], codec=CODECS[codec])
    result = decoded_batches(data, base_offset=1000)
    assert [place for each in result for place in places(each)] == [1000, 1001, 1002, 1003, 1004]
    assert (result[0].base_offset, result[-1].last_offset) == (1000, 1004)


def test_sequence_numbers_do_not_depend_on_the_offsets() -> None:
    result = only(batch(ITEMS, producer_id=1, base_sequence=50), base_offset=1000)
    assert [result.sequence(record) for record in result.records] == [50, 51, 52]


def test_offsets_inside_a_compressed_message_of_magic_1_are_relative() -> None:
    compacted = [Item(offset=1), Item(offset=4)]
    assert places(only(message_set(1, compacted, codec=GZIP, base_offset=200))) == [201, 204]
    # An old broker kept absolute ones, whose last is the wrapper's.
    inner = messages(1, ITEMS, base_offset=50)
    absolute = message(1, Item(None, gzip.compress(inner)), offset=52, attributes=GZIP)
    assert places(only(absolute)) == [50, 51, 52]


def test_an_old_librdkafka_leaves_the_wrapper_at_offset_0() -> None:
    assert places(only(message_set(1, ITEMS, codec=GZIP, wrapper_offset=0))) == [0, 1, 2]
    assert places(only(message_set(1, ITEMS[:1], codec=GZIP))) == [0]


def test_offsets_inside_a_compressed_message_of_magic_0_are_absolute() -> None:
    assert places(only(message_set(0, ITEMS, codec=GZIP, base_offset=200))) == [200, 201, 202]
    assert places(only(message_set(0, ITEMS, codec=GZIP, wrapper_offset=7))) == [0, 1, 2]


def test_absolute_offsets_stay_in_64_bits() -> None:
    result = only(message_set(1, ITEMS, codec=GZIP, wrapper_offset=-(2**63)))
    assert all(-(2**63) <= place < 2**63 for place in places(result))
    for magic in (0, 1, 2):
        last = decoded_batches(entries(magic, ITEMS) * 3, base_offset=2**63 - 2)[-1]
        assert all(-(2**63) <= place < 2**63 for place in places(last))
        assert -(2**63) <= last.base_offset < 2**63
        assert -(2**63) <= last.last_offset < 2**63


# --- control records and transactions -----------------------------------------------------------------------


def test_control_records_have_names() -> None:
    for key, name in ((COMMIT_KEY, "COMMIT"), (ABORT_KEY, "ABORT")):
        result = only(marker(key, 1, 0))
        (control,) = result.controls
        assert (result.control, control.type, result.anomalies) == (True, name, [])
        assert isinstance(control.value, Embedded)
        assert control.value.decoded["coordinator_epoch"] == 5


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0", b""), (b"\0\0\0\2", b"\0\1"), (ABORT_KEY, b"\0")]
)
def test_control_records_that_are_none(key: bytes | None, value: bytes) -> None:
    result = only(batch([Item(key, value)], flags=CONTROL))
    assert kinds(result) == ["malformed_payload"]
    assert (result.records[0].key, len(result.controls)) == (key, 1)


def test_control_records_without_a_value_are_no_fault() -> None:
    assert only(batch([Item(b"\0\0\0\1", None)], flags=CONTROL)).anomalies == []


def test_aborted_transactions_hide_a_producers_batches_up_to_its_marker() -> None:
    data = b"".join(
        [
            transactional(1, 0),  # committed
            marker(COMMIT_KEY, 1, 2),
            transactional(1, 3),  # aborted
            transactional(2, 5),  # another producer, committed
            batch([Item()], base_offset=7, producer_id=1),  # not transactional
            transactional(1, 8),  # aborted, same transaction
            marker(ABORT_KEY, 1, 10),
            transactional(1, 11),  # committed again
            transactional(2, 13),
            marker(COMMIT_KEY, 2, 15),
            transactional(1, 16),  # aborted again
        ]
    )
    reported = [{"producer_id": 1, "first_offset": 16}, {"producer_id": 1, "first_offset": 3}]
    hidden = [each.base_offset for each in decoded_batches(data, aborted=reported) if each.aborted]
    assert hidden == [3, 8, 16]
    for nothing in (None, [], ()):
        assert not any(each.aborted for each in decoded_batches(data, aborted=nothing))


def test_message_sets_among_aborted_batches_are_not_hidden() -> None:
    data = messages(1, ITEMS) + transactional(-1, 3)
    reported = [{"producer_id": -1, "first_offset": 0}, {}]
    assert [each.aborted for each in decoded_batches(data, aborted=reported)] == [False, True]
