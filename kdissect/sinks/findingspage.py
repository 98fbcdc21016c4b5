"""``FindingRow`` and ``RuleRow`` -> what an expert would point at, for a person. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.sinks.page import Heading, Section
from kdissect.sinks.phrases import many

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.analysis.summary.findingsdocument import FindingRow, RuleRow

_RULES = (Heading("RULE"), Heading("SEVERITY"), Heading("LOOKS FOR", gives=True))


def sections(rows: Sequence[FindingRow], *, limit: int | None) -> Iterator[Section]:
    """Yield how many there are, then each in some lines: they are sentences, and no table."""
    if not rows:
        yield Section("Findings", notes=("none: no rule has anything to say (--list shows the rules)",))
        return
    shown = rows[:limit]
    severities = list(dict.fromkeys(row.severity for row in rows))
    counted = (many(sum(row.severity == each for row in rows), each) for each in severities)
    yield Section("Findings", notes=(", ".join(counted),))
    for place, row in enumerate(shown, 1):
        notes = (
            f"{row.about}: {row.sentence}",
            f"advice: {row.advice}",
            f"{_when(row)}; see {' '.join(row.evidence)}",
        )
        left_out = len(rows) - len(shown) if place == len(shown) else 0
        yield Section(f"{row.severity}: {row.rule}", notes=notes, left_out=left_out)


def rules(rows: Sequence[RuleRow]) -> Iterator[Section]:
    """Yield the rules: a table of all, then when each speaks and what it says."""
    cells = [[row.rule, row.severity, row.title] for row in rows]
    yield Section("Rules", _RULES, cells)
    for row in rows:
        yield Section(row.rule, notes=(row.title, f"when: {row.when}", f"advice: {row.advice}"))


def _when(row: FindingRow) -> str:
    first, last = f"{row.first:%Y-%m-%d %H:%M:%S}", f"{row.last:%H:%M:%S}"
    return first if row.count == 1 else f"{first} to {last}"
