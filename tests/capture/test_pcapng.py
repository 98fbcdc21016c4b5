"""Packets of pcapng files: all three blocks, several sections, damaged ones."""

from __future__ import annotations

import struct

import pytest

from kdissect.limits import MIB, Limits
from tests.capture.reading import numbers, read
from tests.captures import (
    EXAMPLE,
    block,
    counters,
    enhanced,
    interface,
    obsolete,
    option,
    pcapng,
    section,
    simple,
)

HEAD = section() + interface()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
@pytest.mark.parametrize("block_bytes", [1, 7, 65536])
def test_enhanced_packets(order: str, nanoseconds: bool, block_bytes: int) -> None:
    seen = read(pcapng(EXAMPLE, order=order, nanoseconds=nanoseconds), block_bytes=block_bytes)
    assert seen.timed == list(EXAMPLE)
    assert numbers(seen.packets) == list(range(1, len(EXAMPLE) + 1))
    assert (seen.warnings, seen.fault, seen.source.packets) == ([], None, len(EXAMPLE))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("block_bytes", [1, 65536])
def test_packets_in_blocks_of_all_kinds(order: str, block_bytes: int) -> None:
    data = b"".join(
        [
            section(order=order),
            interface(order=order),
            simple(b"first", order=order),
            enhanced(1_000_000, b"second", order=order, options=option(1, b"a comment", order=order)),
            simple(b"third", order=order),
            obsolete(3_000_000, b"fourth", order=order),
            obsolete(4_000_000, b"", order=order),
            enhanced(5_000_000, b"sixth", order=order),
        ]
    )
    seen = read(data, block_bytes=block_bytes)
    assert seen.fault is None
    assert numbers(seen.packets) == [1, 2, 3, 4, 5, 6]
    assert seen.timed == [
        (0, b"first"),
        (1_000_000_000, b"second"),
        (1_000_000_000, b"third"),
        (3_000_000_000, b"fourth"),
        (4_000_000_000, b""),
        (5_000_000_000, b"sixth"),
    ]


def test_a_simple_packet_is_cut_by_the_snaplen_of_its_interface() -> None:
    data = section() + interface(snaplen=4) + simple(b"abcd", length=900) + simple(b"abc")
    assert [(p.data, p.length) for p in read(data).packets] == [(b"abcd", 900), (b"abc", 3)]
    unlimited = section() + interface(snaplen=0) + simple(b"abcde")
    assert [(p.data, p.length) for p in read(unlimited).packets] == [(b"abcde", 5)]


def test_captured_and_original_length_are_kept_as_they_are() -> None:
    data = HEAD + enhanced(0, b"12345", longer=-3) + enhanced(0, b"12345", longer=1400)
    assert [(p.data, p.length) for p in read(data).packets] == [(b"12345", 2), (b"12345", 1405)]


@pytest.mark.parametrize("block_bytes", [1, 65536])
def test_several_sections_each_with_its_byte_order_and_interfaces(block_bytes: int) -> None:
    data = b"".join(
        [
            section(),
            interface(name="lo", link_type=0),
            interface(name="eth0", snaplen=96),
            enhanced(1, b"a", index=1),
            enhanced(2, b"b", index=0),
            section(order=">"),
            interface(order=">", link_type=113, resolution=9),
            enhanced(3_000, b"c", order=">"),
        ]
    )
    seen = read(data, block_bytes=block_bytes)
    assert seen.fault is None
    assert [
        (
            p.number,
            p.time_ns,
            p.data,
            p.interface.index,
            p.interface.link_type,
            p.interface.name,
            p.interface.snaplen,
        )
        for p in seen.packets
    ] == [
        (1, 1_000, b"a", 1, 1, "eth0", 96),
        (2, 2_000, b"b", 0, 0, "lo", 262144),
        (3, 3_000, b"c", 2, 113, None, 262144),
    ]


@pytest.mark.parametrize("block_bytes", [1, 65536])
def test_blocks_without_packets_are_skipped_and_those_that_wireshark_numbers_are_numbered(
    block_bytes: int,
) -> None:
    names, secrets, journal, custom, unknown = 4, 10, 9, 0xBAD, 0x7777
    data = b"".join(
        [
            HEAD,
            block(names, bytes(4)),
            block(unknown, b"x" * 1001),
            enhanced(1, b"a"),
            block(secrets, struct.pack("<II", 0x544C534B, 4) + b"abcd"),
            block(journal, b"MESSAGE=hello\n"),
            enhanced(2, b"b"),
            block(custom, struct.pack("<I", 32473) + b"abcd"),
            counters(),
            enhanced(3, b"c"),
        ]
    )
    seen = read(data, block_bytes=block_bytes)
    assert seen.fault is None
    assert [(p.number, p.data) for p in seen.packets] == [(1, b"a"), (3, b"b"), (5, b"c")]
    assert seen.source.packets == 3


