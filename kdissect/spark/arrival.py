"""Rows of a part, sorted -> its dissection: that of all packets, as far as the part's connections go.

What becomes of a connection depends on its own segments, and on how many others came and when. So a part is
told with each of its segments how many there were before it in all captures, and how far time has come; and
of others those at which patience ends, or a connection has been idle for too long. The places of segments are
known once all ranges were read: their counts are added up; of captures of the same time it is looked up how
far each has come by then.

Holds two numbers for each ``every`` segments of the captures: exact where that is one, else to within so
many.
"""

from __future__ import annotations

import pickle
from array import array
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kdissect.analysis.naming import mentions
from kdissect.model import Interface, Packet
from kdissect.net.link import ETHERNET
from kdissect.net.tcp import ACK, USUAL, USUAL_CARRIES, USUAL_CONTROL, USUAL_KIND
from kdissect.pipeline import Dissection
from kdissect.spark.shuffle import HEAD, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.analysis.naming import Taught
    from kdissect.model import Exchange
    from kdissect.spark.shuffle import RangeTold

Key: TypeAlias = tuple[int, int, int]
"""Clock, rank and number of a packet."""
Row: TypeAlias = tuple[Key, int, int, int, int, bytes]
"""Key of a packet, range, place among the segments of that, time, length and bytes."""

_NUMBER_BITS = 40

# Of no connection: a bare acknowledgment opens none.
_TICK = USUAL.pack(USUAL_KIND, 40, USUAL_CARRIES, bytes(12), 0, 0, USUAL_CONTROL | ACK) + bytes(6)

_NEVER_NS = -(1 << 63)
_new = tuple.__new__


class Others(NamedTuple):
    """A range of another file that has packets of the same time.

    Attributes:
        clocks_ns: as in ``RangeTold``.
        is_first: whether it is the first of the two where times are the same.
    """

    clocks_ns: array[int]
    is_first: bool


class Arrivals(NamedTuple):
    """How many segments came before those of each range.

    Attributes:
        before: from ranges that are over by then.
        others: those that are not.
        every: how many segments lie between two of their ``clocks_ns``.
        all: segments of all ranges.
        places: of some segments, among all of them.
        clocks_ns: how far time has come at these.
    """

    before: list[int]
    others: list[list[Others]]
    every: int
    all: int
    places: array[int]
    clocks_ns: array[int]

    @classmethod
    def of(cls, told: Sequence[RangeTold], every: int) -> Arrivals:
        """Add up what was told of all ranges."""
        before = [0] * len(told)
        others: list[list[Others]] = [[] for _ in told]
        going_on: list[RangeTold] = []
        over = 0
        for own in sorted(told, key=lambda each: (each.begin_ns, each.place)):
            if not own.segments:
                continue
            over += sum(each.segments for each in going_on if each.end_ns < own.begin_ns)
            going_on = [each for each in going_on if each.end_ns >= own.begin_ns]
            before[own.place] = over
            for each in going_on:
                is_first = each.place < own.place
                if each.range.rank == own.range.rank or (is_first and each.end_ns == own.begin_ns):
                    before[own.place] += each.segments
                else:
                    others[own.place].append(Others(each.clocks_ns, is_first))
                    others[each.place].append(Others(own.clocks_ns, not is_first))
            going_on.append(own)
        made = cls(before, others, every, sum(each.segments for each in told), array("q"), array("q"))
        samples = [
            (made.at(each.place, every * count, clock_ns), clock_ns)
            for each in told
            for count, clock_ns in enumerate(each.clocks_ns, 1)
        ]
        samples.sort()
        made.places.extend(place for place, _ in samples)
        made.clocks_ns.extend(clock_ns for _, clock_ns in samples)
        return made

    def at(self, range_: int, arrival: int, clock_ns: int) -> int:
        """The place of a segment among those of all captures, from 1."""
        found = self.before[range_] + arrival
        for other in self.others[range_]:
            past = (bisect_right if other.is_first else bisect_left)(other.clocks_ns, clock_ns)
            found += past * self.every
        return found

    def clock_ns(self, place: int) -> int:
        """How far time has come at a segment."""
        found = bisect_right(self.places, place)
        return self.clocks_ns[found - 1] if found else _NEVER_NS

    def reaching(self, place: int, time_ns: int) -> int:
        """The first segment that brings time forward, and at which so many came and time has come so far."""
        time_ns = max(time_ns, self.clock_ns(place - 1) + 1)
        found = bisect_left(self.clocks_ns, time_ns)
        return self.places[found] if found < len(self.places) else self.all + 1


