"""Whole conversations from packets to exchanges: the same whatever the network and the capture did to their
order."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.limits import LIVE, Limits
from kdissect.model import UNANSWERED, IdleTick
from kdissect.options import Options
from kdissect.pipeline import Dissection, dissect
from tests.frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    heartbeat_answers,
    heartbeats,
    request,
    response,
)
from tests.segments import MILLISECOND, START_NS, Talk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.model import Exchange, Packet

ORDERS = "5RzwtLHbTWqVAuyWxeBeRQ"


def talk(**options: object) -> Talk:
    """A client that introduces itself, produces with acks=0 and acks=1, fetches a large answer, pipelines,
    and leaves one request unanswered."""
    conversation = Talk(**options)  # type: ignore[arg-type]
    conversation.handshake()
    conversation.client_sends(request(API_VERSIONS, 3, {"client_software_name": "test"}, correlation_id=0))
    conversation.broker_sends(response(API_VERSIONS, 3, {}, correlation_id=0))
    conversation.client_sends(request(METADATA, 12, {}, correlation_id=1))
    conversation.broker_sends(
        response(METADATA, 12, {"topics": [{"name": "orders", "topic_id": ORDERS}]}, correlation_id=1)
    )
    for correlation_id, acks in ((2, 0), (3, 1)):
        records = Random(correlation_id).randbytes(4000)
        body = {"acks": acks, "topic_data": [{"name": "orders", "partition_data": [{"records": records}]}]}
        conversation.client_sends(request(PRODUCE, 9, body, correlation_id=correlation_id))
    conversation.broker_sends(response(PRODUCE, 9, {"responses": [{"name": "orders"}]}, correlation_id=3))
    conversation.client_sends(request(FETCH, 13, {"topics": [{"topic_id": ORDERS}]}, correlation_id=4))
    body = {"responses": [{"topic_id": ORDERS, "partitions": [{"records": Random(9).randbytes(9000)}]}]}
    conversation.broker_sends(response(FETCH, 13, body, correlation_id=4))
    conversation.client_sends(b"".join(heartbeats(3, first=5)))
    conversation.broker_sends(b"".join(heartbeat_answers(2, first=5)))
    return conversation


def rows_of(exchanges: Iterable[Exchange]) -> list[tuple[object, ...]]:
    return sorted(
        (
            exchange.api_key if exchange.api_key is not None else -1,
            exchange.correlation_id,
            exchange.kind,
            len(exchange.request_frame.data) if exchange.request_frame else None,
            len(exchange.response_frame.data) if exchange.response_frame else None,
            str(exchange.request),
            str(exchange.response),
            sorted(exchange.topic_ids.items()),
            tuple(exchange.anomalies),
        )
        for exchange in exchanges
    )


EXPECTED = rows_of(dissect(talk().packets))


def test_the_conversation_undisturbed() -> None:
    assert [(key, correlation_id, kind) for key, correlation_id, kind, *_ in EXPECTED] == [
        (PRODUCE, 2, "unacknowledged"),
        (PRODUCE, 3, "answered"),
        (FETCH, 4, "answered"),
        (METADATA, 1, "answered"),
        (12, 5, "answered"),
        (12, 6, "answered"),
        (12, 7, "unanswered"),
        (API_VERSIONS, 0, "answered"),
    ]
    assert [exchange.number for exchange in dissect(talk().packets)] == list(range(1, 9))


@given(st.integers(0, 2**32), st.sampled_from([100, 536, 1460, 65000]), st.booleans())
def test_reordered_duplicated_and_cut_otherwise_it_is_the_same(seed: int, mss: int, ipv6: bool) -> None:
    random = Random(seed)
    ends = {"client": ("fd00::1", 40000), "broker": ("fd00::2", 9092)} if ipv6 else {}
    packets = talk(mss=mss, client_start=random.choice([5, 2**32 - 3000]), **ends).packets
    packets += random.sample(packets, len(packets) // 3)
    order = sorted(range(len(packets)), key=lambda place: place + random.uniform(0, 8))
    shuffled = renumbered([packets[place] for place in order])
    assert rows_of(dissect(shuffled)) == EXPECTED


def renumbered(packets: list[Packet]) -> list[Packet]:
    return [
        packet._replace(number=number, time_ns=10**18 + number) for number, packet in enumerate(packets, 1)
    ]


@pytest.mark.parametrize("lost", range(3, len(talk(mss=536).packets), 5))
def test_a_lost_packet_gives_no_exchange_that_did_not_happen(lost: int) -> None:
    packets = talk(mss=536).packets
    del packets[lost]
    true_ids = {(key, correlation_id) for key, correlation_id, *_ in EXPECTED}
    for exchange in dissect(packets):
        assert exchange.kind == "orphan" or (exchange.api_key, exchange.correlation_id) in true_ids
        assert exchange.correlation_id in range(8)


@pytest.mark.parametrize("start", range(3, len(talk(mss=536).packets), 4))
def test_a_capture_may_begin_anywhere(start: int) -> None:
    packets = talk(mss=536).packets[start:]
    expected = {row[:4] for row in EXPECTED}
    for row in rows_of(dissect(packets)):
        if row[2] == "answered":
            assert row[:4] in expected


def test_ports_restrict_and_force() -> None:
    packets = talk().packets
    port = packets and next(iter(dissect(packets))).connection.broker.port
    assert len(list(dissect(packets, ports={port}))) == 8
    assert list(dissect(packets, ports={port + 1})) == []
    assert len(list(dissect(packets, kafka_ports={port}))) == 8
    run = dissect(packets, ports={port + 1})
    list(run)
    assert run.counts["connections on other ports"] == 1


def test_small_limits_change_the_output_but_nothing_breaks() -> None:
    limits = Limits(frame_bytes=100, resync_bytes=1000, pending_requests=1, naming_rows=1, stream_bytes=2000)
    rows = rows_of(dissect(talk().packets, limits=limits))
    assert {row[:2] for row in rows if row[2] != "orphan"} == {row[:2] for row in EXPECTED}


# What comes live


def test_what_waits_without_packets_is_given_up_when_time_goes_on() -> None:
    """Of a connection that began before the capture, the first segment may have come late."""
    conversation = talk()
    packets = conversation.packets[3:]
    last_ns = packets[-1].time_ns
    reorder_window_ns = LIVE.reorder_window_ns
    met: list[int] = []

    def live() -> Iterator[Packet | IdleTick]:
        yield from packets[:2]
        yield IdleTick(packets[1].time_ns + reorder_window_ns // 2)
        met.append(len(exchanges))
        yield IdleTick(packets[1].time_ns + reorder_window_ns)
        met.append(len(exchanges))
        yield from packets[2:]
        yield IdleTick(last_ns + reorder_window_ns)
        met.append(len(exchanges))

    exchanges: list[Exchange] = []
    for exchange in dissect(live(), limits=LIVE):
        exchanges.append(exchange)  # noqa: PERF402  (its length is read meanwhile)
    assert met == [0, 1, len(exchanges) - 1]
    assert exchanges[-1].kind == UNANSWERED
    assert rows_of(exchanges) == rows_of(dissect(packets))


def test_notices_are_in_order_of_time_and_limited() -> None:
    packets = []
    for hour, host in enumerate(("10.0.0.9", "10.0.0.8", "10.0.0.1")):
        conversation = Talk(
            client=(host, 40001), start_ns=START_NS + hour * 3_600_000 * MILLISECOND
        ).handshake()
        conversation.client_sends(heartbeats(1, first=1)[0])
        conversation.broker_sends(heartbeat_answers(1, first=1)[0])
        conversation.client_skips(100)
        conversation.client_sends(b"\0")
        packets += conversation.packets
    for most in (3, 2, 1, 0):
        dissection = Dissection(packets, Options(limits=Limits(notices=most)))
        assert len(list(dissection)) == dissection.counts["notices"] == 3
        hosts = [notice.partition(":")[0] for notice in dissection.notices]
        assert hosts == ["10.0.0.9", "10.0.0.8", "10.0.0.1"][:most]


def test_a_connection_that_waits_does_not_hold_back_others_for_long() -> None:
    waiting, other = (
        Talk(client=("10.0.0.1", 40001)).handshake(),
        Talk(client=("10.0.0.1", 40002)).handshake(),
    )
    waiting.client_sends(b"".join(heartbeats(1, first=1)))
    waiting.broker_skips(10)
    waiting.broker_sends(b"".join(heartbeat_answers(1, first=1)))
    start_ns = waiting.packets[-1].time_ns
    other.client_sends(b"".join(heartbeats(1, first=2)))
    other.broker_sends(b"".join(heartbeat_answers(1, first=2)))
    late = [packet._replace(time_ns=start_ns + n) for n, packet in enumerate(other.packets, 1)]
    met: list[int] = []
    exchanges: list[Exchange] = []

    def live() -> Iterator[Packet | IdleTick]:
        yield from waiting.packets
        yield from late
        yield IdleTick(late[-1].time_ns + 1)
        met.append(len(exchanges))
        yield IdleTick(late[-1].time_ns + LIVE.order_age_ns + 1)
        met.append(len(exchanges))

    for exchange in dissect(live(), limits=LIVE):
        exchanges.append(exchange)  # noqa: PERF402
    assert met == [0, 1]
    assert exchanges[0].correlation_id == 2
