"""The nouns that travel between stages: slotted, typed, no behaviour beyond reading themselves.

    Packet -> Segment -> Data | Gap -> Frame -> Exchange

Times are integers: nanoseconds since 1970-01-01 UTC, always the packet's time, never this machine's clock
(which tells only how long a ``IdleTick`` lasts).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Body = dict[str, Any]
"""A decoded message: field name -> value, in wire order, names as in the protocol guide.

Values: bool, int, float, str (strings; uuids as Kafka prints them), bytes, None (null), list, nested Body,
``RecordData`` (kafka/records.py) for ``records`` fields, ``Withheld`` for a secret, ``Embedded`` for bytes
whose payload is known. An absent tagged field has no key; unknown tags stand under ``_tags`` as {tag: bytes},
bytes behind a complete body under ``_left_over``, bytes that could not be decoded under ``_undecoded``. Bytes
that are not UTF-8 in a string are shown by backslash escapes. What an ``Embedded`` decodes to begins with its
name in the schema under ``_message`` and its version under ``_version`` (not inside Envelope).
"""


_SIZE_FIELD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Interface:
    """Where packets were captured: one for a pcap file, one for each interface block of a pcapng section.

    Attributes:
        capture: the file as the user named it, ``-`` for stdin, or the live interface.
        index: number of the interface inside the capture, from 0, over all sections.
        link_type: LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
        snaplen: bytes kept of each packet, 0 = no limit.
        name: the interface's own name where the file tells it.
    """

    capture: str
    index: int
    link_type: int
    snaplen: int = 0
    name: str | None = None


class Packet(NamedTuple):
    """One captured link-layer unit.

    Attributes:
        number: place in its capture, from 1: what Wireshark shows.
        time_ns: when it was captured.
        interface: where; tells the capture's name and the link type.
        data: the captured bytes, owned by the packet.
        length: bytes on the wire; more than ``len(data)`` when the capture was cut by a snaplen.
    """

    number: int
    time_ns: int
    interface: Interface
    data: bytes
    length: int


class PacketBlock(NamedTuple):
    """Packets of one interface as they stand one behind another in what was read, none of them cut out yet.

    Attributes:
        number: of the first of them.
        interface: where they were captured.
        data: what they stand in.
        places: of each packet: time, where its bytes begin and end in ``data``, length on the wire.
    """

    number: int
    interface: Interface
    data: bytes
    places: list[tuple[int, int, int, int]]

    @classmethod
    def of(cls, packet: Packet) -> PacketBlock:
        """One packet alone."""
        number, time_ns, interface, data, length = packet
        return cls(number, interface, data, [(time_ns, 0, len(data), length)])

    @property
    def time_ns(self) -> int:
        """Of the first packet."""
        return self.places[0][0]

    @property
    def packets(self) -> list[Packet]:
        """The packets themselves."""
        number, interface, data, places = self
        return [
            Packet(each, time_ns, interface, data[begin:end], length)
            for each, (time_ns, begin, end, length) in enumerate(places, number)
        ]


class IdleTick(NamedTuple):
    """Time has gone on without packets: stands between packets that come live.

    Attributes:
        time_ns: up to when all packets have been delivered.
    """

    time_ns: int


class Segment(NamedTuple):
    """One TCP segment.

    Attributes:
        packet, time_ns, interface: of the packet that carried it (for fragments: the one that completed it).
        ends: source address, destination address, source port, destination port, as on the wire: 12 bytes for
            IPv4, 36 for IPv6. Cheap to slice from a packet, and a dictionary key.
        sequence, acknowledgment: 32-bit numbers as sent.
        flags: the TCP flag bits, see net/tcp.py.
        payload: captured payload bytes.
        length: payload bytes on the wire; more than ``len(payload)`` when the packet was cut.
    """

    packet: int
    time_ns: int
    interface: Interface
    ends: bytes
    sequence: int
    acknowledgment: int
    flags: int
    payload: bytes
    length: int


class Data(NamedTuple):
    """The next bytes of a stream, in order, each byte exactly once. ``packet`` and ``time_ns`` are those of
    the packet
    whose arrival made them available, for data that waited behind a hole: of the packet that carried them.
    """

    packet: int
    time_ns: int
    interface: Interface
    payload: bytes


class Gap(NamedTuple):
    """The next ``length`` bytes of a stream were never captured.

    Attributes:
        reason: ``lost`` (the packet is not in the capture), ``cut`` (the snaplen dropped the end of a
            packet).
    """

    packet: int
    time_ns: int
    interface: Interface
    length: int
    reason: str


class Closed(NamedTuple):
    """A connection is over: ``fin``, ``reset``, ``reused`` (its 4-tuple began a new connection), ``evicted``
    (bound on connections), ``idle``, ``end`` (the capture ended).

    Attributes:
        time_ns: when, in packet time: of the last segment, of the deadline that passed, or of the segment
            that took its place.
    """

    reason: str
    time_ns: int = 0


class Endpoint(NamedTuple):
    """One end of a connection: address as text, port."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class Frame(NamedTuple):
    """One size-prefixed unit of a stream: int32 size + that many bytes.

    Attributes:
        data: the bytes behind the size field. Shorter than ``size`` when bytes were not captured or the frame
            was larger
            than the bound: then it is the prefix up to the first missing byte.
        size: what the size field announced, itself not counted.
        packet: number of the packet that completed the frame.
        interface: where that packet was captured.
        start_ns: time of the first byte of the size field.
        end_ns: time of the last byte.
    """

    data: bytes
    size: int
    packet: int
    interface: Interface
    start_ns: int
    end_ns: int

    @property
    def complete(self) -> bool:
        """Whether every byte is there."""
        return len(self.data) == self.size

    @property
    def wire_bytes(self) -> int:
        """Its size, the size field included."""
        return _SIZE_FIELD_BYTES + self.size


