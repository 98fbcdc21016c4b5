from __future__ import annotations

from kdissect.anomalies import CATALOGUE, ERROR
from kdissect.text.style import RED, YELLOW, of_anomaly, paint, severity


def test_paint_resets_the_color() -> None:
    assert paint("x", RED) == "\x1b[31mx\x1b[0m"
    assert paint("", RED) == ""


def test_red_means_not_decoded() -> None:
    for kind, known in CATALOGUE.items():
        assert of_anomaly(kind) == (RED if known.severity == ERROR else YELLOW)


def test_the_worst_comes_first() -> None:
    kinds = ["left_over", "malformed_body", "gap"]
    assert sorted(kinds, key=severity) == ["malformed_body", "gap", "left_over"]
