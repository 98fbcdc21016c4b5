"""A file or its URL, a pipe, stdin or an open binary stream -> blocks of bytes, each as soon as it is there.

Memory: one block, 256 KiB of a file or 64 KiB of a pipe. Reading in blocks takes as long per packet as a
memory map (benchmarks/reading.py), keeps resident memory independent of the file's size, and works for pipes.
Larger blocks would not fit the processor's caches.
"""

from __future__ import annotations

import os
import select
import sys
from typing import IO, TYPE_CHECKING, NamedTuple, overload

from kdissect.capture import stores
from kdissect.errors import CaptureError
from kdissect.limits import MAX_COUNT
from kdissect.model import PacketBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from io import FileIO

    from kdissect.limits import Limits
    from kdissect.model import IdleTick, Interface, Packet

BLOCK_BYTES = 64 * 1024
FILE_BLOCK_BYTES = (
    256 * 1024
)  # several packets of 64 KiB: the last one in a block is read again with the next

# glibc returns memory to the system when more than 128 KiB are free, and requests it again for the next
# block: with packets of 64 KiB, page faults would take a third of the time. Freeing a larger allocation once
# makes glibc keep twice as much (mallopt(3), M_MMAP_THRESHOLD). No page of this allocation is touched.
bytes(8 * 1024 * 1024)

Rewind = tuple[int, int]
"""How many of the last bytes to read again, and how many bytes are needed at least, including those."""

MAX_SECRETS_BYTES = 256 * 1024 * 1024
"""Of one Decryption Secrets Block, and of those of a pipe that have not been taken yet."""

BYTE_ORDERS = {"<": "little", ">": "big"}


class InterfaceStatistics(NamedTuple):
    """Counters of the capturing program for an interface, at most ``MAX_COUNT``; None if not recorded.

    Attributes:
        received: packets that the interface received (isb_ifrecv).
        dropped_by_interface: packets that the interface dropped for lack of resources (isb_ifdrop).
        dropped_by_system: packets lost between interface and capturing program (isb_osdrop).
        accepted: packets that passed its filter (isb_filteraccept).
        delivered: packets that the capturing program received (isb_usrdeliv).
    """

    received: int | None
    dropped_by_interface: int | None
    dropped_by_system: int | None
    accepted: int | None = None
    delivered: int | None = None


class FileFormat(NamedTuple):
    """The format of a capture file.

    Attributes:
        name: pcap, pcapng, or modified pcap.
        byte_order: little or big, of a pcapng file that of its first section.
        application: what wrote it; None if not recorded.
    """

    name: str
    byte_order: str
    application: str | None = None


@overload
def one_by_one(packet_blocks: Iterable[PacketBlock | Packet]) -> Generator[Packet, None, None]: ...


@overload
def one_by_one(
    packet_blocks: Iterable[PacketBlock | Packet | IdleTick],
) -> Generator[Packet | IdleTick, None, None]: ...


def one_by_one(
    packet_blocks: Iterable[PacketBlock | Packet | IdleTick],
) -> Generator[Packet | IdleTick, None, None]:
    """The packets of all blocks, one by one."""
    for each in packet_blocks:
        if isinstance(each, PacketBlock):
            yield from each.packets
        else:
            yield each


