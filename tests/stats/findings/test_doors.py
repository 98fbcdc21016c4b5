"""Clients at the wrong door, packet by packet and exchange by exchange."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any

import pytest

from kdissect.limits import DEFAULT
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.stats.findings.doors import SharedAddress
from kdissect.stats.findings.listeners import _astray
from kdissect.stats.summarizer import Summarizer
from tests.findings import findings_of, produce
from tests.frames import METADATA, heartbeat_answers, heartbeats, request, response
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


def test_where_kafka_responds_on_the_host_of_a_closed_port() -> None:
    """As for a broker with a wrong port in controller.quorum.bootstrap.servers."""
    (row,) = findings(served(), *(refused(place, place, ("10.0.0.2", 5432)) for place in range(3)))
    assert row.message == (
        "3 connection attempts refused, none succeeded; on the same host, Kafka responds at 10.0.0.2:9092; "
        "if it is Kafka's: -d tcp.port==5432,kafka"
    )
    (row,) = findings(served(), *(refused(place, place, OTHER) for place in range(3)))
    assert "responds" not in row.message


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
    assert row.message == (
        "3 TLS handshakes ended by the server without an answer; the port seems to expect plaintext; "
        "if it is Kafka's: -d tcp.port==9092,kafka"
    )
    (row,) = findings(*(hello(place) for place in range(3)), hello(4, answered=True))
    assert row.message == (
        "3 TLS handshakes ended by the server without an answer; others got an answer; "
        "if it is Kafka's: -d tcp.port==9092,kafka"
    )
    plain = speaking(5, b"hello", ELSEWHERE).put(1, PSH | ACK, b"hello")
    (row,) = findings(*(hello(place) for place in range(3)), plain)
    assert "others got an answer" not in row.message


def test_handshakes_elsewhere_are_a_note_beside_kafka_and_two_are_nothing() -> None:
    others = [hello(place, OTHER) for place in range(3)]
    assert [(row.rule, row.severity) for row in findings(served(), *others)] == [("tls-not-answered", "note")]
    assert rules(*others[:2]) == []


def test_another_protocol_on_a_kafka_listener() -> None:
    get, ssh = b"GET /healthz HTTP/1.1\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"
    (row,) = findings(served(), speaking(1, get), speaking(2, ssh))
    assert (row.rule, row.severity, row.count) == ("wrong-protocol", "warning", 2)
    assert row.message == (
        "2 connections with HTTP and SSH; a broker logs Invalid receive (size = 1195725856 for GET, "
        "1347375956 for POST, 1212498244 for HEAD, 1397966893)"
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


def test_brokers_at_one_address_mislead_if_many_requests_reach_the_wrong_one() -> None:
    shared = brokers_at(9092, 9092)
    (row,) = findings_of(SharedAddress, [shared, *(produce(number, error=6) for number in (2, 3, 4))])
    assert (row.severity, row.message) == (
        "warning",
        "2 brokers (nodes 0, 1) advertise it; 3 requests reached a broker that does not lead",
    )
    moved = [produce(2 + number, error=6 * (number < 3)) for number in range(60)]
    (row,) = findings_of(SharedAddress, [shared, *moved])
    assert row.severity == "note", "leaders moved once"


def test_retries_count_too() -> None:
    """Errors that a client is expected to get at first are expected of it only if it can find the leader."""
    again = [produce(2 + number, error=6) for number in range(4)]
    for each in again[:3]:
        each.serious = []
    (row,) = findings_of(SharedAddress, [brokers_at(9092, 9092), *again])
    assert row.impact.requests == 4


@pytest.mark.parametrize(
    ("host", "client", "is_astray"),
    [
        ("127.0.0.1", "10.0.0.1", True),
        ("localhost", "10.0.0.1", True),
        ("LOCALHOST", "10.0.0.1", True),
        ("localhost.", "10.0.0.1", True),
        ("::ffff:127.0.0.1", "10.0.0.1", True),
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
    assert bool(_astray(host, client)) == is_astray


def test_several_ports_are_all_named() -> None:
    tries = [refused(place, place, ("10.0.0.2", 9092 + place % 2)) for place in range(6)]
    (row,) = findings(*tries)
    assert row.message.endswith("-d tcp.port==9092,kafka -d tcp.port==9093,kafka")


def test_a_tls_listener_logs_no_size() -> None:
    tls = hello(2, ("10.0.0.2", 9092), answered=True)
    rows = findings(served(), tls, speaking(1, b"GET / HTTP/1.1\r\n\r\n"))
    (row,) = (each for each in rows if each.rule == "wrong-protocol")
    assert row.message == "1 connection with HTTP"


def bootstrapped(place: int, host: str, *, client: str = "10.0.0.1", also: bool = False) -> Talk:
    """A client that asks for brokers, and gets the name of a host."""
    one = talk(place, at_s=place, client=client).handshake()
    broker = {"node_id": 1, "host": host, "port": 9092}
    one.client_sends(request(METADATA, 5, {"topics": []}, correlation_id=1))
    one.broker_sends(response(METADATA, 5, {"brokers": [broker], "topics": []}, correlation_id=1))
    if also:
        one.client_sends(heartbeats(1, first=2)[0]).broker_sends(heartbeat_answers(1, first=2)[0])
    return one.finish()


LED_ASTRAY = "advertised-listener-unreachable"


def test_a_client_that_connects_to_itself() -> None:
    (row, *_) = findings(*(bootstrapped(place, "127.0.0.1") for place in range(3)))
    assert (row.rule, row.message) == (
        LED_ASTRAY,
        "advertises the loopback address 127.0.0.1: clients elsewhere connect to themselves",
    )


@pytest.mark.parametrize(
    "talks",
    [
        [bootstrapped(0, "localhost")],
        [bootstrapped(place, "localhost", client="10.0.0.2") for place in range(3)],
        [bootstrapped(place, "localhost", also=place == 2) for place in range(3)],
    ],
    ids=["once", "same-machine", "works"],
)
def test_loopback_addresses_that_do_no_harm(talks: list[Talk]) -> None:
    assert LED_ASTRAY not in rules(*talks)


def test_what_filters_hide_may_be_work() -> None:
    packets = sorted(
        chain(*(bootstrapped(place, "localhost", also=True).packets for place in range(3))),
        key=attrgetter("time_ns"),
    )
    summarizer = Summarizer(DEFAULT, parts=frozenset({"findings"}))
    log = summarizer.connection_feed(DEFAULT, filtered=True)
    for exchange in Dissection(packets, Options(), observer=log):
        is_selected = exchange.api == "Metadata"
        if is_selected:
            summarizer.feed(exchange)
        log.exchange(exchange, is_selected=is_selected)
    log.close()
    assert LED_ASTRAY not in {row.rule for row in summarizer.parts["findings"].rows()}
