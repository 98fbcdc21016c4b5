"""A capture -> the same capture as networks and capturing programs damage it, and checks of the result.

Every packet keeps its number and its time, so that whatever is left gives the same rows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kdissect.model import Data, Endpoint
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments, endpoints
from kdissect.pipeline import dissect
from kdissect.tables.lines import JsonLines
from tests.segments import MILLISECOND, SYN, ipv4, ipv6, link, tcp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from kdissect.model import Exchange, Frame, Packet, Segment


HEADER_BYTES = 14  # of a request: up to the client ID's length
CORRELATION_BYTES = 8


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


def lossy(shard: float) -> Callable[[list[Packet], Random], Damaged]:
    """Lose each packet with this probability."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        return without(packets, {packet.number for packet in packets if random.random() < shard})

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


def shuffled(window_ms: int) -> Callable[[list[Packet], Random], Damaged]:
    """Each packet up to so much late."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        window_ns = window_ms * MILLISECOND
        order = sorted(packets, key=lambda packet: packet.time_ns + random.uniform(0, window_ns))
        return Damaged(order, frozenset())

    return damage


def duplicated(packets: list[Packet], random: Random) -> Damaged:
    """A third of the packets twice, the second time a little later."""
    places = [(place, packet) for place, packet in enumerate(packets)]
    again = [(place + random.uniform(0, 5), packet) for place, packet in places if random.random() < 1 / 3]
    return Damaged([packet for _, packet in sorted([*places, *again], key=lambda item: item[0])], frozenset())


def mid_frame_start(packets: list[Packet], random: Random) -> Damaged:
    """Begin anywhere, and in each direction of each connection inside a frame: the first packet with payload
    is there from its middle on only.
    """
    start = late_start(packets, random)
    started: set[bytes] = set()
    out, hurt = [], set(start.hurt)
    for packet in start.packets:
        segment = segment_of(packet)
        if segment.length < 2 or segment.ends in started:
            out.append(packet)
            continue
        started.add(segment.ends)
        hurt.add(packet.number)
        rest = random.randrange(1, segment.length)
        out.append(carrying(packet, segment, rest, segment.payload[rest:]))
    return Damaged(out, frozenset(hurt))


def then(*damages: Callable[[list[Packet], Random], Damaged]) -> Callable[[list[Packet], Random], Damaged]:
    """One after another."""

    def damage(packets: list[Packet], random: Random) -> Damaged:
        hurt: frozenset[int] = frozenset()
        for one in damages:
            packets, more = one(packets, random)
            hurt |= more
        return Damaged(packets, hurt)

    return damage


def without(packets: list[Packet], lost: Iterable[int]) -> Damaged:
    hurt = frozenset(lost)
    return Damaged([packet for packet in packets if packet.number not in hurt], hurt)


DAMAGES: dict[str, Callable[[list[Packet], Random], Damaged]] = {
    "1 % lost": lossy(0.01),
    "10 % lost": lossy(0.1),
    "snaplen 68": cut(68),
    "snaplen 96": cut(96),
    "snaplen 200": cut(200),
    "late start": late_start,
    "mid-frame start": mid_frame_start,
    "requests only": one_direction(towards_broker=True),
    "responses only": one_direction(towards_broker=False),
    "shuffled": shuffled(2),
    "shuffled far": shuffled(5),  # less than the first retransmission, which would come first
    "duplicated": duplicated,
    "duplicated, shuffled": then(duplicated, shuffled(5)),
    "10 % lost, snaplen 200, mid-frame start": then(lossy(0.1), mid_frame_start, cut(200)),
    "1 % lost, snaplen 96, shuffled": then(lossy(0.01), cut(96), shuffled(5)),
    "10 % lost, duplicated, shuffled": then(lossy(0.1), duplicated, shuffled(5)),
}


def from_the_start(packets: list[Packet]) -> list[Packet]:
    """Those of connections whose first packet is there: of others nobody knows what there should be."""
    ends = {packet.number: frozenset(endpoints(segment_of(packet).ends)) for packet in packets}
    started = {ends[packet.number] for packet in packets if segment_of(packet).flags & SYN}
    return [packet for packet in packets if ends[packet.number] in started]


def resegmented(packets: list[Packet], mss: int) -> list[Packet]:
    """The same streams in packets of at most ``mss`` bytes: loopback captures have large ones."""
    out: list[Packet] = []
    for packet in packets:
        segment = segment_of(packet)
        for start in range(0, max(1, len(segment.payload)), mss):
            carrier = carrying(packet, segment, start, segment.payload[start : start + mss])
            out.append(carrier._replace(number=len(out) + 1))
    return out


def carrying(packet: Packet, segment: Segment, start: int, payload: bytes) -> Packet:
    """The packet of a segment with other payload, which stands ``start`` bytes further on in its stream."""
    source, destination = endpoints(segment.ends)
    sequence = (segment.sequence + start) & 0xFFFFFFFF
    new_segment = tcp(source, destination, sequence, segment.acknowledgment, segment.flags, payload)
    internet = ipv6 if ":" in source.ip else ipv4
    data = link(internet(source.ip, destination.ip, new_segment), packet.interface.link_type)
    return packet._replace(data=data, length=len(data))


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
        self.payload_at = {packet.number: len(packet.data) - segment_of(packet).length for packet in packets}
        carriers = self._carriers = _carriers(packets)
        self._frames_in = Counter(
            (sender, receiver, packet)
            for (sender, receiver, *_), numbers in carriers.items()
            for packet in numbers
        )
        self.messages = [
            (request_of(exchange), response_of(exchange), _packets_of(exchange, carriers))
            for exchange in self.exchanges
        ]

    def undamaged(
        self, hurt: frozenset[int]
    ) -> Counter[tuple[RequestIdentity | None, ResponseIdentity | None]]:
        """The exchanges, orphans apart, all of whose bytes are in packets that are not hurt."""
        return Counter(
            (request, response)
            for request, response, packets in self.messages
            if request is not None and not packets & hurt
        )

    def undamaged_messages(self, hurt: frozenset[int]) -> Messages:
        """Requests and responses, each by itself, all of whose bytes are in packets that are not hurt."""
        return self._messages(self.exchanges, hurt)

    def messages_of(self, exchanges: Iterable[Exchange]) -> Messages:
        """Requests and responses of these exchanges."""
        return self._messages(exchanges, None)

    def _messages(self, exchanges: Iterable[Exchange], hurt: frozenset[int] | None) -> Messages:
        messages: Messages = Counter()
        for exchange in exchanges:
            info = exchange.connection
            for ends, frame in (
                ((info.client, info.broker), exchange.request_frame),
                ((info.broker, info.client), exchange.response_frame),
            ):
                if frame is not None:
                    key = *ends, frame.packet, frame.data
                    if hurt is None or not self._carriers[key] & hurt:
                        messages[key] += 1
        return messages

    def with_headers(self, left: Mapping[int, int]) -> list[Exchange]:
        """The exchanges of which the first bytes of request and response are in a packet of which enough is
        left; ``left``: bytes of each packet.
        """
        out = []
        for exchange in self.exchanges:
            if exchange.api_key is None or exchange.request_frame is None:
                continue
            info = exchange.connection
            begins = [(info.client, info.broker, exchange.request_frame, HEADER_BYTES)]
            if exchange.response_frame is not None:
                begins.append((info.broker, info.client, exchange.response_frame, CORRELATION_BYTES))
            if all(self._begins_in(left, *begin) for begin in begins):
                out.append(exchange)
        return out

    def _begins_in(
        self, left: Mapping[int, int], sender: Endpoint, receiver: Endpoint, frame: Frame, needed: int
    ) -> bool:
        """Whether the first bytes of a frame are left, it being the first in its packet."""
        first = min(self._carriers[sender, receiver, frame.packet, frame.data])
        alone = self._frames_in[sender, receiver, first] == 1
        return alone and left[first] >= self.payload_at[first] + needed

    def phantoms(self, exchanges: Iterable[Exchange]) -> list[Exchange]:
        """Those that did not happen: a request or a response that nobody sent, or two that are no pair."""
        pairs = {(request, response) for request, response, _ in self.messages}
        requests = {request for request, _ in pairs}
        responses = {response for _, response in pairs}
        unknown = {response._replace(correlation_id=None) for response in responses if response}
        tokens = {response for response in responses if response and response.correlation_id is None}
        out = []
        for exchange in exchanges:
            request, response = request_of(exchange), response_of(exchange)
            if request is not None and exchange.request_header and exchange.request_header.body_pos < 0:
                # The client ID was not captured.
                likely = [one for one in requests if one and one._replace(client_id=None) == request]
                request = likely[0] if likely else request
            if request is None and response is not None:
                # Only the request shows whether it has a correlation ID.
                is_token = response._replace(correlation_id=None) in tokens
                is_true = response in responses or is_token or response in unknown
            elif response is None:
                is_true = request in requests
            else:
                # A response to a request with acks=0, whose acks field may not have been captured.
                is_acks_0 = (request, None) in pairs and (None, response) in pairs
                is_true = (request, response) in pairs or is_acks_0
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


Messages = Counter[tuple["Endpoint", "Endpoint", int, bytes]]
Carriers = dict[tuple["Endpoint", "Endpoint", int, bytes], set[int]]


def _packets_of(exchange: Exchange, carriers: Carriers) -> frozenset[int]:
    info = exchange.connection
    numbers: set[int] = set()
    for sender, receiver, frame in (
        (info.client, info.broker, exchange.request_frame),
        (info.broker, info.client, exchange.response_frame),
    ):
        if frame is not None:
            numbers |= carriers[sender, receiver, frame.packet, frame.data]
    return frozenset(numbers)


def _carriers(packets: list[Packet]) -> Carriers:
    """Where the bytes of each frame are, read by size fields alone from the first byte of each connection."""
    segments, connections = Segments(), Connections()
    streams: dict[tuple[Any, int], tuple[bytearray, list[tuple[int, int]]]] = {}
    events = [
        event
        for packet in packets
        if (segment := segments.feed(packet))
        for event in connections.feed(segment)
    ]
    for connection, side, item in events + connections.close(packets[-1].time_ns if packets else 0):
        if isinstance(item, Data):
            stream, pieces = streams.setdefault((connection, side), (bytearray(), []))
            pieces.append((len(stream), item.packet))
            stream += item.payload
    located_in: Carriers = {}
    for (connection, side), (stream, pieces) in streams.items():
        pos = 0
        while pos + 4 <= len(stream):
            end = pos + 4 + int.from_bytes(stream[pos : pos + 4], "big")
            bounds = zip(pieces, [*pieces[1:], (len(stream), 0)], strict=True)
            carriers = [packet for (start, packet), (stop, _) in bounds if start < end and stop > pos]
            ends = connection.ends
            key = ends[side], ends[1 - side], carriers[-1], bytes(stream[pos + 4 : end])
            located_in[key] = set(carriers)
            pos = end
    return located_in


def request_of(exchange: Exchange) -> RequestIdentity | None:
    """What tells a request from others."""
    frame, info = exchange.request_frame, exchange.connection
    if frame is None:
        return None
    about = exchange.api_key, exchange.api_version, exchange.correlation_id
    size = frame.size if exchange.announced is None or exchange.is_cut else exchange.announced
    return RequestIdentity(info.client, info.broker, *about, exchange.client_id, size)


def response_of(exchange: Exchange) -> ResponseIdentity | None:
    """What tells a response from others."""
    frame, info = exchange.response_frame, exchange.connection
    if frame is None:
        return None
    size = exchange.announced if exchange.is_cut and exchange.announced is not None else frame.size
    return ResponseIdentity(info.client, info.broker, exchange.correlation_id, size)
