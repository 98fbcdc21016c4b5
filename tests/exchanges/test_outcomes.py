"""Whether the broker answered, and if not, whether it still could."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.exchanges.outcomes import allowed_ns, outcome
from kdissect.pipeline import dissect
from kdissect.stats.summarizer import Summarizer
from kdissect.tables.columns import EXCHANGE
from tests.core import NEEDS_CORE, without_core
from tests.exchange_factory import exchange
from tests.frames import FETCH, PRODUCE, heartbeat_answers, heartbeats, request
from tests.rings import packets_of
from tests.segments import ACK, FIN, MILLISECOND, START_NS, Talk

if TYPE_CHECKING:
    from kdissect.model import Packet

SECOND = 1000 * MILLISECOND
BEAT, ANSWER = heartbeats(2), heartbeat_answers(2)


def outcomes(packets: list[Packet]) -> list[str | None]:
    return [outcome(each) for each in dissect(packets)]


def until(seconds: float) -> list[Packet]:
    """Another connection, which begins this long after the first packet of the others."""
    start_ns = START_NS + int(seconds * SECOND)
    return Talk(client=("10.0.0.9", 50000), start_ns=start_ns, step_ns=1).handshake().packets


def sent(data: bytes) -> Talk:
    """A request within 4 ms of the start, which the broker acknowledges."""
    return Talk().handshake().client_sends(data).broker_acks()


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda talk: talk.finish(), "abandoned"),
        (lambda talk: talk.put(0, FIN | ACK), "abandoned"),
        (lambda talk: talk.put(1, FIN | ACK), "unanswered"),
        (lambda talk: talk.put(0, FIN | ACK).reset(1), "abandoned"),
        (lambda talk: talk.put(1, FIN | ACK).put(0, FIN | ACK), "unanswered"),
        (lambda talk: talk.reset(0), "unanswered"),
        (lambda talk: talk.reset(1), "unanswered"),
        (lambda talk: talk, "pending"),
    ],
)
def test_the_end_of_the_connection(end: Any, expected: str) -> None:
    assert outcomes(end(sent(BEAT[0])).packets) == [expected]


@pytest.mark.parametrize(
    ("data", "seconds", "expected"),
    [
        (BEAT[0], 30, "pending"),
        (BEAT[0], 30.1, "unanswered"),
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 35, "pending"),
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 35.1, "unanswered"),
        (request(PRODUCE, 7, {"acks": 1, "timeout_ms": 60_000}), 90, "pending"),
        (request(PRODUCE, 7, {"acks": 1, "timeout_ms": 60_000}), 90.1, "unanswered"),
    ],
)
def test_the_end_of_the_capture(data: bytes, seconds: float, expected: str) -> None:
    assert outcomes(sent(data).packets + until(seconds)) == [expected]


JOIN = request(11, 5, {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 3_000})


@pytest.mark.parametrize(
    ("data", "side", "seconds", "expected"),
    [
        (BEAT[0], 0, 0.9, "abandoned"),
        (BEAT[0], 0, 1.1, "unanswered"),  # it timed out
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 0, 5.9, "abandoned"),
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 0, 6.1, "unanswered"),
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 1, 0.09, "unanswered"),  # it was rejected
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 1, 4.9, "abandoned"),
        (request(FETCH, 11, {"max_wait_ms": 5_000}), 1, 5.1, "unanswered"),
        (JOIN, 0, 3.9, "abandoned"),
        (JOIN, 0, 4.1, "unanswered"),
        (JOIN, 1, 2.9, "unanswered"),
        # The Java client sends its request.timeout.ms, after which it closes the connection.
        (request(PRODUCE, 7, {"acks": 1, "timeout_ms": 30_000}), 0, 0.9, "abandoned"),
        (request(PRODUCE, 7, {"acks": 1, "timeout_ms": 30_000}), 0, 29, "unanswered"),
    ],
)
@pytest.mark.parametrize("is_core", [pytest.param(True, marks=NEEDS_CORE), False])
def test_a_connection_is_closed_in_order(
    data: bytes, side: int, seconds: float, expected: str, *, is_core: bool
) -> None:
    talk = sent(data).waits(seconds).put(side, FIN | ACK).put(1 - side, FIN | ACK)
    with nullcontext() if is_core else without_core():
        assert outcomes(talk.packets) == [expected]


def test_a_late_response_is_a_response() -> None:
    talk = sent(BEAT[0])
    talk.time_ns += 100 * SECOND
    (answered,) = dissect(talk.broker_sends(ANSWER[0]).packets + until(200))
    assert outcome(answered) == "answered"
    assert answered.latency_us == (100 * SECOND + 2 * MILLISECOND) // 1000


def test_a_later_request_was_answered() -> None:
    talk = sent(BEAT[0]).client_sends(BEAT[1]).broker_sends(ANSWER[1])
    assert outcomes(talk.packets) == ["answered", "pending"]
    assert outcomes(talk.finish().packets) == ["answered", "unanswered"]


def cut(talk: Talk) -> list[tuple[Any, ...]]:
    """Kind and outcome of exchanges, announced size and bytes that came, and latency in ms."""
    rows = []
    for each in dissect(talk.packets):
        frame = each.response_frame or each.first_frame
        latency_ms = None if each.latency_us is None else each.latency_us // 1000
        rows.append((each.kind, outcome(each), each.announced, frame.wire_bytes, latency_ms))
    return rows


@pytest.mark.parametrize("end", [Talk.finish, Talk.reset, lambda talk: talk])
def test_a_response_that_did_not_end(end: Any) -> None:
    size = len(ANSWER[0]) - 4
    for came in range(4, len(ANSWER[0])):
        talk = end(sent(BEAT[0]).broker_sends(ANSWER[0][:came]))
        assert cut(talk) == [("answered", "incomplete", size, came, 2)]
        (exchange,) = dissect(talk.packets)
        (anomaly,) = exchange.anomalies
        assert (anomaly.kind, anomaly.where) == ("incomplete_message", "response")
        assert anomaly.detail.startswith(f"{came} bytes came of {size} announced before the ")
        assert exchange.response is None
        row = {column.name: column.get(exchange) for column in EXCHANGE}
        assert (row["response_size"], row["response_received"], row["response_bytes"]) == (size, came, came)
        assert row["errors"] is row["records"] is row["request_size"] is row["request_received"] is None


def test_requests_after_one_whose_response_did_not_end() -> None:
    talk = sent(BEAT[0]).client_sends(BEAT[1]).broker_sends(ANSWER[0][:9]).waits(20).finish()
    assert [row[:2] for row in cut(talk)] == [("answered", "incomplete"), ("unanswered", "abandoned")]
    assert [each.is_held_up for each in dissect(talk.packets)] == [False, True]


def test_a_size_that_did_not_end() -> None:
    talk = sent(BEAT[0]).broker_sends(ANSWER[0][:3]).finish()
    assert outcomes(talk.packets) == ["abandoned"]
    assert [each.is_held_up for each in dissect(talk.packets)] == [True]


@pytest.mark.parametrize("end", [Talk.finish, Talk.reset, lambda talk: talk])
def test_a_request_that_did_not_end(end: Any) -> None:
    produce = request(PRODUCE, 7, {"acks": 0, "timeout_ms": 60_000}, correlation_id=2)
    for came in range(12, len(produce)):
        talk = end(sent(BEAT[0]).broker_sends(ANSWER[0]).client_sends(produce[:came]).broker_acks())
        expected = ("unanswered", "incomplete_request", len(produce) - 4, came, None)
        assert cut(talk) == [("answered", "answered", None, len(ANSWER[0]), 2), expected]
        _, exchange = dissect(talk.packets)
        assert (exchange.api, exchange.api_version, exchange.correlation_id) == ("Produce", 7, 2)
        assert [anomaly.kind for anomaly in exchange.anomalies] == ["incomplete_message"]
        row = {column.name: column.get(exchange) for column in EXCHANGE}
        assert (row["request_size"], row["request_received"]) == (len(produce) - 4, came)
        assert row["response_size"] is row["response_received"] is None


@pytest.mark.parametrize(
    ("size", "named"),
    [
        (50 * 1024**2, None),
        (60_000_000, "more than fetch.max.bytes (52,428,800 by default)"),
        (
            200_000_000,
            (
                "more than fetch.max.bytes (52,428,800 by default) and receive.message.max.bytes "
                "(100,000,000 by default)"
            ),
        ),
    ],
)
def test_sizes_beyond_the_usual_limits_of_responses(size: int, named: str | None) -> None:
    response = size.to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(100)
    talk = sent(request(FETCH, 11, {"max_wait_ms": 500}, correlation_id=1)).broker_sends(response).reset()
    (exchange,) = dissect(talk.packets)
    assert exchange.anomalies[0].detail.partition("; ")[2] == (named or "")


def test_sizes_beyond_the_usual_limit_of_requests() -> None:
    produce = request(PRODUCE, 7, {"acks": 1}, correlation_id=2)
    talk = sent(BEAT[0]).broker_sends(ANSWER[0])
    talk.client_sends((200_000_000).to_bytes(4, "big") + produce[4:]).reset(1)
    _, exchange = dissect(talk.packets)
    assert exchange.anomalies[0].detail.endswith(
        "; more than socket.request.max.bytes (104,857,600 by default)"
    )


def test_no_response_is_expected() -> None:
    assert outcomes(sent(request(PRODUCE, 7, {"acks": 0})).packets) == ["not_expected"]


def test_a_response_without_a_request() -> None:
    talk = sent(BEAT[0]).broker_sends(ANSWER[0]).broker_sends(ANSWER[1])
    assert outcomes(talk.packets) == ["answered", "orphan"]


def test_a_response_that_was_not_captured() -> None:
    talk = sent(BEAT[0]).broker_skips(len(ANSWER[0])).client_sends(BEAT[1]).broker_sends(ANSWER[1])
    assert outcomes(talk.finish().packets) == [None, "answered"]
    talk = sent(BEAT[0]).broker_skips(len(ANSWER[0])).client_acks().finish()
    assert outcomes(talk.packets) == [None]


def test_a_direction_that_was_not_captured() -> None:
    packets = Talk().handshake().client_sends(BEAT[0]).finish().packets
    from_client = [packet for packet in packets if packet.data[26:30] == bytes((10, 0, 0, 1))]
    assert len(from_client) == len(packets) - 2
    assert outcomes(from_client) == [None]


@pytest.mark.parametrize(
    ("built", "ms"),
    [
        (exchange("Fetch", 11, {"max_wait_ms": 500}), 500),
        (exchange("ShareFetch", 1, {"max_wait_ms": 500}), 500),
        (exchange("JoinGroup", 5, {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 300_000}), 300_000),
        (exchange("JoinGroup", 0, {"session_timeout_ms": 10_000}), 10_000),
        (exchange("ConsumerGroupHeartbeat", 0, {"rebalance_timeout_ms": 300_000}), 0),
        (exchange("CreateTopics", 5, {"timeout_ms": 30_000}), 30_000),
        (exchange("CreateTopics", 5, {"timeout_ms": -1}), 0),
        (exchange("Metadata", 9, {}), 0),
        (exchange("Metadata", 9, None), 0),
    ],
)
def test_how_long_a_request_allows_the_broker_to_wait(built: Any, ms: int) -> None:
    assert allowed_ns(built) == ms * MILLISECOND


def test_a_recording_in_which_a_connection_falls_silent() -> None:
    """All packets of a connection after a request are taken out: as if its broker had stopped."""
    packets = packets_of(Path("samples/kafka-4-cluster.pcap.gz"))
    last = next(
        each
        for each in dissect(packets)
        if each.api == "Metadata" and packets[-1].time_ns - each.time_ns > 31 * SECOND
    )
    client, broker = last.connection.client.port, last.connection.broker.port
    ports = {client.to_bytes(2, "big") + broker.to_bytes(2, "big")}
    ports |= {port[2:] + port[:2] for port in ports}
    left = [
        packet
        for packet in packets
        if packet.time_ns <= last.time_ns or not any(port in packet.data[:60] for port in ports)
    ]
    summarizer = Summarizer(parts=frozenset({"findings"}))
    for each in dissect(left):
        summarizer.feed(each)
    summary = summarizer.close([], {}, {})
    assert summary.unanswered is not None
    assert summary.findings is not None
    oldest = summary.unanswered[0]
    assert (oldest.api, oldest.exchange) == ("Metadata", f"{last.connection.id}/{last.number}")
    (finding,) = [each for each in summary.findings if each.rule == "request-timeouts"]
    assert finding.evidence == [oldest.exchange]
    assert finding.subject == f"client {last.client_id}, broker {last.connection.broker}"
