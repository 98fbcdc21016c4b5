"""What latencies consist of."""

from __future__ import annotations

from dataclasses import replace
from struct import pack
from typing import Any

import pytest

from kdissect import dissect, open_capture
from kdissect.exchanges.content import replica_id
from kdissect.exchanges.latency import Splitters, waiter
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.model import Anomaly, Exchange, LatencyParts
from tests.exchange_factory import CAPTURED, START_NS, connection, exchange
from tests.segments import MILLISECOND, Talk

UNKNOWN = LatencyParts(None, None, None, None, None)


class Client:
    """Exchanges of one connection; times in milliseconds since it began."""

    def __init__(self, *, from_start: bool = True, **limits: int) -> None:
        self.info = replace(connection(), from_start=from_start)
        self.splitters = Splitters(replace(DEFAULT, **limits))
        self.now = 0

    def does(
        self, sent: float, answered: float, api: str = "Heartbeat", version: int = 4, /, **more: Any
    ) -> LatencyParts | None:
        """The parts of the latency of a request, in milliseconds."""
        response = {"throttle_time_ms": 0} | more.pop("response", {})
        one = exchange(
            api,
            version,
            more.pop("request", {}),
            response,
            time_ns=START_NS + round(sent * MILLISECOND),
            latency_ns=round((answered - sent) * MILLISECOND),
            **CAPTURED | more,
        )
        one.connection, one.parts = self.info, None
        self.last = one
        self.splitters.split(one)
        return one.parts and LatencyParts(*(us if us is None else us / 1000 for us in one.parts))


def test_a_request_is_queued_until_the_previous_response() -> None:
    client = Client()
    assert client.does(0, 10) == (0, 0, 0, 0, 10)
    assert client.does(4, 13) == (6, 0, 0, 0, 3)
    assert client.does(5, 13) == (8, 0, 0, 0, 0)  # in the same packet
    assert client.does(20, 21) == (0, 0, 0, 0, 1)


def test_microseconds_add_up() -> None:
    client = Client()
    client.does(0, 10.0007)
    parts = client.does(4.0003, 13.0001)
    assert parts is not None
    assert round(1000 * sum(parts)) == (13_000_100 - 4_000_300) // 1000


FETCHED = {"error_code": 0, "session_id": 0, "responses": []}


def thinks(client: Client, sent: float, answered: float, api: str = "Fetch", **more: Any) -> Any:
    """The think time of a fetch, in milliseconds."""
    client.does(
        sent, answered, api, 11 if api == "Fetch" else 1, response=FETCHED | more.pop("response", {}), **more
    )
    think_us = client.last.think_us
    return None if think_us is None else think_us / 1000


def test_think_time_is_from_the_response_to_a_fetch_to_the_next_fetch() -> None:
    client = Client()
    assert thinks(client, 0, 10) is None
    assert client.does(20, 30) == (0, 0, 0, 0, 10)
    assert client.last.think_us is None
    assert thinks(client, 110, 120) == 100
    assert thinks(client, 120, 130) == 0
    assert thinks(client, 125, 140) is None  # before the response
    assert thinks(client, 150, 160, "ShareFetch") == 10
    assert thinks(client, 200, 210, response={"throttle_time_ms": 50}) == 40
    assert thinks(client, 270, 280) is None  # it waited because of the quota
    assert thinks(client, 300, 310) == 20


def test_a_throttle_time_follows_its_response() -> None:
    client = Client()
    assert client.does(0, 10, response={"throttle_time_ms": 100}) == (0, 0, 0, 0, 10)
    assert client.does(5, 120) == (5, 100, 0, 0, 10)
    client.does(200, 210, response={"throttle_time_ms": 100})
    assert client.does(300, 312) == (0, 10, 0, 0, 2)
    client.does(400, 410, response={"throttle_time_ms": 100})
    assert client.does(450, 470) == (0, 20, 0, 0, 0)  # it did not last as long as announced
    client.does(500, 510, response={"throttle_time_ms": 100})
    assert client.does(700, 701) == (0, 0, 0, 0, 1)


OLD = ("Heartbeat", 1)  # a version that brokers before 2.0 have as well
THROTTLED = {"throttle_time_ms": 100}


def test_before_kip_219_a_throttle_time_preceded_its_response() -> None:
    client = Client()
    offer = {"error_code": 0, "api_keys": [{"api_key": 0, "min_version": 0, "max_version": 5}]}
    client.does(0, 1, "ApiVersions", 1, response=offer)
    assert client.does(10, 130, *OLD, response=THROTTLED) == (0, 100, 0, 0, 20)
    assert client.does(131, 132, *OLD) == (0, 0, 0, 0, 1)


