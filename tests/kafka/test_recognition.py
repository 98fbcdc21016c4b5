"""What is Kafka and what is not; and where frames begin in the middle of a stream."""

from __future__ import annotations

import struct
from random import Random

import pytest

from kdissect.kafka.framing import Framing
from kdissect.kafka.recognition import (
    is_first_request,
    locate_request,
    locate_response,
    locate_response_chain,
)
from kdissect.kafka.resync import Lost, Search
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Frame
from tests.frames import (
    FETCH,
    HEARTBEAT,
    PRODUCE,
    data,
    gap,
    heartbeat_answers,
    heartbeats,
    joined,
    request,
    response,
)

NOISE = Random(7).randbytes(3000)

OTHER_PROTOCOLS = {
    "MongoDB": struct.pack("<iiii", 0x3A, 1, 0, 2013)
    + b"\0" * 4
    + b"\0"
    + b"\x21\0\0\0\x10isMaster\0\1\0\0\0"
    + b"\0" * 20,
    "MySQL": b"\x4a\0\0\0\x0a8.0.36\0" + bytes(60),
    "AMQP": b"AMQP\0\0\x09\x01" + bytes(20),
    "NFS": struct.pack(">IIIIIIII", 0x80000028, 0x1234, 0, 2, 100003, 3, 0, 0) + bytes(24),
    "Thrift": struct.pack(">iI", 29, 0x80010001) + b"\0\0\0\x04ping\0\0\0\0\0" + bytes(8),
    "RTMP": b"\x03" + bytes(8) + Random(1).randbytes(1528),
    "DRDA": bytes.fromhex("0026d0410001002010410010115e8482a5a38581") + bytes(20),
    "OpenWire": struct.pack(">ib", 240, 1) + b"ActiveMQ" + struct.pack(">ib", 12, 1) + bytes(227),
    "HTTP": b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "ZooKeeper": struct.pack(">iiqiqi", 45, 0, 0, 30_000, 0, 16) + bytes(17),
    "SMPP": struct.pack(">iiii", 47, 9, 0, 1) + b"smppclient1\0password\0\0\x34\0\0\0" + bytes(6),
    "PostgreSQL": struct.pack(">ii", 41, 196608) + b"user\0postgres\0database\0orders\0\0" + bytes(1),
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "zeros": bytes(5000),
    "noise": NOISE,
}


def search(*items: bytes, at_start: bool = False) -> Search:
    held = Search(DEFAULT, at_start=at_start)
    for number, item in enumerate(items, 1):
        held.feed(data(item, number))
    return held


def begins(held: Search, *, final: bool = False) -> bool | None:
    assert held.first_run is not None
    return is_first_request(held, held.first_run, final)


@pytest.mark.parametrize("size", [5000, 80_000])
@pytest.mark.parametrize("client_id", ["shop", "\x01\x02", None])
def test_a_long_first_request_is_decided_as_if_its_packets_came_together(
    size: int, client_id: str | None
) -> None:
    """Most of them change nothing, so it is not decoded again for each."""
    records = Random(7).randbytes(size)
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"records": records}]}]}
    payload = request(PRODUCE, 9, body, client_id=client_id)
    packets = [payload[start : start + 1000] for start in range(0, len(payload), 1000)]
    growing = Search(DEFAULT, at_start=True)
    for number, packet in enumerate(packets, 1):
        growing.feed(data(packet))
        together = search(b"".join(packets[:number]), at_start=True)
        assert begins(growing) == begins(together)
        if (
            number == 40 and client_id != "\x01\x02"
        ):  # at most: a prefix of each of the first packets, until it is complete
            assert growing.effort < 20_000


@pytest.mark.parametrize(("client_id", "decision"), [("shop", True), ("\x01\x02", None), (None, False)])
def test_a_gap_in_a_long_first_request_decides_at_once(client_id: str | None, decision: bool | None) -> None:
    body = {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"records": NOISE * 20}]}]}
    payload = request(PRODUCE, 9, body, client_id=client_id)
    growing = Search(DEFAULT, at_start=True)
    for start in range(0, 5000, 1000):
        growing.feed(data(payload[start : start + 1000]))
        assert begins(growing) is None
    together = search(payload[:5000], at_start=True)
    for each in (growing, together):
        each.feed(gap(1))
        each.feed(data(payload[5001:6000]))
    assert begins(growing) is begins(together) is decision


