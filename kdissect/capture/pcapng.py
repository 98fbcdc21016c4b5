"""A pcapng file -> packet blocks, and the byte order, interfaces, clocks and statistics between the packets.

    a block: type u32 | total length u32 | body, padded to four bytes | total length again
    an option: code u16 | length u16 | value, padded to four bytes; code 0 ends the list

A section header block has the byte order of all blocks after it. Interfaces are numbered from 0 within a
section. Other blocks without packets are skipped: name resolution, custom and unknown blocks. Decryption
secrets of a file are read separately, those of a pipe are kept until they are taken. Memory: the interfaces
of the current section, at most ``limits.interfaces``.

Format: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect import core
from kdissect.capture import stores
from kdissect.capture.source import (
    BYTE_ORDERS,
    MAX_SECRETS_BYTES,
    FileFormat,
    InterfaceStatistics,
    Source,
    one_by_one,
)
from kdissect.errors import CaptureError
from kdissect.limits import MAX_COUNT, MIB
from kdissect.model import IdleTick, Interface, PacketBlock
from kdissect.names import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kdissect.capture.window import Window
    from kdissect.model import Packet


SECTION = 0x0A0D0D0A
INTERFACE = 1
OBSOLETE_PACKET = 2
SIMPLE_PACKET = 3
STATISTICS = 5
ENHANCED_PACKET = 6
SECRETS = 10
BYTE_ORDER_MAGIC = 0x1A2B3C4D

# Smallest size of each block: type and both lengths, and the fixed part of the body.
HEAD_BYTES = 12
MIN_BYTES = {
    SECTION: 28,
    INTERFACE: 20,
    OBSOLETE_PACKET: 32,
    SIMPLE_PACKET: 16,
    STATISTICS: 24,
    ENHANCED_PACKET: 32,
}
# Besides the packet: comments, hashes and verdicts are options in the same block.
OPTIONS_BYTES = 1 * MIB

_SECTIONS = 16
"""Sections that may have as many interfaces as possible; in all others there may be no more than packets."""

COMMENT = 1  # of a packet
INTERFACE_NAME, INTERFACE_RESOLUTION, INTERFACE_OFFSET = 2, 9, 14
RECEIVED, DROPPED_BY_INTERFACE, ACCEPTED, DROPPED_BY_SYSTEM, DELIVERED = 4, 5, 6, 7, 8
APPLICATION = 4  # of a section: the program that wrote it

# Range of 64 bits of nanoseconds (1677 to 2262), the type of time columns in tables and files.
_EARLIEST_NS, _LATEST_NS = -(1 << 63), (1 << 63) - 1
_ORDERS = {struct.pack(order + "I", BYTE_ORDER_MAGIC): order for order in "<>"}
# Blocks that Wireshark numbers like packets: systemd journal entries, custom blocks of both kinds.
_NUMBERED = (9, 0xBAD, 0x40000BAD)
TLS_KEY_LOG = 0x544C534B
_PACKET_KINDS = (ENHANCED_PACKET, SIMPLE_PACKET, OBSOLETE_PACKET)


class Clock(NamedTuple):
    """An interface and how its ticks become nanoseconds.

    Attributes:
        number: number of the interface in its section.
        interface: the interface.
        tick_ns: nanoseconds per tick, rounded down.
        plain_below: if the upper half of a tick count is below this, multiplying by ``tick_ns`` is exact and
            cannot overflow. 0 if a tick is not a whole number of nanoseconds, or there is an offset.
        per_second: ticks per second.
        offset_ns: to be added to all times of this interface.
    """

    number: int
    interface: Interface
    tick_ns: int
    plain_below: int
    per_second: int
    offset_ns: int


class Section:
    """Parses blocks other than packets. Byte order and interfaces are those in effect at the current block.

    Args:
        window: over the file.
        source: the file.
        on_description: is called with each section header and interface description block.

    Attributes:
        word: unpacks the 32-bit word at a position.
        enhanced: unpacks the seven words before the packet in an enhanced packet block.
        interfaces: of the section.
        exact_clocks: of each of them ``plain_below`` and ``tick_ns`` of its clock, and its kind: those of a
            kind have the same capture and link type, so that a block may have packets of all.
        cut: where the last block begins if the stream is truncated; None if it is not.
        cut_packet: whether that block has a packet.
    """

    def __init__(
        self, window: Window, source: Source, on_description: Callable[[bytes], object] | None = None
    ) -> None:
        self._window = window
        self._source = source
        self._on_description = on_description
        self._clocks: list[Clock] = []
        self.exact_clocks: list[tuple[int, int, int]] = []
        self.interfaces: list[Interface] = []
        self._kinds: dict[tuple[str, int], int] = {}  # by capture and link type
        self._interfaces_before = 0
        self._skipped = 0
        self._time_warned = False
        self.cut: str | None = None
        self.cut_packet = False
        self._set_order("<")

    def _set_order(self, order: str) -> None:
        self._order = order
        self.is_little = order == "<"
        self.word = struct.Struct(order + "I").unpack_from
        self.enhanced = struct.Struct(order + "7I").unpack_from
        self._head = struct.Struct(order + "2I").unpack_from
        self._option = struct.Struct(order + "2H").unpack_from

    def next_packet(self, pos: int) -> tuple[int, int, int] | None:
        """Parse the blocks from ``pos`` up to the next one with a packet.

        Returns:
            Its type; its position in the window, which has all of it; and the number of skipped blocks that
            Wireshark numbers like packets. None at the end of the stream, and if it waits for more: then call
            again with position 0.
        """
        window = self._window
        skipped, self._skipped = self._skipped, 0
        while True:
            if len(window.data) - pos < HEAD_BYTES:
                if not window.more(pos, HEAD_BYTES):
                    self._skipped = skipped
                    self.cut = window.place(0) if window.data else None
                    return None
                pos = 0
            if window.data[pos : pos + 4] == SECTION.to_bytes(4, "big"):
                self._begin(pos)
            kind, total = self._head(window.data, pos)
            if total < MIN_BYTES.get(kind, HEAD_BYTES):
                raise self._fault(f"a block of type {kind} has an impossible length of {total} bytes", pos)
            if kind == SECRETS and self._source.keeps_secrets(total):
                if not window.more(pos, total):
                    self._skipped, self.cut = skipped, window.place(0)
                    return None
                self._source.secrets += key_log_of(window.data[:total], self._order)
                pos = total
                continue
            if kind not in MIN_BYTES:
                if not self._skip(pos, total):
                    return None
                skipped += kind in _NUMBERED
                pos = 4
                continue
            if total > self._source.limits.packet_bytes + OPTIONS_BYTES:
                raise self._fault(f"a block claims an implausible length of {total} bytes", pos)
            if len(window.data) - pos < total:
                if not window.more(pos, total):
                    self._skipped = skipped
                    self.cut, self.cut_packet = window.place(0), kind in _PACKET_KINDS
                    return None
                pos = 0
            if kind == ENHANCED_PACKET:
                return kind, pos, skipped
            self._check_end(pos + total - 4, total, window.place(pos))
            if kind in _PACKET_KINDS:
                return kind, pos, skipped
            if kind == SECTION:
                self._check_version(pos)
                self._describe(pos, total)
            elif kind == INTERFACE:
                self._add_interface(pos, total)
            else:
                self._add_statistics(pos, total)
            if self._on_description is not None and kind in (SECTION, INTERFACE):
                self._on_description(bytes(window.data[pos : pos + total]))
            pos += total

    def _begin(self, pos: int) -> None:
        """A section header: the blocks after it have its byte order, and refer to its interfaces only."""
        order = _ORDERS.get(self._window.data[pos + 8 : pos + 12])
        if order is None:
            raise self._fault("section header without a byte-order magic", pos)
        self._set_order(order)
        self._interfaces_before += len(self._clocks)
        self._clocks, self.exact_clocks, self.interfaces = [], [], []

    def _check_version(self, pos: int) -> None:
        major, minor = struct.unpack_from(self._order + "2H", self._window.data, pos + 12)
        if major != 1:
            raise self._fault(f"unknown pcapng version {major}.{minor}", pos)

    def _describe(self, pos: int, total: int) -> None:
        """Take the file format from the first section."""
        if self._source.form is None:
            application = _text(self._options(pos + 24, pos + total - 4).get(APPLICATION, b""))
            self._source.form = FileFormat("pcapng", BYTE_ORDERS[self._order], application)

    def _skip(self, pos: int, total: int) -> bool:
        """Skip a block without keeping it. The next block is then at position 4 of the window."""
        window = self._window
        begin = window.place(pos)
        window.more(pos, 0)
        if not (window.skip(total - 4) and window.wait_for(4)):
            self.cut = begin
            return False
        self._check_end(0, total, begin)
        return True

    def _check_end(self, pos: int, total: int, begin: str) -> None:
        (trailing,) = self.word(self._window.data, pos)
        if trailing != total:
            raise CaptureError(
                f"a block begins with length {total} and ends with length {trailing}, at {begin}"
            )

    def _fault(self, text: str, pos: int) -> CaptureError:
        return CaptureError(f"{text}, at {self._window.place(pos)}")

    # The interfaces

    def _add_interface(self, pos: int, total: int) -> None:
        index, limit = len(self._clocks), self._source.limits.interfaces
        if index >= limit:
            raise self._fault(f"more than {index} interfaces in one section", pos)
        declared = self._interfaces_before + index
        if declared >= _SECTIONS * limit + self._source.packets:  # each takes as long as several packets
            raise self._fault(f"more than {declared} interfaces, and fewer packets", pos)
        link_type, snaplen = struct.unpack_from(self._order + "H2xI", self._window.data, pos + 8)
        options = self._options(pos + 16, pos + total - 4)
        name = _text(options.get(INTERFACE_NAME, b""))
        interface = Interface(
            self._source.capture_name(name), self._interfaces_before + index, link_type, snaplen, name
        )
        resolution = options.get(INTERFACE_RESOLUTION, b"\x06")[:1]
        offset = options.get(INTERFACE_OFFSET, b"")
        offset_seconds = struct.unpack(self._order + "q", offset)[0] if len(offset) == 8 else 0
        new_clock = clock(index, interface, resolution[0] if resolution else 6, offset_seconds)
        self._clocks.append(new_clock)
        kind = self._kinds.setdefault((interface.capture, link_type), len(self._kinds))
        self.exact_clocks.append((new_clock.plain_below, new_clock.tick_ns, kind))
        self.interfaces.append(interface)
        self._source.describe(interface, new_clock.per_second)

    def _add_statistics(self, pos: int, total: int) -> None:
        (index,) = self.word(self._window.data, pos + 8)
        if index >= len(self._clocks):
            self._source.warn(f"statistics of an undeclared interface, at {self._window.place(pos)}")
            return
        statistics = self._source.statistics
        interface = self._clocks[index].interface
        if interface in statistics or len(statistics) < self._source.limits.interfaces:
            options = self._options(pos + 20, pos + total - 4)
            counters = (
                options.get(code)
                for code in (RECEIVED, DROPPED_BY_INTERFACE, DROPPED_BY_SYSTEM, ACCEPTED, DELIVERED)
            )
            unpack = struct.Struct(self._order + "Q").unpack
            statistics[interface] = InterfaceStatistics(
                *(
                    min(unpack(counter)[0], MAX_COUNT) if counter is not None and len(counter) == 8 else None
                    for counter in counters
                )
            )

    def _options(self, pos: int, end: int) -> dict[int, bytes]:
        """Options of a block by code: the first of each code, and only those inside the block."""
        data = self._window.data
        options: dict[int, bytes] = {}
        while pos + 4 <= end:
            code, length = self._option(data, pos)
            if code == 0:
                break
            value = pos + 4
            if value + length > end:
                self._source.warn(f"an option runs past the end of its block, at {self._window.place(pos)}")
                break
            options.setdefault(code, data[value : value + length])
            pos = value + (length + 3 & ~3)
        return options

    # The packets

    def clock(self, index: int, pos: int) -> Clock:
        """The clock of an interface, by its number in the section; ``pos``: the block that refers to it."""
        if index >= len(self._clocks):
            known = len(self._clocks)
            raise self._fault(
                f"a block refers to interface {index}, but only {known} were declared before it", pos
            )
        return self._clocks[index]

    def exact(self, clock: Clock, ticks: int) -> int:
        """Time of any tick count, clamped to the range of 64 bits of nanoseconds."""
        time_ns = ticks * 1_000_000_000 // clock.per_second + clock.offset_ns
        bounded = min(max(time_ns, _EARLIEST_NS), _LATEST_NS)
        if bounded != time_ns and not self._time_warned:
            self._time_warned = True
            self._source.warn("has times outside the years 1677 to 2262; they are clamped")
        return bounded

    def packet_error(self, pos: int, captured: int) -> CaptureError:
        """The error for an enhanced packet block at ``pos`` whose lengths contradict each other."""
        _, total = self._head(self._window.data, pos)
        if total < MIN_BYTES[ENHANCED_PACKET]:
            return self._fault(
                f"a block of type {ENHANCED_PACKET} has an impossible length of {total} bytes", pos
            )
        if captured > min(total - MIN_BYTES[ENHANCED_PACKET], self._source.limits.packet_bytes):
            return self._fault(f"a packet claims {captured} captured bytes in a block of {total}", pos)
        (trailing,) = self.word(self._window.data, pos + total - 4)
        return self._fault(f"a block begins with length {total} and ends with length {trailing}", pos)

    def simple(self, pos: int) -> tuple[Interface, bytes, int, int]:
        """A simple packet block: interface, bytes, length on the wire, end of the block.

        The number of captured bytes follows from the interface's snaplen; padding follows them.
        """
        data = self._window.data
        _, total, length = struct.unpack_from(self._order + "3I", data, pos)
        interface = self.clock(0, pos).interface
        captured = min(length, total - MIN_BYTES[SIMPLE_PACKET], interface.snaplen or length)
        return interface, self._bytes(pos, pos + 12, captured), length, pos + total

    def obsolete(self, pos: int) -> tuple[Clock, int, bytes, int, int]:
        """An obsolete packet block: clock, tick count, bytes, length on the wire, end of the block."""
        data = self._window.data
        total, index, high, low, captured, length = struct.unpack_from(self._order + "4xIH2x4I", data, pos)
        if captured > total - MIN_BYTES[OBSOLETE_PACKET]:
            raise self._fault(f"a packet claims {captured} captured bytes in a block of {total}", pos)
        return (
            self.clock(index, pos),
            high << 32 | low,
            self._bytes(pos, pos + 28, captured),
            length,
            pos + total,
        )

    def _bytes(self, pos: int, start: int, captured: int) -> bytes:
        if captured > self._source.limits.packet_bytes:
            raise self._fault(f"a packet claims {captured} captured bytes", pos)
        return self._window.data[start : start + captured]


def _text(option: bytes) -> str | None:
    """An option's value as a string, as it is ``kept``; None if it is empty or absent."""
    return kept(option.rstrip(b"\0").decode("utf-8", "backslashreplace")) or None


