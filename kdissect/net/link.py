"""Link-layer header of a packet -> ethertype and position of the next header.

    Ethernet   | destination 6 | source 6 | [tag 4]* | ethertype 2 | ...
    cooked v1  | packet type 2 | ARPHRD 2 | length 2 | address 8 | protocol 2 | ...
    cooked v2  | protocol 2 | 0 0 | interface 4 | ARPHRD 2 | packet type 1 | length 1 | address 8 | ...
    BSD null   | address family 4, in the byte order of the capturing machine | ...
    raw        | IP header

Link types: https://www.tcpdump.org/linktypes.html. A tag is a VLAN tag: 802.1Q, or 802.1ad and its
predecessor, which add a second tag before it. A length in place of the ethertype may be followed by a SNAP
header (IEEE 802) with an ethertype. The ethertype "transparent Ethernet bridging" is followed by another
Ethernet header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NULL, ETHERNET, RAW_BSD, RAW_OPENBSD, RAW, LOOP = 0, 1, 12, 14, 101, 108
COOKED, IPV4_ONLY, IPV6_ONLY, COOKED_V2 = 113, 228, 229, 276

IPV4, IPV6 = 0x0800, 0x86DD
BRIDGED = 0x6558  # transparent Ethernet bridging
_VLAN_TAGS = frozenset((0x8100, 0x88A8, 0x9100))
_SMALLEST_ETHERTYPE = 0x0600  # a smaller number is the length of an 802.3 frame
_SNAP = b"\xaa\xaa\x03\0\0\0"

_NOT_IP = {
    0x0806: "ARP",
    0x8035: "RARP",
    0x8809: "Ethernet slow protocols",
    0x8863: "PPPoE discovery",
    0x888E: "802.1X",
    0x88CC: "LLDP",
    0x88E5: "MACsec",
}
# AF_INET6 has a different number on each BSD and on macOS.
_FAMILIES = {2: IPV4, 24: IPV6, 28: IPV6, 30: IPV6}
_NOT_CAPTURED = "link header not captured"

Place = tuple[int, int]
"""Ethertype, and position of the header it refers to."""


def network_layer(link_type: int, data: bytes) -> Place | str:
    """Parse the link layer of a packet. A string is the reason why that is not possible."""
    parse = _PARSERS.get(link_type)
    return parse(data) if parse else f"link type {link_type}"


def not_ip(ethertype: int) -> str:
    """Name of an ethertype other than IP."""
    if ethertype < _SMALLEST_ETHERTYPE:
        return "802.3 frame"
    return _NOT_IP.get(ethertype, f"ethertype 0x{ethertype:04x}")


def ethernet(data: bytes, pos: int = 0) -> Place | str:
    """Parse the Ethernet header at ``pos``."""
    return follow(data, pos + 12)


def follow(data: bytes, pos: int, *, header: int = 0) -> Place | str:
    """Parse the ethertype at ``pos``, and all VLAN tags, SNAP and Ethernet headers after it. Between the
    first ethertype and the header it refers to there are ``header`` more bytes.
    """
    while True:
        if len(data) < pos + 2 + header:
            return _NOT_CAPTURED
        ethertype = data[pos] << 8 | data[pos + 1]
        pos += 2 + header
        header = 0
        if ethertype in _VLAN_TAGS:
            pos += 2  # the next ethertype follows the tag's priority and VLAN ID
        elif ethertype == BRIDGED:
            pos += 12
        elif ethertype < _SMALLEST_ETHERTYPE and data.startswith(_SNAP, pos):
            pos += len(_SNAP)
        else:
            return ethertype, pos


def _cooked(data: bytes) -> Place | str:
    return follow(data, 14)


def _cooked_v2(data: bytes) -> Place | str:
    return follow(data, 0, header=18)


def _null(data: bytes) -> Place | str:
    if len(data) < 4:
        return _NOT_CAPTURED
    family = int.from_bytes(data[:4], "big")
    if family not in _FAMILIES:
        family = int.from_bytes(data[:4], "little")
    return (_FAMILIES[family], 4) if family in _FAMILIES else f"address family {family}"


def _raw(data: bytes) -> Place | str:
    if not data:
        return _NOT_CAPTURED
    version = data[0] >> 4
    if version in (4, 6):
        return (IPV4 if version == 4 else IPV6), 0
    return "neither IPv4 nor IPv6"


_PARSERS: dict[int, Callable[[bytes], Place | str]] = {
    NULL: _null,
    LOOP: _null,
    ETHERNET: ethernet,
    COOKED: _cooked,
    COOKED_V2: _cooked_v2,
    RAW: _raw,
    RAW_BSD: _raw,
    RAW_OPENBSD: _raw,
    IPV4_ONLY: lambda _: (IPV4, 0),
    IPV6_ONLY: lambda _: (IPV6, 0),
}
