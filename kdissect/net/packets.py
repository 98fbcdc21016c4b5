"""The ordered bytes of connections -> TCP packets that carry them, for a capture without what was inside of
other layers: TLS, tunnels, retransmissions.

Each packet is Ethernet, IPv4 or IPv6, and TCP with sequence numbers from 0. Bytes that were not captured are
missing here too. Holds the next sequence numbers of each open connection.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from struct import Struct
from typing import TYPE_CHECKING

from kdissect.model import Closed, Data, Gap, Packet, Prefaced
from kdissect.net.ip import TCP
from kdissect.net.link import ETHERNET
from kdissect.net.stream import SEQUENCE_MASK
from kdissect.net.tcp import ACK, FIN, RST, SYN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.model import Decrypted, Interface, Retransmitted
    from kdissect.net.connection import Connection

_PSH = 0x08
_MAX_PAYLOAD = 32 * 1024
_SNAPLEN = 262_144
_ETHERNET = Struct(">6s6sH")
_IPV4 = Struct(">BBHHHBBH4s4s")
_IPV6 = Struct(">IHBB16s16s")
_TCP = Struct(">HHIIBBHHH")
_MACS = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
_WORDS = Struct(">10H")


class PacketBuilder:
    """Makes the packets of connections."""

    def __init__(self) -> None:
        self._next: dict[Connection, list[int]] = {}
        self._interfaces: dict[Interface, Interface] = {}

    def feed(
        self,
        connection: Connection,
        side: int,
        item: Data | Gap | Prefaced | Retransmitted | Decrypted | Closed,
    ) -> Iterator[Packet]:
        """The packets for the next item of a side."""
        if isinstance(item, Closed):
            numbers = self._next.pop(connection, None)
            if numbers is not None and item.reason in ("fin", "reset"):
                streams = enumerate(connection.streams)
                fins = sorted((each.fin_ns, end) for end, each in streams if each.fin_ns is not None)
                ends = [(end, FIN | ACK) for _, end in fins]
                for end, flags in ends if item.reason == "fin" else (*ends, (0, RST | ACK)):
                    yield self._packet(connection, end, numbers, 0, item.time_ns, connection.interface, flags)
                    numbers[end] += bool(flags & FIN)
            return
        if isinstance(item, Prefaced):
            item = item.data
        if not isinstance(item, Data | Gap):
            return
        numbers = self._next.get(connection)
        if numbers is None:
            numbers = self._next[connection] = [0, 0]
            yield from self._handshake(connection, numbers)
        if isinstance(item, Gap):
            numbers[side] = numbers[side] + item.length & SEQUENCE_MASK
            return
        for start in range(0, len(item.payload), _MAX_PAYLOAD):
            payload = item.payload[start : start + _MAX_PAYLOAD]
            yield self._packet(
                connection, side, numbers, item.packet, item.time_ns, item.interface, ACK | _PSH, payload
            )
            numbers[side] = numbers[side] + len(payload) & SEQUENCE_MASK

    def _handshake(self, connection: Connection, numbers: list[int]) -> Iterator[Packet]:
        """That of TCP, if it was captured."""
        if connection.initiator is None or not all(connection.from_start):
            return
        one, time_ns, interface = connection.initiator, connection.first_time_ns, connection.interface
        for side, flags in ((one, SYN), (1 - one, SYN | ACK), (one, ACK)):
            yield self._packet(connection, side, numbers, connection.first_packet, time_ns, interface, flags)
            numbers[side] += bool(flags & SYN)

    def _packet(
        self,
        connection: Connection,
        side: int,
        numbers: list[int],
        number: int,
        time_ns: int,
        interface: Interface,
        flags: int,
        payload: bytes = b"",
    ) -> Packet:
        source, target = connection.ends[side], connection.ends[1 - side]
        acknowledgment = numbers[1 - side] if flags & ACK else 0
        segment = _TCP.pack(
            source.port, target.port, numbers[side], acknowledgment, 0x50, flags, 0xFFFF, 0, 0
        )
        addresses = ip_address(source.ip).packed, ip_address(target.ip).packed
        length = len(segment) + len(payload)
        if len(addresses[0]) == 4:
            kind = 0x0800
            header = _IPV4.pack(0x45, 0, 20 + length, 0, 0x4000, 64, TCP, 0, *addresses)
            total = sum(_WORDS.unpack(header))
            checksum = ~(total + (total >> 16)) & 0xFFFF
            header = header[:10] + checksum.to_bytes(2, "big") + header[12:]
        else:
            kind = 0x86DD
            header = _IPV6.pack(0x6000_0000, length, TCP, 64, *addresses)
        data = _ETHERNET.pack(_MACS[1 - side], _MACS[side], kind) + header + segment + payload
        return Packet(number, time_ns, self._as_ethernet(interface), data, len(data))

    def _as_ethernet(self, interface: Interface) -> Interface:
        known = self._interfaces.get(interface)
        if known is None:
            known = replace(interface, link_type=ETHERNET, snaplen=_SNAPLEN)
            self._interfaces[interface] = known
        return known
