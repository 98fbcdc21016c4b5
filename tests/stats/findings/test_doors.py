"""Clients at the wrong door, packet by packet and exchange by exchange."""

from __future__ import annotations

from typing import Any

import pytest

from kdissect.stats.findings.connections import _leads_astray
from kdissect.stats.findings.doors import SharedAddress
from tests.findings import findings_of, produce
from tests.producers import facts_of
from tests.segments import ACK, FIN, PSH, Talk
from tests.stats.findings.test_troubles import (
    ELSEWHERE,
    HELLO,
    findings,
    refused,
    rules,
    served,
    talk,
    unanswered,
)

OTHER = ("10.0.0.77", 5432)


def speaking(place: int, data: bytes, broker: tuple[str, int] = ("10.0.0.2", 9092)) -> Talk:
    one = talk(place, broker, at_s=place).handshake().put(0, PSH | ACK, data)
    return one.put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK)


def test_a_port_where_nobody_listens() -> None:
    (row,) = findings(*(refused(place, place) for place in range(3)))
    assert (row.rule, row.severity) == ("no-listener", "warning")
    assert row.message == (
        "3 connection attempts refused, none succeeded; if it is Kafka's: -d tcp.port==9092,kafka"
    )
    assert row.impact.connections == 3


def test_a_port_that_does_not_answer() -> None:
    (row,) = findings(*(unanswered(place, 9 * place) for place in range(3)))
    assert row.message.startswith("3 connection attempts without a SYN-ACK, none succeeded")


@pytest.mark.parametrize(
    ("broker", "severity"),
    [(ELSEWHERE, "warning"), (OTHER, "note"), (("10.0.0.2", 5432), "warning")],
    ids=["port-of-kafka", "other-service", "host-of-broker"],
)
def test_beside_kafka_traffic_another_service_is_a_note(broker: tuple[str, int], severity: str) -> None:
    rows = findings(served(), *(refused(place, place, broker) for place in range(3)))
    assert [(row.rule, row.severity) for row in rows] == [("no-listener", severity)]


@pytest.mark.parametrize(
    "talks",
    [
        [refused(place, place) for place in range(2)],
        [refused(place, 0, ("10.0.0.2", 20_000 + place // 3)) for place in range(90)],
        [*(refused(place, place) for place in range(3)), served(at_s=5)],
        [*(refused(place, place, OTHER) for place in range(3)), speaking(7, b"hello", OTHER)],
    ],
    ids=["two", "a-scan", "a-broker-that-starts", "a-service-that-starts"],
)
def test_no_finding_about_other_attempts(talks: list[Talk]) -> None:
    assert "no-listener" not in rules(*talks)


def hello(place: int, broker: tuple[str, int] = ELSEWHERE, *, answered: bool = False) -> Talk:
    one = talk(place, broker, at_s=place).handshake().put(0, PSH | ACK, HELLO)
    if answered:
        one.put(1, PSH | ACK, bytes.fromhex("160303007a02000076") + bytes(117))
    return one.put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK)


def test_handshakes_that_nobody_answers() -> None:
    (row,) = findings(*(hello(place) for place in range(3)))
    assert (row.rule, row.severity) == ("tls-not-answered", "warning")
    assert row.message == "3 TLS handshakes ended without an answer; the port seems to expect plaintext"
    (row,) = findings(*(hello(place) for place in range(3)), hello(4, answered=True))
    assert row.message == "3 TLS handshakes ended without an answer; others got an answer"


def test_handshakes_elsewhere_are_a_note_beside_kafka_and_two_are_nothing() -> None:
    others = [hello(place, OTHER) for place in range(3)]
    assert [(row.rule, row.severity) for row in findings(served(), *others)] == [("tls-not-answered", "note")]
    assert rules(*others[:2]) == []


def test_another_protocol_on_a_kafka_listener() -> None:
    get, ssh = b"GET /healthz HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"
    (row,) = findings(served(), speaking(1, get), speaking(2, ssh))
    assert (row.rule, row.severity, row.count) == ("wrong-protocol", "warning", 2)
    assert row.message == (
        "2 connections with HTTP and SSH; a broker logs Invalid receive (size = 1195725856, 1397966893)"
    )
    assert rules(served(), speaking(1, get, OTHER)) == []


def brokers_at(*ports: int, after_s: float = 1) -> Any:
    brokers = [{"node_id": node, "host": "b", "port": port} for node, port in enumerate(ports)]
    return facts_of("Metadata", 7, after_s, {"topics": []}, {"brokers": brokers, "topics": []}, "asker")


def test_brokers_at_one_address() -> None:
    assert findings_of(SharedAddress, [brokers_at(9092, 9093)]) == []
    (row,) = findings_of(SharedAddress, [brokers_at(9092, 9092, 9093)])
    assert (row.severity, row.subject, row.message) == (
        "note",
        "broker b:9092",
        "2 brokers (nodes 0, 1) advertise it",
    )
    assert findings_of(SharedAddress, [produce(1, error=6)]) == []


@pytest.mark.parametrize(
    ("host", "client", "is_astray"),
    [
        ("127.0.0.1", "10.0.0.1", True),
        ("localhost", "10.0.0.1", True),
        ("0.0.0.0", "10.0.0.1", True),
        ("::1", "2001:db8::1", True),
        ("169.254.1.1", "10.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", False),
        ("localhost", "127.0.0.1", False),
        ("10.0.0.2", "10.0.0.1", False),
        ("kafka-1", "10.0.0.1", False),
        ("169.254.1.1", "169.254.1.9", False),
    ],
)
def test_addresses_that_mean_another_machine(host: str, client: str, is_astray: bool) -> None:
    assert _leads_astray(host, client) == is_astray
