"""``TransactionsPart`` -> the part of a summary's page about producers and transactions. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.phrases import ABSENT, absent, duration, listed, many, some
from kdissect.text.page import Heading, Section, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.stats.document import (
        FencedRow,
        ProducerRow,
        SequenceRow,
        TransactionRow,
        TransactionsPart,
    )

_PRODUCERS = (
    Heading("TRANSACTIONAL ID", gives=True),
    Heading("PRODUCER ID", right=True),
    Heading("EPOCH", right=True),
    Heading("CLIENTS", gives=True),
    Heading("FROM", gives=True),
    Heading("STARTED", right=True),
    Heading("COMMITTED", right=True),
    Heading("ABORTED", right=True),
    Heading("TIMED OUT", right=True),
    Heading("OPEN", right=True),
    Heading("LONGEST", right=True),
    Heading("FENCED", right=True),
    Heading("RECORDS", right=True),
    Heading("MISSING", right=True),
    Heading("DUPLICATES", right=True),
    Heading("MARKERS", right=True),
)
_KEPT_OF_PRODUCERS = {"TRANSACTIONAL ID", "PRODUCER ID", "STARTED", "COMMITTED", "OPEN", "FENCED", "MISSING"}
_TRANSACTIONS = (
    Heading("OUTCOME"),
    Heading("OPEN FOR", right=True),
    Heading("TRANSACTIONAL ID", gives=True),
    Heading("PRODUCER ID", right=True),
    Heading("EPOCH", right=True),
    Heading("START"),
    Heading("PARTITIONS", right=True),
    Heading("RECORDS", right=True),
    Heading("OFFSETS", right=True),
    Heading("MARKER AFTER", right=True),
    Heading("EXCHANGE"),
)
_KEPT_OF_TRANSACTIONS = {"OUTCOME", "OPEN FOR", "TRANSACTIONAL ID", "RECORDS", "EXCHANGE"}
_FENCED = (
    Heading("COUNT", right=True),
    Heading("ERROR"),
    Heading("API"),
    Heading("CLIENT", gives=True),
    Heading("FROM", gives=True),
    Heading("TRANSACTIONAL ID", gives=True),
    Heading("PRODUCER ID", right=True),
    Heading("EPOCH", right=True),
    Heading("FENCED BY", gives=True),
    Heading("ITS INITPRODUCERID"),
    Heading("FIRST"),
    Heading("EXAMPLE"),
)
_KEPT_OF_FENCED = {"COUNT", "ERROR", "CLIENT", "FENCED BY", "EXAMPLE"}
_SEQUENCES = (
    Heading("PARTITION", gives=True),
    Heading("PRODUCER ID", right=True),
    Heading("TRANSACTIONAL ID", gives=True),
    Heading("EPOCHS", right=True),
    Heading("BATCHES", right=True),
    Heading("RECORDS", right=True),
    Heading("GAPS", right=True),
    Heading("MISSING", right=True),
    Heading("DUPLICATES", right=True),
    Heading("ERRORS", gives=True),
    Heading("EXAMPLE"),
)
_KEPT_OF_SEQUENCES = {"PARTITION", "PRODUCER ID", "RECORDS", "MISSING", "DUPLICATES"}


def sections(part: TransactionsPart, *, limit: int | None, narrow: bool = False) -> Iterator[Section]:
    """Yield producers, transactions, who was fenced, and sequence numbers."""
    begun = sum(row.begun for row in part.producers)
    left_open = sum(row.open for row in part.producers)
    note = f"{many(len(part.producers), 'producer')}, {many(begun, 'transaction')}, {left_open:,} never ended"
    yield narrowed(_producers(part.producers, limit), narrow, _KEPT_OF_PRODUCERS)._replace(notes=(note,))
    if part.transactions:
        section = _transactions(part.transactions, limit)
        left_out = section.left_out + part.transactions_left_out
        yield narrowed(section, narrow, _KEPT_OF_TRANSACTIONS)._replace(left_out=left_out)
    if part.fenced:
        yield narrowed(_fenced(part.fenced, limit), narrow, _KEPT_OF_FENCED)
    if part.sequences:
        yield narrowed(_sequences(part.sequences, limit), narrow, _KEPT_OF_SEQUENCES)


def _producers(rows: Sequence[ProducerRow], limit: int | None) -> Section:
    shown = rows[:limit]
    cells = [
        [
            absent(row.transactional_id),
            listed(row.producer_ids),
            absent(row.epoch),
            listed(row.clients) or ABSENT,
            listed(row.addresses) or ABSENT,
            some(row.begun),
            some(row.committed),
            some(row.aborted + row.superseded),
            some(row.timed_out),
            some(row.open),
            ABSENT if row.longest_us is None else duration(row.longest_us * 1000),
            some(row.fenced),
            f"{row.records:,}",
            some(row.missing),
            some(row.repeated),
            some(row.commit_markers + row.abort_markers),
        ]
        for row in shown
    ]
    return Section("Producers", _PRODUCERS, cells, left_out=len(rows) - len(shown))


def _transactions(rows: Sequence[TransactionRow], limit: int | None) -> Section:
    shown = rows[:limit]
    cells = [
        [
            row.outcome.replace("_", " "),
            ("" if row.is_whole else "over ") + duration(row.open_us * 1000),
            row.transactional_id,
            str(row.producer_id),
            str(row.epoch),
            f"{row.begin:%H:%M:%S.%f}",
            some(row.partitions),
            some(row.records),
            some(row.offsets),
            _after(row),
            row.example,
        ]
        for row in shown
    ]
    return Section("Transactions", _TRANSACTIONS, cells, left_out=len(rows) - len(shown))


def _fenced(rows: Sequence[FencedRow], limit: int | None) -> Section:
    shown = rows[:limit]
    cells = [
        [
            f"{row.count:,}",
            row.error,
            row.api,
            row.client,
            row.address,
            absent(row.transactional_id),
            str(row.producer_id),
            str(row.epoch),
            ABSENT if row.by_client is None else f"{row.by_client} at {row.by_address}",
            absent(row.by_example),
            f"{row.first:%H:%M:%S}",
            row.example,
        ]
        for row in shown
    ]
    return Section("Fenced producers", _FENCED, cells, left_out=len(rows) - len(shown))


def _sequences(rows: Sequence[SequenceRow], limit: int | None) -> Section:
    shown = rows[:limit]
    cells = [
        [
            f"{row.topic}:{row.partition}",
            str(row.producer_id),
            absent(row.transactional_id),
            f"{row.epochs:,}",
            f"{row.batches:,}",
            f"{row.records:,}",
            some(row.holes),
            some(row.missing),
            some(row.repeated),
            listed([f"{count:,} {error}" for error, count in row.errors.items()]) or ABSENT,
            absent(row.example),
        ]
        for row in shown
    ]
    missing = sum(1 for row in rows if row.missing)
    note = f"{many(len(rows), 'partition')} written with sequence numbers, {missing:,} with gaps"
    return Section("Sequence numbers", _SEQUENCES, cells, (note,), len(rows) - len(shown))


def _after(row: TransactionRow) -> str:
    """How long after its end the first marker was written."""
    if row.marked is None or row.end is None:
        return ABSENT
    return duration(max(0, round((row.marked - row.end).total_seconds() * 1e9)))
