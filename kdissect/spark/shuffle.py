"""Ranges of captures -> bundles of TCP segments, which Spark sorts -> the segments of each connection.

A task reads a range and extracts the segments from link layer, IP, fragments and tunnels. Fragments of
incomplete datagrams go to the driver, which completes them. Both directions of a connection go to the same
part. Spark sorts the rows of a part by connection, and those of a connection by clock, rank and number: the
order in which ``capture/reader.py`` merges files.

A row is a bundle of consecutive segments of one connection:

    part                the part that gets it; one past the last part: for the driver
    connection          both ends: the smaller of the two directions' ``Segment.ends``
    clock_ns, end_ns    latest packet time in this file, up to the first segment and up to the last
    rank                index of the file
    number              number of the first packet
    heads               ``_HEAD`` of each segment
    data                the payloads; in a row for the driver, which has no heads, a ``RangeStats`` as JSON

Holds incomplete bundles, which have a common limit, and at most ``_FRAGMENT_BYTES`` of fragments.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count, groupby
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from zlib import crc32

import pyarrow as pa

from kdissect.errors import CaptureError
from kdissect.limits import KIB, MIB, Limits
from kdissect.model import Interface, Segment
from kdissect.net.ip import INCOMPLETE, Datagram, Fragment
from kdissect.net.link import ETHERNET
from kdissect.net.tcp import Segments, connection_key, endpoints, reversed_ends
from kdissect.spark.ranges import open_range
from kdissect.spark.values import known, to_json
from kdissect.stats.survey import Census, FileCount
from kdissect.tables import arrow  # noqa: F401  (keeps pyarrow from loading pandas)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kdissect.capture.source import Source
    from kdissect.model import Packet
    from kdissect.spark.ranges import Fingerprint, Range

Key: TypeAlias = tuple[int, int, int]
"""Clock, rank and number of a packet."""

COLUMNS = (
    "part int, connection binary, clock_ns bigint, end_ns bigint, rank int, number bigint, heads binary, "
    "data binary"
)
ORDER = ("connection", "clock_ns", "rank", "number")
SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("connection", pa.binary()),
        ("clock_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("rank", pa.int32()),
        ("number", pa.int64()),
        ("heads", pa.binary()),
        ("data", pa.binary()),
    ]
)

# Clock, number and time of the packet; sequence and acknowledgment number; payload bytes on the wire and
# captured; whether the segment's ends are the reverse of ``connection``; flags, window, D-SACK.
_HEAD = Struct("<qqqIIII?BH?")
_BUNDLE_BYTES = 256 * KIB
_BUNDLES_BYTES = 16 * MIB
"""Limit of all incomplete bundles: with very many connections, bundles are smaller."""
_MOST_ENDS = 100_000
"""Size of the cache from ends to connection key; about 200 bytes each."""
_FRAGMENT_BYTES, _FRAGMENTS_BYTES = 16 * MIB, 64 * MIB
"""Limits of incomplete datagrams, in a range and in the driver for all ranges; usually there are few."""
_FRAGMENT_COST = 256
"""Memory of a fragment in addition to its payload, in bytes."""

_LEAST_UNEVEN_BYTES = 128 * MIB  # takes a task about a minute

_new = tuple.__new__  # half the time of calling the class of a named tuple


@known
class WaitingFragment(NamedTuple):
    """A fragment of a datagram that its range does not complete; ``packet`` has no data."""

    key: Key
    fragment: Fragment
    packet: Packet


@known
class RangeStats(NamedTuple):
    """What a range contains apart from segments.

    Attributes:
        place: index of the range.
        range: the range.
        source: the source of its file.
        census: counts of its packets.
        skipped: number of packets that were not dissected, by reason, without ``fragments``.
        fault: the error that ended the reading early; None if there was none.
        fragments: fragments that other ranges may complete.
    """

    place: int
    range: Range
    source: Source
    census: Census
    skipped: Counter[str]
    fault: str | None
    fragments: list[WaitingFragment]


def read_ranges(
    ranges: Sequence[Range],
    files: Mapping[str, Fingerprint],
    parts: int,
    limits: Limits,
    batches: Iterable[Any],
) -> Iterator[Any]:
    """Read the ranges whose indexes are in the column ``id``; see ``bundled``.

    Raises:
        CaptureError: a file is not the one that the driver saw.
    """
    for batch in batches:
        for place in batch.column("id").to_pylist():
            path = ranges[place].path
            files[path].check(path)
            yield from bundled(place, ranges, parts, limits)


def bundled(place: int, ranges: Sequence[Range], parts: int, limits: Limits) -> Iterator[Any]:
    """Read a range; yield batches of rows.

    Args:
        place: index of the range.
        ranges: all ranges.
        parts: number of parts, without the one for the driver.
        limits: limits of the dissection.
    """
    range_ = ranges[place]
    bundles = _Bundles(parts)
    source, packets = open_range(range_, limits)
    reading = _Reading(range_, cast("Iterator[Packet]", packets))
    census = Census(limits)
    if range_.clock_ns is not None:
        census.files[range_.path] = FileCount(range_.clock_ns)
    fragments = _Fragments(reading, _FRAGMENT_BYTES)
    segments = Segments(limits, fragments.note)
    for packet in cast("Iterator[Packet]", census.watch(reading)):
        segment = segments.feed(packet)
        if segment is not None:
            yield from bundles.feed(range_.rank, reading.clock_ns, segment)
    yield from bundles.close()
    segments.close()
    waiting = fragments.close(_FRAGMENTS_BYTES // len(ranges))
    segments.skipped[INCOMPLETE] -= len(waiting)
    if fragments.dropped:
        source.warn(f"{fragments.dropped:,} IP fragments dropped: too many to match with other ranges")
    stats = RangeStats(place, range_, source, census, segments.skipped, reading.fault, waiting)
    yield _batch([(parts, b"", 0, 0, 0, 0, b"", to_json(stats))])


class _Reading:
    """The packets of a range.

    Attributes:
        range: the range.
        clock_ns: latest time of a packet so far.
        fault: the error that ended the reading early; None if there was none.
    """

    def __init__(self, range_: Range, packets: Iterator[Packet]) -> None:
        self._packets = packets
        self.clock_ns = range_.clock_ns or 0
        self.fault: str | None = None
        self.range = range_

    def __iter__(self) -> Iterator[Packet]:
        last = self.range.last
        clock_ns = self.range.clock_ns
        try:
            for packet in self._packets:
                if last is not None and packet.number > last:
                    return
                if clock_ns is None or packet.time_ns > clock_ns:
                    clock_ns = self.clock_ns = packet.time_ns
                yield packet
        except CaptureError as error:
            self.fault = str(error)


class _Fragments:
    """Fragments of incomplete datagrams.

    Args:
        reading: the packets of the range.
        most_bytes: maximum size; the oldest datagrams are dropped.

    Attributes:
        dropped: number of dropped fragments.
    """

    def __init__(self, reading: _Reading, most_bytes: int) -> None:
        self._reading = reading
        self._most_bytes = most_bytes
        self._waiting: dict[tuple[bytes, int, int], list[WaitingFragment]] = {}
        self._held = 0
        self.dropped = 0

    def note(self, fragment: Fragment, packet: Packet, datagram: Datagram | str | None) -> None:
        """Take a fragment and the result of reassembly, see ``Segments``."""
        if isinstance(datagram, Datagram):
            self._forget(fragment.key)
        elif datagram is None:
            key = self._reading.clock_ns, self._reading.range.rank, packet.number
            waiting = WaitingFragment(key, fragment, packet._replace(data=b""))
            self._waiting.setdefault(fragment.key, []).append(waiting)
            self._held += _cost(fragment)
            self._shrink(self._most_bytes)

    def close(self, most_bytes: int) -> list[WaitingFragment]:
        """The fragments that the range does not complete."""
        self._shrink(most_bytes)
        return [each for waiting in self._waiting.values() for each in waiting]

    def _shrink(self, most_bytes: int) -> None:
        while self._held > most_bytes:
            self.dropped += self._forget(next(iter(self._waiting)))

    def _forget(self, key: tuple[bytes, int, int]) -> int:
        waiting = self._waiting.pop(key, [])
        self._held -= sum(_cost(each.fragment) for each in waiting)
        return len(waiting)


def _cost(fragment: Fragment) -> int:
    return _FRAGMENT_COST + len(fragment.part.payload)


def completed(stats: Iterable[RangeStats], parts: int, limits: Limits) -> tuple[list[Any], Counter[str]]:
    """Reassemble the datagrams whose fragments are in several ranges.

    Returns:
        Batches of rows, as ``bundled`` yields them; and the numbers of skipped fragments by reason.
    """
    segments, bundles, batches = Segments(limits), _Bundles(parts), list[Any]()
    for (clock_ns, rank, _), fragment, packet in sorted(
        (each for one in stats for each in one.fragments), key=attrgetter("key")
    ):
        segment = segments.feed_fragment(fragment, packet)
        if segment is not None:
            batches += bundles.feed(rank, clock_ns, segment)
            batches += bundles.close()
    segments.close()
    return batches, segments.skipped


class _Bundles:
    """The incomplete bundle of each connection."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._known: dict[bytes, tuple[bytes, bool]] = {}
        self._bundles: dict[bytes, _Bundle] = {}
        self._bytes = 0

    def feed(self, rank: int, clock_ns: int, segment: Segment) -> Iterable[Any]:
        """Take a segment; return a batch of the bundles that are complete."""
        number, time_ns, _, ends, sequence, acknowledgment, flags, payload, length, window, d_sack = segment
        known = self._known.get(ends)
        if known is None:
            if len(self._known) >= _MOST_ENDS:
                self._known.clear()
            connection = connection_key(ends)
            known = self._known[ends] = connection, ends != connection
        connection, is_reverse = known
        bundle = self._bundles.get(connection)
        if bundle is None:
            bundle = self._bundles[connection] = _Bundle(clock_ns, rank, number)
        captured = len(payload)
        bundle.heads.append(
            _HEAD.pack(
                *(clock_ns, number, time_ns, sequence, acknowledgment, length, captured, is_reverse),
                *(flags, window, d_sack),
            )
        )
        bundle.payloads.append(payload)
        bundle.end_ns = clock_ns
        size = captured + _HEAD.size
        bundle.bytes += size
        self._bytes += size
        if bundle.bytes >= _BUNDLE_BYTES:
            return (_batch([self._take(connection)]),)
        return self.close() if self._bytes >= _BUNDLES_BYTES else ()

    def close(self) -> Iterator[Any]:
        """A batch of all bundles."""
        if self._bundles:
            yield _batch([self._take(connection) for connection in list(self._bundles)])

    def _take(self, connection: bytes) -> tuple[Any, ...]:
        bundle = self._bundles.pop(connection)
        self._bytes -= bundle.bytes
        where = bundle.clock_ns, bundle.end_ns, bundle.rank, bundle.number
        part = crc32(connection) % self._parts
        return part, connection, *where, b"".join(bundle.heads), b"".join(bundle.payloads)


