"""A capture -> the same traffic as other networks carry it and other programs write it down: nothing is lost.

``NETWORKS`` change packets, each of which keeps its number and its time; ``FILES`` write files. Written from
the RFCs, without any code of kdissect/net and kdissect/capture.
"""

from __future__ import annotations

from itertools import groupby
from struct import pack
from typing import TYPE_CHECKING

from kdissect.model import Interface, Packet
from tests.captures import (
    NANOSECONDS,
    enhanced,
    gzipped,
    interface,
    lz4_compressed,
    option,
    pcap,
    pcapng,
    section,
    zstd_compressed,
)  # fmt: skip
from tests.segments import COOKED, COOKED_V2, ETHERNET, RAW, UDP, checksum, ipv4, ipv6, link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Network = Callable[[list[Packet]], list[Packet]]

ETHERNET_HEADER = 14
GRE, FRAGMENT_HEADER = 47, 44
OUTER = ("192.0.2.1", "192.0.2.2")
OUTER_6 = ("2001:db8::1", "2001:db8::2")


def network(packet: Packet) -> bytes:
    """The IP packet; samples are Ethernet without padding."""
    assert packet.interface.link_type == ETHERNET
    return packet.data[ETHERNET_HEADER:]


def each(change: Callable[[bytes], bytes], link_type: int = ETHERNET) -> Network:
    """Put other bytes around, or in the place of, each IP packet."""

    def disguise(packets: list[Packet]) -> list[Packet]:
        there = Interface("disguised", 0, link_type)
        changed = [(packet, change(network(packet))) for packet in packets]
        return [packet._replace(interface=there, data=data, length=len(data)) for packet, data in changed]

    return disguise


def udp(payload: bytes, port: int) -> bytes:
    return pack(">HHHH", 54_321, port, 8 + len(payload), 0) + payload


def vxlan(inner: bytes) -> bytes:
    """RFC 7348."""
    return link(ipv4(*OUTER, udp(pack(">II", 0x0800_0000, 42 << 8) + link(inner), 4789), protocol=UDP))


def vxlan_over_ipv6(inner: bytes) -> bytes:
    return link(ipv6(*OUTER_6, udp(pack(">II", 0x0800_0000, 42 << 8) + link(inner), 4789), protocol=UDP))


def gre(inner: bytes) -> bytes:
    """RFC 2784; with a key (RFC 2890)."""
    return link(ipv4(*OUTER, pack(">HHI", 0x2000, ethertype(inner), 7) + inner, protocol=GRE))


def gre_with_ethernet(inner: bytes) -> bytes:
    return link(ipv4(*OUTER, pack(">HH", 0, 0x6558) + link(inner), protocol=GRE))


def ip_in_ip(inner: bytes) -> bytes:
    return link(ipv4(*OUTER, inner, protocol=4 if inner[0] >> 4 == 4 else 41))


def ethertype(inner: bytes) -> int:
    return 0x0800 if inner[0] >> 4 == 4 else 0x86DD


def other_family(inner: bytes) -> bytes:
    """The same segment over IPv6; of IPv6 one over IPv4. The last 32 bits of an address stay."""
    if inner[0] >> 4 == 4:
        ends = [
            f"2001:db8::{inner[at]:x}{inner[at + 1]:02x}:{inner[at + 2]:x}{inner[at + 3]:02x}"
            for at in (12, 16)
        ]
        return link(ipv6(ends[0], ends[1], inner[(inner[0] & 15) * 4 :]))
    source, destination = (".".join(map(str, inner[at + 12 : at + 16])) for at in (8, 24))
    return link(ipv4(source, destination, inner[40:]))


def padded(inner: bytes) -> bytes:
    """As a network card hands over what is shorter than Ethernet allows, and some switches whatever it is."""
    return link(inner) + bytes(6)


def fragments(size: int, *, backwards: bool = False) -> Network:
    """Each IP packet in fragments of ``size`` bytes."""

    def disguise(packets: list[Packet]) -> list[Packet]:
        out: list[Packet] = []
        for packet in packets:
            changed = [
                packet._replace(data=data, length=len(data))
                for data in pieces(network(packet), packet.number, size)
            ]
            out += reversed(changed) if backwards else changed
        return out

    return disguise


