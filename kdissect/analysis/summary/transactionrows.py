"""Producers and sequences -> the rows of the document. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.rows import NAMES, moment, ranked
from kdissect.analysis.summary.transactionsdocument import (
    FencedRow,
    ProducerRow,
    SequenceRow,
    TransactionRow,
    TransactionsPart,
)
from kdissect.analysis.summary.transactionstories import (
    ABORTED,
    COMMITTED,
    OUTCOMES,
    SUPERSEDED,
    TIMED_OUT,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kdissect.analysis.summary.producers import Producer
    from kdissect.analysis.summary.sequences import Sequence
    from kdissect.analysis.summary.transactions import Name
    from kdissect.analysis.summary.transactionstories import Story, Transaction


def part(
    producers: Mapping[Name, Producer],
    sequences: Mapping[tuple[int, str, int], Sequence],
    names: Mapping[int, str],
    last_ns: int,
) -> TransactionsPart:
    """Tell it all.

    Args:
        producers: by transactional id, or by producer id where there is none.
        sequences: by producer id and partition.
        names: producer id -> transactional id.
        last_ns: when the capture ends.
    """
    stories = {name: producer.told() for name, producer in producers.items()}
    transactions = [
        _transaction(name[0] or "", each, last_ns)
        for name, story in stories.items()
        for each in (*story.over, *([story.open] if story.open else ()))
    ]
    transactions.sort(
        key=lambda row: (OUTCOMES.index(row.outcome), -row.open_us, row.begin, row.transactional_id)
    )
    fenced = [row for name, story in stories.items() for row in _fenced(name[0], story)]
    fenced.sort(key=lambda row: (row.first, row.example, row.api))
    numbered = [_sequence(*key, names.get(key[0]), each) for key, each in sequences.items()]
    numbered.sort(key=lambda row: (-row.missing, -row.repeated, row.producer_id, row.topic, row.partition))
    of_name: dict[Name, list[SequenceRow]] = {}
    for row in numbered:
        known = row.transactional_id
        of_name.setdefault((None, row.producer_id) if known is None else (known, -1), []).append(row)
    rows = [
        _producer(name, each, stories[name], of_name.get(name, []), last_ns)
        for name, each in producers.items()
    ]
    rows.sort(key=lambda row: (row.transactional_id is None, row.transactional_id or "", row.producer_ids))
    return TransactionsPart(
        producers=rows,
        transactions=transactions,
        transactions_left_out=sum(story.unlisted for story in stories.values()),
        fenced=fenced,
        sequences=numbered,
    )


def _producer(
    name: Name, producer: Producer, story: Story, sequences: list[SequenceRow], last_ns: int
) -> ProducerRow:
    transactions = [*story.over, *([story.open] if story.open else ())]
    ids = sorted(producer.epochs)
    return ProducerRow(
        transactional_id=name[0],
        producer_ids=ids or [name[1]],
        epoch=producer.epochs[ids[-1]] if ids else None,
        clients=producer.clients.first(NAMES),
        addresses=producer.addresses.first(NAMES),
        inits=producer.inits,
        begun=story.outcomes.total() + (story.open is not None),
        committed=story.outcomes[COMMITTED],
        aborted=story.outcomes[ABORTED],
        superseded=story.outcomes[SUPERSEDED],
        timed_out=story.outcomes[TIMED_OUT],
        open=int(story.open is not None),
        longest_us=max((each.open_ns(last_ns) // 1000 for each in transactions), default=None),
        fenced=producer.fenced,
        batches=producer.batches,
        records=producer.records,
        missing=sum(row.missing for row in sequences),
        repeated=sum(row.repeated for row in sequences),
        commit_markers=producer.markers[True],
        abort_markers=producer.markers[False],
        control_batches=producer.control_batches,
        first=None if producer.first_ns is None else moment(producer.first_ns),
        last=None if producer.last_ns is None else moment(producer.last_ns),
    )


def _transaction(transactional_id: str, each: Transaction, last_ns: int) -> TransactionRow:
    return TransactionRow(
        transactional_id=transactional_id,
        producer_id=each.producer_id,
        epoch=each.epoch,
        outcome=each.outcome,
        begin=moment(each.begin_ns),
        end=None if each.end_ns is None else moment(each.end_ns),
        open_us=each.open_ns(last_ns) // 1000,
        marked=None if each.marked_ns is None else moment(each.marked_ns),
        is_whole=each.is_whole,
        partitions=len(each.partitions),
        records=each.records,
        offsets=each.offsets,
        example=each.exchange,
    )


def _fenced(transactional_id: str | None, story: Story) -> Iterator[FencedRow]:
    for fence, each in story.fenced.items():
        by = each.by
        yield FencedRow(
            transactional_id=transactional_id,
            **fence._asdict(),
            by_client=None if by is None else by.client,
            by_address=None if by is None else by.address,
            by_example=None if by is None else by.exchange,
            count=each.count,
            first=moment(each.first_ns),
            last=moment(each.last_ns),
            example=each.exchange,
        )


def _sequence(
    producer_id: int, topic: str, partition: int, transactional_id: str | None, each: Sequence
) -> SequenceRow:
    return SequenceRow(
        producer_id=producer_id,
        transactional_id=transactional_id,
        topic=topic,
        partition=partition,
        epochs=each.epochs,
        batches=each.batches,
        records=each.records,
        holes=each.holes,
        missing=each.missing,
        repeated=each.repeated,
        errors=ranked(each.errors),
        first=moment(each.first_ns),
        last=moment(each.last_ns),
        example=each.example,
    )
