from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from errno import ENOSPC
from functools import partial
from io import BytesIO
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from weakref import ref

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kdissect import core
from kdissect.capture.reader import open_capture
from kdissect.capture.source import one_by_one
from kdissect.errors import CaptureError, WriteError
from kdissect.limits import DEFAULT, MIB
from kdissect.model import Interface, PacketBlock, Segment
from kdissect.net.tcp import Segments, connection_key, shard_of
from kdissect.spark import shuffle
from kdissect.spark.parts import of_values
from kdissect.spark.shuffle import (
    ORDER,
    SCHEMA,
    Bundle,
    RangeCounts,
    SortedPackets,
    bundles_in_files,
    bundles_in_rows,
    counts_in,
    read_ranges,
    stored,
    uneven,
)
from kdissect.spark.values import to_json
from tests.core import needs_core, without_core
from tests.disguises import NETWORKS, in_two_files
from tests.segments import ETHERNET
from tests.shuffling import Tasks, added_up, cut_up, expected_ranges, find_ranges, shuffled, shuffled_to_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.model import Packet
    from kdissect.spark.shuffle import Key

pytestmark = pytest.mark.usefixtures("with_core_and_without")

SAMPLE = Path(__file__).parents[2] / "samples" / "quickstart.pcap"
PARTS = 4


def sample() -> list[Packet]:
    with open_capture(SAMPLE) as capture:
        return list(capture)


def batches_of(names: Sequence[str], size: int = 5000, parts: int = PARTS) -> list[Any]:
    """The rows of all ranges."""
    ranges = expected_ranges(find_ranges(names, size=size))
    return list(read_ranges(len(ranges), parts, DEFAULT, None, [[each] for each in ranges]))


def segments_of(names: Sequence[str], size: int = 5000) -> tuple[list[list[Segment]], list[RangeCounts]]:
    """The segments of each part, and the counts of the ranges."""
    capture_ranges = find_ranges(names, size=size)
    rows, stats, _ = shuffled(capture_ranges, PARTS)
    return [
        list(parsed(SortedPackets(bundles_in_rows(own.to_batches()), list(capture_ranges.files))))
        for own in (rows.filter(pc.equal(rows["part"], part)) for part in range(PARTS))
    ], stats


def parsed(packets: Iterable[PacketBlock | Packet | Segment]) -> Iterator[Segment]:
    """The segments of packets, each with only the file of its interface, which is all that is kept."""
    segments = Segments()
    for each in packets:
        for packet in each.packets if isinstance(each, PacketBlock) else (each,):
            segment = packet if isinstance(packet, Segment) else segments.feed(packet)
            if segment is not None:
                yield segment._replace(interface=Interface(segment.interface.capture, 0, ETHERNET))


def expected(names: Sequence[str]) -> list[list[Segment]]:
    """The segments of each part, in the order of a single capture."""
    by_part: list[list[Segment]] = [[] for _ in range(PARTS)]
    with open_capture(*names) as capture:
        for segment in parsed(capture):
            by_part[shard_of(segment.ends, PARTS)].append(segment)
    assert all(by_part)
    return by_part


def two_machines(directory: Path, packets: list[Packet] | None = None) -> list[str]:
    """Captures of two machines at the same time."""
    names = []
    for place, data in enumerate(in_two_files(packets or sample())):
        (directory / str(place)).write_bytes(data)
        names.append(str(directory / str(place)))
    return names


@pytest.mark.parametrize("size", [2000, 1 << 20])
@pytest.mark.parametrize("kind", ["one", "ring", "two machines"])
def test_the_packets_of_a_part_come_in_the_order_of_a_capture(tmp_path: Path, kind: str, size: int) -> None:
    names = {
        "one": lambda: [str(SAMPLE)],
        "ring": lambda: cut_up(sample(), tmp_path / "ring", 7),
        "two machines": lambda: two_machines(tmp_path),
    }[kind]()
    assert segments_of(names, size)[0] == expected(names)


@pytest.mark.parametrize("network", ["padded", "VXLAN", "IPv6 for IPv4", "fragments", "fragments backwards"])
def test_every_segment_comes_once_whatever_carries_it(tmp_path: Path, network: str) -> None:
    names = cut_up(NETWORKS[network](sample()), tmp_path / "ring", 3)
    assert segments_of(names)[0] == expected(names)


@pytest.mark.parametrize("size", [200, 3000])
@pytest.mark.parametrize("kind", ["ring", "two machines"])
@pytest.mark.parametrize("network", ["fragments", "fragments backwards"])
def test_fragments_of_a_datagram_may_be_in_any_ranges(
    tmp_path: Path, network: str, kind: str, size: int
) -> None:
    packets = NETWORKS[network](sample())
    names = cut_up(packets, tmp_path, 20) if kind == "ring" else two_machines(tmp_path, packets)
    by_part, stats = segments_of(names, size)
    assert sum(len(each.fragments) for each in stats) > 4
    assert by_part == expected(names)