def test_it_is_unknown_when_a_broker_of_unknown_age_throttles() -> None:
    client = Client()
    assert client.does(10, 130, *OLD, response=THROTTLED) == (0, None, 0, 0, None)
    assert client.does(140, 150, *OLD) == (0, None, 0, 0, None)
    assert client.does(240, 250, *OLD) == (0, 0, 0, 0, 10)
    assert client.does(300, 310, *OLD, response=THROTTLED) == (0, 0, 0, 0, 10)  # it cannot have been before
    assert client.does(311, 420, *OLD) == (0, 99, 0, 0, 10)


def test_the_first_request_after_the_capture_began_may_be_throttled() -> None:
    client = Client(from_start=False)
    assert client.does(0, 10) == (0, None, 0, 0, None)
    assert client.does(20, 30) == (0, 0, 0, 0, 10)


@pytest.mark.parametrize(
    "response", [{"throttle_time_ms": None}, {"throttle_time_ms": None, "_undecoded": b""}]
)
def test_a_throttle_time_that_was_not_decoded_is_unknown(response: Any) -> None:
    client = Client()
    client.does(0, 10, response=response, response_layout=None)
    assert client.does(20, 30) == (0, None, 0, 0, None)


@pytest.mark.parametrize("kind", ["gap", "resynchronized"])
def test_after_a_gap_the_previous_response_is_unknown(kind: str) -> None:
    client = Client()
    client.does(0, 10)
    lost = [Anomaly(kind, "connection", "100 bytes")]
    assert client.does(5, 30, anomalies=lost) == (None, None, 0, 0, None)
    assert client.does(25, 40) == (10 - 5, 0, 0, 0, 10)


def test_a_negative_latency_has_no_parts() -> None:
    assert Client().does(10, 5) == UNKNOWN


def test_a_request_that_was_sent_again() -> None:
    client = Client()
    again = {"retransmitted_ns": START_NS + 200 * MILLISECOND}
    assert client.does(0, 205, **again) == (0, 0, 200, 0, 5)
    client.does(206, 210)
    late = {"retransmitted_ns": START_NS + 240 * MILLISECOND}
    client.does(220, 250)
    assert client.does(221, 255, **late) == (29, 0, 0, 0, 5)  # the broker would not have read it before


# ------------------------------------------------------------------------------------------------------------
# Who waits.
# ------------------------------------------------------------------------------------------------------------


def records(*spans: tuple[int, int]) -> RecordData:
    """Batches of 61 bytes, a header without records, by their first and last offsets."""
    header = ">qiibIhiqqqhii"
    data = b"".join(
        pack(header, first, 49, 0, 2, 0, 0, last - first, 0, 0, -1, -1, -1, 0) for first, last in spans
    )
    return RecordData(data, 0, len(data))


def fetched(data: RecordData | None, end: int = 10, **more: Any) -> dict[str, Any]:
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": end, "records": data, **more}
    return {"error_code": 0, "responses": [{"topic": "orders", "partitions": [partition]}]}


REQUEST = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1000, "topics": [{"topic": "orders"}]}


def fetch(
    client: Client, response: dict[str, Any], *, size: int = 0, **request: Any
) -> tuple[float | None, float | None]:
    """Wait and service of a fetch. ``size``: of the request, of which no byte was captured."""
    client.now += 20
    sent = {"request": REQUEST | request, "request_size": size}
    parts = client.does(client.now, client.now + 10, "Fetch", 12, response=response, **sent)
    assert parts is not None
    return parts.wait_us, parts.service_us


def after(response: dict[str, Any] | None) -> Client:
    """A connection that has seen a response to a fetch."""
    client = Client()
    if response is not None:
        client.does(-20, -10, "Fetch", 12, request=REQUEST, response=response)
    return client


WAITED, SERVED, UNDETERMINED = (10, None), (0, 10), (None, None)
READ_COMMITTED = {"isolation_level": 1}


