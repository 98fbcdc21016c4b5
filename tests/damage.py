"""A capture -> the same capture as networks and capturing programs leave it; what may be asked of the result.

Every packet keeps its number and its time, so that whatever is still there is told with the same words.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kdissect.model import Data, Endpoint, Packet
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments, endpoints
from kdissect.pipeline import dissect
from kdissect.sinks.jsonlines import JsonLines
from tests.segments import ipv4, ipv6, link, tcp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from kdissect.model import Exchange, Segment


class RequestIdentity(NamedTuple):
    """What tells a request from others."""

    client: Endpoint
    broker: Endpoint
    api_key: int | None
    api_version: int | None
    correlation_id: int | None
    client_id: str | None
    size: int


class ResponseIdentity(NamedTuple):
    """What tells a response from others."""

    client: Endpoint
    broker: Endpoint
    correlation_id: int | None
    size: int


class Damaged(NamedTuple):
    """What is left of a capture.

    Attributes:
        packets: those that are left, in the order in which they were captured.
        hurt: numbers of the packets that are not there, or not whole.
    """

    packets: list[Packet]
    hurt: frozenset[int]


def lossy(share: float) -> Callable[[list[Packet], Random], Damaged]:
    """Lose each packet with this probability."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        return without(packets, {packet.number for packet in packets if random.random() < share})

    return damage


def cut(snaplen: int) -> Callable[[list[Packet], Random], Damaged]:
    """Keep the first bytes of each packet."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        hurt = frozenset(packet.number for packet in packets if len(packet.data) > snaplen)
        return Damaged([packet._replace(data=packet.data[:snaplen]) for packet in packets], hurt)

    return damage


def late_start(packets: list[Packet], random: Random) -> Damaged:
    """Begin anywhere."""
    return without(packets, {packet.number for packet in packets[: random.randrange(len(packets))]})


def one_direction(towards_broker: bool) -> Callable[[list[Packet], Random], Damaged]:
    """Keep what is sent to the higher ports only, or to the lower ones."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        segments = {packet.number: segment_of(packet) for packet in packets}
        lower = {number for number, segment in segments.items() if _goes_down(segment) == towards_broker}
        return without(packets, segments.keys() - lower)

    return damage


