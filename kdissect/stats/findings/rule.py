"""Base class of rules: facts in, findings out. Each holds a bounded table of counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.net.duplex import NEVER_NS
from kdissect.stats.document import FindingRow, RuleRow
from kdissect.stats.quantiles import Bounded
from kdissect.stats.rows import row_of
from kdissect.stats.sums import Summed, earliest, join, joined, largest, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.limits import Limits
    from kdissect.net.dns import Resolved
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.load import Aggregate
    from kdissect.stats.usual import Noted, Usual


# ------------------------------------------------------------------------------------------------------------
# Occurrences -> their number, first and last time, and the first exchanges. Holds five exchange IDs, and
# counts of 64 intervals.
# ------------------------------------------------------------------------------------------------------------


SECOND_NS = 1_000_000_000
_EXAMPLES = 5
_MAX_PIECES = 64


def _first(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> list[tuple[int, str]]:
    return nsmallest(_EXAMPLES, {*one, *other})


@summed
class Evidence(Summed):
    """Occurrences of one finding.

    Attributes:
        explained: time and ID of the first exchange with a broker's message about the error, and the message.
    """

    count: int = total()
    first_ns: int = earliest(NEVER_NS)
    last_ns: int = latest(0)
    explained: tuple[int, str, str] = earliest((NEVER_NS, "", ""))
    _examples: list[tuple[int, str]] = joined(_first, list)

    @property
    def examples(self) -> list[str]:
        """The first of them, as ``connection/number``, or as a connection's ID."""
        return [exchange for _, exchange in self._examples]

    @property
    def times(self) -> list[int]:
        """The times of these."""
        return [time_ns for time_ns, _ in self._examples]

    def add(self, facts: Facts, count: int = 1, error: str | None = None) -> None:
        """Add an exchange with ``count`` occurrences, of this error."""
        self.take(facts.time_ns, facts.id, count)
        if error is not None and (message := facts.messages.get(error)):
            self.explained = min(self.explained, (facts.time_ns, facts.id, message))

    def add_aggregate(self, aggregate: Aggregate) -> None:
        """Add exchanges that are alike."""
        assert aggregate.first_ns is not None
        assert aggregate.last_ns is not None
        self.count += aggregate.exchanges
        self.first_ns = min(self.first_ns, aggregate.first_ns)
        self.last_ns = max(self.last_ns, aggregate.last_ns)
        self._examples = _first(self._examples, aggregate.first)

    def add_usual(self, usual: Usual, noted: Noted) -> None:
        """Add occurrences that the core has counted."""
        if noted.number:
            self.count += noted.number
            self.first_ns = min(self.first_ns, noted.first_ns)
            self.last_ns = max(self.last_ns, noted.last_ns)
            self._examples = _first(self._examples, usual.first(noted))

    def take(self, time_ns: int, exchange: str, count: int = 1) -> None:
        """Add occurrences by time and the ID of an exchange or connection."""
        self.count += count
        if time_ns < self.first_ns:
            self.first_ns = time_ns
        if time_ns > self.last_ns:
            self.last_ns = time_ns
        if len(self._examples) < _EXAMPLES or time_ns <= self._examples[-1][0]:
            self._examples = _first(self._examples, [(time_ns, exchange)])