@pytest.mark.parametrize(
    ("before", "response", "request_fields", "expected"),
    [
        (None, fetched(None), {}, WAITED),
        (None, fetched(records()), {}, WAITED),
        (None, fetched(records((5, 9))), {}, UNDETERMINED),
        (fetched(None, 10), fetched(records((5, 9))), {}, SERVED),
        (fetched(None, 10), fetched(records((10, 10))), {}, WAITED),
        (fetched(None, 10), fetched(records((9, 9), (10, 12))), {}, SERVED),
        (fetched(None, -1), fetched(records((9, 9))), {}, UNDETERMINED),
        (fetched(None, 10, error_code=6), fetched(records((9, 9))), {}, UNDETERMINED),
        # as many bytes as it fields were there, or were not
        (fetched(None, 10), fetched(records((8, 8), (9, 9))), {"min_bytes": 100}, SERVED),
        (fetched(None, 10), fetched(records((9, 9), (10, 12))), {"min_bytes": 100}, WAITED),
        (None, fetched(records((9, 9))), {"min_bytes": 100}, WAITED),
        (None, fetched(records((9, 9))), {"min_bytes": 100, "max_bytes": 50}, UNDETERMINED),
        # a transaction was open
        (fetched(None, 10, last_stable_offset=7), fetched(records((7, 9))), READ_COMMITTED, WAITED),
        (fetched(None, 10, last_stable_offset=7), fetched(records((7, 9))), {}, SERVED),
        (fetched(None, 10, last_stable_offset=7), fetched(records((6, 6))), READ_COMMITTED, SERVED),
        # what the broker answers at once
        (None, fetched(None), {"max_wait_ms": 0}, SERVED),
        (None, fetched(None), {"min_bytes": 0}, SERVED),
        (None, fetched(None), {"topics": []}, SERVED),
        (None, fetched(None), {"topics": [], "session_id": 7, "session_epoch": 3}, WAITED),
        (None, {"error_code": 71, "responses": []}, {}, SERVED),
        (None, fetched(None, preferred_read_replica=2), {}, SERVED),
        # what may have come at once
        (None, fetched(None, error_code=6), {}, UNDETERMINED),
        (None, fetched(None) | {"throttle_time_ms": 5}, {}, UNDETERMINED),
        (fetched(None, 10), fetched(records((5, 9))) | {"throttle_time_ms": 5}, {}, SERVED),
        # replicas read past the high watermark, and KRaft's want no bytes but wait
        (fetched(None, 10), fetched(records((5, 9))), {"replica_id": 3}, UNDETERMINED),
        (fetched(None, 10), fetched(None), {"replica_id": 3}, WAITED),
        (fetched(None, 10), fetched(None), {"replica_id": 3, "min_bytes": 0}, WAITED),
        (fetched(None, 10), fetched(None, error_code=6), {"replica_id": 3}, UNDETERMINED),
    ],
)
def test_a_fetch_waited_if_there_was_nothing_to_read(
    before: Any, response: Any, request_fields: Any, expected: Any
) -> None:
    assert fetch(after(before), response, **request_fields) == expected


def test_a_fetch_of_which_the_request_was_truncated_is_undetermined() -> None:
    """Its topics may be missing: a request that has none is answered at once."""
    client = after(None)
    for size, expected in ((0, SERVED), (96, UNDETERMINED)):
        assert fetch(client, fetched(None), topics=[], size=size) == expected


def test_partitions_are_judged_one_by_one() -> None:
    client = after(fetched(None, 10))
    other = {"partition_index": 1, "error_code": 0, "high_watermark": 5, "records": records((4, 4))}
    response = fetched(records((10, 11)), 12)
    response["responses"][0]["partitions"].append(other)
    assert fetch(client, response) == UNDETERMINED  # of partition 1 nothing was known
    response["responses"][0]["partitions"][0] |= {"high_watermark": 13, "records": records((12, 12))}
    assert fetch(client, response) == SERVED  # 4 is below 5
    other["records"] = records((5, 5))
    response["responses"][0]["partitions"][0]["records"] = records((13, 13))
    assert fetch(client, response) == WAITED


def test_only_so_many_watermarks_are_kept() -> None:
    client = Client(watermarks=1)
    fetch(client, fetched(None, 10))
    elsewhere = fetched(None, 10)
    elsewhere["responses"][0]["topic"] = "refunds"
    fetch(client, elsewhere)
    assert fetch(client, fetched(records((5, 9)))) == UNDETERMINED


def test_a_message_set_has_offsets_too() -> None:
    message = pack(">qiIbbii", 4, 14, 0, 0, 0, -1, -1)
    client = after(fetched(None, 5))
    assert fetch(client, fetched(RecordData(message, 0, len(message)))) == SERVED


