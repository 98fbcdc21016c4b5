"""Compressed captures: several members, cut, damaged, and ones that expand a lot."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kdissect.capture.compression import decompressed, recognized
from kdissect.errors import CaptureError
from kdissect.limits import MIB
from tests.capture.reading import read
from tests.captures import (
    COMPRESSIONS,
    EXAMPLE,
    VARIANTS,
    gzipped,
    lz4_compressed,
    pcap,
    pcapng,
    zstd_compressed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = pytest.mark.parametrize("name", COMPRESSIONS)
BLOCKS = pytest.mark.parametrize("block_bytes", [1, 5, 65536])


def unpack(data: bytes, block_bytes: int) -> tuple[list[bytes], list[str]]:
    warnings: list[str] = []
    method = recognized(data)
    assert method is not None
    blocks = (data[pos : pos + block_bytes] for pos in range(0, len(data), block_bytes))
    return list(decompressed(method, blocks, warnings.append)), warnings


@METHODS
@BLOCKS
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_format_in_every_compression(name: str, block_bytes: int, variant: str) -> None:
    seen = read(COMPRESSIONS[name](VARIANTS[variant](EXAMPLE)), block_bytes=block_bytes)
    assert seen.timed == list(EXAMPLE)
    assert (seen.warnings, seen.fault) == ([], None)


@METHODS
@BLOCKS
def test_several_members_are_one_stream(name: str, block_bytes: int) -> None:
    compress = COMPRESSIONS[name]
    data = pcapng(EXAMPLE)
    pieces = [data[:5], b"", data[5:300], data[300:]]
    seen = read(b"".join(map(compress, pieces)), block_bytes=block_bytes)
    assert seen.timed == list(EXAMPLE)
    assert (seen.warnings, seen.fault) == ([], None)


@METHODS
def test_large_data_comes_in_pieces(name: str) -> None:
    noise = random.Random(1).randbytes(MIB)
    pieces, warnings = unpack(COMPRESSIONS[name](noise), 64 * 1024)
    assert b"".join(pieces) == noise
    assert max(map(len, pieces)) <= 256 * 1024
    assert warnings == []


@METHODS
def test_data_that_expands_a_thousandfold_comes_in_pieces(name: str) -> None:
    packed = COMPRESSIONS[name](bytes(64 * MIB))
    method = recognized(packed)
    assert method is not None
    largest = total = 0
    for piece in decompressed(method, iter([packed]), print):
        largest = max(largest, len(piece))
        total += len(piece)
    assert total == 64 * MIB
    assert largest <= 16 * MIB


def test_zstd_frames_to_be_skipped() -> None:
    skipped = b"\x51\x2a\x4d\x18\5\0\0\0hello"
    packed = zstd_compressed(pcap(EXAMPLE))
    assert read(skipped + packed + skipped).timed == list(EXAMPLE)


@METHODS
@BLOCKS
def test_zeros_after_the_data_are_padding_and_other_bytes_are_a_warning(name: str, block_bytes: int) -> None:
    packed = COMPRESSIONS[name](pcap(EXAMPLE))
    padded = read(packed + bytes(1000), block_bytes=block_bytes)
    assert (padded.timed, padded.warnings) == (list(EXAMPLE), [])
    other = read(packed + b"GARBAGE", block_bytes=block_bytes)
    assert other.timed == list(EXAMPLE)
    assert other.warnings == [f"stream: trailing data after the {name} stream is ignored"]


@METHODS
def test_every_cut_gives_a_prefix_of_the_packets_and_a_warning(name: str) -> None:
    packed = COMPRESSIONS[name](pcap(EXAMPLE))
    for cut in range(4, len(packed)):
        seen = read(packed[:cut])
        assert seen.timed == list(EXAMPLE[: len(seen.timed)])
        assert f"stream: {name} data is truncated" in seen.warnings
        # A few bytes of a header can come out and still be no capture.
        nothing = f"stream: {name} data ends before the first packet"
        assert seen.fault in (None, nothing) or "neither pcap nor pcapng" in seen.fault
        assert seen.fault is None or "empty" not in seen.fault


def stored(data: bytes) -> bytes:
    """gzip data that is not compressed, so that a cut leaves something to read."""
    import gzip

    return gzip.compress(data, compresslevel=0, mtime=0)


def test_truncated_data_warns_about_the_compression_and_the_place_in_the_capture() -> None:
    data = pcap([(0, b"abcd"), (1, b"efgh")])
    seen = read(stored(data)[:-12])
    assert len(seen.packets) == 1
    assert seen.warnings == [
        "stream: gzip data is truncated",
        "stream: ends in the middle of packet 2, which begins at decompressed byte 44",
    ]


@METHODS
def test_damaged_data_is_a_fault(name: str) -> None:
    packed = bytearray(COMPRESSIONS[name](pcap(EXAMPLE)))
    packed[10:30] = b"\xff" * 20
    seen = read(bytes(packed))
    assert seen.fault is not None
    assert seen.fault.startswith(f"stream: {name} data cannot be decompressed (")
    assert "\n" not in seen.fault


def test_packets_before_the_damage_are_read() -> None:
    packets = [(number * 1000, random.Random(number).randbytes(1000)) for number in range(200)]
    packed = bytearray(gzipped(pcap(packets)))
    packed[-6] ^= 0xFF
    seen = read(bytes(packed))
    assert seen.fault is not None
    assert "gzip data cannot be decompressed" in seen.fault
    assert seen.timed == packets[: len(seen.timed)]
    assert len(seen.timed) > 100


@pytest.mark.parametrize("outer", COMPRESSIONS)
def test_compression_inside_compression_is_not_decompressed(outer: str) -> None:
    seen = read(COMPRESSIONS[outer](gzipped(pcap(EXAMPLE))))
    assert seen.fault == (
        f"stream: neither pcap nor pcapng; it is, inside its {outer} compression, another layer of gzip"
    )


def test_compressed_text_and_compressed_nothing() -> None:
    assert read(gzipped(b"hello")).fault == (
        "stream: neither pcap nor pcapng; it is, inside its gzip compression, text"
    )
    assert read(lz4_compressed(b"")).fault == (
        "stream: neither pcap nor pcapng; it is, inside its lz4 compression, empty"
    )


def test_what_is_not_compressed_is_not_recognized() -> None:
    for make in VARIANTS.values():
        assert recognized(make(EXAMPLE)) is None
    assert recognized(b"") is None


def test_faults_of_the_input_pass_through() -> None:
    def failing() -> Iterator[bytes]:
        yield gzipped(b"x" * 1000)[:15]
        raise OSError(5, "Input/output error")

    method = recognized(b"\x1f\x8b")
    assert method is not None
    with pytest.raises(OSError, match="Input/output"):
        list(decompressed(method, failing(), print))
    with pytest.raises(CaptureError, match="cannot be decompressed"):
        list(decompressed(method, iter([b"\x1f\x8b\xff" + bytes(50)]), print))