def test_fragments_that_wait_for_other_ranges_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = cut_up(NETWORKS["fragments"](sample()), tmp_path, 20)
    ranges = find_ranges(names)
    _, stats, _ = shuffled(ranges, PARTS)
    waiting = [len(each.fragments) for each in stats]
    assert max(waiting) > 0
    assert not any(each.warnings for each in stats)
    monkeypatch.setattr(shuffle, "_MAX_FRAGMENTS", 0)
    _, stats, _ = shuffled(ranges, PARTS)
    assert all(len(each.fragments) <= 1 for each in stats)
    assert all(each.warnings for each, number in zip(stats, waiting, strict=True) if number > 1)


def bundle(*keys: Key) -> Bundle:
    heads = [shuffle._HEAD.pack(clock_ns, number, clock_ns, 1, 1, ETHERNET) for clock_ns, _, number in keys]
    clock_ns, rank, number = keys[0]
    return Bundle(0, clock_ns, keys[-1][0], rank, number, b"".join(heads), bytes(len(keys)))


def test_overlapping_bundles_are_merged() -> None:
    keys = [
        [(1, 0, 1), (2, 0, 2), (9, 0, 3)],
        [(2, 1, 1), (9, 1, 2)],
        [(3, 2, 1)],
        [(9, 0, 4)],
        [(10, 0, 5), (11, 0, 6)],
        [(11, 1, 1)],
        [(11, 1, 1)],
    ]
    rows = SortedPackets((), ["a", "b", "c"])
    merged_keys = [
        (packet.time_ns, "abc".index(packet.interface.capture), packet.number)
        for packet in one_by_one(rows._in_order(bundle(*each) for each in keys))
    ]
    assert merged_keys == sorted(chain.from_iterable(keys))
    assert list(rows._in_order(iter([]))) == []


def test_bundles_that_follow_each_other_are_not_divided() -> None:
    rows = SortedPackets((), ["a", "b"])
    bundles = [bundle((1, 0, 1), (2, 0, 4)), bundle((2, 0, 5), (3, 0, 7)), bundle((3, 1, 1))]
    blocks = list(rows._in_order(iter(bundles)))
    assert [packet.number for packet in one_by_one(blocks)] == [1, 4, 5, 7, 1]
    assert len(blocks) == (5 if not core.is_used else 3)


def test_link_types_divide_a_bundle() -> None:
    heads = [
        shuffle._HEAD.pack(1, number, 1, 9, 2, link_type)
        for number, link_type in [(3, 1), (5, 1), (6, 101), (9, 1)]
    ]
    rows = SortedPackets((), ["a"])
    packets = list(one_by_one(rows._in_order(iter([Bundle(0, 1, 1, 0, 3, b"".join(heads), b"aabbccdd")]))))
    assert [(each.number, each.interface.link_type, each.data, each.length) for each in packets] == [
        (3, 1, b"aa", 9),
        (5, 1, b"bb", 9),
        (6, 101, b"cc", 9),
        (9, 1, b"dd", 9),
    ]
    first, *_, last = packets
    assert first.interface is last.interface


