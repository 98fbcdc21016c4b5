from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.capture.source import one_by_one
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT
from kdissect.spark.ranges import MAX_HEAD_BYTES, CaptureRanges, Fingerprint, open_range
from tests.captures import (
    MODIFIED,
    NANOSECONDS,
    block,
    counters,
    enhanced,
    interface,
    obsolete,
    pcap,
    pcapng,
    section,
    simple,
)
from tests.disguises import FILES
from tests.shuffling import find_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.model import Packet
    from kdissect.spark.ranges import Range

SAMPLES = Path(__file__).parents[2] / "samples"
SIZE = 500
PACKETS = [(1_700_000_000_000_000_000 + number * 1_000_000, bytes([number]) * 60) for number in range(100)]


def own(range_: Range) -> Iterator[Packet]:
    """The packets of a range."""
    _, blocks = open_range(range_)
    return one_by_one(blocks)


def packets_in(range_: Range) -> list[Packet]:
    return list(own(range_))


def check(path: Path, size: int = SIZE) -> CaptureRanges:
    """Check that the ranges together have the packets of the file."""
    capture_ranges = find_ranges([str(path)], size=size)
    with open_capture(path) as capture:
        assert [packet for each in capture_ranges.ranges for packet in packets_in(each)] == list(capture)
    return capture_ranges


def written(directory: Path, data: bytes, name: str = "capture") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, NANOSECONDS, MODIFIED])
def test_pcap(tmp_path: Path, order: str, magic: int) -> None:
    capture_ranges = check(written(tmp_path, pcap(PACKETS, order=order, magic=magic)))
    assert len(capture_ranges.ranges) > 5
    assert capture_ranges.first_ns == PACKETS[0][0]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [True, False])
def test_pcapng(tmp_path: Path, order: str, nanoseconds: bool) -> None:
    assert len(check(written(tmp_path, pcapng(PACKETS, order=order, nanoseconds=nanoseconds))).ranges) > 5


def test_blocks_that_are_no_packets_or_have_no_time_begin_no_range(tmp_path: Path) -> None:
    odd = [block(0xBAD, b"custom"), simple(b"\1" * 60), counters(received=7), obsolete(5, b"\2" * 60)]
    rest = [enhanced(number, b"\3" * 60) for number in range(3)]
    blocks = [section(), interface(), enhanced(1, b"\0" * 60), *(odd + rest) * 20]
    capture_ranges = check(written(tmp_path, b"".join(blocks)), size=200)
    assert len(capture_ranges.ranges) > 5


def test_later_sections_and_interfaces_go_along(tmp_path: Path) -> None:
    with open_capture(SAMPLES / "quickstart.pcap") as capture:
        data = FILES["pcapng several interfaces"](list(capture))
    capture_ranges = check(written(tmp_path, data), size=4000)
    heads = [each.head for each in capture_ranges.ranges]
    assert heads[0] == b""
    assert len(heads[-1]) > len(heads[1]) > 0


