from __future__ import annotations

from kdissect.analysis.census import Census
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Interface, Packet

ETH, LO = Interface("a.pcap", 0, 1, 96), Interface("a.pcap", 1, 0)
OTHER = Interface("b.pcap", 0, 1)


def counted(*packets: tuple[Interface, int, int, int], limits: Limits = DEFAULT) -> Census:
    """Let packets pass: interface, time, captured and original length."""
    made = [
        Packet(number, time_ns, interface, bytes(captured), length)
        for number, (interface, time_ns, captured, length) in enumerate(packets, 1)
    ]
    census = Census(limits)
    assert list(census.watch(made)) == made
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
