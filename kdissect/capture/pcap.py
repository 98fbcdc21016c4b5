"""A pcap file -> packet blocks, in one pass.

Format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html

    magic u32 | major u16 | minor u16 | reserved 8 | snaplen u32 | FCS bits and link type u32
    for each packet: seconds u32 | fraction u32 | captured bytes u32 | original bytes u32 | the captured bytes
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kdissect import core
from kdissect.capture.source import BYTE_ORDERS, FileFormat, one_by_one
from kdissect.errors import CaptureError
from kdissect.model import IdleTick, Interface, PacketBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from kdissect.capture.source import Source
    from kdissect.capture.window import Window
    from kdissect.model import Packet

MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
# Kuznetzov's libpcap patch, still used by some appliances: eight more bytes in each packet header.
MODIFIED = 0xA1B2CD34

FILE_HEADER_BYTES = 24
_PACKET_HEADER_BYTES = {MICROSECONDS: 16, NANOSECONDS: 16, MODIFIED: 24}
_HEADERS = struct.Struct(">4I"), struct.Struct("<4I")  # of a packet, by whether it is little-endian
_MAJORS = 2, 2 << 8  # some programs write the version in the other byte order than the rest
_ORDERS: dict[bytes, tuple[str, int]] = {
    struct.pack(order + "I", magic): (order, magic) for order in "<>" for magic in _PACKET_HEADER_BYTES
}


def recognized(head: bytes) -> bool:
    return head[:4] in _ORDERS


def packets(window: Window, source: Source) -> Generator[Packet | IdleTick, None, None]:
    return one_by_one(packet_blocks(window, source))


def _step(
    data: bytes, pos: int, is_little: bool, tick_ns: int, header: int, limit: int
) -> tuple[Sequence[tuple[int, int, int, int]], int, int, int]:
    """Step over packets. Returns their places, where the next one begins, how many bytes from there on it
    needs, and how many it claims to have captured.
    """
    unpack = _HEADERS[is_little].unpack_from
    size = len(data)
    last = size - header
    places: list[tuple[int, int, int, int]] = []
    while pos <= last:
        seconds, ticks, captured, length = unpack(data, pos)
        start = pos + header
        end = start + captured
        if end > size or captured > limit:
            return places, pos, end - pos, captured
        places.append((seconds * 1_000_000_000 + ticks * tick_ns, start, end, length))
        pos = end
    return places, pos, header, 0


def packet_blocks(window: Window, source: Source) -> Iterator[PacketBlock | IdleTick]:
    """Packets in the order of the file, and idle ticks while a live source waits for more.

    Raises:
        CaptureError: the file's version is not 2, or a packet header claims more bytes than
            ``limits.packet_bytes``; all packets before it have been yielded.
    """
    if not window.wait_for(FILE_HEADER_BYTES):
        source.warn("ends in the middle of the file header")
        return
    order, magic = _ORDERS[window.data[:4]]
    major, minor, snaplen, link_type = struct.unpack_from(order + "4xHH8xII", window.data)
    if major not in _MAJORS:
        raise CaptureError(f"unknown pcap version {major}.{minor}, at {window.place(4)}")
    # The upper half has the length of the frame check sequence that follows each packet, if any.
    interface = Interface(source.name, 0, link_type & 0xFFFF, snaplen)
    source.form = FileFormat("modified pcap" if magic == MODIFIED else "pcap", BYTE_ORDERS[order])
    source.describe(interface, 1_000_000_000 if magic == NANOSECONDS else 1_000_000)

    tick_ns = 1 if magic == NANOSECONDS else 1000
    header = _PACKET_HEADER_BYTES[magic]
    limit = source.limits.packet_bytes
    number = source.before
    time_ns = captured = 0
    pos, need = FILE_HEADER_BYTES, header
    try:
        while window.more(pos, need) or window.waits:
            if window.waits:
                if number:
                    yield IdleTick(time_ns + source.idle_ns)
                pos = 0
                continue
            data = window.data
            within = data, 0, order == "<", tick_ns, header, limit
            stepped = None if not core.is_used else core.native.pcap_places(*within)
            places, pos, need, captured = stepped or _step(*within)
            if places:
                time_ns = places[-1][0]
                number += len(places)
                source.packets = number
                yield PacketBlock(number - len(places) + 1, interface, data, places)
            if captured > limit:
                raise CaptureError(
                    f"packet {number + 1} claims {captured} captured bytes, more than {limit}, "
                    f"at {window.place(pos)}"
                )
        if window.data:
            place = window.place(0)
            if len(window.data) >= header:
                _, _, captured, length = _HEADERS[order == "<"].unpack_from(window.data, 0)
                if captured > length:  # damaged: the last packet of a truncated file has a valid header
                    raise CaptureError(
                        f"packet {number + 1} claims {captured} captured bytes of {length}, at {place}"
                    )
            source.warn(f"ends in the middle of packet {number + 1}, which begins at {place}")
    finally:
        source.packets = number
