"""Packet -> TCP segment.

     0      2      4          8               12     13      14
     | from |  to  | sequence | acknowledgment | size | flags | window, checksum, urgent | options | payload

link.py and ip.py parse the headers before TCP, and tunnel.py those of each tunnel around them. Most packets
never get here, because connection.py has a fast path for the common headers. Packets without TCP are counted
by their content. Memory: fragments of IP datagrams (ip.py).
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT, Limits
from kdissect.model import Endpoint, Packet, Segment
from kdissect.net.ip import TCP, UDP, Datagram, Fragment, Fragments, internet_layer, not_tcp
from kdissect.net.link import IPV4, IPV6, Place, network_layer, not_ip
from kdissect.net.stream import distance
from kdissect.net.tunnel import Tunnel, datagram_tunnel, ethertype_tunnel, link_tunnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Interface

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
CONTROL = FIN | SYN | RST | ACK
FLAGS = 0xFF

_new = tuple.__new__

# Ports, sequence, acknowledgment, header length, flags, window.
_HEADER = Struct(">4sIIBBH")
_HEADER_SIZE = 20
_NO_OPERATION, _SCALE, _SACK = 1, 3, 5  # other kinds of options
USUAL_OPTIONS, USUAL_BYTES = bytes((_NO_OPERATION, _NO_OPERATION, 8)), 12
"""How options begin that are timestamps and padding, and nothing else if they have so many bytes."""

_MAX_SCALE = 14  # larger ones mean this (RFC 7323, 2.3)
_ONE_BLOCK, _TWO_BLOCKS = 10, 18  # least lengths of a SACK option
_SCALE_BYTES = 3

_CACHED_IDS = 256
_CACHED_ADDRESSES = 4096
_CACHED_ENDS = 4096
_SEED = bytes(2)


class Segments:
    """Parses packets down to the TCP segment.

    Args:
        limits: on tunnels, fragments and reasons.

    Attributes:
        skipped: packets without a TCP segment, by reason. Reasons inside a tunnel include its name: "UDP in
            VXLAN".
        on_udp: is called with each UDP datagram that is not a tunnel; None: nothing is.
        is_incomplete: whether the last packet without a segment carried a fragment of a datagram that is
            still incomplete.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.skipped: Counter[str] = Counter()
        self.on_udp: Callable[[Datagram], object] | None = None
        self.is_incomplete = False
        self._limits = limits
        self._fragments = Fragments(limits, self.skipped)

    def feed(self, packet: Packet) -> Segment | None:
        """Parse a packet; None if it carries no TCP, or a fragment of a datagram that is still incomplete."""
        return self._counted(
            self._find_segment(network_layer(packet.interface.link_type, packet.data), packet, 0)
        )

    def _counted(self, result: Segment | str | None) -> Segment | None:
        if not isinstance(result, Segment):
            self._fragments.joined = []
            self.is_incomplete = result is None
        if isinstance(result, str):
            if result not in self.skipped and len(self.skipped) >= self._limits.skip_reasons:
                result = "other reasons"
            self.skipped[result] += 1
            return None
        return result

    def take_parts(self) -> list[tuple[Interface, int]]:
        """Interface and number of each packet that carried a fragment of the last segment's datagram. Empty
        if no segment since the last call was fragmented.
        """
        parts, self._fragments.joined = self._fragments.joined, []
        return parts

    def close(self) -> None:
        """The capture has ended: count the fragments of incomplete datagrams."""
        self._fragments.close()

    def _find_segment(self, place: Place | str, packet: Packet, depth: int) -> Segment | str | None:
        """The segment in the header at ``place``, inside ``depth`` tunnels."""
        if isinstance(place, str):
            tunnel = None if depth else link_tunnel(packet.interface.link_type)
            return self._enter(tunnel, 0, packet, 1) if tunnel else place
        ethertype, pos = place
        if ethertype not in (IPV4, IPV6):
            tunnel = ethertype_tunnel(ethertype)
            return self._enter(tunnel, pos, packet, depth + 1) if tunnel else not_ip(ethertype)
        return self._segment_in(internet_layer(ethertype, packet, pos), packet, depth)

    def _segment_in(
        self, content: Datagram | Fragment | str | None, packet: Packet, depth: int
    ) -> Segment | str | None:
        """The segment in a datagram, or in the datagram that a fragment completes."""
        if isinstance(content, Fragment):
            content = self._fragments.feed(content, packet)
        if not isinstance(content, Datagram):
            return content
        if content.protocol == TCP:
            return _segment(packet, content)
        if tunnel := datagram_tunnel(content):
            return self._enter(
                *tunnel, packet._replace(data=content.payload, length=content.length), depth + 1
            )
        if self.on_udp is not None and content.protocol == UDP:
            self.on_udp(content)
        return not_tcp(content.protocol)

    def _enter(self, tunnel: Tunnel, pos: int, packet: Packet, depth: int) -> Segment | str | None:
        """The segment in the tunnel whose header is at ``pos``."""
        if depth > self._limits.tunnels:
            return "too many tunnels"
        result = self._find_segment(tunnel.enter(packet.data, pos), packet, depth)
        return f"{result} in {tunnel.name}" if isinstance(result, str) else result


