"""Builds packets byte by byte, and whole TCP conversations as lists of packets.

Written from the header pictures of the RFCs and without any code of kdissect/net, so that tests compare two
readings of them.
"""

from __future__ import annotations

from ipaddress import ip_address
from struct import pack, unpack
from typing import TYPE_CHECKING

from kdissect.model import Interface, Packet

if TYPE_CHECKING:
    from collections.abc import Sequence

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
NULL, ETHERNET, RAW, LOOP, COOKED, IPV4_ONLY, IPV6_ONLY, COOKED_V2 = 0, 1, 101, 108, 113, 228, 229, 276
TCP, UDP = 6, 17

START_NS = 1_700_000_000_000_000_000
MILLISECOND = 1_000_000

Address = tuple[str, int]


def checksum(data: bytes) -> int:
    """The internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tcp(
    source: Address,
    destination: Address,
    sequence: int,
    acknowledgment: int,
    flags: int,
    payload: bytes = b"",
    *,
    options: bytes = b"",
    window: int = 64240,
) -> bytes:
    """A TCP segment."""
    size = (20 + len(options)) // 4 << 4
    fields = pack(
        ">HHIIBBH", source[1], destination[1], sequence, acknowledgment & 0xFFFFFFFF, size, flags, window
    )
    length = 20 + len(options) + len(payload)
    addresses = ip_address(source[0]).packed + ip_address(destination[0]).packed
    rest = pack(">BBH", 0, TCP, length & 0xFFFF) if len(addresses) == 8 else pack(">IHBB", length, 0, 0, TCP)
    total = checksum(addresses + rest + fields + bytes(4) + options + payload)
    return fields + pack(">HH", total, 0) + options + payload


def ipv4(
    source: str,
    destination: str,
    payload: bytes,
    *,
    protocol: int = TCP,
    options: bytes = b"",
    identification: int = 1,
    offset: int = 0,
    more: bool = False,
    length: int | None = None,
) -> bytes:
    """An IPv4 packet; ``offset`` in bytes, ``length`` as the header is to tell it."""
    header_bytes = 20 + len(options)
    total = header_bytes + len(payload) if length is None else length
    place = offset // 8 | (0x2000 if more else 0)
    before = pack(">BBHHHBB", 0x40 | header_bytes // 4, 0, total, identification, place, 64, protocol)
    after = ip_address(source).packed + ip_address(destination).packed + options
    return before + pack(">H", checksum(before + b"\0\0" + after)) + after + payload


def ipv6(
    source: str,
    destination: str,
    payload: bytes,
    *,
    protocol: int = TCP,
    extensions: Sequence[tuple[int, bytes]] = (),
    length: int | None = None,
) -> bytes:
    """An IPv6 packet; ``extensions`` are (own number, header from its second byte on)."""
    body, following = payload, protocol
    for number, rest in reversed(extensions):
        body, following = bytes((following,)) + rest + body, number
    announced = len(body) if length is None else length
    return pack(">IHBB", 6 << 28, announced, following, 64) + (
        ip_address(source).packed + ip_address(destination).packed + body
    )


def link(network: bytes, link_type: int = ETHERNET, *, vlan: Sequence[tuple[int, int]] = ()) -> bytes:
    """Put a link-layer header in front of an IP packet; ``vlan`` are tags as (ethertype, number)."""
    version = network[0] >> 4
    ethertype = 0x0800 if version == 4 else 0x86DD
    tags = b"".join(pack(">HH", tag, number) for tag, number in vlan) + pack(">H", ethertype)
    if link_type == ETHERNET:
        return bytes.fromhex("020000000002 020000000001") + tags + network
    if link_type == COOKED:
        return pack(">HHH8s", 0, 1, 6, b"\2\0\0\0\0\1") + tags + network
    if link_type == COOKED_V2:
        outer = tags[:2]
        return outer + pack(">HIHBB8s", 0, 2, 1, 0, 6, b"\2\0\0\0\0\1") + tags[2:] + network
    if link_type == NULL:
        return pack("<I", 2 if version == 4 else 30) + network
    if link_type == LOOP:
        return pack(">I", 2 if version == 4 else 24) + network
    assert link_type in (RAW, IPV4_ONLY, IPV6_ONLY)
    return network


def packet(
    data: bytes,
    *,
    number: int = 1,
    time_ns: int = START_NS,
    link_type: int = ETHERNET,
    length: int | None = None,
    snaplen: int = 0,
) -> Packet:
    """A packet as a capture reader hands it over; a snaplen cuts it."""
    captured = data[:snaplen] if snaplen else data
    interface = Interface("test.pcap", 0, link_type, snaplen)
    return Packet(number, time_ns, interface, captured, len(data) if length is None else length)


class Talk:
    """A TCP conversation, as the packets of its capture.

    Each packet comes ``step_ns`` after the one before, acknowledges all that its sender was sent until
    then, and carries at most ``mss`` bytes. Nothing is added that was not requested: call ``handshake`` and
    ``finish`` where they matter.
    """

    def __init__(
        self,
        client: Address = ("10.0.0.1", 40000),
        broker: Address = ("10.0.0.2", 9092),
        *,
        link_type: int = ETHERNET,
        vlan: Sequence[tuple[int, int]] = (),
        mss: int = 1460,
        snaplen: int = 0,
        client_start: int = 1000,
        broker_start: int = 5000,
        start_ns: int = START_NS,
        step_ns: int = MILLISECOND,
        first_number: int = 1,
    ) -> None:
        self.packets: list[Packet] = []
        self.ends = (client, broker)
        self.mss = mss
        self.snaplen = snaplen
        self.time_ns = start_ns
        self.step_ns = step_ns
        self._next = [client_start & 0xFFFFFFFF, broker_start & 0xFFFFFFFF]
        self._first_number = first_number
        self._interface = Interface("test.pcap", 0, link_type, snaplen)
        self._vlan = vlan

    def handshake(self, *options: bytes) -> Talk:
        """SYN, SYN with ACK, ACK; with the TCP options of each."""
        one, other = options or (b"", b"")
        self.put(0, SYN, acknowledgment=0, options=one)
        self.put(1, SYN | ACK, options=other)
        self.put(0, ACK)
        return self

    def client_sends(self, data: bytes) -> Talk:
        """Payload towards the broker, in segments of at most ``mss`` bytes."""
        return self._send(0, data)

    def broker_sends(self, data: bytes) -> Talk:
        """Payload towards the client."""
        return self._send(1, data)

    def client_acks(self) -> Talk:
        """A segment without payload from the client."""
        return self.put(0, ACK)

    def broker_acks(self) -> Talk:
        """A segment without payload from the broker."""
        return self.put(1, ACK)

    def client_skips(self, length: int) -> Talk:
        """The client sends bytes that the capture misses."""
        self._next[0] = (self._next[0] + length) & 0xFFFFFFFF
        return self

    def broker_skips(self, length: int) -> Talk:
        """The broker sends bytes that the capture misses."""
        self._next[1] = (self._next[1] + length) & 0xFFFFFFFF
        return self

    def finish(self) -> Talk:
        """FIN of both sides, acknowledged."""
        return self.put(0, FIN | ACK).put(1, FIN | ACK).put(0, ACK)

    def reset(self, side: int = 0) -> Talk:
        """RST by one side."""
        return self.put(side, RST | ACK)

    def put(
        self,
        side: int,
        flags: int,
        payload: bytes = b"",
        *,
        sequence: int | None = None,
        acknowledgment: int | None = None,
        window: int = 64240,
        options: bytes = b"",
    ) -> Talk:
        """One packet. With a ``sequence`` of its own it stands for itself and moves nothing on."""
        own = sequence is None
        sequence = self._next[side] if sequence is None else sequence & 0xFFFFFFFF
        acknowledgment = self._next[1 - side] if acknowledgment is None else acknowledgment
        source, destination = self.ends[side], self.ends[1 - side]
        segment = tcp(
            source, destination, sequence, acknowledgment, flags, payload, options=options, window=window
        )
        internet = ipv6 if ":" in source[0] else ipv4
        data = link(internet(source[0], destination[0], segment), self._interface.link_type, vlan=self._vlan)
        captured = data[: self.snaplen] if self.snaplen else data
        number = self._first_number + len(self.packets)
        self.packets.append(Packet(number, self.time_ns, self._interface, captured, len(data)))
        self.time_ns += self.step_ns
        if own:
            taken = len(payload) + bool(flags & SYN) + bool(flags & FIN)
            self._next[side] = (sequence + taken) & 0xFFFFFFFF
        return self

    def waits(self, seconds: float) -> Talk:
        """Nothing happens for so long."""
        self.time_ns += round(seconds * 1000) * MILLISECOND
        return self

    def _send(self, side: int, data: bytes) -> Talk:
        for start in range(0, len(data), self.mss):
            self.put(side, PSH | ACK, data[start : start + self.mss])
        return self