class Anomaly(NamedTuple):
    """Something wrong or odd in the data.

    Attributes:
        kind: key into ``anomalies.CATALOGUE``, which has severity and sentence.
        where: ``request``, ``response`` or ``connection``, then the field path where it is known
            (``response.topics.partitions``).
        detail: what exactly, in words and numbers; never payload.
    """

    kind: str
    where: str
    detail: str


class Embedded(NamedTuple):
    """A bytes field whose payload is known: the bytes (or that they are withheld) and what they say."""

    data: bytes | Withheld
    decoded: Body


class Withheld(NamedTuple):
    """Stands where a credential was: only its length in bytes is told."""

    length: int


@dataclass(slots=True)
class ConnectionInfo:
    """What the exchanges of one connection share; it grows as the connection tells more about itself.

    Attributes:
        id: short, the same within one run however its input is divided: a hash of both ends and the first
            packet's time.
        client, broker: the two ends; the broker is the one that answers.
        client_software_name, client_software_version: from ApiVersions v3+ (KIP-511).
        principal: who authenticated, where the wire tells and once the broker accepted it.
        sasl_mechanism: as the client named it.
        ordinal: place among the connections of the run, from 1, in the order in which they were met.
    """

    id: str
    client: Endpoint
    broker: Endpoint
    client_software_name: str | None = None
    client_software_version: str | None = None
    principal: str | None = None
    sasl_mechanism: str | None = None
    ordinal: int = 0


ANSWERED = "answered"
UNANSWERED = "unanswered"
UNACKNOWLEDGED = "unacknowledged"
ORPHAN = "orphan"
KINDS = (ANSWERED, UNANSWERED, UNACKNOWLEDGED, ORPHAN)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request with its response, or what there is of the two.

    Attributes:
        connection: shared by all exchanges of a connection.
        number: place among those of its connection, from 1, in order of completion.
        kind: one of ``KINDS``.
        request_frame, response_frame: as on the wire; None where there was none.
        api: the api's name; None where its key is not known.
        api_key, api_version, correlation_id, client_id: from the request header (orphan: only the correlation
            id); api_key is None for a SASL token outside Kafka's framing.
        completed_ns: when the response was there (orphans too), or an acks=0 request, or when it was given
            up.
        client_software_name ...: as known on the connection when this exchange completed.
        request_header: as decoded (kafka/headers.py RequestHeader), None where there is none.
        request, response: decoded bodies; None where there is none or nothing of it could be decoded.
        anomalies: all that was wrong or odd about either message.
        request_layout, response_layout: which layout decoded the body (kafka/bodies.py BodyLayout), None
            where none did.
        decoded_bytes: what the bodies take in memory, as an estimate; 0 until they are decoded.
        topic_names: topic id -> name for the ids in this exchange whose name was learned
            (exchanges/topic_names.py).
    """

    connection: ConnectionInfo
    number: int
    kind: str
    request_frame: Frame | None
    response_frame: Frame | None
    api_key: int | None
    api_version: int | None
    correlation_id: int | None
    client_id: str | None = None
    api: str | None = None
    completed_ns: int = 0
    client_software_name: str | None = None
    client_software_version: str | None = None
    principal: str | None = None
    sasl_mechanism: str | None = None
    request_header: Any = None
    request: Body | None = None
    response: Body | None = None
    request_layout: Any = None
    response_layout: Any = None
    anomalies: list[Anomaly] = field(default_factory=list)
    topic_names: dict[str, str] = field(default_factory=dict)
    decoded_bytes: int = 0

    @property
    def first_frame(self) -> Frame:
        """The request's frame, for an orphan the response's."""
        frame = self.request_frame or self.response_frame
        assert frame is not None
        return frame

    @property
    def connection_id(self) -> str:
        """Whose exchange it is."""
        return self.connection.id

    @property
    def order(self) -> tuple[int, int]:
        """Sorts exchanges by their completion: its time, and where times are the same, its packet."""
        return self.completed_ns, (self.response_frame or self.first_frame).packet

    @property
    def time_ns(self) -> int:
        """Last byte of the request (orphan: of the response)."""
        return self.first_frame.end_ns

    @property
    def held_bytes(self) -> int:
        """Bytes of both frames."""
        request, response = self.request_frame, self.response_frame
        return (len(request.data) if request else 0) + (len(response.data) if response else 0)

    @property
    def latency_ns(self) -> int | None:
        """Last byte of the request to first byte of the response; None unless answered."""
        if self.request_frame is None or self.response_frame is None:
            return None
        return self.response_frame.start_ns - self.request_frame.end_ns
