"""Facts -> records and bytes written and read, by topic and partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kdissect.kafka.codes import error_name
from kdissect.kafka.records import COMPRESSION
from kdissect.limits import MIB, Limits
from kdissect.model import UNACKNOWLEDGED
from kdissect.stats.contents import EACH
from kdissect.stats.quantiles import Bounded, Distinct, Quantiles, other_counts
from kdissect.stats.sums import (
    Summed,
    earlier,
    earliest,
    joined,
    later,
    latest,
    merged,
    own,
    summed,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.exchanges.touched import Touched
    from kdissect.kafka.compression import Budget
    from kdissect.kafka.records import BatchTotals, RecordData
    from kdissect.stats.contents import ReadPartition, WrittenPartition
    from kdissect.stats.facts import Facts
    from kdissect.stats.tallies import Alike, Tally

_FIRST_EXCHANGES = 20  # exchanges of a connection whose batches are all decompressed
_ONE_IN = 16
LATE_US = 1_000_000
"""After so long, a producer may have given up and send its batches again. The core has it, too."""
_COPIES = 8  # of a packet: captured on both sides of NATs and proxies
_LIMITS = Limits(inflated_bytes=16 * MIB)  # larger batches are left out
_UNCOMPRESSED = COMPRESSION[0]
_LOG_OVERHEAD, _BATCH_HEADER, _CODEC_MASK = 12, 61, 0x07

Partition = tuple[str, int]


@summed
class RecordTotals(Summed):
    """Records, batches and bytes in one direction.

    Attributes:
        uncounted: compressed message sets, whose number of records is unknown.
    """

    records: int = total()
    bytes: int = total()
    batches: int = total()
    uncounted: int = total()

    def add(self, records: RecordData) -> BatchTotals:
        """Count the records of a field, but no markers of transactions; return its counts."""
        tally = records.tally()
        if tally.records is None:
            self.uncounted += 1
        else:
            self.records += tally.records - tally.markers
        self.batches += len(tally.codecs)
        self.bytes += len(records)
        return tally


@summed
class Inflation(Summed):
    """Sizes of a sample of compressed batches: decompressing all of them would take longer than everything
    else.

    The sample is every batch in the first exchanges of each connection, and one in ``_ONE_IN`` of the others.
    These are chosen by checksum, so they are the same however the capture is divided.
    """

    compressed: int = total()
    inflated: int = total()

    @property
    def compression_ratio(self) -> float | None:
        """Uncompressed by compressed bytes; None if no compressed batch was sampled."""
        return round(self.inflated / self.compressed, 2) if self.compressed else None

    def add(self, records: RecordData, budget: Budget, *, every: bool) -> None:
        """Decompress every batch of a field, or a sample."""
        pos = records.start
        for batch in records.batches():
            if "base_offset" not in batch:  # a compressed message set is nested: its sizes are not comparable
                return
            end = pos + _LOG_OVERHEAD + batch["batch_length"]
            codec = batch["attributes"] & _CODEC_MASK
            if codec and (every or batch["crc"] % _ONE_IN == 0):
                packed = records.data[pos + _BATCH_HEADER : end]
                plain = budget.inflate(codec, packed, _LIMITS)
                if plain.fault is None:
                    self.compressed += len(packed)
                    self.inflated += len(plain.data)
            pos = end


@summed
class Volume(Summed):
    """Records written to, read from and replicated from a topic or partition.

    Attributes:
        touches: number of exchanges with it; for a topic, summed over its partitions.
        unknown: records of Produce requests for which no response says whether they were written.
        rejected: those of requests that failed.
        codecs, fetched_codecs: batches written, and sent to consumers, by codec.
    """

    touches: int = total()
    produced: RecordTotals = merged(RecordTotals)
    fetched: RecordTotals = merged(RecordTotals)
    replicated: RecordTotals = merged(RecordTotals)
    unknown: RecordTotals = merged(RecordTotals)
    rejected: RecordTotals = merged(RecordTotals)
    codecs: Counter[str] = total(Counter)
    fetched_codecs: Counter[str] = total(Counter)
    inflation: Inflation = merged(Inflation)
    errors: Counter[str] = total(Counter)  # exchanges with one that is not expected

    def add(self, each: Touched, facts: Facts) -> None:
        """Count the effect of an exchange on a partition; rejected records do not count."""
        self.touches += 1
        produced, fetched = each.produced, each.fetched
        if produced is not None and each.error is None and facts.exchange.kind != UNACKNOWLEDGED:
            self.unknown.add(produced)
        elif produced is not None and each.error:
            self.rejected.add(produced)
        elif produced is not None:
            codecs = self.produced.add(produced).codecs
            for codec in codecs:
                self.codecs[codec] += 1
            if codecs.count(_UNCOMPRESSED) < len(codecs):
                is_first = facts.exchange.number <= _FIRST_EXCHANGES
                self.inflation.add(produced, facts.inflation, every=is_first)
        if fetched is not None and len(fetched):
            if facts.replica:
                self.replicated.add(fetched)
            else:
                self.fetched_codecs.update(self.fetched.add(fetched).codecs)

    @property
    def compression_ratio(self) -> float | None:
        """Uncompressed by compressed bytes, of the produced batches that were sampled."""
        return self.inflation.compression_ratio

    def add_volume(self, tally: Alike, counted: WrittenPartition | ReadPartition) -> None:
        """Count a partition of a tally of several: no compressed batch of the sample."""
        size, records = counted.size
        batches = Counter(dict(counted.codecs))
        self.touches += counted.touches
        if tally.writes is not None:
            totals = self.produced
            self.codecs += batches
        elif tally.is_replicated:
            totals = self.replicated
        else:
            totals = self.fetched
            self.fetched_codecs += batches
        totals.bytes += size
        totals.records += records
        totals.batches += batches.total()


@summed
class TopicRecords(Volume):
    """A topic, its producers and consumers."""

    producers: Distinct = merged(Distinct)
    consumers: Distinct = merged(Distinct)
    partitions: Distinct = merged(Distinct)
    produce_service_us: Quantiles = merged(Quantiles)

    def add_counted(self, tally: Alike, counted: WrittenPartition | ReadPartition) -> None:
        """Count the same, and its ends, but no service times."""
        self.add_volume(tally, counted)
        self.partitions.add(str(counted.partition))
        if tally.writes is not None:
            self.producers.add(tally.client)
        elif not tally.is_replicated:
            self.consumers.add(tally.client)


class TouchedRows:
    """The rows that the partitions of an exchange belong to: of topics, or of anything else. What is once in
    an exchange is counted once in each row.

    Args:
        table: the rows.
        facts: of the exchange.
    """

    __slots__ = ("_facts", "_failed", "_table", "_written")

    def __init__(self, table: Bounded[Any, TopicRecords], facts: Facts) -> None:
        self._table, self._facts = table, facts
        self._written: set[Any] = set()
        self._failed: set[tuple[Any, str]] = set()

    def count(self, key: Any, each: Touched) -> bool:
        """Count a partition in a row. Returns whether there was anything to count."""
        produced, fetched, facts = each.produced, each.fetched, self._facts
        if produced is None and fetched is None and not each.error:
            return False
        row = self._table[key]
        row.add(each, facts)
        row.partitions.add(str(each.partition))
        if (error := self.error_of(each)) is not None:
            row.errors[error] += (key, error) not in self._failed
            self._failed.add((key, error))
        if produced is not None:
            row.producers.add(facts.client)
            self._written.add(key)
        elif fetched is not None and not facts.replica:
            row.consumers.add(facts.client)
        return True

    def error_of(self, each: Touched) -> str | None:
        """The error of a partition; None: it has none, or an expected one."""
        if not each.error or (error := error_name(each.error)) in self._facts.exchange.expected_errors:
            return None
        return error

    def close(self) -> None:
        """Count what is once in the exchange."""
        if self._facts.service_us is not None:
            for key in self._written:
                self._table[key].produce_service_us.add(self._facts.service_us)


def _soonest(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(one + other)[:_COPIES])


@summed
class Acceptances(Summed):
    """How often brokers accepted a batch, and the first and last of the connections in order of their IDs.

    Attributes:
        times_ns: of the first requests with it.
    """

    count: int = total()
    first: str | None = earliest()
    last: str | None = latest()
    times_ns: tuple[int, ...] = joined(_soonest, tuple)

    def add(self, connection: str, time_ns: int) -> None:
        """Add one."""
        self.count += 1
        self.first, self.last = earlier(self.first, connection), later(self.last, connection)
        self.times_ns = _soonest(self.times_ns, (time_ns,))

    @property
    def again(self) -> int:
        """Those that came so late that the producer may have given up, if they are of several connections: it
        does not repeat what was accepted on a connection that it still has. What is captured on both sides of
        a NAT or proxy comes at once.
        """
        if self.first == self.last:
            return 0
        late_ns = self.times_ns[0] + LATE_US * 1000
        return self.count - sum(time_ns < late_ns for time_ns in self.times_ns)


def _repeatable(data: RecordData, time_ns: int) -> Iterator[tuple[int, int, int]]:
    """Checksum, length and time of the batches; message sets have none."""
    for batch in data.batches():
        if "batch_length" in batch:
            yield batch["crc"], batch["batch_length"], time_ns


@summed
class RecordCounts(Summed):
    """Counts of records by topic, and by partition if requested.

    Attributes:
        repeatable: batches that producers may have sent more than once, by checksum and length: those
            accepted late, and those in the first exchanges of each connection.
    """

    topics: Bounded[str, TopicRecords] = merged()
    partitions: Bounded[Partition, Volume] = merged()
    repeatable: Bounded[tuple[str, int, int, int], Acceptances] = merged()
    _by_partition: bool = own()

    takes = EACH

    def __init__(self, limits: Limits, *, by_partition: bool = False) -> None:
        self.topics = Bounded(limits.summary_rows, TopicRecords)
        self.partitions = Bounded(limits.summary_rows, Volume)
        self.repeatable = Bounded(limits.resent_records, Acceptances)
        self._by_partition = by_partition

    def feed(self, tally: Tally) -> None:
        """Count records and errors by topic and partition."""
        if tally.exchange is None:
            self._add_volumes(tally)
            return
        topics = TouchedRows(self.topics, tally)
        is_repeatable = tally.exchange.number <= _FIRST_EXCHANGES or (tally.latency_us or 0) >= LATE_US
        for each in tally.touched:
            if is_repeatable and each.produced is not None and each.error == 0:
                self._add_repeatable(
                    tally, each.topic, each.partition, _repeatable(each.produced, tally.time_ns)
                )
            if topics.count(each.topic, each) and self._by_partition:
                partition = self.partitions[each.topic, each.partition]
                partition.add(each, tally)
                if (error := topics.error_of(each)) is not None:
                    partition.errors[error] += 1
        topics.close()

    def other_counts(self) -> dict[str, int]:
        """Exchanges with topics and partitions without their own row."""
        return other_counts(topics=(self.topics, "touches"), partitions=(self.partitions, "touches"))

    def duplicate_bytes(self) -> Counter[str]:
        """By topic, the bytes of batches that brokers accepted more than once."""
        duplicates: Counter[str] = Counter()
        for (topic, _, _, length), each in self.repeatable.items():
            if each.again:
                duplicates[topic] += each.again * (_LOG_OVERHEAD + length)
        return duplicates

    def _add_repeatable(
        self, tally: Tally, topic: str, partition: int, batches: Iterable[tuple[int, int, int]]
    ) -> None:
        for crc, length, time_ns in batches:
            self.repeatable[topic, partition, crc, length].add(tally.connection.id, time_ns)

    def _add_volumes(self, tally: Alike) -> None:
        for name, each in tally.volumes():
            self.topics[name].add_counted(tally, each)
            if self._by_partition:
                self.partitions[name, each.partition].add_volume(tally, each)
        for written in tally.writes.topics if tally.writes is not None else ():
            self.topics[written.topic.name].produce_service_us.merge(written.service_us)
            for one in written.partitions:
                self._add_repeatable(tally, written.topic.name, one.partition, one.repeatable)
