from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

from kdissect import dissect, open_capture, summarize
from kdissect.limits import DEFAULT
from kdissect.stats.transactions import Transactions
from tests import producers as p

if TYPE_CHECKING:
    from kdissect.stats.document import ProducerRow
    from kdissect.stats.facts import Facts


INVALID_TXN_STATE = 48


def transactions(*facts: Facts) -> Transactions:
    result = Transactions(DEFAULT)
    for each in facts:
        result.feed(each)
    return result


def producer(result: Transactions) -> ProducerRow:
    (row,) = result.rows().producers
    return row


USUAL = (
    p.init(0),
    p.add(1),
    p.produce(1.1, 0, 3),
    p.commit_offsets(1.2),
    p.end(1.5),
    p.mark(1.6),
    p.fetch_markers(1.7),
    p.add(2, error=p.CONCURRENT_TRANSACTIONS),
    p.add(2.1),
    p.produce(2.2, 3, 2),
    p.end(2.5, commits=False),
    p.mark(2.6, commits=False),
)


def test_a_producer_with_two_transactions() -> None:
    row = producer(transactions(*USUAL))
    assert (row.transactional_id, row.producer_ids, row.epoch, row.clients) == ("pay", [7], 0, ["payments"])
    assert (row.started, row.committed, row.aborted, row.open, row.inits) == (2, 1, 1, 0, 1)
    assert (row.batches, row.records, row.missing, row.duplicates, row.fenced) == (2, 5, 0, 0, 0)
    assert (row.commit_markers, row.abort_markers, row.control_batches) == (2, 2, 1)


def test_its_transactions() -> None:
    aborted, committed = transactions(*USUAL).rows().transactions
    assert (aborted.outcome, aborted.records, aborted.partitions, aborted.offset_partitions) == (
        "aborted",
        2,
        1,
        0,
    )
    assert (committed.outcome, committed.records, committed.partitions, committed.offset_partitions) == (
        "committed",
        3,
        1,
        1,
    )
    assert (committed.duration_us, aborted.duration_us) == (505_000, 405_000)  # to the answer of EndTxn
    assert aborted.example == "payments-AddPartitionsToTxn/2100"
    assert committed.start_captured
    assert committed.first_marker is not None


def test_version_2_begins_with_produce_and_takes_an_epoch_each() -> None:
    result = transactions(
        p.init(0),
        p.produce(1, 0),
        p.add_for(1.001, 0, verify_only=False),
        p.end(1.5, bumped=1),
        p.mark(1.6, 1),
        p.produce(2, 0, epoch=1),
        p.add_for(2.001, 1, verify_only=False),
        p.end(2.5, 1, bumped=2),
    )
    row = producer(result)
    assert (row.started, row.committed, row.epoch, row.missing, row.duplicates) == (2, 2, 2, 0, 0)
    assert {each.records for each in result.rows().transactions} == {1}


def test_what_a_broker_verifies_begins_nothing() -> None:
    result = transactions(p.init(0), p.add_for(1, 0, verify_only=True))
    assert producer(result).started == 0


def test_markers_of_a_producer_id_that_nobody_names() -> None:
    row = producer(transactions(p.mark(1)))
    assert (row.transactional_id, row.producer_ids, row.commit_markers, row.started) == (None, [7], 2, 0)


def test_markers_seen_before_the_name_is() -> None:
    row = producer(transactions(p.mark(0.1), *USUAL))
    assert (row.transactional_id, row.commit_markers) == ("pay", 4)


def test_an_idempotent_producer_has_sequence_numbers_only() -> None:
    result = transactions(
        p.init(0, name=None),
        p.produce(1, 0, 2, name=None),
        p.produce(1.1, 2, 2, name=None, answered=False),
        p.produce(1.2, 2, 2, name=None),
        p.produce(1.3, 9, 1, name=None, error=p.OUT_OF_ORDER),
    )
    row = producer(result)
    assert (row.transactional_id, row.started, row.missing, row.duplicates) == (None, 0, 5, 2)
    (numbered,) = result.rows().sequences
    assert (numbered.topic, numbered.partition, numbered.gaps) == ("orders", 0, 1)
    assert numbered.errors == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
    assert numbered.example == "payments-Produce/1300"