class FilesApart:
    """The same as long as nobody has counted: ranges are far apart."""

    all = 1 << 62

    def at(self, range_: int, arrival: int, clock_ns: int) -> int:  # noqa: ARG002
        """As in ``Arrivals``."""
        return (range_ << _NUMBER_BITS) + arrival

    def clock_ns(self, place: int) -> int:  # noqa: ARG002
        """As in ``Arrivals``."""
        return _NEVER_NS

    def reaching(self, place: int, time_ns: int) -> int:  # noqa: ARG002
        """As in ``Arrivals``."""
        return self.all + 1


class Bundle(NamedTuple):
    """A row: see shuffle.py. ``key`` is that of the first packet."""

    key: Key
    end_ns: int
    range: int
    heads: bytes
    data: bytes

    def rows(self) -> Iterator[Row]:
        """Its packets."""
        (_, rank, _), _, range_, heads, data = self
        begin = 0
        for clock_ns, number, arrival, time_ns, length, captured in HEAD.iter_unpack(heads):
            end = begin + captured
            yield (clock_ns, rank, number), range_, arrival, time_ns, length, data[begin:end]
            begin = end


def in_order(bundles: Iterator[Bundle]) -> Iterator[Row]:
    """The packets of bundles that come in the order of their first ones. Holds the bundles that are of the
    same time.
    """
    begun: list[tuple[Key, int, Row, Iterator[Row]]] = []
    following = next(bundles, None)
    for place in count():
        bundle, following = following, next(bundles, None)
        if bundle is None:
            return
        rows = bundle.rows()
        if not begun and (following is None or bundle.end_ns < following.key[0]):
            yield from rows  # nearly all of them, and so without a heap
            continue
        first = next(rows)
        heappush(begun, (first[0], place, first, rows))
        while begun and (following is None or begun[0][0] < following.key):
            _, own, row, rows = begun[0]
            yield row
            after = next(rows, None)
            if after is None:
                heappop(begun)
            else:
                heapreplace(begun, (after[0], own, after, rows))


class Noting(Dissection):
    """Dissects, and notes which topic ids there are: at most ``limits.topic_names`` of them."""

    def __init__(self, packets: Iterable[Any], **options: Any) -> None:
        super().__init__(packets, **options)
        self._ids: set[str] = set()
        self._taught: Taught = options.get("taught") or {}

    def decode(self, exchange: Exchange) -> None:
        """Open what an exchange consists of."""
        super().decode(exchange)
        if len(self._ids) < self._limits.topic_names:
            self._ids.update(mentions(exchange).ids)

    @property
    def unresolved(self) -> set[str]:
        """Those that nobody has named."""
        return {each for each in self._ids - self._taught.keys() if self._naming.name(each) is None}


class PartDissection(Noting):
    """Dissects the packets of a part.

    Args:
        batches: of its rows, sorted.
        paths: of the files, by rank.
        arrivals: of all segments.
        options: as ``Dissection`` takes them.

    Attributes:
        told: what stood among the rows and was no packet.
    """

    def __init__(
        self, batches: Iterable[Any], paths: Sequence[str], arrivals: Arrivals | FilesApart, **options: Any
    ) -> None:
        super().__init__(self._own(batches), **options)
        self.told: list[RangeTold] = []
        self._arrivals = arrivals
        self._interfaces = [Interface(path, 0, ETHERNET) for path in paths]

    def _own(self, batches: Iterable[Any]) -> Iterator[Packet]:
        connections, interfaces, arrivals = self._connections, self._interfaces, self._arrivals
        for (clock_ns, rank, number), range_, arrival, time_ns, length, data in in_order(
            self._bundles(batches)
        ):
            place = arrivals.at(range_, arrival, clock_ns)
            if clock_ns >= connections.due_ns:
                yield from self._ticks(place)
            connections.arrivals = place - 1
            before_ns = arrivals.clock_ns(place - 1)
            if before_ns > connections.now_ns:
                connections.now_ns = before_ns
            yield _new(Packet, (number, time_ns, interfaces[rank], data, length))
        yield from self._ticks(arrivals.all + 1)
        connections.arrivals = arrivals.all
        connections.now_ns = max(connections.now_ns, arrivals.clock_ns(arrivals.all))

    def _bundles(self, batches: Iterable[Any]) -> Iterator[Bundle]:
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in SCHEMA.names[1:])
            for clock_ns, end_ns, rank, number, range_, heads, data in zip(*columns, strict=True):
                if heads:
                    yield Bundle((clock_ns, rank, number), end_ns, range_, heads, data)
                else:
                    self.told.append(pickle.loads(data))  # which a task of ours made

    def _ticks(self, until: int) -> Iterator[Packet]:
        """Packets of nobody, at the places before ``until`` where something is done whoever's comes."""
        arrivals, connections = self._arrivals, self._connections
        place = connections.arrivals
        while True:
            due = min((arrivals.reaching(*due) for due in connections.dues), default=until)
            if not place < due < until:
                return
            place = due
            connections.arrivals = due - 1
            yield Packet(0, arrivals.clock_ns(due), self._interfaces[0], _TICK, len(_TICK))