def test_a_file_with_very_many_interfaces_is_one_range(tmp_path: Path) -> None:
    described = [interface(name="x" * 1000)] * (MAX_HEAD_BYTES // 1000 + 1)
    blocks = [section(), *described, *(enhanced(*packet) for packet in PACKETS)]
    assert len(check(written(tmp_path, b"".join(blocks))).ranges) == 1


@pytest.mark.parametrize("name", ["pcap gzip", "pcap zstd", "pcap lz4"])
def test_a_compressed_file_is_one_range(tmp_path: Path, name: str) -> None:
    with open_capture(SAMPLES / "quickstart.pcap") as capture:
        data = FILES[name](list(capture))
    assert len(check(written(tmp_path, data)).ranges) == 1


def test_time_that_goes_backward_is_known_to_the_next_range(tmp_path: Path) -> None:
    times = [5, 9, 3, 4, 2, 7, 8, 12, 1, 1]
    path = written(tmp_path, pcap([(each * 1000, b"\0" * 60) for each in times]))
    capture_ranges = check(path, size=100)
    clocks = [each.clock_ns for each in capture_ranges.ranges]
    assert clocks[0] is None
    for each, clock_ns in zip(capture_ranges.ranges[1:], clocks[1:], strict=True):
        assert clock_ns == max(times[: each.before]) * 1000


@pytest.mark.parametrize("lost", [1, 30, 70])
def test_a_truncated_file_has_the_same_warning_in_its_last_range(tmp_path: Path, lost: int) -> None:
    for name, data in (("pcap", pcap(PACKETS)), ("pcapng", pcapng(PACKETS))):
        path = written(tmp_path, data[:-lost], name)
        capture_ranges = check(path)
        warnings = []
        for each in capture_ranges.ranges:
            source, packets = open_range(each)
            if each.last is None:
                assert list(packets)
                warnings = source.warnings
                assert source.bytes_read == path.stat().st_size
        with open_capture(path) as capture:
            assert list(capture)
            assert warnings == capture.warnings != []


def test_damage_ends_the_last_range_as_it_ends_the_file(tmp_path: Path) -> None:
    for name, data in (("pcap", pcap(PACKETS)), ("pcapng", pcapng(PACKETS))):
        middle = len(data) // 2
        path = written(tmp_path, data[:middle] + b"\xff" * 100 + data[middle + 100 :], name)
        capture_ranges = find_ranges([str(path)], size=SIZE)
        assert 2 < len(capture_ranges.ranges) < 20
        packets: list[Packet] = []
        with pytest.raises(CaptureError) as actual_error:
            packets.extend(chain.from_iterable(map(own, capture_ranges.ranges)))
        expected: list[Packet] = []
        with open_capture(path) as capture, pytest.raises(CaptureError) as expected_error:
            expected.extend(capture)
        assert packets == expected
        assert str(actual_error.value) == str(expected_error.value)


def test_files_are_in_the_order_in_which_they_begin(tmp_path: Path) -> None:
    early, late = PACKETS[:50], PACKETS[50:]
    names = [
        str(written(tmp_path, data, name))
        for name, data in (("c", pcap(late)), ("a", pcap([])), ("b", pcap(early)), ("d", pcap(early)))
    ]
    capture_ranges = find_ranges(names, size=SIZE)
    assert [Path(path).name for path in list(capture_ranges.files)] == ["a", "b", "d", "c"]
    assert [each.rank for each in capture_ranges.ranges] == sorted(
        each.rank for each in capture_ranges.ranges
    )
    assert capture_ranges.first_ns == PACKETS[0][0]


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    good = str(written(tmp_path, pcap(PACKETS)))
    text = str(written(tmp_path, b"no capture at all", "text"))
    missing = str(tmp_path / "missing")
    capture_ranges = find_ranges([text, good, missing])
    assert list(capture_ranges.files) == [good]
    assert [fault.split(": ")[0] for fault in capture_ranges.faults] == [text, missing]
    with pytest.raises(CaptureError, match="neither pcap nor pcapng"):
        find_ranges([text])
    with pytest.raises(CaptureError, match=r"none of 2 captures can be read; .*text: neither"):
        find_ranges([text, missing])
    with pytest.raises(CaptureError, match="tasks cannot read it"):
        find_ranges(["-"], DEFAULT)


def test_fingerprints_of_different_files_differ(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    data = (SAMPLES / "quickstart.pcap").read_bytes()
    path.write_bytes(data[:3000])
    small = Fingerprint.of(str(path))
    path.write_bytes(data)
    small.check(str(path))  # it has grown
    complete = Fingerprint.of(str(path))
    assert (small.bytes, complete.bytes) == (3000, len(data))
    for other in (data[:-1], data[1:] + b"x", data[:3999] + b"?" + data[4000:]):
        path.write_bytes(other)
        with pytest.raises(CaptureError, match=r"has a different .*x.pcap"):
            complete.check(str(path))
    path.unlink()
    with pytest.raises(
        CaptureError, match=r"^worker .* cannot read .*x.pcap: no such file or directory; captures"
    ):
        complete.check(str(path))
