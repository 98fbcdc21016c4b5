from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.limits import Limits
from kdissect.model import Closed, Data, Packet
from kdissect.net.connection import Connections
from tests.connections import SECOND, chatter, exchanges, run, script
from tests.segments import ACK, MILLISECOND, RST, START_NS, SYN, Talk, ipv4, link

VXLAN = bytes.fromhex("c93b12b5 00000000 08000000 00000700")
ANSWERED = [">ask", "<answer"]


def in_vxlan(packet: Packet) -> Packet:
    """The packet as captured on the interface below an overlay network."""
    data = link(ipv4("192.0.2.1", "192.0.2.2", VXLAN + packet.data, protocol=17))
    return packet._replace(data=data, length=len(data))


def with_other_addresses(packet: Packet) -> Packet:
    """The packet after a bridge, with other Ethernet addresses."""
    return packet._replace(data=b"\2\0\0\0\0\7" + packet.data[6:])


def shifted(packets: list[Packet], offset_ns: int) -> list[Packet]:
    """The same packets in another capture, whose clock differs."""
    return [packet._replace(time_ns=packet.time_ns + offset_ns) for packet in packets]


def merged(*captures: list[Packet]) -> list[Packet]:
    return sorted((packet for packets in captures for packet in packets), key=lambda packet: packet.time_ns)


def ended(talk: Talk, reason: str) -> Talk:
    if reason == "fin":
        talk.finish()
    elif reason == "reset":
        talk.reset()
    return talk


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("reason", ["fin", "reset", "end"])
def test_every_packet_several_times(copies: int, reason: str) -> None:
    talk = ended(exchanges(Talk().handshake(), 3), reason)
    for other in (in_vxlan, with_other_addresses):
        for first, second in ((other, lambda packet: packet), (lambda packet: packet, other)):
            packets = [
                each for packet in talk.packets for each in (first(packet), *[second(packet)] * copies)
            ]
            connections = Connections()
            assert script(run(packets, connections=connections)) == [*ANSWERED * 3, reason]
            assert connections.counts["connections"] == 1
            assert connections.counts["repeated_segments"] >= 8 * copies
            assert connections.counts["retransmitted_bytes"] == 27 * copies


@pytest.mark.parametrize("offset_ns", [0, 1, 5 * MILLISECOND, 300 * MILLISECOND, 2 * SECOND, 50 * SECOND])
@pytest.mark.parametrize("reason", ["fin", "reset"])
def test_two_captures_whose_clocks_differ(offset_ns: int, reason: str) -> None:
    talk = ended(exchanges(Talk(step_ns=20 * MILLISECOND).handshake(), 20), reason)
    others = chatter(2000, start_ns=START_NS + 1)
    connections = Connections()
    packets = merged(talk.packets, shifted(talk.packets, offset_ns), others)
    lines = script(run(packets, connections=connections))
    assert lines == [*[f"40000 {each}" for each in ANSWERED * 20], f"40000 {reason}", "50000 end"]
    assert connections.counts["connections"] == 2


@pytest.mark.parametrize("after_ns", [MILLISECOND, SECOND])
def test_who_was_refused_may_try_again_with_the_same_number(after_ns: int) -> None:
    refused = Talk()
    refused.put(0, SYN, acknowledgment=0).put(1, RST | ACK, sequence=0)
    again = exchanges(Talk(start_ns=refused.time_ns + after_ns).handshake()).finish()
    others = chatter(900, start_ns=START_NS + 2)
    lines = [each for each in script(run(merged(refused.packets, again.packets, others))) if each < "5"]
    assert lines == ["40000 reset", "40000 >ask", "40000 <answer", "40000 fin"]


@pytest.mark.parametrize("offset_ns", [0, 5 * MILLISECOND, 2 * SECOND])
def test_who_was_refused_is_counted_once(offset_ns: int) -> None:
    refused = Talk().put(0, SYN, acknowledgment=0).put(1, RST | ACK, sequence=0)
    packets = merged(refused.packets, shifted(refused.packets, offset_ns))
    assert script(run(packets)) == ["reset"]
    others = chatter(900, start_ns=START_NS + 2)
    assert script(run(merged(packets, others))) == ["40000 reset", "50000 end"]


@pytest.mark.parametrize("reason", ["fin", "reset", "reused"])
@pytest.mark.parametrize("offset_ns", [0, 5 * MILLISECOND, 400 * MILLISECOND, 3 * SECOND])
def test_ends_used_again_while_the_other_capture_is_late(reason: str, offset_ns: int) -> None:
    first = ended(exchanges(Talk(step_ns=10 * MILLISECOND).handshake(), 10), reason)
    second = exchanges(
        Talk(
            client_start=77_000_000,
            broker_start=99_000_000,
            start_ns=first.time_ns + 100 * MILLISECOND,
            step_ns=10 * MILLISECOND,
        ).handshake(),
        30,
    ).finish()
    packets = [*first.packets, *second.packets]
    others = chatter(1500, start_ns=START_NS + 1)
    connections = Connections()
    events = run(merged(packets, shifted(packets, offset_ns), others), connections=connections)
    lines = [each[6:] for each in script(events) if each.startswith("40000")]
    assert lines == [*ANSWERED * 10, reason, *ANSWERED * 30, "fin"]
    assert connections.counts["connections"] == 3


