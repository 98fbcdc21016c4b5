"""The values that stages pass on: slotted, typed, without behavior beyond derived properties.

    Packet -> Segment -> Data | Gap -> Frame -> Exchange

Times are integers: nanoseconds since 1970-01-01 UTC, always packet time. Only the duration of an ``IdleTick``
comes from this machine's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import import_module
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

Body = dict[str, Any]
"""A decoded message: field name -> value, in wire order, names as in the protocol guide.

Values: bool, int, float, str (strings; UUIDs as Kafka prints them), bytes, None (null), list, nested Body,
``RecordData`` (kafka/records.py) for ``records`` fields, ``Redacted`` for a secret, ``Embedded`` for bytes
that contain a message. An absent tagged field has no key. Unknown tags are under ``_tags`` as {tag: bytes},
bytes after a complete body under ``_trailing``, bytes that could not be decoded under ``_undecoded``. Bytes
of a string that are not UTF-8 are backslash escapes. The body of an ``Embedded`` starts with the name of its
layout in the schema (``_message``) and its version (``_version``), except inside Envelope.
"""


_SIZE_FIELD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Interface:
    """Where packets were captured: one for a pcap file, one for each interface block of a pcapng section.

    Attributes:
        capture: the file as the user named it, ``-`` for stdin, or the live interface.
        index: number of the interface inside the capture, from 0, over all sections.
        link_type: LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
        snaplen: most bytes kept of each packet, 0 = no limit.
        name: the interface's own name; None if the file does not have it.
    """

    capture: str
    index: int
    link_type: int
    snaplen: int = 0
    name: str | None = None


class Packet(NamedTuple):
    """One captured link-layer unit.

    Attributes:
        number: number in its capture, from 1, as in Wireshark.
        time_ns: when it was captured.
        interface: where it was captured, with the capture's name and the link type.
        data: the captured bytes.
        length: bytes on the wire; more than ``len(data)`` if the snaplen truncated the packet.
    """

    number: int
    time_ns: int
    interface: Interface
    data: bytes
    length: int


class PacketBlock(NamedTuple):
    """Consecutive packets of one interface, in the buffer they were read into: no packet's bytes are copied.

    Attributes:
        number: of the first packet, unless ``places`` have numbers.
        interface: where they were captured, or at least one of them: the others have the same capture and
            link type, see ``interfaces``.
        data: the buffer.
        places: for each packet: time, start and end of its bytes in ``data``, length on the wire. A list, or
            the native core's ``Places``, which have numbers if these are not consecutive: packets of a shard.
            Those may be only a part of the packets of a block (parallel/broadcast.py).
    """

    number: int
    interface: Interface
    data: bytes
    places: Sequence[tuple[int, int, int, int]]

    @classmethod
    def of(cls, packet: Packet) -> PacketBlock:
        """A block of one packet."""
        number, time_ns, interface, data, length = packet
        return cls(number, interface, data, [(time_ns, 0, len(data), length)])

    @property
    def times_ns(self) -> tuple[int, int]:
        """The earliest and the latest time of a packet, of all packets of the block."""
        return self.span[2:]

    @property
    def time_ns(self) -> int:
        """Time of the first packet."""
        return self.places[0][0]

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the packets."""
        own: list[int] | None = getattr(self.places, "numbers", None)
        return range(self.number, self.number + len(self.places)) if own is None else own

    @property
    def interfaces(self) -> Sequence[Interface]:
        """Where each packet was captured."""
        own: list[Interface] | None = getattr(self.places, "interfaces", None)
        return [self.interface] * len(self.places) if own is None else own

    def number_at(self, index: int) -> int:
        """Number of the packet at an index; at the index after the last, the last number plus one."""
        places: Any = self.places
        return self.number + index if isinstance(places, list) else places.number_at(self.number, index)

    @property
    def span(self) -> tuple[int, int | None, int, int]:
        """Number of packets in the block; the number before that of its first packet (None: the numbers have
        gaps, use ``place_of``); and the earliest and latest packet time.
        """
        places: Any = self.places
        if isinstance(places, list):
            return len(places), self.number - 1, min(places)[0], max(places)[0]
        span: tuple[int, int | None, int, int] = places.span(self.number)
        return span

    def place_of(self, number: int) -> int:
        """Which of these packets has this number, from 1, if the numbers have gaps."""
        place: int = cast("Any", self.places).place_of(number)
        return place

    @property
    def packets(self) -> list[Packet]:
        """The packets, with copies of their bytes."""
        _, _, data, places = self
        return [
            Packet(packet, time_ns, interface, data[begin:end], length)
            for packet, interface, (time_ns, begin, end, length) in zip(
                self.numbers, self.interfaces, places, strict=True
            )
        ]

    def part(self, begin: int, end: int | None = None) -> PacketBlock:
        """The packets from one index to another."""
        number, interface, data, places = self
        if getattr(places, "is_consecutive", True):
            number += begin
        return PacketBlock(number, interface, data, places[begin:end])


