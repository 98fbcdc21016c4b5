"""Packets -> a pcapng file or a ring of files, up to a stop condition.

A ring's files are named as by dumpcap, ``name_00001_20261121090500.pcapng``: a running number, and the time
of the first packet in UTC. Packets are written as captured, even if they contain credentials
(docs/decisions/credentials-are-not-written-back.md). Memory: one open file, and the names of a ring's files.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from kdissect.capture.write import PcapngWriter
from kdissect.errors import WriteError
from kdissect.files import PRIVATE, create
from kdissect.model import IdleTick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from kdissect.capture.source import InterfaceStatistics
    from kdissect.model import Interface, Packet, PacketBlock


class Thresholds(NamedTuple):
    """When to begin the next file of a ring, or to stop; None: no threshold.

    Attributes:
        bytes: size of the file.
        duration_ns: packet time since the file's first packet.
        files: files to keep in a ring, or files to write before stopping.
        packets: captured packets.
    """

    bytes: int | None = None
    duration_ns: int | None = None
    files: int | None = None
    packets: int | None = None


NEVER = Thresholds()


class Recording:
    """Passes packets through, writes them, and stops after enough of them.

    Args:
        path: of the file, or the pattern for the names of a ring's files; None: nothing is written.
        ring: when to begin the next file; ``NEVER``: a single file.
        stop: when to stop.
        application: name of the writing program, for the file.
        mode: permissions of the files, see ``files.create``.

    Attributes:
        packets: number passed through.
        files: number begun.
    """

    def __init__(
        self, path: Path | None, ring: Thresholds, stop: Thresholds, application: str, mode: int = PRIVATE
    ) -> None:
        self.packets = 0
        self.files = 0
        self._path, self._ring, self._stop = path, ring, stop
        self._application, self._mode = application, mode
        self._file: _CountingFile | None = None
        self._writer: PcapngWriter | None = None
        self._started_ns = 0
        self._paths: deque[Path] = deque()
        self._is_full = False

    def watch(self, packets: Iterable[PacketBlock | IdleTick]) -> Iterator[PacketBlock | IdleTick]:
        """Pass packets through until a stop condition is met.

        Raises:
            OutputError: a file cannot be written.
        """
        for block in packets:
            if isinstance(block, IdleTick):
                self._flush()
                yield block
                continue
            count = self._take(block)
            if count:
                yield block if count == len(block.places) else block._replace(places=block.places[:count])
            if self._is_full or self._is_stop_reached():
                return

    def close(self, statistics: Mapping[Interface, InterfaceStatistics], time_ns: int) -> None:
        """Write the interfaces' counters, and close the file."""
        if self._writer is not None:
            for interface, counters in statistics.items():
                self._writer.count(interface, counters, time_ns)
        self._finish()

    def _take(self, block: PacketBlock) -> int:
        """Write the packets of a block up to a stop condition. Returns how many are passed through."""
        if self._path is None:
            left = len(block.places) if self._stop.packets is None else self._stop.packets - self.packets
            count = min(len(block.places), left)
            self.packets += count
            return count
        for count, packet in enumerate(block.packets):
            self.packets += 1
            self._write(self._path, packet)
            if self._is_full:
                return count
            if self._is_stop_reached():
                return count + 1
        return len(block.places)

    def _is_stop_reached(self) -> bool:
        stop = self._stop
        if stop.packets is not None and self.packets >= stop.packets:
            return True
        return stop.bytes is not None and self._file is not None and self._file.bytes >= stop.bytes

    def _write(self, path: Path, packet: Packet) -> None:
        if self._writer is None or self._is_rotation_due(packet):
            if self._stop.files is not None and self.files >= self._stop.files:
                self._is_full = True  # this packet would begin another file
                return
            self._begin_file(path, packet)
        assert self._writer is not None
        try:
            self._writer.write(packet)
        except OSError as error:
            raise WriteError.of(self._paths[-1], error) from error

    def _is_rotation_due(self, packet: Packet) -> bool:
        ring, file = self._ring, self._file
        if file is not None and ring.bytes is not None and file.bytes >= ring.bytes:
            return True
        return ring.duration_ns is not None and packet.time_ns - self._started_ns >= ring.duration_ns

    def _begin_file(self, path: Path, packet: Packet) -> None:
        self._finish()
        self.files += 1
        self._started_ns = packet.time_ns
        if self._ring != NEVER:
            first_packet_at = datetime.fromtimestamp(packet.time_ns // 1_000_000_000, UTC)
            path = path.with_name(f"{path.stem}_{self.files:05}_{first_packet_at:%Y%m%d%H%M%S}{path.suffix}")
        self._paths.append(path)
        try:
            self._file = _CountingFile(create(path, self._mode))
            if self._ring.files is not None and len(self._paths) > self._ring.files:
                self._paths.popleft().unlink(missing_ok=True)
        except OSError as error:
            raise WriteError.of(self._paths[-1], error) from error
        self._writer = PcapngWriter(self._file, self._application)  # type: ignore[arg-type]  # it only writes
        if self._ring.files is None:
            self._paths = deque(self._paths, maxlen=1)

    def _flush(self) -> None:
        if self._file is not None:
            try:
                self._file.file.flush()
            except OSError as error:
                raise WriteError.of(self._paths[-1], error) from error

    def _finish(self) -> None:
        if self._file is not None:
            try:
                self._file.file.close()
            except OSError as error:
                raise WriteError.of(self._paths[-1], error) from error


class _CountingFile:
    """A file that counts the bytes written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        return self.file.write(data)