NO_CLOCK = Clock(-1, Interface("", -1, -1), 0, 0, 1, 0)


def clock(index: int, interface: Interface, resolution: int, offset_seconds: int) -> Clock:
    """Clock from if_tsresol (a power of ten, or of two where the top bit is set) and if_tsoffset."""
    per_second = 1 << (resolution & 0x7F) if resolution & 0x80 else 10**resolution
    tick_ns, odd = divmod(1_000_000_000, per_second)
    plain_below = 0 if odd or offset_seconds else ((1 << 63) // tick_ns) >> 32
    return Clock(index, interface, tick_ns, plain_below, per_second, offset_seconds * 1_000_000_000)


# ------------------------------------------------------------------------------------------------------------
# The packets, in one pass; ``Section`` parses the blocks between them.
# ------------------------------------------------------------------------------------------------------------


def recognized(head: bytes) -> bool:
    return head[:4] == SECTION.to_bytes(4, "big")


def packets(
    window: Window, source: Source, section: Section | None = None
) -> Generator[Packet | IdleTick, None, None]:
    return one_by_one(packet_blocks(window, source, section))


def packet_blocks(
    window: Window, source: Source, section: Section | None = None
) -> Iterator[PacketBlock | IdleTick]:
    """Packets in the order of the file, and idle ticks while a live source waits for more. A packet without a
    time (simple packet block) gets that of the one before. Without ``section``, a new one is created.

    Raises:
        CaptureError: a block contradicts itself, or claims a length beyond ``limits``; all packets before it
            have been yielded.
    """
    section = section or Section(window, source)
    limit = source.limits.packet_bytes
    number = source.before
    not_packets = time_ns = pos = 0
    places: list[tuple[int, int, int, int]] = []
    try:
        while (block := section.next_packet(pos)) is not None or window.waits:
            if block is None:
                if number:
                    yield IdleTick(time_ns + source.idle_ns)
                pos = 0
                continue
            kind, pos, skipped = block
            number += skipped
            not_packets += skipped
            data = window.data
            if kind != ENHANCED_PACKET:
                if kind == SIMPLE_PACKET:
                    interface, captured_bytes, length, pos = section.simple(pos)
                else:
                    clock, ticks, captured_bytes, length, pos = section.obsolete(pos)
                    interface, time_ns = clock.interface, section.exact(clock, ticks)
                number += 1
                yield PacketBlock(
                    number, interface, captured_bytes, [(time_ns, 0, len(captured_bytes), length)]
                )
                continue
            # Nearly all blocks: stay in this loop as long as they follow each other in the window.
            unpack, word, clock = section.enhanced, section.word, NO_CLOCK
            size = len(data)
            last = size - MIN_BYTES[ENHANCED_PACKET]
            while pos <= last:
                kind, total, index, high, low, captured, length = unpack(data, pos)
                end = pos + total
                if kind != ENHANCED_PACKET or end > size:
                    break
                is_odd = captured > total - 32 or captured > limit or word(data, end - 4)[0] != total
                if is_odd or index != clock.number:
                    if places:
                        number += len(places)
                        yield PacketBlock(number - len(places) + 1, clock.interface, data, places)
                        places = []
                    if is_odd:
                        raise section.packet_error(pos, captured)
                    clock = section.clock(index, pos)
                of_core = None
                if core.is_used and not places and high < clock.plain_below:
                    clocks, interfaces = section.exact_clocks, section.interfaces
                    of_core = core.native.pcapng_places(
                        data, pos, section.is_little, clocks, interfaces, limit
                    )
                if of_core is not None:
                    stepped, pos = of_core
                    number += len(stepped)
                    source.packets, time_ns = number - not_packets, stepped[-1][0]
                    yield PacketBlock(number - len(stepped) + 1, clock.interface, data, stepped)
                    continue
                if high < clock.plain_below:
                    time_ns = (high << 32 | low) * clock.tick_ns
                else:
                    time_ns = section.exact(clock, high << 32 | low)
                start = pos + 28
                places.append((time_ns, start, start + captured, length))
                pos = end
            number += len(places)
            source.packets = number - not_packets
            if places:
                yield PacketBlock(number - len(places) + 1, clock.interface, data, places)
                places = []
        if section.cut is not None:
            unit = f"packet {number + 1}" if section.cut_packet else "a block"
            source.warn(f"ends in the middle of {unit}, which begins at {section.cut}")
    finally:
        source.packets = number - not_packets


def secrets_in_stream(window: Window) -> Iterator[bytes]:
    """The TLS key logs in the Decryption Secrets Blocks of a pcapng stream. Reading ends where a block is
    malformed.
    """
    order, pos = "<", 0
    while True:
        if len(window.data) - pos < HEAD_BYTES:
            if not window.more(pos, HEAD_BYTES):
                return
            pos = 0
        data = window.data
        if data.startswith(SECTION.to_bytes(4, "big"), pos):
            order = _ORDERS.get(data[pos + 8 : pos + 12], order)
        kind, total = struct.unpack_from(order + "2I", data, pos)
        if total < HEAD_BYTES:
            return
        if kind == SECRETS and total <= MAX_SECRETS_BYTES:
            if not window.more(pos, total):
                return
            pos = 0
            yield from key_log_of(window.data[:total], order)
        pos += total
        if pos > len(window.data):
            if not window.skip(pos):
                return
            pos = 0


def secrets_in_file(path: str) -> Iterator[bytes]:
    """The same of an uncompressed file. Of other blocks only the lengths are read.

    Raises:
        OSError: the file cannot be read.
    """
    order, pos = "<", 0
    with stores.open_file(path) as file:
        while len(head := file.read(HEAD_BYTES)) == HEAD_BYTES:
            if head.startswith(SECTION.to_bytes(4, "big")):
                order = _ORDERS.get(head[8:], order)
            kind, total = struct.unpack_from(order + "2I", head)
            if total < HEAD_BYTES:
                return
            if kind == SECRETS and total <= MAX_SECRETS_BYTES:
                yield from key_log_of(head + file.read(total - HEAD_BYTES), order)
            pos += total
            if kind == ENHANCED_PACKET and core.is_used and stores.normalized(path) is None:
                pos = core.native.pcapng_skip(path, pos, order == "<")
            file.seek(pos)


def key_log_of(block: bytes, order: str) -> Iterator[bytes]:
    """The TLS key log in a Decryption Secrets Block, if it has one."""
    if len(block) >= HEAD_BYTES + 8:
        secrets_type, length = struct.unpack_from(order + "2I", block, 8)
        if secrets_type == TLS_KEY_LOG:
            yield block[16 : min(16 + length, len(block) - 4)]