class IdleTick(NamedTuple):
    """A marker between the packets of a live capture: time has passed without a packet.

    Attributes:
        time_ns: all packets up to this time have been delivered.
    """

    time_ns: int


class Segment(NamedTuple):
    """One TCP segment.

    Attributes:
        packet, time_ns, interface: of the packet that carried it (fragments: of the last one to arrive).
        ends: source address, destination address, source port, destination port, as on the wire: 12 bytes for
            IPv4, 36 for IPv6. Cheap to slice from a packet, and usable as a dictionary key.
        sequence, acknowledgment: 32-bit numbers as sent.
        flags: the TCP flag bits, see net/tcp.py.
        payload: captured payload bytes.
        length: payload bytes on the wire; more than ``len(payload)`` if the packet was truncated.
        window: the receive window as sent, not scaled.
        options: its TCP options as sent; empty if it has none but timestamps, None if not all were captured.
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
    window: int = 0
    options: bytes | None = b""


class Data(NamedTuple):
    """The next bytes of a stream, in order, each byte exactly once.

    Attributes:
        packet, time_ns, interface: of the packet that carried them; of the last one for bytes that were
            gathered from several (net/connection.py).
    """

    packet: int
    time_ns: int
    interface: Interface
    payload: bytes


class Gap(NamedTuple):
    """The next ``length`` bytes of a stream were never captured.

    Attributes:
        packet, time_ns, interface: of the packet with the bytes after the gap, or of the one whose end was
            cut; at the end of a stream, of the latest packet.
        reason: ``lost`` (the packet is not in the capture), ``undelivered`` (it did not reach the receiver
            either, which acknowledged only what came before) or ``cut`` (the snaplen truncated the packet).
    """

    packet: int
    time_ns: int
    interface: Interface
    length: int
    reason: str


class Retransmitted(NamedTuple):
    """Bytes that had been passed on were retransmitted, or bytes arrived behind later ones. Or the receiver
    reported that it already had the bytes that were retransmitted last (D-SACK, RFC 2883).

    Attributes:
        time_ns: of the packet that carried them, or the report.
        back: bytes from the first of them to the end of what was passed on; 0 for a report.
        is_spurious: whether it is such a report.
    """

    time_ns: int
    back: int
    is_spurious: bool = False


class Prefaced(NamedTuple):
    """The next bytes of a stream were PROXY headers, and are not passed on (net/preface.py)."""

    data: Data


class TlsSession(NamedTuple):
    """The TLS session of a connection, as far as it was captured.

    Attributes:
        version: ``TLS 1.3``.
        cipher: cipher suite, as IANA registers it.
        server_name: that the client requested (SNI).
        principal: the subject of the client's certificate, as Kafka names it: ``User:CN=alice,O=Example``.
        client_randoms: of the sessions that were decrypted; key logs name sessions by them.
    """

    version: str | None = None
    cipher: str | None = None
    server_name: str | None = None
    principal: str | None = None
    client_randoms: tuple[bytes, ...] = ()


class Decrypted(NamedTuple):
    """The next bytes of a connection were inside TLS. Those before, if any, are of no use."""

    session: TlsSession


class Closed(NamedTuple):
    """The end of a connection.

    Attributes:
        reason: ``fin``, ``reset``, ``reused`` (a new connection between the same ends began), ``evicted``
            (the limit on connections was reached), ``idle``, or ``end`` (of the capture).
        time_ns: packet time of the end: of the last segment, of the deadline, or of the segment that began
            the next connection.
        tls: its TLS session; None if it is not TLS, or nothing of it was captured.
    """

    reason: str
    time_ns: int = 0
    tls: TlsSession | None = None


class Endpoint(NamedTuple):
    """One end of a connection: address as a string, port."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