@needs_core
@pytest.mark.parametrize("network", NETWORKS)
def test_rows_are_the_same_with_and_without_the_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    monkeypatch.setattr(core, "is_used", core.native is not None)
    random, packets = Random(network), NETWORKS[network](sample())
    for place in random.sample(range(len(packets)), len(packets) // 4):
        data = bytearray(packets[place].data)
        data[random.randrange(min(60, len(data)))] ^= 1 << random.randrange(8)
        packets[place] = packets[place]._replace(data=bytes(data))
    names = cut_up(packets, tmp_path, 3)

    def rows() -> list[Any]:
        all_rows = [row for batch in batches_of(names) for row in batch.to_pylist()]
        stats = [counts_in(row.pop("data")) for row in all_rows if row["part"] == PARTS]
        counts = [(each.census.files, each.skipped, each.payload_bytes, each.largest) for each in stats]
        return [*sorted(all_rows, key=itemgetter("part", *ORDER)), to_json(counts)]

    by_core = rows()
    with without_core():
        assert rows() == by_core


def test_what_was_counted_in_ranges_adds_up(tmp_path: Path) -> None:
    packets = sample()
    names = cut_up(packets, tmp_path / "ring", 2)
    _, stats = segments_of(names)
    assert len(stats) > 4
    census = stats[0].census
    for each in stats[1:]:
        census.merge(each.census)
    assert sum(file.packets for file in census.files.values()) == len(packets)
    assert {name for each in stats for name in each.sources} == set(names)


def test_bundles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes() -> list[int]:
        rows = (row for batch in batches_of([str(SAMPLE)], size=1 << 20) for row in batch.to_pylist())
        return [len(row["data"]) for row in rows if row["heads"]]

    block_bytes = 4096  # the core takes what it can of a block at once
    monkeypatch.setattr("kdissect.capture.source.BLOCK_BYTES", block_bytes)
    monkeypatch.setattr("kdissect.capture.source.FILE_BLOCK_BYTES", block_bytes)
    longest = max(len(each.data) for each in sample())
    unlimited = sizes()
    assert max(unlimited) > 3000 + block_bytes + longest
    monkeypatch.setattr(shuffle, "_BUNDLE_BYTES", 3000)
    assert max(sizes()) < 3000 + block_bytes + longest
    monkeypatch.setattr(shuffle, "_BUNDLE_BYTES", 1 << 20)
    monkeypatch.setattr(shuffle, "_BUNDLES_BYTES", 5000)
    assert max(sizes()) < 5000 + block_bytes + longest


@pytest.mark.parametrize("network", ["none", "fragments"])
@pytest.mark.parametrize("kind", ["ring", "two machines"])
def test_files_have_the_same_packets_as_rows(tmp_path: Path, kind: str, network: str) -> None:
    packets = NETWORKS[network](sample()) if network != "none" else sample()
    names = cut_up(packets, tmp_path, 7) if kind == "ring" else two_machines(tmp_path, packets)
    capture_ranges, directory = find_ranges(names, size=3000), tmp_path / "bundles"
    directory.mkdir()
    files, _, _ = shuffled_to_files(capture_ranges, PARTS, directory)
    assert len(files) == len(capture_ranges.ranges) + (network == "fragments")
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in directory.iterdir())
    paths = list(capture_ranges.files)
    in_files = [list(parsed(SortedPackets(bundles_in_files(files, part), paths))) for part in range(PARTS)]
    assert in_files == expected(names)


def test_a_run_is_one_file(tmp_path: Path) -> None:
    capture_ranges = find_ranges([str(SAMPLE)], size=2000)
    ranges = expected_ranges(capture_ranges)
    (batch,) = read_ranges(len(ranges), PARTS, DEFAULT, tmp_path, [ranges])
    (file,) = counts_in(batch["data"][0].as_py()).files
    assert [str(path) for path in tmp_path.iterdir()] == [file.path]
    bundles = [list(bundles_in_files([file], part)) for part in range(PARTS)]
    assert len(ranges) > 2
    assert sum(map(len, bundles)) > PARTS
    assert all(each == sorted(each, key=attrgetter("key")) for each in bundles)
    assert [{each.part for each in of_part} for of_part in bundles] == [{part} for part in range(PARTS)]


def test_places_are_in_order(tmp_path: Path) -> None:
    """Also where clocks are before 1970, or have no time yet."""
    clocks = [5, -1, 0, shuffle._NEVER_NS, 1 << 62, -(1 << 40), 5]
    bundles = [bundle((clock_ns, rank, 300 - rank)) for clock_ns in clocks for rank in (256, 1)]
    (file,) = stored(bundles, 1, tmp_path / "packets")
    read = list(bundles_in_files([file], 0))
    assert [each.key for each in read] == sorted(each.key for each in bundles)
    assert file.first_ns == shuffle._NEVER_NS


def test_places_of_a_file_that_is_written_are_small(tmp_path: Path) -> None:
    """With many parts and connections, a task writes millions of bundles."""
    count, one = 20_000, bundle((1, 2, 3))
    tracemalloc.start()
    stored((replace(one, part=each % 3) for each in range(count)), 3, tmp_path / "packets")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 150 * count


def test_files_are_read_when_their_packets_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"a": (1, 5), "b": (2, 6), "c": (6, 7), "d": (9,)}
    files = [
        file
        for rank, (name, of_file) in enumerate(times.items())
        for file in stored([bundle((time, rank, time)) for time in of_file], 1, tmp_path / name)
    ]
    assert stored([], 1, tmp_path / "none") == []
    opened: list[tuple[str, ref[Any]]] = []

    def open_(path: Path, mode: str) -> Any:
        file = open(path, mode)  # noqa: PTH123, SIM115
        opened.append((path.name, ref(file)))
        return file

    monkeypatch.setattr(Path, "open", open_)
    monkeypatch.setattr(shuffle, "_MAX_OPEN", 1)
    bundles: Any = bundles_in_files(files, 0)
    assert [next(bundles).key for _ in range(4)] == [(1, 0, 1), (2, 1, 2), (5, 0, 5), (6, 1, 6)]
    assert {name for name, _ in opened} == {"a", "b", "c"}
    assert [file() is None for _, file in opened] == [True] * (len(opened) - 1) + [False]
    assert [each.key for each in bundles] == [(6, 2, 6), (7, 2, 7), (9, 3, 9)]
    assert opened[-1][0] == "d"
    assert all(file() is None for _, file in opened)


