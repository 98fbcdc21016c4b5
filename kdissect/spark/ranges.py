"""Capture files -> ranges of packets that tasks can read independently.

Tasks examine the files (``examine``), and the driver puts them in order (``in_order``). A pcap or pcapng file
of more than twice the size of a range is scanned once, from header to header, at about a gigabyte per second.
A range starts at a packet, and has what a reader needs there: the packet's number, the latest packet time so
far, and the headers of the file. So a range has the packets of the file, with the same numbers. Any other
file is a single range.

Holds a window of the file; reading a range holds what reading a file holds.
"""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING, NamedTuple, cast

from kdissect.capture import compression, pcap, pcapng, stores
from kdissect.capture.pcapng import Section
from kdissect.capture.reader import first_time_ns, packet_blocks_of
from kdissect.capture.source import BLOCK_BYTES, FILE_BLOCK_BYTES, Source
from kdissect.capture.stores import Status
from kdissect.capture.window import Window
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, KIB, MIB, Limits
from kdissect.tls.keylog import searchable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.model import PacketBlock

RANGE_BYTES = 64 * MIB
UNSHARED_CAPTURES = "captures must be on storage shared by the driver and all workers"
MAX_HEAD_BYTES = 64 * KIB
"""Most bytes of headers in each range: a file with more interfaces than fit is not divided further."""

_MAGIC_BYTES = 4
_ENHANCED_HEAD_BYTES = 28


class Range(NamedTuple):
    """Consecutive packets of a file.

    Attributes:
        rank: index of the file among those that are read.
        path: the file.
        start: position of the first packet; 0: the start of the file.
        before: number of the last packet before the range.
        last: number of the last packet of the range; None: the range extends to the end of the file.
        clock_ns: latest time of a packet before the range; None if there is none.
        head: file headers to read before the first packet.
    """

    rank: int
    path: str
    start: int = 0
    before: int = 0
    last: int | None = None
    clock_ns: int | None = None
    head: bytes = b""


class Fingerprint(NamedTuple):
    """Distinguishes a file from others with the same name.

    Attributes:
        bytes: size of the file.
        crc: ``stores.begins``.
    """

    bytes: int
    crc: int

    @classmethod
    def of(cls, path: str, size: int | None = None) -> Fingerprint:
        """The fingerprint of a file, with the CRC that it had when its size was ``size``; None: its current
        size.

        Raises:
            CaptureError: the file cannot be read.
        """
        try:
            now = stores.status(path).size or 0
            crc = stores.begins(path, now if size is None else size)
        except OSError as error:
            raise CaptureError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        return cls(now, crc)

    def check(self, path: str) -> None:
        """Check that a file is the one that was examined; it may have grown since.

        Raises:
            CaptureError: the file is missing, shorter, or a different one.
        """
        try:
            here = Fingerprint.of(path, self.bytes)
        except CaptureError as error:
            raise CaptureError(f"worker {gethostname()} cannot read {error}; {UNSHARED_CAPTURES}") from None
        if here.bytes < self.bytes or here.crc != self.crc:
            sizes = f"{here.bytes:,} bytes there, {self.bytes:,} before"
            raise CaptureError(
                f"worker {gethostname()} has a different {path} ({sizes}); {UNSHARED_CAPTURES}"
            )


class FileRanges(NamedTuple):
    """What is known of a file before it is dissected.

    Attributes:
        name: of the file.
        status: size and modification time.
        fingerprint: of the file; None if it cannot be read.
        start_ns: time of the first packet; None if there is none.
        ranges: its ranges, as if it were the only file.
        is_pcapng: whether it may have secrets of TLS sessions.
        fault: why it cannot be read.
        source: the source of a file that can be opened, but not read.
    """

    name: str
    status: Status
    fingerprint: Fingerprint | None = None
    start_ns: int | None = None
    ranges: Sequence[Range] = ()
    is_pcapng: bool = False
    fault: str = ""
    source: Source | None = None


class CaptureRanges(NamedTuple):
    """The files and ranges to read.

    Attributes:
        files: fingerprints by path, in order of first packet time, then as named.
        first_ns: time of the first packet of all; None if there is none.
        ranges: the ranges of all files, in this order.
        faults: why some files cannot be read.
        unread: the sources of those files, if they could be opened.
        statuses: of all files, as named.
        pcapng_files: those that may have secrets of TLS sessions.
    """

    files: dict[str, Fingerprint]
    first_ns: int | None
    ranges: list[Range]
    faults: list[str]
    unread: list[Source]
    statuses: dict[str, Status]
    pcapng_files: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(each.bytes for each in self.files.values())


