"""Packets that pass by -> how many of them, how large, cut and late, by file and interface.

Holds a few numbers for each interface, at most ``limits.interfaces`` of them; those beyond are counted as
the file's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kdissect.model import Lull, Packet, Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.limits import Limits
    from kdissect.model import Interface

Packets = TypeVar("Packets", bound=Stretch | Packet | Lull)


class FileCount:
    """The packets of a file."""

    __slots__ = ("backward", "first_ns", "furthest_back_ns", "last_ns", "packets")

    def __init__(self, first_ns: int) -> None:
        self.packets = 0
        self.first_ns = self.last_ns = first_ns
        self.backward = 0
        self.furthest_back_ns = 0

    def add(self, later: FileCount) -> None:
        """Take what was counted of the packets behind."""
        self.packets += later.packets
        self.first_ns = min(self.first_ns, later.first_ns)
        self.last_ns = max(self.last_ns, later.last_ns)
        self.backward += later.backward
        self.furthest_back_ns = max(self.furthest_back_ns, later.furthest_back_ns)


class InterfaceCount:
    """The packets of an interface; ``cut_to`` is the longest that was cut."""

    __slots__ = ("captured_bytes", "cut", "cut_to", "packets", "wire_bytes")

    def __init__(self) -> None:
        self.packets = self.cut = self.cut_to = self.captured_bytes = self.wire_bytes = 0

    def add(self, other: InterfaceCount) -> None:
        """Take what was counted elsewhere."""
        self.packets += other.packets
        self.cut += other.cut
        self.cut_to = max(self.cut_to, other.cut_to)
        self.captured_bytes += other.captured_bytes
        self.wire_bytes += other.wire_bytes


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
        self._forgotten: FileCount | None = None
        self._interface: Interface | None = None  # of the latest packet,
        self._counts = FileCount(0), InterfaceCount()  # and where it is counted

    def watch(self, packets: Iterable[Packets]) -> Iterator[Packets]:
        """Let packets pass."""
        for each in packets:
            if not isinstance(each, Lull):
                self._count(each if isinstance(each, Stretch) else Stretch.of(each))
            yield each

    def _count(self, stretch: Stretch) -> None:
        if stretch.interface is not self._interface:  # cheaper than to look up what is the same nearly always
            self._interface = stretch.interface
            self._counts = self._of(stretch.interface, stretch.time_ns)
        file, count = self._counts
        file.packets += len(stretch.places)
        count.packets += len(stretch.places)
        for time_ns, begin, end, length in stretch.places:
            if time_ns >= file.last_ns:
                file.last_ns = time_ns
            else:
                self._went_back(file, time_ns)
            count.captured_bytes += end - begin
            count.wire_bytes += length
            if end - begin < length:
                count.cut += 1
                count.cut_to = max(count.cut_to, end - begin)

    def add(self, other: Census) -> None:
        """Take what was counted of packets that stand behind one's own in their files."""
        for name, file in other.files.items():
            if name not in self.files:
                self.files[name] = file
            elif file.packets:
                self.files[name].add(file)
        for interface, count in other.interfaces.items():
            if interface in self.interfaces:
                self.interfaces[interface].add(count)
            elif len(self.interfaces) < self._most:
                self.interfaces[interface] = count

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Times of the earliest and the latest packet; None where there is none."""
        files = [*self.files.values(), *(() if self._forgotten is None else (self._forgotten,))]
        return (min(file.first_ns for file in files), max(file.last_ns for file in files)) if files else None

    def forget(self, name: str) -> None:
        """Keep no more of a file than when its packets were captured: one of many that follow one another."""
        file = self.files.pop(name, None)
        if file is None:
            return
        if self._forgotten is None:
            self._forgotten = FileCount(file.first_ns)
        span = self._forgotten
        span.first_ns, span.last_ns = min(span.first_ns, file.first_ns), max(span.last_ns, file.last_ns)
        self._interface = None
        for interface in [each for each in self.interfaces if each.capture == name]:
            del self.interfaces[interface]

    def _of(self, interface: Interface, time_ns: int) -> tuple[FileCount, InterfaceCount]:
        file = self.files.get(interface.capture)
        if file is None:
            file = self.files[interface.capture] = FileCount(time_ns)
        count = self.interfaces.get(interface) or InterfaceCount()
        if len(self.interfaces) < self._most:
            self.interfaces[interface] = count
        return file, count

    def _went_back(self, file: FileCount, time_ns: int) -> None:
        file.backward += 1
        file.furthest_back_ns = max(file.furthest_back_ns, file.last_ns - time_ns)
        file.first_ns = min(file.first_ns, time_ns)
