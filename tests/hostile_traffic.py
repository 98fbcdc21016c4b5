"""Random captures of what kdissect was attacked with: connections that are hard to tell apart, clocks that
are set back, many held bytes, and long names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.frames import API_VERSIONS, HEARTBEAT, PRODUCE, request, response
from tests.lifetimes import lifetimes
from tests.segments import MILLISECOND, START_NS, Talk

if TYPE_CHECKING:
    from random import Random

    from kdissect.model import Packet

    Timed = list[tuple[int, bytes]]

SECOND = 1000 * MILLISECOND
_TICKS_NS = (1 << 80, 3600 * SECOND, SECOND, 20 * MILLISECOND)
_ADDRESSES, _PORTS = slice(26, 34), slice(34, 38)  # in Ethernet and IPv4
_SEQUENCE, _ACKNOWLEDGMENT = 38, 42
_ASTRAL = "\U0001f600"


def coarse(packets: Timed, tick_ns: int) -> Timed:
    """Packets with times that are rounded down; with the longest tick, they have none."""
    return [(time_ns - time_ns % tick_ns, data) for time_ns, data in packets]


def set_back(packets: Timed, random: Random) -> Timed:
    """Packets of a machine whose clock is set back a few times."""
    result, back_ns = [], 0
    for time_ns, data in packets:
        if random.random() < 3 / len(packets):
            back_ns += random.choice((1, 10, 4000)) * SECOND
        result.append((max(0, time_ns - back_ns), data))
    return result


def to_itself(packets: Timed, random: Random, rate: float = 1.0) -> Timed:
    """Packets in which some addresses and ports of both ends are the same."""
    result = []
    for time_ns, data in packets:
        changed = bytearray(data)
        if len(data) >= _PORTS.stop and random.random() < rate:
            changed[_ADDRESSES] = b"\x7f\0\0\1" * 2
            changed[_PORTS] = b"\x9c\x40" * 2
        result.append((time_ns, bytes(changed)))
    return result


def begin_again(packets: Timed, random: Random) -> Timed:
    """The same packets a few times, with other sequence numbers, and so of other connections."""
    result = []
    for number in range(random.randint(2, 4)):
        for time_ns, data in packets:
            changed = bytearray(data)
            for place in (_SEQUENCE, _ACKNOWLEDGMENT):
                changed[place] = (changed[place] + 64 * number) & 0xFF
            result.append((time_ns, bytes(changed)))
    return result


def held(random: Random, connections: int, size: int) -> Timed:
    """Requests of about this size, which are outstanding on all of so many connections at the same time."""
    packets: list[Packet] = []
    for number in range(connections):
        begin_ns = START_NS + random.randrange(connections) * MILLISECOND
        talk = Talk(("10.0.0.1", 40_000 + number), start_ns=begin_ns, mss=16_000).handshake()
        talk.client_sends(request(API_VERSIONS, 0)).broker_sends(response(API_VERSIONS, 0))
        sent = range(2, 2 + random.randint(1, 8))
        for correlation_id in sent:
            talk.waits(random.random())
            if random.random() < 0.6:
                body = {"acks": 1, "transactional_id": "t" * min(size, 30_000)}
                talk.client_sends(request(PRODUCE, 8, body, correlation_id=correlation_id))
            else:
                talk.client_sends(request(HEARTBEAT, 0, correlation_id=correlation_id))
        if random.random() < 0.7:
            talk.waits(random.random())
            for correlation_id in sent:
                talk.broker_sends(response(HEARTBEAT, 0, correlation_id=correlation_id))
        packets += talk.packets
    packets.sort(key=lambda packet: packet.time_ns)
    return [(packet.time_ns, packet.data) for packet in packets]


def long_names(random: Random, connections: int) -> Timed:
    """Client IDs and groups of up to 32 KB, some with a character beyond U+FFFF."""
    packets: list[Packet] = []
    for number in range(connections):
        name = random.choice("ab") * random.choice((10, 1000, 1025, 30_000)) + random.choice(("", _ASTRAL))
        talk = Talk(("10.0.0.1", 40_000 + number), start_ns=START_NS + number * SECOND).handshake()
        for correlation_id in range(1, 3):
            body = {"group_id": name, "member_id": name[:-1]}
            talk.client_sends(
                request(HEARTBEAT, 0, body, correlation_id=correlation_id, client_id=name + str(number % 3))
            )
            talk.broker_sends(response(HEARTBEAT, 0, correlation_id=correlation_id))
        packets += talk.finish().packets
    return [(packet.time_ns, packet.data) for packet in packets]


def hostile(random: Random, connections: int) -> Timed:
    """Packets of one of these kinds, or of several."""
    kind = random.randrange(4)
    if kind == 0:
        return held(random, min(connections, 40), random.choice((100, 5000, 30_000)))
    if kind == 1:
        return long_names(random, min(connections, 20))
    packets = lifetimes(random, connections, random.choice((0, 0.02, 0.1)))
    if random.random() < 0.4:
        packets = begin_again(packets, random)
    if random.random() < 0.4:
        packets = to_itself(packets, random, random.choice((0.02, 1)))
    if random.random() < 0.5:
        packets = coarse(packets, random.choice(_TICKS_NS))
    if random.random() < 0.4:
        packets = set_back(packets, random)
    return packets
