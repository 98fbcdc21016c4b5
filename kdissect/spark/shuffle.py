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

Holds incomplete bundles, which have a common limit, and at most ``_MOST_FRAGMENTS``.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count, groupby, takewhile
from operator import attrgetter, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from zlib import crc32

import pyarrow as pa

from kdissect.errors import CaptureError
from kdissect.limits import KIB, MIB, Limits
from kdissect.model import Interface, Segment
from kdissect.net.ip import INCOMPLETE
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
_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
SCHEMA = pa.schema((name, _TYPES[kind]) for name, kind in map(str.split, COLUMNS.split(",")))

# Clock, number and time of the packet; sequence and acknowledgment number; payload bytes on the wire and
# captured; whether the segment's ends are the reverse of ``connection``; flags, window, D-SACK.
_HEAD = Struct("<qqqIIII?BH?")
_BUNDLE_BYTES = 256 * KIB
_BUNDLES_BYTES = 16 * MIB
"""Limit of all incomplete bundles: with very many connections, bundles are smaller."""
_MOST_ENDS = 100_000
"""Size of the cache from ends to connection key; about 200 bytes each."""
_MOST_FRAGMENTS = 20_000
"""Limit of fragments of incomplete datagrams, in a range and in the driver for all; usually there are few."""

_LEAST_UNEVEN_BYTES = 128 * MIB  # takes a task about a minute

_new = tuple.__new__  # half the time of calling the class of a named tuple


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
        fragments: packets with fragments of datagrams that other ranges may complete.
    """

    place: int
    range: Range
    source: Source
    census: Census
    skipped: Counter[str]
    fault: str | None
    fragments: list[tuple[Key, Packet]]


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
    source, packets = cast("tuple[Source, Iterator[Packet]]", open_range(range_, limits))  # no idle ticks
    census = Census(limits)
    if range_.clock_ns is not None:
        census.files[range_.path] = FileCount(range_.clock_ns)
    segments = Segments(limits)
    waiting: dict[int, tuple[Key, Packet]] = {}  # by number of the packet
    last, clock_ns, fault, dropped = range_.last, range_.clock_ns, None, 0
    own = packets if last is None else takewhile(lambda packet: packet.number <= last, packets)
    try:
        for packet in census.watch(own):
            if clock_ns is None or packet.time_ns > clock_ns:
                clock_ns = packet.time_ns
            segment = segments.feed(packet)
            if segment is not None:
                if waiting:
                    for _, number in segments.take_parts():
                        waiting.pop(number, None)
                yield from bundles.feed(range_.rank, clock_ns, segment)
            elif segments.is_incomplete:
                waiting[packet.number] = (clock_ns, range_.rank, packet.number), packet
                if len(waiting) > _MOST_FRAGMENTS:
                    del waiting[next(iter(waiting))]
                    dropped += 1
    except CaptureError as error:
        fault = str(error)
    yield from bundles.close()
    segments.close()
    fragments = list(waiting.values())[-max(1, _MOST_FRAGMENTS // len(ranges)) :]
    segments.skipped[INCOMPLETE] -= len(fragments)
    dropped += len(waiting) - len(fragments)
    if dropped:
        source.warn(f"{dropped:,} IP fragments dropped: too many to match with other ranges")
    stats = RangeStats(place, range_, source, census, segments.skipped, fault, fragments)
    yield _batch([(parts, b"", 0, 0, 0, 0, b"", to_json(stats))])


def completed(stats: Iterable[RangeStats], parts: int, limits: Limits) -> tuple[list[Any], Counter[str]]:
    """Reassemble the datagrams whose fragments are in several ranges.

    Returns:
        Batches of rows, as ``bundled`` yields them; and the numbers of skipped fragments by reason.
    """
    segments, bundles, batches = Segments(limits), _Bundles(parts), list[Any]()
    waiting = (each for one in stats for each in one.fragments)
    for (clock_ns, rank, _), packet in sorted(waiting, key=itemgetter(0)):
        segment = segments.feed(packet)
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


def uneven(loads: Sequence[tuple[int, tuple[int, bytes]]]) -> str | None:
    """A warning if one connection has more than half of the bytes of a large input.

    Args:
        loads: ``total_bytes`` and ``largest`` of the ``SortedRows`` of all parts.
    """
    total_bytes = sum(each for each, _ in loads)
    most_bytes, connection = max((largest for _, largest in loads), default=(0, b""))
    if total_bytes < _LEAST_UNEVEN_BYTES or 2 * most_bytes <= total_bytes:
        return None
    first, second = endpoints(connection)
    percent = 100 * most_bytes // total_bytes
    return f"{first} - {second} has {percent}% of all bytes; a single task dissects it"


class SortedRows:
    """The rows of a part, sorted by Spark.

    Attributes:
        total_bytes: payload bytes that were read.
        largest: those of the largest connection, and the connection.
    """

    def __init__(self, batches: Iterable[Any], paths: Sequence[str]) -> None:
        self._batches = batches
        self._interfaces = [Interface(path, 0, ETHERNET) for path in paths]
        self.total_bytes, self.largest = 0, (0, b"")

    def connections(self) -> Iterator[Iterator[Segment]]:
        """The segments of each pair of ends, which must be consumed before the next pair is requested."""
        for _, bundles in groupby(self._bundles(), attrgetter("connection")):
            yield self._in_order(bundles)

    def _bundles(self) -> Iterator[Bundle]:
        current, current_bytes = b"", 0
        for batch in self._batches:
            columns = (batch.column(name).to_pylist() for name in SCHEMA.names[1:])
            for connection, clock_ns, end_ns, rank, number, heads, data in zip(*columns, strict=True):
                current_bytes = len(data) + (current_bytes if connection == current else 0)
                current = connection
                self.total_bytes += len(data)
                self.largest = max(self.largest, (current_bytes, connection))
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
