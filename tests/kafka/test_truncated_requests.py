"""Requests truncated inside their header: what the first bytes show, and what confirms them."""

from __future__ import annotations

import struct

import pytest

from kdissect.kafka.recognition import (
    Beginning,
    can_be_request,
    is_row_of_requests,
    read_beginning,
)
from kdissect.kafka.resync import Search
from kdissect.limits import DEFAULT
from tests.frames import FETCH, HEARTBEAT, data, frame, gap, request

CLIENT = "a-client-whose-name-is-long"


def beat(correlation_id: int, client_id: str = CLIENT) -> bytes:
    body = {"group_id": "group", "generation_id": 7, "member_id": "member-1"}
    return request(HEARTBEAT, 4, body, correlation_id=correlation_id, client_id=client_id)


def cut(*payloads: bytes, to: int = 30) -> Search:
    search = Search(DEFAULT)
    for number, payload in enumerate(payloads, 1):
        search.feed(data(payload[:to], number))
        search.feed(gap(len(payload) - to, "cut"))
    return search


def test_a_header_is_read_as_far_as_it_goes() -> None:
    frame_bytes = beat(9)
    assert read_beginning(frame_bytes[:30], 10_000) == Beginning(
        len(frame_bytes) - 4, 9, b"\0\x1ba-client-whose-n"
    )
    assert read_beginning(frame_bytes[:14], 10_000) == Beginning(len(frame_bytes) - 4, 9, b"\0\x1b")
    assert read_beginning(frame_bytes, 10_000) == Beginning(
        len(frame_bytes) - 4, 9, b"\0\x1b" + CLIENT.encode()
    )
    assert read_beginning(frame_bytes[:13], 10_000) is None


def test_a_letter_of_two_bytes_may_be_cut() -> None:
    frame_bytes = beat(1, client_id="é" * 20)
    assert read_beginning(frame_bytes[:15], 10_000)
    assert read_beginning(frame_bytes[:16], 10_000)


@pytest.mark.parametrize(
    "fields",
    [
        (5, HEARTBEAT, 4, 1, 27),  # too small for its client ID
        (20_000, HEARTBEAT, 4, 1, 27),
        (60, 700, 4, 1, 27),
        (60, HEARTBEAT, 99, 1, 27),
        (60, HEARTBEAT, 4, -1, 27),
        (60, HEARTBEAT, 4, 1, 0),
        (60, HEARTBEAT, 4, 1, -1),
        (600, HEARTBEAT, 4, 1, 300),
    ],
)
def test_what_cannot_be_a_header_is_none(fields: tuple[int, ...]) -> None:
    assert read_beginning(struct.pack(">ihhih", *fields) + b"client", 10_000) is None


def test_a_client_id_is_text() -> None:
    head = struct.pack(">ihhih", 60, HEARTBEAT, 4, 1, 27)
    assert read_beginning(head + b"\0\1\2", 10_000) is None
    assert read_beginning(head + b"\xff\xfe", 10_000) is None


def test_three_requests_in_a_row_are_believed_and_two_are_waited_for() -> None:
    requests = [beat(number) for number in (4, 5, 9)]
    assert is_row_of_requests(cut(*requests), 0) is True
    assert is_row_of_requests(cut(*requests, to=14), 0) is True
    two = cut(*requests[:2])
    assert is_row_of_requests(two, 0) == two.end + 14
    two.feed(data(requests[2][:10], 3))
    assert is_row_of_requests(two, 0) == len(requests[0] + requests[1]) + 14


def test_what_does_not_go_on_is_no_row() -> None:
    assert is_row_of_requests(cut(beat(4), beat(5), beat(4)), 0) is False
    assert is_row_of_requests(cut(beat(4), beat(5), beat(60_000)), 0) is False
    assert is_row_of_requests(cut(beat(4), beat(5), beat(6, client_id="b" + CLIENT[1:])), 0) is False
    assert is_row_of_requests(cut(beat(4), beat(5), beat(6), to=12), 0) is False
    assert is_row_of_requests(cut(beat(4), b"\0" + beat(5), beat(6)), 0) is False
    assert is_row_of_requests(cut(beat(4), beat(5), beat(6)), 1) is False


def test_a_frame_is_a_request_as_far_as_it_goes() -> None:
    payload = beat(1)[4:]
    assert can_be_request(frame(payload))
    assert can_be_request(frame(payload[:20], size=len(payload)))
    assert not can_be_request(frame(payload[:20]))
    token = b"n,,n=alice,r=fyko+d2lbbFgONRv9qkxdawL"
    assert not can_be_request(frame(token))
    assert not can_be_request(frame(token[:20], size=len(token)))
    assert not can_be_request(frame(request(FETCH, 4)[4:8], size=60))
