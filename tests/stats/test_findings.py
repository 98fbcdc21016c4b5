"""What is said about the parts that are not as they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kdissect.anomalies import CATALOGUE
from kdissect.limits import DEFAULT
from kdissect.stats import quality
from kdissect.stats.check import build_check, completeness
from kdissect.stats.findings.capture import CAPTURE_RULES, COVERED, findings
from kdissect.stats.survey import Survey

NOTHING = build_check([], Survey(DEFAULT), {}, {}, [])
INTERFACE = quality.InterfacePart(
    interface=0, name=None, link_type=1, link="Ethernet", ticks_per_second=10**6, snaplen=0, packets=100,
    cut=0, cut_to=None, captured_bytes=0, wire_bytes=0, received=None, accepted=None,
    dropped_by_interface=None, dropped_by_system=None,
)  # fmt: skip
FILE = quality.FilePart(
    file="a.pcap", format="pcap", byte_order="little", compression=None, application=None, bytes=1,
    packets=100, first=None, last=None, backward=0, backward_max_us=0, interfaces=[INTERFACE],
)  # fmt: skip
KAFKA = replace(NOTHING.connections, protocols={"Kafka": 4}, total=4, kafka_from_start=4)


def check_of(**parts: Any) -> quality.Check:
    """An otherwise faultless capture."""
    return replace(NOTHING, **{"packets": 100, "files": [FILE], "connections": KAFKA, **parts})


def findings_of(**parts: Any) -> list[tuple[str, str]]:
    """Verdict and sentence of each finding about it."""
    return [(each.verdict, each.message) for each in findings(check_of(**parts))]


def interface(**values: Any) -> list[quality.FilePart]:
    return [replace(FILE, interfaces=[replace(INTERFACE, **values)])]


ANOMALY = quality.AnomalyPart(
    anomaly="malformed_body", severity="error", meaning="", exchanges=3, example="c0ffee/1"
)
UNKNOWN = quality.UnknownPart(api_key=3, api="Metadata", api_version=99, exchanges=2)


def test_nothing_to_say() -> None:
    assert findings_of() == []


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"packets": 0}, "empty", "The capture has no packets."),
    (
        {"connections": NOTHING.connections, "skipped": {"UDP": 90, "ARP": 10}},
        "no Kafka",
        "No Kafka traffic (no TCP connections; 100 of 100 packets skipped).",
    ),
    (
        {"connections": replace(KAFKA, protocols={"HTTP": 3})},
        "no Kafka",
        "No Kafka traffic (connections: 3 HTTP).",
    ),
    (
        {"files": interface(dropped_by_interface=1, dropped_by_system=2000)},
        "lossy",
        "The capture program reported 2,001 packets dropped.",
    ),
    (
        {
            "counts": {"kafka_gaps": 2, "kafka_lost_bytes": 3000},
            "exchanges": replace(NOTHING.exchanges, lost=4, incomplete=1),
        },
        "lossy",
        "3,000 bytes of Kafka connections missing in 2 gaps: 4 exchanges lost, 1 incomplete.",
    ),
    (
        {"files": interface(cut=5, cut_to=96), "counts": {"kafka_cut_bytes": 9}},
        "truncated",
        "5 packets (5.0%) truncated to 96 bytes; bodies are decoded up to there.",
    ),
    (
        {"files": interface(cut=5, cut_to=96)},
        "good",
        "5 packets (5.0%) truncated to 96 bytes; bodies are decoded up to there.",
    ),
    (
        {"connections": replace(KAFKA, kafka_one_sided=3)},
        "one-sided",
        "3 of 4 Kafka connections were captured in one direction only.",
    ),
    (
        {"connections": replace(KAFKA, kafka_one_sided=1)},
        "good",
        "1 of 4 Kafka connections was captured in one direction only.",
    ),
    (
        {"connections": replace(KAFKA, kafka_mid_stream=1)},
        "good",
        (
            "1 of 4 Kafka connections was already open when the capture started. The client library and "
            "version, and the requests that the first responses answer, may be missing."
        ),
    ),
    (
        {"connections": replace(KAFKA, protocols={"Kafka": 1, "TLS": 2})},
        "good",
        "2 TLS connections cannot be read.",
    ),
    (
        {"connections": replace(KAFKA, protocols={"Kafka": 1, "not recognized": 2})},
        "good",
        "2 connections with other protocols, or not recognized.",
    ),
    ({"warnings": ["a.pcap: a block is bad"]}, "damaged", "a.pcap: a block is bad."),
    (
        {"warnings": ["a.pcap: ends in the middle of packet 3"]},
        "good",
        "a.pcap: ends in the middle of packet 3.",
    ),
    (
        {"files": [replace(FILE, backward=2, backward_max_us=1500)]},
        "good",
        "2 packets out of time order, by at most 1.500 ms.",
    ),
    (
        {"tcp": replace(NOTHING.tcp, conflicting_bytes=7)},
        "good",
        "7 bytes captured twice with different content; the first copy is used.",
    ),
    (
        {"unknown": [UNKNOWN]},
        "partly decoded",
        "2 exchanges with APIs or versions unknown to this version of kdissect: Metadata v99.",
    ),
    (
        {"anomalies": [ANOMALY, replace(ANOMALY, severity="note")]},
        "partly decoded",
        "Parts of messages could not be decoded: 3 malformed_body.",
    ),
    (
        {
            "anomalies": [
                replace(ANOMALY, severity="warning", anomaly=kind)
                for kind in ("truncated_body", "gap", "given_up")
            ]
        },
        "good",
        "Fully captured messages could not be fully decoded: 3 truncated_body.",
    ),
    (
        {"exchanges": replace(NOTHING.exchanges, total=9, whole=9, unanswered=2, no_answer=1, pending=1)},
        "good",
        "1 request had no response yet when the capture ended.",
    ),
    (
        {"exchanges": replace(NOTHING.exchanges, total=20, whole=19, unanswered=1)},
        "good",
        "1 exchange was not fully captured: 1 has no response.",
    ),
    (
        {"exchanges": replace(NOTHING.exchanges, total=20, whole=17, unanswered=1, orphans=2)},
        "incomplete",
        "3 exchanges were not fully captured: 2 have no request, 1 has no response.",
    ),
    (
        {"counts": {"closed_evicted": 1, "shed": 1}},
        "good",
        "Limits were reached: 1 connection evicted, buffered data dropped 1 time.",
    ),
    (
        {"counts": {"kafka_undelivered_gaps": 1, "kafka_undelivered_bytes": 9}},
        "good",
        (
            "9 bytes of Kafka connections did not arrive, in 1 gap: the receiver did not acknowledge them, "
            "so the network lost them, not the capture."
        ),
    ),
    (
        {"connections": replace(KAFKA, tls_decrypted=2)},
        "good",
        "2 TLS connections decrypted with the key log.",
    ),
    (
        {"exchanges": replace(NOTHING.exchanges, incomplete_requests=1)},
        "good",
        "1 message began but did not end: the connection or the capture ended first.",
    ),
]


@pytest.mark.parametrize(("parts", "verdict", "description"), CASES)
def test_each_finding(parts: dict[str, Any], verdict: str, description: str) -> None:
    assert findings_of(**parts) == [(verdict, description)]


def test_every_rule_has_a_case() -> None:
    reported = {finding.rule for parts, *_ in CASES for finding in findings(check_of(**parts))}
    assert reported == {rule.name for rule in CAPTURE_RULES}


def test_the_worst_comes_first() -> None:
    output = findings_of(
        unknown=[UNKNOWN],
        counts={"kafka_gaps": 1, "shed": 1},
        files=interface(cut=1, cut_to=9),
    )
    assert [verdict for verdict, _ in output] == ["lossy", "partly decoded", "good", "good"]


def test_what_is_not_all_is_not_called_a_hundred_percent() -> None:
    def of(whole: int, total: int) -> str:
        return completeness(replace(NOTHING.exchanges, whole=whole, total=total))

    assert of(0, 0) == "no exchanges"
    assert (of(1, 1), of(2, 2)) == ("1 exchange fully captured", "all 2 exchanges fully captured")
    assert of(9999, 10_000) == "9,999 of 10,000 exchanges fully captured (99.9%)"
    assert of(1, 3) == "1 of 3 exchanges fully captured (33.3%)"


def test_anomalies_that_other_findings_cover_are_known() -> None:
    assert set(CATALOGUE) >= COVERED


@pytest.mark.parametrize(
    ("parts", "advised"),
    [
        ({"connections": replace(KAFKA, protocols={"TLS": 2}, unopened=5)}, "Clients may have been refused"),
        ({"connections": replace(KAFKA, protocols={"TLS": 2})}, None),
        ({"connections": replace(KAFKA, protocols={"TLS": 2, "HTTP": 1}, unopened=5)}, "-d tcp.port"),
        ({"files": [replace(FILE, backward=2, backward_max_us=1)]}, "Latencies up to this size"),
        ({"files": [replace(FILE, backward=2, backward_max_us=0)]}, None),
    ],
)
def test_advice_depends_on_the_capture(parts: dict[str, Any], advised: str | None) -> None:
    (finding, *_) = findings(check_of(**parts))
    assert (finding.advice is None) if advised is None else (advised in (finding.advice or ""))
