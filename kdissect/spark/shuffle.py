"""Ranges of captures -> bundles of TCP segments that Spark can sort -> the segments of one connection after
another.

A task reads a range, and brings each segment out of what carried it: link layer, IP, fragments, tunnels.
For a datagram that a range has only the beginning of, the task reads on, in the next file if it must; who has
only the end drops it. Both directions of a connection go to the same part, and Spark sorts the rows of a part
by connection, and those of a connection as ``capture.merge`` has them: by clock, rank and number.

A row is a bundle of segments of one connection, as they follow each other in the range:

    part                which task gets it; the last one gets what was counted in each range
    connection          both ends, as ``Segment.ends`` of that direction whose are smaller
    clock_ns, end_ns    how far packet time has come in this file at the first segment, and at the last
    rank                which file
    number              of the first packet
    heads               of each segment: ``_HEAD``
    data                their payloads; where there are no heads, a pickled ``RangeStats``

Holds the bundles that are not full, which are bounded together, and fragments (net/ip.py).
"""

from __future__ import annotations

import pickle
from collections import Counter
from contextlib import suppress
from heapq import heappop, heappush, heapreplace
from itertools import chain, count, groupby
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from zlib import crc32

import pyarrow as pa

from kdissect.capture.reader import packets_of
from kdissect.capture.source import Source
from kdissect.errors import CaptureError
from kdissect.limits import KIB, MIB, Limits
from kdissect.model import Interface, Segment
from kdissect.net.link import ETHERNET
from kdissect.net.tcp import Segments, connection_key, reversed_ends
from kdissect.spark.ranges import open_range
from kdissect.stats.survey import Census, FileCount
from kdissect.tables import arrow  # noqa: F401  (keeps pyarrow from loading pandas)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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

# Clock, number and time of its packet; sequence and acknowledgment number; payload on the wire and captured;
# flags, and whether its ends are the reverse of ``connection``.
_HEAD = Struct("<qqqIIII?B")
_BUNDLE_BYTES = 256 * KIB
_BUNDLES_BYTES = 16 * MIB
"""Of those that are not full: with very many connections they become smaller."""
_MOST_ENDS = 100_000
"""Ends whose connection is remembered: cheaper than to make it anew, some 200 bytes each."""
_MORE_BYTES = 16 * MIB
"""Read beyond a range, at most, for the rest of a datagram: as a rule it is a few packets."""
_MOST_FILES_BEYOND = 4

_new = tuple.__new__  # of a named tuple: half the price of calling the class, which is in Python


class RangeStats(NamedTuple):
    """What there was in a range, apart from segments.

    Attributes:
        place: of the range among all.
        range: which.
        source: what its file says.
        census: of its packets.
        skipped: packets that were not looked at, by reason.
        fault: what was wrong at the place beyond which it could not be read.
    """

    place: int
    range: Range
    source: Source
    census: Census
    skipped: Counter[str]
    fault: str | None


def read_ranges(
    ranges: Sequence[Range],
    files: Mapping[str, Fingerprint],
    parts: int,
    limits: Limits,
    batches: Iterable[Any],
) -> Iterator[Any]:
    """Read the ranges whose places stand in the column ``id``; see ``bundled``.

    Raises:
        CaptureError: a file is not the one that the driver saw.
    """
    for batch in batches:
        for place in batch.column("id").to_pylist():
            path = ranges[place].path
            files[path].check(path)
            yield from bundled(place, ranges, list(files), parts, limits)


def bundled(
    place: int, ranges: Sequence[Range], paths: Sequence[str], parts: int, limits: Limits
) -> Iterator[Any]:
    """Read a range; yield batches of rows.

    Args:
        place: which of the ranges.
        ranges: all of them.
        paths: of all files, by rank.
        parts: how many parts there are, the last one not counted.
        limits: bounds.
    """
    range_ = ranges[place]
    bundles = _Bundles(parts)
    source, packets = open_range(range_, limits)
    reading = _Reading(range_, cast("Iterator[Packet]", packets))
    census = Census(limits)
    if range_.clock_ns is not None:
        census.files[range_.path] = FileCount(range_.clock_ns)
    segments = Segments(limits)
    for packet in cast("Iterator[Packet]", census.watch(reading)):
        segment = segments.feed(packet)
        if segment is not None:
            yield from bundles.feed(range_.rank, reading.clock_ns, segment)
    skipped = Counter(segments.skipped)
    yield from bundles.close()
    for rank, clock_ns, segment in _rest(reading, segments, paths, limits):
        yield from bundles.feed(rank, clock_ns, segment)
        yield from bundles.close()
    stats = RangeStats(place, range_, source, census, skipped, reading.fault)
    yield _batch([(parts, b"", 0, 0, 0, 0, b"", pickle.dumps(stats))])


class _Reading:
    """The packets of a range, in its order.

    Attributes:
        packets: all of its file from the range on.
        clock_ns: the latest time of a packet so far.
        ahead: the packet behind the range, once it was met.
        fault: what ended the file.
    """

    def __init__(self, range_: Range, packets: Iterator[Packet]) -> None:
        self.packets = packets
        self.clock_ns = range_.clock_ns or 0
        self.ahead: list[Packet] = []
        self.fault: str | None = None
        self.range = range_

    def __iter__(self) -> Iterator[Packet]:
        last = self.range.last
        clock_ns = self.range.clock_ns
        try:
            for packet in self.packets:
                if last is not None and packet.number > last:
                    self.ahead.append(packet)
                    return
                if clock_ns is None or packet.time_ns > clock_ns:
                    clock_ns = self.clock_ns = packet.time_ns
                yield packet
        except CaptureError as error:
            self.fault = str(error)


