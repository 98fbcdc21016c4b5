"""OFFSET_OUT_OF_RANGE -> consumers that ask for records that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING
from kdissect.kafka.codes import error_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_OUT_OF_RANGE = error_code("OFFSET_OUT_OF_RANGE")


class OutOfRange(Rule):
    """Retention was faster than the consumer: records were never read. What it reads next, its settings
    say.
    """

    name = "offset-out-of-range"
    severity = WARNING
    title = "A consumer asks for an offset that is not there, or no longer."
    when = "Always: a consumer that keeps up never does."
    advice = (
        "Compare the consumer's lag with the topic's retention, and see what auto.offset.reset does then."
    )
    apis = frozenset({"Fetch"})

    def feed(self, facts: Facts) -> None:
        """Count answers to consumers; a follower that was away for long is told the same."""
        if facts.replica or not facts.errors:
            return
        for each in facts.touched:
            if each.error == _OUT_OF_RANGE:
                self.kept[facts.client, each.topic].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of all."""
        for (client, topic), each in self.kept.items():
            times = "once" if each.count == 1 else f"{each.count:,} times"
            yield self.found(
                f"client {client}, topic {topic}", f"asked {times} for an offset out of range", each
            )
