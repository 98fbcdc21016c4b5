"""Clocks, options, counters and bounds of pcapng interfaces."""

from __future__ import annotations

import struct

import pytest

from kdissect.capture.source import FileFormat, InterfaceStatistics
from kdissect.limits import MAX_COUNT, Limits
from tests.capture.reading import read
from tests.captures import SECOND_NS, block, counters, enhanced, interface, option, section


def times(interface_block: bytes, *ticks: int) -> list[int]:
    seen = read(section() + interface_block + b"".join(enhanced(count, b"") for count in ticks))
    assert seen.fault is None
    return [packet.time_ns for packet in seen.packets]


NOW = 1_700_000_000


@pytest.mark.parametrize(
    ("resolution", "offset", "ticks", "time_ns"),
    [
        (None, None, NOW * 10**6 + 5, NOW * SECOND_NS + 5000),
        (6, None, NOW * 10**6 + 5, NOW * SECOND_NS + 5000),
        (9, None, NOW * 10**9 + 5, NOW * SECOND_NS + 5),
        (0, None, NOW, NOW * SECOND_NS),
        (3, 0, NOW * 1000 + 7, NOW * SECOND_NS + 7_000_000),
        (12, None, 10**15 + 1999, 1000 * SECOND_NS + 1),
        (127, None, 5, 0),
        (0x80, None, NOW, NOW * SECOND_NS),
        (0x80 | 10, None, (NOW << 10) + 512, NOW * SECOND_NS + SECOND_NS // 2),
        (0x80 | 32, None, (NOW << 32) + (1 << 31), NOW * SECOND_NS + SECOND_NS // 2),
        (0xFF, None, 5, 0),
        (6, NOW, 5, NOW * SECOND_NS + 5000),
        (9, -10, NOW * 10**9 + 5, (NOW - 10) * SECOND_NS + 5),
    ],
)
def test_resolution_and_offset(resolution: int | None, offset: int | None, ticks: int, time_ns: int) -> None:
    assert times(interface(resolution=resolution, offset=offset), ticks) == [time_ns]


def test_times_are_clamped_to_64_bits_with_one_warning() -> None:
    data = section() + interface() + interface(offset=-(1 << 63)) + interface(resolution=0)
    data += enhanced((1 << 63) // 1000, b"") + enhanced((1 << 64) - 1, b"")
    data += enhanced(0, b"", index=1) + enhanced(1 << 62, b"", index=2)
    seen = read(data)
    late, early = (1 << 63) - 1, -(1 << 63)
    assert [p.time_ns for p in seen.packets] == [(1 << 63) // 1000 * 1000, late, early, late]
    assert seen.warnings == ["stream: has times outside the years 1677 to 2262; they are clamped"]


def test_options_that_do_not_fit_are_left_out_with_a_warning() -> None:
    body = struct.pack("<HHI", 1, 0, 0) + option(2, b"lo") + struct.pack("<HH", 9, 400) + b"\x09\0\0\0"
    seen = read(section() + block(1, body) + enhanced(5, b""))
    assert [(p.interface.name, p.time_ns) for p in seen.packets] == [("lo", 5000)]
    assert seen.warnings == ["stream: an option runs past the end of its block, at byte 52"]


def test_odd_option_values() -> None:
    body = (
        struct.pack("<HHI", 1, 0, 0)
        + option(2, b"l\xffo\0")
        + option(2, b"again")
        + option(9, b"")
        + option(14, b"12")
    )
    (packet,) = read(section() + block(1, body) + enhanced(5, b"")).packets
    assert (packet.interface.name, packet.time_ns) == ("l\\xffo", 5000)


def test_the_last_counters_of_an_interface_are_kept() -> None:
    data = section() + interface() + interface(name="eth0")
    data += counters(index=1, received=10, dropped=1) + enhanced(1, b"", index=1)
    data += counters(index=1, received=20, dropped=2, dropped_by_system=3)
    data += block(5, struct.pack("<3I", 0, 0, 0) + option(4, b"short"))
    seen = read(data)
    assert {i.name: c for i, c in seen.source.statistics.items()} == {
        "eth0": InterfaceStatistics(20, 2, 3),
        None: InterfaceStatistics(None, None, None),
    }


def test_counters_of_an_unknown_interface_are_left_out_with_a_warning() -> None:
    seen = read(section() + interface() + counters(index=4) + enhanced(1, b""))
    assert len(seen.packets) == 1
    assert seen.warnings == ["stream: statistics of an undeclared interface, at byte 48"]


def test_interfaces_and_counters_are_limited() -> None:
    limits = Limits(interfaces=2)
    seen = read(section() + interface() * 3, limits=limits)
    assert seen.fault == "stream: more than 2 interfaces in one section, at byte 68"
    one = section() + interface() + counters() + enhanced(1, b"")
    seen = read(one * 5, limits=limits)
    assert [p.interface.index for p in seen.packets] == [0, 1, 2, 3, 4]
    assert len(seen.source.statistics) == 2


def test_the_program_that_wrote_the_file_and_what_passed_its_filter() -> None:
    head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + option(3, b"Linux") + option(4, b"dumpcap\0")
    passed = block(5, struct.pack("<3I", 0, 0, 0) + option(6, struct.pack("<Q", 7)) + option(0, b""))
    second = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + option(4, b"another"))
    seen = read(block(0x0A0D0D0A, head) + interface() + enhanced(0, b"") + passed + second)
    assert seen.source.form == FileFormat("pcapng", "little", "dumpcap")
    assert list(seen.source.statistics.values()) == [InterfaceStatistics(None, None, None, 7)]


def test_numbers_beyond_64_bits_are_clamped() -> None:
    """Tables and JSON have no more."""
    data = section() + interface(resolution=0x7F)  # 10**127 ticks a second
    seen = read(data + counters(received=(1 << 64) - 1, dropped=1 << 63) + enhanced(1, b""))
    assert list(seen.source.statistics.values()) == [InterfaceStatistics(MAX_COUNT, MAX_COUNT, 0)]
    assert list(seen.source.interfaces.values()) == [MAX_COUNT]
