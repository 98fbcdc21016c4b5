"""Capture files -> ranges of packets that tasks can read, each from its own place on.

A pcap or pcapng file is walked once, from header to header, at about a gigabyte a second; a range begins
where a packet does. What has to be known there goes along: the number of the packet, how far time has come,
and the headers that tell how to read it. So a range gives the packets that the file gives, with the same
numbers. A compressed file is one range, and so is one that is no longer than two.

Holds a window of the file, and while a range is read what the reader of a file holds.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, NamedTuple, cast
from zlib import crc32

from kdissect.capture import compression, pcap, pcapng
from kdissect.capture.pcapng import ENHANCED_PACKET, HEAD_BYTES, Section
from kdissect.capture.reader import packets_of
from kdissect.capture.source import BLOCK_BYTES, FILE_BLOCK_BYTES, Source
from kdissect.capture.window import Window
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, KIB, MIB, Limits

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from kdissect.model import IdleTick, Packet, PacketBlock

RANGE_BYTES = 64 * MIB
FIRST_BYTES = 4 * KIB
"""Of a file, to tell it from others: the first packet is among it, behind what the writer says of itself."""
MOST_HEAD_BYTES = 64 * KIB
"""Of the headers that go along with each range: a file with more interfaces than these tell is one range."""

_GLANCE_BYTES = 4 * KIB
_MAGIC_BYTES = 4


class Range(NamedTuple):
    """Packets that stand together in a file.

    Attributes:
        rank: which file, by its place among those that are read.
        path: the file.
        start: byte at which the first packet begins; 0: the file itself does.
        before: number of the last packet before it.
        last: number of its last packet; None: it goes to the end of the file.
        clock_ns: the latest time of a packet before it, None where there is none.
        head: bytes that stand before the first packet if the range is read as a file.
    """

    rank: int
    path: str
    start: int = 0
    before: int = 0
    last: int | None = None
    clock_ns: int | None = None
    head: bytes = b""


class Fingerprint(NamedTuple):
    """What tells a file from another one of the same name.

    Attributes:
        bytes: its size.
        crc: CRC-32 of its first ``FIRST_BYTES``.
    """

    bytes: int
    crc: int

    @classmethod
    def of(cls, path: str, size: int | None = None) -> Fingerprint:
        """That of a file, as it was when it had so many bytes; None: as it is.

        Raises:
            CaptureError: it cannot be read.
        """
        try:
            with open(path, "rb") as file:  # noqa: PTH123  (of a thousand names)
                now = os.fstat(file.fileno()).st_size
                first = file.read(min(FIRST_BYTES, now if size is None else size))
        except OSError as error:
            raise CaptureError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        return cls(now, crc32(first))

    def check(self, path: str) -> None:
        """See whether a file is the one that the driver saw; it may have grown since.

        Raises:
            CaptureError: it is not there, shorter, or another one.
        """
        remedy = "captures must be on storage shared by the driver and all workers"
        try:
            here = Fingerprint.of(path, self.bytes)
        except CaptureError as error:
            raise CaptureError(f"worker {gethostname()} cannot read {error}; {remedy}") from None
        if here.bytes < self.bytes or here.crc != self.crc:
            sizes = f"{here.bytes:,} bytes there, {self.bytes:,} on the driver"
            raise CaptureError(f"worker {gethostname()} has a different {path} ({sizes}); {remedy}")


class CaptureRanges(NamedTuple):
    """What there is to read.

    Attributes:
        files: in the order in which they begin; those that begin together as they were named.
        first_ns: time of the first packet of all; None where there is none.
        ranges: of all files, in this order.
        faults: why some files are not among them.
        unread: those of them that are there.
    """

    files: dict[str, Fingerprint]
    first_ns: int | None
    ranges: list[Range]
    faults: list[str]
    unread: list[Source]

    @property
    def paths(self) -> list[str]:
        """Of the files."""
        return list(self.files)


def find_ranges(names: Iterable[str], limits: Limits = DEFAULT, size: int = RANGE_BYTES) -> CaptureRanges:
    """Find ranges of about ``size`` bytes.

    Raises:
        CaptureError: none of the files can be read, or one is none.
    """
    by_start: list[tuple[int, str, Fingerprint]] = []
    faults: list[str] = []
    unread: list[Source] = []
    first_ns = None
    for name in names:
        try:
            source = Source(name, limits)
            unread.append(source)
            start_ns = _first_ns(source)
            fingerprint = Fingerprint.of(name)
        except CaptureError as error:
            faults.append(str(error))
            continue
        unread.remove(source)
        by_start.append((start_ns or 0, name, fingerprint))
        if start_ns is not None:
            first_ns = start_ns if first_ns is None else min(first_ns, start_ns)
    if not by_start:
        message = faults[0] if faults else "no capture given"
        raise CaptureError(
            message if len(faults) < 2 else f"none of {len(faults)} captures can be read; {message}"
        )
    by_start.sort(key=lambda each: each[0])
    files = {name: fingerprint for _, name, fingerprint in by_start}
    ranges = [each for rank, name in enumerate(files) for each in _divided(rank, name, limits, size)]
    return CaptureRanges(files, first_ns, ranges, faults, unread)


def open_range(range_: Range, limits: Limits = DEFAULT) -> tuple[Source, Iterator[Packet | IdleTick]]:
    """The packets of a range and of what follows it in the file, and what reading them tells.

    ``Source.warnings`` are complete where the last range was read to the end. The packets raise
    ``CaptureError`` as ``packets_of`` does.
    """
    if not range_.start:
        source = Source(range_.path, limits)
        return source, packets_of(source)
    part = _FileTail(range_, limits)
    return part, part.read()


class _FileTail(Source):
    """A file from the middle on."""

    def __init__(self, range_: Range, limits: Limits) -> None:
        super().__init__(range_.path, limits)
        self._range = range_
        self.before = range_.before
        self.bytes_read = range_.start

    def blocks(self) -> Iterator[bytes]:
        """The head, then what stands in the file, in the blocks in which its beginning would be read."""
        yield self._range.head
        with Path(self.name).open("rb", buffering=0) as file:
            file.seek(self.bytes_read)
            size = BLOCK_BYTES - self.bytes_read % BLOCK_BYTES
            while block := file.read(size):
                self.bytes_read += len(block)
                yield block
                size = FILE_BLOCK_BYTES

    def read(self) -> Generator[Packet | IdleTick, None, None]:
        """The packets."""
        window = Window(self.blocks())
        window.start = self._range.start - len(self._range.head)
        window.more(0, _MAGIC_BYTES)
        reader = pcap if pcap.recognized(window.data) else pcapng
        try:
            packets = reader.packets(window, self)
            for first in packets:
                self.warnings.clear()  # of the head: the first range tells them
                yield first
                break
            yield from packets
        except (OSError, CaptureError) as error:
            raise CaptureError(self.told(error)) from error


class _Marking(Window):
    """A window that notes where a header stands.

    Attributes:
        mark: the place, None where what stands there may be something else.
    """

    __slots__ = ("mark",)

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__(blocks)
        self.mark: int | None = None

    def more(self, pos: int, need: int) -> bool:
        """As ``Window.more``, which readers call with the place of a header that they want all of."""
        is_there = super().more(pos, need)
        self.mark = self.start if need >= HEAD_BYTES else None
        return is_there


def _first_ns(file: Source) -> int | None:
    """Time of a file's first packet, None where it has none."""
    if file.size is None:
        raise CaptureError(f"{file.name} is not a regular file, so tasks cannot read it")
    with closing(packets_of(Source(file.name, file.limits, block_bytes=_GLANCE_BYTES))) as packets:
        first = next(packets, None)
    return None if first is None else first.time_ns


