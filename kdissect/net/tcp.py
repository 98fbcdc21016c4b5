"""Packet -> TCP segment.

     0      2      4          8               12     13      14
     | from |  to  | sequence | acknowledgment | size | flags | window, checksum, urgent | options | payload

The usual packet, TCP over IPv4 over Ethernet without options, tags, fragments and cut ends, is read by one
``unpack``; every other one by link.py and ip.py. What carries no TCP is counted by what it is, never
dropped in silence. Holds fragments of IP datagrams (ip.py).
"""

from __future__ import annotations

from collections import Counter
from struct import Struct

from kdissect.limits import DEFAULT, Limits
from kdissect.model import Endpoint, Packet, Segment
from kdissect.net.ip import TCP, Datagram, Fragment, Fragments, internet_layer, not_tcp
from kdissect.net.link import ETHERNET, IPV4, network_layer

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
CONTROL = FIN | SYN | RST | ACK

# Ethertype; IPv4: version and header length, total length, flags and fragment offset, protocol; addresses
# and ports, which are neighbours; sequence, acknowledgment, header length, flags.
_USUAL = Struct(">12xHBxHxxHxBxx12sIIBB")
_USUAL_START = 34  # of the TCP header
_USUAL_SIZE = 54  # up to the end of a TCP header without options
_IPV4_WITHOUT_OPTIONS = 0x45

# Ports, sequence, acknowledgment, header length, flags.
_HEADER = Struct(">4sIIBB")
_HEADER_SIZE = 20


class Segments:
    """Finds the TCP segment in a packet.

    Attributes:
        skipped: packets that were not looked into, by reason.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.skipped: Counter[str] = Counter()
        self._fragments = Fragments(limits, self.skipped)

    def feed(self, packet: Packet) -> Segment | None:
        """Take a packet; None when it carries no TCP, or a part of a datagram that is not complete."""
        number, time_ns, interface, data, _ = packet
        if len(data) >= _USUAL_SIZE and interface.link_type == ETHERNET:
            ethertype, version, total, place, protocol, ends, sequence, acknowledgment, size, flags = (
                _USUAL.unpack_from(data)
            )
            start, end = _USUAL_START + (size >> 4) * 4, 14 + total
            if (
                _USUAL_SIZE <= start <= end <= len(data)
                and ethertype == IPV4
                and version == _IPV4_WITHOUT_OPTIONS
                and protocol == TCP
                and not place & 0x3FFF
            ):
                return Segment(
                    number,
                    time_ns,
                    interface,
                    ends,
                    sequence,
                    acknowledgment,
                    flags,
                    data[start:end],
                    end - start,
                )
        found = self._find(packet)
        if isinstance(found, str):
            self.skipped[found] += 1
            return None
        return found

    def close(self) -> None:
        """No packet will follow: count the fragments that wait in vain."""
        self._fragments.close()

    def _find(self, packet: Packet) -> Segment | str | None:
        place = network_layer(packet.interface.link_type, packet.data)
        if isinstance(place, str):
            return place
        found: Datagram | Fragment | str | None = internet_layer(place[0], packet, place[1])
        if isinstance(found, Fragment):
            found = self._fragments.feed(found, packet)
        if not isinstance(found, Datagram):
            return found
        return _segment(packet, found) if found.protocol == TCP else not_tcp(found)


def _segment(packet: Packet, datagram: Datagram) -> Segment | str:
    addresses, _, payload, length = datagram
    if length < _HEADER_SIZE:
        return "malformed TCP header"
    if len(payload) < _HEADER_SIZE:
        return "TCP header not captured"
    ports, sequence, acknowledgment, size, flags = _HEADER.unpack_from(payload)
    header = (size >> 4) * 4
    if not _HEADER_SIZE <= header <= length:
        return "malformed TCP header"
    return Segment(
        packet.number,
        packet.time_ns,
        packet.interface,
        addresses + ports,
        sequence,
        acknowledgment,
        flags,
        payload[header:],
        length - header,
    )


def reversed_ends(ends: bytes) -> bytes:
    """``Segment.ends`` of the other direction."""
    address = (len(ends) - 4) // 2
    ports = 2 * address
    return ends[address:ports] + ends[:address] + ends[ports + 2 :] + ends[ports : ports + 2]


def endpoints(ends: bytes) -> tuple[Endpoint, Endpoint]:
    """Both ends as people write them, source first."""
    address = (len(ends) - 4) // 2
    ports = 2 * address
    return (
        Endpoint(_address_text(ends[:address]), int.from_bytes(ends[ports : ports + 2], "big")),
        Endpoint(_address_text(ends[address:ports]), int.from_bytes(ends[ports + 2 :], "big")),
    )


def _address_text(address: bytes) -> str:
    if len(address) == 4:
        return ".".join(map(str, address))
    from socket import AF_INET6, inet_ntop  # a capture without IPv6 need not load it

    return inet_ntop(AF_INET6, address)
