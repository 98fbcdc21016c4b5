"""Which batches an aborted transaction hides; tests/kafka/test_batches.py has complete responses."""

from __future__ import annotations

from kdissect.kafka.batches import AbortedTransactions, read_records
from kdissect.kafka.records import RecordData
from tests.record_batches import ABORT_KEY, COMMIT_KEY, CONTROL, TRANSACTIONAL, Item, batch


def hidden(aborted: list[dict[str, int]], *entries: bytes) -> list[bool]:
    transactions = AbortedTransactions(aborted)
    data = b"".join(entries)
    return [transactions.hide(each) for each in read_records(RecordData(data, 0, len(data)))]


def entry(producer_id: int, offset: int, *, flags: int = TRANSACTIONAL, key: bytes | None = None) -> bytes:
    return batch([Item(key, b"\0\0\0\0\0\0")], flags=flags, base_offset=offset, producer_id=producer_id)


def mark(key: bytes, producer_id: int, offset: int) -> bytes:
    return entry(producer_id, offset, flags=TRANSACTIONAL | CONTROL, key=key)


def test_a_transaction_may_begin_inside_a_batch_that_compaction_shortened() -> None:
    data = batch([Item()], flags=TRANSACTIONAL, base_offset=10, last_offset_delta=5, producer_id=1)
    assert hidden([{"producer_id": 1, "first_offset": 13}], data) == [True]
    assert hidden([{"producer_id": 1, "first_offset": 16}], data) == [False]


def test_a_commit_marker_ends_nothing_that_was_aborted() -> None:
    aborted = [{"producer_id": 1, "first_offset": 0}]
    assert hidden(aborted, mark(COMMIT_KEY, 1, 0), entry(1, 1)) == [False, True]
    assert hidden(aborted, mark(ABORT_KEY, 1, 0), entry(1, 1)) == [False, False]


def test_producers_do_not_mix() -> None:
    aborted = [{"producer_id": 1, "first_offset": 0}, {"producer_id": 2, "first_offset": 1}]
    data = entry(1, 0), entry(2, 1), mark(ABORT_KEY, 1, 2), entry(1, 3), entry(2, 4)
    assert hidden(aborted, *data) == [True, True, False, False, True]
