"""PRODUCER_FENCED -> producers that share a transactional id, or came back too late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis import content
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.analysis.summary.transactionstories import FENCED
from kdissect.anomalies import ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow


class FencedProducers(Rule):
    """A fenced producer cannot go on; its transaction is aborted."""

    name = "fenced-producers"
    severity = ERROR
    title = "A producer is told that its epoch is over."
    when = "Always: it ends the producer."
    advice = (
        "See that no two processes use one transactional.id, and that transactions end before their timeout; "
        "--transactions tells who fenced whom."
    )

    def feed(self, facts: Facts) -> None:
        """Count such answers."""
        if facts.errors and not FENCED.isdisjoint(facts.errors):
            self.kept[facts.client, content.transactional_id(facts.exchange)].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of all."""
        for (client, name), each in self.kept.items():
            about = f"client {client}, transactional id {name}" if name else f"client {client}"
            answers = f"{each.count:,} answer{'s' if each.count > 1 else ''}"
            yield self.found(about, f"{answers} that the producer epoch is over", each)
