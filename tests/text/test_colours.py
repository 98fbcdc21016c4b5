from __future__ import annotations

from kdissect.anomalies import CATALOGUE, ERROR
from kdissect.text.style import COLORED, PLAIN, RED, YELLOW, Style, of_anomaly, severity


def test_paint_resets_the_color() -> None:
    assert COLORED.paint("x", RED) == "\x1b[31mx\x1b[0m"
    assert COLORED.paint("", RED) == ""
    assert PLAIN.paint("x", RED) == "x"
    assert Style(True, {"error": "bold blue"}).paint("x", f"1;{RED}") == "\x1b[1;1;34mx\x1b[0m"


def test_names_of_hosts() -> None:
    named = Style(hosts={"10.0.0.5": "web", "10.0.0.5:9092": "broker-1", "fd00::5": "db"}).named
    assert named("10.0.0.5:9092 and 10.0.0.5:41234, 10.0.0.5.") == "broker-1 and web:41234, web."
    assert named("[fd00::5]:9092, fd00::5") == "db:9092, db"
    assert named("110.0.0.5 10.0.0.50 10.0.0.5.6 x10.0.0.5") == "110.0.0.5 10.0.0.50 10.0.0.5.6 x10.0.0.5"
    assert PLAIN.named("10.0.0.5") == "10.0.0.5"


def test_red_means_not_decoded() -> None:
    for kind, known in CATALOGUE.items():
        assert of_anomaly(kind) == (RED if known.severity == ERROR else YELLOW)


def test_the_worst_comes_first() -> None:
    kinds = ["trailing_bytes", "malformed_body", "gap"]
    assert sorted(kinds, key=severity) == ["malformed_body", "gap", "trailing_bytes"]
