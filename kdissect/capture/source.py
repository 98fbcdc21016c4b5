"""A file, a pipe, stdin or an open binary stream -> blocks of bytes, each as soon as it is there.

Holds one block: of a file 256 KiB, of what comes bit by bit 64 KiB. Reading in such blocks costs the same per
packet as a memory map (benchmarks/reading.py), does not make resident memory grow with the file, and serves
pipes as well; larger ones would not stay in the processor's caches.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, overload

from kdissect.errors import CaptureError
from kdissect.limits import MOST_COUNT
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

# glibc gives memory back to the system when more than 128 KiB are free, and takes it again with the next
# block: with packets of 64 KiB a page fault for each page that is read, a third of the time. Freeing
# something larger once teaches it to keep twice as much (mallopt(3), M_MMAP_THRESHOLD). Nothing is touched.
bytes(8 * 1024 * 1024)

Again = tuple[int, int]
"""How many of the last bytes are to be read again, and how many are needed at least, those included."""

BYTE_ORDERS = {"<": "little", ">": "big"}


class InterfaceStatistics(NamedTuple):
    """Counters that the capturing program left behind for an interface, at most ``MOST_COUNT``; None where it
    did not tell.

    Attributes:
        received: packets that the interface received (isb_ifrecv).
        dropped_by_interface: packets lost for want of resources in the interface (isb_ifdrop).
        dropped_by_system: packets lost between interface and capturing program (isb_osdrop).
        accepted: packets that passed its filter (isb_filteraccept).
        delivered: packets that then reached who captured them (isb_usrdeliv).
    """

    received: int | None
    dropped_by_interface: int | None
    dropped_by_system: int | None
    accepted: int | None = None
    delivered: int | None = None


class FileFormat(NamedTuple):
    """What kind of capture file it is.

    Attributes:
        name: pcap, pcapng, or modified pcap.
        byte_order: little or big, of a pcapng file that of its first section.
        application: what wrote it, where it tells.
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
    """Each packet of its own."""
    for each in packet_blocks:
        if isinstance(each, PacketBlock):
            yield from each.packets
        else:
            yield each


class Source:
    """One input as the user named it, and what reading it has told so far.

    Attributes:
        name: the path as given, ``-`` for stdin, a stream's own name.
        size: bytes of a regular file, None for what has no size before it ends.
        bytes_read: bytes taken from it, before decompression.
        packets: packets read, brought up to date with each block, exact when reading is over.
        before: the number of the last packet that stands before what is read: 0, but for a part of a file.
        warnings: what was odd, a line each that begins with the name.
        statistics: the last counters of each interface.
        form: what kind of file it is; None before its first bytes were read, and where it is none.
        compression: gzip, zstd or lz4; None where there is none.
        interfaces: those described so far, each with the ticks of a second by its clock, ``MOST_COUNT`` for
            a clock that is finer; at most ``limits.interfaces``.
        reopened: whether the file is to be closed between blocks.
        failed: whether a bug of ours kept us from reading all of it.
        silent_ns: for how long all packets had been delivered when the last empty block was given, below 0
            when some of the latest may not have been: live sources only.
    """

    def __init__(
        self, origin: str | os.PathLike[str] | IO[bytes], limits: Limits, *, block_bytes: int | None = None
    ) -> None:
        self.limits = limits
        self.bytes_read = 0
        self.packets = self.before = 0
        self.warnings: list[str] = []
        self.statistics: dict[Interface, InterfaceStatistics] = {}
        self.form: FileFormat | None = None
        self.compression: str | None = None
        self.interfaces: dict[Interface, int] = {}
        self.reopened = False
        self.failed = False
        self.idle_ns = 0
        self.size: int | None = None
        self._block_bytes = BLOCK_BYTES if block_bytes is None else block_bytes
        self._path: Path | None = None
        self._stream: IO[bytes] | None = None
        if not isinstance(origin, (str, os.PathLike)):
            self._stream = origin
            name = getattr(origin, "name", None)
            self.name = name if isinstance(name, str) else "stream"
            return
        self.name = os.fspath(origin)
        if self.name != "-":
            self._path = Path(self.name)
            try:
                status = self._path.stat()
            except OSError as error:
                raise CaptureError(self.format_error(error)) from error
            if stat.S_ISREG(status.st_mode):
                self.size = status.st_size
                self._block_bytes = FILE_BLOCK_BYTES if block_bytes is None else block_bytes

    def format_error(self, error: str | Exception) -> str:
        """A fault as a line that begins with this source's name."""
        if isinstance(error, OSError) and error.strerror:
            error = error.strerror.lower()
        return f"{self.name}: {error}"

    def capture_name(self, interface: str | None) -> str:  # noqa: ARG002  (others name each interface)
        """What packets of an interface with this name are said to come from."""
        return self.name

    def warn(self, text: str) -> None:
        """Note that something was odd; ``text`` goes on after the name and a colon."""
        self.warnings.append(self.format_error(text))

    def describe(self, interface: Interface, ticks_per_second: int) -> None:
        """Note what an interface's times are counted in."""
        if len(self.interfaces) < self.limits.interfaces:
            self.interfaces[interface] = min(ticks_per_second, MOST_COUNT)

    @property
    def rereads(self) -> bool:
        """Whether ``blocks`` can go back: those of a file that stays open."""
        return self.size is not None and not self.reopened

    def blocks(self) -> Iterator[bytes]:
        """Read from the beginning to the end, once. The file is closed when the iterator is. What is sent to
        one that ``rereads`` goes back so many bytes, and asks for a block of at least so many.
        """
        if self._path is not None:
            yield from self._file_blocks(self._path)
        elif self._stream is not None:
            yield from self._stream_blocks(self._stream)
        else:
            # The raw file below the buffer tells "nothing yet" from "the end".
            yield from self._stream_blocks(getattr(sys.stdin.buffer, "raw", sys.stdin.buffer))

    def _file_blocks(self, path: Path) -> Iterator[bytes]:
        """Blocks of a file. A ``reopened`` one is open only while a block is read, so that any number of
        captures of the same time can be merged with the few file descriptors that a process has.
        """
        if not self.reopened:
            with path.open("rb", buffering=0) as file:
                yield from self._stream_blocks(file) if self.size is None else self._open_blocks(file)
            return
        identity = None
        while True:
            with path.open("rb", buffering=0) as file:
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

    def _open_blocks(self, file: FileIO) -> Generator[bytes, Again | None, None]:
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
                # A pipe that somebody made non-blocking (ssh and shells do that to stdin) has nothing yet.
                select.select([stream], [], [])
                continue
            if not block:
                return
            self.bytes_read += len(block)
            yield block
