"""Packets -> the connection of each, to select packets of some connections in a second pass.

Whether a connection is selected becomes known long after its first packets. So the first pass records the
connection number of each packet, and the second pass reads the same packets in the same order. Packets of a
source that cannot be read twice are copied to a temporary file.

Memory: a byte for each connection, and a block of numbers. Four bytes for each packet, and copied packets,
are in temporary files that have no name and vanish with the process.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from tempfile import SpooledTemporaryFile, TemporaryFile
from typing import TYPE_CHECKING, Self

from kdissect.capture.reader import open_capture
from kdissect.capture.write import PcapngWriter
from kdissect.errors import CaptureError
from kdissect.files import temporary_file_error
from kdissect.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.capture.reader import Capture
    from kdissect.model import Interface, Packet

SELECTED, EXCLUDED = 1, 2

_BLOCK = 64 * 1024  # numbers
_SPOOLED_BYTES = 1024 * 1024  # up to this size the numbers stay in memory
_WIDTH = array("I").itemsize
_FRAGMENTS_PER_DATAGRAM = 64  # a datagram has at most 64 KiB, and few networks have an MTU below 1 KiB


class ConnectionIndex:
    """The connection of each packet, and which connections are selected.

    Args:
        keeps_packets: whether to copy the packets, because they cannot be read a second time.
        limits: of reading the copy, and of fragments to remember.
    """

    def __init__(self, *, keeps_packets: bool = False, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self._marks = bytearray(1)  # by connection; 0 is none
        self._file = SpooledTemporaryFile(_SPOOLED_BYTES)  # noqa: SIM115  (closed by __exit__)
        self._block = array("I")
        self._stored = 0  # numbers in the file
        self._noted = False
        # Packets without a known connection: they may be fragments of a datagram that later ones complete.
        self._unknown: OrderedDict[tuple[Interface, int], int] = OrderedDict()
        self._kept = TemporaryFile() if keeps_packets else None  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the temporary files."""
        self._file.close()
        if self._kept is not None:
            self._kept.close()

    # First pass

    def watch(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Pass packets through and record them. ``note`` refers to the packet yielded last.

        Raises:
            CaptureError: a temporary file could not be written.
        """
        writer = PcapngWriter(self._kept) if self._kept is not None else None
        for packet in packets:
            try:
                if writer is not None:
                    writer.write(packet)
                self._append()
            except OSError as error:
                raise CaptureError(temporary_file_error(error)) from error
            self._noted = False
            yield packet
            if not self._noted:
                self._unknown[packet.interface, packet.number] = self._stored + len(self._block) - 1
                if len(self._unknown) > self._limits.fragment_datagrams * _FRAGMENTS_PER_DATAGRAM:
                    self._unknown.popitem(last=False)

    def note(self, connection: int, parts: Iterable[tuple[Interface, int]] = ()) -> None:
        """Record the connection of the current packet and of the earlier ``parts`` of its datagram."""
        self._noted = True
        self._block[-1] = connection
        for part in parts:
            place = self._unknown.pop(part, None)
            if place is not None:
                self._change(place, connection)

    def select(self, connection: int) -> None:
        """Select a connection, unless it is excluded."""
        self._mark(connection, SELECTED)

    def exclude(self, connection: int) -> None:
        """Exclude a connection, selected or not."""
        self._mark(connection, EXCLUDED)

    # Second pass

    @property
    def selected(self) -> int:
        """Number of connections that are selected and not excluded."""
        return self._marks.count(SELECTED)

    @property
    def excluded(self) -> int:
        """Number of connections that are selected, but excluded."""
        return self._marks.count(SELECTED | EXCLUDED)

    def kept_packets(self) -> Capture | None:
        """The copied packets; None if they were not copied."""
        if self._kept is None:
            return None
        self._kept.seek(0)
        return open_capture(self._kept, limits=self._limits)

    def select_packets(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Yield packets of selected connections. ``packets`` are those of the first pass, in that order."""
        packets = iter(packets)
        for numbers in self._blocks():
            for connection, packet in zip(numbers, packets, strict=False):
                if self.is_selected(connection):
                    yield packet

    def is_selected(self, connection: int) -> bool:
        """Whether a connection is selected and not excluded."""
        return connection < len(self._marks) and self._marks[connection] == SELECTED

    def _mark(self, connection: int, mark: int) -> None:
        missing = connection + 1 - len(self._marks)
        if missing > 0:
            self._marks += bytes(missing)
        self._marks[connection] |= mark

    def _append(self) -> None:
        if len(self._block) == _BLOCK:
            self._file.seek(self._stored * _WIDTH)
            self._file.write(self._block.tobytes())
            self._stored += _BLOCK
            self._block = array("I")
        self._block.append(0)

    def _change(self, place: int, connection: int) -> None:
        if place >= self._stored:
            self._block[place - self._stored] = connection
        else:
            self._file.seek(place * _WIDTH)
            self._file.write(array("I", (connection,)).tobytes())

    def _blocks(self) -> Iterator[array[int]]:
        self._file.seek(0)
        for _ in range(self._stored // _BLOCK):
            yield array("I", self._file.read(_BLOCK * _WIDTH))
        yield self._block
