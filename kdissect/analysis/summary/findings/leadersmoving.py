"""Metadata answers -> partitions whose leader moved from broker to broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.analysis.summary.findings.topics import APIS
from kdissect.anomalies import NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_OFTEN = 3
_TERMS = 64
_PLACES, _TURNS = 3, 5  # named in a sentence


class Leaders:
    """The leaders of a partition, by leader epoch; before Metadata v7 tells it, by broker."""

    __slots__ = ("terms",)

    def __init__(self) -> None:
        self.terms: dict[
            tuple[int, int], tuple[int, str]
        ] = {}  # leader epoch, leader -> when told first, where

    def lead(self, leader: int, epoch: int, told: tuple[int, str]) -> None:
        """Take what an answer tells."""
        term = epoch, leader
        if term in self.terms or len(self.terms) < _TERMS:
            self.terms[term] = min(told, self.terms.get(term, told))

    def merge(self, other: Leaders) -> None:
        """Take in what other answers tell."""
        for (epoch, leader), told in other.terms.items():
            self.lead(leader, epoch, told)

    @property
    def in_turn(self) -> list[tuple[int, int, str]]:
        """The leaders, one after the other, and when and where each was first told; none follows itself."""
        turns: list[tuple[int, int, str]] = []
        with_epoch = {term: told for term, told in self.terms.items() if term[0] >= 0}
        terms = with_epoch or self.terms  # what has no epoch has no place between those that have one
        for (_, leader), told in sorted(terms.items(), key=lambda item: (item[0][0], item[1])):
            if not turns or turns[-1][0] != leader:
                turns.append((leader, *told))
        return turns


class LeadersMoving(Rule):
    """A restart or a failure moves leaders once or twice. Leaders that move all the time make all clients
    wait.
    """

    name = "leaders-moving"
    severity = NOTE
    title = "Partitions change their leader."
    when = f"Always a note, as it explains errors at that time; {_OFTEN} moves of a partition are a warning."
    advice = "See whether a broker was restarted or cut off then; if not, look at its load and its disks."
    apis = APIS
    counts = Leaders

    def feed(self, facts: Facts) -> None:
        """Note leaders; -1 is none."""
        for told in (facts.exchange.response or {}).get("topics") or ():
            name = told.get("name") or told.get("topic_id")
            for partition in told.get("partitions") or ():
                leader = partition.get("leader_id", -1)
                if name and leader >= 0:
                    kept = self.kept[name, partition.get("partition_index", -1)]
                    kept.lead(leader, partition.get("leader_epoch", -1), (facts.exchange.time_ns, facts.id))

    def findings(self) -> Iterator[FindingRow]:
        """Tell of each topic whose leaders moved."""
        topics: dict[str, dict[int, list[tuple[int, int, str]]]] = {}
        for (topic, partition), each in self.kept.items():
            if len(turns := each.in_turn) > 1:
                topics.setdefault(topic, {})[partition] = turns
        for topic, partitions in topics.items():
            evidence = Evidence()
            for turns in partitions.values():
                for _, time_ns, exchange in turns[1:]:
                    evidence.take(time_ns, exchange)
            named = ", ".join(
                f"{partition} ({' to '.join(str(turn[0]) for turn in partitions[partition][:_TURNS])})"
                for partition in sorted(partitions)[:_PLACES]
            )
            more = f" and {len(partitions) - _PLACES:,} more" if len(partitions) > _PLACES else ""
            times = "once" if evidence.count == 1 else f"{evidence.count:,} times"
            yield self.found(
                f"topic {topic}",
                f"leaders moved {times}: partition {named}{more}",
                evidence,
                WARNING if max(map(len, partitions.values())) > _OFTEN else NOTE,
            )
