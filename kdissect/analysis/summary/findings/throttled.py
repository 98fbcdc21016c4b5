"""Throttle times in answers -> clients that a quota slows down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_MOST = 10
_MOST_MS = 1000


class Throttles(Evidence):
    """Answers with a throttle time."""

    __slots__ = ("most_ms", "sum_ms")

    def __init__(self) -> None:
        super().__init__()
        self.most_ms = 0
        self.sum_ms = 0

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Throttles)
        self.most_ms = max(self.most_ms, other.most_ms)
        self.sum_ms += other.sum_ms


class Throttled(Rule):
    """A client that waits because of a quota looks slow, and nothing is wrong with broker or network."""

    name = "throttled"
    severity = WARNING
    title = "A quota slows a client down."
    when = (
        f"{_MOST} answers with a throttle time, or {_MOST_MS:,} ms in all; a short one now and then is how "
        "quotas work."
    )
    advice = "Spread the load, or raise the quota of this client or user: kafka-configs --describe shows it."
    counts = Throttles

    def feed(self, facts: Facts) -> None:
        """Count throttle times."""
        if facts.throttle_ms > 0:
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.sum_ms += facts.throttle_ms
            kept.most_ms = max(kept.most_ms, facts.throttle_ms)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those who were throttled often or for long."""
        for (client, broker), each in self.kept.items():
            if each.count >= _MOST or each.sum_ms >= _MOST_MS:
                yield self.found(
                    f"client {client}, broker {broker}",
                    f"throttled in {each.count:,} answer{'s' if each.count > 1 else ''}, for "
                    f"{each.sum_ms:,} ms in all and {each.most_ms:,} ms at most",
                    each,
                )