def test_a_skipped_block_may_exceed_all_limits() -> None:
    data = HEAD + block(0x7777, bytes(3 * MIB)) + enhanced(1, b"a")
    assert [p.data for p in read(data, limits=Limits(packet_bytes=1000)).packets] == [b"a"]


def test_every_truncation_gives_a_prefix_of_the_packets_and_a_warning_with_the_place() -> None:
    blocks = [
        section(),
        interface(),
        *(enhanced(ns // 1000, data) for ns, data in EXAMPLE),
        block(0x7777, b"xyz"),
    ]
    data = b"".join(blocks)
    ends = [0]
    for one in blocks:
        ends.append(ends[-1] + len(one))
    for cut in range(12, len(data)):
        seen = read(data[:cut])
        complete = sum(end <= cut for end in ends) - 1
        assert seen.timed == list(EXAMPLE[: max(complete - 2, 0)])
        assert seen.fault is None
        if cut == ends[complete]:
            assert seen.warnings == []
        else:
            (warning,) = seen.warnings
            inside = (
                f"packet {complete - 1}" if 2 <= complete < 14 and cut >= ends[complete] + 12 else "a block"
            )
            assert warning == f"stream: ends in the middle of {inside}, which begins at byte {ends[complete]}"


def with_word(data: bytes, pos: int, value: int) -> bytes:
    return data[:pos] + value.to_bytes(4, "little") + data[pos + 4 :]


GOOD = enhanced(1, b"12345678")
BAD_BLOCKS = {
    "ends with another length": (
        with_word(GOOD, len(GOOD) - 4, 44),
        "a block begins with length 40 and ends with length 44",
    ),
    "claims more than the block has": (
        with_word(GOOD, 20, 9),
        "a packet claims 9 captured bytes in a block of 40",
    ),
    "shorter than its fixed part": (
        with_word(GOOD, 4, 28),
        "a block of type 6 has an impossible length of 28 bytes",
    ),
    "length zero": (with_word(GOOD, 4, 0), "a block of type 6 has an impossible length of 0 bytes"),
    "too large": (
        with_word(GOOD, 4, 0xFFFF_FFF0),
        "a block claims an implausible length of 4294967280 bytes",
    ),
    "unknown interface": (
        enhanced(1, b"12345678", index=7),
        "a block refers to interface 7, but only 1 were declared before it",
    ),
    "obsolete, claims more": (
        with_word(obsolete(1, b"1234"), 20, 99),
        "a packet claims 99 captured bytes in a block of 36",
    ),
    "section without byte order": (
        with_word(section(), 8, 0x12345678),
        "section header without a byte-order magic",
    ),
    "section of another version": (section(version=(2, 7)), "unknown pcapng version 2.7"),
    "skipped block ends with another length": (
        with_word(block(0x7777, b"1234"), 12, 44),
        "a block begins with length 16 and ends with length 44",
    ),
    "simple packet before any interface": (
        section() + simple(b"a"),
        "a block refers to interface 0, but only 0 were declared before it",
    ),
}


@pytest.mark.parametrize("name", BAD_BLOCKS)
@pytest.mark.parametrize("block_bytes", [1, 65536])
def test_a_block_that_contradicts_itself_is_a_fault_after_all_packets_before_it(
    name: str, block_bytes: int
) -> None:
    bad, text = BAD_BLOCKS[name]
    before = HEAD + enhanced(1, b"before")
    seen = read(before + bad + enhanced(2, b"behind"), block_bytes=block_bytes)
    assert [p.data for p in seen.packets] == [b"before"]
    place = len(before) + (len(section()) if name.startswith("simple") else 0)
    assert seen.fault == f"stream: {text}, at byte {place}"


def test_the_limit_on_a_packet() -> None:
    limits = Limits(packet_bytes=100)
    for make in (enhanced, obsolete):
        seen = read(HEAD + make(1, bytes(100)) + make(2, bytes(101)), limits=limits)
        assert len(seen.packets) == 1
        assert seen.fault is not None
        assert "claims 101 captured bytes" in seen.fault
    assert "claims 101 captured bytes" in (read(HEAD + simple(bytes(101)), limits=limits).fault or "")
