"""IP packets -> datagrams; IP fragments -> the datagrams they are part of. IPv4 and IPv6.

A length of 0 in the IP header means that the network card was to split the packet (segmentation offload, and
the jumbograms that Linux calls BIG TCP): then the packet's own length is used. Bytes after the datagram are
Ethernet padding and ignored.

Memory: incomplete datagrams, at most ``Limits.fragment_datagrams`` and ``fragment_bytes``, for at most
``fragment_age_ns`` of packet time. If bytes overlap, those captured first are used, and the overlap is
counted. As many completed datagrams are remembered, so that a repeated fragment, as in captures of ``-i
any``, does not start another datagram.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.net.link import IPV4
from kdissect.net.stream import Piece, Stream

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Interface, Packet

TCP, UDP = 6, 17
INCOMPLETE = "IP fragment of an incomplete datagram"

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_MOBILITY, _HIP, _SHIM6 = 135, 139, 140
_EXTENSIONS = frozenset(
    (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION, _MOBILITY, _HIP, _SHIM6)
)

_NOT_TCP = {
    1: "ICMP",
    2: "IGMP",
    UDP: "UDP",
    50: "ESP",
    58: "ICMPv6",
    59: "IPv6 without payload",
    89: "OSPF",
    132: "SCTP",
}

_new = tuple.__new__

# version and header length, -, total length, identification, flags and fragment offset, -, protocol, -,
# addresses
_IPV4 = Struct(">BxHHHxBxx8s")
# version ..., payload length, next header, -, addresses
_IPV6 = Struct(">IHBx32s")
# next header, -, offset and flags, identification
_FRAGMENT_HEADER = Struct(">BxHI")


class Datagram(NamedTuple):
    """The payload of an IP packet.

    Attributes:
        addresses: source and destination, 8 or 32 bytes.
        protocol: number of the protocol in ``payload``.
        payload: the captured bytes.
        length: bytes on the wire; more than ``len(payload)`` if the packet was truncated.
    """

    addresses: bytes
    protocol: int
    payload: bytes
    length: int


class Fragment(NamedTuple):
    """A part of a datagram: ``part.protocol`` is the datagram's, ``key`` is the same for all its parts."""

    key: tuple[bytes, int, int]
    offset: int
    more: bool
    part: Datagram


def internet_layer(ethertype: int, packet: Packet, pos: int) -> Datagram | Fragment | str:
    """Parse the IP header at ``pos``. A string is the reason why that is not possible."""
    wire = max(packet.length, len(packet.data)) - pos
    return _ipv4(packet.data, pos, wire) if ethertype == IPV4 else _ipv6(packet.data, pos, wire)


def not_tcp(protocol: int) -> str:
    """Name of a protocol other than TCP."""
    return _NOT_TCP.get(protocol, f"IP protocol {protocol}")


def _ipv4(data: bytes, pos: int, wire: int) -> Datagram | Fragment | str:
    if len(data) < pos + _IPV4.size:
        return "IP header not captured"
    first, total, identification, place, protocol, addresses = _IPV4.unpack_from(data, pos)
    header = (first & 0x0F) * 4
    total = total or wire
    if first >> 4 != 4 or header < _IPV4.size or total < header:
        return "malformed IPv4 header"
    values = addresses, protocol, data[pos + header : pos + total], total - header
    part = _new(Datagram, values)  # takes half the time of calling the class
    more, offset = bool(place & 0x2000), (place & 0x1FFF) * 8
    if more or offset:
        return Fragment((addresses, identification, protocol), offset, more, part)
    return _skip_extensions(part)


def _ipv6(data: bytes, pos: int, wire: int) -> Datagram | Fragment | str:
    if len(data) < pos + _IPV6.size:
        return "IP header not captured"
    first, length, protocol, addresses = _IPV6.unpack_from(data, pos)
    if first >> 28 != 6:
        return "malformed IPv6 header"
    length = length or max(0, wire - _IPV6.size)
    start = pos + _IPV6.size
    return _skip_extensions(Datagram(addresses, protocol, data[start : start + length], length))


def _skip_extensions(datagram: Datagram) -> Datagram | Fragment | str:
    """Skip the extension headers of IPv6, and the authentication header of IPv4 and IPv6."""
    addresses, protocol, payload, length = datagram
    pos = 0
    while protocol in _EXTENSIONS:
        if len(addresses) == 8 and protocol != _AUTHENTICATION:
            break  # in IPv4 these protocol numbers have headers of another form
        if len(payload) < pos + 8:
            return "IP header not captured" if len(payload) < length else "malformed IP extension header"
        if protocol == _FRAGMENT:
            following, place, identification = _FRAGMENT_HEADER.unpack_from(payload, pos)
            part = Datagram(addresses, following, payload[pos + 8 :], length - pos - 8)
            if place & 0xFFF9:
                return Fragment((addresses, identification, _FRAGMENT), place & 0xFFF8, bool(place & 1), part)
            size = 8
        elif protocol == _AUTHENTICATION:
            following, size = payload[pos], (payload[pos + 1] + 2) * 4
        else:
            following, size = payload[pos], (payload[pos + 1] + 1) * 8
        protocol = following
        pos += size
    if pos > length:
        return "malformed IP extension header"
    return Datagram(addresses, protocol, payload[pos:], length - pos) if pos else datagram