def _segment(packet: Packet, datagram: Datagram) -> Segment | str:
    addresses, _, payload, length = datagram
    if length < _HEADER_SIZE:
        return "malformed TCP header"
    if len(payload) < _HEADER_SIZE:
        return "TCP header not captured"
    ports, sequence, acknowledgment, size, flags, window = _HEADER.unpack_from(payload)
    header = (size >> 4) * 4
    if not _HEADER_SIZE <= header <= length:
        return "malformed TCP header"
    number, time_ns, interface, _, _ = packet
    ends, data = addresses + ports, payload[header:]
    options = payload[_HEADER_SIZE:header] if len(payload) >= header else None
    if options and len(options) == USUAL_BYTES and options.startswith(USUAL_OPTIONS):
        options = b""
    sent = ends, sequence, acknowledgment, flags, data, length - header, window, options
    values = number, time_ns, interface, *sent
    return _new(Segment, values)  # takes half the time of calling the class


def _option(options: bytes, kind: int) -> bytes:
    """The first option of a kind, with kind and length; empty if there is none, or it does not end."""
    pos = 0
    while pos + 1 < len(options) and options[pos]:
        length = options[pos + 1]
        if options[pos] == kind:
            return options[pos : pos + length] if pos + length <= len(options) else b""
        pos += 1 if options[pos] == _NO_OPERATION else max(2, length)
    return b""


def is_d_sack(options: bytes, acknowledgment: int) -> bool:
    """Whether the options of a segment report that another one arrived twice (RFC 2883, 4): their first SACK
    block is before the acknowledgment, or inside the second block.
    """
    sack = _option(options, _SACK)
    if len(sack) < _ONE_BLOCK:
        return False
    start, end = (int.from_bytes(sack[at : at + 4], "big") for at in (2, 6))
    if distance(start, acknowledgment) > 0:
        return True
    if len(sack) < _TWO_BLOCKS:
        return False
    around = [int.from_bytes(sack[at : at + 4], "big") for at in (10, 14)]
    return distance(around[0], start) >= 0 and distance(end, around[1]) >= 0


def window_scale(options: bytes) -> int | None:
    """The shift count that the options of a SYN offer (RFC 7323, 2.2); None: none."""
    scale = _option(options, _SCALE)
    return min(scale[2], _MAX_SCALE) if len(scale) == _SCALE_BYTES else None


@lru_cache(_CACHED_ENDS)
def reversed_ends(ends: bytes) -> bytes:
    """``Segment.ends`` of the other direction."""
    address = (len(ends) - 4) // 2
    ports = 2 * address
    return ends[address:ports] + ends[:address] + ends[ports + 2 :] + ends[ports : ports + 2]


def connection_key(ends: bytes) -> bytes:
    """The smaller ``Segment.ends`` of the two directions: the same for both."""
    return min(ends, reversed_ends(ends))


def endpoints(ends: bytes) -> tuple[Endpoint, Endpoint]:
    """Both ends in text form, source first."""
    address = (len(ends) - 4) // 2
    ports = 2 * address
    return (
        Endpoint(address_text(ends[:address]), int.from_bytes(ends[ports : ports + 2], "big")),
        Endpoint(address_text(ends[address:ports]), int.from_bytes(ends[ports + 2 :], "big")),
    )


