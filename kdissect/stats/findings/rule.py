"""What all rules are: facts in, findings out. Each holds a bounded table of what it counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.stats.document import FindingRow, RuleRow
from kdissect.stats.quantiles import Bounded
from kdissect.stats.rows import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts


# ------------------------------------------------------------------------------------------------------------
# Occurrences -> how many, from when to when, and the first of them. Holds five names, and 64 pieces of
# time.
# ------------------------------------------------------------------------------------------------------------


SECOND_NS = 1_000_000_000
_EXAMPLES = 5
_PIECES = 64


class Evidence:
    """Occurrences of one thing."""

    __slots__ = ("_examples", "count", "first_ns", "last_ns")

    def __init__(self) -> None:
        self.count = 0
        self.first_ns = self.last_ns = 0
        self._examples: list[tuple[int, str]] = []

    @property
    def examples(self) -> list[str]:
        """The first of them, as ``connection/number``."""
        return [exchange for _, exchange in self._examples]

    def add(self, facts: Facts, count: int = 1) -> None:
        """Take an exchange that has so many of them."""
        self.take(facts.exchange.time_ns, facts.id, count)

    def take(self, time_ns: int, exchange: str, count: int = 1) -> None:
        """Take one that is known by its name."""
        self._span(time_ns, time_ns)
        self.count += count
        if len(self._examples) < _EXAMPLES or time_ns <= self._examples[-1][0]:
            self._keep([(time_ns, exchange)])

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        if other.count:
            self._span(other.first_ns, other.last_ns)
            self.count += other.count
            self._keep(other._examples)

    def _span(self, first_ns: int, last_ns: int) -> None:
        self.first_ns = min(self.first_ns, first_ns) if self.count else first_ns
        self.last_ns = max(self.last_ns, last_ns)

    def _keep(self, examples: list[tuple[int, str]]) -> None:
        self._examples = nsmallest(_EXAMPLES, {*self._examples, *examples})


class Bursts(Evidence):
    """Occurrences, and how many there were in the busiest pieces of time.

    Pieces begin at multiples of their length, so that those of parts of a capture add up.
    """

    __slots__ = ("pieces",)

    piece_ns = 10 * SECOND_NS

    def __init__(self) -> None:
        super().__init__()
        self.pieces: dict[int, int] = {}

    @property
    def busiest(self) -> int:
        """In the busiest piece."""
        return max(self.pieces.values(), default=0)

    def add(self, facts: Facts, count: int = 1) -> None:
        """Take an exchange that has so many of them."""
        super().add(facts, count)
        self._take(facts.exchange.time_ns // self.piece_ns, count)

    def occurred(self, evidence: Evidence) -> None:
        """Take what else was gathered as one occurrence, at the time of its first."""
        super().merge(evidence)
        self._take(evidence.first_ns // self.piece_ns, evidence.count)

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Bursts)
        for piece, count in other.pieces.items():
            self._take(piece, count)

    def _take(self, piece: int, count: int) -> None:
        self.pieces[piece] = self.pieces.get(piece, 0) + count
        if len(self.pieces) > _PIECES:
            # The quietest goes, never the one that is being counted.
            del self.pieces[min((each for each in self.pieces if each != piece), key=self.pieces.__getitem__)]


class Minutes(Bursts):
    """The same, in minutes."""

    __slots__ = ()

    piece_ns = 60 * SECOND_NS


# ------------------------------------------------------------------------------------------------------------


class Rule(ABC):
    """A rule. Its docstring says why what it looks for is bad.

    Attributes:
        name: as ``--list`` shows it.
        severity: of its findings, as a rule.
        title: what it looks for.
        when: its threshold, and why it is not lower.
        advice: one sentence.
        apis: exchanges that it wants to see; empty: all.
        counts: what is kept for each key.
        kept: key -> what was counted for it.
    """

    name: ClassVar[str]
    severity: ClassVar[str]
    title: ClassVar[str]
    when: ClassVar[str]
    advice: ClassVar[str]
    apis: ClassVar[frozenset[str]] = frozenset()
    counts: ClassVar[Callable[[], Any]] = Evidence

    def __init__(self, limits: Limits) -> None:
        self.kept: Bounded[Any, Any] = Bounded(limits.summary_rows, type(self).counts)

    @classmethod
    def row(cls) -> RuleRow:
        """What there is to say about it."""
        return RuleRow(
            rule=cls.name, severity=cls.severity, title=cls.title, when=cls.when, advice=cls.advice
        )

    @abstractmethod
    def feed(self, facts: Facts) -> None:
        """Take an exchange."""

    def merge(self, other: Any) -> None:
        """Take in what the same rule counted of other connections."""
        self.kept.merge(other.kept)

    @abstractmethod
    def findings(self) -> Iterator[FindingRow]:
        """Tell what is worth to be told."""

    def found(self, about: str, sentence: str, evidence: Evidence, severity: str | None = None) -> FindingRow:
        """One finding."""
        return FindingRow(
            rule=self.name,
            severity=severity or self.severity,
            about=about,
            sentence=sentence,
            advice=self.advice,
            count=evidence.count,
            first=moment(evidence.first_ns),
            last=moment(evidence.last_ns),
            evidence=evidence.examples,
        )


# ------------------------------------------------------------------------------------------------------------
# Metadata answers -> how many partitions and replicas topics have. Holds two numbers of each.
# ------------------------------------------------------------------------------------------------------------


APIS = frozenset({"Metadata", "DescribeTopicPartitions"})


class Topic:
    """The most partitions and replicas that were told."""

    __slots__ = ("partitions", "replicas")

    def __init__(self) -> None:
        self.partitions = 0
        self.replicas = 0

    def merge(self, other: Topic) -> None:
        """Take in what other answers told."""
        self.partitions = max(self.partitions, other.partitions)
        self.replicas = max(self.replicas, other.replicas)


class Topics(Bounded[str, Topic]):
    """By name, or id where there is no name."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.summary_rows, Topic)
        self._limits = limits

    def __reduce__(self) -> tuple[object, ...]:
        return Topics, (self._limits,), None, None, iter(self.items())

    def learn(self, facts: Facts) -> None:
        """Learn from an answer."""
        for told in (facts.exchange.response or {}).get("topics") or ():
            name = told.get("name") or facts.exchange.topic_names.get(told.get("topic_id", ""))
            partitions = told.get("partitions")
            if name and partitions:
                topic = self[name]
                topic.partitions = max(topic.partitions, len(partitions))
                topic.replicas = max(
                    topic.replicas, *(len(each.get("replica_nodes") or ()) for each in partitions)
                )
