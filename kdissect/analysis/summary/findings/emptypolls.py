"""Empty answers to Fetch -> consumers that ask again and again instead of waiting at the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Bursts, Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_MOST = 100
_SHARE = 0.8


class Polls(Bursts):
    """Empty answers of a connection, and how many answers there were in all."""

    __slots__ = ("answers", "max_wait_ms")

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self.max_wait_ms = 0

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Polls)
        self.answers += other.answers
        self.max_wait_ms = max(self.max_wait_ms, other.max_wait_ms)


class EmptyPolls(Rule):
    """A broker can hold a Fetch back until there is something to read; who does not let it, loads both
    ends.
    """

    name = "empty-poll-loop"
    severity = WARNING
    title = "A consumer asks for records many times a second and gets none."
    when = (
        f"{_MOST} empty answers on a connection in 10 seconds, and {_SHARE:.0%} of all its answers; "
        "waiting for 500 ms, as clients do by default, there are 20."
    )
    advice = (
        "Let the broker wait: fetch.max.wait.ms of 500 and fetch.min.bytes of at least 1 on the consumer."
    )
    apis = frozenset({"Fetch", "ShareFetch"})
    counts = Polls

    def feed(self, facts: Facts) -> None:
        """Count answers to consumers, empty ones apart."""
        if facts.replica or facts.latency_us is None or facts.errors:
            return
        kept = self.kept[facts.client, facts.exchange.connection.id]
        kept.answers += 1
        request = facts.exchange.request or {}
        kept.max_wait_ms = max(kept.max_wait_ms, request.get("max_wait_ms") or 0)
        if not any(data is not None and len(data) for data in (each.fetched for each in facts.touched)):
            kept.add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those that hardly ever got something."""
        for (client, connection), each in self.kept.items():
            if each.busiest >= _MOST and each.count >= _SHARE * each.answers:
                yield self.found(
                    f"client {client}, connection {connection}",
                    f"{each.count:,} of {each.answers:,} fetches got nothing, {each.busiest:,} of them "
                    f"within 10 seconds; they wait for {each.max_wait_ms:,} ms at most",
                    each,
                )