class _Partial:
    """An incomplete datagram."""

    __slots__ = ("count", "end", "first_ns", "protocol", "stream")

    def __init__(self, first_ns: int) -> None:
        self.first_ns = first_ns
        self.stream = Stream()
        self.count = 0
        self.end: int | None = None
        self.protocol: int | None = None

    @property
    def complete(self) -> bool:
        pieces = self.stream.pieces
        if self.end is None or self.stream.runs != 1:
            return False
        return pieces[0].start == 0 and pieces[-1].end == self.end


class Fragments:
    """Reassembles datagrams; counts unused fragments in ``skipped``.

    Attributes:
        joined: interface and number of each packet that carried a part of the last datagram completed.
    """

    def __init__(self, limits: Limits, skipped: Counter[str]) -> None:
        self._limits = limits
        self._skipped = skipped
        self._partials: OrderedDict[tuple[bytes, int, int], _Partial] = OrderedDict()
        self._held = 0
        self._completed_ns: OrderedDict[tuple[bytes, int, int], int] = OrderedDict()
        self.joined: list[tuple[Interface, int]] = []

    def feed(self, fragment: Fragment, packet: Packet) -> Datagram | str | None:
        """Add a fragment; return the datagram if it is complete now, otherwise None."""
        key, offset, more, part = fragment
        self._drop_expired(packet.time_ns)
        if not part.length:
            return "malformed IP fragment"
        partial = self._partials.get(key)
        if partial is None:
            completed_ns = self._completed_ns.get(key)
            if (
                completed_ns is not None
                and abs(packet.time_ns - completed_ns) <= self._limits.reorder_window_ns
            ):
                return "repeated IP fragment"
            partial = self._partials[key] = _Partial(packet.time_ns)
        end = offset + part.length
        piece = Piece(offset, end, part.payload, None, packet.number, packet.time_ns, packet.interface)
        self._put(partial, piece)
        if not more and partial.end is None:
            partial.end = end
        if offset == 0 and partial.protocol is None:
            partial.protocol = part.protocol
        if not partial.complete:
            self._enforce_limits()
            return None
        self._remove(key)
        self._completed_ns[key] = packet.time_ns
        self._completed_ns.move_to_end(key)
        if len(self._completed_ns) > self._limits.fragment_datagrams:
            self._completed_ns.popitem(last=False)
        self.joined = [(held.interface, held.packet) for held in partial.stream.pieces]
        datagram = _join(part.addresses, partial)
        inner = _skip_extensions(datagram)
        return "IP fragments inside fragments" if isinstance(inner, Fragment) else inner

    def close(self) -> None:
        """Count the fragments of datagrams that remained incomplete."""
        while self._partials:
            self._drop_oldest()

    def _put(self, partial: _Partial, piece: Piece) -> None:
        counts: Counter[str] = Counter()
        before = partial.stream.held
        partial.stream.put(piece, counts)
        partial.count += 1
        self._held += partial.stream.held - before
        if counts["overlapping_bytes"]:
            new = partial.stream.held > before
            self._skipped["overlapping IP fragment" if new else "repeated IP fragment"] += 1

    def _enforce_limits(self) -> None:
        limits = self._limits
        while len(self._partials) > limits.fragment_datagrams or self._held > limits.fragment_bytes:
            self._drop_oldest()

    def _drop_expired(self, now_ns: int) -> None:
        while self._partials:
            oldest = next(iter(self._partials.values()))
            if now_ns - oldest.first_ns <= self._limits.fragment_age_ns:
                break
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        key = next(iter(self._partials))
        self._skipped[INCOMPLETE] += self._remove(key).count

    def _remove(self, key: tuple[bytes, int, int]) -> _Partial:
        partial = self._partials.pop(key)
        self._held -= partial.stream.held
        return partial


def _join(addresses: bytes, partial: _Partial) -> Datagram:
    """The complete datagram, with its bytes up to the first one that was not captured."""
    captured = []
    for piece in partial.stream.pieces:
        captured.append(piece.payload)
        if len(piece.payload) < piece.end - piece.start:
            break
    assert partial.protocol is not None
    assert partial.end is not None
    return Datagram(addresses, partial.protocol, b"".join(captured), partial.end)
