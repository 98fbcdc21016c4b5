"""Merging by time, and that nothing is started before its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from kdissect.capture import reader
from kdissect.capture.reader import MergeInput
from kdissect.capture.source import one_by_one
from kdissect.model import Interface, Packet, PacketBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def part(name: str, *times: int, started: list[str] | None = None) -> MergeInput:
    def packets() -> Iterator[Packet]:
        if started is not None:
            started.append(name)
        for number, time in enumerate(times, 1):
            yield Packet(number, time, Interface(name, 0, 1), b"", 0)

    return MergeInput(times[0] if times else 0, packets())


def merged(parts: Iterable[MergeInput]) -> Iterator[Packet]:
    """The packets one by one."""
    return one_by_one(reader.merged(parts))


def in_blocks(name: str, times: list[int], size: int) -> MergeInput:
    """A part that is read in blocks of so many packets."""
    interface = Interface(name, 0, 1)
    blocks = [
        PacketBlock(first + 1, interface, b"", [(time, 0, 0, 0) for time in times[first : first + size]])
        for first in range(0, len(times), size)
    ]
    return MergeInput(times[0] if times else 0, iter(blocks))


def shown(*parts: MergeInput) -> str:
    return " ".join(f"{packet.interface.capture}{packet.time_ns}" for packet in merged(parts))


def test_one_after_another_in_any_order() -> None:
    assert shown(part("b", 3, 4), part("c", 5), part("a", 1, 2)) == "a1 a2 b3 b4 c5"


def test_at_the_same_time() -> None:
    assert shown(part("a", 1, 4, 5, 9), part("b", 2, 3, 6), part("c", 7, 10)) == "a1 b2 b3 a4 a5 b6 c7 a9 c10"


def test_ties_are_in_order_of_the_files_first_packets_then_of_arguments() -> None:
    assert shown(part("b", 2, 3), part("a", 1, 2, 2)) == "a1 a2 a2 b2 b3"
    assert shown(part("a", 1, 2, 2), part("b", 2, 3)) == "a1 a2 a2 b2 b3"
    assert shown(part("b", 1, 1, 2), part("a", 1, 2)) == "b1 b1 a1 b2 a2"


def test_time_that_goes_backwards_stays_in_the_order_of_the_file() -> None:
    assert shown(part("a", 5, 1, 2, 8), part("b", 6, 3, 9)) == "a5 a1 a2 b6 b3 a8 b9"


def test_parts_without_packets() -> None:
    assert shown() == ""
    assert shown(part("a"), part("b")) == ""
    assert shown(part("a"), part("b", 4), part("c"), part("d", 2, 6)) == "d2 b4 d6"


def test_a_part_is_started_when_its_time_has_come() -> None:
    started: list[str] = []
    packets = merged(
        [part("b", 3, 4, started=started), part("a", 1, 2, started=started), part("c", 9, started=started)]
    )
    assert started == []
    assert next(packets).time_ns == 1
    assert next(packets).time_ns == 2
    assert started == ["a"]
    assert next(packets).time_ns == 3
    assert started == ["a", "b"]
    assert [packet.time_ns for packet in packets] == [4, 9]


@given(st.lists(st.lists(st.integers(0, 20)), max_size=5))
def test_merging_sorted_parts_is_sorting(lists: list[list[int]]) -> None:
    parts = [part(str(index), *sorted(times)) for index, times in enumerate(lists)]
    seen = list(merged(parts))
    assert [packet.time_ns for packet in seen] == sorted(time for times in lists for time in times)
    for index, times in enumerate(lists):
        own = [packet for packet in seen if packet.interface.capture == str(index)]
        assert [packet.time_ns for packet in own] == sorted(times)
        assert [packet.number for packet in own] == list(range(1, len(times) + 1))


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), max_size=4))
def test_any_parts_keep_their_order(lists: list[list[int]]) -> None:
    seen = list(merged([part(str(index), *times) for index, times in enumerate(lists)]))
    assert len(seen) == sum(map(len, lists))
    for index, times in enumerate(lists):
        assert [packet.time_ns for packet in seen if packet.interface.capture == str(index)] == times


@given(st.lists(st.lists(st.integers(0, 9), min_size=1), max_size=4), st.integers(1, 4))
def test_blocks_are_merged_as_their_packets(lists: list[list[int]], size: int) -> None:
    """Times may go back within a block and between blocks."""
    plain = merged([part(str(index), *times) for index, times in enumerate(lists)])
    blocks = merged([in_blocks(str(index), times, size) for index, times in enumerate(lists)])
    assert list(blocks) == list(plain)


def test_files_of_a_ring_are_read_in_blocks() -> None:
    """Only a block in which another file begins is divided."""
    ring = [in_blocks("a", [1, 2, 3, 4], 2), in_blocks("b", [5, 6, 7, 8], 2), in_blocks("c", [7, 9], 2)]
    sizes = [len(each.places) if isinstance(each, PacketBlock) else 1 for each in reader.merged(ring)]
    assert sizes == [2, 2, 2, 1, 1, 1, 1]