@pytest.mark.parametrize(
    ("response", "request_fields", "expected"),
    [
        (fetched(None), {}, WAITED),
        (fetched(records((5, 9))), {}, UNDETERMINED),
        (fetched(None), {"share_session_epoch": -1}, SERVED),
        (fetched(None), {"topics": []}, WAITED),
    ],
)
def test_a_share_fetch_knows_no_watermark(response: Any, request_fields: Any, expected: Any) -> None:
    fields = REQUEST | {"share_session_epoch": 1} | request_fields
    parts = Client().does(0, 10, "ShareFetch", 1, request=fields, response=response)
    assert parts is not None
    assert (parts.wait_us, parts.service_us) == expected


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_members_of_a_group_wait_for_each_other(api: str) -> None:
    assert Client().does(0, 10, api, 5) == (0, 0, 0, 10, None)


def follower(topic: str, **request: Any) -> Exchange:
    return exchange("Fetch", 16, {"topics": [{"topic_id": topic}], **request}, {})


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (exchange("Fetch", 11, REQUEST, {}), "Fetch"),
        (exchange("ShareFetch", 1, REQUEST, {}), "ShareFetch"),
        (exchange("SyncGroup", 3, {}, {}), "SyncGroup"),
        (exchange("Heartbeat", 3, {}, {}), None),
        (exchange("Fetch", 11, None, {}), "Fetch"),
        (follower("x", replica_state={"replica_id": 3}), "Fetch (replica)"),
        (follower("AAAAAAAAAAAAAAAAAAAAAQ", replica_state={"replica_id": 3}), "Fetch (KRaft)"),
    ],
)
def test_who_waits(sample: Exchange, expected: str | None) -> None:
    assert waiter(sample) == expected


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (exchange("Fetch", 11, {"replica_id": -1}, {}), None),
        (exchange("Fetch", 11, {"replica_id": 2}, {}), 2),
        (exchange("Fetch", 16, {"replica_state": {"replica_id": 3, "replica_epoch": 1}}), 3),
        (exchange("Fetch", 16, {"replica_state": {"replica_id": -1, "replica_epoch": -1}}), None),
        (exchange("Fetch", 16, None, {"responses": []}), None),
        (exchange("OffsetForLeaderEpoch", 3, {"replica_id": 2}), None),
    ],
)
def test_replicas_send_their_id(sample: Exchange, expected: int | None) -> None:
    assert replica_id(sample) == expected


# ------------------------------------------------------------------------------------------------------------
# Retransmissions, from packets.
# ------------------------------------------------------------------------------------------------------------


def request(correlation_id: int, *, filler: int = 0) -> bytes:
    """A Heartbeat 0."""
    body = pack(">hhih3s", 12, 0, correlation_id, 3, b"app") + pack(">h", 1 + filler) + b"g" * (1 + filler)
    body += pack(">ih1s", 1, 1, b"m")
    return pack(">i", len(body)) + body


def response(correlation_id: int) -> bytes:
    return pack(">iih", 6, correlation_id, 0)


def network_ms(talk: Talk) -> list[float | None]:
    return [
        None if each.parts is None or each.parts.network_us is None else each.parts.network_us / 1000
        for each in dissect(talk.finish().packets, kafka_ports=[9092])
    ]


def resent(talk: Talk, data: bytes, *, after_ms: int, back: int = 0) -> Talk:
    """Send the end of the client's stream again, or bytes that end ``back`` bytes before it."""
    talk.time_ns += (after_ms - 1) * MILLISECOND
    return talk.put(0, 0x18, data, sequence=talk._next[0] - len(data) - back)


def test_a_retransmitted_request() -> None:
    talk = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    assert network_ms(talk.broker_sends(response(1))) == [200]


def test_a_packet_that_was_captured_twice_delays_nothing() -> None:
    talk = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=1)
    assert network_ms(talk.broker_sends(response(1))) == [0]


def test_the_last_of_several_retransmissions_counts() -> None:
    talk = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    assert network_ms(resent(talk, request(1), after_ms=400).broker_sends(response(1))) == [600]


def test_a_retransmission_of_acknowledged_bytes_delays_nothing() -> None:
    talk = Talk().handshake().client_sends(request(1)).broker_acks()
    assert network_ms(resent(talk, request(1), after_ms=200).broker_sends(response(1))) == [0]


