"""Playbooks: frames in, (correlation id, kind) out."""

from __future__ import annotations

import pytest

from kdissect.analysis.pairing import Pairing
from kdissect.errors import DecodeError
from kdissect.limits import DEFAULT, Limits
from kdissect.model import ConnectionInfo, Endpoint, Exchange
from tests.frames import HEARTBEAT, PRODUCE, frame, request_payload, response_payload

INFO = ConnectionInfo("0123", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))


def pairing(limits: Limits = DEFAULT) -> Pairing:
    return Pairing(INFO, limits)


def ask(
    stage: Pairing, correlation_id: int, api: int = HEARTBEAT, *, time_ns: int = 0, **body: object
) -> list[str]:
    payload = request_payload(api, 4 if api == HEARTBEAT else 9, body, correlation_id=correlation_id)
    return told(stage.request(frame(payload, time_ns=time_ns)))


def answer(stage: Pairing, correlation_id: int, *, time_ns: int = 0) -> list[str]:
    payload = response_payload(HEARTBEAT, 4, correlation_id=correlation_id)
    return told(stage.response(frame(payload, time_ns=time_ns)))


def told(exchanges: list[Exchange]) -> list[str]:
    return [f"{exchange.number}: {exchange.correlation_id} {exchange.kind}" for exchange in exchanges]


def test_pipelined_requests_are_paired_by_correlation_id() -> None:
    stage = pairing()
    assert ask(stage, 7) + ask(stage, 8) + ask(stage, 9) == []
    assert answer(stage, 7) == ["1: 7 answered"]
    assert answer(stage, 8) == ["2: 8 answered"]
    assert answer(stage, 9) == ["3: 9 answered"]


def test_latency_is_last_byte_of_request_to_first_byte_of_response() -> None:
    stage = pairing()
    ask(stage, 1, time_ns=1_000)
    (exchange,) = stage.response(frame(response_payload(HEARTBEAT, 4), time_ns=51_000))
    assert exchange.latency_ns == 50_000
    assert exchange.time_ns == 1_000


def test_acks_0_wants_no_answer_and_shifts_nobody() -> None:
    stage = pairing()
    assert ask(stage, 1) == []
    assert ask(stage, 2, PRODUCE, acks=0) == ["1: 2 unacknowledged"]
    assert ask(stage, 3, PRODUCE, acks=1) == []
    assert answer(stage, 1) == ["2: 1 answered"]
    assert answer(stage, 3) == ["3: 3 answered"]


def test_a_broker_that_answers_acks_0_all_the_same_is_told() -> None:
    stage = pairing()
    ask(stage, 2, PRODUCE, acks=0)
    (exchange,) = stage.response(frame(response_payload(PRODUCE, 9, correlation_id=2)))
    assert (exchange.kind, exchange.api_key, exchange.api_version) == ("orphan", PRODUCE, 9)
    assert [anomaly.kind for anomaly in exchange.anomalies] == ["unasked_response"]


def test_a_response_tells_that_older_requests_were_never_answered() -> None:
    stage = pairing()
    for correlation_id in (1, 2, 3):
        ask(stage, correlation_id)
    assert answer(stage, 3) == ["1: 1 unanswered", "2: 2 unanswered", "3: 3 answered"]


def test_a_response_without_a_request_is_an_orphan() -> None:
    stage = pairing()
    ask(stage, 5)
    assert answer(stage, 4) == ["1: 4 orphan"]
    assert answer(stage, 5) == ["2: 5 answered"]
    assert told(stage.response(frame(b"ab", size=30))) == ["3: None orphan"]
    with pytest.raises(DecodeError):
        stage.response(frame(b"ab"))


def test_what_waits_at_the_end_is_unanswered() -> None:
    stage = pairing()
    ask(stage, 1)
    ask(stage, 2)
    assert told(stage.give_up(9)) == ["1: 1 unanswered", "2: 2 unanswered"]
    assert stage.give_up(9) == []


def test_the_same_correlation_id_again_pairs_in_order_and_is_told() -> None:
    stage = pairing()
    ask(stage, 0, time_ns=1)
    ask(stage, 0, time_ns=2)
    (first,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=0)))
    (second,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=0)))
    assert (first.time_ns, second.time_ns) == (1, 2)
    assert [anomaly.kind for anomaly in second.anomalies] == ["duplicate_correlation_id"]


@pytest.mark.parametrize(
    "limits", [Limits(pending_requests=10), Limits(pending_bytes=10 * 60), Limits(pending_age_ns=10)]
)
def test_past_a_bound_the_oldest_request_is_given_up(limits: Limits) -> None:
    stage = pairing(limits)
    given_up = [kind for number in range(100) for kind in ask(stage, number, time_ns=number)]
    assert given_up[:2] == ["1: 0 unanswered", "2: 1 unanswered"]
    assert 75 <= len(given_up) <= 95
    assert answer(stage, 99)[-1] == "100: 99 answered"


def test_a_request_that_cannot_be_decoded_still_pairs() -> None:
    stage = pairing()
    broken = request_payload(HEARTBEAT, 4, correlation_id=3)[:14]
    assert stage.request(frame(broken)) == []
    assert answer(stage, 3) == ["1: 3 answered"]


def test_an_api_or_version_of_tomorrow_still_pairs() -> None:
    stage = pairing()
    tomorrow = b"\x00\x7f\x00\x03\x00\x00\x00\x09\x00\x01c\x00future"
    assert stage.request(frame(tomorrow)) == []
    (exchange,) = stage.response(frame(b"\x00\x00\x00\x09\x00rest"))
    assert (exchange.api_key, exchange.api_version, exchange.client_id) == (127, 3, "c")


@pytest.mark.parametrize("garbage", [b"", b"abc", b"\xff\xff\0\0\0\0\0\0", b"GET / HTTP/1.1\r\n"])
def test_what_is_no_request_at_all_is_refused(garbage: bytes) -> None:
    with pytest.raises(DecodeError):
        pairing().request(frame(garbage))
