"""Files, pipes and streams in any capture format -> packets in order of time.

Memory, for each open file: a block of up to 256 KiB, a packet that crosses its end, a decompressor; for each
file in a store what is read ahead, too.
"""

from __future__ import annotations

import codecs
import os
from collections import deque
from contextlib import closing, suppress
from heapq import heappop, heappush, heapreplace
from itertools import chain
from typing import IO, TYPE_CHECKING, NamedTuple, Self, TypeAlias, cast

from kdissect.capture import compression, pcap, pcapng, stores
from kdissect.capture.source import InterfaceStatistics, Source, one_by_one
from kdissect.capture.window import Window
from kdissect.errors import CaptureError, UnexpectedError
from kdissect.limits import DEFAULT, Limits
from kdissect.model import IdleTick, PacketBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from types import TracebackType

    from kdissect.model import Interface, Packet


Origin: TypeAlias = str | os.PathLike[str] | IO[bytes]

_MAGIC_BYTES = 4
_NEVER_NS = 1 << 70
# Enough to distinguish text from binary data.
_APPEARANCE_BYTES = 64
# Block size for reading just the first packet of a file.
_PROBE_BYTES = 4096
# If more files than this are merged, each is open only while a block of it is read: the usual limit is 1024
# open files per process. Files in stores do not count.
_OPEN_FILES = 128


def open_capture(*paths: Origin, limits: Limits = DEFAULT) -> Capture:
    """Open files to be read as one capture. Formats are recognized by content, not by file name.

    ``-`` is stdin. The caller closes binary streams it passes. Files are opened immediately, pipes and
    streams when the first packet is read.

    Raises:
        CaptureError: the file, or each of several files, cannot be read.
    """
    return Capture(paths, limits)


