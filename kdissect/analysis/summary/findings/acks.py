"""Produce requests -> producers that do not wait for the replicas of a replicated topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis.summary.distinct import Distinct
from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.analysis.summary.findings.topics import APIS, Topics
from kdissect.anomalies import NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow
    from kdissect.limits import Limits

_NAMES = 3  # of clients in a sentence,
_SORTED = 100  # which are the first of so many
_MEANS = {
    0: "nobody confirms them, so that a record that is lost or refused is lost in silence",
    1: "the leader alone confirms them, so that its failure loses records that were confirmed",
}


class Writes(Evidence):
    """Requests, and who sent them."""

    __slots__ = ("clients",)

    def __init__(self) -> None:
        super().__init__()
        self.clients = Distinct()

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Writes)
        self.clients.merge(other.clients)


class Acks(Rule):
    """Replicas are paid for, and records are lost all the same."""

    name = "acks"
    severity = WARNING
    title = "A producer with acks=0 or 1 writes to a topic that has replicas."
    when = "Always: it is how the producer is set, not how often it writes. acks=1 is a note."
    advice = "Set acks=all and enable.idempotence=true, unless the records may be lost."
    apis = frozenset({"Produce"}) | APIS
    counts = Writes

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.topics = Topics(limits)

    def feed(self, facts: Facts) -> None:
        """Learn who has replicas, and who does not wait for them."""
        if facts.api in APIS:
            self.topics.learn(facts)
            return
        acks = (facts.exchange.request or {}).get("acks")
        if acks in _MEANS:
            for topic in dict.fromkeys(each.topic for each in facts.touched):
                kept = self.kept[topic, acks]
                kept.add(facts)
                kept.clients.add(facts.client)

    def merge(self, other: Any) -> None:
        """Take in what the same rule saw on other connections."""
        super().merge(other)
        self.topics.merge(other.topics)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those whose topic is known to have replicas."""
        for (topic, acks), each in self.kept.items():
            replicas = self.topics[topic].replicas if topic in self.topics else 0
            if replicas > 1:
                more = len(each.clients) - _NAMES
                clients = ", ".join(each.clients.first(_SORTED)[:_NAMES]) + (
                    f" and {more:,} more" if more > 0 else ""
                )
                yield self.found(
                    f"topic {topic}",
                    f"{each.count:,} Produce request{'s' if each.count > 1 else ''} with acks={acks} by "
                    f"{clients}, to {replicas} replicas: {_MEANS[acks]}",
                    each,
                    WARNING if acks == 0 else NOTE,
                )