def test_a_range_of_another_file_is_not_read(tmp_path: Path) -> None:
    capture = tmp_path / "x.pcap"
    capture.write_bytes(SAMPLE.read_bytes())
    ranges = expected_ranges(find_ranges([str(capture)], size=5000))
    capture.write_bytes(SAMPLE.read_bytes()[:6000])
    with pytest.raises(CaptureError, match=r"^worker .* has a different .*x.pcap \(6,000 bytes there, "):
        list(read_ranges(len(ranges), PARTS, DEFAULT, None, [ranges[:1]]))


def test_a_full_disk_is_reported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(BytesIO):
        def write(self, _: Any) -> int:
            raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(shuffle, "create", lambda *_: Full())
    ranges = expected_ranges(find_ranges([str(SAMPLE)], size=5000))
    with pytest.raises(WriteError, match=rf"^cannot write {tmp_path}/0-.*: No space left on device$"):
        list(read_ranges(len(ranges), PARTS, DEFAULT, tmp_path, [ranges]))


def test_a_task_reads_the_ranges_that_it_gets() -> None:
    ranges = expected_ranges(find_ranges([str(SAMPLE)], size=5000))
    batches = list(read_ranges(len(ranges), PARTS, DEFAULT, None, [ranges[1:], ranges[:1]]))
    assert all(batch.schema == SCHEMA for batch in batches)
    last = [batch for batch in batches if batch["part"].to_pylist() == [PARTS]]
    assert [batch["number"].to_pylist() for batch in last] == [[1], [0]]
    packets = [counts_in(batch["data"][0].as_py()).census.files[str(SAMPLE)].packets for batch in last]
    assert (sum(packets), packets[1]) == (len(sample()), ranges[1].range.before)


def test_ranges_come_in_rows() -> None:
    ranges = expected_ranges(find_ranges([str(SAMPLE)], size=5000))
    rows = Tasks().createDataFrame(pa.table({"value": [to_json([each]) for each in ranges]}))
    read = partial(of_values, partial(read_ranges, len(ranges), PARTS, DEFAULT, None))
    by_task = rows.repartition(3).mapInArrow(read, "")
    assert len(by_task.collect()) == sum(batch.num_rows for batch in batches_of([str(SAMPLE)]))


def test_a_connection_with_most_of_the_bytes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.Table.from_batches(batches_of([str(SAMPLE)]))
    stats = [counts_in(data) for data in rows.filter(pc.equal(rows["part"], PARTS))["data"].to_pylist()]
    payload_bytes: Counter[bytes] = Counter()
    for segments in expected([str(SAMPLE)]):
        for segment in segments:
            payload_bytes[connection_key(segment.ends)] += len(segment.payload)
    assert sum(each.payload_bytes for each in stats) == payload_bytes.total()
    largest: Counter[bytes] = Counter()
    for each in stats:
        largest.update(each.largest)
    assert largest.most_common(1) == payload_bytes.most_common(1)
    assert added_up(stats).largest == largest

    one, other = (connection_key(bytes([10, 0, 0, host, 10, 0, 0, 9, 156, host, 35, 132])) for host in (1, 2))

    def load(**loads: int) -> RangeCounts:
        counts = RangeCounts(DEFAULT)
        counts.largest.update({one: loads["one"] * MIB, other: loads["other"] * MIB})
        counts.payload_bytes = counts.largest.total()
        return counts

    assert uneven(added_up([load(one=3, other=2)])) is None  # too small to matter
    assert uneven(added_up([load(one=300, other=300)])) is None
    assert uneven(added_up([load(one=0, other=50), load(one=120, other=30)])) == (
        "10.0.0.1:39937 - 10.0.0.9:9092 has 60% of all bytes; a single task dissects it"
    )
    assert uneven(added_up([])) is None


def test_the_largest_connections_of_all_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_MAX_ENDS", 4)
    counts = RangeCounts(DEFAULT)
    for host in range(1, 9):
        own = RangeCounts(DEFAULT)
        own.largest[bytes([host])] = host
        counts.add(own)
    assert len(counts.largest) <= 4
    assert counts.largest[bytes([8])] == 8


def test_connections_whose_bytes_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_MAX_ENDS", 4)
    bundles = shuffle._Bundles(PARTS, DEFAULT, 0, None)
    for packet in sample():
        bundles.feed(PacketBlock.of(packet))
        assert len(bundles._payload_bytes) <= 4
    payload_bytes, largest = bundles.loads()
    assert 0 < sum(largest.values()) < payload_bytes