@lru_cache(_CACHED_ADDRESSES)
def address_text(address: bytes) -> str:
    """An address of 4 or 16 bytes in text form."""
    if len(address) == 4:
        return ".".join(map(str, address))
    from socket import AF_INET6, inet_ntop  # not loaded for a capture without IPv6

    return inet_ntop(AF_INET6, address)


def _packed(ip: str) -> bytes:
    if ":" not in ip:
        return bytes(map(int, ip.split(".")))
    from socket import AF_INET6, inet_pton

    return inet_pton(AF_INET6, ip)


@lru_cache(_CACHED_IDS)
def community_id(one: Endpoint, other: Endpoint) -> str:
    """The Community ID of a TCP connection, the same in both directions: version 1, with seed 0, from
    https://github.com/corelight/community-id-spec.
    """
    from hashlib import sha1  # loads OpenSSL, for one column

    (ip, port), (far_ip, far_port) = sorted(
        (_packed(end.ip), end.port.to_bytes(2, "big")) for end in (one, other)
    )
    ends = _SEED + ip + far_ip + bytes((TCP, 0)) + port + far_port
    return f"1:{b2a_base64(sha1(ends, usedforsecurity=False).digest(), newline=False).decode()}"


# ------------------------------------------------------------------------------------------------------------
# Ends of a connection -> the shard it belongs to, when several processes read the same packets.
# ------------------------------------------------------------------------------------------------------------


_CACHED_SHARDS = 65_536
_SPREAD = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio. Multiples of it are spread evenly, so connections from consecutive ports
or addresses are divided better than at random: the busiest of 16 shards of 200 has 1.0 to 1.1 times the mean,
not 1.5 times.
"""
_WORD = (1 << 64) - 1
_IPV4_ENDS, _IPV6_ENDS = Struct(">IIHH"), Struct(">QQQQHH")


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``of`` shards of the connections; numbers begin at 0."""

    number: int
    of: int

    def owns(self, ends: bytes) -> bool:
        """Whether a connection is in this shard, by ``Segment.ends`` of either direction."""
        return shard_of(ends, self.of) == self.number


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(_CACHED_SHARDS)
def shard_of(ends: bytes, shards: int) -> int:
    """Number of the shard, of ``shards``, that a connection belongs to: the same in both directions. As in
    core/src/net/shard.rs.
    """
    if len(ends) == _IPV4_ENDS.size:
        one, other, source, destination = _IPV4_ENDS.unpack(ends)
    else:
        high, low, far_high, far_low, source, destination = _IPV6_ENDS.unpack(ends)
        one, other = high ^ low, far_high ^ far_low
    both = (one << 16 | source) + (other << 16 | destination)
    number: int = ((both * _SPREAD & _WORD) >> 32) * shards >> 32
    return number


class StreamNumbers:
    """Numbers TCP connections from 0 as tshark's ``tcp.stream``: by the first segment of each, even a
    bare acknowledgment. A SYN with another sequence number than its direction began with starts the next one.
    Holds the ends of at most ``limits.tcp_streams`` connections, and forgets the oldest.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._max = 2 * limits.tcp_streams
        self._directions: dict[bytes, tuple[int, int]] = {}  # ends -> number, and where the direction begins
        self._next = 0

    def feed(self, segment: Segment) -> int:
        """The number of a segment's connection."""
        directions, ends, begin = self._directions, segment.ends, segment.sequence
        begins = segment.flags & (SYN | ACK) == SYN
        if (known := directions.get(ends)) is not None and not (begins and known[1] != begin):
            return known[0]
        back = reversed_ends(ends)
        other = directions.get(back)
        if known is None and other is not None:
            number = other[0]
        else:
            directions.pop(back, None)
            number, self._next = self._next, self._next + 1
        if not segment.flags & SYN:
            begin = (begin - 1) & 0xFFFFFFFF
        directions[ends] = number, begin
        if len(directions) > self._max:
            del directions[next(iter(directions))]
        return number
