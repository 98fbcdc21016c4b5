from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT
from kdissect.net.tcp import Segments, endpoints, usual_ends
from kdissect.spark import shuffle
from kdissect.spark.ranges import find_ranges
from kdissect.spark.shuffle import HEAD, plain, read_ranges, shuffled
from tests.disguises import NETWORKS
from tests.segments import packet
from tests.shuffling import cut_up

if TYPE_CHECKING:
    from kdissect.model import Packet, Segment
    from kdissect.spark.shuffle import RangeTold

SAMPLE = Path(__file__).parents[2] / "samples" / "quickstart.pcap"
PARTS = 4


def sample() -> list[Packet]:
    with open_capture(SAMPLE) as capture:
        return list(capture)


def rows_of(names: list[str], size: int = 5000) -> tuple[list[dict[str, Any]], list[RangeTold]]:
    """Bundles of all ranges, and what was told of these."""
    found = find_ranges(names, size=size)
    rows = [
        row
        for place in range(len(found.ranges))
        for batch in shuffled(place, found.ranges, found.paths, PARTS, DEFAULT, 1)
        for row in batch.to_pylist()
    ]
    told = [pickle.loads(row["data"]) for row in rows if not row["heads"]]
    assert all((row["part"] == PARTS) == (not row["heads"]) for row in rows)
    return [row for row in rows if row["heads"]], told


def segments_in(rows: list[dict[str, Any]]) -> list[tuple[int, Segment]]:
    """Part and segment of all packets in bundles."""
    found = []
    for row in rows:
        begin = 0
        for _, number, _, time_ns, length, captured in HEAD.iter_unpack(row["heads"]):
            data = row["data"][begin : begin + captured]
            segment = Segments().feed(packet(data, number=number, time_ns=time_ns, length=length))
            assert segment is not None
            found.append((row["part"], segment))
            begin += captured
    return found


def essence(segment: Segment) -> tuple[Any, ...]:
    """All but where it was captured."""
    return segment._replace(interface=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("network", ["padded", "VXLAN", "IPv6 for IPv4", "fragments", "fragments backwards"])
def test_every_segment_comes_once_whatever_carries_it(tmp_path: Path, network: str) -> None:
    names = cut_up(NETWORKS[network](sample()), tmp_path / "ring", 3)
    segments = Segments()
    with open_capture(*names) as capture:
        meant = [segment for each in capture if (segment := segments.feed(each)) is not None]
    rows, told = rows_of(names)
    assert sorted(map(essence, (segment for _, segment in segments_in(rows)))) == sorted(map(essence, meant))
    assert sum(len(each.clocks_ns) for each in told) == sum(each.segments for each in told)


def test_both_directions_of_a_connection_are_in_one_part() -> None:
    rows, _ = rows_of([str(SAMPLE)])
    parts: dict[frozenset[Any], set[int]] = {}
    for part, segment in segments_in(rows):
        parts.setdefault(frozenset(endpoints(segment.ends)), set()).add(part)
    assert all(len(found) == 1 for found in parts.values())
    assert set().union(*parts.values()) > {0, 1}


@pytest.mark.parametrize("size", [0, 1, 65_483, 65_515, 65_516, 200_000])
@pytest.mark.parametrize("captured", [None, 100])
@pytest.mark.parametrize("network", ["VLAN", "IPv6 for IPv4"])
def test_a_plain_packet_carries_the_same_segment(size: int, captured: int | None, network: str) -> None:
    (usual,) = NETWORKS["padded"]([sample()[10]])
    segment = Segments().feed(NETWORKS[network]([sample()[10]])[0])
    assert segment is not None
    segment = segment._replace(
        payload=b"x" * (size if captured is None else min(size, captured)), length=size
    )
    made = plain(segment, usual)
    again = Segments().feed(made)
    assert again is not None
    assert essence(again) == essence(segment._replace(packet=usual.number, time_ns=usual.time_ns))


def test_the_usual_packet_is_told_by_one_look() -> None:
    packets = sample()
    assert all(usual_ends(each) is not None for each in packets)
    for network in ("VLAN", "VXLAN", "raw IP", "fragments", "IPv6 for IPv4"):
        assert all(usual_ends(each) is None for each in NETWORKS[network](packets) if len(each.data) > 150)
    assert usual_ends(packets[0]._replace(data=packets[0].data[:50])) is None


def test_what_was_told_of_ranges_adds_up(tmp_path: Path) -> None:
    packets = sample()
    _, told = rows_of(cut_up(packets, tmp_path / "ring", 2))
    assert len(told) > 4
    census = told[0].census
    for each in told[1:]:
        census.add(each.census)
    assert sum(file.packets for file in census.files.values()) == len(packets)
    assert sum(each.segments for each in told) == len(packets)
    assert [each.begin_ns for each in told] == sorted(each.begin_ns for each in told)
    assert all(each.begin_ns <= each.end_ns for each in told)


def test_bundles_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "_BUNDLE_BYTES", 2000)
    rows, _ = rows_of([str(SAMPLE)], size=1 << 20)
    longest = max(len(each.data) for each in sample())
    assert all(len(row["data"]) < 2000 + longest for row in rows)
    monkeypatch.setattr(shuffle, "_BUNDLES_BYTES", 1000)
    more, _ = rows_of([str(SAMPLE)], size=1 << 20)
    assert len(more) > len(rows)
    monkeypatch.setattr(shuffle, "_MOST_ENDS", 1)
    again, _ = rows_of([str(SAMPLE)], size=1 << 20)
    assert again == more


def test_a_range_of_another_file_is_not_read(tmp_path: Path) -> None:
    import pyarrow as pa

    capture = tmp_path / "x.pcap"
    capture.write_bytes(SAMPLE.read_bytes())
    found = find_ranges([str(capture)], size=5000)
    capture.write_bytes(SAMPLE.read_bytes()[:6000])
    asked = [pa.RecordBatch.from_pydict({"id": [0]})]
    with pytest.raises(CaptureError, match=r"^worker .* has another .*x.pcap \(6,000 bytes there, "):
        list(read_ranges(found.ranges, found.files, PARTS, DEFAULT, 1, asked))


def test_spark_asks_for_ranges_by_their_places() -> None:
    import pyarrow as pa

    found = find_ranges([str(SAMPLE)], size=5000)
    asked = [pa.RecordBatch.from_pydict({"id": [1, 0]})]
    got = list(read_ranges(found.ranges, found.files, PARTS, DEFAULT, 1, asked))
    meant = [
        batch for place in (1, 0) for batch in shuffled(place, found.ranges, found.paths, PARTS, DEFAULT, 1)
    ]
    assert [batch.slice(0) for batch in got if batch["heads"][0].as_py()] == [
        batch for batch in meant if batch["heads"][0].as_py()
    ]
