"""``TransactionsPart`` -> the part of the summary page about producers and transactions. Stateless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.phrases import ABSENT, absent, duration, listed, many, nonzero
from kdissect.stats.transactions import SUPERSEDED
from kdissect.text.page import IPV4, PageSection, View, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.document import (
        FencedRow,
        ProducerRow,
        SequenceRow,
        TransactionRow,
        TransactionsPart,
    )


def sections(part: TransactionsPart, *, limit: int | None) -> Iterator[PageSection]:
    """Yield producers, transactions, fenced producers, and sequence numbers."""
    started = sum(row.started for row in part.producers)
    left_open = sum(row.open for row in part.producers)
    note = (
        f"{many(len(part.producers), 'producer')}, {many(started, 'transaction')}, {left_open:,} still open"
    )
    yield table("Producers", _PRODUCERS, part.producers, limit=limit, notes=(note,))
    if part.transactions:
        yield table(
            "Transactions",
            _TRANSACTIONS,
            part.transactions,
            limit=limit,
            left_out=part.transactions_not_listed,
        )
    if part.fenced:
        yield table("Fenced producers", _FENCED, part.fenced, limit=limit)
    if rows := part.sequences:
        missing = sum(1 for row in rows if row.missing)
        pairs = many(len(rows), "producer-partition pair")
        note = f"{pairs}, {missing:,} with gaps; MISSING: sequence numbers in gaps"
        yield table("Sequence numbers", _SEQUENCES, rows, limit=limit, notes=(note,))


def _open_for(row: TransactionRow) -> str:
    return ("" if row.start_captured else "over ") + duration(row.duration_us * 1000)


def _timeout(row: TransactionRow) -> str:
    return ABSENT if row.timeout_ms is None else duration(row.timeout_ms * 1_000_000)


def _after(row: TransactionRow) -> str:
    """Time from the end of a transaction to its first marker."""
    if row.first_marker is None or row.end is None:
        return ABSENT
    return duration(max(0, round((row.first_marker - row.end).total_seconds() * 1e9)))


def _by(row: FencedRow) -> str:
    return ABSENT if row.by_client is None else f"{row.by_client} at {row.by_address}"


def _errors(row: SequenceRow) -> str:
    return listed([f"{count:,} {error}" for error, count in row.errors.items()]) or ABSENT


def outcome_text(outcome: str) -> str:
    """What became of a transaction."""
    return "aborted by InitProducerId" if outcome == SUPERSEDED else outcome.replace("_", " ")


def _longest(row: ProducerRow) -> str:
    return ABSENT if row.longest_us is None else duration(row.longest_us * 1000)


_PRODUCERS = (
    View("TRANSACTIONAL ID", lambda row: absent(row.transactional_id), keep=True, shrinks=True),
    View("PRODUCER ID", lambda row: listed(row.producer_ids), right=True, keep=True),
    View("EPOCH", lambda row: absent(row.epoch), right=True),
    View("CLIENTS", lambda row: listed(row.clients) or ABSENT, shrinks=True),
    View("FROM", lambda row: listed(row.addresses) or ABSENT, shrinks=True, width=IPV4),
    View("STARTED", lambda row: nonzero(row.started), right=True, keep=True),
    View("COMMITTED", lambda row: nonzero(row.committed), right=True, keep=True),
    View("ABORTED", lambda row: nonzero(row.aborted + row.superseded), right=True),
    View("TIMED OUT", lambda row: nonzero(row.timed_out), right=True),
    View("OPEN", lambda row: nonzero(row.open), right=True, keep=True),
    View("LONGEST", _longest, right=True),
    View("FENCED", lambda row: nonzero(row.fenced), right=True, keep=True),
    View("RECORDS", lambda row: f"{row.records:,}", right=True),
    View("MISSING", lambda row: nonzero(row.missing), right=True, keep=True),
    View("DUPLICATES", lambda row: nonzero(row.duplicates), right=True),
    View("MARKERS", lambda row: nonzero(row.commit_markers + row.abort_markers), right=True),
)
_TRANSACTIONS = (
    View("OUTCOME", lambda row: outcome_text(row.outcome), keep=True),
    View("OPEN FOR", _open_for, right=True, keep=True),
    View("TIMEOUT", _timeout, right=True),
    View("TRANSACTIONAL ID", lambda row: row.transactional_id, keep=True, shrinks=True),
    View("PRODUCER ID", lambda row: str(row.producer_id), right=True),
    View("EPOCH", lambda row: str(row.epoch), right=True),
    View("START", lambda row: f"{row.start:%H:%M:%S.%f}"),
    View("PARTITIONS", lambda row: nonzero(row.partitions), right=True),
    View("RECORDS", lambda row: nonzero(row.records), right=True, keep=True),
    View("OFFSETS", lambda row: nonzero(row.offset_partitions), right=True),
    View("MARKER AFTER", _after, right=True),
    View("EXCHANGE", lambda row: row.example, keep=True),
)
_FENCED = (
    View("COUNT", lambda row: f"{row.count:,}", right=True, keep=True),
    View("ERROR", lambda row: row.error, keep=True),
    View("API", lambda row: row.api),
    View("CLIENT", lambda row: row.client, keep=True, shrinks=True),
    View("FROM", lambda row: row.address, shrinks=True, width=IPV4),
    View("TRANSACTIONAL ID", lambda row: absent(row.transactional_id), shrinks=True),
    View("PRODUCER ID", lambda row: str(row.producer_id), right=True),
    View("EPOCH", lambda row: str(row.epoch), right=True),
    View("FENCED BY", _by, keep=True, shrinks=True),
    View("FENCING EXCHANGE", lambda row: absent(row.by_example)),
    View("FIRST", lambda row: f"{row.first:%H:%M:%S}"),
    View("EXAMPLE", lambda row: row.example, keep=True),
)
_SEQUENCES = (
    View("PARTITION", lambda row: f"{row.topic}-{row.partition}", keep=True, shrinks=True),
    View("PRODUCER ID", lambda row: str(row.producer_id), right=True, keep=True),
    View("TRANSACTIONAL ID", lambda row: absent(row.transactional_id), shrinks=True),
    View("EPOCHS", lambda row: f"{row.epochs:,}", right=True),
    View("BATCHES", lambda row: f"{row.batches:,}", right=True),
    View("RECORDS", lambda row: f"{row.records:,}", right=True, keep=True),
    View("GAPS", lambda row: nonzero(row.gaps), right=True),
    View("MISSING", lambda row: nonzero(row.missing), right=True, keep=True),
    View("DUPLICATES", lambda row: nonzero(row.duplicates), right=True, keep=True),
    View("ERRORS", _errors, shrinks=True),
    View("EXAMPLE", lambda row: absent(row.example)),
)
