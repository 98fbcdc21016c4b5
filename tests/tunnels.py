"""The same TCP segment in every tunnel and link layer that kdissect enters, built by scapy."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, NamedTuple

ETHERNET, PPP, HDLC, PPPOE, CHDLC, WLAN, PFLOG, PRISM = 1, 9, 50, 51, 104, 105, 117, 119
RADIOTAP, AVS, PPI, PPP_WITH_DIRECTION = 127, 163, 192, 204
ETHERNET_LABEL, CONTROL_WORD_LABEL = 18, 19

SOURCE, DESTINATION = ("10.0.0.1", 40000), ("10.0.0.2", 9092)
SOURCE_6, DESTINATION_6 = ("2001:db8::1", 40000), ("2001:db8::2", 9092)


class Wrapping(NamedTuple):
    """A way to carry a packet.

    Attributes:
        link_type: of the outermost header.
        around: the headers, outermost first, and what they end with: "ip" or "ethernet".
        name: as kdissect calls it.
    """

    link_type: int
    layers_outside: list[Any]
    inside: str
    name: str


@cache
def scapy_layers() -> Any:
    """All of scapy that builds tunnels, under one name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import scapy.all as layers
        from scapy.contrib import avs, chdlc, erspan, etherip, geneve, gtp, mpls, nsh, tzsp
        from scapy.layers import l2tp, pflog, ppi, ppp, vxlan

    for module in (avs, chdlc, erspan, etherip, geneve, gtp, mpls, nsh, tzsp, l2tp, pflog, ppi, ppp, vxlan):
        for name, value in vars(module).items():
            if isinstance(value, type) and not hasattr(layers, name):
                setattr(layers, name, value)
    return layers


def segment(payload: bytes = b"hello" * 20, *, six: bool = False) -> Any:
    """The IP packet that is carried."""
    s = scapy_layers()
    source, destination = (SOURCE_6, DESTINATION_6) if six else (SOURCE, DESTINATION)
    header = (s.IPv6 if six else s.IP)(src=source[0], dst=destination[0])
    timestamps = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
    tcp = s.TCP(sport=source[1], dport=destination[1], seq=2**32 - 2, ack=77, flags="PA", options=timestamps)
    return header / tcp / s.Raw(payload)


def ethernet() -> Any:
    """A header whose first digit is not that of IPv4, IPv6 or a control word, which MPLS readers look at."""
    return scapy_layers().Ether(src="92:00:00:00:00:01", dst="92:00:00:00:00:02")


