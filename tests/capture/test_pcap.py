"""pcap files of every variant, cut and damaged ones."""

from __future__ import annotations

import pytest

from kdissect.limits import Limits
from kdissect.model import Interface
from tests.capture.reading import numbers, read
from tests.captures import EXAMPLE, MODIFIED, NANOSECONDS, pcap

VARIANTS = [(order, magic) for order in "<>" for magic in (0xA1B2C3D4, NANOSECONDS, MODIFIED)]


@pytest.mark.parametrize(("order", "magic"), VARIANTS)
@pytest.mark.parametrize("block_bytes", [1, 7, 65536])
def test_every_variant(order: str, magic: int, block_bytes: int) -> None:
    seen = read(pcap(EXAMPLE, order=order, magic=magic), block_bytes=block_bytes)
    assert seen.timed == list(EXAMPLE)
    assert numbers(seen.packets) == list(range(1, len(EXAMPLE) + 1))
    assert seen.source.packets == len(EXAMPLE)
    assert (seen.warnings, seen.fault) == ([], None)


def test_nanoseconds_are_kept() -> None:
    packets = [(1_700_000_000_123_456_789, b"one")]
    assert read(pcap(packets, magic=NANOSECONDS)).timed == packets
    assert read(pcap(packets)).timed == [(1_700_000_000_123_456_000, b"one")]


def test_link_type_and_snaplen_without_the_bits_on_frame_check_sequences() -> None:
    (packet,) = read(pcap([(0, b"x")], link_type=0x2400_0071, snaplen=96)).packets
    assert packet.interface == Interface("stream", 0, 0x71, 96)


@pytest.mark.parametrize("longer", [-3, 0, 1400])
def test_captured_and_original_length_are_kept_as_they_are(longer: int) -> None:
    (packet,) = read(pcap([(0, b"12345")], longer=longer)).packets
    assert (packet.data, packet.length) == (b"12345", 5 + longer)


def test_every_truncation_gives_a_prefix_of_the_packets_and_a_warning_with_the_place() -> None:
    data = pcap(EXAMPLE)
    ends = [24]
    for _, packet in EXAMPLE:
        ends.append(ends[-1] + 16 + len(packet))
    for cut in range(24, len(data)):
        seen = read(data[:cut])
        complete = sum(end <= cut for end in ends) - 1
        assert seen.timed == list(EXAMPLE[:complete])
        assert seen.fault is None
        begin = ends[complete]
        place = f"stream: ends in the middle of packet {complete + 1}, which begins at byte {begin}"
        assert seen.warnings == ([] if cut == begin else [place])


def test_a_cut_file_header() -> None:
    seen = read(pcap([])[:20])
    assert (seen.timed, seen.warnings) == ([], ["stream: ends in the middle of the file header"])


@pytest.mark.parametrize("block_bytes", [1, 65536])
def test_a_lying_length_is_a_fault_after_all_packets_before_it(block_bytes: int) -> None:
    data = pcap(EXAMPLE)
    lie = data[:8].ljust(8) + (0xFFFF_FFF0).to_bytes(4, "little") * 2
    seen = read(data + lie + b"more", block_bytes=block_bytes)
    assert seen.timed == list(EXAMPLE)
    assert seen.fault == (
        f"stream: packet 13 claims 4294967280 captured bytes, more than 4194304, at byte {len(data)}"
    )


def test_the_limit_on_a_packet_does_not_depend_on_how_the_bytes_arrive() -> None:
    data = pcap([(0, bytes(100)), (1, bytes(101)), (2, b"")])
    limits = Limits(packet_bytes=100)
    for block_bytes in (1, 50, 65536):
        seen = read(data, block_bytes=block_bytes, limits=limits)
        assert (len(seen.packets), seen.fault) == (
            1,
            "stream: packet 2 claims 101 captured bytes, more than 100, at byte 140",
        )


def test_an_unknown_version_is_refused() -> None:
    assert read(pcap(EXAMPLE, version=(3, 0))).fault == "stream: unknown pcap version 3.0, at byte 4"


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_version_in_the_other_byte_order_is_read(order: str) -> None:
    seen = read(pcap(EXAMPLE, order=order, version=(2 << 8, 4 << 8)))
    assert (seen.timed, seen.fault) == (list(EXAMPLE), None)


def test_no_packets_is_fine() -> None:
    seen = read(pcap([]))
    assert (seen.timed, seen.warnings, seen.fault) == ([], [], None)


def test_a_damaged_length_is_not_taken_for_the_end_of_the_file() -> None:
    file = bytearray(pcap([(number, bytes(60)) for number in range(9)]))
    second = 24 + 16 + 60
    file[second + 8 : second + 12] = (100_000).to_bytes(4, "little")
    result = read(bytes(file))
    assert len(result.packets) == 1
    assert result.fault == "stream: packet 2 claims 100000 captured bytes of 60, at byte 100"
