"""What was counted of interfaces -> lines on stderr: how many packets were dropped, and by whom. Holds both
counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kdissect.cli.terminal import warn
from kdissect.model import Lull
from kdissect.sinks.phrases import many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kdissect.capture.ongoing import Ongoing
    from kdissect.capture.source import InterfaceStatistics
    from kdissect.model import Packet

_SAY_EVERY_S = 5.0
_LOOK_EVERY = 256  # packets


class Losses:
    """Tells of dropped packets soon after they were, but not all the time.

    Attributes:
        by_kernel, by_us: dropped so far.
        also: told of packet time whenever there is a look at it: while packets come, and twenty times a
            second while none do.
    """

    def __init__(self, ongoing: Ongoing) -> None:
        self.by_kernel = self.by_us = 0
        self._ongoing = ongoing
        self._said = (0, 0)
        self._say_at = 0.0
        self.also: list[Callable[[int], object]] = []

    def watch(self, packets: Iterable[Packet | Lull]) -> Iterator[Packet | Lull]:
        """Let packets pass, and look at what was counted from time to time."""
        for number, packet in enumerate(packets):
            if not number % _LOOK_EVERY or isinstance(packet, Lull):
                self.look()
                for tell in self.also:
                    tell(packet.time_ns)
            yield packet
        self.look()

    def look(self) -> None:
        """Count, and say what is new if it is time to."""
        self._count(self._ongoing.statistics.values())
        now = self.by_kernel, self.by_us
        if now == self._said or time.monotonic() < self._say_at:
            return
        kernel, us = (count - before for count, before in zip(now, self._said, strict=True))
        self._said, self._say_at = now, time.monotonic() + _SAY_EVERY_S
        if kernel:
            warn(f"{many(kernel, 'packet')} dropped by the kernel: -B SIZE enlarges its buffer")
        if us:
            warn(f"{many(us, 'packet')} dropped by kdissect, which is too slow: -f FILTER leaves out more")

    def _count(self, counted: Iterable[InterfaceStatistics]) -> None:
        by_kernel = by_us = 0
        for each in counted:
            by_kernel += each.dropped_by_system or 0
            if each.accepted is not None and each.delivered is not None:
                by_us += each.accepted - (each.dropped_by_system or 0) - each.delivered
        self.by_kernel, self.by_us = by_kernel, by_us
