"""Paths that lose large packets, forget silent connections, or end long polls: packet by packet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frames import FETCH, HEARTBEAT, PRODUCE, heartbeat_answers, heartbeats, request, response
from tests.segments import ACK, FIN, PSH, RST, SYN, Talk
from tests.stats.findings.test_troubles import findings, refused, rules, served, talk

SMALL = heartbeats(1)[0]
FIRST = 1001  # sequence number of the first byte of a client
LARGE = request(
    HEARTBEAT, 4, {"group_id": "g" * 3000, "generation_id": 7, "member_id": "m"}, correlation_id=2
)


def stuck(place: int = 0, *, copies: int = 5, size: int = 1448, small_behind: bool = True) -> Talk:
    """A client whose segments above 500 bytes do not arrive, seen at the client."""
    one = talk(place).handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
    start = FIRST + len(SMALL)
    one.put(0, PSH | ACK, LARGE[:size])
    if small_behind:
        one.put(0, PSH | ACK, LARGE[size : size + 100]).put(1, ACK, acknowledgment=start)
    for number in range(copies):
        one.waits(1 << number).put(0, PSH | ACK, LARGE[:size], sequence=start)
    return one


def test_only_large_segments_are_lost() -> None:
    row, *more = findings(stuck())
    assert (row.rule, row.severity) == ("mtu-black-hole", "warning")
    assert row.message == (
        f"1,448-byte segments of requests never arrive, those of up to {len(SMALL)} bytes do (1 connection)"
    )
    assert all(each.explained_by == "mtu-black-hole" for each in more)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (stuck(copies=2), "TCP had hardly begun to retransmit"),
        (stuck(size=400), "that is not large"),
        (stuck(small_behind=False), "nothing shows that small ones arrive meanwhile"),
    ],
    ids=["few-copies", "small", "all-lost"],
)
def test_other_losses_have_other_reasons(one: Talk, why: str) -> None:
    assert "mtu-black-hole" not in rules(one), why


def test_a_path_that_carries_large_segments_elsewhere_only_lost_some() -> None:
    fine = talk(5).handshake().put(0, PSH | ACK, LARGE[:1448]).put(1, ACK)
    assert "mtu-black-hole" not in rules(stuck(), fine)


def after_silence(seconds: float, *, place: int = 0, copies: int = 4) -> Talk:
    """A request that a client repeats after a silence, without any answer."""
    one = talk(place).handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
    again = heartbeats(1, first=2)[0]
    one.waits(seconds).put(0, PSH | ACK, again)
    for _ in range(copies):
        one.waits(1).put(0, PSH | ACK, again, sequence=FIRST + len(SMALL))
    return one


def test_a_connection_that_was_forgotten() -> None:
    row, *more = findings(after_silence(300), served(1, at_s=330))
    assert (row.rule, row.severity, row.count) == ("idle-connection-dropped", "warning", 1)
    assert row.message == "1 connection dead after 5.0 minutes of silence (no keep-alives), new ones work"
    assert all(each.explained_by == "idle-connection-dropped" for each in more)


def test_what_was_survived_and_keep_alives_are_counted() -> None:
    one = talk(2).handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
    one.waits(60).put(0, ACK, sequence=FIRST + len(SMALL) - 1).put(1, ACK)  # a probe, answered
    (row, *_) = findings(after_silence(300), one, served(1, at_s=330))
    assert "(60.00s survived; 1 keep-alive)" in row.message


def test_a_reset_after_a_silence() -> None:
    one = after_silence(300, copies=0).put(1, RST, acknowledgment=0)
    row, *_ = findings(one, served(1, at_s=330))
    assert (row.rule, row.message) == (
        "idle-connection-dropped",
        "1 connection reset after 5.0 minutes of silence (no keep-alives), new ones work",
    )


@pytest.mark.parametrize(
    "talks",
    [
        (after_silence(300),),
        (after_silence(15), served(1, at_s=330)),
        (after_silence(300, copies=0).broker_sends(heartbeat_answers(1, first=2)[0]), served(1, at_s=330)),
        (
            talk().handshake().client_sends(SMALL).broker_acks().waits(300).put(1, FIN | ACK),
            served(1, at_s=330),
        ),
    ],
    ids=["no-new-connection", "short", "answered", "closed-by-broker"],
)
def test_a_silence_that_is_no_reason(talks: tuple[Talk, ...]) -> None:
    assert "idle-connection-dropped" not in rules(*talks)


def polling(place: int, silence_s: float, *, side: int = 1) -> Talk:
    """A connection that ends while a Fetch waits."""
    one = talk(place, at_s=40 * place).handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0])
    fetch = request(FETCH, 7, {"replica_id": -1, "max_wait_ms": 30_000}, correlation_id=2)
    return one.client_acks().client_sends(fetch).broker_acks().waits(silence_s).put(side, FIN | ACK)


def test_long_polls_that_end_after_the_same_time() -> None:
    row, *_ = findings(*(polling(place, 10) for place in range(3)))
    assert (row.rule, row.severity, row.count) == ("long-polls-cut", "warning", 3)
    assert row.message.startswith("3 connections ended while the broker held a request, each 10.0")


@pytest.mark.parametrize(
    "talks",
    [
        [polling(place, 10) for place in range(2)],
        [polling(place, 10 + 3 * place) for place in range(3)],
        [polling(place, 10, side=0) for place in range(3)],
    ],
    ids=["few", "other-times", "by-client"],
)
def test_long_polls_that_end_for_another_reason(talks: list[Talk]) -> None:
    assert "long-polls-cut" not in rules(*talks)


def test_a_longer_silence_that_was_survived_shows_that_none_is_fatal() -> None:
    one = talk(2).handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
    one.waits(600).client_sends(heartbeats(1, first=2)[0]).broker_sends(heartbeat_answers(1, first=2)[0])
    assert "idle-connection-dropped" not in rules(after_silence(30), one, served(1, at_s=630))


def test_a_forgotten_connection_is_no_black_hole() -> None:
    one = talk().handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
    one.waits(300).put(0, PSH | ACK, LARGE[:1448])
    for _ in range(4):
        one.waits(1).put(0, PSH | ACK, LARGE[:1448], sequence=FIRST + len(SMALL))
    names = rules(one, served(1, at_s=330))
    assert "idle-connection-dropped" in names
    assert "mtu-black-hole" not in names


def test_a_broker_that_crashed_during_a_large_request_is_unreachable() -> None:
    rows = findings(stuck(), *(refused(20 + place, 18 + place) for place in range(3)), served(30, at_s=25))
    explained = {row.rule: row.explained_by for row in rows}
    assert explained["broker-unreachable"] is None
    assert explained["mtu-black-hole"] == "broker-unreachable"


def test_a_hole_is_that_of_the_side_that_sent_it() -> None:
    one = talk().handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
    again = heartbeat_answers(1, first=2)[0]
    one.client_sends(heartbeats(1, first=2)[0]).broker_sends(again).client_skips(1448)
    one.put(0, PSH | ACK, LARGE[1448:1548], acknowledgment=one._next[1] - len(again))
    received = FIRST + 2 * len(SMALL)
    for _ in range(6):
        one.put(1, ACK, acknowledgment=received).waits(2)
    one.reset(0)
    rows = [row for row in findings(one, served(1, at_s=20)) if row.rule == "mtu-black-hole"]
    assert [row.message.partition(" never")[0] for row in rows] == ["1,448-byte segments of requests"]
    assert [row.count for row in rows] == [1]


def test_a_broker_that_stops_ends_all_polls_at_once() -> None:
    def held(place: int) -> Talk:
        one = talk(place).handshake().client_sends(SMALL).broker_sends(heartbeat_answers(1)[0]).client_acks()
        fetch = request(FETCH, 7, {"replica_id": -1, "max_wait_ms": 30_000}, correlation_id=2)
        return one.client_sends(fetch).broker_acks().waits(3).put(1, FIN | ACK)

    assert "long-polls-cut" not in rules(*(held(place) for place in range(3)))


def sent_slowly(
    seconds: float = 0.5,
    *,
    round_trip_s: float = 0.04,
    pieces: int = 30,
    again: int = 0,
    closed_s: int = 0,
    options: tuple[bytes, bytes] = (b"", b""),
    **ends: Any,
) -> Talk:
    """A request that a client far away sends a segment at a time, each after a while, then its response."""
    syn, answer = options
    one = talk(**ends).put(0, SYN, acknowledgment=0, options=syn).waits(round_trip_s)
    one.put(1, SYN | ACK, options=answer).put(0, ACK)
    topics = [{"name": f"{number:01000}", "partition_data": []} for number in range(pieces)]
    body = {"acks": 1, "timeout_ms": 9, "topic_data": topics}
    data = request(PRODUCE, 7, body, correlation_id=1)
    for at in range(0, len(data), 1448):
        one.put(0, PSH | ACK, data[at : at + 1448])
        for _ in range(again):
            one.waits(0.1).put(0, PSH | ACK, data[at : at + 1448], sequence=FIRST + at)
        one.waits(seconds).put(1, ACK)
        if closed_s and not at:
            one.put(1, ACK, window=0).waits(closed_s).put(1, ACK)
    return one.broker_sends(response(PRODUCE, 7, {"responses": []}, correlation_id=1)).finish()


def test_a_window_limits_how_fast_a_message_arrives() -> None:
    (row,) = (row for row in findings(sent_slowly()) if row.rule == "slow-transfer")
    assert (row.severity, row.subject) == ("warning", "client test-client at 10.0.0.1, broker 10.0.0.2:9092")
    begin = "3.0 KB/s while messages were under way, for 10."
    assert row.message.startswith(begin)
    assert ", nothing lost; the window of the broker, 64.2 KB, allows 1.5 MB/s" in row.message
    assert "slow-transfer" in rules(sent_slowly(closed_s=1)), "the window is closed for a small part of it"


SCALE, NO_SCALE = bytes.fromhex("01030302"), bytes.fromhex("020405b4")


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ((SCALE, SCALE), "the window of the broker, 257.0 KB, allows 6.1 MB/s"),
        ((NO_SCALE, NO_SCALE), "the client did not offer window scaling"),
        ((SCALE, NO_SCALE), "the broker did not offer window scaling"),
    ],
    ids=["both", "client", "broker"],
)
def test_who_did_not_offer_window_scaling(options: tuple[bytes, bytes], end: str) -> None:
    one = sent_slowly(options=options)
    (row,) = (row for row in findings(one) if row.rule == "slow-transfer")
    assert row.message.endswith(end)


def test_a_window_that_is_scaled_on_some_connections() -> None:
    scaled = sent_slowly(options=(SCALE, SCALE)), sent_slowly(place=1, options=(NO_SCALE, NO_SCALE))
    (row,) = (row for row in findings(*scaled) if row.rule == "slow-transfer")
    assert row.message.endswith("the window of the broker, 257.0 KB, allows 6.1 MB/s")


def test_windows_of_several_clients_say_nothing_together() -> None:
    far = sent_slowly(round_trip_s=0.08, options=(NO_SCALE, NO_SCALE))
    near = sent_slowly(client="10.0.0.3", options=(SCALE, SCALE))
    (row,) = (row for row in findings(near, far) if row.rule == "slow-transfer")
    assert row.message.endswith("nothing lost")
    assert [each.message.rpartition("lost; ")[2] for each in row.parts] == [
        "the window of the broker, 64.2 KB, allows 783.4 KB/s, the client did not offer window scaling",
        "the window of the broker, 257.0 KB, allows 6.1 MB/s",
    ]


def test_without_a_syn_the_window_is_unknown() -> None:
    one = sent_slowly()
    del one.packets[:2]
    assert "window unknown without the SYN" in "".join(
        row.message for row in findings(one) if row.rule == "slow-transfer"
    )


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (sent_slowly(0.1), "that is soon over"),
        (sent_slowly(round_trip_s=0.001), "so near, no window is as small"),
        (sent_slowly(again=1), "segments are lost"),
        (sent_slowly(closed_s=4), "the broker does not read"),
    ],
    ids=["short", "near", "lossy", "closed"],
)
def test_messages_that_are_slow_for_another_reason_or_soon_over(one: Talk, why: str) -> None:
    assert "slow-transfer" not in rules(one), why
