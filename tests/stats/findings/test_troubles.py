"""Connections in trouble, packet by packet: what is found, and that nothing else is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain, cycle
from operator import attrgetter
from struct import pack
from typing import TYPE_CHECKING, Any

import pytest
import scapy.all as s

from kdissect.limits import DEFAULT, SECOND_NS
from kdissect.model import Endpoint
from kdissect.net.dns import Resolved
from kdissect.options import Options
from kdissect.pipeline import Dissection
from kdissect.stats.findings.listeners import Attempts, ConnectionRefused, ResolvedNames
from kdissect.stats.findings.rules import RULES
from kdissect.stats.summarizer import Summarizer
from tests.frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    heartbeat_answers,
    heartbeats,
    request,
    response,
    sized,
)
from tests.segments import ACK, FIN, PSH, RST, START_NS, SYN, Talk, packet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Packet
    from kdissect.stats.document import FindingRow

HEARTBEAT, SASL_AUTHENTICATE = 12, 36
BROKER = ("10.0.0.2", 9092)
ELSEWHERE = ("10.0.0.9", 9092)
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(194)
ALERT = bytes.fromhex("15030300020246")
_PARTS = frozenset({"findings"})


def findings(*talks: Talk, forced: int | None = None, more: tuple[Packet, ...] = ()) -> list[FindingRow]:
    """What is found in these, but not that a client gets nothing done if that is explained; the same if each
    connection is seen by another process, of which there are at most 16.
    """
    packets = sorted(chain(more, *(talk.packets for talk in talks)), key=attrgetter("time_ns"))
    options = Options(kafka_ports=frozenset({forced} if forced else ()))
    everything = summarized(packets, options)
    merged = Summarizer(DEFAULT, parts=_PARTS)
    connections = {tuple(sorted(talk.ends)) for talk in talks}
    processes = dict(zip(sorted(connections), cycle(range(16))))
    seen = defaultdict(list)
    for talk in talks:
        seen[processes[tuple(sorted(talk.ends))]] += talk.packets
    for _, own in sorted(seen.items()):
        merged.merge(summarized(sorted(chain(more, own), key=attrgetter("time_ns")), options))
    rows: list[FindingRow] = everything.parts["findings"].rows()
    assert merged.parts["findings"].rows() == rows
    return [row for row in rows if row.explained_by is None or row.rule != "client-unserved"]


def summarized(packets: Iterable[Packet], options: Options) -> Summarizer:
    summarizer = Summarizer(DEFAULT, parts=_PARTS)
    log = summarizer.connection_feed(DEFAULT, filtered=False)
    assert log is not None
    for exchange in Dissection(packets, options, observer=log):
        summarizer.feed(exchange)
        log.exchange(exchange)
    log.close()
    summarizer.settle()
    return summarizer


def rules(*talks: Talk, **options: Any) -> list[str]:
    return [row.rule for row in findings(*talks, **options)]


def talk(place: int = 0, broker: tuple[str, int] = BROKER, at_s: float = 0, client: str = "10.0.0.1") -> Talk:
    return Talk(client=(client, 40_000 + place), broker=broker).waits(at_s)


def served(place: int = 9, **options: Any) -> Talk:
    """A connection on which all is well."""
    one = talk(place, **options).handshake()
    one.client_sends(b"".join(heartbeats(3))).broker_sends(b"".join(heartbeat_answers(3)))
    return one.finish()


def requested(place: int = 0, **options: Any) -> Talk:
    """A request that the broker has acknowledged."""
    return talk(place, **options).handshake().client_sends(heartbeats(1)[0]).broker_acks()


def refused(place: int, at_s: float = 0, broker: tuple[str, int] = BROKER, client: str = "10.0.0.1") -> Talk:
    return talk(place, broker, at_s, client).put(0, SYN, acknowledgment=0).put(1, RST | ACK)


def unanswered(place: int, at_s: float = 0, broker: tuple[str, int] = BROKER, repeats: int = 2) -> Talk:
    one = talk(place, broker, at_s)
    for _ in range(1 + repeats):
        one.put(0, SYN, sequence=1000, acknowledgment=0).waits(1)
    return one


def test_a_connection_on_which_all_is_well() -> None:
    assert rules(served(), served(1)) == []


def test_a_silent_broker() -> None:
    (row,) = findings(requested().waits(2).finish())
    assert (row.rule, row.severity, row.count) == ("broker-silent", "warning", 1)
    assert row.subject == "client test-client at 10.0.0.1, broker 10.0.0.2:9092"
    message = (
        "1 request on 1 connection acknowledged at the TCP level, but not answered before the connection "
        "ended"
    )
    assert row.message.startswith(f"{message}, up to 2.00")
    many = findings(*(requested(place).waits(2).finish() for place in range(3)))
    assert [(row.rule, row.severity) for row in many] == [("broker-silent", "error")]


def test_a_broker_that_falls_silent() -> None:
    one = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0])
    one.client_sends(heartbeats(1, first=2)[0]).broker_acks().waits(6).finish()
    assert "broker-silent" in rules(one)


def test_a_broker_that_responds_after_the_client_gave_up() -> None:
    one = requested().waits(8).put(0, FIN | ACK).broker_acks().waits(9).broker_sends(heartbeat_answers(1)[0])
    (row,) = findings(one.put(0, RST, acknowledgment=0))
    assert row.rule == "broker-silent"
    message = (
        "1 request on 1 connection acknowledged at the TCP level, but not answered before the connection "
        "ended"
    )
    assert row.message.startswith(f"{message}, up to 8.00")


def test_a_request_that_waits_for_a_moment_is_no_silence() -> None:
    one = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0])
    one.client_sends(heartbeats(1, first=2)[0]).broker_acks().waits(2).finish()
    assert rules(requested().waits(0.5).finish(), one) == []


def test_bytes_that_never_arrived_are_no_silence_of_the_broker() -> None:
    one = talk().handshake().client_sends(heartbeats(1)[0]).waits(10).put(0, FIN | ACK)
    assert "broker-silent" not in rules(one)


def test_all_connections_that_a_broker_resets_are_counted() -> None:
    idle = [
        talk(place).handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0])
        for place in (1, 2)
    ]
    resets = [one.client_acks().waits(3).reset(1) for one in idle]
    assert rules(*resets) == []
    (row,) = findings(requested().waits(3).reset(1), *resets)
    assert (row.rule, row.message) == (
        "broker-resets",
        "3 connections reset, 1 of them with 1 outstanding request",
    )


def test_resets_and_closes() -> None:
    assert rules(requested().reset(1)) == ["broker-resets"]
    closed = findings(requested().put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK))
    assert [(row.rule, row.message) for row in closed] == [
        ("broker-closes", "1 connection closed right after Heartbeat v4")
    ]


JOIN_GROUP = 11
JOIN = request(JOIN_GROUP, 0, {"group_id": "readers"}, correlation_id=1)
POLL = [request(FETCH, 11, {}, correlation_id=number) for number in (1, 2)]
POLLED = response(FETCH, 11, {}, correlation_id=1)


def closed_after(requests: Iterable[bytes], responses: Iterable[bytes] = (), waits_s: float = 0) -> Talk:
    """The broker answers the first requests and closes the connection."""
    one = talk().handshake()
    answers = iter(responses)
    for each in requests:
        one.client_sends(each)
        for answer in answers:
            one.broker_sends(answer)
            break
    return one.waits(waits_s).put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK)


@pytest.mark.parametrize("requested", [JOIN, POLL[0]])
def test_a_broker_that_closes_instead_of_holding_a_request(requested: bytes) -> None:
    (row,) = findings(closed_after([requested], waits_s=0.05))
    assert row.rule == "broker-closes"
    assert row.message in (
        "1 connection closed right after JoinGroup v0",
        "1 connection closed right after Fetch v11",
    )
    assert rules(closed_after([requested], waits_s=0.5)) == []


def test_a_broker_that_stops_while_it_holds_a_request() -> None:
    assert rules(closed_after(POLL, [POLLED])) == []


def test_an_idle_connection_that_the_broker_closes() -> None:
    one = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0]).waits(600)
    assert rules(one.put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK)) == []


# --- connections that do not open ---------------------------------------------------------------------------


def test_a_refused_connection() -> None:
    cause, row = findings(served(), *(refused(place, 1 + place) for place in range(3)))
    assert (cause.rule, cause.severity, cause.explained_by) == ("broker-unreachable", "error", None)
    assert cause.message == (
        "served nobody: 3 attempts to connect refused; it did not come back in the capture"
    )
    assert (row.rule, row.severity, row.count) == ("connection-refused", "error", 3)
    assert (row.message, row.explained_by) == (
        "3 connections refused; earlier ones succeeded",
        "broker-unreachable",
    )
    (row,) = findings(served(at_s=9), *(refused(place, 1 + place) for place in range(3)))
    assert (row.severity, row.message) == ("warning", "3 connections refused; later ones succeeded")


def test_an_endpoint_is_a_listener_if_it_is_forced() -> None:
    several = [refused(place) for place in range(3)]
    assert rules(*several) == ["no-listener"]
    assert rules(*several, forced=9092) == ["connection-refused"]


def test_a_connection_that_nobody_answers() -> None:
    (row,) = findings(served(), unanswered(1, 1))
    assert (row.rule, row.severity) == ("connect-timeout", "warning")
    assert (
        row.message == "1 connection attempt without a SYN-ACK, 2 SYN retransmissions; earlier ones succeeded"
    )


def one_way(place: int, at_s: float = 0, broker: tuple[str, int] = BROKER) -> Talk:
    """The client repeats its SYN, because no SYN-ACK arrives."""
    one = talk(place, broker, at_s)
    for _ in range(3):
        one.put(0, SYN, sequence=1000, acknowledgment=0).put(1, SYN | ACK, sequence=5000).waits(1)
    return one


def test_a_syn_ack_that_never_arrives() -> None:
    (row,) = findings(*(one_way(place, 1 + place) for place in range(3)), served(at_s=9))
    assert (row.rule, row.severity, row.count) == ("connect-timeout", "warning", 3)
    assert row.message == (
        "3 connection attempts whose SYN-ACK was never acknowledged, 6 SYN retransmissions; the path works "
        "in one direction only; later ones succeeded"
    )
    (row,) = findings(served(), unanswered(1, 1), one_way(2, 5))
    assert row.message.startswith(
        "1 connection attempt without a SYN-ACK and 1 whose SYN-ACK was never acknowledged, 4 SYN"
    )
    (row,) = findings(metadata("10.0.0.9"), one_way(1, 1, ELSEWHERE))
    assert row.rule == "advertised-listener-unreachable"


def test_a_port_scan_finds_nothing() -> None:
    scan = [refused(port, 1 + port / 1000, ("10.0.0.2", port), "10.0.0.66") for port in range(1, 400)]
    scan.append(refused(9092, 1, BROKER, "10.0.0.66"))
    assert rules(served(), *scan) == []


def test_a_flood_finds_nothing() -> None:
    spoofed = [refused(place, 1, client=f"10.1.{place // 250}.{place % 250}") for place in range(2000)]
    assert rules(served(), *spoofed) == []
    from_one = [refused(place, 1 + place / 1000, client="10.0.0.66") for place in range(1500)]
    assert rules(served(), *from_one) == []
    silent = [unanswered(place, 1, repeats=0) for place in range(100, 300)]
    assert rules(served(), *silent) == []


def metadata(host: str, port: int = 9092) -> Talk:
    """A client is given the address of a broker."""
    return advertising(talk(9), host, port)


def advertising(one: Talk, host: str, port: int) -> Talk:
    """The same on this connection."""
    broker = {"node_id": 1, "host": host, "port": port}
    one.handshake()
    one.client_sends(request(METADATA, 5, {"topics": []})).broker_sends(
        response(METADATA, 5, {"brokers": [broker], "topics": []})
    )
    return one.finish()


def test_an_advertised_address_that_does_not_open() -> None:
    (row,) = findings(metadata("10.0.0.9"), *(unanswered(place, 1 + place, ELSEWHERE) for place in range(2)))
    assert (row.rule, row.severity) == ("advertised-listener-unreachable", "error")
    assert row.subject == "client at 10.0.0.1, broker 10.0.0.9:9092"
    assert row.message == "advertised in Metadata; 2 connection attempts without a SYN-ACK, none succeeded"


def test_an_advertised_name_that_probably_does_not_open() -> None:
    (row,) = findings(metadata("kafka.internal"), refused(1, 1, ELSEWHERE))
    assert (row.rule, row.severity) == ("advertised-listener-unreachable", "warning")
    assert row.message == (
        "advertised in Metadata; probably at 10.0.0.9; 1 connection attempt refused, none succeeded"
    )
    assert rules(metadata("kafka.internal"), refused(1, 60, ELSEWHERE)) == []
    assert rules(metadata("kafka.internal", 9093), refused(1, 1, ELSEWHERE)) == []


def dns(name: str, *answers: Any, rcode: int = 0, kind: str = "A", at_s: float = 0.5) -> Packet:
    """A response, by scapy."""
    records = [s.DNSRR(rrname=owner, type=of, rdata=data, ttl=30) for owner, of, data in answers]
    message = s.DNS(qr=1, rcode=rcode, qd=s.DNSQR(qname=name, qtype=kind), an=records, ar=s.DNSRROPT())
    layers = s.Ether() / s.IP(src="10.0.0.53", dst="10.0.0.1") / s.UDP(sport=53, dport=5353) / message
    return packet(bytes(layers), time_ns=START_NS + round(at_s * SECOND_NS))


NAME = "Kafka.internal"


def test_dns_decides_whether_an_advertised_name_does_not_open() -> None:
    alias = dns(NAME, (NAME, "CNAME", "k.example.org"), ("k.example.org", "A", "10.0.0.9"))
    (row,) = findings(metadata("kafka.internal"), refused(1, 60, ELSEWHERE), more=(alias,))
    assert (row.rule, row.severity) == ("advertised-listener-unreachable", "error")
    assert row.subject == "client at 10.0.0.1, broker kafka.internal:9092"
    assert row.message == (
        "advertised in Metadata; 10.0.0.9 according to DNS; 1 connection attempt refused, none succeeded"
    )
    other = dns(NAME, (NAME, "A", "10.0.0.2"))
    assert rules(metadata("kafka.internal"), refused(1, 1, ELSEWHERE), more=(other,)) == []
    both = dns(NAME, (NAME, "A", "10.0.0.9"), (NAME, "A", "10.0.0.7"))
    reached = served(2, broker=ELSEWHERE, at_s=2)
    assert "advertised-listener-unreachable" not in rules(
        metadata("kafka.internal"), refused(1, 1, ELSEWHERE), reached, more=(both,)
    )


def test_dns_over_ipv6() -> None:
    broker, client = ("2001:db8::9", 9092), "2001:db8::1"
    client_talk = Talk(client=(client, 40_009), broker=("2001:db8::2", 9092))
    received = advertising(client_talk, "kafka.internal", 9092)
    closed = Talk(client=(client, 40_001), broker=broker).waits(60)
    closed.put(0, SYN, acknowledgment=0).put(1, RST | ACK)
    answer = dns(NAME, (NAME, "AAAA", "2001:db8::9"), kind="AAAA")
    assert rules(received, closed, more=(answer,)) == ["advertised-listener-unreachable"]


def test_an_advertised_name_that_does_not_exist() -> None:
    nowhere = dns(NAME, rcode=3)
    (row,) = findings(metadata("kafka.internal"), more=(nowhere,))
    assert (row.rule, row.severity) == ("advertised-listener-unreachable", "error")
    assert row.message == "advertised in Metadata; DNS has no such name (NXDOMAIN)"
    in_search_domain = dns("kafka.internal.example.org", ("kafka.internal.example.org", "A", "10.0.0.2"))
    assert rules(metadata("kafka.internal"), more=(nowhere, in_search_domain)) == []
    assert rules(metadata("kafka.internal"), more=(dns(NAME, kind="AAAA"),)) == []
    assert rules(metadata("kafka.internal"), more=(dns(NAME, rcode=2),)) == []


def test_names_are_bounded_and_those_seen_last_are_kept() -> None:
    names = ResolvedNames(replace(DEFAULT, resolved_names=2))
    for name in ("a", "b", "a", "c"):
        names.add(Resolved(name, ["10.0.0.9"]))
    assert names.by_host() == {"a": {"10.0.0.9"}, "c": {"10.0.0.9"}}


def test_what_is_advertised_and_opens() -> None:
    assert rules(metadata("10.0.0.9"), refused(1, 1, ELSEWHERE), served(2, broker=ELSEWHERE, at_s=2)) == [
        "connection-refused"
    ]


def test_a_client_that_closes_has_not_timed_out() -> None:
    """A broker that waits does not read the FIN, and closes its end much later."""
    assert rules(requested().put(0, FIN | ACK).waits(40).put(1, FIN | ACK)) == []
    assert rules(requested().waits(40).put(0, FIN | ACK).put(1, FIN | ACK)) == [
        "broker-silent",
        "request-timeouts",
    ]


# --- TLS ----------------------------------------------------------------------------------------------------


def hello(place: int = 0) -> Talk:
    return (
        talk(place, at_s=1)
        .handshake()
        .put(0, PSH | ACK, HELLO)
        .put(1, FIN | ACK)
        .put(0, FIN | ACK)
        .put(1, ACK)
    )


def test_a_tls_client_at_a_plaintext_listener() -> None:
    (row,) = findings(served(), hello())
    assert (row.rule, row.severity) == ("tls-port-mismatch", "error")
    assert (
        row.message
        == "the listener expects plaintext: 1 TLS handshake ended by the broker without a response"
    )


def test_a_tls_handshake_that_a_listener_ends() -> None:
    assert rules(hello()) == []  # any server
    assert rules(hello(), forced=9092) == ["connection-closed-in-handshake"]
    (row,) = findings(metadata_elsewhere(), hello())
    assert (row.rule, row.severity) == ("connection-closed-in-handshake", "warning")


def metadata_elsewhere() -> Talk:
    """Another broker advertises the one at hand."""
    broker = {"node_id": 1, "host": BROKER[0], "port": BROKER[1]}
    one = talk(8, ELSEWHERE).handshake()
    one.client_sends(request(METADATA, 5, {"topics": []})).broker_sends(
        response(METADATA, 5, {"brokers": [broker], "topics": []})
    )
    return one.finish()


# --- responses, loops, packets ------------------------------------------------------------------------------


def test_a_response_that_matches_no_request() -> None:
    one = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1, first=77)[0])
    assert "response-mismatch" in rules(one.waits(0.1).finish())


def test_a_client_that_connects_again_and_again() -> None:
    loop = [requested(place, at_s=20 + place).reset(1) for place in range(12)]
    assert sorted(rules(*loop)) == ["broker-resets", "reconnect-loop"]
    assert "reconnect-loop" not in rules(*loop[:5])
    assert "reconnect-loop" not in rules(*loop, *(served(20 + place, at_s=place) for place in range(9)))


def lossy(
    place: int, copies: int, of: int = 20, *, after_s: float = 0.2, d_sack: bool = False, slow_s: float = 0
) -> Talk:
    """Requests, the first of which are sent again; the broker reports with D-SACK if it had got them."""
    one = talk(place).handshake()
    beats, answers = heartbeats(of), heartbeat_answers(of)
    sequence = 1001
    for number, (beat, answer) in enumerate(zip(beats, answers, strict=True)):
        one.client_sends(beat)
        if number < copies:
            one.waits(after_s).put(0, PSH | ACK, beat, sequence=sequence)
            end = sequence + len(beat)
            if d_sack:
                one.put(1, ACK, options=pack(">4B2I", 1, 1, 5, 10, sequence, end) + bytes(12))
        sequence += len(beat)
        one.waits(slow_s).broker_sends(answer)
    return one.finish()


def test_lost_packets() -> None:
    (row,) = findings(lossy(0, 12, after_s=0.05))
    assert (row.rule, row.severity, len(row.evidence)) == ("network-loss", "warning", 1)
    assert row.message == "12 retransmissions in 40 segments (30.0%) on 1 connection"
    assert rules(lossy(0, 4, after_s=0.05)) == []


def test_lost_packets_that_explain_latencies() -> None:
    (row,) = findings(lossy(0, 3), lossy(1, 1, after_s=0.3))
    assert (row.rule, row.severity, row.count) == ("network-loss", "warning", 4)
    assert row.message.startswith(
        "4 retransmissions in 80 segments (5.0%) on 2 connections; they delayed 4 requests by 904.0ms in "
        "total, longest 301.0ms ("
    )
    assert row.message.endswith("/1)")
    assert [each.split("/")[1] for each in row.evidence] == ["1", "1", "2", "3"]
    assert rules(lossy(0, 2)) == []
    assert rules(lossy(0, 3, slow_s=0.5)) == []  # the broker takes longer than the network
    assert rules(lossy(0, 3, of=4000)) == []  # no percentile shows it


def test_tail_loss_probes_are_no_loss() -> None:
    """Up to 0.35% of the packets between healthy hosts, and for a few requests a larger share."""
    assert rules(lossy(0, 14, of=2000, after_s=0.02, d_sack=True)) == []
    assert rules(lossy(0, 12, after_s=0.2, d_sack=True)) == []
    assert rules(lossy(0, 12, after_s=0.2)) == ["network-loss"]


def test_connections_that_open_at_the_second_attempt() -> None:
    late = []
    for place in range(3):
        one = talk(place).put(0, SYN, sequence=1000, acknowledgment=0).waits(1)
        one.handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0]).finish()
        late.append(one)
    (row,) = findings(*late)
    assert row.message.endswith("3 opened only after a repeated SYN")


@pytest.mark.parametrize("side", [0, 1])
def test_an_end_that_does_not_read(side: int) -> None:
    one = requested().broker_sends(heartbeat_answers(1)[0])
    one.put(side, ACK, window=0).waits(3).put(side, ACK).finish()
    (row,) = findings(one)
    assert row.rule == "stalled-reader"
    assert row.message.startswith(f"the {('client', 'broker')[side]} did not read for 3.00")
    assert (
        rules(requested().broker_sends(heartbeat_answers(1)[0]).put(side, ACK, window=0).put(side, ACK)) == []
    )


def test_a_client_that_vanishes_and_comes_back() -> None:
    answer = heartbeat_answers(1)[0]
    gone = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(answer)
    for _ in range(4):
        gone.waits(1).put(1, PSH | ACK, answer, sequence=5001)
    assert "client-vanished" not in rules(gone)
    (row,) = (row for row in findings(gone, served(at_s=20)) if row.rule == "client-vanished")
    assert row.message.startswith("the client stopped acknowledging on 1 connection, with 16 bytes")


def test_a_host_that_restarts_resets_its_old_connection() -> None:
    answer = heartbeat_answers(1)[0]
    gone = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(answer)
    for _ in range(4):
        gone.waits(1).put(1, PSH | ACK, answer, sequence=5001)
    assert "client-vanished" in rules(gone.put(0, RST), served(at_s=20))


def unacknowledged(copies: int) -> Talk:
    """A request that is retransmitted so often, behind one that is answered."""
    one = requested().broker_sends(heartbeat_answers(1)[0]).put(0, ACK)
    lost = heartbeats(2)[1]
    sequence = 1001 + len(heartbeats(1)[0])
    for _ in range(1 + copies):
        one.put(0, PSH | ACK, lost, sequence=sequence).waits(1)
    return one


def test_requests_that_nobody_acknowledges() -> None:
    assert "path-interrupted" not in rules(unacknowledged(4)), "no new connection works"
    assert "path-interrupted" not in rules(unacknowledged(1), served(at_s=20))
    (row,) = (row for row in findings(unacknowledged(4), served(at_s=20)) if row.rule == "path-interrupted")
    assert row.message.endswith(
        "1 request on 1 connection never acknowledged, despite retransmissions; new ones work"
    )
    assert (row.impact.requests, row.impact.connections) == (1, 1)


def test_connections_that_the_broker_ends_are_not_the_clients_habit() -> None:
    loop = [requested(place, at_s=place).broker_sends(heartbeat_answers(1)[0]) for place in range(20)]
    assert rules(*(one.finish() for one in loop)) == ["connection-per-request"]
    ended = [requested(place, at_s=place).broker_sends(heartbeat_answers(1)[0]) for place in range(20)]
    assert rules(*(one.put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK) for one in ended)) == []


def away(place: int, broker: str, away_ms: int, service_ms: int, *, from_start: bool = True) -> Talk:
    """A broker as seen from its client, so far away, which takes so long for a request."""
    one = talk(place, (broker, 9092))
    if from_start:
        one.put(0, SYN, acknowledgment=0).waits(away_ms / 1000).put(1, SYN | ACK).put(0, ACK)
    for each, answer in zip(heartbeats(25), heartbeat_answers(25), strict=True):
        one.client_sends(each).waits(away_ms / 1000).broker_acks()
        one.waits(service_ms / 1000).broker_sends(answer).client_acks()
    return one


def test_a_distant_broker_is_not_slow() -> None:
    near = away(0, "10.0.0.2", 1, 2), away(1, "10.0.0.3", 1, 3)
    assert rules(*near, away(2, "10.0.0.4", 100, 3)) == []
    assert rules(*near, away(2, "10.0.0.4", 100, 3, from_start=False)) == []
    (row,) = findings(*near, away(2, "10.0.0.4", 100, 60))
    assert row.rule == "slow-broker"
    assert row.message == (
        "median of 25 exchanges 162.0ms, of which the broker 61.0ms, the round trip 101.0ms; next slowest "
        "broker: 6.00ms"
    )


def test_a_slow_broker_is_slow_from_afar_too() -> None:
    (row,) = findings(away(0, "10.0.0.2", 100, 2), away(1, "10.0.0.3", 100, 60))
    assert (row.rule, row.subject) == ("slow-broker", "broker 10.0.0.3:9092, Heartbeat")


def test_no_two_rules_share_a_name() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


# --- what the broker is not to blame for --------------------------------------------------------------------


def outstanding(acknowledged: bool) -> Talk:
    """A request that waits for a minute."""
    talk = Talk().handshake()
    for each, answer in zip(heartbeats(2), heartbeat_answers(2), strict=True):
        talk.client_sends(each).broker_sends(answer)
    before = talk._next[0]
    talk.client_sends(heartbeats(1, first=3)[0])
    talk.put(1, ACK, acknowledgment=None if acknowledged else before)
    return talk.waits(60).put(0, RST | ACK)


def test_requests_that_the_host_acknowledged() -> None:
    assert {row.rule for row in findings(outstanding(True))} == {"broker-silent", "request-timeouts"}


def test_requests_that_the_host_did_not_acknowledge() -> None:
    assert findings(outstanding(False)) == []


def test_responses_that_did_not_end() -> None:
    answer = heartbeat_answers(1)[0]
    talk = Talk().handshake().client_sends(b"".join(heartbeats(2))).broker_sends(answer[:9]).client_acks()
    (row,) = findings(talk.waits(60).reset())
    assert (row.rule, row.severity) == ("incomplete-messages", "warning")
    assert row.message == "1 incomplete message (1 Heartbeat response): of 12 bytes announced 9 came"
    assert findings(Talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(answer[:9]).finish()) == []


def test_requests_that_are_too_large() -> None:
    talk = Talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0])
    talk.client_sends((200_000_000).to_bytes(4, "big") + heartbeats(1, first=2)[0][4:]).broker_acks().reset(1)
    (row,) = [each for each in findings(talk) if each.rule == "incomplete-messages"]
    assert row.message == (
        "1 incomplete message (1 Heartbeat request): of 200,000,000 bytes announced 47 came; larger than "
        "socket.request.max.bytes by default"
    )


def test_responses_in_another_order() -> None:
    one, two = heartbeat_answers(2)
    talk = Talk().handshake().client_sends(b"".join(heartbeats(2))).broker_sends(two).broker_sends(one)
    (row,) = findings(talk.finish())
    assert (row.rule, row.severity) == ("responses-out-of-order", "warning")
    assert row.message == "1 request (1 Heartbeat) answered after a later one of the same connection"


def test_a_broker_that_leaves_out_a_response() -> None:
    def talk() -> Talk:
        both = b"".join(heartbeats(2))
        return Talk().handshake().client_sends(both).broker_sends(heartbeat_answers(2)[1]).client_acks()

    assert findings(talk().finish()) == []
    (row,) = findings(talk().waits(60).reset())
    assert row.rule == "request-timeouts"


@pytest.mark.parametrize("closing", [0, 1])
@pytest.mark.parametrize("flag", [FIN, RST])
def test_a_broker_that_takes_no_token_without_a_handshake(closing: int, flag: int) -> None:
    def refused(place: int) -> Talk:
        one = talk(place).handshake().client_sends(request(API_VERSIONS, 0))
        one.broker_sends(response(API_VERSIONS, 0)).client_sends(sized(b"\0alice\0hunter2"))
        return one.broker_acks().put(closing, flag | ACK)

    reported = [row for row in findings(*map(refused, range(3))) if row.rule != "broker-resets"]
    refusal = "the broker takes no token without SaslHandshake, and closed the connection"
    unserved = "client-unserved", "none of its requests succeeded; 3 failed or stayed unanswered"
    expected = [("sasl-failures", f"login with PLAIN failed 3 times: {refusal}")] if closing else []
    if not closing and flag == RST:  # with a FIN it abandoned its requests
        expected = [unserved]
    assert [(row.rule, row.message) for row in reported] == expected


# --- ends that are busy, muted or refused, not silent -------------------------------------------------------


def pipelined(responses: int, every_s: float, then_s: float = 0) -> Talk:
    """Many requests at once. The broker responds in order; its window is closed, because it reads them one by
    one.
    """
    one = talk().handshake().client_sends(b"".join(heartbeats(40))).put(1, ACK, window=0)
    for answer in heartbeat_answers(responses):
        one.waits(every_s).put(1, PSH | ACK, answer, window=0)
    return one.waits(then_s).client_acks().finish()


def test_a_broker_that_responds_in_order_is_neither_silent_nor_stalled() -> None:
    assert rules(pipelined(30, 0.5)) == []  # 10 requests were outstanding for 15 s
    assert rules(pipelined(30, 0.5, 7)) == ["stalled-reader", "request-timeouts", "broker-silent"]


def test_a_response_on_its_way_when_the_client_gives_up_is_no_silence() -> None:
    one = talk().handshake().client_sends(b"".join(heartbeats(40))).broker_acks()
    for answer in heartbeat_answers(30):
        one.waits(0.5).broker_sends(answer)
    one.put(0, FIN | ACK).broker_sends(heartbeat_answers(1, first=31)[0])
    assert rules(one.put(0, RST, acknowledgment=0)) == []


def muted(throttle_ms: int) -> Talk:
    """A quota throttles the client, and the broker does not read for a while."""
    answer = response(HEARTBEAT, 4, {"throttle_time_ms": throttle_ms, "error_code": 0}, correlation_id=1)
    one = talk().handshake().client_sends(heartbeats(1)[0]).broker_sends(answer)
    one.client_sends(b"".join(heartbeats(3, first=2))).put(1, ACK, window=0)
    return one.waits(8).finish()


def test_what_a_quota_causes_is_no_finding_of_its_own() -> None:
    assert rules(muted(8000)) == ["throttled"]
    assert sorted(rules(muted(1000))) == ["broker-silent", "request-timeouts", "stalled-reader", "throttled"]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (
            request(API_VERSIONS, 3, {}, correlation_id=1),
            response(API_VERSIONS, 0, {"error_code": 129}, correlation_id=1),  # REBOOTSTRAP_REQUIRED
        ),
        (
            request(SASL_AUTHENTICATE, 2, {"auth_bytes": b"x"}, correlation_id=1),
            response(SASL_AUTHENTICATE, 2, {"error_code": 58}, correlation_id=1),
        ),
        (
            request(METADATA, 13, {}, correlation_id=1),
            response(METADATA, 13, {"error_code": 35}, correlation_id=1),
        ),
    ],
)
def test_clients_that_are_refused_are_in_no_loop(sent: bytes, answer: bytes) -> None:
    """Whichever end closes the connection."""
    starts = range(20)

    def refused() -> list[Talk]:
        loop = [talk(place, at_s=place).handshake().client_sends(sent) for place in starts]
        return [one.broker_sends(answer) for one in loop]

    by_client = [one.finish() for one in refused()]
    by_broker = [one.put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK) for one in refused()]
    for names in (rules(*by_client), rules(*by_broker)):
        assert not {"reconnect-loop", "connection-per-request"}.intersection(names)


def holed(*, acknowledged: bool) -> Talk:
    """Bytes of a request were not captured, but later ones. The broker has them, or waits for them."""
    first, second = heartbeats(2)
    one = talk().handshake().client_sends(first).broker_sends(heartbeat_answers(1)[0])
    one.client_acks().client_skips(1448).client_sends(second)
    end = 1001 + len(first)
    one.put(1, ACK, acknowledgment=end + (1448 + len(second) if acknowledged else 0))
    return one.waits(60).put(0, RST, acknowledgment=0)


def test_bytes_that_the_receiver_still_waits_for_were_lost_on_the_network() -> None:
    cause, row = findings(holed(acknowledged=False))
    assert cause.rule == row.explained_by == "mtu-black-hole"  # small segments arrive meanwhile
    assert (row.rule, row.severity) == ("network-loss", "warning")
    assert row.message == (
        "1,448 bytes on 1 connection never arrived: later segments did, but the receiver still waits for them"
    )
    for is_acknowledged, counts in ((False, (0, 0, 1, 1448)), (True, (1, 1448, 0, 0))):
        dissection = Dissection(holed(acknowledged=is_acknowledged).packets)
        kinds = {each.kind for exchange in dissection for each in exchange.anomalies}
        kinds |= {"undelivered"} if any("did not arrive" in each for each in dissection.notices) else set()
        names = "kafka_gaps", "kafka_lost_bytes", "kafka_undelivered_gaps", "kafka_undelivered_bytes"
        assert tuple(dissection.counts.get(name, 0) for name in names) == counts
        assert ("undelivered" in kinds) != is_acknowledged
    assert "network-loss" not in rules(holed(acknowledged=True))


def test_a_full_table_does_not_say_that_no_attempt_succeeded() -> None:
    limits = replace(DEFAULT, summary_rows=1)
    rule = ConnectionRefused(limits)
    end, attempts = Endpoint(*BROKER), Attempts()
    for number in range(3):
        attempts.take(number, "c")
    for ip in ("10.0.0.1", "10.0.0.2"):
        rule.opened[ip, end].take(10, "c")
    settled = rule.settled("10.0.0.2", end, attempts)
    assert (rule._level(settled), settled.result) == ("warning", "")
    settled = ConnectionRefused(DEFAULT).settled("10.0.0.2", end, attempts)
    assert (rule._level(settled), settled.result) == ("error", "; no attempt succeeded")


def greeted(place: int = 0, second: bytes | None = None) -> Talk:
    """A broker that answers ApiVersions, and closes at the next request."""
    one = (
        talk(place, at_s=place / 100).handshake().client_sends(request(API_VERSIONS, 0, {}, correlation_id=1))
    )
    one.broker_sends(response(API_VERSIONS, 0, {"error_code": 0, "api_keys": []}, correlation_id=1))
    one.client_sends(second or request(METADATA, 5, {"topics": []}, correlation_id=2))
    return one.put(1, FIN | ACK).put(0, FIN | ACK).put(1, ACK)


def test_a_listener_that_expects_a_login() -> None:
    (row,) = findings(greeted())
    assert row.message == (
        "1 connection closed right after Metadata v5; ApiVersions was answered: the listener probably "
        "expects a login (SASL)"
    )
    (row,) = findings(greeted(second=heartbeats(1, first=2)[0]))
    assert row.message == "1 connection closed right after Heartbeat v4"
    loop = next(row for row in findings(*map(greeted, range(12))) if row.rule == "reconnect-loop")
    assert loop.message.startswith("12 of 12 connections had nothing answered but ApiVersions")


def test_a_malformed_request_is_not_the_fault_of_the_broker() -> None:
    bare = sized(pack(">hhi", METADATA, 5, 2))  # no client ID
    assert "broker-closes" not in rules(greeted(second=bare))
