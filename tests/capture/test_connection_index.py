from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.capture import connection_index as module
from kdissect.capture.connection_index import ConnectionIndex
from kdissect.errors import CaptureError
from kdissect.limits import Limits
from kdissect.model import Interface, Packet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ETH, LO = Interface("a.pcap", 0, 1), Interface("b.pcap", 0, 0, 96, "lo")


def packets(count: int) -> list[Packet]:
    return [Packet(n, n * 1000, (ETH, LO)[n % 2], b"%d" % n, n + 9) for n in range(1, count + 1)]


def walk(index: ConnectionIndex, connections: Sequence[int]) -> list[Packet]:
    """Pass a packet of each of these connections through the index; 0: connection unknown."""
    passing = packets(len(connections))
    for packet, connection in zip(index.watch(passing), connections, strict=True):
        if connection:
            index.note(connection)
        assert packet is passing[packet.number - 1]
    return passing


def numbers(selected: Iterable[Packet]) -> list[int]:
    return [packet.number for packet in selected]


@given(
    st.lists(st.integers(0, 5), max_size=60),
    st.frozensets(st.integers(1, 5)),
    st.frozensets(st.integers(1, 5)),
    st.integers(1, 8),
)
def test_selects_the_packets_of_selected_connections(
    connections: list[int], selected: frozenset[int], excluded: frozenset[int], block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, ConnectionIndex() as index:
        patch.setattr(module, "_BLOCK", block)
        passed = walk(index, connections)
        for connection in selected:
            index.select(connection)
        for connection in excluded:
            index.exclude(connection)
        expected = [n for n, connection in enumerate(connections, 1) if connection in selected - excluded]
        assert numbers(index.select_packets(passed)) == expected
        assert (index.selected, index.excluded) == (len(selected - excluded), len(selected & excluded))


def test_earlier_packets_of_a_datagram_follow_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 2)
    passing = packets(6)
    with ConnectionIndex() as index:
        for packet in index.watch(passing):
            if packet.number in (1, 5):
                index.note(1)
            if packet.number == 6:
                index.note(2, [(passing[n - 1].interface, n) for n in (2, 4, 6)])
        index.select(2)
        assert numbers(index.select_packets(passing)) == [2, 4, 6]


def test_packets_without_data_are_forgotten_in_the_end() -> None:
    passing = packets(66)
    with ConnectionIndex(limits=Limits(fragment_datagrams=1)) as index:
        for packet in index.watch(passing):
            if packet.number == 66:
                index.note(1, [(passing[0].interface, 1), (passing[1].interface, 2)])
        index.select(1)
        assert numbers(index.select_packets(passing)) == [2, 66]


def test_a_reading_that_was_stopped_picks_what_had_passed() -> None:
    with ConnectionIndex() as index:
        for packet in index.watch(packets(9)):
            index.note(1)
            if packet.number == 3:
                break
        index.select(1)
        assert numbers(index.select_packets(packets(9))) == [1, 2, 3]


def test_packets_are_kept_where_they_come_once() -> None:
    with ConnectionIndex(keeps_packets=True) as index:
        passed = walk(index, [1, 2, 1])
        index.select(1)
        kept = index.kept_packets()
        assert kept is not None
        selected = [
            (p.number, p.time_ns, p.data, p.length, p.interface.link_type) for p in index.select_packets(kept)
        ]
    expected = [
        (p.number, p.time_ns, p.data, p.length, p.interface.link_type) for p in (passed[0], passed[2])
    ]
    assert selected == expected


def test_packets_that_can_be_read_again_are_not_kept() -> None:
    with ConnectionIndex() as index:
        assert index.kept_packets() is None


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_BLOCK", 1)
    with ConnectionIndex() as index:
        monkeypatch.setattr(index._file, "write", full)
        with pytest.raises(CaptureError, match=r"temporary file in .*: No space left on device"):
            walk(index, [1, 1])
