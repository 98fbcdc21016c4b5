"""Header of a tunnel, or of a rare link layer -> ethertype and position of the header inside.

    VXLAN    | flags 1 | - 2 | protocol 1 | network 3 | - 1 |            RFC 7348: Ethernet follows, or what
                                                                         draft-ietf-nvo3-vxlan-gpe numbers
    Geneve   | version, size of options 1 | flags 1 | ethertype 2 | network 3 | - 1 | options    RFC 8926
    GRE      | flags, version 2 | ethertype 2 | checksum 4 | key 4 | number 4 |   the last three if flagged;
                                                                                  RFC 2784, RFC 2890
    NSH      | version, flags 1 | size 1 | type 1 | protocol 1 | path 4 | context                RFC 8300

Containers and clouds wrap every packet in one of these, or in IP in IP, so they are parsed here. Scapy parses
all others, which takes five to ten times as long (docs/decisions/tunnels-by-hand-and-by-scapy.md): header by
header, up to the first one of Ethernet or IP, which link.py or ip.py parses.
"""

from __future__ import annotations

from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.net.ip import UDP
from kdissect.net.link import BRIDGED, IPV4, IPV6, ethernet, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.net.ip import Datagram
    from kdissect.net.link import Place

_NOT_CAPTURED, _MALFORMED, _NO_IP = "header not captured", "malformed header", "no IP"
_UDP_HEADER = 8
_MAX_HEADERS = 16
"""Most headers of one packet that scapy parses: MPLS labels, tags and the like."""


class Tunnel(NamedTuple):
    """A protocol that carries packets.

    Attributes:
        name: shown to the user: packets inside without TCP are counted as "... in name".
        enter: bytes and the position of the tunnel's header -> ethertype and position of the header inside,
            or a string with the reason why there is none. It never raises.
    """

    name: str
    enter: Callable[[bytes, int], Place | str]


def link_tunnel(link_type: int) -> Tunnel | None:
    """Parser of a link layer that link.py does not parse."""
    return _LINK_TYPES.get(link_type)


def ethertype_tunnel(ethertype: int) -> Tunnel | None:
    """The tunnel with this ethertype."""
    return _ETHERTYPES.get(ethertype)


def datagram_tunnel(datagram: Datagram) -> tuple[Tunnel, int] | None:
    """The tunnel that a datagram contains, and the position of its header in the payload."""
    payload = datagram.payload
    if datagram.protocol != UDP:
        tunnel = _PROTOCOLS.get(datagram.protocol)
        return (tunnel, 0) if tunnel else None
    if len(payload) < 4:
        return None
    # Packets of both directions go to the tunnel's port; L2TP and GTP-U also send from it.
    tunnel = _PORTS.get(payload[2] << 8 | payload[3]) or _PORTS.get(payload[0] << 8 | payload[1])
    return (tunnel, _UDP_HEADER) if tunnel else None


def _vxlan(data: bytes, pos: int) -> Place | str:
    if len(data) < pos + 8:
        return _NOT_CAPTURED
    flags, protocol = data[pos], data[pos + 3]
    if not flags & 0x08:
        return _MALFORMED
    return _numbered(protocol, data, pos + 8) if flags & 0x04 else ethernet(data, pos + 8)


def _geneve(data: bytes, pos: int) -> Place | str:
    if len(data) < pos + 8:
        return _NOT_CAPTURED
    if data[pos] >> 6:
        return _MALFORMED
    return follow(data, pos + 2, header=4 + (data[pos] & 0x3F) * 4)


def _gre(data: bytes, pos: int) -> Place | str:
    if len(data) < pos + 4:
        return _NOT_CAPTURED
    flags, version = data[pos], data[pos + 1] & 7
    ethertype = data[pos + 2] << 8 | data[pos + 3]
    if version or flags & 0x40 or ethertype in _IN_GRE:  # routes of RFC 1701
        return _by_scapy("layers.l2.GRE", data, pos)
    size = 4 + 4 * bool(flags & 0x80) + 4 * bool(flags & 0x20) + 4 * bool(flags & 0x10)
    return follow(data, pos + 2, header=size - 4)


def _nsh(data: bytes, pos: int) -> Place | str:
    if len(data) < pos + 8:
        return _NOT_CAPTURED
    size = (data[pos + 1] & 0x3F) * 4
    return _numbered(data[pos + 3], data, pos + size) if size >= 8 else _MALFORMED


def _numbered(protocol: int, data: bytes, pos: int) -> Place | str:
    """Parse by the protocol numbers that VXLAN-GPE and NSH have in common."""
    if protocol == 3:
        return ethernet(data, pos)
    if protocol == 4:
        return _NSH, pos
    return {1: (IPV4, pos), 2: (IPV6, pos)}.get(protocol, _NO_IP)