def test_a_reset_of_the_connection_before_ends_nothing() -> None:
    first = exchanges(Talk(client_start=500_000_000, broker_start=600_000_000).handshake()).reset()
    second = exchanges(Talk(start_ns=first.time_ns + MILLISECOND).handshake())
    stale = first.packets[-1]
    more = exchanges(second).finish().packets
    connections = Connections()
    packets = [*first.packets, *more[:5], stale, *more[5:]]
    assert script(run(packets, connections=connections)) == [
        *ANSWERED,
        "reset",
        *ANSWERED * 2,
        "fin",
    ]
    assert connections.counts["segments_after_close"] == 2  # and the last acknowledgment of all


def test_a_reset_from_far_away_is_not_believed() -> None:
    talk = exchanges(Talk(client_start=1_000_000_000).handshake())
    talk.put(0, RST, sequence=3_000_000_000)
    talk.put(0, RST | ACK, sequence=0, acknowledgment=3_000_000_000)
    exchanges(talk).finish()
    connections = Connections()
    assert script(run(talk.packets, connections=connections)) == [*ANSWERED * 2, "fin"]
    assert connections.counts["stray_segments"] == 2
    answer = exchanges(Talk().handshake())
    answer.put(1, RST | ACK, sequence=0)  # to a segment that acknowledged nothing
    assert script(run(answer.packets)) == [*ANSWERED, "reset"]


def test_memory_of_closed_connections_is_limited() -> None:
    def copies_begin(limits: Limits) -> int:
        connections = Connections(limits)
        first = [
            exchanges(Talk(("10.0.0.1", port), start_ns=START_NS + port * SECOND).handshake()).finish()
            for port in range(1, 31)
        ]
        others = chatter(5000, start_ns=START_NS + 31 * SECOND)
        late = [shifted(talk.packets, 40 * SECOND) for talk in first]
        run(merged(*(talk.packets for talk in first), others, *late), connections=connections)
        assert len(connections._ended._ended) <= limits.ended_connections
        return connections.counts["connections"] - 31

    assert copies_begin(Limits()) == 0
    assert copies_begin(Limits(ended_connections=10)) == 30
    assert copies_begin(Limits(ended_age_ns=SECOND)) == 30


def test_connections_closed_long_ago_are_forgotten() -> None:
    connections = Connections(Limits(ended_age_ns=10 * SECOND))
    for port in range(1, 101):
        talk = Talk(("10.0.0.1", port), start_ns=START_NS + port * SECOND).handshake().finish()
        run(talk.packets, connections=connections)
        assert len(connections._ended._ended) <= 21


def test_more_than_2_gib_and_then_its_last_segments_again() -> None:
    talk = Talk().handshake()
    for _ in range(300):
        talk.client_skips(8 << 20).client_sends(b"x").client_sends(b"y").broker_acks()
    talk.finish()
    others = chatter(900, start_ns=talk.time_ns)
    again = shifted(talk.packets[-20:], 2 * SECOND)
    connections = Connections()
    run([*talk.packets, *others, *again], connections=connections)
    assert connections.counts["connections"] == 2


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=10),
    st.integers(-30 * SECOND, 30 * SECOND),
    st.sampled_from([MILLISECOND, 40 * MILLISECOND, SECOND]),
    st.sampled_from(["fin", "reset"]),
    st.integers(0, 2**32 - 1),
)
def test_two_captures_give_what_one_does(
    messages: list[tuple[int, int]], offset_ns: int, step_ns: int, reason: str, seed: int
) -> None:
    random = Random(seed)
    talk = Talk(
        mss=25, step_ns=step_ns, client_start=random.getrandbits(32), broker_start=random.getrandbits(32)
    ).handshake()
    for request, response in messages:
        talk.client_sends(random.randbytes(request)).broker_sends(random.randbytes(response))
    ended(talk, reason)
    other = [in_vxlan(packet) for packet in shifted(talk.packets, offset_ns)]
    others = chatter(600, start_ns=START_NS - 30 * SECOND)
    others = [packet._replace(time_ns=START_NS + (n - 100) * SECOND // 8) for n, packet in enumerate(others)]
    once = [item.payload for _, _, item in run(talk.packets) if isinstance(item, Data)]
    events = [event for event in run(merged(talk.packets, other, others)) if event[0].ends[0].port != 50_000]
    received = b"".join(item.payload for _, _, item in events if isinstance(item, Data))
    assert received == b"".join(once)
    assert [item.reason for _, _, item in events if isinstance(item, Closed)] == [reason]


def test_fin_again_and_payload_after_the_end() -> None:
    talk = exchanges(Talk().handshake()).finish()
    late = [talk.packets[0], *talk.packets[3:5], talk.packets[5]]
    others = chatter(900, start_ns=talk.time_ns)
    connections = Connections()
    lines = script(run([*talk.packets, *others, *shifted(late, SECOND)], connections=connections))
    assert lines == ["40000 >ask", "40000 <answer", "40000 fin", "50000 end"]
    assert connections.counts["segments_after_close"] == 5


@given(st.integers(0, 2**32), st.sampled_from([0, 5 * MILLISECOND, 40 * MILLISECOND]))
def test_what_one_capture_missed_the_other_has(seed: int, offset_ns: int) -> None:
    random = Random(seed)
    talk = exchanges(Talk(step_ns=10 * MILLISECOND).handshake(), 30).finish()
    missed = [random.choice((0, 0, 1, 2)) for _ in talk.packets]
    both = [
        [packet for packet, by in zip(talk.packets, missed, strict=True) if by != capture]
        for capture in (1, 2)
    ]
    connections = Connections()
    lines = script(run(merged(both[0], shifted(both[1], offset_ns)), connections=connections))
    assert lines == [*ANSWERED * 30, "fin"]
    assert connections.counts["connections"] == 1
