"""Text -> the same text in colour, for a terminal that wants it. Holds nothing."""

from __future__ import annotations

from kdissect.anomalies import CATALOGUE, ERROR, NOTE, WARNING

RED = "31"
YELLOW = "33"
CYAN = "36"
BOLD = "1"
FAINT = "2"


def paint(text: str, colour: str) -> str:
    """Put the text between the sequences that switch the colour on and everything off."""
    return f"\x1b[{colour}m{text}\x1b[0m" if text else text


def severity(kind: str) -> int:
    """Rank an anomaly: 0 is the worst."""
    known = CATALOGUE.get(kind)
    return (ERROR, WARNING, NOTE).index(known.severity if known else NOTE)


def of_anomaly(kind: str) -> str:
    """Choose red where something could not be decoded, yellow where something is missing or odd."""
    return YELLOW if severity(kind) else RED
