"""Exchanges -> their records that match the criteria. Holds anomalies of batches: a count for each kind, and
a sentence for each of the first batches without a readable record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.partition_records import (
    RecordPlace,
    Snapshots,
    decode_batches,
    partition_records,
    record_alone,
)
from kdissect.limits import DEFAULT
from kdissect.query.record_filters import RecordCriteria, RecordFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kdissect.exchanges.partition_records import CarriedRecord, DecodedBatch, PartitionRecords
    from kdissect.exchanges.registered import RegisteredSchemas
    from kdissect.kafka.batches import Batch
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.options import Options


Note = tuple[tuple[int, int, str, int, int], str]
"""Sort key of a batch, and a sentence about it."""


class RecordMatches(NamedTuple):
    """Counts and notes from some connections of a capture; see ``Records``."""

    exchanges: int
    anomalies: Counter[str]
    noted: list[Note]
    unread: int
    unfinished_snapshots: int
    undecoded: Counter[str]


class Records:
    """Finds the records of exchanges.

    Attributes:
        exchanges: number of exchanges searched.
        anomalies: of batches, by kind.
        unread: number of batches with anomalies and no record.
        undecoded: keys and values that ``schemas`` did not decode, by reason.

    Args:
        record_filter: which records.
        limits: of what is decoded and noted.
        show_secrets: do not redact credentials.
        schemas: decodes keys and values before they are filtered.
    """

    def __init__(
        self,
        record_filter: RecordFilter,
        limits: Limits = DEFAULT,
        *,
        show_secrets: bool = False,
        schemas: RegisteredSchemas | None = None,
    ) -> None:
        self.exchanges = 0
        self.anomalies: Counter[str] = Counter()
        self._noted: list[Note] = []
        self._unfinished_elsewhere = 0
        self.unread = 0
        self._record_filter = record_filter
        self._limits = limits
        self._show_secrets = show_secrets
        self._snapshots = Snapshots(limits)
        self._schemas = schemas
        self.undecoded: Counter[str] = Counter() if schemas is None else schemas.undecoded

    @property
    def directions(self) -> tuple[bool, bool]:
        """See ``RecordFilter``."""
        return self._record_filter.directions

    @property
    def is_partition(self) -> Callable[[Sequence[str], int], bool] | None:
        """See ``RecordFilter``."""
        return self._record_filter.is_partition

    @property
    def selects(self) -> Callable[..., bool] | None:
        """See ``RecordPlan``."""
        return self._selects if self._record_filter.has_tests else None

    @property
    def is_first(self) -> Callable[[str], bool] | None:
        """See ``RecordSource``."""
        return self._record_filter.is_first

    def _selects(self, place: tuple[Any, ...], offset: int | None, payloads: Any) -> bool:
        record = record_alone(RecordPlace(*place), payloads, show_secrets=self._show_secrets)
        return self._record_filter.selects(record._replace(offset=offset))

    @property
    def unfinished_snapshots(self) -> int:
        """How many snapshots lack a slice."""
        return self._snapshots.unfinished + self._unfinished_elsewhere

    def result(self) -> RecordMatches:
        """The counts and notes, to add to those of other connections."""
        return RecordMatches(
            self.exchanges,
            self.anomalies,
            self._noted,
            self.unread,
            self.unfinished_snapshots,
            self.undecoded,
        )

    def add(self, other: RecordMatches) -> None:
        """Add the counts and notes of other connections."""
        self.exchanges += other.exchanges
        self.anomalies += other.anomalies
        self._noted = sorted(self._noted + other.noted)[: self._limits.notices]
        self.unread += other.unread
        self._unfinished_elsewhere += other.unfinished_snapshots
        self.undecoded.update(other.undecoded)

    @property
    def unreadable(self) -> list[str]:
        """Place and anomalies of each batch without a record; at most ``limits.notices``."""
        return [text for _, text in self._noted]

    def of(self, exchanges: Iterable[Exchange]) -> Iterator[CarriedRecord]:
        """Yield the matching records in the order of their exchanges."""
        record_filter, schemas = self._record_filter, self._schemas
        for open_batch in self.batches(exchanges):
            records = iter(open_batch) if schemas is None else map(schemas.decoded, open_batch)
            yield from records if record_filter.matches_all else filter(record_filter.matches, records)

    def records_or_batches(self, exchanges: Iterable[Exchange]) -> Iterator[CarriedRecord | DecodedBatch]:
        """The same, but batches of several plain records that all match are yielded whole or in pieces."""
        record_filter = self._record_filter
        for open_batch in self.batches(exchanges):
            if not record_filter.matches_all:
                yield from filter(record_filter.matches, open_batch)
            elif open_batch.are_plain and open_batch.batch.bad_messages is None and len(open_batch) > 1:
                yield from open_batch.pieces()
            else:
                yield from open_batch

    def batches(self, exchanges: Iterable[Exchange]) -> Iterator[DecodedBatch]:
        """Yield the batches of the selected partitions, with all their records."""
        for exchange in exchanges:
            self.exchanges += 1
            for each in partition_records(exchange):
                if not self._record_filter.matches_partition(each):
                    continue
                partition = self._snapshots.join(each)
                for open_batch in decode_batches(partition, self._limits, show_secrets=self._show_secrets):
                    if open_batch.batch.anomalies and not open_batch.batch.first:
                        self._note(partition, open_batch.batch)
                    yield open_batch

    def _note(self, partition: PartitionRecords, batch: Batch) -> None:
        self.anomalies.update(anomaly.kind for anomaly in batch.anomalies)
        if batch.records:
            return
        self.unread += 1
        if len(self._noted) < self._limits.notices:
            anomalies = ", ".join(f"{anomaly.kind} ({anomaly.detail})" for anomaly in batch.anomalies)
            exchange = partition.exchange
            place = f"{partition.place or 'unknown topic'} in {exchange.id}"
            self._noted.append(
                (
                    (*exchange.order, exchange.connection.id, exchange.number, self.unread),
                    f"{place}: {anomalies}",
                )
            )


def records_of(options: Options) -> Records:
    """A search for the records of the selected topics and partitions."""
    criteria = options.criteria
    selected = RecordCriteria(topics=criteria.get("topic", ()), partitions=criteria.get("partition", ()))
    return Records(RecordFilter(selected, options.limits), options.limits, show_secrets=options.show_secrets)
