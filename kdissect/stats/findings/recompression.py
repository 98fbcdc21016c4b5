"""Codecs of produced and of fetched batches -> topics whose brokers compress batches anew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.anomalies import NOTE
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import listed, many, most_frequent
from kdissect.stats.contents import EACH
from kdissect.stats.findings.rule import Evidence, Rule, combined
from kdissect.stats.lag import end_of
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import Summed, earliest, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Alike, Tally


@summed
class Written(Evidence):
    """Batches of a partition by codec; the first offset after one, and what its readers got instead."""

    codecs: Counter[str] = total(Counter)
    end: int = earliest(NEVER_NS)
    fetched: Counter[str] = total(Counter)


@summed
class Read(Summed):
    """Batches of a partition that a client got, by codec; the first and the last offset."""

    codecs: Counter[str] = total(Counter)
    start: int = earliest(NEVER_NS)
    position: int = latest(-1)


@summed
class Recompression(Rule):
    """The broker decompresses each batch and compresses it again, which takes CPU and disables zero-copy."""

    name = "recompression"
    severity = NOTE
    of = ("topic", "partition")
    title = "A broker changes the compression of what producers write."
    when = (
        "All batches that a client fetches from a partition have other codecs than all that are produced to "
        "it, and at least one of the latter is among them, according to the offsets."
    )
    advice = (
        "Set compression.type of the topic to producer, or let producers use the codec of the topic, unless "
        "the brokers are meant to do this work."
    )
    takes = EACH
    apis = frozenset({"Produce", "Fetch"})
    counts = Written

    readers: Bounded[tuple[str, int, str], Read] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.readers = Bounded(limits.summary_rows, Read)

    def feed(self, tally: Tally) -> None:
        """Count batches, and note offsets."""
        if tally.exchange is None:
            self._add_counted(tally)
            return
        for each in tally.touched:
            if each.produced is not None and len(each.produced) and not each.error:
                kept = self.kept[each.topic, each.partition]
                kept.add(tally)
                kept.codecs.update(each.produced.tally().codecs)
                if (end := end_of(tally, each)) is not None:
                    kept.end = min(kept.end, end)
            elif each.fetched is not None and len(each.fetched):
                reader = self.readers[each.topic, each.partition, tally.client]
                reader.codecs.update(each.fetched.tally().codecs)
        for position in tally.positions:
            if not position.error and position.next_offset is not None:
                reader = self.readers[position.topic, position.partition, tally.client]
                reader.start = min(reader.start, position.fetch_offset or 0)
                reader.position = max(reader.position, position.next_offset)

    def _add_counted(self, tally: Alike) -> None:
        for written in tally.writes.topics if tally.writes is not None else ():
            for each in written.partitions:
                kept = self.kept[written.topic.name, each.partition]
                kept.add_noted(tally, each.noted)
                kept.codecs += Counter(dict(each.codecs))
                kept.end = min([kept.end, *(offset for _, offset in each.ends[2])])
        for topic, partitions in tally.reads.topics if tally.reads is not None else ():
            for read in partitions:
                reader = self.readers[topic.name, read.partition, tally.client]
                reader.codecs += Counter(dict(read.codecs))
                if read.lags.number:
                    reader.start = min(reader.start, read.lags.start[1])
                    reader.position = max(reader.position, read.lags.position[1])

    def findings(self) -> Iterator[RulePart]:
        """Partitions of which a client got a batch that was produced, with another codec."""
        fetched: dict[tuple[str, int], Counter[str]] = {}
        for (topic, partition, _), each in self.readers.items():
            written = self.kept.get((topic, partition))
            if written is None or not written.codecs or not each.codecs:
                continue
            if each.start < written.end <= each.position and not written.codecs.keys() & each.codecs:
                fetched.setdefault((topic, partition), Counter()).update(each.codecs)
        for key, codecs in fetched.items():
            evidence = combined([self.kept[key]])
            evidence.fetched = codecs
            yield self.part(key, evidence)

    def _message(self, _: Scope, each: Written) -> str:
        produced, fetched = (
            listed([name for name, _ in most_frequent(codecs)]) for codecs in (each.codecs, each.fetched)
        )
        return (
            f"{many(each.count, 'batch', 'batches')} produced with codec {produced}, fetched with {fetched}"
        )
