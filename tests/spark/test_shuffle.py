from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, MIB
from kdissect.model import Interface, Segment
from kdissect.net.tcp import Segments, connection_key, endpoints, reversed_ends
from kdissect.spark import shuffle
from kdissect.spark.shuffle import SCHEMA, Bundle, SortedRows, bundled, read_ranges, uneven
from tests.disguises import NETWORKS, in_two_files
from tests.segments import ETHERNET
from tests.shuffling import cut_up, find_ranges, shuffled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.model import Packet
    from kdissect.spark.shuffle import Key, RangeStats

SAMPLE = Path(__file__).parents[2] / "samples" / "quickstart.pcap"
PARTS = 4


def sample() -> list[Packet]:
    with open_capture(SAMPLE) as capture:
        return list(capture)


def batches_of(names: Sequence[str], size: int = 5000, parts: int = PARTS) -> list[Any]:
    """The rows of all ranges."""
    ranges = find_ranges(names, size=size).ranges
    return [batch for place in range(len(ranges)) for batch in bundled(place, ranges, parts, DEFAULT)]


def segments_of(names: Sequence[str], size: int = 5000) -> tuple[list[list[Segment]], list[RangeStats]]:
    """The segments of each pair of ends, and the counts of the ranges."""
    capture_ranges = find_ranges(names, size=size)
    rows, stats, _ = shuffled(capture_ranges.ranges, PARTS)
    return [
        list(segments) for segments in SortedRows(rows.to_batches(), list(capture_ranges.files)).connections()
    ], stats


def essence(segment: Segment) -> Segment:
    """A segment with only the file of its interface, which is all that is kept."""
    return segment._replace(interface=Interface(segment.interface.capture, 0, ETHERNET))


def expected(names: Sequence[str]) -> dict[bytes, list[Segment]]:
    """The segments of each pair of ends, in the order of a single capture."""
    segments = Segments()
    by_ends: dict[bytes, list[Segment]] = {}
    with open_capture(*names) as capture:
        for packet in capture:
            if (segment := segments.feed(packet)) is not None:
                by_ends.setdefault(min(segment.ends, reversed_ends(segment.ends)), []).append(
                    essence(segment)
                )
    return by_ends


def two_machines(directory: Path, packets: list[Packet] | None = None) -> list[str]:
    """Captures of two machines at the same time."""
    names = []
    for place, data in enumerate(in_two_files(packets or sample())):
        (directory / str(place)).write_bytes(data)
        names.append(str(directory / str(place)))
    return names


@pytest.mark.parametrize("size", [2000, 1 << 20])
@pytest.mark.parametrize("kind", ["one", "ring", "two machines"])
def test_the_segments_of_a_connection_come_in_the_order_of_a_capture(
    tmp_path: Path, kind: str, size: int
) -> None:
    names = {
        "one": lambda: [str(SAMPLE)],
        "ring": lambda: cut_up(sample(), tmp_path / "ring", 7),
        "two machines": lambda: two_machines(tmp_path),
    }[kind]()
    by_connection, _ = segments_of(names, size)
    assert [list(map(essence, segments)) for segments in by_connection] == [
        segments for _, segments in sorted(expected(names).items())
    ]


@pytest.mark.parametrize("network", ["padded", "VXLAN", "IPv6 for IPv4", "fragments", "fragments backwards"])
def test_every_segment_comes_once_whatever_carries_it(tmp_path: Path, network: str) -> None:
    names = cut_up(NETWORKS[network](sample()), tmp_path / "ring", 3)
    by_connection, _ = segments_of(names)
    assert [list(map(essence, segments)) for segments in by_connection] == [
        segments for _, segments in sorted(expected(names).items())
    ]


@pytest.mark.parametrize("size", [200, 3000])
@pytest.mark.parametrize("kind", ["ring", "two machines"])
@pytest.mark.parametrize("network", ["fragments", "fragments backwards"])
def test_fragments_of_a_datagram_may_be_in_any_ranges(
    tmp_path: Path, network: str, kind: str, size: int
) -> None:
    packets = NETWORKS[network](sample())
    names = cut_up(packets, tmp_path, 20) if kind == "ring" else two_machines(tmp_path, packets)
    by_connection, stats = segments_of(names, size)
    assert sum(len(each.fragments) for each in stats) > 4
    assert [list(map(essence, segments)) for segments in by_connection] == [
        segments for _, segments in sorted(expected(names).items())
    ]


def test_fragments_that_wait_for_other_ranges_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = cut_up(NETWORKS["fragments"](sample()), tmp_path, 20)
    ranges = find_ranges(names).ranges
    _, stats, _ = shuffled(ranges, PARTS)
    waiting = [len(each.fragments) for each in stats]
    assert max(waiting) > 0
    assert not any(each.source.warnings for each in stats)
    monkeypatch.setattr(shuffle, "_MOST_FRAGMENTS", 0)
    _, stats, _ = shuffled(ranges, PARTS)
    assert all(len(each.fragments) <= 1 for each in stats)
    assert all(each.source.warnings for each, number in zip(stats, waiting, strict=True) if number > 1)


def bundle(*keys: Key) -> Bundle:
    heads = [
        shuffle._HEAD.pack(clock_ns, number, clock_ns, 0, 0, 1, 1, False, 0, 0, False)
        for clock_ns, _, number in keys
    ]
    return Bundle(bytes(12), keys[0], keys[-1][0], b"".join(heads), bytes(len(keys)))


