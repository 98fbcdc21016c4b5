"""What an expert would point at: the part of the document that ``--findings`` asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.analysis.summary.fields import told


@dataclass(slots=True, kw_only=True)
class FindingRow:
    """Something to look at."""

    rule: str = told("The rule that found it; `summary --findings --list` explains each.")
    severity: str = told(
        "`error`: does not work. `warning`: costs time, money or safety. `note`: good to know."
    )
    about: str = told("Who or what it is about.")
    sentence: str = told("What was seen, with numbers.")
    advice: str = told("What to do about it.")
    count: int = told("How often it was seen.")
    first: datetime = told("When first.")
    last: datetime = told("When last.")
    evidence: list[str] = told("CONNECTION/NUMBER of the first five, for `read --exchange`.")


@dataclass(slots=True, kw_only=True)
class RuleRow:
    """A rule."""

    rule: str = told("Its name.")
    severity: str = told("Of its findings, as a rule.")
    title: str = told("What it looks for.")
    when: str = told("From when on it speaks, and why not earlier.")
    advice: str = told("What it says to do.")