@pytest.mark.parametrize("name", OTHER_PROTOCOLS)
def test_other_protocols_are_not_taken_for_kafka(name: str) -> None:
    payload = OTHER_PROTOCOLS[name]
    for pieces in ([payload], [payload[i : i + 7] for i in range(0, len(payload), 7)]):
        held = search(*pieces, at_start=True)
        assert not begins(held)
        assert locate_request(search(*pieces)) is None
        assert begins(held, final=True) is False


@pytest.mark.parametrize("snaplen", [12, 14, 20, 30, 42])
@pytest.mark.parametrize("name", OTHER_PROTOCOLS)
def test_other_protocols_that_a_snaplen_cut_are_not_taken_for_kafka(name: str, snaplen: int) -> None:
    payload = OTHER_PROTOCOLS[name]
    if len(payload) <= snaplen:
        return
    for at_start in (True, False):
        held = Search(DEFAULT, at_start=at_start)
        for number in range(1, 5):
            held.feed(data(payload[:snaplen], number))
            held.feed(gap(len(payload) - snaplen, "cut"))
        if at_start:
            assert held.first_run is not None
            for answer in (None, search(payload[:8])):
                assert not is_first_request(held, held.first_run, True, answer)
        assert locate_request(held) is None


def test_a_first_request_is_recognized_at_once_and_only_when_whole() -> None:
    payload = heartbeats(1)[0]
    for end in range(1, len(payload)):
        assert begins(search(payload[:end], at_start=True)) is None
    assert begins(search(payload, at_start=True))


def test_a_first_request_cut_by_a_snaplen_is_believed_for_its_header() -> None:
    payload = heartbeats(1)[0]
    held = search(payload[:30], at_start=True)
    held.feed(gap(len(payload) - 30, "cut"))
    assert begins(held)


@pytest.mark.parametrize("offset", [0, 1, 3, 17, 60, 99, 500])
def test_mid_stream_the_next_request_is_located_by_its_content(offset: int) -> None:
    produce = request(
        PRODUCE, 9, {"acks": 1, "topic_data": [{"name": "orders", "partition_data": [{"records": NOISE}]}]}
    )
    stream = produce[offset:] + joined(heartbeats(3, first=2))
    place = locate_request(search(stream))
    assert place == (0 if offset == 0 else len(produce) - offset)


def test_a_chain_of_cut_frames_confirms_itself() -> None:
    one = heartbeats(1)[0]
    held = Search(DEFAULT)
    for number in range(3):
        held.feed(data(one[:40], number))
        held.feed(gap(len(one) - 40, "cut"))
    assert locate_request(held) == 0


def located(
    held: Search, ids: tuple[int | None, int | None], *, api: int = HEARTBEAT, version: int = 4
) -> int | None:
    """Where a response to any id in between stands."""
    least, greatest = min(one or 0 for one in ids), max(one or 0 for one in ids)
    return locate_response(held, lambda one: (api, version) if least <= one <= greatest else None, ids)


def test_responses_are_located_by_the_waiting_requests() -> None:
    stream = NOISE + joined(heartbeat_answers(4, first=1000))
    assert located(search(stream), (1000, 1003)) == len(NOISE)
    assert located(search(NOISE), (1000, 1003)) is None


@pytest.mark.parametrize(
    "ids", [(1000, 1003), (7, 500), (1000, 2**31 - 1), (2**31 - 1, 1000), (None, 1000), (-4, 1000)]
)
def test_any_correlation_ids_may_wait(ids: tuple[int | None, int | None]) -> None:
    stream = NOISE + joined(heartbeat_answers(1, first=1000))
    assert located(search(stream), ids) == (None if ids == (7, 500) else len(NOISE))


def test_a_response_located_before_its_request_is_searched_again() -> None:
    held = search(NOISE, heartbeat_answers(1, first=9)[0])
    assert located(held, (8, 8)) is None
    assert located(held, (8, 9)) is None
    held.rescan()
    assert located(held, (8, 9)) == len(NOISE)