def test_overlapping_bundles_are_merged() -> None:
    bundles = [
        bundle((1, 0, 1), (2, 0, 2), (9, 0, 3)),
        bundle((2, 1, 1), (9, 1, 2)),
        bundle((3, 2, 1)),
        bundle((9, 0, 4)),
        bundle((10, 0, 5), (11, 0, 6)),
        bundle((11, 1, 1)),
        bundle((11, 1, 1)),
    ]
    rows = SortedRows([], ["a", "b", "c"])
    merged_keys = [
        (segment.time_ns, "abc".index(segment.interface.capture), segment.packet)
        for segment in rows._in_order(iter(bundles))
    ]
    interface = Interface("", 0, ETHERNET)
    assert merged_keys == sorted(key for each in bundles for key, _ in each.segments(interface))
    assert list(rows._in_order(iter([]))) == []


def test_both_directions_of_a_connection_are_in_one_part() -> None:
    rows = [row for batch in batches_of([str(SAMPLE)]) for row in batch.to_pylist()]
    assert all((row["part"] == PARTS) == (not row["heads"]) for row in rows)
    parts: dict[frozenset[Any], set[int]] = {}
    for row in rows:
        if row["heads"]:
            parts.setdefault(frozenset(endpoints(row["connection"])), set()).add(row["part"])
    assert all(len(parts_of_connection) == 1 for parts_of_connection in parts.values())
    assert set().union(*parts.values()) > {0, 1}


def test_what_was_counted_in_ranges_adds_up(tmp_path: Path) -> None:
    packets = sample()
    names = cut_up(packets, tmp_path / "ring", 2)
    _, stats = segments_of(names)
    assert len(stats) > 4
    census = stats[0].census
    for each in stats[1:]:
        census.merge(each.census)
    assert sum(file.packets for file in census.files.values()) == len(packets)
    assert sorted(each.place for each in stats) == list(range(len(stats)))


def test_bundles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes() -> list[int]:
        rows = (row for batch in batches_of([str(SAMPLE)], size=1 << 20) for row in batch.to_pylist())
        return [len(row["data"]) for row in rows if row["heads"]]

    monkeypatch.setattr(shuffle, "_BUNDLE_BYTES", 2000)
    default_sizes = sizes()
    longest = max(len(each.data) for each in sample())
    assert max(default_sizes) < 2000 + longest
    monkeypatch.setattr(shuffle, "_BUNDLES_BYTES", 1000)
    more = sizes()
    assert len(more) > len(default_sizes)
    monkeypatch.setattr(shuffle, "_MOST_ENDS", 1)
    assert sizes() == more


def test_a_range_of_another_file_is_not_read(tmp_path: Path) -> None:
    capture = tmp_path / "x.pcap"
    capture.write_bytes(SAMPLE.read_bytes())
    capture_ranges = find_ranges([str(capture)], size=5000)
    capture.write_bytes(SAMPLE.read_bytes()[:6000])
    indexes = [pa.RecordBatch.from_pydict({"id": [0]})]
    with pytest.raises(CaptureError, match=r"^worker .* has a different .*x.pcap \(6,000 bytes there, "):
        list(read_ranges(capture_ranges.ranges, capture_ranges.files, PARTS, DEFAULT, indexes))


def test_ranges_are_requested_by_index() -> None:
    capture_ranges = find_ranges([str(SAMPLE)], size=5000)
    indexes = [pa.RecordBatch.from_pydict({"id": [1, 0]})]
    batches = list(read_ranges(capture_ranges.ranges, capture_ranges.files, PARTS, DEFAULT, indexes))
    assert all(batch.schema == SCHEMA for batch in batches)
    expected_batches = [
        batch for place in (1, 0) for batch in bundled(place, capture_ranges.ranges, PARTS, DEFAULT)
    ]
    assert [batch for batch in batches if batch["heads"][0].as_py()] == [
        batch for batch in expected_batches if batch["heads"][0].as_py()
    ]


def test_a_connection_with_most_of_the_bytes_is_reported() -> None:
    one, other = (connection_key(bytes([10, 0, 0, host, 10, 0, 0, 9, 156, host, 35, 132])) for host in (1, 2))
    rows = [
        {
            "part": 0,
            "connection": key,
            "clock_ns": 0,
            "end_ns": 0,
            "rank": 0,
            "number": 0,
            "heads": b"",
            "data": data,
        }
        for key, data in ((one, bytes(3 * MIB)), (other, bytes(MIB)), (other, bytes(MIB)))
    ]
    sorted_rows = SortedRows(pa.Table.from_pylist(rows, SCHEMA).to_batches(), [""])
    assert len(list(sorted_rows._bundles())) == 3
    load = sorted_rows.total_bytes, sorted_rows.largest
    assert load == (5 * MIB, (3 * MIB, one))
    assert uneven([load]) is None  # too small to matter
    assert uneven([load] * 100) is None  # 300 MB of 500, but of as many connections
    assert uneven([(50 * MIB, (50 * MIB, other)), (150 * MIB, (120 * MIB, one))]) == (
        "10.0.0.1:39937 - 10.0.0.9:9092 has 60% of all bytes; a single task dissects it"
    )
    assert uneven([]) is None