def pieces(datagram: bytes, number: int, size: int) -> Iterator[bytes]:
    is_4 = datagram[0] >> 4 == 4
    body = datagram[(datagram[0] & 15) * 4 :] if is_4 else datagram[40:]
    for start in range(0, len(body), size):
        piece, more = body[start : start + size], start + size < len(body)
        if is_4:
            flags = start // 8 | (0x2000 if more else 0)
            before = pack(">BBHHHBB", 0x45, 0, 20 + len(piece), number & 0xFFFF, flags, 64, datagram[9])
            head = before + pack(">H", checksum(before + b"\0\0" + datagram[12:20])) + datagram[12:20]
        else:
            own = pack(">BBHI", datagram[6], 0, start | more, number)
            head = pack(">IHBB", 6 << 28, 8 + len(piece), FRAGMENT_HEADER, 64) + datagram[8:40] + own
        yield link(head + piece)


NETWORKS: dict[str, Network] = {
    "cooked": each(lambda inner: link(inner, COOKED), COOKED),
    "cooked v2": each(lambda inner: link(inner, COOKED_V2), COOKED_V2),
    "raw IP": each(lambda inner: inner, RAW),
    "VLAN": each(lambda inner: link(inner, vlan=[(0x8100, 7)])),
    "VLAN in VLAN": each(lambda inner: link(inner, vlan=[(0x88A8, 7), (0x8100, 8)])),
    "padded": each(padded),
    "VXLAN": each(vxlan),
    "VXLAN over IPv6": each(vxlan_over_ipv6),
    "GRE": each(gre),
    "GRE with Ethernet": each(gre_with_ethernet),
    "IP in IP": each(ip_in_ip),
    "IPv6 for IPv4": each(other_family),
    "fragments": fragments(104),
    "fragments backwards": fragments(104, backwards=True),
}
ENDS_DIFFER = frozenset({"IPv6 for IPv4"})


def timed(packets: list[Packet]) -> list[tuple[int, bytes]]:
    return [(packet.time_ns, packet.data) for packet in packets]


def several_interfaces(packets: list[Packet]) -> bytes:
    """A pcapng file in which neighboring packets come from different interfaces and link layers, some with
    a comment, in two sections.
    """
    ways = (ETHERNET, COOKED, RAW)
    out = []
    for half in (packets[: len(packets) // 2], packets[len(packets) // 2 :]):
        out += [section(), *(interface(link_type=way, resolution=9) for way in ways)]
        for place, packet in enumerate(half):
            index = place % len(ways)
            comment = option(1, b"noted") + option(0, b"") if place % 5 == 0 else b""
            data = link(network(packet), ways[index])
            out.append(enhanced(packet.time_ns, data, index=index, options=comment))
    return b"".join(out)


FILES: dict[str, Callable[[list[Packet]], bytes]] = {
    "pcap": lambda packets: pcap(timed(packets)),
    "pcap big-endian": lambda packets: pcap(timed(packets), order=">"),
    "pcap nanoseconds": lambda packets: pcap(timed(packets), magic=NANOSECONDS),
    "pcap gzip": lambda packets: gzipped(pcap(timed(packets))),
    "pcap zstd": lambda packets: zstd_compressed(pcap(timed(packets))),
    "pcap lz4": lambda packets: lz4_compressed(pcap(timed(packets))),
    "pcapng": lambda packets: pcapng(timed(packets)),
    "pcapng nanoseconds": lambda packets: pcapng(timed(packets), nanoseconds=True),
    "pcapng several interfaces": several_interfaces,
}
WITH_NANOSECONDS = frozenset({"pcap nanoseconds", "pcapng nanoseconds", "pcapng several interfaces"})


def in_two_files(packets: list[Packet]) -> list[bytes]:
    """What two machines captured: a packet that one of them saw is in its file, numbered there."""
    halves: list[list[tuple[int, bytes]]] = [[], []]
    for side, group in groupby(packets, key=lambda packet: packet.number // 7 % 2):
        halves[side] += timed(list(group))
    return [pcap(half) for half in halves]