def examine(name: str, limits: Limits, size: int) -> FileRanges:
    """Read a file's first packet, and find its ranges of about ``size`` bytes."""
    source, status = None, Status(None, 0)
    try:
        source = Source(name, limits)
        status = status if source.size is None else stores.status(name)
        if source.size is None:
            raise CaptureError(f"{name} is not a regular file, so tasks cannot read it")
        start_ns, fingerprint = first_time_ns(name, limits), Fingerprint.of(name)
    except (CaptureError, OSError) as error:
        return FileRanges(name, status, fault=str(error), source=source)
    ranges = list(_divided(name, limits, size))
    return FileRanges(name, status, fingerprint, start_ns, ranges, bool(searchable((name,))))


def in_order(files: Iterable[FileRanges]) -> CaptureRanges:
    """The ranges of all files, in order of first packet time.

    Raises:
        CaptureError: none of the files can be read, or no file was named.
    """
    known = list(files)
    readable = sorted((each for each in known if not each.fault), key=lambda each: each.start_ns or 0)
    faults = [each.fault for each in known if each.fault]
    if not readable:
        message = faults[0] if faults else "no capture given"
        raise CaptureError(
            message if len(faults) < 2 else f"none of {len(faults)} captures can be read; {message}"
        )
    return CaptureRanges(
        {each.name: each.fingerprint for each in readable if each.fingerprint is not None},
        min((each.start_ns for each in readable if each.start_ns is not None), default=None),
        [range_._replace(rank=rank) for rank, each in enumerate(readable) for range_ in each.ranges],
        faults,
        [each.source for each in known if each.source is not None],
        {each.name: each.status for each in known},
        tuple(each.name for each in readable if each.is_pcapng),
    )


def open_range(range_: Range, limits: Limits = DEFAULT) -> tuple[Source, Iterator[PacketBlock]]:
    """The source and the packets of a range.

    Together the sources of a file's ranges have the warnings of the file, if the last range was read to its
    end. The iterator is that of ``packet_blocks_of``.
    """
    source = FileTail(range_, limits) if range_.start else Source(range_.path, limits)
    blocks = cast("Iterator[PacketBlock]", packet_blocks_of(source))  # no idle ticks in files
    return source, blocks if range_.last is None else _until(range_.last, blocks)


def _until(last: int, blocks: Iterator[PacketBlock]) -> Iterator[PacketBlock]:
    """The packets up to the number ``last``."""
    for block in blocks:
        count = last + 1 - block.number
        yield block if count >= len(block.places) else block.part(0, count)
        if count <= len(block.places):
            return


class FileTail(Source):
    """A file, read from the start of a range."""

    def __init__(self, range_: Range, limits: Limits) -> None:
        super().__init__(range_.path, limits)
        self._range = range_
        self.before = range_.before
        self.start = range_.start - len(range_.head)
        self.bytes_read = range_.start
        self.reopened = True

    def blocks(self) -> Iterator[bytes]:
        """The head, then the file's bytes, in aligned blocks of which the first is a small one."""
        yield self._range.head
        self.warnings.clear()  # about the head; only the first range has them
        with stores.open_file(self.name) as file:
            file.seek(self.bytes_read)
            size = BLOCK_BYTES - self.bytes_read % BLOCK_BYTES
            while block := file.read(size):
                self.bytes_read += len(block)
                yield block
                size = FILE_BLOCK_BYTES


def _divided(name: str, limits: Limits, size: int) -> Iterator[Range]:
    """The ranges of a file."""
    source = Source(name, limits, block_bytes=min(size, BLOCK_BYTES))
    current = Range(0, name)
    if (source.size or 0) > 2 * size:
        for following in _cuts(source, size):
            yield current._replace(last=following.before)
            current = following
    yield current


def _cuts(source: Source, size: int) -> Iterator[Range]:
    """The ranges after the first, each extending to the end of the file. Stops where the file is
    damaged; the task that reads the last range reports the damage.
    """
    window = Window(source.blocks())
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
            if len(described) <= MAX_HEAD_BYTES:
                described.extend(block)

        section = Section(window, source, describe)
        packet_blocks = pcapng.packet_blocks(window, source, section)
    due, clock_ns = size, None
    try:
        for block in cast("Iterator[PacketBlock]", packet_blocks):  # no idle ticks in files
            # Only an enhanced packet at the start of the window: a simple one has no time.
            if window.start >= due and (section is None or block.places[0][1] == _ENHANCED_HEAD_BYTES):
                if section is not None and len(head) < len(described):
                    head = bytes(described)
                if len(head) > MAX_HEAD_BYTES:
                    return
                yield Range(0, source.name, window.start, block.number - 1, None, clock_ns, head)
                due = window.start + size
            latest_ns = max(place[0] for place in block.places)
            clock_ns = latest_ns if clock_ns is None else max(clock_ns, latest_ns)
    except (OSError, CaptureError):
        return
