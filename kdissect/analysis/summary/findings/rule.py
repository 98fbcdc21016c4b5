"""What all rules are: facts in, findings out. Each holds a bounded table of what it counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.analysis.summary.bounded import Bounded
from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findingsdocument import FindingRow, RuleRow
from kdissect.analysis.summary.rows import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.limits import Limits


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