class Proxy(NamedTuple):
    """What the PROXY headers at the beginning of a connection say (net/preface.py). None: they do not say it.

    Attributes:
        version: of the header: 1 or 2.
        client: for which the connection was opened.
        server_name: that the client requested in its TLS session with the proxy (SNI).
        alpn: protocol of that session.
        tls_version: of that session.
        common_name: in the certificate of the client.
        aws_endpoint_id: of the VPC endpoint by which the client came, in AWS.
    """

    version: int
    client: Endpoint | None = None
    server_name: str | None = None
    alpn: str | None = None
    tls_version: str | None = None
    common_name: str | None = None
    aws_endpoint_id: str | None = None


class Frame(NamedTuple):
    """One size-prefixed unit of a stream: an int32 size, then that many bytes.

    Attributes:
        data: the bytes after the size field. Shorter than ``size`` if bytes were not captured or the frame
            exceeds ``limits.frame_bytes``: then it is the prefix before the first missing byte.
        size: value of the size field, which does not count itself.
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
        """Whether ``data`` has every byte."""
        return len(self.data) == self.size

    @property
    def wire_bytes(self) -> int:
        """Bytes of the frame on the wire, with its size field."""
        return _SIZE_FIELD_BYTES + self.size


class Anomaly(NamedTuple):
    """Something wrong or unusual in the data.

    Attributes:
        kind: key of ``anomalies.CATALOGUE``, which has its severity and meaning.
        where: ``request``, ``response`` or ``connection``, followed by the field path if it is known
            (``response.topics.partitions``).
        detail: specifics in words and numbers; never payload.
    """

    kind: str
    where: str
    detail: str


class Embedded(NamedTuple):
    """A bytes field that contains a message: its bytes, or their redaction, and the decoded message."""

    data: bytes | Redacted
    decoded: Body


class Redacted(NamedTuple):
    """A redacted credential: only its length in bytes is shown."""

    length: int


ConnectionKey = tuple[str, int]
"""ID and ordinal of a connection: IDs are short, and so not certainly unique."""


@dataclass(slots=True)
class ConnectionInfo:
    """What the exchanges of one connection share. Fields are set as they become known.

    Attributes:
        id: a short hash of both ends and the first packet's time: the same however the input is divided.
        client, broker: the two ends; the broker is the one that answers. If a PROXY header names the client,
            it is that one, not the end of the TCP connection.
        client_software_name, client_software_version: from ApiVersions v3+ (KIP-511).
        principal: the authenticated user, once the broker has accepted it; None if it is not on the wire.
        sasl_mechanism: as the client named it.
        ordinal: number of the connection in this run, from 1, in order of first packets.
        number: of the TCP connection in the capture, from 0, as tshark's ``tcp.stream``; None if not counted.
        errors_since: times of the first and latest errors that are expected only at first
            (exchanges/expected.py).
        from_start: whether the beginning of the broker's stream was captured.
        splitter: state for splitting the next latency (exchanges/latency.py); None until needed.
        is_decrypted: whether it was TLS.
        proxy: what its PROXY headers say; None without any.
        hop: the client's end of the TCP connection, if there are PROXY headers.
        vendor: of the broker, if it advertises APIs that Kafka does not have (kafka/vendors.py).
        has_sure_id: whether no connection before may have the same ID.
        cluster_id: the cluster of the broker, see exchanges/clusters.py; None if it is not known.
    """

    id: str
    client: Endpoint
    broker: Endpoint
    client_software_name: str | None = None
    client_software_version: str | None = None
    principal: str | None = None
    sasl_mechanism: str | None = None
    ordinal: int = 0
    number: int | None = None
    errors_since: dict[str, tuple[int, int]] = field(default_factory=dict)
    from_start: bool = False
    splitter: Any = None
    is_decrypted: bool = False
    proxy: Proxy | None = None
    hop: Endpoint | None = None
    vendor: str | None = None
    has_sure_id: bool = True
    cluster_id: str | None = None

    def __str__(self) -> str:
        return self.id

    @property
    def name(self) -> str:
        """What tables name the connection by: its ID, with the ordinal if another may have the same."""
        return self.id if self.has_sure_id else f"{self.id},{self.ordinal}"

    @property
    def client_end(self) -> Endpoint:
        """The client's end of the TCP connection."""
        return self.hop or self.client

    @property
    def key(self) -> ConnectionKey:
        """What identifies the connection in this run."""
        return self.id, self.ordinal


