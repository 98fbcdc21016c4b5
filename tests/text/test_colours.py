from __future__ import annotations

from kdissect.anomalies import CATALOGUE, ERROR
from kdissect.text.style import RED, YELLOW, of_anomaly, paint, severity


def test_paint_ends_what_it_begins() -> None:
    assert paint("x", RED) == "\x1b[31mx\x1b[0m"
    assert paint("", RED) == ""


def test_red_is_for_what_could_not_be_decoded() -> None:
    for kind, known in CATALOGUE.items():
        assert of_anomaly(kind) == (RED if known.severity == ERROR else YELLOW)


def test_the_worst_comes_first() -> None:
    kinds = ["left_over", "malformed_body", "gap"]
    assert sorted(kinds, key=severity) == ["malformed_body", "gap", "left_over"]
