"""Runs packets through the stages of kdissect/net, and shows the events in short form."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from kdissect.limits import Limits
from kdissect.model import Closed, Data, Gap, Packet, PacketBlock
from kdissect.net.connection import Connections, Event
from kdissect.net.tcp import Segments
from tests.segments import MILLISECOND, START_NS, Talk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SECOND = 1000 * MILLISECOND
BROKER = ("10.0.0.2", 9092)


def run(
    packets: Iterable[Packet], limits: Limits | None = None, connections: Connections | None = None
) -> list[Event]:
    """Events of packets. The fast path for common packets and the general one must give each connection the
    same events, with and without ticks between its segments.
    """
    packets = list(packets)
    if connections is not None:
        return _run(packets, connections, ticks=True)
    paths = [_run(packets, Connections(limits or Limits()), usual=usual) for usual in (True, False)]
    ticking = _run(packets, Connections(limits or Limits()), ticks=True)
    assert [event[1:] for event in paths[0]] == [event[1:] for event in paths[1]]
    assert by_connection(paths[0]) == by_connection(ticking)
    return ticking


def by_connection(events: Iterable[Event]) -> dict[tuple[str, int], list[object]]:
    """Events of each connection in order, by its ID and first packet."""
    result: dict[tuple[str, int], list[object]] = {}
    for connection, side, item in events:
        result.setdefault((connection.id, connection.first_packet), []).append((side, item))
    return result


def _run(
    packets: list[Packet], connections: Connections, *, usual: bool = False, ticks: bool = False
) -> list[Event]:
    """With ``ticks``, each packet is followed by a tick up to the earliest packet after it."""
    segments = Segments()
    out: list[Event] = []
    earliest_ns = list(accumulate((packet.time_ns for packet in reversed(packets)), min))[::-1]
    for packet, behind_ns in zip(packets, [*earliest_ns[1:], 0], strict=True):
        if usual:
            for events in connections.feed_block(PacketBlock.of(packet), segments.feed):
                out += events
        elif segment := segments.feed(packet):
            out += connections.feed(segment)
        if ticks and behind_ns:
            out += connections.tick(behind_ns - 1)
    return out + connections.close(max(packet.time_ns for packet in packets))


def in_one_piece(packets: Sequence[Packet]) -> PacketBlock:
    """Packets of one interface in one buffer, as in a file, with other bytes between them."""
    data, places = b"", []
    for packet in packets:
        begin = len(data) + 16
        data += bytes(16) + packet.data
        places.append((packet.time_ns, begin, len(data), packet.length))
    return PacketBlock(packets[0].number, packets[0].interface, data, places)


def script(events: Iterable[Event]) -> list[str]:
    """Events in short form, prefixed with the client's port if there are several connections."""
    ports = {frozenset(end.port for end in connection.ends) for connection, _, _ in events}
    steps = []
    for connection, side, item in events:
        towards_broker = connection.ends[1 - side].port == BROKER[1]
        client = min(connection.ends, key=lambda end: end.port == BROKER[1])
        name = f"{client.port} " if len(ports) > 1 else ""
        arrow = ">" if towards_broker else "<"
        if isinstance(item, Data):
            steps.append(f"{name}{arrow}{item.payload.decode()}")
        elif isinstance(item, Gap):
            steps.append(f"{name}{arrow}({item.length} {item.reason})")
        elif isinstance(item, Closed):
            steps.append(f"{name}{item.reason}")
    return steps


def exchanges(talk: Talk, count: int = 1) -> Talk:
    for _ in range(count):
        talk.client_sends(b"ask").broker_sends(b"answer")
    return talk


def chatter(count: int, *, port: int = 50_000, start_ns: int = START_NS) -> list[Packet]:
    """Segments of another connection, one each millisecond, to let time pass."""
    talk = Talk(("10.0.0.9", port), start_ns=start_ns).handshake()
    while len(talk.packets) < count:
        talk.broker_acks()
    return talk.packets