def test_a_producer_that_was_fenced_and_by_whom() -> None:
    result = transactions(
        p.init(0),
        p.add(1),
        p.init(2, 1, client="other"),
        p.produce(3, 0, error=p.PRODUCER_FENCED),
        p.produce(3.1, 0, error=p.PRODUCER_FENCED),
        p.end(4, error=p.PRODUCER_FENCED),
    )
    rows = result.rows().fenced
    assert [(row.api, row.count, row.error) for row in rows] == [
        ("Produce", 2, "PRODUCER_FENCED"),
        ("EndTxn", 1, "PRODUCER_FENCED"),
    ]
    assert (rows[0].client, rows[0].epoch, rows[0].by_client) == ("payments", 0, "other")
    assert rows[0].by_example == "other-InitProducerId/2000"
    row = producer(result)
    assert (row.fenced, row.superseded, row.open) == (3, 1, 0)


def test_connections_merge_in_any_order() -> None:
    everything = transactions(*USUAL)
    parts: dict[str, list[Facts]] = {}
    for each in USUAL:
        parts.setdefault(each.exchange.connection.id, []).append(each)
    merged = transactions()
    for part in reversed(parts.values()):
        merged.merge(pickle.loads(pickle.dumps(transactions(*part))))
    assert merged.rows() == everything.rows()


def test_many_transactions_are_added_up() -> None:
    result = Transactions(replace(DEFAULT, summary_transaction_events=50))
    result.feed(p.init(0))
    for number in range(1, 1001):
        for each in (p.add(number), p.produce(number + 0.1, number - 1), p.end(number + 0.5)):
            result.feed(each)
    result.feed(p.add(1001))
    row = producer(result)
    assert (row.started, row.committed, row.open, row.records, row.missing) == (1001, 1000, 1, 1000, 0)
    part = result.rows()
    assert len(part.transactions) + part.transactions_not_listed == 1001
    assert part.transactions[0].outcome == "open"


def test_a_real_capture() -> None:
    with open_capture("samples/kafka-4-transactions.pcap") as packets:
        part = summarize(dissect(packets), parts=["transactions"]).transactions
    assert part is not None
    outcomes = {row.transactional_id: (row.committed, row.aborted) for row in part.producers}
    assert outcomes == {
        "pay-1": (1, 1),
        "pay-aio": (1, 1),
        "pay-java": (2, 1),
        "pay-kp": (1, 1),
        "pay-rd": (1, 0),
    }
    assert all(row.missing == row.duplicates == 0 for row in part.sequences)
    assert all(row.first_marker for row in part.transactions)


def test_a_transaction_that_was_refused_after_its_timeout_has_timed_out() -> None:
    written = (p.init(0, timeout_ms=4000), p.produce(1, 0, 2))
    late = transactions(*written, p.end(19, error=INVALID_TXN_STATE), p.init(20, 1))
    row = producer(late)
    assert (row.started, row.timed_out, row.superseded, row.committed) == (1, 1, 0, 0)
    (listed,) = late.rows().transactions
    assert (listed.outcome, listed.timeout_ms, listed.duration_us, listed.records) == (
        "timed_out", 4000, 18_000_000, 2,
    )  # fmt: skip
    early = producer(transactions(*written, p.end(3, error=INVALID_TXN_STATE), p.init(20, 1)))
    assert (early.timed_out, early.superseded) == (0, 1)
    of_another = producer(transactions(*written, p.end(19, 5, error=INVALID_TXN_STATE), p.init(20, 6)))
    assert (of_another.timed_out, of_another.superseded) == (0, 1)


def test_a_refused_batch_is_not_written_and_its_retry_is_no_duplicate() -> None:
    refused = p.produce(1, 0, 2, error=p.CONCURRENT_TRANSACTIONS)
    row = producer(transactions(p.init(0), refused, p.produce(1.1, 0, 2)))
    assert (row.batches, row.records, row.duplicates, row.missing) == (1, 2, 0, 0)
    behind = p.produce(1.3, 4, 2, error=p.OUT_OF_ORDER)
    retried = (p.produce(1.4, 2, 2), p.produce(1.5, 4, 2))
    row = producer(transactions(p.init(0), p.produce(1.1, 0, 2), behind))
    assert (row.records, row.duplicates, row.missing) == (2, 0, 2)
    row = producer(transactions(p.init(0), p.produce(1.1, 0, 2), behind, *retried))
    assert (row.records, row.duplicates, row.missing) == (6, 0, 0)
