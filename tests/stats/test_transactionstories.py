from __future__ import annotations

from typing import Any

from kdissect.stats.transactions import (
    ADD,
    END,
    INIT,
    MARKER,
    OFFSETS,
    WRITE,
    Event,
    TransactionHistory,
)

SECOND_NS = 1_000_000_000


def event(
    at_s: float, kind: int, error: str | None = None, client: str = "a", epoch: int = 0, **more: Any
) -> Event:
    time_ns = round(at_s * SECOND_NS)
    return Event(time_ns, f"c/{at_s}", kind, "Api", client, "10.0.0.1", 7, epoch, error, time_ns + 1, **more)


def history(*events: Event) -> TransactionHistory:
    result = TransactionHistory()
    for each in events:
        result.take(each)
    return result


def outcomes(result: TransactionHistory) -> list[str]:
    return [each.outcome for each in result.ended]


def test_commit_and_abort() -> None:
    result = history(
        event(0, INIT),
        event(1, ADD),
        event(2, END, commits=True),
        event(3, ADD),
        event(4, END, commits=False),
    )
    assert outcomes(result) == ["committed", "aborted"]
    assert result.open is None


def test_what_failed_begins_and_ends_nothing() -> None:
    result = history(
        event(0, INIT), event(1, ADD, "CONCURRENT_TRANSACTIONS"), event(2, WRITE, "NOT_LEADER_OR_FOLLOWER")
    )
    assert result.open is None
    result = history(event(1, ADD), event(2, END, "COORDINATOR_NOT_AVAILABLE", commits=True))
    assert result.open is not None


def test_a_repeated_end_txn() -> None:
    result = history(event(0, INIT), event(1, ADD), event(2, END, commits=True), event(3, END, commits=True))
    assert outcomes(result) == ["committed"]


def test_an_end_whose_begin_was_not_captured() -> None:
    (transaction,) = history(event(2, END, commits=True)).ended
    assert not transaction.start_captured
    (transaction,) = history(event(1, WRITE), event(2, END, commits=True)).ended
    assert not transaction.start_captured


def test_a_new_producer_id_ends_what_was_open() -> None:
    result = history(event(0, INIT), event(1, ADD), event(2, INIT, epoch=1))
    assert outcomes(result) == ["superseded"]


def test_markers_without_end_txn_are_a_timeout() -> None:
    started = (event(0, INIT, timeout_ms=10_000), event(1, ADD), event(1.5, WRITE, records=4))
    result = history(*started, event(14, MARKER, commits=False))
    (transaction,) = result.ended
    assert (transaction.outcome, transaction.records) == ("timed_out", 4)
    assert transaction.first_marker_ns == 14 * SECOND_NS
    assert history(*started, event(3, MARKER, commits=False)).open is not None  # of an earlier transaction


def test_markers_belong_to_the_transaction_that_ended() -> None:
    result = history(
        event(0, INIT),
        event(1, ADD),
        event(2, END, commits=True),
        event(3, ADD),
        event(4, MARKER, commits=True),
    )
    assert result.ended[0].first_marker_ns == 4 * SECOND_NS
    assert result.open is not None


def test_offsets_and_partitions_are_counted_separately() -> None:
    result = history(
        event(1, ADD, partitions=(("t", 0), ("t", 1))),
        event(2, WRITE, partitions=(("t", 0),), records=2),
        event(3, OFFSETS, partitions=(("in", 0),)),
    )
    assert result.open is not None
    assert (len(result.open.partitions), result.open.records, result.open.offset_partitions) == (2, 2, 1)


def test_a_producer_of_the_same_name_fences_the_older() -> None:
    result = history(
        event(0, INIT, client="a"),
        event(1, INIT, client="b", epoch=1),
        event(2, WRITE, "INVALID_PRODUCER_EPOCH", client="a"),
        event(3, WRITE, "INVALID_PRODUCER_EPOCH", client="a"),
    )
    ((fence, fenced),) = result.fenced.items()
    assert (fence.client, fence.error) == ("a", "INVALID_PRODUCER_EPOCH")
    assert (fenced.count, fenced.example) == (2, "c/2")
    assert fenced.by is not None
    assert fenced.by.client == "b"


def test_who_is_fenced_for_a_reason_that_was_not_captured() -> None:
    result = history(event(0, INIT), event(2, WRITE, "PRODUCER_FENCED"))
    (fenced,) = result.fenced.values()
    assert fenced.by is None


def test_many_are_counted_and_the_longest_kept() -> None:
    result = TransactionHistory()
    for number in range(1000):
        result.take(event(number, ADD))
        result.take(event(number + (number % 100) / 200, END, commits=number % 2 == 0))
    assert result.outcomes.total() == 1000
    assert len(result.ended) <= 200
    assert len(result.ended) + result.unlisted == 1000
    longest = max(each.open_ns(0) for each in result.ended if each.outcome == "aborted")
    assert longest == round(0.495 * SECOND_NS) + 1
