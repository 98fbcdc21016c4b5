"""Producers and their transactions: the part of the document that ``--transactions`` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.analysis.summary.fields import told


@dataclass(slots=True, kw_only=True)
class ProducerRow:
    """A transactional id, or an idempotent producer that has none."""

    transactional_id: str | None = told("Its transactional id; null for a producer that has none.")
    producer_ids: list[int] = told("The producer ids that it got or used: at most 20.")
    epoch: int | None = told("The highest producer epoch of the last of them.")
    clients: list[str] = told("Client ids: at most 20.")
    addresses: list[str] = told("Where from: at most 20 addresses.")
    inits: int = told("InitProducerId requests that were answered without an error.")
    begun: int = told("Transactions; the numbers of the next five add up to it.")
    committed: int = told("Ended by EndTxn, commit.")
    aborted: int = told("Ended by EndTxn, abort.")
    superseded: int = told("Ended by another InitProducerId: the coordinator aborts what was open.")
    timed_out: int = told("Ended by the coordinator, which wrote abort markers when the time was over.")
    open: int = told("Never ended in the capture.")
    longest_us: int | None = told("The longest was open for so many microseconds.")
    fenced: int = told("Answers that told a producer that its epoch is over.")
    batches: int = told("Batches with a producer id that it sent, those sent again included.")
    records: int = told("Records in them.")
    missing: int = told("Sequence numbers that no captured batch has, between those that were seen.")
    repeated: int = told("Records that it sent again: retries.")
    commit_markers: int = told("Partitions for which the coordinator had a commit marker written.")
    abort_markers: int = told("Partitions for which it had an abort marker written.")
    control_batches: int = told("Batches with markers in fetched records, as often as they were fetched.")
    first: datetime | None = told("When it was first seen.")
    last: datetime | None = told("When last.")


@dataclass(slots=True, kw_only=True)
class TransactionRow:
    """A transaction."""

    transactional_id: str = told("Whose.")
    producer_id: int = told("Its producer id.")
    epoch: int = told("The producer epoch with which it began.")
    outcome: str = told("`open`, `timed_out`, `superseded`, `aborted` or `committed`.")
    begin: datetime = told(
        "The first AddPartitionsToTxn or AddOffsetsToTxn, or the first transactional Produce (KIP-890)."
    )
    end: datetime | None = told("When EndTxn, or what else ended it, was answered; null while it is open.")
    open_us: int = told("Microseconds from begin to end, or to the end of the capture.")
    marked: datetime | None = told("When its first marker was written, where the capture has that.")
    is_whole: bool = told("Whether its begin is known to be in the capture.")
    partitions: int = told("Different partitions that it wrote to, or was to write to.")
    records: int = told("Records that were sent in it.")
    offsets: int = told("Partitions for which it committed a group's offsets.")
    example: str = told("CONNECTION/NUMBER of its first exchange, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class FencedRow:
    """Answers that told a producer that its epoch is over."""

    transactional_id: str | None = told("Whose; null for a producer without one.")
    producer_id: int = told("The producer id with which it asked.")
    epoch: int = told("The producer epoch with which it asked.")
    error: str = told("PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH as older brokers call it.")
    api: str = told("In answers of which api.")
    client: str = told("To whom.")
    address: str = told("Where that one is.")
    by_client: str | None = told("Who had asked for the producer id before, from another connection.")
    by_address: str | None = told("Where that one is.")
    by_example: str | None = told("CONNECTION/NUMBER of the InitProducerId that raised the epoch.")
    count: int = told("How often.")
    first: datetime = told("When first.")
    last: datetime = told("When last.")
    example: str = told("CONNECTION/NUMBER of the first.")


@dataclass(slots=True, kw_only=True)
class SequenceRow:
    """What a producer id wrote to a partition."""

    producer_id: int = told("The producer id.")
    transactional_id: str | None = told("Its transactional id, where it has one.")
    topic: str = told("Name or id of the topic.")
    partition: int = told("Its partition.")
    epochs: int = told("Producer epochs in which it wrote.")
    batches: int = told("Batches, those sent again included.")
    records: int = told("Records in them.")
    holes: int = told("Places where sequence numbers are missing: lost before the broker, or by the capture.")
    missing: int = told("How many numbers are missing there.")
    repeated: int = told("Records that were sent again.")
    errors: dict[str, int] = told("Batches that were refused, by error.")
    first: datetime = told("Time of the first.")
    last: datetime = told("Time of the last.")
    example: str | None = told("CONNECTION/NUMBER of the first batch behind missing numbers.")


@dataclass(slots=True, kw_only=True)
class TransactionsPart:
    """Producers with a producer id."""

    producers: list[ProducerRow] = told("Those with a transactional id first.")
    transactions: list[TransactionRow] = told(
        "The open first, the committed last; of each the longest first."
    )
    transactions_left_out: int = told("Transactions that are counted above and not listed.")
    fenced: list[FencedRow] = told("Who was told that its epoch is over.")
    sequences: list[SequenceRow] = told("By partition, those with missing numbers first.")