class _Bundle:
    """Segments of one connection, to be packed into a row."""

    __slots__ = ("bytes", "clock_ns", "end_ns", "heads", "number", "payloads", "rank")

    def __init__(self, clock_ns: int, rank: int, number: int) -> None:
        self.clock_ns = self.end_ns = clock_ns
        self.rank = rank
        self.number = number
        self.heads: list[bytes] = []
        self.payloads: list[bytes] = []
        self.bytes = 0


def _batch(rows: Sequence[tuple[Any, ...]]) -> Any:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# --- back to segments ---------------------------------------------------------------------------------------


class Bundle(NamedTuple):
    """A row, see the module; ``key`` is that of the first segment."""

    connection: bytes
    key: Key
    end_ns: int
    heads: bytes
    data: bytes

    def segments(self, interface: Interface) -> Iterator[tuple[Key, Segment]]:
        """The segments with their keys."""
        connection, (_, rank, _), _, heads, data = self
        ends = connection, reversed_ends(connection)
        begin = 0
        for head in _HEAD.iter_unpack(heads):
            clock_ns, number, time_ns, *numbers, length, captured, is_reverse, flags, window, d_sack = head
            end = begin + captured
            sent = ends[is_reverse], *numbers, flags, data[begin:end], length, window, d_sack
            yield (clock_ns, rank, number), _new(Segment, (number, time_ns, interface, *sent))
            begin = end


