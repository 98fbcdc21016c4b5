from __future__ import annotations

import gzip
import os
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.following import FollowedPath
from kdissect.capture.ongoing import LiveSources
from kdissect.errors import CaptureError
from kdissect.limits import LIVE
from kdissect.model import IdleTick
from tests.captures import pcap

if TYPE_CHECKING:
    from pathlib import Path

    from kdissect.model import PacketBlock

START_NS = 1_700_000_000_000_000_000
HEADER_BYTES = 24


def capture(first: int, count: int) -> bytes:
    """Packets that carry their numbers."""
    return pcap((START_NS + n * 1000, n.to_bytes(8, "big") * 5) for n in range(first, first + count))


class Reader:
    """Reads followed files as far as they were written."""

    def __init__(self, path: Path) -> None:
        files = FollowedPath(str(path), LIVE)
        self.ongoing = LiveSources(files, files.stop)

    def numbers(self, count: int) -> list[int]:
        """The numbers in the next packets, which end a block."""
        numbers: list[int] = []
        while len(numbers) < count:
            numbers += numbers_in(next(iter(self.ongoing)))
        assert len(numbers) == count
        return numbers

    def rest(self) -> list[int]:
        """The rest after stopping."""
        self.ongoing.stop()
        return [number for item in self.ongoing for number in numbers_in(item)]


def numbers_in(item: PacketBlock | IdleTick) -> list[int]:
    if isinstance(item, IdleTick):
        return []
    return [int.from_bytes(item.data[begin : begin + 8], "big") for _, begin, _, _ in item.places]


def aged(path: Path, seconds: int) -> Path:
    """Set the modification time of a file."""
    os.utime(path, (seconds, seconds))
    return path


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "growing.pcap"
    content = capture(0, 6)
    path.write_bytes(content[:-20])
    with Reader(path).ongoing as ongoing:
        reader = Reader(path)
        reader.ongoing = ongoing
        assert reader.numbers(5) == [0, 1, 2, 3, 4]
        with path.open("ab") as file:
            file.write(content[-20:])
            file.write(capture(6, 2)[HEADER_BYTES:])
        assert reader.numbers(3) == [5, 6, 7]
        assert reader.rest() == []
        assert ongoing.warnings == []


def test_a_directory_from_the_oldest_file_on(tmp_path: Path) -> None:
    aged_files = [("b.pcap", 0, 100), ("a.pcap", 2, 200), ("c.pcap", 4, 300)]
    for name, first, seconds in aged_files:
        (tmp_path / name).write_bytes(capture(first, 2))
        aged(tmp_path / name, seconds)
    (tmp_path / "notes.txt").write_text("captured on Tuesday")
    reader = Reader(tmp_path)
    assert reader.numbers(6) == [0, 1, 2, 3, 4, 5]
    (tmp_path / "d.pcap").write_bytes(capture(6, 2))
    assert reader.numbers(2) == [6, 7]
    with (tmp_path / "d.pcap").open("ab") as file:
        file.write(capture(8, 1)[HEADER_BYTES:])
    assert reader.numbers(1) == [8]
    assert reader.rest() == []
    assert reader.ongoing.warnings == []


def test_a_file_is_read_to_its_end_when_another_one_is_there(tmp_path: Path) -> None:
    first = tmp_path / "1.pcap"
    first.write_bytes(capture(0, 1))
    reader = Reader(tmp_path)
    assert reader.numbers(1) == [0]
    with first.open("ab") as file:
        file.write(capture(1, 2000)[HEADER_BYTES:])
    (tmp_path / "2.pcap").write_bytes(capture(2001, 1))
    assert reader.numbers(2001) == list(range(1, 2002))
    assert reader.rest() == []


def test_a_ring_whose_oldest_file_is_written_anew(tmp_path: Path) -> None:
    ring = [aged(tmp_path / f"x{number}", 100 + number) for number in range(2) if _write(tmp_path, number)]
    reader = Reader(tmp_path)
    assert reader.numbers(4) == [0, 1, 2, 3]
    ring[0].write_bytes(capture(4, 2))
    assert reader.numbers(2) == [4, 5]
    ring[1].write_bytes(capture(6, 2))
    assert reader.numbers(2) == [6, 7]
    assert reader.rest() == []


def _write(directory: Path, number: int) -> bool:
    return bool((directory / f"x{number}").write_bytes(capture(2 * number, 2)))


def test_a_file_that_was_compressed_after_it_was_read_is_not_read_again(tmp_path: Path) -> None:
    first = tmp_path / "1.pcap"
    first.write_bytes(capture(0, 2))
    aged(first, 100)
    (tmp_path / "2.pcap").write_bytes(capture(2, 1))
    reader = Reader(tmp_path)
    assert reader.numbers(3) == [0, 1, 2]
    (tmp_path / "1.pcap.gz").write_bytes(gzip.compress(first.read_bytes()))
    first.unlink()
    (tmp_path / "3.pcap").write_bytes(capture(3, 1))
    assert reader.numbers(1) == [3]
    assert reader.rest() == []


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "current.pcap"
    path.write_bytes(capture(0, 2))
    reader = Reader(path)
    assert reader.numbers(2) == [0, 1]
    other = tmp_path / "new"
    other.write_bytes(capture(2, 2))
    other.rename(path)
    assert reader.numbers(2) == [2, 3]
    assert reader.rest() == []


def test_a_file_that_was_cut_says_that_packets_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "current.pcap"
    path.write_bytes(capture(0, 4))
    reader = Reader(path)
    assert reader.numbers(4) == [0, 1, 2, 3]
    path.write_bytes(capture(4, 1))
    assert reader.numbers(1) == [4]
    assert reader.rest() == []
    assert reader.ongoing.warnings == [f"{path}: was rewritten before it was fully read; packets are missing"]


def test_a_broken_file_in_a_directory_does_not_end_it(tmp_path: Path) -> None:
    broken = bytearray(capture(0, 2))
    broken[-48:-44] = b"\xff\xff\xff\x7f"  # the second packet's length
    (tmp_path / "1.pcap").write_bytes(broken)
    aged(tmp_path / "1.pcap", 100)
    (tmp_path / "2.pcap").write_bytes(capture(2, 1))
    reader = Reader(tmp_path)
    assert reader.numbers(2) == [0, 2]
    assert reader.rest() == []
    assert "packet 2 claims" in reader.ongoing.warnings[0]


def test_an_empty_directory_is_waited_on(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    assert reader.rest() == []


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such file or directory"):
        FollowedPath(str(tmp_path / "nothing"), LIVE)
