from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import core
from kdissect.net.connection import USUAL, Connections, payloads
from kdissect.net.tcp import Segments
from tests.connections import in_one_piece
from tests.segments import ACK, COOKED, ETHERNET, MILLISECOND, PSH, START_NS, Talk

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Packet
    from kdissect.net.connection import Event

SENT = bytes(range(250)) * 4
NEVER_NS = START_NS * 2


def talk() -> Talk:
    """Ten packets of a hundred bytes."""
    return Talk(mss=100).client_sends(SENT)


def run_of(packets: list[Packet], now_ns: int = START_NS, until_ns: int = NEVER_NS) -> bytes:
    """Payloads of the packets that continue the first one."""
    block = in_one_piece(packets)
    fields = list(USUAL.unpack_from(packets[0].data))
    fields[4] = (fields[4] + 100) % (1 << 32)
    run = (0, 54, 154), tuple(fields), now_ns, until_ns
    joined, count = payloads(block.data, block.places[1:], *run)  # type: ignore[arg-type]
    assert count == len(joined) / 100
    if core.is_used:
        places = core.native.Places(block.places[1:])
        assert core.native.payloads(block.data, places, *run) == (joined, count)
    return joined


def test_a_run_goes_on_to_its_last_packet() -> None:
    assert run_of(talk().packets) == SENT[100:]


def test_sequence_numbers_begin_anew() -> None:
    packets = Talk(mss=100, client_start=(1 << 32) - 250).client_sends(SENT).packets
    assert run_of(packets) == SENT[100:]


def other_flags(packet: Packet) -> Packet:
    data = bytearray(packet.data)
    data[47] = ACK | PSH if data[47] == ACK else ACK
    return packet._replace(data=bytes(data))


def with_byte(place: int) -> Callable[[Packet], Packet]:
    def change(packet: Packet) -> Packet:
        data = bytearray(packet.data)
        data[place] ^= 1
        return packet._replace(data=bytes(data))

    return change


ENDINGS: dict[str, Callable[[Packet], Packet]] = {
    "an ethertype": with_byte(13),
    "a length": with_byte(17),
    "a fragment": with_byte(21),
    "a protocol": with_byte(23),
    "an address": with_byte(29),
    "a port": with_byte(35),
    "a sequence number": with_byte(41),
    "an acknowledgment": with_byte(45),
    "a header length": lambda packet: packet._replace(data=packet.data[:46] + b"\x60" + packet.data[47:]),
    "flags": other_flags,
    "a cut": lambda packet: packet._replace(data=packet.data[:-1]),
    "time goes back": lambda packet: packet._replace(time_ns=packet.time_ns - 2 * MILLISECOND),
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_a_run_ends_with_what_is_not_of_it(kind: str) -> None:
    packets = talk().packets
    packets[5] = ENDINGS[kind](packets[5])
    assert run_of(packets) == SENT[100:500]


def test_a_run_ends_before_a_time() -> None:
    packets = talk().packets
    assert run_of(packets, until_ns=packets[3].time_ns) == SENT[100:300]


def fed(packets: list[Packet], count: int, *, at_once: bool) -> tuple[list[Event], Connections]:
    """Events for a reader that always expects ``count`` bytes together."""
    connections, segments = Connections(), Segments()
    out: list[Event] = []
    for block in [packets] if at_once else [[packet] for packet in packets]:
        joined = in_one_piece(block)
        if core.is_used:
            joined = joined._replace(places=core.native.Places(joined.places))
        for events in connections.feed_block(joined, segments.feed):
            for connection, side, item in events:
                connection.expect(side, count)
                out.append((connection, side, item))
    return out + connections.close(packets[-1].time_ns), connections


@given(
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from(sorted(ENDINGS))), max_size=3),
    st.sampled_from([0, 150, 300, 450, 2000]),
    st.sampled_from([ETHERNET, COOKED]),
    st.booleans(),
)
def test_a_run_gives_the_same_as_its_packets_one_by_one(
    changes: list[tuple[int, str]], expected: int, link_type: int, acks: bool
) -> None:
    conversation = Talk(mss=100, link_type=link_type).handshake()
    for place in range(3):
        conversation.client_sends(SENT[place * 400 : place * 400 + 400])
        if acks:
            conversation.broker_acks()
    packets = conversation.finish().packets
    for place, kind in changes:
        packets[3 + place] = ENDINGS[kind](packets[3 + place])
    (events, connections), (others, other_connections) = (
        fed(packets, expected, at_once=at_once) for at_once in (True, False)
    )
    assert [event[1:] for event in events] == [event[1:] for event in others]
    assert connections.counts == other_connections.counts