class LatencyParts(NamedTuple):
    """The parts of a latency, in microseconds; see exchanges/latency.py. None: cannot be known, or for
    ``service_us``: the broker waited on purpose. Otherwise their sum is the latency.

    Attributes:
        queued_us: until the last byte of the previous response of the connection.
        throttled_us: while the broker did not read the request because of a quota.
        network_us: until the request was retransmitted.
        wait_us: while the broker waited for records or other group members.
        service_us: the rest.
    """

    queued_us: int | None
    throttled_us: int | None
    network_us: int | None
    wait_us: int | None
    service_us: int | None

    @property
    def waited(self) -> bool:
        """Whether all parts are known, and the broker waited."""
        return self.service_us is None and None not in self[:4]


ANSWERED = "answered"
UNANSWERED = "unanswered"
UNACKNOWLEDGED = "unacknowledged"
ORPHAN = "orphan"
KINDS = (ANSWERED, UNANSWERED, UNACKNOWLEDGED, ORPHAN)

INCOMPLETE = "incomplete"
INCOMPLETE_REQUEST = "incomplete_request"
NOT_EXPECTED = "not_expected"
PENDING = "pending"
ABANDONED = "abandoned"
OUTCOMES = (ANSWERED, INCOMPLETE, NOT_EXPECTED, PENDING, ABANDONED, UNANSWERED, INCOMPLETE_REQUEST, ORPHAN)