class Capture:
    """One or more files, merged by time. They can be read only once.

    Iterating raises ``CaptureError`` after the last readable packet if the only file is damaged, or if all of
    several files are. Otherwise a damaged file is a warning.

    Attributes:
        first_ns: time of the first packet; None if there is none, or only pipes and streams have packets.
        unreadable: whether one of them is missing, or has no packet that can be read.
    """

    def __init__(self, origins: tuple[Origin, ...], limits: Limits) -> None:
        if not origins:
            raise CaptureError("no capture given")
        if origins.count("-") > 1:
            raise CaptureError("stdin (-) can be given only once")
        self._origin_count = len(origins)
        self._faults: list[CaptureError] = []
        self.unreadable = False
        self._all_sources: list[Source] = []
        self._sources: list[Source] = []
        self._readers: list[Generator[PacketBlock, None, None]] = []
        first_times_ns = []
        for origin in origins:
            try:
                source = Source(origin, limits)
                self._all_sources.append(source)
                first_times_ns.append(None if source.size is None else first_time_ns(origin, limits))
            except CaptureError as error:
                self._faults.append(error)
                self.unreadable = True
                if isinstance(error, UnexpectedError):
                    self._all_sources[-1].failed = True
                continue
            source.reopened = self._origin_count > _OPEN_FILES and stores.normalized(source.name) is None
            self._sources.append(source)
        if not self._sources:
            raise self._unreadable()
        self.first_ns = min((each for each in first_times_ns if each is not None), default=None)
        self._packet_blocks = self._read(first_times_ns)
        self._packets = one_by_one(self._packet_blocks)

    def __iter__(self) -> Iterator[Packet]:
        return self._packets

    def packet_blocks(self) -> Iterator[PacketBlock | Packet]:
        """The same packets: one by one where those of several files alternate, otherwise in blocks."""
        return self._packet_blocks

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all files. Iteration ends."""
        self._packets.close()
        self._packet_blocks.close()
        for reader in self._readers:
            reader.close()

    @property
    def bytes_read(self) -> int:
        """Bytes read from all files so far, before decompression."""
        return sum(source.bytes_read for source in self._sources)

    @property
    def bytes_total(self) -> int | None:
        """Size of all files on disk; None if one of them is a pipe or a stream."""
        sizes = [source.size for source in self._sources if source.size is not None]
        return sum(sizes) if len(sizes) == len(self._sources) else None

    @property
    def sources(self) -> tuple[Source, ...]:
        """The files that could be opened, even if nothing in them can be read, with their metadata so far."""
        return tuple(self._all_sources)

    @property
    def packets(self) -> int:
        """Packets read so far, including those in the current block."""
        return sum(source.packets for source in self._sources)

    @property
    def warnings(self) -> list[str]:
        """Warnings so far, a line each that begins with the file's name."""
        faults = [str(error) for error in self._faults]
        return faults + [warning for source in self._sources for warning in source.warnings]

    @property
    def failed(self) -> bool:
        """Whether an I/O error or a bug in kdissect ended the reading of one of them."""
        return any(source.failed for source in self._all_sources)

    @property
    def statistics(self) -> dict[Interface, InterfaceStatistics]:
        """The last counters of the capturing program for each interface."""
        return {
            interface: counters
            for source in self._sources
            for interface, counters in source.statistics.items()
        }

    def _read(self, first_times_ns: list[int | None]) -> Generator[PacketBlock | Packet, None, None]:
        self._readers = [self._blocks_of(source) for source in self._sources]
        if self._origin_count == 1:
            yield from self._readers[0]
            return
        parts = []
        for source, reader, first_ns in zip(self._sources, self._readers, first_times_ns, strict=True):
            if source.size is None:
                # The time of a stream's first packet is known only after reading it: put it back.
                first = next(reader, None)
                if first is not None:
                    parts.append(MergeInput(first.time_ns, chain([first], reader)))
            else:
                parts.append(MergeInput(first_ns or 0, reader))
        yield from merged(parts)
        if len(self._faults) == self._origin_count and not self.packets:
            raise self._unreadable()

    def _blocks_of(self, source: Source) -> Generator[PacketBlock, None, None]:
        try:
            yield from cast(
                "Generator[PacketBlock, None, None]", packet_blocks_of(source)
            )  # it waits for nothing
        except CaptureError as error:
            if self._origin_count == 1:
                raise
            self._faults.append(error)
            self.unreadable |= not source.packets

    def _unreadable(self) -> CaptureError:
        first = self._faults[0]
        if self._origin_count == 1:
            return first
        return CaptureError(f"none of {self._origin_count} captures can be read; {first}")


def packets_of(source: Source) -> Generator[Packet | IdleTick, None, None]:
    """The packets of ``packet_blocks_of``, one by one."""
    return one_by_one(packet_blocks_of(source))


def packet_blocks_of(source: Source) -> Generator[PacketBlock | IdleTick, None, None]:
    """Packets of one source in its order, in any format and compression; from a live source also idle ticks.

    Raises:
        CaptureError: it is not a capture, or is damaged; the message begins with its name. An
            ``UnexpectedError`` means a bug in kdissect.
    """
    try:
        window, method = _decompressed(source)
        if method is not None and not window.data and source.warnings:
            raise CaptureError(f"{method.name} data ends before the first packet")
        for file_format in (pcap, pcapng):
            if file_format.recognized(window.data):
                yield from file_format.packet_blocks(window, source)
                return
        window.more(0, _APPEARANCE_BYTES)
        inside = f", inside its {method.name} compression," if method is not None else ""
        raise CaptureError(
            f"neither pcap nor pcapng; it is{inside} {appearance(window.data[:_APPEARANCE_BYTES])}"
        )
    except (OSError, CaptureError) as error:
        if isinstance(error, OSError) and source.size is not None and source.bytes_read:
            source.failed = True  # the rest may be readable next time
        raise CaptureError(source.format_error(error)) from error
    except Exception as error:
        source.failed = True
        raise UnexpectedError.of(error, source.name) from error