@cache
def wrappings(*, six: bool = False) -> dict[str, Wrapping]:
    """Each by a name for the test; those that tell what they carry tell of IPv4 or IPv6."""
    s = scapy_layers()
    ethertype, number, protocol = (0x86DD, 2, 0x57) if six else (0x0800, 1, 0x21)
    ppp = s.PPP(proto=protocol)
    wire = [ethernet(), s.IP(src="192.0.2.1", dst="192.0.2.2")]
    wire_6 = [ethernet(), s.IPv6(src="2001:db8:f::1", dst="2001:db8:f::2")]
    wlan = [s.Dot11(type=2, subtype=0, FCfield=1), s.LLC(), s.SNAP()]
    qos = [s.Dot11(type=2, subtype=8, FCfield=2), s.Dot11QoS(), s.LLC(), s.SNAP()]

    def udp(port: int) -> list[Any]:
        return [*wire, s.UDP(sport=51515, dport=port)]

    def gre(**options: Any) -> list[Any]:
        return [*wire, s.GRE(**options)]

    vxlan = s.VXLAN(flags=8, vni=7)
    geneve_options = s.GENEVE(vni=7, proto=0x6558, options=s.GeneveOptions(classid=1, data=b"12345678"))
    labels = [s.MPLS(label=16, s=0), s.MPLS(label=17, s=1)]
    wire_label, word_label = s.MPLS(label=ETHERNET_LABEL, s=1), s.MPLS(label=CONTROL_WORD_LABEL, s=1)
    layers_by_name = {
        "VXLAN": (ETHERNET, [*udp(4789), vxlan], "ethernet", "VXLAN"),
        "VXLAN, old port": (ETHERNET, [*udp(8472), vxlan], "ethernet", "VXLAN"),
        "VXLAN over IPv6": (ETHERNET, [*wire_6, s.UDP(sport=1, dport=4789), vxlan], "ethernet", "VXLAN"),
        "VXLAN, VLAN inside": (ETHERNET, [*udp(4789), vxlan, ethernet(), s.Dot1Q(vlan=3)], "ip", "VXLAN"),
        "VXLAN GPE": (ETHERNET, [*udp(4790), s.VXLAN(flags=12, NextProtocol=number)], "ip", "VXLAN"),
        "VXLAN GPE, Ethernet": (
            ETHERNET,
            [*udp(4790), s.VXLAN(flags=12, NextProtocol=3)],
            "ethernet",
            "VXLAN",
        ),
        "VXLAN GPE, NSH": (
            ETHERNET,
            [*udp(4790), s.VXLAN(flags=12, NextProtocol=4), s.NSH(mdtype=2, nextproto=3)],
            "ethernet",
            "NSH in VXLAN",
        ),
        "Geneve": (ETHERNET, [*udp(6081), s.GENEVE(vni=7, proto=0x6558)], "ethernet", "Geneve"),
        "Geneve, options": (ETHERNET, [*udp(6081), geneve_options], "ethernet", "Geneve"),
        "Geneve, IP": (ETHERNET, [*udp(6081), s.GENEVE(vni=7, proto=ethertype)], "ip", "Geneve"),
        "GRE": (ETHERNET, gre(), "ip", "GRE"),
        "GRE, all fields": (
            ETHERNET,
            gre(chksum_present=1, key_present=1, seqnum_present=1, key=1, sequence_number=2),
            "ip",
            "GRE",
        ),
        "GRE over IPv6": (ETHERNET, [*wire_6, s.GRE()], "ip", "GRE"),
        "NVGRE": (ETHERNET, gre(key_present=1, key=0x123400, proto=0x6558), "ethernet", "GRE"),
        "ERSPAN I": (ETHERNET, [*gre(proto=0x88BE), s.ERSPAN_I()], "ethernet", "GRE"),
        "ERSPAN II": (
            ETHERNET,
            [*gre(proto=0x88BE, seqnum_present=1, sequence_number=2), s.ERSPAN_II()],
            "ethernet",
            "GRE",
        ),
        "ERSPAN III": (
            ETHERNET,
            [*gre(proto=0x22EB, seqnum_present=1, sequence_number=2), s.ERSPAN_III()],
            "ethernet",
            "GRE",
        ),
        "PPTP": (
            ETHERNET,
            [*wire, s.GRE_PPTP(call_id=3, seqnum_present=1, sequence_number=1), ppp],
            "ip",
            "GRE",
        ),
        "GRE, MPLS": (ETHERNET, [*gre(proto=0x8847), *labels], "ip", "MPLS in GRE"),
        "IP in IP": (ETHERNET, wire, "ip", "IP in IP"),
        "IP in IPv6": (ETHERNET, wire_6, "ip", "IP in IP"),
        "MPLS": (ETHERNET, [ethernet(), *labels], "ip", "MPLS"),
        "MPLS, Ethernet": (ETHERNET, [ethernet(), wire_label], "ethernet", "MPLS"),
        "MPLS, Ethernet behind a control word": (
            ETHERNET,
            [ethernet(), word_label, s.EoMCW()],
            "ethernet",
            "MPLS",
        ),
        "MPLS in UDP": (ETHERNET, [*udp(6635), *labels], "ip", "MPLS"),
        "MPLS in IP": (ETHERNET, [*wire, *labels], "ip", "MPLS"),
        "PPPoE": (ETHERNET, [ethernet(), s.PPPoE(sessionid=9), ppp], "ip", "PPPoE"),
        "provider backbone": (
            ETHERNET,
            [ethernet(), s.Dot1AD(vlan=2), s.Dot1AH(isid=9)],
            "ethernet",
            "provider backbone bridge",
        ),
        "NSH": (ETHERNET, [ethernet(), s.NSH(mdtype=1, nextproto=number)], "ip", "NSH"),
        "SNAP": (ETHERNET, [s.Dot3(), s.LLC(), s.SNAP()], "ip", ""),
        "EtherIP": (ETHERNET, [*wire, s.EtherIP()], "ethernet", "EtherIP"),
        "L2TP": (ETHERNET, [*udp(1701), s.L2TP(tunnel_id=1, session_id=2), ppp], "ip", "L2TP"),
        "GTP-U": (ETHERNET, [*udp(2152), s.GTP_U_Header(teid=3, gtp_type=255)], "ip", "GTP-U"),
        "GTP-U of 5G": (
            ETHERNET,
            [*udp(2152), s.GTP_U_Header(teid=3, gtp_type=255, E=1, next_ex=0x85), s.GTPPDUSessionContainer()],
            "ip",
            "GTP-U",
        ),
        "TZSP": (ETHERNET, [*udp(37008), s.TZSP(), s.TZSPTagEnd()], "ethernet", "TZSP"),
        "VXLAN in GRE": (
            ETHERNET,
            [*gre(), s.IP(src="198.51.100.1", dst="198.51.100.2"), s.UDP(sport=1, dport=4789), vxlan],
            "ethernet",
            "VXLAN in GRE",
        ),
        "802.11": (WLAN, wlan, "ip", "802.11"),
        "802.11 with service quality": (WLAN, qos, "ip", "802.11"),
        "radiotap": (RADIOTAP, [s.RadioTap(), *wlan], "ip", "802.11"),
        "radiotap with checksum": (
            RADIOTAP,
            [
                s.RadioTap(present="Flags", Flags="FCS"),
                s.Dot11FCS(type=2, subtype=0, FCfield=1),
                s.LLC(),
                s.SNAP(),
            ],
            "ip",
            "802.11",
        ),
        "Prism": (PRISM, [s.PrismHeader(), *wlan], "ip", "802.11"),
        "AVS": (AVS, [s.AVSWLANHeader(), *wlan], "ip", "802.11"),
        "PPI": (PPI, [s.PPI(dlt=WLAN, headers=[]), *wlan], "ip", "PPI"),
        "PPP": (PPP, [ppp], "ip", "PPP"),
        "PPP, short protocol": (PPP, [s.Raw(bytes((protocol,)))], "ip", "PPP"),
        "PPP as in HDLC": (HDLC, [s.HDLC(), ppp], "ip", "PPP"),
        "PPPoE without Ethernet": (PPPOE, [s.PPPoE(sessionid=9), ppp], "ip", "PPPoE"),
        "PPP with direction": (PPP_WITH_DIRECTION, [s.DIR_PPP(), ppp], "ip", "PPP"),
        "Cisco HDLC": (CHDLC, [s.CHDLC()], "ip", "Cisco HDLC"),
        "pflog": (PFLOG, [s.PFLog(addrfamily=24 if six else 2)], "ip", "pflog"),
    }
    return {name: Wrapping(*each) for name, each in layers_by_name.items()}


def wrapped(name: str, inside: Any) -> bytes:
    """An IP packet in a tunnel."""
    wrapping = wrappings(six=inside.name == "IPv6")[name]
    layers = [each.copy() for each in wrapping.layers_outside]
    if wrapping.inside == "ethernet":
        layers.append(ethernet())
    packet = layers[0]
    for layer in layers[1:]:
        packet /= layer
    return bytes(packet / inside)