def _by_scapy(name: str, data: bytes, pos: int) -> Place | str:
    """Let scapy parse header after header, up to one that kdissect parses itself."""
    rest = data[pos:]
    try:
        kind, native = _layer(name), _native_headers()
        layer = None
        for _ in range(_MAX_HEADERS):
            if ethertype := native.get(kind):
                # Some of scapy's headers also take bytes from the end, so the position is searched for.
                begin = data.find(rest, pos)
                return ethernet(data, begin) if ethertype == BRIDGED else (ethertype, begin)
            if "dispatch_hook" in kind.__dict__:
                kind = kind.dispatch_hook(rest)
            layer = kind(_underlayer=layer)
            layer.original = rest
            payload = layer.post_dissect(layer.do_dissect(layer.pre_dissect(rest)))
            rest, _ = layer.extract_padding(payload)
            if not rest:
                break
            kind = layer.guess_payload_class(rest)
    except Exception:  # noqa: BLE001  (scapy's fields may raise anything on malformed bytes)
        return _MALFORMED
    return _NO_IP


@cache
def _layer(name: str) -> Any:
    """A layer class of scapy. Loads it without warnings and without reading the routing table."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("scapy").setLevel(logging.CRITICAL)
        from scapy.config import conf

        conf.route_autoload = conf.route6_autoload = False
        module, _, kind = name.rpartition(".")
        return getattr(import_module(f"scapy.{module}"), kind)


@cache
def _native_headers() -> dict[Any, int]:
    """Headers that kdissect parses itself, and their ethertypes."""
    for name in ("contrib.erspan.ERSPAN", "contrib.mpls.MPLS", "layers.dot11.Dot11", "layers.ppp.PPP"):
        _layer(name)  # once loaded, it is bound to the headers that can come before it
    return {
        _layer("layers.inet.IP"): IPV4,
        _layer("layers.inet6.IPv6"): IPV6,
        _layer("layers.l2.Ether"): BRIDGED,
        _layer("layers.l2.Dot3"): BRIDGED,
    }


def _scapy(name: str, layer: str) -> Tunnel:
    return Tunnel(name, partial(_by_scapy, layer))


_NSH = 0x894F
_IN_GRE = frozenset((0x88BE, 0x22EB, 0x880B))  # ERSPAN I and II, ERSPAN III, PPP

_WLAN, _PPP = "802.11", "PPP"
_LINK_TYPES = {
    9: _scapy(_PPP, "layers.ppp.PPP"),
    50: _scapy(_PPP, "layers.ppp.HDLC"),
    51: _scapy("PPPoE", "layers.ppp.PPPoE"),
    104: _scapy("Cisco HDLC", "contrib.chdlc.CHDLC"),
    105: _scapy(_WLAN, "layers.dot11.Dot11"),
    117: _scapy("pflog", "layers.pflog.PFLog"),
    119: _scapy(_WLAN, "layers.dot11.PrismHeader"),
    127: _scapy(_WLAN, "layers.dot11.RadioTap"),
    163: _scapy(_WLAN, "contrib.avs.AVSWLANHeader"),
    192: _scapy("PPI", "layers.ppi.PPI"),
    204: _scapy(_PPP, "layers.ppp.DIR_PPP"),
}
_MPLS = _scapy("MPLS", "contrib.mpls.MPLS")
_ETHERTYPES = {
    0x8847: _MPLS,
    0x8848: _MPLS,
    0x8864: _scapy("PPPoE", "layers.ppp.PPPoE"),
    0x88E7: _scapy("provider backbone bridge", "layers.l2.Dot1AH"),
    _NSH: Tunnel("NSH", _nsh),
}
_PROTOCOLS = {
    4: Tunnel("IP in IP", lambda _, pos: (IPV4, pos)),
    41: Tunnel("IPv6 in IP", lambda _, pos: (IPV6, pos)),
    47: Tunnel("GRE", _gre),
    97: _scapy("EtherIP", "contrib.etherip.EtherIP"),
    137: _MPLS,
}
_PORTS = {
    1701: _scapy("L2TP", "layers.l2tp.L2TP"),
    2152: _scapy("GTP-U", "contrib.gtp.GTP_U_Header"),
    4789: Tunnel("VXLAN", _vxlan),
    4790: Tunnel("VXLAN", _vxlan),
    6081: Tunnel("Geneve", _geneve),
    6635: _MPLS,
    8472: Tunnel("VXLAN", _vxlan),  # Linux's port before one was assigned; flannel still uses it
    37008: _scapy("TZSP", "contrib.tzsp.TZSP"),
}
