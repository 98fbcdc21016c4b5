"""Ranges of captures -> bundles of packets that Spark can shuffle. See arrival.py for what is made of them.

A task reads a range, and says of each packet which part it belongs to: a number made of both ends of its
connection, the same for both directions. What needs more than one look is found before packets part: what is
in a tunnel or in fragments becomes a plain packet with the same number and time. For a datagram that a range
has only the beginning of, the task reads on, in the next file if it must; who has only the end drops it.

A row is a bundle of packets of one part, as they follow each other in the range:

    part                which task gets it; the last one gets what was told of each range
    clock_ns, end_ns    how far packet time has come in this file at the first packet, and at the last
    rank                which file
    number              of the first packet
    range               which task has read it
    heads               of each packet: clock, number, which of the range's TCP segments it is (from 1), its
                        own time (earlier than the clock where time goes backward), bytes on the wire, and
                        in ``data``
    data                the packets; where there are no heads, a pickled ``RangeTold``

By clock, rank and number the packets of all files are in the order in which ``capture.merge`` has them.

Holds the bundles that are not full, which are bounded together, fragments (net/ip.py), and one number for
each ``every`` segments.
"""

from __future__ import annotations

import pickle
from array import array
from collections import Counter
from contextlib import suppress
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zlib import crc32

import pyarrow as pa

from kdissect.analysis.census import Census, FileCount
from kdissect.capture.reader import packets_of
from kdissect.capture.source import Source
from kdissect.errors import CaptureError
from kdissect.limits import KIB, MIB, Limits
from kdissect.net.ip import TCP
from kdissect.net.link import IPV4, IPV6
from kdissect.net.tcp import IPV4_WITHOUT_OPTIONS, Segments, reversed_ends, usual_ends
from kdissect.spark.ranges import open_range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kdissect.model import Packet, Segment
    from kdissect.spark.ranges import Fingerprint, Range

COLUMNS = (
    "part int, clock_ns bigint, end_ns bigint, rank int, number bigint, range int, heads binary, data binary"
)
ORDER = ("clock_ns", "rank", "number")
HEAD = Struct("<qqqqII")

SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("clock_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("rank", pa.int32()),
        ("number", pa.int64()),
        ("range", pa.int32()),
        ("heads", pa.binary()),
        ("data", pa.binary()),
    ]
)
_BUNDLE_BYTES = 256 * KIB
_BUNDLES_BYTES = 16 * MIB
"""Of those that are not full: with very many parts they become smaller."""
_MOST_ENDS = 100_000
"""Ends of connections whose part is remembered: cheaper than to make it anew, some 100 bytes each."""
_MORE_BYTES = 16 * MIB
"""Read beyond a range, at most, for the rest of a datagram: as a rule it is a few packets."""
_MOST_FILES_BEYOND = 4

# Ethernet and IP.
_IPV4_HEADERS = Struct(">12xHBxHxxHBBxx8s")
_IPV6_HEADERS = Struct(">12xHIHBB32s")
_TCP_HEADER = Struct(">4sIIBB6x")
_NO_OPTIONS = 5 << 4  # of TCP: the header has five words
_DO_NOT_FRAGMENT = 0x4000
_HOPS = 64
_MOST_LENGTH = 0xFFFF

_NEVER_NS = -(1 << 63)


class RangeTold(NamedTuple):
    """What reading a range told, apart from packets.

    Attributes:
        place: of the range among all.
        range: which.
        source: what its file told.
        census: of its packets.
        skipped: packets that were not looked at, by reason.
        fault: what was wrong at the place beyond which it could not be read.
        segments: how many TCP segments were in it.
        clocks_ns: how far time had come at each of these, or at each of so many.
        begin_ns, end_ns: how far it had come at the first, and at the last.
    """

    place: int
    range: Range
    source: Source
    census: Census
    skipped: Counter[str]
    fault: str | None
    segments: int
    clocks_ns: array[int]
    begin_ns: int
    end_ns: int


def read_ranges(
    ranges: Sequence[Range],
    files: Mapping[str, Fingerprint],
    parts: int,
    limits: Limits,
    every: int,
    batches: Iterable[Any],
) -> Iterator[Any]:
    """Read the ranges whose places stand in the column ``id``; see ``shuffled``.

    Raises:
        CaptureError: a file is not the one that the driver saw.
    """
    for batch in batches:
        for place in batch.column("id").to_pylist():
            path = ranges[place].path
            files[path].check(path)
            yield from shuffled(place, ranges, list(files), parts, limits, every)


