"""Facts -> records and bytes written and read, by topic and partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.kafka.codes import error_name
from kdissect.kafka.records import COMPRESSION
from kdissect.limits import MIB, Limits
from kdissect.model import UNACKNOWLEDGED
from kdissect.stats.quantiles import Bounded, Distinct, Quantiles, other_counts
from kdissect.stats.sums import Summed, merged, own, summed, total

if TYPE_CHECKING:
    from kdissect.exchanges.touched import Touched
    from kdissect.kafka.compression import Budget
    from kdissect.kafka.records import BatchTotals, RecordData
    from kdissect.stats.facts import Facts
    from kdissect.stats.usual import ReadPartition, Usual, WrittenPartition

_FIRST_EXCHANGES = 20  # exchanges of a connection whose batches are all decompressed
_ONE_IN = 16
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
        codecs, fetched_codecs: batches written, and sent to consumers, by codec.
    """

    touches: int = total()
    produced: RecordTotals = merged(RecordTotals)
    fetched: RecordTotals = merged(RecordTotals)
    replicated: RecordTotals = merged(RecordTotals)
    unknown: RecordTotals = merged(RecordTotals)
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
        elif produced is not None and not each.error:
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

    def add_written(self, written: WrittenPartition) -> None:
        """Count what the core has counted: no compressed batch of the sample."""
        size, records = written.size
        batches = Counter(dict(written.codecs))
        self.touches += written.noted.number
        self.codecs += batches
        self.produced.bytes += size
        self.produced.records += records
        self.produced.batches += batches.total()

    def add_read(self, read: ReadPartition, *, is_replicated: bool) -> None:
        """Count what the core has counted."""
        size, records = read.size
        totals = self.replicated if is_replicated else self.fetched
        codecs = Counter(dict(read.codecs))
        if not is_replicated:
            self.fetched_codecs += codecs
        self.touches += read.touches
        totals.bytes += size
        totals.records += records
        totals.batches += codecs.total()


@summed
class TopicRecords(Volume):
    """A topic, its producers and consumers."""

    producers: Distinct = merged(Distinct)
    consumers: Distinct = merged(Distinct)
    partitions: Distinct = merged(Distinct)
    produce_service_us: Quantiles = merged(Quantiles)


@summed
class RecordCounts(Summed):
    """Counts of records by topic, and by partition if requested."""

    topics: Bounded[str, TopicRecords] = merged()
    partitions: Bounded[Partition, Volume] = merged()
    _by_partition: bool = own()

    def __init__(self, limits: Limits, *, by_partition: bool = False) -> None:
        self.topics = Bounded(limits.summary_rows, TopicRecords)
        self.partitions = Bounded(limits.summary_rows, Volume)
        self._by_partition = by_partition

    def feed(self, facts: Facts) -> None:
        """Count the records and errors of an exchange."""
        written: set[str] = set()
        failed: set[tuple[str, str]] = set()
        for each in facts.touched:
            produced, fetched = each.produced, each.fetched
            if produced is None and fetched is None and not each.error:
                continue
            topic = self.topics[each.topic]
            topic.add(each, facts)
            topic.partitions.add(str(each.partition))
            partition = self.partitions[each.topic, each.partition] if self._by_partition else None
            if partition is not None:
                partition.add(each, facts)
            if each.error and (error := error_name(each.error)) not in facts.exchange.expected_errors:
                topic.errors[error] += (each.topic, error) not in failed
                failed.add((each.topic, error))
                if partition is not None:
                    partition.errors[error] += 1
            if produced is not None:
                topic.producers.add(facts.client)
                written.add(each.topic)
            elif fetched is not None and not facts.replica:
                topic.consumers.add(facts.client)
        if facts.service_us is not None:
            for name in written:
                self.topics[name].produce_service_us.add(facts.service_us)

    def other_counts(self) -> dict[str, int]:
        """Exchanges with topics and partitions without their own row."""
        return other_counts(topics=(self.topics, "touches"), partitions=(self.partitions, "touches"))

    def feed_usual(self, usual: Usual) -> None:
        """Count exchanges that the core has counted; not by partition."""
        for written in usual.writes.topics if usual.writes is not None else ():
            topic = self.topics[written.topic.name]
            for each in written.partitions:
                topic.add_written(each)
                topic.partitions.add(str(each.partition))
            topic.producers.add(usual.client)
            topic.produce_service_us.merge(written.service_us)
        if (reads := usual.reads) is None:
            return
        for read in reads.topics:
            for fetched in (each for each in read.partitions if each.touches):
                topic = self.topics[read.topic.name]
                topic.add_read(fetched, is_replicated=reads.are_replicated)
                topic.partitions.add(str(fetched.partition))
                if not reads.are_replicated:
                    topic.consumers.add(usual.client)
