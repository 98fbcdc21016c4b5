"""Ranges of captures -> sorted bundles of packets -> the packets of a shard of the connections.

A task reads a run of ranges and finds the connection of each packet. All packets of a connection go to the
same part: its shard (``net.tcp.shard_of``). The native core takes the usual packets, and finds them in a
bundle again. Fragments of incomplete datagrams go to the driver, which completes them. The bundles of a part
are sorted by clock, rank and number: the order in which ``capture/reader.py`` merges files.

Where all workers see a directory, the task writes the bundles of its run to a file there (``PacketFile``),
and those that need a part merge what these files have of it: no packet crosses the JVM. Elsewhere Spark gets
them as rows, and sorts these. A row is a bundle:

    part                the part that gets it; one past the last part: for the driver
    clock_ns, end_ns    latest packet time in this file, up to the first packet and up to the last
    rank                index of the file
    number              number of the first packet
    heads               ``_HEAD`` of each packet
    data                the packets; without heads, as JSON: a ``Segment`` that was in several packets, or for
                        the driver, compressed, the ``RangeCounts`` of a run of ranges

Holds incomplete bundles, which have a common limit, payload bytes of ``_MAX_ENDS``, at most
``_MAX_FRAGMENTS``, and a hundred bytes for each bundle of a file that is written. Who merges files holds the
places of the bundles in those that overlap in time.
"""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace, nlargest
from itertools import accumulate, chain, count
from operator import attrgetter, itemgetter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias
from uuid import uuid4

import pyarrow as pa

from kdissect import core
from kdissect.errors import CaptureError, WriteError
from kdissect.files import PRIVATE, create
from kdissect.limits import KIB, MIB, Limits
from kdissect.model import Interface, Packet, PacketBlock, Segment
from kdissect.net.ip import INCOMPLETE
from kdissect.net.tcp import Segments, connection_key, endpoints, shard_of
from kdissect.spark.ranges import open_range
from kdissect.spark.values import from_json, known, to_json
from kdissect.stats.survey import Census, FileCount
from kdissect.tables import arrow  # noqa: F401  (keeps pyarrow from loading pandas)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.capture.source import Source
    from kdissect.spark.ranges import Fingerprint, Range

Key: TypeAlias = tuple[int, int, int]
"""Clock, rank and number of a packet."""

COLUMNS = "part int, clock_ns bigint, end_ns bigint, rank int, number bigint, heads binary, data binary"
ORDER = ("clock_ns", "rank", "number")
_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
SCHEMA = pa.schema((name, _TYPES[kind]) for name, kind in map(str.split, COLUMNS.split(",")))

_HEAD = Struct("<qQqIII")
"""Clock, number and time of a packet; length on the wire and captured; link type. As in
core/src/runs/bundles.rs.
"""
_NEVER_NS = -(1 << 63)
_PLACE = Struct(">IQIQqQII")
"""``_BundlePlace``, but for the file, and with the clock since ``_NEVER_NS``: as bytes in order, too."""
_BUNDLE_BYTES = 128 * KIB
"""A bundle is longer by what the core takes at once: at most a block of a file."""
_BUNDLES_BYTES = 16 * MIB
"""Limit of all incomplete bundles: with very many parts, bundles are smaller."""
_MAX_ENDS = 100_000
"""Directions of connections whose payload is counted; about 200 bytes each."""
_MAX_FRAGMENTS = 20_000
"""Limit of fragments of incomplete datagrams, in a range and in the driver for all; usually there are few."""

_MIN_UNEVEN_BYTES = 128 * MIB  # takes a task up to ten seconds
_MAX_OPEN = 64  # files of packets
_LARGEST = 10  # connections of a range; one with half of all bytes is among them almost anywhere


@known
class PacketFile(NamedTuple):
    """A file of bundles. Behind them are their sorted places (``_BundlePlace``), and behind these for each
    part the position of its first place.

    Attributes:
        path: of the file.
        first_ns: clock of the first packet.
        starts: position of those positions.
    """

    path: str
    first_ns: int
    starts: int


@known
class ExpectedRange(NamedTuple):
    """A range for a task.

    Attributes:
        place: its index.
        range: the range.
        file: fingerprint of its capture, taken by the driver.
    """

    place: int
    range: Range
    file: Fingerprint


