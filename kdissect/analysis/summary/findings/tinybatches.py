"""Sizes of produced batches -> producers that send one record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Bursts, Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_MOST = 200  # batches
_RECORDS = 2  # of a batch, on average
_BYTES = 2000  # likewise: a large record may well travel alone


class Batches(Bursts):
    """Batches of a client for a topic."""

    __slots__ = ("bytes", "records")

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.records = 0

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Batches)
        self.bytes += other.bytes
        self.records += other.records


class TinyBatches(Rule):
    """A batch costs 61 bytes, a request, and work of all replicas; compression finds nothing to save in
    it.
    """

    name = "tiny-batches"
    severity = WARNING
    title = "A producer sends nearly every record in a batch of its own."
    when = (
        f"{_MOST} batches to a topic in 10 seconds with fewer than {_RECORDS} records and {_BYTES:,} bytes "
        "each on average; where records are rare there is nothing to gather."
    )
    advice = (
        "Give the producer time to gather records: linger.ms of 5 to 100, and no flush after each record."
    )
    apis = frozenset({"Produce"})
    counts = Batches

    def feed(self, facts: Facts) -> None:
        """Count batches; a message set of magic 0 or 1 is one."""
        for each in facts.touched:
            data = each.produced
            records = None if data is None else data.count()
            if data is not None and records:
                kept = self.kept[facts.client, each.topic]
                kept.add(facts)
                kept.bytes += len(data)
                kept.records += records

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those whose batches are many and small."""
        for (client, topic), each in self.kept.items():
            if each.busiest < _MOST or each.records >= _RECORDS * each.count:
                continue
            if each.bytes < _BYTES * each.count:
                yield self.found(
                    f"client {client}, topic {topic}",
                    f"{each.count:,} batches with {each.records / each.count:.1f} records and "
                    f"{each.bytes // each.count:,} bytes on average, {each.busiest:,} of them "
                    "within 10 seconds",
                    each,
                )
