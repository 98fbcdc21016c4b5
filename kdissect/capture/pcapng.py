"""A pcapng file -> ``Packet``, in one pass. Holds the window and the interfaces of the current section.

Format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html

This file reads the packets; section.py reads what stands between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.capture.section import ENHANCED_PACKET, LEAST_BYTES, NO_CLOCK, SECTION, SIMPLE_PACKET, Section
from kdissect.model import Lull, Packet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.capture.source import Source
    from kdissect.capture.window import Window


def recognised(head: bytes) -> bool:
    """Whether a stream that begins with ``head`` is a pcapng file."""
    return head[:4] == SECTION.to_bytes(4, "big")


def packets(window: Window, source: Source) -> Iterator[Packet | Lull]:
    """Packets in the order of the file, and lulls where the source waits for more. A packet without a time
    (simple packet block) gets that of the one before.

    Raises:
        CaptureError: a block that contradicts itself, or an announced length beyond ``limits``; all packets
            before it have been yielded.
    """
    section = Section(window, source)
    new = tuple.__new__
    limit = source.limits.packet_bytes
    number = others = time_ns = pos = 0
    try:
        while (block := section.next_packet(pos)) is not None or window.waits:
            if block is None:
                if number:
                    yield Lull(time_ns + source.silent_ns)
                pos = 0
                continue
            kind, pos, passed = block
            number += passed
            others += passed
            data = window.data
            if kind != ENHANCED_PACKET:
                if kind == SIMPLE_PACKET:
                    interface, captured_bytes, length, pos = section.simple(pos)
                else:
                    clock, ticks, captured_bytes, length, pos = section.obsolete(pos)
                    interface, time_ns = clock.interface, section.exact(clock, ticks)
                number += 1
                yield Packet(number, time_ns, interface, captured_bytes, length)
                continue
            # Nearly all blocks of nearly all files: as long as they follow each other in the window, stay.
            unpack, word, clock = section.enhanced, section.word, NO_CLOCK
            size = len(data)
            last = size - LEAST_BYTES[ENHANCED_PACKET]
            while pos <= last:
                kind, total, index, high, low, captured, length = unpack(data, pos)
                end = pos + total
                if kind != ENHANCED_PACKET or end > size:
                    break
                if captured > total - 32 or captured > limit or word(data, end - 4)[0] != total:
                    raise section.refused(pos, captured)
                if index != clock.number:
                    clock = section.clock(index, pos)
                if high < clock.plain_below:
                    time_ns = (high << 32 | low) * clock.tick_ns
                else:
                    time_ns = section.exact(clock, high << 32 | low)
                start = pos + 28
                number += 1
                # Half the price of calling the class: a named tuple's own __new__ is a Python function.
                yield new(Packet, (number, time_ns, clock.interface, data[start : start + captured], length))
                pos = end
            source.packets = number - others
        if section.cut is not None:
            unit = f"packet {number + 1}" if section.cut_packet else "a block"
            source.warn(f"ends in the middle of {unit}, which begins at {section.cut}")
    finally:
        source.packets = number - others
