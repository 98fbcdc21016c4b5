from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kdissect import core
from kdissect.limits import DEFAULT, Limits
from kdissect.model import IdleTick, Interface, Packet, PacketBlock
from kdissect.stats.survey import Census
from tests.core import needs_core

ETH, LO = Interface("a.pcap", 0, 1, 96), Interface("a.pcap", 1, 0)
OTHER = Interface("b.pcap", 0, 1)


def counted(*packets: tuple[Interface, int, int, int], limits: Limits = DEFAULT) -> Census:
    """Let packets pass: interface, time, captured and original length."""
    sent = [
        Packet(number, time_ns, interface, bytes(captured), length)
        for number, (interface, time_ns, captured, length) in enumerate(packets, 1)
    ]
    census = Census(limits)
    assert list(census.watch(sent)) == sent
    return census


def test_counts_by_interface() -> None:
    census = counted((ETH, 1, 50, 50), (ETH, 2, 96, 400), (LO, 3, 10, 10), (ETH, 4, 80, 81))
    eth, lo = census.interfaces[ETH], census.interfaces[LO]
    assert (eth.packets, eth.captured_bytes, eth.wire_bytes, eth.cut, eth.cut_to) == (3, 226, 531, 2, 96)
    assert (lo.packets, lo.captured_bytes, lo.wire_bytes, lo.cut, lo.cut_to) == (1, 10, 10, 0, 0)


def test_time_goes_backward_within_a_file_only() -> None:
    census = counted((ETH, 10, 1, 1), (OTHER, 5, 1, 1), (LO, 7, 1, 1), (ETH, 9, 1, 1), (ETH, 10, 1, 1))
    a, b = census.files["a.pcap"], census.files["b.pcap"]
    assert (a.packets, a.first_ns, a.last_ns, a.backward, a.furthest_back_ns) == (4, 7, 10, 2, 3)
    assert (b.packets, b.first_ns, b.last_ns, b.backward) == (1, 5, 5, 0)
    assert census.span_ns == (5, 10)


def test_no_packets_have_no_span() -> None:
    assert counted().span_ns is None


def test_interfaces_are_bounded_and_files_still_counted() -> None:
    census = counted((ETH, 1, 1, 1), (LO, 2, 1, 1), (ETH, 3, 1, 1), limits=Limits(interfaces=1))
    assert list(census.interfaces) == [ETH]
    assert (census.interfaces[ETH].packets, census.files["a.pcap"].packets) == (2, 3)


def test_a_file_that_is_forgotten_leaves_its_time() -> None:
    census = counted((ETH, 10, 1, 1), (LO, 12, 1, 1), (OTHER, 50, 1, 1))
    census.forget("a.pcap")
    census.forget("never.pcap")
    assert (list(census.files), list(census.interfaces)) == (["b.pcap"], [OTHER])
    assert census.span_ns == (10, 50)
    census.forget("b.pcap")
    assert census.span_ns == (10, 50)


def test_lulls_are_no_packets() -> None:
    census = Census(DEFAULT)
    assert list(census.watch([IdleTick(5)])) == [IdleTick(5)]
    assert census.span_ns is None


def test_what_was_counted_of_two_parts_of_a_file_adds_up() -> None:
    packets = (ETH, 10, 1, 1), (OTHER, 5, 1, 1), (LO, 7, 1, 3), (ETH, 9, 8, 9), (ETH, 12, 1, 1), (LO, 1, 4, 9)
    one, two, everything = counted(*packets[:3]), counted(*packets[3:]), counted(*packets)
    behind = two.files["a.pcap"]
    # The reader of the second part knows how far packet time had come.
    behind.backward, behind.furthest_back_ns = 2, 11
    one.merge(two)
    for name, file in everything.files.items():
        assert {each: getattr(one.files[name], each) for each in file.__slots__} == {
            each: getattr(file, each) for each in file.__slots__
        }
    for interface, count in everything.interfaces.items():
        assert {each: getattr(one.interfaces[interface], each) for each in count.__slots__} == {
            each: getattr(count, each) for each in count.__slots__
        }
    few = counted((ETH, 1, 1, 1), limits=Limits(interfaces=1))
    few.merge(counted((OTHER, 1, 1, 1)))
    assert list(few.interfaces) == [ETH]
    assert set(few.files) == {"a.pcap", "b.pcap"}


SIZES = st.integers(0, 1 << 20)
PLACES = st.lists(st.tuples(st.integers(-(1 << 62), 1 << 62) | st.integers(0, 9), SIZES, SIZES), min_size=1)


@needs_core
@given(st.lists(PLACES, max_size=3))
def test_the_core_counts_the_same(blocks: list[list[tuple[int, int, int]]]) -> None:
    assert core.is_used
    python, native = Census(DEFAULT), Census(DEFAULT)
    for block in blocks:
        places = [(time_ns, 7, 7 + captured, length) for time_ns, captured, length in block]
        list(python.watch([PacketBlock(1, ETH, b"", places)]))
        list(native.watch([PacketBlock(1, ETH, b"", core.native.Places(places))]))
    for name, file in python.files.items():
        other = native.files[name]
        for field in ("packets", "first_ns", "last_ns", "backward", "furthest_back_ns"):
            assert getattr(file, field) == getattr(other, field)
    for interface, count in python.interfaces.items():
        for field in ("packets", "cut", "cut_to", "captured_bytes", "wire_bytes"):
            assert getattr(count, field) == getattr(native.interfaces[interface], field)
