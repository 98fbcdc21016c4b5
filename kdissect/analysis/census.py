"""Packets that pass by -> how many of them, how large, cut and late, by file and interface.

Holds a few numbers for each interface, at most ``limits.interfaces`` of them; those beyond are counted as
the file's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.limits import Limits
    from kdissect.model import Interface, Packet


class FileCount:
    """The packets of a file."""

    __slots__ = ("backward", "first_ns", "furthest_back_ns", "last_ns", "packets")

    def __init__(self, first_ns: int) -> None:
        self.packets = 0
        self.first_ns = self.last_ns = first_ns
        self.backward = 0
        self.furthest_back_ns = 0


class InterfaceCount:
    """The packets of an interface; ``cut_to`` is the longest that was cut."""

    __slots__ = ("captured_bytes", "cut", "cut_to", "packets", "wire_bytes")

    def __init__(self) -> None:
        self.packets = self.cut = self.cut_to = self.captured_bytes = self.wire_bytes = 0


class Census:
    """Counts packets.

    Attributes:
        files: by the name of the capture.
        interfaces: those that packets came from.
    """

    def __init__(self, limits: Limits) -> None:
        self.files: dict[str, FileCount] = {}
        self.interfaces: dict[Interface, InterfaceCount] = {}
        self._most = limits.interfaces

    def watch(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Let packets pass."""
        interface: Interface | None = None
        file, count = FileCount(0), InterfaceCount()
        for packet in packets:
            _, time_ns, where, data, length = packet
            if where is not interface:  # cheaper than to look up what is the same nearly always
                interface = where
                file, count = self._of(packet)
            file.packets += 1
            if time_ns >= file.last_ns:
                file.last_ns = time_ns
            else:
                self._went_back(file, time_ns)
            captured = len(data)
            count.packets += 1
            count.captured_bytes += captured
            count.wire_bytes += length
            if captured < length:
                count.cut += 1
                count.cut_to = max(count.cut_to, captured)
            yield packet

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Times of the earliest and the latest packet; None where there is none."""
        files = self.files.values()
        return (min(file.first_ns for file in files), max(file.last_ns for file in files)) if files else None

    def _of(self, packet: Packet) -> tuple[FileCount, InterfaceCount]:
        interface = packet.interface
        file = self.files.get(interface.capture)
        if file is None:
            file = self.files[interface.capture] = FileCount(packet.time_ns)
        count = self.interfaces.get(interface) or InterfaceCount()
        if len(self.interfaces) < self._most:
            self.interfaces[interface] = count
        return file, count

    def _went_back(self, file: FileCount, time_ns: int) -> None:
        file.backward += 1
        file.furthest_back_ns = max(file.furthest_back_ns, file.last_ns - time_ns)
        file.first_ns = min(file.first_ns, time_ns)