def _busiest(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    for piece, count in other.items():
        one[piece] = one.get(piece, 0) + count
        if len(one) > _MAX_PIECES:  # evict the quietest, never the current one
            del one[min((each for each in one if each != piece), key=one.__getitem__)]
    return one


@summed
class Bursts(Evidence):
    """Occurrences, and their number in the busiest intervals.

    Intervals start at multiples of their length, so those of the parts of a capture can be merged.
    """

    piece_ns = 10 * SECOND_NS

    pieces: dict[int, int] = joined(_busiest, dict)

    @property
    def busiest(self) -> int:
        """Occurrences in the busiest interval."""
        return max(self.pieces.values(), default=0)

    @property
    def peak(self) -> str:
        """``all within 10 seconds``, or ``240 of them within a minute``."""
        number = "all" if self.busiest == self.count else f"{self.busiest:,} of them"
        return f"{number} within {'a minute' if self.piece_ns == 60 * SECOND_NS else '10 seconds'}"

    def take(self, time_ns: int, exchange: str, count: int = 1) -> None:
        """Add occurrences by time and exchange ID."""
        Evidence.take(self, time_ns, exchange, count)
        _busiest(self.pieces, {time_ns // self.piece_ns: count})

    def add_usual(self, usual: Usual, noted: Noted) -> None:
        """Add occurrences that the core has counted, in intervals of 10 seconds."""
        Evidence.add_usual(self, usual, noted)
        _busiest(self.pieces, dict(sorted(noted.pieces)))

    def add_evidence(self, evidence: Evidence) -> None:
        """Add other evidence, counted in the interval of its first time."""
        join(self, evidence, Evidence)
        _busiest(self.pieces, {evidence.first_ns // self.piece_ns: evidence.count})


@summed
class Minutes(Bursts):
    """The same, in minutes."""

    piece_ns = 60 * SECOND_NS


# ------------------------------------------------------------------------------------------------------------


@summed
class Rule(Summed, ABC):
    """A rule. Its docstring says why the problem matters.

    Attributes:
        name: as ``--list`` shows it.
        severity: usual severity of its findings.
        title: what it looks for.
        when: its threshold, and why it is not lower.
        advice: one sentence.
        apis: APIs of the exchanges it needs; empty: all.
        needs_flaws: whether it needs only exchanges with a flaw, see ``Facts``.
        counts: type of the counts of a key.
        kept: key -> counts.
    """

    name: ClassVar[str]
    severity: ClassVar[str]
    title: ClassVar[str]
    when: ClassVar[str]
    advice: ClassVar[str]
    apis: ClassVar[frozenset[str]] = frozenset()
    needs_flaws: ClassVar[bool] = False
    counts: ClassVar[Callable[[], Any]] = Evidence

    kept: Bounded[Any, Any] = merged()

    def __init__(self, limits: Limits) -> None:
        self.kept = Bounded(limits.summary_rows, type(self).counts)

    @classmethod
    def row(cls) -> RuleRow:
        """Its description."""
        return row_of(RuleRow, cls, rule=cls.name)

    def feed(self, facts: Facts) -> None:
        """Add an exchange; many rules need none."""

    def feed_usual(self, usual: Usual) -> None:
        """Add exchanges that the core has counted, as ``feed``."""

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """Add exchanges that are alike, of any API; most rules do not need them."""

    def connect(self, row: ConnectionLogRow) -> None:
        """Add a connection that has ended; most rules do not need them."""

    def resolved(self, response: Resolved) -> None:
        """Add a DNS response; most rules need none."""

    @abstractmethod
    def findings(self) -> Iterator[FindingRow]:
        """The findings."""

    def finding(
        self, subject: str, message: str, evidence: Evidence, severity: str | None = None
    ) -> FindingRow:
        """A finding of this rule. Quotes what the broker says about the error."""
        if quote := evidence.explained[2]:
            message = f'{message}: "{quote}"'
        return row_of(
            FindingRow,
            evidence,
            rule=self.name,
            severity=severity or self.severity,
            subject=subject,
            message=message,
            advice=self.advice,
            evidence=evidence.examples,
        )


ADVERTISING = frozenset({"Metadata", "FindCoordinator", "DescribeCluster"})
"""APIs whose responses name brokers."""


# ------------------------------------------------------------------------------------------------------------
# Metadata responses -> number of partitions and replicas of topics. Holds two numbers per topic.
# ------------------------------------------------------------------------------------------------------------


APIS = frozenset({"Metadata", "DescribeTopicPartitions"})


@summed
class TopicShape(Summed):
    """The most partitions and replicas that were reported."""

    partitions: int = largest()
    replicas: int = largest()


class Topics(Bounded[str, TopicShape]):
    """Topics by name, or by ID if the name is unknown."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.summary_rows, TopicShape)
        self._limits = limits

    def __reduce__(self) -> tuple[object, ...]:
        return Topics, (self._limits,), None, None, iter(self.items())

    def learn(self, facts: Facts) -> None:
        """Add the topics of a response."""
        for entry in (facts.exchange.response or {}).get("topics") or ():
            name = entry.get("name") or facts.exchange.topic_ids.get(entry.get("topic_id", ""))
            partitions = entry.get("partitions")
            if name and partitions:
                topic = self[name]
                topic.partitions = max(topic.partitions, len(partitions))
                topic.replicas = max(
                    topic.replicas, *(len(each.get("replica_nodes") or ()) for each in partitions)
                )
