"""Connections that are over -> whether a segment belongs to one of them, and so came again.

Captures of both ends, merged, tell of a connection twice, and when their clocks differ by seconds the second
time begins or ends long after the first is over. A SYN with the number of an earlier one, and payload out of
its numbers, begin no connection then. Without this, each would be counted twice, or its last seconds would
make a connection of their own.

Holds the numbers where streams began and ended, for each pair of ends those of its last connections: of
``Limits.ended_connections`` pairs, until ``ended_age_ns`` has passed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kdissect.net.stream import advance, distance
from kdissect.net.tcp import SYN, reversed_ends

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Segment
    from kdissect.net.duplex import Duplex
    from kdissect.net.stream import Stream

_LONG = 1 << 30
_MOST = 4
"""Connections remembered of one pair of ends: a minute of TIME_WAIT keeps most from having more."""


class _Ended(NamedTuple):
    """A connection, from side 0 on: its ends, when it was over, and the first and the next number of each
    stream; None for a stream of which nothing came.
    """

    ends: bytes
    time_ns: int
    numbers: tuple[tuple[int, int] | None, tuple[int, int] | None]


class Ended:
    """Remembers connections that are over."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ended: OrderedDict[bytes, tuple[_Ended, ...]] = OrderedDict()

    def add(self, duplex: Duplex, time_ns: int) -> bool:
        """Remember a connection; whether another one had to be forgotten for it too soon."""
        one, two = duplex.streams
        ended = _Ended(duplex.ends, time_ns, (_numbers(one), _numbers(two)))
        key = _key(duplex.ends)
        self._ended[key] = (*self._ended.pop(key, ())[1 - _MOST :], ended)
        is_full = len(self._ended) > self._limits.ended_connections
        if is_full:
            self._ended.popitem(last=False)
        return is_full

    def tick(self, time_ns: int) -> None:
        """Every segment up to this time has been delivered: forget what none that follows can be part of."""
        since_ns = time_ns - self._limits.ended_age_ns
        while self._ended and next(iter(self._ended.values()))[-1].time_ns < since_ns:
            self._ended.popitem(last=False)

    def knows(self, segment: Segment) -> bool:
        """Whether a segment lies within a connection that is over."""
        for ended in self._ended.get(_key(segment.ends), ()):
            numbers = ended.numbers[segment.ends != ended.ends]
            recent = abs(segment.time_ns - ended.time_ns) <= self._limits.ended_age_ns
            if numbers and recent and _within(segment, *numbers):
                return True
        return False


def _key(ends: bytes) -> bytes:
    """The same for both directions."""
    return min(ends, reversed_ends(ends))


def _numbers(stream: Stream) -> tuple[int, int] | None:
    if stream.first is None:
        return None
    # What is more than 2 GiB behind looks as if it were ahead: of so long a stream, the end is remembered.
    near = distance(stream.first, stream.next) >= 0
    return stream.first if near else advance(stream.next, -_LONG), stream.next


def _within(segment: Segment, first: int, following: int) -> bool:
    if segment.flags & SYN:
        return advance(segment.sequence, 1) == first
    end = advance(segment.sequence, segment.length)
    return distance(first, segment.sequence) >= -1 and distance(end, following) >= 0