def _rest(
    reading: _Reading, segments: Segments, paths: Sequence[str], limits: Limits
) -> Iterator[tuple[int, int, Segment]]:
    """The segments whose fragments begin in a range and end behind it, with rank and clock."""
    range_, end_ns, left = reading.range, reading.clock_ns, _MORE_BYTES
    segments.take_parts()
    for rank, clock_ns, packet in _behind(reading, paths, limits):
        since_ns = segments.fragments_since_ns
        if since_ns is None or since_ns > end_ns or left <= 0:
            return
        left -= len(packet.data)
        segment = segments.feed(packet)
        is_own = any(
            where.capture == range_.path and (range_.last is None or number <= range_.last)
            for where, number in segments.take_parts()
        )
        if segment is not None and is_own:
            yield rank, clock_ns, segment


def _behind(reading: _Reading, paths: Sequence[str], limits: Limits) -> Iterator[tuple[int, int, Packet]]:
    """The packets behind a range, in its file and in those that follow: rank, clock, packet."""
    rank, clock_ns = reading.range.rank, reading.clock_ns
    following: Iterator[Packet] = chain(reading.ahead, reading.packets)
    with suppress(CaptureError):
        while True:
            for packet in following:
                clock_ns = max(clock_ns, packet.time_ns)
                yield rank, clock_ns, packet
            rank += 1
            if rank >= min(len(paths), reading.range.rank + _MOST_FILES_BEYOND):
                return
            following, clock_ns = (
                cast("Iterator[Packet]", packets_of(Source(paths[rank], limits))),
                -(1 << 63),
            )


class _Bundles:
    """The bundles that are not full: of each connection the heads and the payloads."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._known: dict[bytes, tuple[bytes, bool]] = {}
        self._bundles: dict[bytes, _Bundle] = {}
        self._bytes = 0

    def feed(self, rank: int, clock_ns: int, segment: Segment) -> Iterable[Any]:
        """Take a segment; get a batch for each bundle that is to go."""
        number, time_ns, _, ends, sequence, acknowledgment, flags, payload, length = segment
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
                clock_ns, number, time_ns, sequence, acknowledgment, length, captured, is_reverse, flags
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
        """The bundles, full or not."""
        if self._bundles:
            yield _batch([self._take(connection) for connection in list(self._bundles)])

    def _take(self, connection: bytes) -> tuple[Any, ...]:
        bundle = self._bundles.pop(connection)
        self._bytes -= bundle.bytes
        where = bundle.clock_ns, bundle.end_ns, bundle.rank, bundle.number
        part = crc32(connection) % self._parts
        return part, connection, *where, b"".join(bundle.heads), b"".join(bundle.payloads)


class _Bundle:
    """Segments of one connection."""

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
    """A row: see above. ``key`` is that of the first segment."""

    connection: bytes
    key: Key
    end_ns: int
    heads: bytes
    data: bytes

    def segments(self, interface: Interface) -> Iterator[tuple[Key, Segment]]:
        """Its segments, with their keys."""
        connection, (_, rank, _), _, heads, data = self
        ends = connection, reversed_ends(connection)
        begin = 0
        for head in _HEAD.iter_unpack(heads):
            clock_ns, number, time_ns, sequence, acknowledgment, length, captured, is_reverse, flags = head
            end = begin + captured
            sent = ends[is_reverse], sequence, acknowledgment, flags, data[begin:end], length
            yield (clock_ns, rank, number), _new(Segment, (number, time_ns, interface, *sent))
            begin = end


class Rows:
    """The rows of a part, as Spark has sorted them.

    Attributes:
        stats: of ranges, as far as they stood among the rows so far.
    """

    def __init__(self, batches: Iterable[Any], paths: Sequence[str]) -> None:
        self._batches = batches
        self._interfaces = [Interface(path, 0, ETHERNET) for path in paths]
        self.stats: list[RangeStats] = []

    def connections(self) -> Iterator[Iterator[Segment]]:
        """The segments of each pair of ends, to be taken before those of the next are asked for."""
        for _, bundles in groupby(self._bundles(), attrgetter("connection")):
            yield self._in_order(bundles)

    def _bundles(self) -> Iterator[Bundle]:
        for batch in self._batches:
            columns = (batch.column(name).to_pylist() for name in SCHEMA.names[1:])
            for connection, clock_ns, end_ns, rank, number, heads, data in zip(*columns, strict=True):
                if heads:
                    yield Bundle(connection, (clock_ns, rank, number), end_ns, heads, data)
                else:
                    self.stats.append(pickle.loads(data))  # which a task of ours made

    def _in_order(self, bundles: Iterator[Bundle]) -> Iterator[Segment]:
        """The segments of bundles that come in the order of their first ones. Holds the bundles that are of
        the same time.
        """
        begun: list[tuple[Key, int, Segment, Iterator[tuple[Key, Segment]]]] = []
        following = next(bundles, None)
        for place in count():
            bundle, following = following, next(bundles, None)
            if bundle is None:
                return
            segments = bundle.segments(self._interfaces[bundle.key[1]])
            if not begun and (following is None or bundle.end_ns < following.key[0]):
                for _, segment in segments:  # nearly all of them, and so without a heap
                    yield segment
                continue
            key, segment = next(segments)
            heappush(begun, (key, place, segment, segments))
            while begun and (following is None or begun[0][0] < following.key):
                _, own, segment, segments = begun[0]
                yield segment
                after = next(segments, None)
                if after is None:
                    heappop(begun)
                else:
                    heapreplace(begun, (after[0], own, after[1], segments))