def _divided(rank: int, name: str, limits: Limits, size: int) -> Iterator[Range]:
    """The ranges of a file."""
    source = Source(name, limits, block_bytes=min(size, BLOCK_BYTES))
    current = Range(rank, name)
    if (source.size or 0) > 2 * size:
        for following in _cuts(rank, source, size):
            yield current._replace(last=following.before)
            current = following
    yield current


def _cuts(rank: int, source: Source, size: int) -> Iterator[Range]:
    """Ranges behind the first, each as if it went to the end of the file. Where the file is damaged they end,
    and who reads the last of them will tell.
    """
    window = _Marking(source.blocks())
    window.wait_for(_MAGIC_BYTES)
    section: Section | None = None
    if compression.recognized(window.data):
        return
    if pcap.recognized(window.data):
        window.wait_for(pcap.FILE_HEADER_BYTES)
        head = window.data[: pcap.FILE_HEADER_BYTES]
        packet_blocks = pcap.packet_blocks(window, source)
    else:
        head, described = b"", bytearray()

        def describe(block: bytes) -> None:
            if len(described) <= MOST_HEAD_BYTES:
                described.extend(block)

        section = Section(window, source, describe)
        packet_blocks = pcapng.packet_blocks(window, source, section)
    due, clock_ns = size, None
    try:
        for block in cast("Iterator[PacketBlock]", packet_blocks):  # it does not come live
            if window.mark is not None and window.mark >= due:
                if section is not None and len(head) < len(described):
                    head = bytes(described)
                if len(head) > MOST_HEAD_BYTES:
                    return
                # A simple packet has the time of the one before, and what is no packet no number.
                if section is None or section.word(window.data, 0)[0] == ENHANCED_PACKET:
                    yield Range(rank, source.name, window.mark, block.number - 1, None, clock_ns, head)
                    due = window.mark + size
            window.mark = None
            latest_ns = max(place[0] for place in block.places)
            clock_ns = latest_ns if clock_ns is None else max(clock_ns, latest_ns)
    except (OSError, CaptureError):
        return
