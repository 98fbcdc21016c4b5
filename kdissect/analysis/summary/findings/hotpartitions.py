"""Bytes written to each partition -> partitions that get much more than their share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.analysis.summary.findings.topics import APIS, Topics
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow
    from kdissect.limits import Limits

_BATCHES = 100
_PARTITIONS = 3
_TIMES = 2.5  # the fair share
_SHARE = 0.2


class Written(Evidence):
    """What was written to a partition."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def merge(self, other: Evidence) -> None:
        """Take in what another part of the same captures has."""
        super().merge(other)
        assert isinstance(other, Written)
        self.bytes += other.bytes


class HotPartitions(Rule):
    """A partition has one leader and one reader in each group: neither can be helped by more machines."""

    name = "hot-partitions"
    severity = WARNING
    title = "One partition gets most of what is written to its topic."
    when = (
        f"{_TIMES} times its fair share and {_SHARE:.0%} of the topic's bytes, for topics with {_PARTITIONS} "
        f"partitions or more and {_BATCHES} batches; of few batches nothing follows."
    )
    advice = (
        "See which keys are frequent: one that is cannot be spread, unless it is made longer or left out."
    )
    apis = frozenset({"Produce"}) | APIS
    counts = Written

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.topics = Topics(limits)

    def feed(self, facts: Facts) -> None:
        """Count what is accepted, and learn how many partitions there are."""
        if facts.api in APIS:
            self.topics.learn(facts)
            return
        for each in facts.touched:
            if each.produced is not None and not each.error:
                kept = self.kept[each.topic, each.partition]
                kept.add(facts)
                kept.bytes += len(each.produced)

    def merge(self, other: Any) -> None:
        """Take in what the same rule saw on other connections."""
        super().merge(other)
        self.topics.merge(other.topics)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of the hottest partition of each topic."""
        topics: dict[str, dict[int, Written]] = {}
        for (topic, partition), each in self.kept.items():
            topics.setdefault(topic, {})[partition] = each
        for topic, partitions in topics.items():
            known = self.topics[topic].partitions if topic in self.topics else 0
            number = max(known, len(partitions))
            hottest = max(partitions, key=lambda partition: (partitions[partition].bytes, -partition))
            total = sum(each.bytes for each in partitions.values())
            batches = sum(each.count for each in partitions.values())
            share = partitions[hottest].bytes / max(1, total)
            if number >= _PARTITIONS and batches >= _BATCHES and share >= max(_SHARE, _TIMES / number):
                yield self.found(
                    f"topic {topic}, partition {hottest}",
                    f"{share:.0%} of the {total:,} bytes written to {number:,} partitions",
                    partitions[hottest],
                )