def test_a_retransmission_after_the_response_delays_nothing() -> None:
    talk = Talk().handshake().client_sends(request(1)).broker_sends(response(1))
    assert network_ms(resent(talk, request(1), after_ms=200)) == [0]


def reported(talk: Talk, data: bytes, payload: bytes = b"") -> Talk:
    """The broker reports that it already had the end of the client's stream (D-SACK), or says so beside a
    response.
    """
    end = talk._next[0]
    block = pack(">BBBBII", 1, 1, 5, 10, end - len(data), end)
    return talk.put(1, 0x18 if payload else 0x10, payload, options=block)


def test_a_spurious_retransmission_delays_nothing() -> None:
    """The broker had the request all the time, and worked on it: for 402 ms."""
    talk = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    reported(talk, request(1)).waits(0.2).broker_sends(response(1))
    assert network_ms(talk) == [0]
    ((parts,),) = [[each.parts for each in dissect(talk.packets, kafka_ports=[9092])]]
    assert parts is not None
    assert parts.service_us == 402_000
    beside = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    assert network_ms(reported(beside, request(1), response(1))) == [0]


def test_only_the_spurious_one_of_two_retransmissions_is_left_out() -> None:
    talk = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    resent(talk, request(1), after_ms=400)
    assert network_ms(reported(talk, request(1)).broker_sends(response(1))) == [200]
    both = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    resent(both, request(1), after_ms=9)
    reported(reported(both, request(1)), request(1)).broker_sends(response(1))
    assert network_ms(both) == [0]


def test_a_report_is_about_the_request_before_it() -> None:
    talk = resent(Talk().handshake().client_sends(request(1)), request(1), after_ms=200)
    talk.broker_sends(response(1)).client_sends(request(2))
    resent(talk, request(2), after_ms=300)
    assert network_ms(reported(talk, request(2)).broker_sends(response(2))) == [200, 0]


def test_it_delays_the_requests_behind_it_too_but_none_before_it() -> None:
    talk = Talk().handshake()
    for number in (1, 2, 3):
        talk.client_sends(request(number))
    size = len(request(2))
    talk = resent(talk, request(2), after_ms=200, back=size)
    talk.broker_sends(response(1)).broker_sends(response(2)).broker_sends(response(3))
    first, *others = network_ms(talk)
    assert first == 0
    assert others == [0, 0]  # they were queued behind the response to the first, which came later


def test_a_part_of_a_request() -> None:
    talk = Talk(mss=100).handshake().client_sends(request(1, filler=230))
    data = request(1, filler=230)
    talk = resent(talk, data[100:200], after_ms=200, back=len(data) - 200)
    assert network_ms(talk.broker_sends(response(1))) == [200]


def test_bytes_that_come_behind_later_ones() -> None:
    """The first copy is not in the capture: it was lost before."""
    talk = Talk(mss=100).handshake().client_sends(request(1, filler=130))
    late = talk.packets.pop(-2)
    talk.time_ns += 199 * MILLISECOND
    talk.packets.append(late._replace(time_ns=talk.time_ns, number=talk.packets[-1].number))
    assert network_ms(talk.broker_sends(response(1))) == [200]


def test_a_partial_request_behind_is_not_mistaken_for_one_before() -> None:
    talk = Talk(mss=100).handshake().client_sends(request(1))
    data = request(2, filler=150)
    talk.client_sends(data[:100])
    resent(talk, data[:100], after_ms=200)
    talk.broker_sends(response(1)).client_sends(data[100:]).broker_sends(response(2))
    assert network_ms(talk) == [0, 0]


# ------------------------------------------------------------------------------------------------------------
# Recorded: a consumer that keeps up beside one that lags.
# ------------------------------------------------------------------------------------------------------------


def test_fetches_of_a_consumer_that_keeps_up_waited() -> None:
    with open_capture("samples/kafka-4-lag.pcap.gz") as packets:
        fetches = [each for each in dissect(packets) if each.api == "Fetch" and each.parts is not None]
    waits: dict[str | None, list[bool]] = {}
    for each in fetches:
        assert each.parts is not None
        if each.parts.waited or each.parts.service_us is not None:
            waits.setdefault(each.client_id, []).append(each.parts.waited)
    assert all(waits["quick"])
    assert len(waits["quick"]) > 80
    assert not all(waits["slow"])
    for each in fetches:  # the parts add up
        assert each.parts is not None
        assert each.latency_us is not None
        if None not in each.parts[:4]:
            assert sum(us for us in each.parts if us is not None) == each.latency_us