def is_capture(path: Origin, limits: Limits = DEFAULT) -> bool:
    """Whether a file begins as a capture does, after decompression if necessary.

    Raises:
        OSError: it cannot be read.
    """
    source = Source(path, limits, block_bytes=_PROBE_BYTES)
    try:
        window, _ = _decompressed(source)
    except CaptureError:  # it only looks compressed
        return False
    except OSError:
        raise
    except Exception:  # noqa: BLE001  # a bug in kdissect, which ``packet_blocks_of`` will report
        return True
    return any(file_format.recognized(window.data) for file_format in (pcap, pcapng))


def secrets_in(path: str, limits: Limits = DEFAULT) -> Iterator[bytes]:
    """The TLS key logs in the Decryption Secrets Blocks of a pcapng file, which may be compressed. Other
    files have none. Reading ends where a file is damaged. A pipe is not read.

    Raises:
        OSError: the file cannot be read.
    """
    with suppress(CaptureError):
        source = Source(path, limits)
        if source.size is None:
            return
        window, method = _decompressed(source)
        if pcapng.recognized(window.data):
            yield from pcapng.secrets_in_file(path) if method is None else pcapng.secrets_in_stream(window)


def has_secrets(path: str) -> bool:
    """Whether ``secrets_in`` yields anything.

    Raises:
        OSError: the file cannot be read.
    """
    return any(True for _ in secrets_in(path))


def _decompressed(source: Source) -> tuple[Window, compression.Method | None]:
    """The decompressed beginning of a source, and its compression method if any."""
    window = Window(source.blocks(), again=source.rereads)
    window.start = source.start
    window.wait_for(_MAGIC_BYTES)
    method = compression.recognized(window.data)
    if method is not None:
        source.compression = method.name
        window = Window(compression.decompressed(method, window.rest(), source.warn), "decompressed byte")
        window.more(0, _MAGIC_BYTES)
    return window, method


def first_time_ns(origin: Origin, limits: Limits = DEFAULT) -> int | None:
    """Time of a file's first packet; None if it has no packets.

    Raises:
        CaptureError: the file cannot be read.
    """
    with closing(packets_of(Source(origin, limits, block_bytes=_PROBE_BYTES))) as packets:
        first = next(packets, None)
    return None if first is None else first.time_ns


# ------------------------------------------------------------------------------------------------------------
# The first bytes of a file that is not a capture -> what kind of file it is, for the error message.
# ------------------------------------------------------------------------------------------------------------


_MAGICS = (
    (b"snoop\0\0\0", "a snoop file; convert it to pcapng with editcap"),
    (b"GMBU", "a Network Monitor file; convert it to pcapng with editcap"),
    (b"RTSS", "a Network Monitor file; convert it to pcapng with editcap"),
    (b"XCP\0", "a NetXRay file; convert it to pcapng with editcap"),
    (b"TRSNIFF data", "a Sniffer file; convert it to pcapng with editcap"),
    (b"\x1f\x8b", "another layer of gzip"),
    (b"\x28\xb5\x2f\xfd", "another layer of zstd"),
    (b"\x04\x22\x4d\x18", "another layer of lz4"),
    (b"\x02\x21\x4c\x18", "lz4 data in the legacy format; decompress it first"),
    (b"BZh", "bzip2 data; decompress it first"),
    (b"\xfd7zXZ\0", "xz data; decompress it first"),
    (b"PK\x03\x04", "a zip archive; extract it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; extract it first"),
    (b"PAR1", "a Parquet file"),
    (b"\x7fELF", "a program"),
)
_TEXT_CONTROLS = frozenset("\t\n\r\f\x1b")


def appearance(head: bytes) -> str:
    """What kind of data begins with ``head``, as words to put after "it is"."""
    if not head:
        return "empty"
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if not any(head):
        return "all zeros, probably from a failed write"
    try:
        # An incremental decoder: the head may end in the middle of a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "an unknown format"
    return "text" if all(c.isprintable() or c in _TEXT_CONTROLS for c in text) else "an unknown format"


# ------------------------------------------------------------------------------------------------------------
# A capture's packets -> the same packets, ending without an error where the capture is damaged.
# ------------------------------------------------------------------------------------------------------------