def shuffled(
    place: int, ranges: Sequence[Range], paths: Sequence[str], parts: int, limits: Limits, every: int
) -> Iterator[Any]:
    """Read a range; yield batches of rows, one for each bundle.

    Args:
        place: which of the ranges.
        ranges: all of them.
        paths: of all files, by rank.
        parts: how many parts there are, the last one not counted.
        limits: bounds.
        every: how many segments lie between two of ``clocks_ns``.
    """
    range_ = ranges[place]
    bundles = _Bundles(place, parts)
    source, packets = open_range(range_, limits)
    reading = _Reading(range_, cast("Iterator[Packet]", packets))
    census = Census(limits)
    if range_.clock_ns is not None:
        census.files[range_.path] = FileCount(range_.clock_ns)
    segments = Segments(limits)
    clocks_ns = array("q")
    rank, arrival, begin_ns, end_ns = range_.rank, 0, 0, 0
    for packet in cast("Iterator[Packet]", census.watch(reading)):
        ends = usual_ends(packet)
        if ends is None:
            segment = segments.feed(packet)
            if segment is None:
                continue
            ends, packet = segment.ends, plain(segment, packet)
        arrival += 1
        end_ns = reading.clock_ns
        if arrival == 1:
            begin_ns = end_ns
        if not arrival % every:
            clocks_ns.append(end_ns)
        yield from bundles.feed(ends, rank, end_ns, arrival, packet)
    skipped = Counter(segments.skipped)
    yield from bundles.close()
    for ends, rank, clock_ns, ahead, packet in _rest(reading, segments, paths, limits):
        yield from bundles.feed(ends, rank, clock_ns, arrival + ahead, packet)
        yield from bundles.close()
    read = (place, range_, source, census, skipped, reading.fault)
    told = RangeTold(*read, arrival, clocks_ns, begin_ns, end_ns)
    yield _row(parts, 0, 0, 0, 0, place, b"", pickle.dumps(told))


def plain(segment: Segment, packet: Packet) -> Packet:
    """A packet that carries a segment and nothing else: Ethernet, IP and TCP without options."""
    addresses = segment.ends[:-4]
    length = _TCP_HEADER.size + segment.length
    if len(addresses) == 8:
        total = length + 20
        total = total if total <= _MOST_LENGTH else 0  # as network cards have it that cut it up
        head = _IPV4_HEADERS.pack(IPV4, IPV4_WITHOUT_OPTIONS, total, _DO_NOT_FRAGMENT, _HOPS, TCP, addresses)
    else:
        total = length if length <= _MOST_LENGTH else 0
        head = _IPV6_HEADERS.pack(IPV6, 6 << 28, total, TCP, _HOPS, addresses)
    ports, flags = segment.ends[-4:], segment.flags
    tcp = _TCP_HEADER.pack(ports, segment.sequence, segment.acknowledgment, _NO_OPTIONS, flags)
    data = head + tcp + segment.payload
    return packet._replace(data=data, length=len(data) - len(segment.payload) + segment.length)


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
) -> Iterator[tuple[bytes, int, int, int, Packet]]:
    """The segments whose fragments begin in a range and end behind it: ends, rank, clock, how many segments
    behind the range, and a plain packet.
    """
    range_, end_ns, left, ahead = reading.range, reading.clock_ns, _MORE_BYTES, 0
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
        ahead += segment is not None
        if segment is not None and is_own:
            yield segment.ends, rank, clock_ns, ahead, plain(segment, packet)


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
    """The bundles that are not full: of each part the heads and the packets."""

    def __init__(self, place: int, parts: int) -> None:
        self._place = place
        self._parts = parts
        self._known: dict[bytes, int] = {}
        self._bundles: dict[int, _Bundle] = {}
        self._bytes = 0

    def feed(self, ends: bytes, rank: int, clock_ns: int, arrival: int, packet: Packet) -> Iterable[Any]:
        """Take a packet; get a batch for each bundle that is to go."""
        part = self._known.get(ends)
        if part is None:
            if len(self._known) >= _MOST_ENDS:
                self._known.clear()
            part = self._known[ends] = crc32(min(ends, reversed_ends(ends))) % self._parts
        bundle = self._bundles.get(part)
        number, time_ns, _, data, length = packet
        if bundle is None:
            bundle = self._bundles[part] = _Bundle(clock_ns, rank, number)
        captured = len(data)
        bundle.heads.append(HEAD.pack(clock_ns, number, arrival, time_ns, length, captured))
        bundle.packets.append(data)
        bundle.end_ns = clock_ns
        size = captured + HEAD.size
        bundle.bytes += size
        self._bytes += size
        if bundle.bytes >= _BUNDLE_BYTES:
            return (self._take(part),)
        return self.close() if self._bytes >= _BUNDLES_BYTES else ()

    def close(self) -> Iterator[Any]:
        """The bundles, full or not."""
        for part in list(self._bundles):
            yield self._take(part)

    def _take(self, part: int) -> Any:
        bundle = self._bundles.pop(part)
        self._bytes -= bundle.bytes
        where = bundle.clock_ns, bundle.end_ns, bundle.rank, bundle.number, self._place
        return _row(part, *where, b"".join(bundle.heads), b"".join(bundle.packets))


class _Bundle:
    """Packets of one part."""

    __slots__ = ("bytes", "clock_ns", "end_ns", "heads", "number", "packets", "rank")

    def __init__(self, clock_ns: int, rank: int, number: int) -> None:
        self.clock_ns = self.end_ns = clock_ns
        self.rank = rank
        self.number = number
        self.heads: list[bytes] = []
        self.packets: list[bytes] = []
        self.bytes = 0


def _row(*values: Any) -> Any:
    arrays = [pa.array([value], field.type) for value, field in zip(values, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