class Source:
    """One input as the user named it, and its metadata as far as it was read.

    Attributes:
        name: the path or URL as the user wrote it, ``-`` for stdin, or a stream's own name.
        size: bytes of a regular file; None for pipes and streams.
        bytes_read: bytes read from it, before decompression.
        packets: packets read, updated with each block and exact after the last one.
        before: number of the last packet before those that are read: 0, except for a part of a file.
        start: position in the file that counts as that of the first byte of ``blocks``; 0, except for a part.
        warnings: a line each that begins with the name.
        statistics: the last counters of each interface.
        secrets: TLS key logs in it that nobody has taken yet; of pipes and streams only.
        form: the file format; None until it is known.
        compression: gzip, zstd or lz4; None if not compressed.
        interfaces: those described so far, each with its clock ticks per second (``MAX_COUNT`` for a finer
            clock); at most ``limits.interfaces``.
        reopened: whether the file is closed between blocks.
        failed: whether an I/O error or a bug in kdissect ended the reading of it.
        idle_ns: live sources only: how long all packets had been delivered when the last empty block was
            yielded; negative if the latest ones may not have been.
    """

    def __init__(
        self, origin: str | os.PathLike[str] | IO[bytes], limits: Limits, *, block_bytes: int | None = None
    ) -> None:
        self.limits = limits
        self.bytes_read = 0
        self.packets = self.before = self.start = 0
        self.warnings: list[str] = []
        self.statistics: dict[Interface, InterfaceStatistics] = {}
        self.secrets: list[bytes] = []
        self.form: FileFormat | None = None
        self.compression: str | None = None
        self.interfaces: dict[Interface, int] = {}
        self.reopened = False
        self.failed = False
        self.idle_ns = 0
        self.size: int | None = None
        self._block_bytes = BLOCK_BYTES if block_bytes is None else block_bytes
        self._is_file = False
        self._stream: IO[bytes] | None = None
        if not isinstance(origin, (str, os.PathLike)):
            self._stream = origin
            name = getattr(origin, "name", None)
            self.name = name if isinstance(name, str) else "stream"
            return
        self.name = os.fspath(origin)
        if self.name != "-":
            self._is_file = True
            try:
                self.size = stores.status(self.name).size
            except OSError as error:
                raise CaptureError(self.format_error(error)) from error
            if self.size is not None:
                self._block_bytes = FILE_BLOCK_BYTES if block_bytes is None else block_bytes

    def format_error(self, error: str | Exception) -> str:
        """Format an error as a line that begins with this source's name."""
        if isinstance(error, OSError) and error.strerror:
            error = error.strerror.lower()
        return f"{self.name}: {error}"

    def capture_name(self, interface: str | None) -> str:  # noqa: ARG002  (used by subclasses)
        """``Interface.capture`` for an interface with this name."""
        return self.name

    def warn(self, text: str) -> None:
        """Add a warning; ``text`` follows the name and a colon."""
        self.warnings.append(self.format_error(text))

    def describe(self, interface: Interface, ticks_per_second: int) -> None:
        """Note an interface and the resolution of its clock."""
        if len(self.interfaces) < self.limits.interfaces:
            self.interfaces[interface] = min(ticks_per_second, MAX_COUNT)

    def keeps_secrets(self, more_bytes: int) -> bool:
        """Whether ``secrets`` has room for this many more bytes."""
        return self.size is None and sum(map(len, self.secrets)) + more_bytes <= MAX_SECRETS_BYTES

    @property
    def rereads(self) -> bool:
        """Whether ``blocks`` can read bytes again: only in a file that stays open."""
        return self.size is not None and not self.reopened

    def blocks(self) -> Iterator[bytes]:
        """Blocks from beginning to end, once. Closing the iterator closes the file. If ``rereads``, an
        ``Rewind`` may be sent to the generator: the next block then starts that many bytes earlier.
        """
        if self._is_file:
            yield from self._file_blocks()
        elif self._stream is not None:
            yield from self._stream_blocks(self._stream)
        else:
            # The raw file below the buffer distinguishes "nothing yet" from "end of file".
            yield from self._stream_blocks(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))

    def _file_blocks(self) -> Iterator[bytes]:
        """Blocks of a file. A ``reopened`` file is open only while a block is read, so that any number of
        simultaneous captures can be merged within the limit on file descriptors.
        """
        if not self.reopened:
            with stores.open_file(self.name) as file:
                yield from self._stream_blocks(file) if self.size is None else self._open_blocks(file)
            return
        identity = None
        while True:
            with stores.open_file(self.name) as file:
                status = os.fstat(file.fileno())
                if identity not in (None, (status.st_dev, status.st_ino)):
                    raise CaptureError("was replaced by another file while being read")
                identity = (status.st_dev, status.st_ino)
                file.seek(self.bytes_read)
                block = file.read(self._block_bytes)
            if not block:
                return
            self.bytes_read += len(block)
            yield block

    def _open_blocks(self, file: IO[bytes]) -> Generator[bytes, Rewind | None, None]:
        size = self._block_bytes
        while block := file.read(size):
            self.bytes_read = file.tell()
            left, need = (yield block) or (0, 0)
            file.seek(-left, os.SEEK_CUR)
            size = max(need, self._block_bytes)

    def _stream_blocks(self, stream: IO[bytes] | FileIO) -> Iterator[bytes]:
        # A buffered file's read() would wait for a whole block.
        read: Callable[[int], bytes | None] = getattr(stream, "read1", stream.read)
        while True:
            block = read(self._block_bytes)
            if block is None:
                # Nothing yet in a pipe that is non-blocking, as ssh and shells sometimes make stdin.
                select.select([stream], [], [])
                continue
            if not block:
                return
            self.bytes_read += len(block)
            yield block