class Readable:
    """The packets before the damage in a capture, so that they are dissected completely.

    A capture that is damaged before its first packet raises its ``CaptureError``.

    Attributes:
        fault: message of the error that ended the packets; None if there was none.
    """

    def __init__(self, packets: Iterable[PacketBlock | Packet | IdleTick]) -> None:
        self.fault: str | None = None
        self._latest: PacketBlock | Packet | None = None
        self._packets = self._until_fault(packets)

    def __iter__(self) -> Iterator[PacketBlock | Packet | IdleTick]:
        return self._packets

    def __next__(self) -> PacketBlock | Packet | IdleTick:
        return next(self._packets)

    @property
    def capture(self) -> str | None:
        """The file of the latest packet, None before the first."""
        return None if self._latest is None else self._latest.interface.capture

    def _until_fault(
        self, packets: Iterable[PacketBlock | Packet | IdleTick]
    ) -> Iterator[PacketBlock | Packet | IdleTick]:
        is_empty = True
        try:
            for packet in packets:
                is_empty = False
                if not isinstance(packet, IdleTick):
                    self._latest = packet
                yield packet
        except CaptureError as error:
            if is_empty:
                raise
            self.fault = str(error)


# ------------------------------------------------------------------------------------------------------------
# Captures, simultaneous or consecutive -> one sequence of packets in order of time.
#
# Memory: one block of each capture that has begun and not ended. A capture is opened only when its first
# packet is due, so a ring of a thousand files has one file open at a time.
# ------------------------------------------------------------------------------------------------------------


class MergeInput(NamedTuple):
    """One capture to be merged: the time of its first packet, and an iterator over all its packets."""

    first_ns: int
    packet_blocks: Iterator[PacketBlock | Packet]


class _Part:
    """The packets of a capture that are not merged yet.

    Attributes:
        head: the next packet, or a block that begins with it; None at the end.
    """

    def __init__(self, packet_blocks: Iterator[PacketBlock | Packet]) -> None:
        self._packet_blocks = packet_blocks
        self._packets: Iterator[Packet] = iter(())  # those left of a divided block
        self.head: PacketBlock | Packet | None = None
        self.advance()

    def advance(self) -> None:
        """Go on to what follows ``head``."""
        self.head = next(self._packets, None) or next(self._packet_blocks, None)

    def divide(self) -> Packet:
        """The next packet, on its own."""
        assert self.head is not None
        if isinstance(self.head, PacketBlock):
            self._packets = iter(self.head.packets)
            self.head = next(self._packets)
        return self.head

    def before(self, until_ns: int) -> Iterator[PacketBlock | Packet]:
        """Go on to the first packet that is not earlier."""
        while (head := self.head) is not None and head.time_ns < until_ns:
            is_before = not isinstance(head, PacketBlock) or head.times_ns[1] < until_ns
            yield head if is_before else self.divide()
            self.advance()


def merged(parts: Iterable[MergeInput]) -> Iterator[PacketBlock | Packet]:
    """Packets of all parts in order of time.

    Packets of one part stay in its order even if their times go back. Among packets with the same time, those
    of the part that began first come first; if they began at the same time, of the part passed first.
    """
    waiting = deque(sorted(parts, key=lambda part: part.first_ns))
    active: list[tuple[int, int, _Part]] = []
    rank = 0
    while waiting or active:
        while waiting and (not active or waiting[0].first_ns <= active[0][0]):
            part = _Part(waiting.popleft().packet_blocks)
            rank += 1
            if part.head is not None:
                heappush(active, (part.head.time_ns, rank, part))
        if not active:
            return
        _, ranked, part = active[0]
        if len(active) > 1:
            yield part.divide()
            part.advance()
        else:  # the common case: a single part until the next one begins
            yield from part.before(waiting[0].first_ns if waiting else _NEVER_NS)
        if part.head is None:
            heappop(active)
        else:
            heapreplace(active, (part.head.time_ns, ranked, part))