def test_a_response_must_decode_as_the_request_requires_or_be_followed_by_another() -> None:
    body = {"responses": [{"topic": "orders", "partitions": [{"records": NOISE}]}]}
    answer = response(FETCH, 11, body, correlation_id=5)
    held = search(NOISE[:100] + answer)
    assert located(held, (5, 5), api=FETCH, version=11) == 100
    for version in (4, 99):
        held = search(NOISE[:100] + answer)
        assert located(held, (5, 5), api=FETCH, version=version) is None
        held = search(NOISE[:100], answer)
        assert located(held, (5, 5), api=FETCH, version=version) is None
        held.feed(data(heartbeat_answers(1, first=6)[0]))
        assert located(held, (5, 5), api=FETCH, version=version) == 100


def test_responses_alone_are_believed_when_three_chain() -> None:
    answers = heartbeat_answers(3, first=41)
    assert locate_response_chain(search(NOISE[:10], *answers)) == 10
    assert locate_response_chain(search(NOISE[:10], *answers[:2])) is None
    assert locate_response_chain(search(answers[0], answers[2], answers[1])) is None
    held = search(NOISE[:10])
    for place, answer in zip((None, None, 10), answers, strict=True):
        held.feed(data(answer))
        assert locate_response_chain(held) == place


def test_through_framing_a_mid_stream_start_costs_the_bytes_before_the_boundary() -> None:
    stage = Framing(DEFAULT, lambda search, _: locate_request(search))
    stream = NOISE[:777] + joined(heartbeats(2))
    out = [frame for i in range(0, len(stream), 100) for frame in stage.feed(data(stream[i : i + 100], i))]
    assert out[0] == Lost(0, 777)
    assert [frame.data for frame in out[1:] if isinstance(frame, Frame)] == [
        beat[4:] for beat in heartbeats(2)
    ]


TRAPS = {
    "noise": NOISE * 100,
    "zeros": bytes(300_000),
    "frames that never end": (struct.pack(">ihhih", 120_000_000, 3, 9, 1, 1) + b"a\0") * 20_000,
    "frames of a fourth of the search": (struct.pack(">ihhih", 60_000, 1, 5, 1, 1) + bytes(9)) * 15_000,
    "responses to all": struct.pack(">ii", 100_000, 5) * 40_000,
    "responses with zeros": (struct.pack(">ii", 100_000, 5) + bytes(100)) * 3_000,
}


@pytest.mark.parametrize("size", [1448, 30])
@pytest.mark.parametrize("name", TRAPS)
def test_a_search_in_vain_looks_at_each_byte_a_few_times_only(name: str, size: int) -> None:
    limits = Limits(resync_bytes=256 * 1024)
    held = Search(limits)
    stream = TRAPS[name]
    outstanding = 0

    def api_of(correlation_id: int) -> tuple[int, int] | None:
        nonlocal outstanding
        outstanding += 1
        return (FETCH, 11) if correlation_id == 5 else None

    for start in range(0, len(stream), size):
        held.feed(data(stream[start : start + size]))
        assert locate_request(held) is None
        assert locate_response(held, api_of, (1, 200)) is None
        assert locate_response_chain(held) is None
        assert held.held <= limits.resync_bytes
    assert held.effort <= 100 * len(stream) + 2 * limits.resync_bytes
    assert outstanding <= 2 * len(stream)


def test_packets_without_any_captured_payload_take_no_room() -> None:
    held = search()
    for number in range(100_000):
        held.feed(gap(1448, "cut", number))
    assert held.held < 1000
    assert held.cut(held.end)[0] == Lost(144_800_000, 0)


def test_an_old_answer_is_not_taken_for_a_request() -> None:
    """With correlation id 0 an OffsetCommit 0 is answered by the bytes of a Produce 0 of client "spread"."""
    partition = {"partition_index": 0, "error_code": 0}
    answered = {"topics": [{"name": "spread", "partitions": [partition]}]}
    answer = response(8, 0, answered, correlation_id=0)
    assert locate_request(search(*[answer] * 5)) is None
    written = {"acks": 0, "timeout_ms": 1, "topic_data": [{"name": "spread", "partition_data": []}]}
    outstanding = request(PRODUCE, 0, written, correlation_id=1, client_id="shop")
    assert locate_request(search(outstanding, outstanding)) == 0