def shuffled(window: int) -> Callable[[list[Packet], Random], Damaged]:
    """Each packet up to so many places from its own."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        order = sorted(range(len(packets)), key=lambda place: place + random.uniform(0, window))
        return Damaged([packets[place] for place in order], frozenset())

    return damage


def duplicated(packets: list[Packet], random: Random) -> Damaged:
    """A third of the packets twice, the second time a little later."""
    places = [(place, packet) for place, packet in enumerate(packets)]
    again = [(place + random.uniform(0, 5), packet) for place, packet in places if random.random() < 1 / 3]
    return Damaged([packet for _, packet in sorted([*places, *again], key=lambda item: item[0])], frozenset())


def without(packets: list[Packet], lost: Iterable[int]) -> Damaged:
    hurt = frozenset(lost)
    return Damaged([packet for packet in packets if packet.number not in hurt], hurt)


DAMAGES: dict[str, Callable[[list[Packet], Random], Damaged]] = {
    "1 % lost": lossy(0.01),
    "10 % lost": lossy(0.1),
    "snaplen 96": cut(96),
    "snaplen 200": cut(200),
    "late start": late_start,
    "requests only": one_direction(towards_broker=True),
    "responses only": one_direction(towards_broker=False),
    "shuffled": shuffled(6),
    "shuffled far": shuffled(25),
    "duplicated": duplicated,
}


def resegmented(packets: list[Packet], mss: int) -> list[Packet]:
    """The same streams in packets of at most ``mss`` bytes: loopback captures have large ones."""
    out: list[Packet] = []
    for packet in packets:
        segment = segment_of(packet)
        source, destination = endpoints(segment.ends)
        internet = ipv6 if ":" in source.ip else ipv4
        for start in range(0, max(1, len(segment.payload)), mss):
            piece = segment.payload[start : start + mss]
            sequence = (segment.sequence + start) & 0xFFFFFFFF
            data = internet(
                source.ip,
                destination.ip,
                tcp(source, destination, sequence, segment.acknowledgment, segment.flags, piece),
            )
            made = link(data, packet.interface.link_type)
            out.append(Packet(len(out) + 1, packet.time_ns, packet.interface, made, len(made)))
    return out


def segment_of(packet: Packet) -> Segment:
    segment = Segments().feed(packet)
    assert segment is not None
    return segment


def _goes_down(segment: Segment) -> bool:
    source, destination = endpoints(segment.ends)
    return destination.port < source.port


class Truth:
    """What an undamaged capture says: which messages there are, and in which packets their bytes are."""

    def __init__(self, packets: list[Packet]) -> None:
        self.exchanges = list(dissect(packets))
        self.rows = rows_of(self.exchanges)
        self.numbers: dict[frozenset[Endpoint], set[int]] = {}  # of packets, by connection
        for packet in packets:
            self.numbers.setdefault(frozenset(endpoints(segment_of(packet).ends)), set()).add(packet.number)
        carriers = _carriers(packets)
        self.messages = [
            (request_of(exchange), response_of(exchange), _packets_of(exchange, carriers))
            for exchange in self.exchanges
        ]

    def whole(self, hurt: frozenset[int]) -> Counter[tuple[RequestIdentity | None, ResponseIdentity | None]]:
        """The exchanges, orphans apart, all of whose bytes are in packets that are not hurt."""
        return Counter(
            (request, response)
            for request, response, packets in self.messages
            if request is not None and not packets & hurt
        )

    def phantoms(self, found: Iterable[Exchange]) -> list[Exchange]:
        """Those that did not happen: a request or a response that nobody sent, or two that are no pair."""
        pairs = {(request, response) for request, response, _ in self.messages}
        requests = {request for request, _ in pairs}
        responses = {response for _, response in pairs}
        unknown = {response._replace(correlation_id=None) for response in responses if response}
        tokens = {response for response in responses if response and response.correlation_id is None}
        out = []
        for exchange in found:
            request, response = request_of(exchange), response_of(exchange)
            if request is not None and exchange.request_header and exchange.request_header.body_pos < 0:
                # The client id was not captured.
                likely = [one for one in requests if one and one._replace(client_id=None) == request]
                request = likely[0] if likely else request
            if request is None and response is not None:
                # Whether it has a correlation id only the request could tell.
                is_token = response._replace(correlation_id=None) in tokens
                is_true = response in responses or is_token or response in unknown
            elif response is None:
                is_true = request in requests
            else:
                is_true = (request, response) in pairs
            if not is_true:
                out.append(exchange)
        return out

    def unharmed(self, hurt: frozenset[int]) -> set[frozenset[Endpoint]]:
        """The connections of which no packet is hurt."""
        return {ends for ends, numbers in self.numbers.items() if not numbers & hurt}


Rows = list[tuple[frozenset[Endpoint], dict[str, Any]]]


def rows_of(exchanges: Iterable[Exchange]) -> Rows:
    """What the output says about each exchange, with the two ends of its connection."""
    rows = []
    for exchange in exchanges:
        lines: list[bytes] = []
        JsonLines(lines.append, flush_each=True).feed(exchange)
        info = exchange.connection
        rows.append((frozenset((info.client, info.broker)), orjson.loads(b"".join(lines))))
    return rows


Carriers = dict[tuple["Endpoint", "Endpoint", int, bytes], set[int]]


def _packets_of(exchange: Exchange, carriers: Carriers) -> frozenset[int]:
    info = exchange.connection
    found: set[int] = set()
    for sender, receiver, frame in (
        (info.client, info.broker, exchange.request_frame),
        (info.broker, info.client, exchange.response_frame),
    ):
        if frame is not None:
            found |= carriers[sender, receiver, frame.packet, frame.data]
    return frozenset(found)


def _carriers(packets: list[Packet]) -> Carriers:
    """Where the bytes of each frame are, read by size fields alone from the first byte of each connection."""
    segments, connections = Segments(), Connections()
    streams: dict[tuple[Any, int], tuple[bytearray, list[tuple[int, int]]]] = {}
    events = [
        event for packet in packets if (found := segments.feed(packet)) for event in connections.feed(found)
    ]
    for connection, side, item in events + connections.close():
        if isinstance(item, Data):
            stream, pieces = streams.setdefault((connection, side), (bytearray(), []))
            pieces.append((len(stream), item.packet))
            stream += item.payload
    found_in: Carriers = {}
    for (connection, side), (stream, pieces) in streams.items():
        pos = 0
        while pos + 4 <= len(stream):
            end = pos + 4 + int.from_bytes(stream[pos : pos + 4], "big")
            bounds = zip(pieces, [*pieces[1:], (len(stream), 0)], strict=True)
            carriers = [packet for (start, packet), (stop, _) in bounds if start < end and stop > pos]
            ends = connection.ends
            key = ends[side], ends[1 - side], carriers[-1], bytes(stream[pos + 4 : end])
            found_in[key] = set(carriers)
            pos = end
    return found_in


def request_of(exchange: Exchange) -> RequestIdentity | None:
    """What tells a request from others."""
    frame, info = exchange.request_frame, exchange.connection
    if frame is None:
        return None
    about = exchange.api_key, exchange.api_version, exchange.correlation_id
    return RequestIdentity(info.client, info.broker, *about, exchange.client_id, frame.size)


def response_of(exchange: Exchange) -> ResponseIdentity | None:
    """What tells a response from others."""
    frame, info = exchange.response_frame, exchange.connection
    if frame is None:
        return None
    return ResponseIdentity(info.client, info.broker, exchange.correlation_id, frame.size)
