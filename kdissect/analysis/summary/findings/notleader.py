"""Answers that somebody else leads the partition -> clients that do not find the leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Bursts
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING
from kdissect.kafka.codes import error_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_LEADERSHIP = frozenset(
    map(
        error_code,
        (
            *("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH"),
            *("UNKNOWN_LEADER_EPOCH", "REPLICA_NOT_AVAILABLE"),
        ),
    )
)
_STORM = 20


class NotLeader(Rule):
    """One such answer is how a client learns of a new leader. Many mean that it asks without learning."""

    name = "not-leader-storm"
    severity = WARNING
    title = "A client goes on asking brokers that do not lead the partition."
    when = (
        f"{_STORM} such answers about a topic in 10 seconds; a leader that moves costs a few for each client."
    )
    advice = (
        "See whether the partitions have a leader at all, then whether the client can reach it and refreshes "
        "its metadata."
    )
    counts = Bursts

    def feed(self, facts: Facts) -> None:
        """Count answers to clients; brokers that copy wait for their leader like that."""
        if facts.replica or not facts.errors:
            return
        for topic in dict.fromkeys(each.topic for each in facts.touched if each.error in _LEADERSHIP):
            self.kept[facts.client, topic].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those who asked often within a short time."""
        for (client, topic), each in self.kept.items():
            if each.busiest >= _STORM:
                yield self.found(
                    f"client {client}, topic {topic}",
                    f"{each.count:,} answers from a broker that does not lead the partition, "
                    f"{each.busiest:,} of them within 10 seconds",
                    each,
                )
