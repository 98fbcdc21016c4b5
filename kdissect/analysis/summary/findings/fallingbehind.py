"""Positions of consumers -> those that read more slowly than others write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.fetchsessions import FetchSessions
from kdissect.analysis.summary.findings.evidence import SECOND_NS, Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.analysis.summary.lag import Behind
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.fetchsessions import Position
    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow
    from kdissect.limits import Limits

_RECORDS = 1000
_SECONDS = 10
_SHARE = 0.9  # of the worst: partitions are not at their worst all at one time


class Reading(Evidence):
    """Answers that left records of a partition behind, and where the client stood at the first of all."""

    __slots__ = ("began", "behind")

    def __init__(self) -> None:
        super().__init__()
        self.behind = Behind()
        self.began: tuple[int, int] | None = None  # time, offset

    def stand(self, time_ns: int, position: Position) -> None:
        """Take where the client stands."""
        if position.lag is not None and position.next_offset is not None:
            self.behind.add(time_ns, position)
            now = time_ns, position.next_offset
            self.began = min(self.began or now, now)

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Reading)
        self.behind.merge(other.behind)
        self.began = min((each for each in (self.began, other.began) if each is not None), default=None)


class FallingBehind(Rule):
    """A consumer that falls behind sees records later and later; when retention is over it never does."""

    name = "falling-behind"
    severity = WARNING
    title = "A consumer reads more slowly than others write."
    when = (
        f"It is {_RECORDS:,} records further behind than when first seen, nearly as far as ever, and needs "
        f"more than {_SECONDS} seconds to read them at its pace; who catches up with an old topic is silent."
    )
    advice = (
        "See what it does between two polls, and whether it is throttled; more members help up to the number "
        "of partitions. --lag tells each partition."
    )
    apis = frozenset({"Fetch"})
    counts = Reading

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._sessions = FetchSessions(limits)

    def feed(self, facts: Facts) -> None:
        """Take positions. Replicas are not consumers."""
        if facts.replica:
            return
        response = facts.exchange.response_frame
        time_ns = facts.exchange.time_ns if response is None else response.start_ns
        for position in self._sessions.feed(facts.exchange, facts.touched):
            if not position.error:
                kept = self.kept[facts.client, position.topic, position.partition]
                kept.stand(time_ns, position)
                if position.lag:
                    kept.add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those whose lag grows, by topic."""
        readings: dict[tuple[str, str], list[Reading]] = {}
        for (client, topic, _), each in self.kept.items():
            if each.began is not None:
                readings.setdefault((client, topic), []).append(each)
        for (client, topic), partitions in readings.items():
            first = sum(each.behind.first[1] for each in partitions)
            last = sum(each.behind.last[1] for each in partitions)
            worst = sum(each.behind.worst[0] for each in partitions)
            pace = _pace(partitions)
            if pace is None or last < first + _RECORDS or last < _SHARE * worst or last <= _SECONDS * pace:
                continue
            evidence = Evidence()
            for each in partitions:
                evidence.merge(each)
            yield self.found(
                f"client {client}, topic {topic}",
                f"{last:,} records behind at the end, {first:,} when first seen; it reads {pace:,.0f} a "
                "second",
                evidence,
            )


def _pace(partitions: list[Reading]) -> float | None:
    """Records a second, read by how positions move; None where no time passed."""
    began = [each.began for each in partitions if each.began is not None]
    ended = [each.behind.position for each in partitions]
    time_ns = max(ended)[0] - min(began)[0]
    moved = sum(offset for _, offset in ended) - sum(offset for _, offset in began)
    return moved * SECOND_NS / time_ns if time_ns > 0 else None
