from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.capture.reader import open_capture
from kdissect.capture.recording import NEVER, Recording, Thresholds
from kdissect.capture.source import InterfaceStatistics, one_by_one
from kdissect.errors import OutputError
from kdissect.model import IdleTick, Interface, Packet, PacketBlock

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS  # 2023-11-14T22:13:20Z
ETH0 = Interface("eth0", 0, 1, 0, "eth0")


def packets(count: int) -> list[Packet]:
    """One a second, of 100 bytes each."""
    return [Packet(n + 1, START_NS + n * SECOND_NS, ETH0, bytes(100), 100) for n in range(count)]


def blocks(count: int, size: int) -> list[PacketBlock]:
    """They in blocks of so many."""
    times = [packet.time_ns for packet in packets(count)]
    return [
        PacketBlock(n + 1, ETH0, bytes(100), [(time_ns, 0, 100, 100) for time_ns in times[n : n + size]])
        for n in range(0, count, size)
    ]


def passed(recording: Recording, count: int, size: int = 3) -> int:
    """How many packets passed, in blocks of ``size``."""
    passing = one_by_one(recording.watch(blocks(count, size)))
    numbers = [packet.number for packet in passing if isinstance(packet, Packet)]
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)


def counts(directory: Path) -> dict[str, int]:
    """How many packets each file has."""
    counts = {}
    for path in sorted(directory.iterdir()):
        with open_capture(path) as capture:
            counts[path.name] = sum(1 for _ in capture)
    return counts


def test_all_that_passes_is_written_with_what_was_counted(tmp_path: Path) -> None:
    path = tmp_path / "all.pcapng"
    recording = Recording(path, NEVER, NEVER, "kdissect")
    assert passed(recording, 5) == 5
    counted = InterfaceStatistics(None, None, 7, 12, 5)
    recording.close({ETH0: counted}, START_NS)
    with open_capture(path) as capture:
        assert [packet.time_ns for packet in capture] == [packet.time_ns for packet in packets(5)]
        assert list(capture.statistics.values()) == [counted]


def test_what_was_written_can_be_read_as_soon_as_nothing_more_comes(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "all.pcapng", NEVER, NEVER, "")
    items = recording.watch([*blocks(2, 1), IdleTick(START_NS)])
    assert [next(items) for _ in range(3)][2] == IdleTick(START_NS)
    assert counts(tmp_path) == {"all.pcapng": 2}
    recording.close({}, START_NS)


def test_a_ring_by_size_keeps_its_last_files(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "ring.pcapng", Thresholds(bytes=300, files=2), NEVER, "")
    assert passed(recording, 7) == 7
    recording.close({}, START_NS)
    assert counts(tmp_path) == {
        "ring_00003_20231114221324.pcapng": 2,
        "ring_00004_20231114221326.pcapng": 1,
    }


def test_a_ring_by_time(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "ring.pcapng", Thresholds(duration_ns=2 * SECOND_NS), NEVER, "")
    assert passed(recording, 5) == 5
    recording.close({}, START_NS)
    assert list(counts(tmp_path).values()) == [2, 2, 1]
    assert recording.files == 3


def test_enough_packets() -> None:
    recording = Recording(None, NEVER, Thresholds(packets=3), "")
    assert passed(recording, 5) == 3


def test_enough_bytes(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "some.pcapng", NEVER, Thresholds(bytes=300), "")
    assert passed(recording, 5) == 2
    recording.close({}, START_NS)
    assert counts(tmp_path) == {"some.pcapng": 2}


def test_enough_files(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "ring.pcapng", Thresholds(bytes=300), Thresholds(files=2), "")
    assert passed(recording, 9) == 4
    recording.close({}, START_NS)
    assert list(counts(tmp_path).values()) == [2, 2]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "nowhere" / "x.pcapng", NEVER, NEVER, "")
    with pytest.raises(OutputError, match=r"cannot write .*nowhere/x\.pcapng: No such file or directory"):
        passed(recording, 1)
