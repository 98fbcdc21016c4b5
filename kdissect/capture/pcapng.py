"""A pcapng file -> ``Stretch``, in one pass. Holds the window and the interfaces of the current section.

Format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html

This file reads the packets; section.py reads what stands between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.capture.section import ENHANCED_PACKET, LEAST_BYTES, NO_CLOCK, SECTION, SIMPLE_PACKET, Section
from kdissect.capture.source import one_by_one
from kdissect.model import Lull, Stretch

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kdissect.capture.source import Source
    from kdissect.capture.window import Window
    from kdissect.model import Packet


def recognised(head: bytes) -> bool:
    """Whether a stream that begins with ``head`` is a pcapng file."""
    return head[:4] == SECTION.to_bytes(4, "big")


def packets(
    window: Window, source: Source, section: Section | None = None
) -> Generator[Packet | Lull, None, None]:
    """The packets of ``stretches``, one by one."""
    return one_by_one(stretches(window, source, section))


def stretches(window: Window, source: Source, section: Section | None = None) -> Iterator[Stretch | Lull]:
    """Packets in the order of the file, and lulls where the source waits for more. A packet without a time
    (simple packet block) gets that of the one before. ``section`` walks the blocks, if not one of its own.

    Raises:
        CaptureError: a block that contradicts itself, or an announced length beyond ``limits``; all packets
            before it have been yielded.
    """
    section = section or Section(window, source)
    limit = source.limits.packet_bytes
    number = source.before
    others = time_ns = pos = 0
    places: list[tuple[int, int, int, int]] = []
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
                yield Stretch(number, interface, captured_bytes, [(time_ns, 0, len(captured_bytes), length)])
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
                is_odd = captured > total - 32 or captured > limit or word(data, end - 4)[0] != total
                if is_odd or index != clock.number:
                    if places:
                        number += len(places)
                        yield Stretch(number - len(places) + 1, clock.interface, data, places)
                        places = []
                    if is_odd:
                        raise section.refused(pos, captured)
                    clock = section.clock(index, pos)
                if high < clock.plain_below:
                    time_ns = (high << 32 | low) * clock.tick_ns
                else:
                    time_ns = section.exact(clock, high << 32 | low)
                start = pos + 28
                places.append((time_ns, start, start + captured, length))
                pos = end
            number += len(places)
            source.packets = number - others
            if places:
                yield Stretch(number - len(places) + 1, clock.interface, data, places)
                places = []
        if section.cut is not None:
            unit = f"packet {number + 1}" if section.cut_packet else "a block"
            source.warn(f"ends in the middle of {unit}, which begins at {section.cut}")
    finally:
        source.packets = number - others
