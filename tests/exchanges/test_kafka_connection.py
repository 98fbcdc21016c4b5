"""One connection from bytes to exchanges: recognition, SASL, gaps."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kdissect.exchanges import kafka_connection
from kdissect.exchanges.kafka_connection import KafkaConnection
from kdissect.kafka.bodies import decode_exchange
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Anomaly, Closed, Data, Endpoint, Exchange, Gap, Redacted
from kdissect.net.stream import Stream
from tests.frames import (
    API_VERSIONS,
    FETCH,
    HEARTBEAT,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    data,
    gap,
    heartbeat_answers,
    heartbeats,
    joined,
    request,
    response,
    sized,
)

if TYPE_CHECKING:
    from kdissect.kafka.resync import Search

CLIENT, BROKER = 0, 1
NOISE = Random(7).randbytes(300)


class Connection(NamedTuple):
    initiator: int | None = CLIENT
    id: str = "0123456789ab"
    ends: tuple[Endpoint, Endpoint] = (Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 19092))
    ordinal: int = 1
    number: int | None = None
    tcp: None = None
    proxy: None = None
    preface_fault: str | None = None

    has_sure_id = True

    @property
    def from_start(self) -> tuple[bool, bool]:
        return self.initiator is not None, self.initiator is not None

    @property
    def streams(self) -> tuple[Stream, Stream]:
        one, two = Stream(), Stream()
        one.seen = two.seen = True
        return one, two

    def client(self, side: int) -> Endpoint:
        return self.ends[side]

    def hop(self, _: int) -> None:
        """It does not begin with PROXY headers."""

    def expect(self, side: int, size: int) -> None:
        """Nothing gathers here."""


def play(
    *steps: tuple[int, bytes | Data | Gap], initiator: int | None = CLIENT, broker_side: int | None = None
) -> tuple[list[Exchange], KafkaConnection]:
    kafka = KafkaConnection(Connection(initiator), DEFAULT, broker_side)  # type: ignore[arg-type]
    exchanges = []
    for number, (side, item) in enumerate(steps, 1):
        exchanges += kafka.feed(side, data(item, number, number) if isinstance(item, bytes) else item)
    exchanges += kafka.close(Closed("fin", 99))
    for exchange in exchanges:
        decode_exchange(exchange)
    return exchanges, kafka


def kinds(exchanges: list[Exchange]) -> list[tuple[int | None, int | None, str]]:
    return [(exchange.api_key, exchange.correlation_id, exchange.kind) for exchange in exchanges]


def anomalies(exchanges: list[Exchange]) -> list[str]:
    return [anomaly.kind for exchange in exchanges for anomaly in exchange.anomalies]


BEATS = [step for pair in zip(heartbeats(3), heartbeat_answers(3), strict=True) for step in enumerate(pair)]
ANSWERED = [(HEARTBEAT, 1, "answered"), (HEARTBEAT, 2, "answered"), (HEARTBEAT, 3, "answered")]


@pytest.mark.parametrize("initiator", [CLIENT, None])
def test_either_end_may_be_seen_first(initiator: int | None) -> None:
    exchanges, kafka = play(*BEATS, initiator=initiator)
    assert kinds(exchanges) == ANSWERED
    assert anomalies(exchanges) == []
    assert (exchanges[0].connection.client.port, exchanges[0].connection.broker.port) == (40000, 19092)
    swapped = [(1 - side, payload) for side, payload in BEATS]
    exchanges, kafka = play(*swapped, initiator=None if initiator is None else 1 - initiator)
    assert kinds(exchanges) == ANSWERED
    assert exchanges[0].connection.broker.port == 40000
    assert kafka.protocol == "Kafka"


def test_a_capture_that_begins_inside_a_request_and_inside_a_response() -> None:
    steps = [(CLIENT, heartbeats(1)[0][9:]), (BROKER, heartbeat_answers(1)[0][5:]), *BEATS]
    exchanges, _ = play(*steps, initiator=None)
    assert kinds(exchanges) == ANSWERED
    assert set(anomalies(exchanges)) == {"resynchronized"}


LATER = [
    step for pair in zip(heartbeats(3, 9), heartbeat_answers(3, 9), strict=True) for step in enumerate(pair)
]
LATER_ANSWERED = [(HEARTBEAT, number, "answered") for number in (9, 10, 11)]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_responses_to_requests_before_the_capture_are_orphans(count: int) -> None:
    early = [(BROKER, payload) for payload in heartbeat_answers(count, first=9 - count)]
    for steps in (early, [(BROKER, joined(payload for _, payload in early))]):
        exchanges, kafka = play(*steps, *LATER, initiator=None)
        orphans = [(None, number, "orphan") for number in range(9 - count, 9)]
        assert kinds(exchanges) == orphans + LATER_ANSWERED
        assert anomalies(exchanges) == []
        assert kafka.unattached == []
        assert kafka.skipped_bytes == 0


def test_an_orphan_may_be_followed_by_requests_without_a_response() -> None:
    exchanges, _ = play(
        (BROKER, heartbeat_answers(1, first=7)[0]), (CLIENT, heartbeats(1, 9)[0]), initiator=None
    )
    assert kinds(exchanges) == [(None, 7, "orphan"), (HEARTBEAT, 9, "unanswered")]


@pytest.mark.parametrize("first", [0, 10, 5_000_000])
def test_a_response_that_cannot_be_earlier_is_no_orphan(first: int) -> None:
    steps = [(BROKER, heartbeat_answers(1, first=first)[0]), (CLIENT, heartbeats(1, 9)[0])]
    exchanges, kafka = play(*steps, initiator=None)
    assert kinds(exchanges) == [(HEARTBEAT, 9, "unanswered")]
    assert kafka.skipped_bytes == len(heartbeat_answers(1)[0])


def test_whole_responses_behind_a_part_of_one_are_orphans() -> None:
    steps = [(BROKER, NOISE), *[(BROKER, payload) for payload in heartbeat_answers(2, first=7)], *LATER]
    exchanges, kafka = play(*steps, initiator=None)
    assert kinds(exchanges) == [(None, 7, "orphan"), (None, 8, "orphan"), *LATER_ANSWERED]
    assert kafka.skipped_bytes == len(NOISE)


def fetched(correlation_id: int) -> bytes:
    topics = [{"topic": "orders", "partitions": [{"records": NOISE}]}]
    return response(FETCH, 11, {"responses": topics}, correlation_id=correlation_id)


def test_the_api_of_an_orphan_is_that_of_the_requests_whose_responses_it_fits() -> None:
    poll = request(FETCH, 11, {"topics": []}, correlation_id=9)
    exchanges, _ = play((BROKER, fetched(8)), (CLIENT, poll), (BROKER, fetched(9)), initiator=None)
    assert kinds(exchanges) == [(FETCH, 8, "orphan"), (FETCH, 9, "answered")]
    assert exchanges[0].response is not None
    assert exchanges[0].response["responses"][0]["topic"] == "orders"
    other = [(CLIENT, heartbeats(1, 9)[0]), (BROKER, heartbeat_answers(1, 9)[0])]
    exchanges, _ = play((BROKER, fetched(8)), *other, initiator=None)
    assert kinds(exchanges) == [(None, 8, "orphan"), (HEARTBEAT, 9, "answered")]


def test_an_orphan_that_is_recognized_late_says_so() -> None:
    second = 1_000_000_000
    steps = [
        (BROKER, data(heartbeat_answers(1, first=8)[0], 1, second)),
        (CLIENT, data(heartbeats(1, 9)[0], 2, 3 * second)),
        (BROKER, data(heartbeat_answers(1, first=9)[0], 3, 4 * second)),
    ]
    (orphan, _), _ = play(*steps, initiator=None)
    assert orphan.completed_ns == second
    assert orphan.anomalies == [
        Anomaly("late", "response", "recognized 2.00s later, with the help of later packets")
    ]


def test_responses_alone() -> None:
    exchanges, kafka = play(*[(BROKER, payload) for payload in heartbeat_answers(3)], initiator=None)
    assert kinds(exchanges) == [(None, 1, "orphan"), (None, 2, "orphan"), (None, 3, "orphan")]
    assert exchanges[0].response == {"_undecoded": Redacted(8)}
    assert anomalies(exchanges) == []
    assert [anomaly.detail for anomaly in kafka.unattached] == ["responses only"]


def test_requests_alone() -> None:
    exchanges, _ = play(*[(CLIENT, payload) for payload in heartbeats(2)], initiator=None)
    assert kinds(exchanges) == [(HEARTBEAT, 1, "unanswered"), (HEARTBEAT, 2, "unanswered")]


def test_what_is_not_kafka_is_refused_and_gives_nothing() -> None:
    exchanges, kafka = play((CLIENT, b"GET / HTTP/1.1\r\n\r\n"), (BROKER, b"HTTP/1.1 200 OK\r\n\r\n"), *BEATS)
    assert exchanges == []
    assert kafka.protocol == "HTTP"
    assert play((CLIENT, b"\x16\x03\x01\x00\xc8\x01" + bytes(195)))[1].protocol == "TLS"
    assert play((CLIENT, b"\x81binary"), (BROKER, b"more"))[1].protocol == "not Kafka"


def test_a_forced_port_needs_no_recognition() -> None:
    tomorrow = sized(b"\x00\x7f\x00\x03\x00\x00\x00\x09\xff\xff\x00future")
    assert play((CLIENT, tomorrow))[0] == []
    exchanges, _ = play((CLIENT, tomorrow), (BROKER, sized(b"\x00\x00\x00\x09\x00rest")), broker_side=BROKER)
    assert kinds(exchanges) == [(127, 9, "answered")]
    assert anomalies(exchanges) == ["unknown_api", "unknown_api"]


BODY = {"group_id": "group", "generation_id": 7, "member_id": "member-1"}
ODD_CLIENTS = {
    "control characters": b"evil\x1b]0;pwned\x07",
    "2,000 characters": b"c" * 2000,
    "2,000 control characters": b"\x01" * 2000,
    "not UTF-8": b"\xff\xfe caf\xe9",
}


def odd_heartbeat(client_id: bytes, correlation_id: int = 9) -> bytes:
    """A request whose client ID may be any bytes."""
    plain = request(HEARTBEAT, 4, BODY, correlation_id=correlation_id, client_id="")
    return sized(plain[4:12] + len(client_id).to_bytes(2, "big") + client_id + plain[14:])


@pytest.mark.parametrize("initiator", [CLIENT, None])
@pytest.mark.parametrize("name", ODD_CLIENTS)
def test_an_odd_client_id_is_believed_by_the_response(name: str, initiator: int | None) -> None:
    heartbeat, answer = odd_heartbeat(ODD_CLIENTS[name]), heartbeat_answers(1, 9)[0]
    for steps in ([heartbeat], [heartbeat[:500], heartbeat[500:]] if len(heartbeat) > 500 else [heartbeat]):
        exchanges, _ = play(*[(CLIENT, step) for step in steps], (BROKER, answer), initiator=initiator)
        if len(steps) == 1 or initiator is not None:
            assert kinds(exchanges) == [(HEARTBEAT, 9, "answered")], len(steps)
    wrong = sized(answer[4:] + b"more")
    if name != "2,000 characters" or initiator is None:
        assert play((CLIENT, heartbeat), (BROKER, wrong), initiator=initiator)[0] == []
        assert play((CLIENT, heartbeat), initiator=initiator)[0] == []


def test_bytes_after_a_request_in_mid_stream_do_not_hide_it() -> None:
    versions = sized(b"\0\x12\0\0\0\0\0\x09\0\x07rdkafka" + b"\0\0\0\0")
    answer = response(API_VERSIONS, 0, {"api_keys": []}, correlation_id=9)
    exchanges, _ = play((CLIENT, versions), (BROKER, answer), initiator=None)
    assert kinds(exchanges) == [(API_VERSIONS, 9, "answered")]
    assert anomalies(exchanges) == ["trailing_bytes"]


@pytest.mark.parametrize("side", [CLIENT, BROKER])
def test_on_a_forced_port_a_whole_frame_in_mid_stream_is_shown(side: int) -> None:
    nameless = request(HEARTBEAT, 0, BODY, correlation_id=9, client_id=None)
    frame = nameless if side == CLIENT else heartbeat_answers(1, 9)[0]
    for steps in ([frame], [frame, frame[:9]], [NOISE, frame]):
        exchanges, _ = play(*[(side, step) for step in steps], initiator=None, broker_side=BROKER)
        api = HEARTBEAT if side == CLIENT else None
        assert kinds(exchanges) == [(api, 9, "unanswered" if side == CLIENT else "orphan")]


ALERT = bytes.fromhex("15030300020246")


@pytest.mark.parametrize("broker_side", [BROKER, None])
@pytest.mark.parametrize("initiator", [CLIENT, None])
def test_a_client_without_tls_on_a_tls_port(initiator: int | None, broker_side: int | None) -> None:
    exchanges, kafka = play(
        (CLIENT, heartbeats(1)[0]), (BROKER, ALERT), initiator=initiator, broker_side=broker_side
    )
    assert kinds(exchanges) == [(HEARTBEAT, 1, "unanswered")]
    assert exchanges[0].anomalies == [Anomaly("tls_alert", "response", "fatal protocol_version (70)")]
    assert (kafka.protocol, kafka.unattached, kafka.skipped_bytes) == ("Kafka", [], 0)


def test_a_request_of_tomorrow_on_a_tls_port() -> None:
    versions_99 = sized(b"\x00\x12\x00\x63\x00\x00\x00\x09\x00\x01c\x00future")
    exchanges, _ = play((CLIENT, versions_99), (BROKER, ALERT))
    assert (kinds(exchanges), anomalies(exchanges)) == (
        [(API_VERSIONS, 9, "unanswered")],
        ["tls_alert", "unknown_version"],
    )


def test_a_tls_alert_to_anything_else_is_tls() -> None:
    hello = b"\x16\x03\x01\x00\xc8\x01" + bytes(195)
    assert play((CLIENT, hello), (BROKER, ALERT))[1].protocol == "TLS"
    assert play((CLIENT, b"GET / HTTP/1.1\r\n\r\n"), (BROKER, ALERT))[0] == []


@pytest.mark.parametrize(
    ("answer", "recognized"),
    [(b"\0\0\0\x09rest", True), (None, True), (b"\0\0\0\x08rest", False), (b"\x01\x02", False)],
)
def test_a_first_request_of_tomorrow_is_believed_by_its_answer(
    answer: bytes | None, recognized: bool
) -> None:
    versions_99 = sized(b"\x00\x12\x00\x63\x00\x00\x00\x09\x00\x01c\x00future")
    steps = [(CLIENT, versions_99), *([(BROKER, sized(answer) + bytes(4))] if answer else [])]
    exchanges, kafka = play(*steps)
    assert (kafka.protocol == "Kafka") == recognized
    assert bool(exchanges) == recognized
    if answer and recognized:
        assert exchanges[0].kind == "answered"


def test_a_gap_costs_the_exchanges_in_it_and_is_reported_on_the_next() -> None:
    requests, answers = heartbeats(6), heartbeat_answers(6)
    missing = len(requests[1]) + len(requests[2])
    steps = [
        (CLIENT, requests[0]),
        (BROKER, answers[0]),
        (CLIENT, gap(missing)),
        (BROKER, answers[1] + answers[2]),
        (CLIENT, requests[3]),
        (BROKER, answers[3]),
        (CLIENT, requests[4]),
        (BROKER, answers[4]),
    ]
    exchanges, _ = play(*steps)
    assert kinds(exchanges) == [
        (HEARTBEAT, 1, "answered"),
        (None, 2, "orphan"),
        (None, 3, "orphan"),
        (HEARTBEAT, 4, "answered"),
        (HEARTBEAT, 5, "answered"),
    ]
    assert anomalies(exchanges) == ["gap", "gap", "gap"]


def test_a_gap_in_the_responses() -> None:
    requests, answers = heartbeats(4), heartbeat_answers(4)
    steps = [
        (CLIENT, joined(requests[:3])),
        (BROKER, gap(len(answers[0]) + 3)),
        (BROKER, answers[1][3:] + answers[2]),
    ]
    exchanges, _ = play(*steps, (CLIENT, requests[3]), (BROKER, answers[3]))
    assert kinds(exchanges) == [
        (HEARTBEAT, 1, "unanswered"),
        (HEARTBEAT, 2, "unanswered"),
        (HEARTBEAT, 3, "answered"),
        (HEARTBEAT, 4, "answered"),
    ]


def test_garbage_in_a_known_stream_is_reported_and_left_behind() -> None:
    requests, answers = heartbeats(2), heartbeat_answers(2)
    steps = [
        (CLIENT, requests[0]),
        (BROKER, answers[0]),
        (CLIENT, sized(b"\xff" * 30)),
        (CLIENT, requests[1]),
    ]
    exchanges, _ = play(*steps, (BROKER, answers[1]))
    assert kinds(exchanges) == ANSWERED[:2]
    assert anomalies(exchanges)[0] == "not_a_frame"


def versions_and_software() -> list[tuple[int, bytes]]:
    body = {"client_software_name": "my-client", "client_software_version": "1.2.3"}
    return [(CLIENT, request(API_VERSIONS, 3, body)), (BROKER, response(API_VERSIONS, 3))]


def test_the_client_software_is_reported_on_its_own_exchange_and_after() -> None:
    exchanges, _ = play(*versions_and_software(), *BEATS)
    assert {(e.client_software_name, e.client_software_version) for e in exchanges} == {
        ("my-client", "1.2.3")
    }


def sasl(
    mechanism: str, rounds: list[tuple[bytes, bytes]], *, accepted: bool = True
) -> list[tuple[int, bytes]]:
    steps = [
        (CLIENT, request(SASL_HANDSHAKE, 1, {"mechanism": mechanism})),
        (BROKER, response(SASL_HANDSHAKE, 1, {"mechanisms": [mechanism]})),
    ]
    for question, answer in rounds:
        error = 0 if accepted or question is not rounds[-1][0] else 58
        steps.append((CLIENT, request(SASL_AUTHENTICATE, 2, {"auth_bytes": question})))
        steps.append((BROKER, response(SASL_AUTHENTICATE, 2, {"auth_bytes": answer, "error_code": error})))
    return steps


SCRAM = [(b"n,,n=ali=2Cce,r=abc", b"r=abcdef,s=c2FsdA==,i=4096"), (b"c=biws,r=abcdef,p=cHJvb2Y=", b"v=c2ln")]
JWT = b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJzdmMtb3JkZXJzIn0.\x01\x01"


@pytest.mark.parametrize(
    ("mechanism", "rounds", "principal"),
    [
        ("PLAIN", [(b"\0alice\0hunter2", b"")], "User:alice"),
        ("SCRAM-SHA-256", SCRAM, "User:ali,ce"),
        ("OAUTHBEARER", [(JWT, b"")], "User:svc-orders"),
        ("GSSAPI", [(b"\x60\x05hello", b"")], None),
    ],
)
def test_who_authenticated_is_believed_once_the_broker_agrees(
    mechanism: str, rounds: list[tuple[bytes, bytes]], principal: str | None
) -> None:
    exchanges, _ = play(*sasl(mechanism, rounds), *BEATS)
    assert (exchanges[-1].principal, exchanges[-1].sasl_mechanism) == (principal, mechanism)
    refused, _ = play(*sasl(mechanism, rounds, accepted=False), *BEATS)
    assert (refused[-1].principal, refused[-1].sasl_mechanism) == (None, mechanism)


@pytest.mark.parametrize("rounds", [SCRAM[:1], [SCRAM[0], (SCRAM[1][0], b"e=invalid-proof")]])
def test_scram_is_accepted_by_its_own_last_word_only(rounds: list[tuple[bytes, bytes]]) -> None:
    exchanges, _ = play(*sasl("SCRAM-SHA-256", rounds), *BEATS)
    assert exchanges[-1].principal is None


def test_oauthbearer_is_refused_by_a_token_that_says_why() -> None:
    exchanges, _ = play(*sasl("OAUTHBEARER", [(JWT, b'{"status":"invalid_token"}')]), *BEATS)
    assert exchanges[-1].principal is None


def test_raw_tokens_behind_handshake_v0_are_exchanges_without_an_api() -> None:
    steps = [
        (CLIENT, request(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"})),
        (BROKER, response(SASL_HANDSHAKE, 0, {"mechanisms": ["PLAIN"]})),
        (CLIENT, sized(b"\0alice\0hunter2")),
        (BROKER, sized(b"")),
        *BEATS,
    ]
    exchanges, _ = play(*steps)
    assert kinds(exchanges) == [(SASL_HANDSHAKE, 1, "answered"), (None, None, "answered"), *ANSWERED]
    assert exchanges[1].request == {"sasl_token": Redacted(14)}
    assert exchanges[1].response == {"sasl_token": Redacted(0)}
    assert exchanges[-1].principal == "User:alice"


def test_raw_tokens_may_be_pipelined_and_requests_cut_by_a_snaplen() -> None:
    cut = heartbeats(1)[0]
    steps: list[tuple[int, bytes | Gap]] = [
        (CLIENT, request(SASL_HANDSHAKE, 0, {"mechanism": "PLAIN"}) + sized(b"\0alice\0hunter2")),
        (BROKER, response(SASL_HANDSHAKE, 0, {"mechanisms": ["PLAIN"]}) + sized(b"")),
        (CLIENT, cut[:40]),
        (CLIENT, gap(len(cut) - 40, "cut")),
        (BROKER, heartbeat_answers(1)[0]),
    ]
    exchanges, _ = play(*steps)
    assert kinds(exchanges) == [(SASL_HANDSHAKE, 1, "answered"), (None, None, "answered"), ANSWERED[0]]
    assert exchanges[-1].principal == "User:alice"


def test_the_answer_to_a_token_that_was_lost_has_no_correlation_id() -> None:
    steps: list[tuple[int, bytes | Gap]] = [
        (CLIENT, request(SASL_HANDSHAKE, 0, {"mechanism": "SCRAM-SHA-256"})),
        (BROKER, response(SASL_HANDSHAKE, 0, {"mechanisms": ["SCRAM-SHA-256"]})),
        (CLIENT, gap(30)),
        (BROKER, sized(b"r=secret,s=secret,i=4096")),
        *BEATS,
    ]
    exchanges, _ = play(*steps)
    assert kinds(exchanges) == [(SASL_HANDSHAKE, 1, "answered"), (None, None, "orphan"), *ANSWERED]
    assert exchanges[1].response == {"_undecoded": Redacted(20)}


def test_a_broker_that_says_what_cannot_be_costs_no_more_than_that() -> None:
    requests, answers = heartbeats(3), heartbeat_answers(3)
    for nonsense in (b"\xff" * 20, bytes(5000)):
        exchanges, _ = play(
            (CLIENT, requests[0]),
            (BROKER, answers[0]),
            (CLIENT, requests[1]),
            (BROKER, nonsense),
            (CLIENT, requests[2]),
            (BROKER, answers[2]),
        )
        assert kinds(exchanges) == [ANSWERED[0], (HEARTBEAT, 2, "unanswered"), ANSWERED[2]]
        assert str(len(nonsense)) in exchanges[1].anomalies[-1].detail


def test_a_boundary_may_be_lost_as_often_as_one_likes_in_one_packet() -> None:
    pieces = [beat + b"\xff" * 14 for beat in heartbeats(600)]
    exchanges, _ = play((CLIENT, joined(pieces)), initiator=None)
    assert len(exchanges) == 600


def test_garbage_in_the_middle_of_a_packet_is_left_behind() -> None:
    requests, answers = heartbeats(3), heartbeat_answers(3)
    steps = [
        (CLIENT, requests[0]),
        (BROKER, answers[0]),
        (CLIENT, sized(b"\xff" * 30) + b"xx" + requests[1]),
        (BROKER, answers[1]),
        (CLIENT, requests[2]),
        (BROKER, answers[2]),
    ]
    exchanges, _ = play(*steps)
    assert kinds(exchanges) == ANSWERED
    assert anomalies(exchanges) == ["not_a_frame", "resynchronized"]


@pytest.mark.parametrize("initiator", [CLIENT, None])
def test_responses_alone_are_located_again_after_a_gap(initiator: int | None) -> None:
    answers = heartbeat_answers(6)
    steps = [(BROKER, joined(answers[:3])), (BROKER, gap(10)), (BROKER, joined(answers[3:]))]
    exchanges, _ = play(*steps, initiator=initiator)
    assert [exchange.correlation_id for exchange in exchanges] == [1, 2, 3, 4, 5, 6]
    assert anomalies(exchanges) == ["gap"]


def test_tls_on_a_forced_port_is_tls() -> None:
    exchanges, kafka = play((CLIENT, b"\x16\x03\x01\x00\xc8\x01" + bytes(195)), broker_side=BROKER)
    assert (exchanges, kafka.protocol) == ([], "TLS")


def test_what_was_never_recognized_has_no_anomalies() -> None:
    exchanges, kafka = play((CLIENT, b"abc" * 100), (BROKER, b"def" * 100), initiator=None)
    assert (exchanges, kafka.unattached, kafka.protocol) == ([], [], None)


def test_letting_go_keeps_boundaries_and_gives_up_what_waits() -> None:
    requests, answers = heartbeats(2), heartbeat_answers(2)
    kafka = KafkaConnection(Connection(), DEFAULT)  # type: ignore[arg-type]
    kafka.feed(CLIENT, data(joined(requests)))
    large = sized(answers[1][4:] + bytes(10_000))
    assert kafka.feed(BROKER, data(large[:9_000])) == []
    assert kafka.held > 9_000
    dropped = kafka.shed(50)
    assert kinds(dropped) == [(HEARTBEAT, 1, "unanswered"), (HEARTBEAT, 2, "unanswered")]
    assert anomalies(dropped) == ["given_up", "given_up"]
    assert kafka.held < 1_000
    (orphan,) = kafka.feed(BROKER, data(large[9_000:] + b"\0\0"))
    assert orphan.response_frame is not None
    assert (orphan.correlation_id, orphan.response_frame.size) == (2, len(large) - 4)
    assert not orphan.response_frame.complete


def test_a_search_that_lets_go_goes_on() -> None:
    kafka = KafkaConnection(Connection(None), DEFAULT)  # type: ignore[arg-type]
    kafka.feed(CLIENT, data(b"\xee" * 5_000))
    assert kafka.held > 5_000
    assert kafka.shed(1) == []
    assert kafka.held == 0
    kafka.feed(CLIENT, data(heartbeats(1)[0]))
    (exchange,) = kafka.close(Closed("fin", 2))
    assert anomalies([exchange]) == ["resynchronized"]


def test_a_client_of_0_9_begins_with_a_gssapi_token() -> None:
    token = b"\x60\x05hello"
    steps = [
        (CLIENT, sized(token)),
        (BROKER, sized(b"challenge")),
        (CLIENT, sized(b"more")),
        (BROKER, sized(b"done")),
    ]
    exchanges, _ = play(*steps, *BEATS)
    assert kinds(exchanges) == [(None, None, "answered"), (None, None, "answered"), *ANSWERED]
    assert exchanges[-1].sasl_mechanism == "GSSAPI"
    assert anomalies(exchanges) == ["no_handshake"]
    whole = [(side, payload) for side, payload in [*steps, *BEATS] if isinstance(payload, bytes)]
    by_byte, _ = play(*[(side, bytes([byte])) for side, payload in whole for byte in payload])
    assert kinds(by_byte) == kinds(exchanges)


TOKENS = [b"\x60\x05hello", b"\0alice\0hunter2", b"n,,n=alice,r=fyko"]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("broker_side", [None, BROKER])
def test_a_token_where_the_broker_expects_a_request(token: bytes, broker_side: int | None) -> None:
    exchanges, kafka = play(*versions_and_software(), (CLIENT, sized(token)), broker_side=broker_side)
    assert kinds(exchanges) == [(API_VERSIONS, 1, "answered"), (None, None, "unanswered")]
    assert exchanges[1].request == {"sasl_token": Redacted(len(token))}
    assert exchanges[1].principal is None
    assert anomalies(exchanges) == ["no_handshake"]
    assert kafka.unattached == []


def test_other_bytes_where_the_broker_expects_a_request() -> None:
    exchanges, kafka = play(*versions_and_software(), (CLIENT, sized(b"\x60\x06hello")))
    assert kinds(exchanges) == [(API_VERSIONS, 1, "answered")]
    assert [anomaly.kind for anomaly in kafka.unattached] == ["not_a_frame", "partial_frame"]


def test_a_token_late_on_a_connection_is_none() -> None:
    late = [
        step for pair in zip(heartbeats(5), heartbeat_answers(5), strict=True) for step in enumerate(pair)
    ]
    exchanges, kafka = play(*late, (CLIENT, sized(TOKENS[1])))
    assert [exchange.api_key for exchange in exchanges] == [HEARTBEAT] * 5
    assert "not_a_frame" in [anomaly.kind for anomaly in kafka.unattached]
    exchanges, _ = play(*BEATS[:2], (BROKER, gap(7)), (CLIENT, sized(TOKENS[1])))
    assert [exchange.api_key for exchange in exchanges] == [HEARTBEAT]


def test_byte_by_byte() -> None:
    steps = [(side, bytes([byte])) for side, payload in versions_and_software() + BEATS for byte in payload]
    exchanges, _ = play(*steps)
    assert kinds(exchanges) == [(API_VERSIONS, 1, "answered"), *ANSWERED]


def test_nothing_is_held_after_the_end() -> None:
    kafka = KafkaConnection(Connection(), DEFAULT)  # type: ignore[arg-type]
    kafka.feed(CLIENT, data(heartbeats(1)[0] + b"\0\0"))
    (exchange,) = kafka.close(Closed("fin", 99))
    assert exchange.kind == "unanswered"
    assert [anomaly.kind for anomaly in [*exchange.anomalies, *kafka.unattached]] == ["partial_frame"]


def cut_to(length: int, side: int, payload: bytes) -> list[tuple[int, bytes | Gap]]:
    return [(side, payload[:length]), (side, gap(len(payload) - length, "cut"))]


@pytest.mark.parametrize("length", [14, 20, 30])
def test_a_first_request_cut_in_its_client_id_is_believed_by_its_answer(length: int) -> None:
    beat, answer = heartbeats(1)[0], heartbeat_answers(1)[0]
    exchanges, kafka = play(*cut_to(length, CLIENT, beat), (BROKER, answer))
    if length == 30:  # the client ID is whole
        assert kinds(exchanges) == ANSWERED[:1]
    long = request(HEARTBEAT, 4, {"group_id": "group"}, client_id="a-client-whose-name-is-long")
    exchanges, kafka = play(*cut_to(length, CLIENT, long), (BROKER, answer))
    assert kinds(exchanges) == ANSWERED[:1]
    assert exchanges[0].client_id is None
    assert kafka._counts["exchanges_incomplete"] == 1
    exchanges, kafka = play(*cut_to(length, CLIENT, long), (BROKER, heartbeat_answers(1, first=2)[0]))
    assert (exchanges, kafka.protocol) == ([], "not Kafka")
    assert play(*cut_to(length, CLIENT, long))[0] == []


@pytest.mark.parametrize("initiator", [CLIENT, None])
def test_requests_cut_in_their_client_id_confirm_one_another(initiator: int | None) -> None:
    steps: list[tuple[int, bytes | Gap]] = []
    for number in range(3):
        long = request(HEARTBEAT, 4, {}, client_id="a-client-whose-name-is-long", correlation_id=number)
        steps += cut_to(20, CLIENT, long)
    assert play(*steps[:4], initiator=initiator)[0] == []
    exchanges, _ = play(*steps, initiator=initiator)
    assert kinds(exchanges) == [(HEARTBEAT, number, "unanswered") for number in range(3)]


def test_a_request_of_which_the_size_was_captured_alone_costs_itself() -> None:
    requests, answers = heartbeats(3), heartbeat_answers(3)
    steps: list[tuple[int, bytes | Gap]] = [
        (CLIENT, requests[0] + requests[1][:7]),
        (CLIENT, gap(len(requests[1]) - 7, "cut")),
        (BROKER, answers[0] + answers[1]),
        (CLIENT, requests[2]),
        (BROKER, answers[2]),
    ]
    exchanges, kafka = play(*steps)
    assert [exchange.kind for exchange in exchanges] == ["answered", "orphan", "answered"]
    assert anomalies(exchanges) == ["gap", "gap"]
    assert kafka._counts["exchanges_lost"] == 1


def recognizing(recognition_bytes: int, initiator: int | None = None) -> KafkaConnection:
    connection = Connection(initiator)
    return KafkaConnection(connection, Limits(recognition_bytes=recognition_bytes))  # type: ignore[arg-type]


@pytest.mark.parametrize("side", [CLIENT, BROKER])
def test_a_search_that_has_paused_goes_on_at_what_may_be_a_request(side: int) -> None:
    """As after a large Produce that had begun before the capture: no matter how much of it comes."""
    kafka = recognizing(100_000)
    for _ in range(1000):
        assert not kafka.feed(side, data(NOISE))
    assert kafka.held == 0
    assert kafka.feed(side, data(heartbeats(1)[0])) == []
    assert kafka.client == side
    (exchange,) = kafka.feed(1 - side, data(heartbeat_answers(1)[0]))
    assert [each.detail for each in exchange.anomalies] == ["skipped 300000 bytes from the client"]


def test_a_search_goes_on_at_most_once_while_the_bytes_double(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    locate = kafka_connection.locate_request

    def locating(search: Search) -> int | None:
        searched.append(search.end)
        return locate(search)

    monkeypatch.setattr(kafka_connection, "locate_request", locating)
    kafka, like_a_request = recognizing(8_000), heartbeats(1)[0][:14] + bytes(86)
    for _ in range(20_000):
        kafka.feed(CLIENT, data(like_a_request))
    assert len(searched) < 400
    assert max(searched) > 1_000_000
    assert kafka.unread_bytes == 2_000_000


def test_responses_alone_are_recognized_after_a_search_has_paused() -> None:
    kafka = recognizing(100_000)
    for _ in range(1000):
        kafka.feed(BROKER, data(b"\xff" * 100))
    for answer in heartbeat_answers(3):
        exchanges = kafka.feed(BROKER, data(answer))
    assert kinds(exchanges) == [(None, each, "orphan") for each in (1, 2, 3)]


def test_only_the_side_that_begins_is_searched_while_its_first_request_is_incomplete() -> None:
    kafka, (first, second) = recognizing(8_000, CLIENT), heartbeats(2)
    kafka.feed(CLIENT, data(first[:5]))
    for _ in range(1000):
        assert not kafka.feed(BROKER, data(NOISE))
    assert kafka.held < 1000
    assert kafka._searched < 20_000
    kafka.feed(CLIENT, data(first[5:] + second))
    assert kafka.client == CLIENT
    answers = [kafka.feed(BROKER, data(each)) for each in heartbeat_answers(2)]
    assert kinds([each for some in answers for each in some])[-1][-1] == "answered"


def test_the_first_request_may_come_byte_by_byte() -> None:
    kafka = recognizing(1000, CLIENT)
    for byte in heartbeats(1)[0]:
        kafka.feed(CLIENT, data(bytes((byte,))))
    assert kafka.protocol == "Kafka"