def read_ranges(
    count: int, parts: int, limits: Limits, directory: Path | None, runs: Iterable[Sequence[ExpectedRange]]
) -> Iterator[Any]:
    """Read some ranges; yield batches of rows.

    Args:
        count: number of all ranges.
        parts: number of parts, without the one for the driver.
        limits: limits of the dissection.
        directory: for files of packets, which all workers see; each attempt of a task writes its own. None:
            packets are in the rows.
        runs: those to read; the ranges of each run follow each other.

    Raises:
        CaptureError: a file is not the one that the driver saw.
        WriteError: a file of packets cannot be written.
    """
    for run in runs:
        place, counts = run[0].place, RangeCounts(limits)
        bundles = chain.from_iterable(_bundled(each, count, parts, limits, counts) for each in run)
        if directory is None:
            yield from map(batch_of, bundles)
        else:
            counts.files += stored(chain.from_iterable(bundles), parts, directory / f"{place}-{uuid4().hex}")
        yield batch_of([Bundle(parts, 0, 0, 0, place, b"", zlib.compress(to_json(counts), 1))])


def stored(bundles: Iterable[Bundle], parts: int, path: Path, mode: int = PRIVATE) -> list[PacketFile]:
    """Write bundles to a new file; return it, unless there are none.

    Raises:
        WriteError: it cannot be written.
    """
    places, numbers, first_ns, end = list[bytes](), Counter[int](), -_NEVER_NS, 0
    try:
        with create(path, mode) as file:
            for each in bundles:
                (clock_ns, rank, number), heads, data = each.key, len(each.heads), len(each.data)
                places.append(
                    _PLACE.pack(each.part, clock_ns - _NEVER_NS, rank, number, each.end_ns, end, heads, data)
                )
                numbers[each.part] += 1
                first_ns = min(first_ns, clock_ns)
                file.write(each.heads)
                file.write(each.data)
                end += heads + data
            places.sort()
            starts = accumulate((_PLACE.size * numbers[part] for part in range(parts)), initial=end)
            file.writelines(places)
            file.write(_starts(parts + 1).pack(*starts))
    except OSError as error:
        raise WriteError.of(path, error) from None
    if not places:
        return []
    return [PacketFile(str(path), first_ns, end + _PLACE.size * len(places))]


