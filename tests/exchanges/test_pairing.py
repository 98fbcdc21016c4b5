"""Scenarios: frames in, (correlation ID, kind) out."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from kdissect.errors import DecodeError
from kdissect.exchanges.pairing import Pairing
from kdissect.kafka.framing import SHED_BYTES
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Anomaly, ConnectionInfo, Endpoint, Exchange
from tests.frames import FETCH, HEARTBEAT, PRODUCE, frame, request_payload, response_payload

INFO = ConnectionInfo("0123", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))


WHOLE = replace(INFO, from_start=True)
SECOND_NS = 1_000_000_000


def pairing(limits: Limits = DEFAULT, info: ConnectionInfo = INFO) -> Pairing:
    return Pairing(info, limits)


def send(
    stage: Pairing, correlation_id: int, api: int = HEARTBEAT, *, time_ns: int = 0, **body: object
) -> list[str]:
    payload = request_payload(api, 4 if api == HEARTBEAT else 9, body, correlation_id=correlation_id)
    return described(stage.request(frame(payload, time_ns=time_ns)))


def answer(stage: Pairing, correlation_id: int, *, time_ns: int = 0) -> list[str]:
    payload = response_payload(HEARTBEAT, 4, correlation_id=correlation_id)
    return described(stage.response(frame(payload, time_ns=time_ns)))


def described(exchanges: list[Exchange]) -> list[str]:
    return [f"{exchange.number}: {exchange.correlation_id} {exchange.kind}" for exchange in exchanges]


def test_pipelined_requests_are_paired_by_correlation_id() -> None:
    stage = pairing()
    assert send(stage, 7) + send(stage, 8) + send(stage, 9) == []
    assert answer(stage, 7) == ["1: 7 answered"]
    assert answer(stage, 8) == ["2: 8 answered"]
    assert answer(stage, 9) == ["3: 9 answered"]


def test_latency_is_last_byte_of_request_to_first_byte_of_response() -> None:
    stage = pairing()
    send(stage, 1, time_ns=1_000)
    (exchange,) = stage.response(frame(response_payload(HEARTBEAT, 4), time_ns=51_000))
    assert exchange.latency_us == 50
    assert exchange.time_ns == 1_000


def test_acks_0_expects_no_response_and_shifts_nobody() -> None:
    stage = pairing()
    assert send(stage, 1) == []
    assert send(stage, 2, PRODUCE, acks=0) == ["1: 2 unacknowledged"]
    assert send(stage, 3, PRODUCE, acks=1) == []
    assert answer(stage, 1) == ["2: 1 answered"]
    assert answer(stage, 3) == ["3: 3 answered"]


def test_a_broker_that_answers_acks_0_all_the_same_is_reported() -> None:
    stage = pairing()
    send(stage, 2, PRODUCE, acks=0)
    (exchange,) = stage.response(frame(response_payload(PRODUCE, 9, correlation_id=2)))
    assert (exchange.kind, exchange.api_key, exchange.api_version) == ("orphan", PRODUCE, 9)
    assert [anomaly.kind for anomaly in exchange.anomalies] == ["unexpected_response"]


def test_a_response_shows_that_older_requests_were_never_answered() -> None:
    stage = pairing()
    for correlation_id in (1, 2, 3):
        send(stage, correlation_id)
    assert answer(stage, 3) == ["1: 1 unanswered", "2: 2 unanswered", "3: 3 answered"]


def test_a_response_without_a_request_is_an_orphan() -> None:
    stage = pairing()
    send(stage, 5)
    assert answer(stage, 4) == ["1: 4 orphan"]
    assert answer(stage, 5) == ["2: 5 answered"]
    assert described(stage.response(frame(b"ab", size=30))) == ["3: None orphan"]
    with pytest.raises(DecodeError):
        stage.response(frame(b"ab"))


def test_what_waits_at_the_end_is_unanswered() -> None:
    stage = pairing()
    send(stage, 1)
    send(stage, 2)
    assert described(stage.complete_unanswered(9)) == ["1: 1 unanswered", "2: 2 unanswered"]
    assert stage.complete_unanswered(9) == []


def test_the_same_correlation_id_again_pairs_in_order_and_is_reported() -> None:
    stage = pairing()
    send(stage, 0, time_ns=1)
    send(stage, 0, time_ns=2)
    (first,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=0)))
    (second,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=0)))
    assert (first.time_ns, second.time_ns) == (1, 2)
    assert [anomaly.kind for anomaly in second.anomalies] == ["duplicate_correlation_id"]


@pytest.mark.parametrize(
    "limits", [Limits(pending_requests=10), Limits(pending_bytes=10 * 60), Limits(pending_age_ns=10)]
)
def test_past_a_bound_the_oldest_request_is_dropped(limits: Limits) -> None:
    stage = pairing(limits)
    dropped = [kind for number in range(100) for kind in send(stage, number, time_ns=number)]
    assert dropped[:2] == ["1: 0 unanswered", "2: 1 unanswered"]
    assert 75 <= len(dropped) <= 95
    assert answer(stage, 99)[-1] == "100: 99 answered"


def test_bodies_are_let_go_before_requests_are() -> None:
    stage = pairing(Limits(pending_bytes=100_000))
    large = request_payload(HEARTBEAT, 4, {"member_id": "m" * 20_000})
    described = []
    for number in range(50):
        payload = large[:4] + number.to_bytes(4, "big") + large[8:]
        described += stage.request(frame(payload))
        assert stage.held < 200_000
    assert described == []
    kept = [len(one.first_frame.data) for one in stage.waiting]
    assert kept[:45] == [SHED_BYTES] * 45
    assert kept[-3:] == [len(large)] * 3
    assert all(answer(stage, number) == [f"{number + 1}: {number} answered"] for number in range(50))
    assert stage.held == 0


def test_all_bodies_can_be_let_go() -> None:
    stage = pairing()
    stage.request(frame(request_payload(HEARTBEAT, 4, {"member_id": "m" * 20_000}, correlation_id=1)))
    send(stage, 2)
    assert stage.shorten()
    assert not stage.shorten()
    assert answer(stage, 2) == ["1: 1 unanswered", "2: 2 answered"]


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


# --- where bytes may be missing -----------------------------------------------------------------------------


def test_ids_that_come_again_say_nothing_once_a_response_may_be_missing() -> None:
    stage = pairing()
    assert send(stage, 0) == []
    stage.expect_lost_responses()  # the answer was lost
    assert send(stage, 0) == []
    assert answer(stage, 0) == ["1: 0 unanswered", "2: 0 answered"]
    send(stage, 0)
    stage.expect_lost_responses()
    assert answer(stage, 0) == ["3: 0 orphan"]


def test_ids_that_count_are_trusted_behind_a_gap() -> None:
    stage = pairing()
    send(stage, 1)
    send(stage, 2)
    stage.expect_lost_responses()
    assert answer(stage, 2) == ["1: 1 unanswered", "2: 2 answered"]


def test_a_token_is_answered_by_the_next_response_unless_one_may_be_missing() -> None:
    stage = pairing()
    stage.token_request(frame(b"token"))
    stage.expect_lost_responses()
    send(stage, 7)
    assert answer(stage, 7) == ["1: None unanswered", "2: 7 answered"]


def test_where_requests_may_be_missing_an_answer_must_fit() -> None:
    stage = pairing()
    stage.forget_last_id()
    send(stage, 7)
    odd = response_payload(HEARTBEAT, 4, correlation_id=7) + b"left over"
    (orphan,) = stage.response(frame(odd))
    assert orphan.kind == "orphan"
    assert answer(stage, 7) == ["2: 7 answered"]
    send(stage, 8)
    (answered,) = stage.response(frame(odd[:3] + b"\x08" + odd[4:]))  # nothing is in doubt any more
    assert answered.kind == "answered"


def test_a_request_located_late_is_not_answered_by_what_comes_next() -> None:
    stage = pairing()
    send(stage, 0, time_ns=1)
    answer(stage, 0)
    stage.forget_last_id()
    passed = frame(response_payload(HEARTBEAT, 4, correlation_id=0), time_ns=20)
    assert [one.kind for one in stage.response(passed)] == ["orphan"]
    send(stage, 0, time_ns=10)
    send(stage, 0, time_ns=30)
    assert answer(stage, 0) == ["3: 0 unanswered", "4: 0 answered"]


# --- responses in another order -----------------------------------------------------------------------------


def sent(*correlation_ids: int, info: ConnectionInfo = WHOLE) -> Pairing:
    stage = pairing(info=info)
    for correlation_id in correlation_ids:
        send(stage, correlation_id)
    return stage


@pytest.mark.parametrize("order", list(permutations((7, 8, 9))))
def test_each_response_finds_its_request(order: tuple[int, ...]) -> None:
    stage = sent(7, 8, 9)
    done = [answer(stage, correlation_id) for correlation_id in order]
    assert done == [[f"{number}: {each} answered"] for number, each in enumerate(order, 1)]
    assert stage.held == 0


def test_both_requests_say_that_the_order_was_broken() -> None:
    stage = sent(7, 8, 9, 10)
    exchanges = {}
    for correlation_id in (9, 7, 10, 8):
        response = frame(response_payload(HEARTBEAT, 4, correlation_id=correlation_id))
        (exchanges[correlation_id],) = stage.response(response)
    assert [exchange.is_out_of_order for exchange in exchanges.values()] == [True] * 4
    detail = "the response to correlation ID 9, a later request, came first"
    anomaly = Anomaly("out_of_order_response", "response", detail)
    assert {each: exchanges[each].anomalies for each in (7, 8, 9, 10)} == {
        7: [anomaly],
        8: [anomaly],
        9: [],
        10: [],
    }


def test_a_request_that_was_passed_over_stays_outstanding_as_long_as_a_broker_may_take() -> None:
    stage = pairing(info=WHOLE)
    send(stage, 1, FETCH, time_ns=0, max_wait_ms=5_000)
    for correlation_id in (2, 3, 4):
        send(stage, correlation_id, time_ns=1)
    assert answer(stage, 2, time_ns=SECOND_NS) == ["1: 2 answered"]
    assert answer(stage, 3, time_ns=35 * SECOND_NS) == ["2: 3 answered"]
    assert answer(stage, 4, time_ns=35 * SECOND_NS + 1) == ["3: 1 unanswered", "4: 4 answered"]
    assert answer(stage, 1, time_ns=36 * SECOND_NS) == ["5: 1 orphan"]
    assert stage.held == 0


def test_the_native_core_gets_no_connection_with_such_a_request() -> None:
    stage = sent(1, 2)
    answer(stage, 2)
    assert stage.lend(1) is None
    answer(stage, 1)
    assert stage.lend(1) is not None


def test_a_late_response_finds_no_request() -> None:
    stage = sent(1)
    stage.complete_unanswered(1)
    (orphan,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=1)))
    detail = "no outstanding request has correlation ID 1"
    assert orphan.anomalies == [Anomaly("unexpected_response", "response", detail)]
    stage.misses_requests = True
    (orphan,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=1)))
    assert orphan.anomalies == []


def test_outstanding_requests_are_limited_whatever_the_order() -> None:
    stage = pairing(Limits(pending_requests=10), WHOLE)
    done = []
    for number in range(0, 200, 2):
        done += send(stage, number, time_ns=number) + send(stage, number + 1, time_ns=number)
        done += answer(stage, number + 1, time_ns=number)
        assert len(stage.waiting) <= 10
    assert sum(each.endswith("unanswered") for each in done) == 100 - len(stage.waiting)


@pytest.mark.parametrize("doubt", ["responses", "requests", "start", "same ID", "acks"])
def test_where_order_says_more_than_the_id(doubt: str) -> None:
    stage = pairing(info=INFO if doubt == "start" else WHOLE)
    if doubt == "acks":
        unreadable = request_payload(PRODUCE, 9, {"acks": 1}, correlation_id=1)
        stage.request(frame(unreadable[:14], size=len(unreadable)))
    else:
        send(stage, 1)
    send(stage, 1 if doubt == "same ID" else 2)
    if doubt == "responses":
        stage.expect_lost_responses()
    elif doubt == "requests":
        stage.forget_last_id()
    send(stage, 3)
    unanswered = answer(stage, 3)
    first_two = ["1: 1 unanswered", f"2: {1 if doubt == 'same ID' else 2} unanswered", "3: 3 answered"]
    assert unanswered == (["1: 1 unanswered", "2: 3 answered"] if doubt == "acks" else first_two)
    send(stage, 4)
    send(stage, 5)
    assert answer(stage, 5)[-1].endswith("5 answered")
    assert answer(stage, 4)[-1].endswith("4 answered")


def test_a_retransmission_does_not_reach_requests_that_the_broker_has() -> None:
    stage = sent(1, 2, 3)
    (answered,) = stage.response(frame(response_payload(HEARTBEAT, 4, correlation_id=2), time_ns=5))
    assert answered.correlation_id == 2
    stage.retransmitted(10 * SECOND_NS, 10_000)
    assert [each.retransmitted_ns for each in stage.waiting] == [None, 10 * SECOND_NS]
