"""What exchanges do to partitions -> records and bytes written and read, by topic and partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.kafka.codes import error_name
from kdissect.kafka.compression import inflate
from kdissect.kafka.records import COMPRESSION
from kdissect.stats.quantiles import Bounded, Distinct, Quantiles
from kdissect.stats.sums import Summed, merged, own, summed, total

if TYPE_CHECKING:
    from kdissect.exchanges.touched import Touched
    from kdissect.kafka.records import BatchTotals, RecordData
    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts

_FIRST_EXCHANGES = 20  # exchanges of a connection whose batches all are
_ONE_IN = 16
_MOST_INFLATED = 16 * 1024 * 1024  # bytes of a batch; a larger one is left out
_UNCOMPRESSED = COMPRESSION[0]
_LOG_OVERHEAD, _BATCH_HEADER, _CODEC_MASK = 12, 61, 0x07

Partition = tuple[str, int]


@summed
class RecordTotals(Summed):
    """Records, batches and bytes in one direction.

    Attributes:
        hidden: message sets that are compressed, and so do not tell how many records they hold.
    """

    records: int = total()
    bytes: int = total()
    batches: int = total()
    uncounted: int = total()

    def add(self, records: RecordData) -> BatchTotals:
        """Count what a field carries; get what was counted."""
        tally = records.tally()
        if tally.records is None:
            self.uncounted += 1
        else:
            self.records += tally.records
        self.batches += len(tally.codecs)
        self.bytes += len(records)
        return tally


@summed
class Inflation(Summed):
    """What compressed batches become, of some of them: to decompress all takes longer than all the rest.

    Looked into are those in the first exchanges of each connection, and of the others one in ``_ONE_IN``, by
    their checksum: the same ones however the capture is divided.
    """

    compressed: int = total()
    inflated: int = total()

    @property
    def ratio(self) -> float | None:
        """Uncompressed by compressed bytes; None where no compressed batch was looked into."""
        return round(self.inflated / self.compressed, 2) if self.compressed else None

    def add(self, records: RecordData, *, every: bool) -> None:
        """Look into the batches of a field, into all of them or some."""
        pos = records.start
        for batch in records.batches():
            if "base_offset" not in batch:  # a message set holds a message set: no such simple sizes
                return
            end = pos + _LOG_OVERHEAD + batch["batch_length"]
            codec = batch["attributes"] & _CODEC_MASK
            if codec and (every or batch["crc"] % _ONE_IN == 0):
                packed = records.data[pos + _BATCH_HEADER : end]
                plain = inflate(codec, packed, _MOST_INFLATED)
                if plain.fault is None:
                    self.compressed += len(packed)
                    self.inflated += len(plain.data)
            pos = end


@summed
class Volume(Summed):
    """What was written to, read from and replicated of a topic or partition.

    Attributes:
        touches: how many exchanges did something to it, for a topic times its partitions.
    """

    touches: int = total()
    produced: RecordTotals = merged(RecordTotals)
    fetched: RecordTotals = merged(RecordTotals)
    replicated: RecordTotals = merged(RecordTotals)
    codecs: Counter[str] = total(Counter)
    inflation: Inflation = merged(Inflation)
    errors: Counter[str] = total(Counter)

    def add(self, each: Touched, facts: Facts) -> None:
        """Count what an exchange did to a partition; what the broker refused was not written."""
        self.touches += 1
        if each.error:
            self.errors[error_name(each.error)] += 1
        produced, fetched = each.produced, each.fetched
        if produced is not None and not each.error:
            codecs = self.produced.add(produced).codecs
            for codec in codecs:
                self.codecs[codec] += 1
            if codecs.count(_UNCOMPRESSED) < len(codecs):
                self.inflation.add(produced, every=facts.exchange.number <= _FIRST_EXCHANGES)
        if fetched is not None and len(fetched):
            (self.replicated if facts.replica else self.fetched).add(fetched)

    @property
    def ratio(self) -> float | None:
        """Uncompressed by compressed bytes, of the produced batches that were looked into."""
        return self.inflation.ratio


@summed
class TopicRecords(Volume):
    """A topic, and who uses it."""

    producers: Distinct = merged(Distinct)
    consumers: Distinct = merged(Distinct)
    partitions: Distinct = merged(Distinct)
    produce_latency_us: Quantiles = merged(Quantiles)


@summed
class RecordCounts(Summed):
    """The topics and partitions that records went to or came from.

    Attributes:
        topics, partitions: their counts.
    """

    topics: Bounded[str, TopicRecords] = merged()
    partitions: Bounded[Partition, Volume] = merged()
    _by_partition: bool = own()

    def __init__(self, limits: Limits, *, by_partition: bool = False) -> None:
        self.topics = Bounded(limits.summary_rows, TopicRecords)
        self.partitions = Bounded(limits.summary_rows, Volume)
        self._by_partition = by_partition

    def feed(self, facts: Facts) -> None:
        """Count what an exchange carries, and what was refused."""
        written: set[str] = set()
        for each in facts.touched:
            produced, fetched = each.produced, each.fetched
            if produced is None and fetched is None and not each.error:
                continue
            topic = self.topics[each.topic]
            topic.add(each, facts)
            topic.partitions.add(str(each.partition))
            if self._by_partition:
                self.partitions[each.topic, each.partition].add(each, facts)
            if produced is not None:
                topic.producers.add(facts.client)
                written.add(each.topic)
            elif fetched is not None and not facts.replica:
                topic.consumers.add(facts.client)
        if facts.latency_us is not None:
            for name in written:
                self.topics[name].produce_latency_us.add(facts.latency_us)