def _bundled(
    expected: ExpectedRange, count: int, parts: int, limits: Limits, counts: RangeCounts
) -> Iterator[list[Bundle]]:
    """The bundles of a range. Adds what it contains to the counts.

    Raises:
        CaptureError: the file is not the one that the driver saw.
    """
    range_ = expected.range
    expected.file.check(range_.path)
    bundles = _Bundles(parts, limits, range_.rank, range_.clock_ns)
    source, blocks = open_range(range_, limits)
    census = Census(limits)
    if range_.clock_ns is not None:
        census.files[range_.path] = FileCount(range_.clock_ns)
    faults = []
    try:
        for block in census.watch(blocks):
            bundles.feed(block)
            yield from bundles.complete(_BUNDLES_BYTES)
    except CaptureError as error:
        faults.append(str(error))
    yield from bundles.complete(0)
    skipped, waiting = bundles.segments.skipped, bundles.waiting
    bundles.segments.close()
    fragments = list(waiting.values())[-max(1, _MAX_FRAGMENTS // count) :]
    skipped[INCOMPLETE] -= len(fragments)
    if dropped := bundles.dropped + len(waiting) - len(fragments):
        source.warn(f"{dropped:,} IP fragments dropped: too many to match with other ranges")
    own = RangeCounts(limits)
    own.sources[range_.path], own.census, own.skipped, own.fragments = source, census, skipped, fragments
    own.warnings = [*source.warnings, *faults]
    own.payload_bytes, own.largest = bundles.loads()
    counts.add(own)


def counts_in(data: bytes) -> RangeCounts:
    """What is in a row for the driver."""
    counts: RangeCounts = from_json(zlib.decompress(data))
    return counts


@known
class RangeCounts:
    """What consecutive ranges contain apart from bundles.

    Attributes:
        sources: of the files, by path.
        census: counts of all packets.
        skipped: number of packets that were not dissected, by reason, without ``fragments``.
        warnings: problems of the captures, and errors that ended the reading early.
        fragments: packets with fragments of datagrams that other ranges may complete.
        payload_bytes: of all connections.
        largest: the connections with most of them; bounded.
        files: of packets.
    """

    def __init__(self, limits: Limits) -> None:
        self.sources: dict[str, Source] = {}
        self.census = Census(limits)
        self.skipped: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.fragments: list[tuple[Key, Packet]] = []
        self.payload_bytes = 0
        self.largest: Counter[bytes] = Counter()
        self.files: list[PacketFile] = []

    def add(self, following: RangeCounts) -> None:
        """Add those of the ranges that follow."""
        for path, source in following.sources.items():
            first = self.sources.setdefault(path, source)
            first.bytes_read = source.bytes_read
            first.failed |= source.failed
            first.interfaces.update(source.interfaces)
            first.statistics.update(source.statistics)
        self.census.merge(following.census)
        self.warnings += following.warnings
        self.skipped = self.skipped + following.skipped
        self.fragments += following.fragments
        self.files += following.files
        self.payload_bytes += following.payload_bytes
        self.largest.update(following.largest)
        if len(self.largest) > _MAX_ENDS:
            self.largest = Counter(dict(self.largest.most_common(_MAX_ENDS // 2)))


def completed(
    fragments: Iterable[tuple[Key, Packet]], parts: int, limits: Limits
) -> tuple[list[Bundle], Counter[str]]:
    """Reassemble the datagrams whose fragments are in several ranges.

    Returns:
        Their bundles, and the numbers of skipped fragments by reason.
    """
    segments, bundles = Segments(limits), list[Bundle]()
    for (clock_ns, rank, _), packet in sorted(fragments, key=itemgetter(0)):
        segment = segments.feed(packet)
        if segment is not None:
            bundles.append(_bundle_of(segment, parts, clock_ns, rank))
    segments.close()
    return bundles, segments.skipped


def uneven(counts: RangeCounts) -> str | None:
    """A warning if one connection has more than half of the payload of a large input."""
    connection, max_bytes = next(iter(counts.largest.most_common(1)), (b"", 0))
    if counts.payload_bytes < _MIN_UNEVEN_BYTES or 2 * max_bytes <= counts.payload_bytes:
        return None
    first, second = endpoints(connection)
    percent = 100 * max_bytes // counts.payload_bytes
    return f"{first} - {second} has {percent}% of all bytes; a single task dissects it"


class _Bundles:
    """The packets of a range, divided among parts.

    Attributes:
        segments: finds the connections of packets that the native core does not take.
        waiting: packets with fragments of datagrams that are incomplete, by number.
        dropped: how many of these were too many.
    """

    def __init__(self, parts: int, limits: Limits, rank: int, clock_ns: int | None) -> None:
        self.segments = Segments(limits)
        self.waiting: dict[int, tuple[Key, Packet]] = {}
        self.dropped = 0
        self._parts = parts
        self._rank = rank
        self._clock_ns = _NEVER_NS if clock_ns is None else clock_ns
        self._bundles: dict[int, Bundle] = {}  # by part
        self._bytes = 0
        self._complete: list[Bundle] = []
        self._payload_bytes: Counter[bytes] = Counter()  # by ``Segment.ends``
        self._payload_bytes_in_all = 0

    def feed(self, block: PacketBlock) -> None:
        """Take packets."""
        for packet in self._odd(block):
            self._clock_ns = max(self._clock_ns, packet.time_ns)
            segment = self.segments.feed(packet)
            if segment is not None:
                self._feed_odd(packet, segment)
            elif self.segments.is_incomplete:
                self.waiting[packet.number] = (self._clock_ns, self._rank, packet.number), packet
                if len(self.waiting) > _MAX_FRAGMENTS:
                    del self.waiting[next(iter(self.waiting))]
                    self.dropped += 1
        if len(self._payload_bytes) > _MAX_ENDS:
            self._payload_bytes = Counter(dict(self._payload_bytes.most_common(_MAX_ENDS // 2)))

    def complete(self, max_bytes: int) -> Iterator[list[Bundle]]:
        """The bundles that are complete: all, if they have so many bytes."""
        if self._bytes >= max_bytes:
            self._complete += self._bundles.values()
            self._bundles, self._bytes = {}, 0
        if self._complete:
            yield self._complete
            self._complete = []

    def loads(self) -> tuple[int, Counter[bytes]]:
        """``RangeCounts.payload_bytes`` and ``largest``."""
        by_connection: Counter[bytes] = Counter()
        for ends, payload_bytes in self._payload_bytes.items():
            by_connection[connection_key(ends)] += payload_bytes
        largest = nlargest(_LARGEST, by_connection.items(), key=itemgetter(1, 0))
        return self._payload_bytes_in_all, Counter(dict(largest))

    def _odd(self, block: PacketBlock) -> Iterator[Packet]:
        """The packets that the native core does not take. It takes those before and after them."""
        if not core.is_used or not isinstance(block.places, core.native.Places):
            yield from block.packets
            return
        link_type, at = block.interface.link_type, 0
        while True:
            divided = core.native.bundle_packets(block, link_type, at, self._clock_ns, self._parts)
            if divided is None:
                yield from block.part(at).packets
                return
            bundles, loads, at, self._clock_ns = divided
            for part, clock_ns, end_ns, number, heads, data in bundles:
                self._add(part, clock_ns, end_ns, number, heads, data)
            for ends, payload_bytes in loads:
                self._count(ends, payload_bytes)
            if at == len(block.places):
                return
            yield from block.part(at, at + 1).packets
            at += 1

    def _feed_odd(self, packet: Packet, segment: Segment) -> None:
        clock_ns, part = self._clock_ns, shard_of(segment.ends, self._parts)
        self._count(segment.ends, len(segment.payload))
        parts = self.segments.take_parts()
        if not parts:
            number, time_ns, interface, data, length = packet
            head = _HEAD.pack(clock_ns, number, time_ns, length, len(data), interface.link_type)
            self._add(part, clock_ns, clock_ns, number, head, data)
            return
        for _, number in parts:
            self.waiting.pop(number, None)
        self._end(part)
        self._complete.append(_bundle_of(segment, self._parts, clock_ns, self._rank))

    def _add(self, part: int, clock_ns: int, end_ns: int, number: int, heads: bytes, data: bytes) -> None:
        bundle = self._bundles.get(part)
        if bundle is None:
            bundle = Bundle(part, clock_ns, end_ns, self._rank, number, bytearray(), bytearray())
            self._bundles[part] = bundle
        bundle.end_ns = end_ns
        bundle.heads += heads
        bundle.data += data
        self._bytes += len(heads) + len(data)
        if bundle.bytes >= _BUNDLE_BYTES:
            self._end(part)

    def _end(self, part: int) -> None:
        """The bundle of a part gets no more packets."""
        if (bundle := self._bundles.pop(part, None)) is not None:
            self._bytes -= bundle.bytes
            self._complete.append(bundle)

    def _count(self, ends: bytes, payload_bytes: int) -> None:
        self._payload_bytes[ends] += payload_bytes
        self._payload_bytes_in_all += payload_bytes


@dataclass(slots=True)
class Bundle:
    """A row, see the module; as long as it grows, ``heads`` and ``data`` are bytearrays."""

    part: int
    clock_ns: int
    end_ns: int
    rank: int
    number: int
    heads: Any
    data: Any

    @property
    def bytes(self) -> int:
        """Its size."""
        return len(self.heads) + len(self.data)

    @property
    def key(self) -> Key:
        """The key of the first packet."""
        return self.clock_ns, self.rank, self.number

    @property
    def end(self) -> Key:
        """The key of the last packet."""
        number = self.number
        if self.heads:
            _, number, *_ = _HEAD.unpack_from(self.heads, len(self.heads) - _HEAD.size)
        return self.end_ns, self.rank, number


def _bundle_of(segment: Segment, parts: int, clock_ns: int, rank: int) -> Bundle:
    part = shard_of(segment.ends, parts)
    return Bundle(part, clock_ns, clock_ns, rank, segment.packet, b"", to_json(segment))


def batch_of(bundles: Iterable[Bundle]) -> Any:
    """A batch of rows."""
    columns = zip(*map(attrgetter(*SCHEMA.names), bundles), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# --- back to packets ----------------------------------------------------------------------------------------


class _BundlePlace(NamedTuple):
    """Where a bundle is; in the order of its first packets."""

    part: int
    clock_ns: int
    rank: int
    number: int
    end_ns: int
    start: int
    heads: int
    data: int
    path: str


def bundles_in_rows(batches: Iterable[Any]) -> Iterator[Bundle]:
    """The bundles in rows, in their order."""
    for batch in batches:
        yield from map(Bundle, *(batch.column(name).to_pylist() for name in SCHEMA.names))


def bundles_in_files(files: Iterable[PacketFile], part: int) -> Iterator[Bundle]:
    """The bundles of a part, sorted.

    Args:
        files: sorted by ``first_ns``.
        part: its number.
    """
    with closing(_OpenFiles()) as opened:
        for _, clock_ns, rank, number, end_ns, start, heads, data, path in _merged(files, part, opened):
            file = opened.at(path, start)
            yield Bundle(part, clock_ns, end_ns, rank, number, file.read(heads), file.read(data))


def _merged(files: Iterable[PacketFile], part: int, opened: _OpenFiles) -> Iterator[_BundlePlace]:
    """The places of the bundles of a part, sorted. A file is read when its packets are due."""
    started: list[tuple[_BundlePlace, Iterator[_BundlePlace]]] = []
    for file in chain(files, (None,)):
        while started and (file is None or started[0][0].clock_ns < file.first_ns):
            place, places = started[0]
            yield place
            if (following := next(places, None)) is None:
                heappop(started)
            else:
                heapreplace(started, (following, places))
        if file is not None:
            places = _places(file, part, opened)
            if (first := next(places, None)) is not None:
                heappush(started, (first, places))


def _places(file: PacketFile, part: int, opened: _OpenFiles) -> Iterator[_BundlePlace]:
    """The places of the bundles of a part in a file, sorted."""
    of_part = _starts(2)
    start, end = of_part.unpack(
        opened.at(file.path, file.starts + part * (of_part.size // 2)).read(of_part.size)
    )
    for _, since_ns, *place in _PLACE.iter_unpack(opened.at(file.path, start).read(end - start)):
        yield _BundlePlace._make((part, since_ns + _NEVER_NS, *place, file.path))


def _starts(count: int) -> Struct:
    return Struct(f">{count}Q")


class _OpenFiles:
    """Files that are read in turn: those of many captures may alternate."""

    def __init__(self) -> None:
        self._files: dict[str, BinaryIO] = {}  # in the order in which they were last read

    def at(self, path: str, pos: int) -> BinaryIO:
        """The file, at a position."""
        file = self._files.pop(path, None)
        if file is None:
            if len(self._files) == _MAX_OPEN:
                self._files.pop(next(iter(self._files))).close()
            file = Path(path).open("rb")  # noqa: SIM115  (closed below)
        self._files[path] = file
        file.seek(pos)
        return file

    def close(self) -> None:
        """Close all."""
        for file in self._files.values():
            file.close()


class SortedPackets:
    """The packets of a part, from its sorted bundles. They can be read once."""

    def __init__(self, bundles: Iterable[Bundle], paths: Sequence[str]) -> None:
        self._bundles = bundles
        self._paths = paths
        self._interfaces: dict[tuple[int, int], Interface] = {}

    def __iter__(self) -> Iterator[PacketBlock | Packet | Segment]:
        return self._in_order(iter(self._bundles))

    def _in_order(self, bundles: Iterator[Bundle]) -> Iterator[PacketBlock | Packet | Segment]:
        """``bundles`` come in the order of their first packets. Holds those that overlap in time."""
        started: list[tuple[Key, int, Packet | Segment, Iterator[tuple[Key, Packet | Segment]]]] = []
        following = next(bundles, None)
        for place in count():
            bundle, following = following, next(bundles, None)
            if bundle is None:
                return
            if not started and (following is None or bundle.end < following.key):
                yield from self._blocks(bundle)  # nearly always: no overlap, no heap
                continue
            packets = self._packets(bundle)
            key, packet = next(packets)
            heappush(started, (key, place, packet, packets))
            while started and (following is None or started[0][0] < following.key):
                _, own, packet, packets = started[0]
                yield packet
                after = next(packets, None)
                if after is None:
                    heappop(started)
                else:
                    heapreplace(started, (after[0], own, after[1], packets))

    def _blocks(self, bundle: Bundle) -> Iterator[PacketBlock | Packet | Segment]:
        if not core.is_used or not bundle.heads:
            for _, packet in self._packets(bundle):
                yield packet
            return
        for number, link_type, places in core.native.unbundle_packets(bundle.heads):
            yield PacketBlock(number, self._interface(bundle.rank, link_type), bundle.data, places)

    def _packets(self, bundle: Bundle) -> Iterator[tuple[Key, Packet | Segment]]:
        """The packets, each with its key."""
        if not bundle.heads:
            yield bundle.key, from_json(bundle.data)
        begin = 0
        for clock_ns, number, time_ns, length, captured, link_type in _HEAD.iter_unpack(bundle.heads):
            data, interface = bundle.data[begin : begin + captured], self._interface(bundle.rank, link_type)
            yield (clock_ns, bundle.rank, number), Packet(number, time_ns, interface, data, length)
            begin += captured

    def _interface(self, rank: int, link_type: int) -> Interface:
        """What is kept of an interface."""
        interface = self._interfaces.get((rank, link_type))
        if interface is None:
            interface = self._interfaces[rank, link_type] = Interface(self._paths[rank], 0, link_type)
        return interface