@known
class ConnectionBytes(NamedTuple):
    """Payload bytes of connections, together and of the largest one."""

    total_bytes: int = 0
    most_bytes: int = 0
    largest: bytes = b""

    @classmethod
    def of(cls, loads: Iterable[ConnectionBytes]) -> ConnectionBytes:
        """That of all connections together."""
        known_loads = list(loads)
        _, most_bytes, largest = max(known_loads, key=attrgetter("most_bytes"), default=cls())
        return cls(sum(each.total_bytes for each in known_loads), most_bytes, largest)

    @property
    def warning(self) -> str | None:
        """What is wrong if one connection has more than half of the bytes of a large input."""
        if self.total_bytes < _LEAST_UNEVEN_BYTES or 2 * self.most_bytes <= self.total_bytes:
            return None
        first, second = endpoints(self.largest)
        percent = 100 * self.most_bytes // self.total_bytes
        return f"{first} - {second} has {percent} % of all bytes, which one task dissects alone"


class SortedRows:
    """The rows of a part, sorted by Spark.

    Attributes:
        load: what was read of them.
    """

    def __init__(self, batches: Iterable[Any], paths: Sequence[str]) -> None:
        self._batches = batches
        self._interfaces = [Interface(path, 0, ETHERNET) for path in paths]
        self._current, self._current_bytes = b"", 0
        self.load = ConnectionBytes()

    def connections(self) -> Iterator[Iterator[Segment]]:
        """The segments of each pair of ends, which must be consumed before the next pair is requested."""
        for _, bundles in groupby(self._bundles(), attrgetter("connection")):
            yield self._in_order(bundles)

    def _bundles(self) -> Iterator[Bundle]:
        for batch in self._batches:
            columns = (batch.column(name).to_pylist() for name in SCHEMA.names[1:])
            for connection, clock_ns, end_ns, rank, number, heads, data in zip(*columns, strict=True):
                if connection != self._current:
                    self._current, self._current_bytes = connection, 0
                self._current_bytes += len(data)
                total, most, largest = self.load
                if self._current_bytes > most:
                    most, largest = self._current_bytes, connection
                self.load = ConnectionBytes(total + len(data), most, largest)
                yield Bundle(connection, (clock_ns, rank, number), end_ns, heads, data)

    def _in_order(self, bundles: Iterator[Bundle]) -> Iterator[Segment]:
        """The segments in order; ``bundles`` come in the order of their first segments. Holds the bundles
        that overlap in time.
        """
        started: list[tuple[Key, int, Segment, Iterator[tuple[Key, Segment]]]] = []
        following = next(bundles, None)
        for place in count():
            bundle, following = following, next(bundles, None)
            if bundle is None:
                return
            segments = bundle.segments(self._interfaces[bundle.key[1]])
            if not started and (following is None or bundle.end_ns < following.key[0]):
                for _, segment in segments:  # nearly always: no overlap, no heap
                    yield segment
                continue
            key, segment = next(segments)
            heappush(started, (key, place, segment, segments))
            while started and (following is None or started[0][0] < following.key):
                _, own, segment, segments = started[0]
                yield segment
                after = next(segments, None)
                if after is None:
                    heappop(started)
                else:
                    heapreplace(started, (after[0], own, after[1], segments))