_LONG_ID = 1024  # characters; the native core has only shorter ones


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """A request and its response, or whichever of the two was captured.

    Every column of ``read --json`` (docs/columns.md) is an attribute of the same name. Some have types of
    Python: ``time`` is a datetime, ``connection`` an object, ``anomalies`` and ``proxy`` are named tuples.
    ``to_dict`` has all of them as in JSON.

    Attributes:
        connection: shared by all exchanges of a connection.
        number: number within its connection, from 1, in order of completion.
        kind: one of ``KINDS``; empty while the request is outstanding.
        request_frame, response_frame: as on the wire; None if not captured.
        api: name of the API; None if its key is unknown.
        api_key, api_version, correlation_id, client_id: from the request header (orphan: only the correlation
            ID). ``api_key`` is None for a SASL token outside Kafka's framing.
        completed_ns: when the response was complete (orphans too), or the request if acks=0, or when the
            request was dropped or timed out, or the connection ended.
        client_software_name ...: as known on the connection when this exchange completed.
        cluster_id: the same; None until it is decoded.
        request_header: decoded (kafka/headers.py RequestHeader); None if there is none.
        request, response: decoded bodies; None if not captured, or if nothing in them could be decoded.
        anomalies: of both messages.
        request_layout, response_layout: the layout that decoded the body (kafka/bodies.py BodyLayout); None
            if none did.
        text: what a line says about it (text/about.py), if the native core wrote that instead of decoding the
            bodies. Then they are None.
        decoded_bytes: estimated memory of the bodies; 0 until they are decoded.
        ended: of an unanswered request: whether no response can follow, because the connection ended or a
            later request was answered. None: unknown, because the response may not have been captured. Of
            an incomplete message: whether the connection ended.
        announced: if its last message began but did not end, the size that this one's size field announced;
            the message is the response if there is one, otherwise the request, and its frame has only what
            came of it. None: both are whole.
        is_out_of_order: whether a response came before the one to an earlier request, and one of these two
            requests is this one.
        ended_ns: of an unanswered request: time of the first FIN of the connection; ``closed_by_client``:
            whether it was the client's. None if there was none, or the request was no longer outstanding.
        is_held_up: of an unanswered request: whether the connection ended before the broker could respond,
            because not all bytes of the request had come, or had been acknowledged by its host (only known if
            TCP is analyzed), or because another response had begun.
        is_behind: of those: whether another response had begun.
        produced_ns: when the batches in the response were produced, by topic as in the message, partition,
            base offset and base timestamp (ms); None if not determined (exchanges/end_to_end.py).
        copies: of batches in it, the exchange with another copy: where a batch was fetched although its
            Produce failed, and the reverse; None if not determined (exchanges/end_to_end.py).
        errors: ``content.errors``; None until it is decoded. ``expected_errors``: those that are normal steps
            of the protocol (exchanges/expected.py).
        retransmitted_ns: when bytes of the request were last retransmitted, or arrived behind later ones,
            before the response; None: never.
        parts: of the latency; None unless answered and ``split_latency`` is set.
        think_us: of a fetch: since the response to the previous one of the connection; likewise.
        topic_ids: topic ID -> name, for the IDs in this exchange whose name was learned
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
    topic_ids: dict[str, str] = field(default_factory=dict)
    produced_ns: dict[tuple[str, int, int, int], int] | None = None
    copies: dict[Any, Any] | None = None
    text: str | None = None
    decoded_bytes: int = 0
    ended: bool | None = False
    errors: list[str] | None = None
    expected_errors: tuple[str, ...] = ()
    retransmitted_ns: int | None = None
    parts: LatencyParts | None = None
    think_us: int | None = None
    announced: int | None = None
    is_out_of_order: bool = False
    is_held_up: bool = False
    is_behind: bool = False
    cluster_id: str | None = None
    ended_ns: int | None = None
    closed_by_client: bool | None = None

    @property
    def is_cut(self) -> bool:
        """Whether its response began but did not end."""
        return self.announced is not None and self.response_frame is not None

    @property
    def first_frame(self) -> Frame:
        """The request's frame; an orphan's response frame."""
        frame = self.request_frame or self.response_frame
        assert frame is not None
        return frame

    @property
    def connection_key(self) -> ConnectionKey:
        """What identifies its connection."""
        return self.connection.key

    @property
    def order(self) -> tuple[int, int]:
        """Sort key for order of completion: the time, then the packet."""
        return self.completed_ns, (self.response_frame or self.first_frame).packet

    @property
    def time_ns(self) -> int:
        """Time of the last byte of the request (orphan: of the response)."""
        return self.first_frame.end_ns

    @property
    def held_bytes(self) -> int:
        """Bytes of both frames, and of a long client ID."""
        request, response = self.request_frame, self.response_frame
        frame_bytes = (len(request.data) if request else 0) + (len(response.data) if response else 0)
        client_id = self.client_id
        return frame_bytes + getsizeof(client_id) if client_id and len(client_id) > _LONG_ID else frame_bytes

    @property
    def latency_us(self) -> int | None:
        """From the last byte of the request to the first byte of the response, in whole microseconds, rounded
        down; None unless answered.
        """
        if self.request_frame is None or self.response_frame is None:
            return None
        return (self.response_frame.start_ns - self.request_frame.end_ns) // 1000

    @property
    def queued_us(self) -> int | None:
        """See ``LatencyParts``; None: not known."""
        return None if self.parts is None else self.parts.queued_us

    @property
    def throttled_us(self) -> int | None:
        """See ``queued_us``."""
        return None if self.parts is None else self.parts.throttled_us

    @property
    def network_us(self) -> int | None:
        """See ``queued_us``."""
        return None if self.parts is None else self.parts.network_us

    @property
    def wait_us(self) -> int | None:
        """See ``queued_us``."""
        return None if self.parts is None else self.parts.wait_us

    @property
    def service_us(self) -> int | None:
        """See ``queued_us``."""
        return None if self.parts is None else self.parts.service_us

    @property
    def request_transfer_us(self) -> int | None:
        """From the first byte of the request to its last; None if it is not whole, see ``_transfer_us``."""
        return None if self.announced is not None and not self.is_cut else _transfer_us(self.request_frame)

    @property
    def response_transfer_us(self) -> int | None:
        """From the first byte of the response to its last; None if it is not whole, see ``_transfer_us``."""
        return None if self.is_cut else _transfer_us(self.response_frame)

    @property
    def total_us(self) -> int | None:
        """Both transfers and the latency, each in whole microseconds; None if one of them is not known."""
        request_us, response_us = self.request_transfer_us, self.response_transfer_us
        if request_us is None or response_us is None:
            return None
        latency_us = self.latency_us
        return None if latency_us is None or latency_us < 0 else request_us + latency_us + response_us

    @property
    def capture(self) -> str:
        """The capture as the user named it."""
        return self.first_frame.interface.capture

    @property
    def packet(self) -> int:
        """Number of the packet that completed the request (orphan: the response)."""
        return self.first_frame.packet

    @property
    def time(self) -> datetime | None:
        """``time_ns`` in UTC; None if it is not between the years 1 and 9999."""
        try:
            return _EPOCH + timedelta(microseconds=self.time_ns // 1000)
        except OverflowError:
            return None

    @property
    def client_ip(self) -> str:
        """Address of the client."""
        return self.connection.client.ip

    @property
    def client_port(self) -> int:
        """Port of the client."""
        return self.connection.client.port

    @property
    def broker_ip(self) -> str:
        """Address of the broker."""
        return self.connection.broker.ip

    @property
    def broker_port(self) -> int:
        """Port of the broker."""
        return self.connection.broker.port

    @property
    def hop_ip(self) -> str | None:
        """Address from which the connection was opened, if there is a PROXY header."""
        return None if self.connection.hop is None else self.connection.hop.ip

    @property
    def hop_port(self) -> int | None:
        """Its port."""
        return None if self.connection.hop is None else self.connection.hop.port

    @property
    def proxy(self) -> Proxy | None:
        """What the PROXY header says; None without one."""
        return self.connection.proxy

    @property
    def request_bytes(self) -> int | None:
        """Bytes of the request on the wire, with its size field; None if not captured."""
        return None if self.request_frame is None else self.request_frame.wire_bytes

    @property
    def response_bytes(self) -> int | None:
        """The same of the response."""
        return None if self.response_frame is None else self.response_frame.wire_bytes

    @property
    def request_size(self) -> int | None:
        """Size that an incomplete request announced, without the size field; None if it is complete."""
        return None if self.is_cut else self.announced

    @property
    def request_received(self) -> int | None:
        """Bytes of an incomplete request that came, with the size field; None if it is complete."""
        return None if self.request_size is None else self.request_bytes

    @property
    def response_size(self) -> int | None:
        """``request_size`` of the response."""
        return self.announced if self.is_cut else None

    @property
    def response_received(self) -> int | None:
        """``request_received`` of the response."""
        return None if self.response_size is None else self.response_bytes

    # The rest comes from modules above, most of it from bodies: docs/decisions/columns-are-attributes.md

    @property
    def community_id(self) -> str:
        """Community ID of the TCP connection."""
        return cast("str", _from_column("community_id", self))

    @property
    def id(self) -> str:
        """``connection/number``, as ``read --exchange`` takes it."""
        return f"{self.connection.id}/{self.number}"

    @property
    def outcome(self) -> str | None:
        """One of ``OUTCOMES``; None: the response may not have been captured."""
        return cast("str | None", _from_column("outcome", self))

    @property
    def topics(self) -> list[str]:
        """Distinct topic names, those of the request first; the topic ID if no name is known."""
        return cast("list[str]", _from_column("topics", self))

    @property
    def group_id(self) -> str | None:
        """The first group in the request."""
        return cast("str | None", _from_column("group_id", self))

    @property
    def transactional_id(self) -> str | None:
        """The first transactional ID in the request."""
        return cast("str | None", _from_column("transactional_id", self))

    @property
    def throttle_time_ms(self) -> int | None:
        """Throttle time in the response."""
        return cast("int | None", _from_column("throttle_time_ms", self))

    @property
    def records(self) -> int | None:
        """Records in both messages, from the batch headers; None: the API carries none, or not known."""
        return cast("int | None", _from_column("records", self))

    @property
    def records_bytes(self) -> int | None:
        """Bytes of the record data on the wire, with batch headers; None as above."""
        return cast("int | None", _from_column("records_bytes", self))

    def to_dict(self) -> dict[str, Any]:
        """The row of ``read --json``: column name -> str, int, bool, list, dict or None."""
        return cast("dict[str, Any]", import_module("kdissect.tables.lines").json_row(self))

    def __repr__(self) -> str:
        api = f"API {self.api_key}" if self.api is None else self.api
        version = "" if self.api_version is None else f" v{self.api_version}"
        result = self.kind if self.latency_us is None else f"{self.latency_us} us"
        place = f"{self.id}, {self.time or self.time_ns}"
        return f"<Exchange {place}: {api}{version} from {self.client_id!r}, {result}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        return cast("str", import_module("kdissect.text.notebook").html(self))


def _from_column(column: str, exchange: Exchange) -> object:
    return import_module("kdissect.tables.columns").BY_NAME[column].get(exchange)


def _transfer_us(frame: Frame | None) -> int | None:
    """From the first byte of a frame to its last. None if bytes of it were not captured or not kept, or if
    the first came in a later packet than the last.
    """
    if frame is None or not frame.complete or frame.end_ns < frame.start_ns:
        return None
    return (frame.end_ns - frame.start_ns) // 1000
