from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kdissect.cli.run import report_totals


class DissectionStub:
    """The attributes of a capture and a dissection that ``report_totals`` reads."""

    def __init__(self, **attributes: Any) -> None:
        self.warnings: list[str] = attributes.pop("warnings", [])
        self.notices: list[str] = attributes.pop("notices", [])
        self.skipped = Counter(attributes.pop("skipped", {}))
        self.counts = Counter(attributes)


def messages(
    capsys: pytest.CaptureFixture[str], stub: DissectionStub, *, shown: int = 1, complete: bool = True
) -> list[str]:
    report_totals(stub, shown=shown, complete=complete)  # type: ignore[arg-type]
    captured = capsys.readouterr()
    assert captured.out == ""
    return [line.removeprefix("kdissect: ") for line in captured.err.splitlines()]


def test_nothing_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert messages(capsys, DissectionStub()) == []


def test_what_the_user_can_act_on_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    stub = DissectionStub(
        warnings=["x.pcap: ends early"], notices=["a - b: bytes"] * 25, skipped={"ARP": 1, "UDP": 2}
    )
    assert messages(capsys, stub) == [
        "warning: x.pcap: ends early",
        "25 anomalies outside exchanges (a - b: bytes); details: kdissect check FILE",
    ]


TLS_ADVICE = "decrypt with a key log (--tls-keylog), or capture behind a TLS-terminating proxy"
HINT = "to decode a port as Kafka: -d tcp.port==PORT,kafka"
NO_KAFKA = f"no Kafka traffic ({{}}); {HINT}"


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "no packets"),
        ({"packets": 9, "exchanges": 75}, "no match in 75 exchanges"),
        (
            {"packets": 9, "exchanges": 0, "connections: Kafka": 1},
            "no complete request or response in 1 Kafka connection",
        ),
        (
            {"packets": 9, "connections: TLS": 2, "connections on other ports": 1},
            f"no Kafka traffic (9 packets, connections: 2 TLS, 1 on other ports); {TLS_ADVICE}",
        ),
        (
            {"packets": 9, "connections: TLS": 2, "connections: HTTP": 1},
            NO_KAFKA.format("9 packets, connections: 2 TLS, 1 HTTP"),
        ),
        (
            {"packets": 9},
            "no Kafka traffic (9 packets, no TCP connection)",
        ),
    ],
)
def test_why_nothing_was_shown(counts: dict[str, int], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert messages(capsys, DissectionStub(**counts), shown=0) == [text]
    assert messages(capsys, DissectionStub(**counts), shown=0, complete=False) == []


def test_a_similar_name_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    stub = DissectionStub(packets=9, exchanges=75)
    report_totals(stub, shown=0, complete=True, unmet=lambda: 'no topic "a"; did you mean "b"?')  # type: ignore[arg-type]
    stderr = capsys.readouterr().err
    assert stderr == 'kdissect: no match in 75 exchanges: no topic "a"; did you mean "b"?\n'


def test_connections_that_were_not_recognized_beside_those_that_were(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stub = DissectionStub(
        **{"packets": 9, "exchanges": 3, "connections: Kafka": 1, "connections: not recognized": 2}
    )
    (line,) = messages(capsys, stub, shown=3)
    assert line == f"2 connections not recognized; {HINT}"
    stub.counts |= {"not recognized on port 9443": 1, "not recognized on port 9192": 1}
    (line,) = messages(capsys, stub, shown=3)
    hint = HINT.replace("PORT", "9192")
    assert line == f"2 connections not recognized (ports 9192, 9443); {hint}"


def test_what_was_skipped_is_reported_if_there_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    stub = DissectionStub(packets=3, skipped={"ARP": 1, "UDP": 2})
    (line,) = messages(capsys, stub, shown=0)
    assert line == "no Kafka traffic (3 packets, no TCP connection, skipped: 2 UDP, 1 ARP)"
