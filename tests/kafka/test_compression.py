"""Every codec in every framing: complete, truncated and damaged; and decompression bombs, stopped early."""

from __future__ import annotations

import gzip
import subprocess
import sys
import tracemalloc
from random import Random
from typing import TYPE_CHECKING

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kdissect.errors import Malformed, Oversized, Truncated, Unsupported
from kdissect.kafka import compression
from kdissect.kafka.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, Budget, inflate, max_inflated, xxh32
from kdissect.limits import DEFAULT, MIB, Limits
from tests.record_batches import JAVA_SNAPPY, java_lz4, java_snappy, lz4_of_magic_0, streamed_zstd

if TYPE_CHECKING:
    from collections.abc import Callable

RANDOM = Random(7)
TEXT = b"".join(b"order %d of customer %d; " % (RANDOM.randrange(9), n) for n in range(12_000))
NOISE = RANDOM.randbytes(150_000)
LONG_NOISE = RANDOM.randbytes(450_000)
MOST = 4 * MIB


def lz4_linked(data: bytes) -> bytes:
    return lz4.frame.compress(
        data,
        block_linked=True,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        content_checksum=True,
        block_checksum=True,
    )


def lz4_large_blocks(data: bytes) -> bytes:
    return lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=True)


def in_two(compress: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: compress(data[: len(data) // 3]) + compress(data[len(data) // 3 :])


WRITERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (NONE, bytes),
    "gzip": (GZIP, gzip.compress),
    "gzip members": (GZIP, in_two(gzip.compress)),
    "snappy raw": (SNAPPY, snappy.compress),
    "snappy java": (SNAPPY, java_snappy),
    "snappy java small blocks": (SNAPPY, lambda data: java_snappy(data, 1000)),
    "snappy java twice": (SNAPPY, in_two(java_snappy)),
    "snappy little-endian version": (
        SNAPPY,
        lambda data: JAVA_SNAPPY[:8] + b"\1\0\0\0" * 2 + java_snappy(data)[16:],
    ),
    "lz4 java": (LZ4, java_lz4),
    "lz4 KAFKA-3160": (LZ4, lz4_of_magic_0),
    "lz4 linked, checksums": (LZ4, lz4_linked),
    "lz4 large blocks, size": (LZ4, lz4_large_blocks),
    "lz4 frames": (LZ4, in_two(java_lz4)),
    "zstd stream": (ZSTD, streamed_zstd),
    "zstd size": (ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress),
    "zstd frames": (ZSTD, in_two(streamed_zstd)),
}
COMPRESSED = [name for name in WRITERS if name != "none"]
EACH = pytest.mark.parametrize("name", WRITERS)
EACH_COMPRESSED = pytest.mark.parametrize("name", COMPRESSED)


@EACH
@pytest.mark.parametrize("data", [b"a", b"ab" * 40, TEXT, NOISE, TEXT[:70_000] + NOISE + bytes(900_000)])
def test_every_writer_is_read(name: str, data: bytes) -> None:
    codec, compress = WRITERS[name]
    assert inflate(codec, compress(data), MOST)[:2] == (data, None)


@EACH
@given(data=st.binary(min_size=1, max_size=2000))
def test_any_bytes_come_back(name: str, data: bytes) -> None:
    codec, compress = WRITERS[name]
    assert inflate(codec, compress(data), 2000)[:2] == (data, None)


@EACH_COMPRESSED
def test_nothing_is_more_than_the_bound_but_the_bound_itself_is_not(name: str) -> None:
    codec, compress = WRITERS[name]
    packed = compress(TEXT)
    assert inflate(codec, packed, len(TEXT)).data == TEXT
    plain, fault, _ = inflate(codec, packed, len(TEXT) - 1)
    assert plain == b""
    assert isinstance(fault, Oversized)


@EACH_COMPRESSED
def test_cut_anywhere_gives_what_was_before(name: str) -> None:
    codec, compress = WRITERS[name]
    data = TEXT[:300]
    packed = compress(data)
    complete = 0
    for kept in range(len(packed)):
        plain, fault, _ = inflate(codec, packed[:kept], MOST)
        assert data.startswith(plain)
        if fault is None:  # between two members, frames or blocks
            complete += 1
        else:
            assert isinstance(fault, Truncated | Malformed)
    assert complete <= len(packed) // 100 + 1


@EACH_COMPRESSED
@pytest.mark.parametrize("tail", [b"\0", b"garbage behind it"])
def test_bytes_behind_it_cost_nothing_before_them(name: str, tail: bytes) -> None:
    codec, compress = WRITERS[name]
    plain, fault, _ = inflate(codec, compress(TEXT) + tail, MOST)
    assert fault is not None
    assert plain == (b"" if name == "snappy raw" else TEXT)


# A raw snappy block comes out as a whole or not at all.
@pytest.mark.parametrize("name", [name for name in COMPRESSED if name != "snappy raw"])
def test_long_data_cut_in_the_middle_gives_most_of_it(name: str) -> None:
    codec, compress = WRITERS[name]
    packed = compress(LONG_NOISE)
    plain, fault, _ = inflate(codec, packed[: len(packed) * 3 // 4], MOST)
    assert fault is not None
    assert LONG_NOISE.startswith(plain)
    assert name == "lz4 large blocks, size" or len(plain) > len(NOISE)


@EACH_COMPRESSED
def test_damage_is_a_value(name: str) -> None:
    codec, compress = WRITERS[name]
    random = Random(3)
    packed = compress(TEXT[:5000])
    for _ in range(150):
        damaged = bytearray(packed)
        for _ in range(random.randint(1, 4)):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        plain, *_ = inflate(codec, bytes(damaged), 100_000)
        assert len(plain) <= 100_000


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@given(data=st.binary(max_size=200))
def test_noise_raises_nothing(codec: int, data: bytes) -> None:
    assert len(inflate(codec, data, 1000).data) <= 1000


@pytest.mark.parametrize("codec", [5, 6, 7, 100, -1])
def test_codecs_that_nobody_knows(codec: int) -> None:
    plain, fault, _ = inflate(codec, b"abc", MOST)
    assert plain == b""
    assert isinstance(fault, Unsupported)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_nothing_is_not_compressed_data(codec: int) -> None:
    assert inflate(codec, b"", MOST).fault is not None


def test_the_bound_is_by_ratio_between_two_fixed_ones() -> None:
    limits = Limits(inflated_bytes=1000, inflated_always_bytes=100, inflated_ratio=10)
    assert [max_inflated(size, limits) for size in (0, 1, 10, 11, 99, 100, 5000)] == [
        100, 100, 100, 110, 990, 1000, 1000,
    ]  # fmt: skip


@EACH_COMPRESSED
def test_small_data_is_read_completely_and_cut_anywhere_like_large(name: str) -> None:
    codec, compress = WRITERS[name]
    for data in (b"", b"a", NOISE[:100], TEXT[:3000]):
        if data or name not in ("snappy java twice", "snappy java", "snappy java small blocks"):
            assert inflate(codec, compress(data), len(data)).data == data
            assert inflate(codec, compress(data), 10 * MOST).data == data


# --- what strict readers of LZ4 reject ----------------------------------------------------------------------


PLAIN = TEXT[:5000]
CHECKED = lz4.frame.compress(
    PLAIN, content_checksum=True, block_checksum=True, block_linked=False, store_size=False
)
BLOCK, CONTENT = (int.from_bytes(CHECKED[at : at + 4], "little") for at in (-12, len(CHECKED) - 4))
HEADER = CHECKED[6]
OLD_HEADER = xxh32(CHECKED[:6]) >> 8 & 0xFF
BAD_HEADER = HEADER ^ 0x80


def flawed(at: int, replacement: bytes) -> bytes:
    frame = bytearray(CHECKED)
    frame[at : at + len(replacement)] = replacement
    return bytes(frame)


BAD_CONTENT, BAD_BLOCK = flawed(len(CHECKED) - 4, b"\1\0\0\0"), flawed(len(CHECKED) - 12, b"\1\0\0\0")
LINKED_FLAGS = bytes([CHECKED[4] & ~0x20, CHECKED[5]])  # a single block, but declared as linked
LINKED = flawed(4, LINKED_FLAGS + bytes([xxh32(LINKED_FLAGS) >> 8 & 0xFF]))
IN_HEADER = f"LZ4 header checksum stored {BAD_HEADER}, computed {HEADER}; "
OLD = (
    f"LZ4 header checksum stored {OLD_HEADER}, computed {HEADER}; as Kafka 0.8 and 0.9 wrote it; later ones "
)
IGNORED = "Kafka ignores it, strict readers reject it"


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("frame", "magic", "flaw"),
    [
        (CHECKED, 2, None),
        (CHECKED, 0, None),
        (BAD_CONTENT, 2, f"LZ4 content checksum stored 1, computed {CONTENT}; {IGNORED}"),
        (BAD_BLOCK, 1, f"LZ4 block checksum stored 1, computed {BLOCK}; Kafka rejects it"),
        (flawed(6, bytes([OLD_HEADER])), 1, f"{OLD}reject it"),
        (flawed(6, bytes([OLD_HEADER])), 2, f"{OLD}reject it"),
        (flawed(6, bytes([OLD_HEADER])), 0, None),
        (flawed(6, bytes([BAD_HEADER])), 0, IN_HEADER + IGNORED),
        (flawed(6, bytes([BAD_HEADER])), 2, f"{IN_HEADER}Kafka rejects it"),
        (LINKED, 2, "LZ4 frame of linked blocks; Kafka's own reader rejects it"),
    ],
)
def test_a_flaw_of_an_lz4_frame_is_named_and_costs_nothing(
    frame: bytes, magic: int, flaw: str | None, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not at_once:
        monkeypatch.setattr(compression, "_at_once", lambda *_: None)
    inflated = Budget().inflate(LZ4, frame, DEFAULT, magic)
    assert (inflated.data, inflated.fault) == (PLAIN, None)
    assert [each.text for each in inflated.flaws] == ([] if flaw is None else [flaw])


def test_the_first_flaw_of_each_kind_is_named() -> None:
    inflated = inflate(LZ4, BAD_CONTENT * 3 + LINKED * 2, MOST)
    assert inflated.data == PLAIN * 5
    assert [flaw.kind for flaw in inflated.flaws] == ["lz4_checksum_mismatch", "lz4_linked_blocks"]


@pytest.mark.parametrize(("data", "expected"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_the_hash_is_that_of_its_specification(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected


def test_an_lz4_frame_that_lies_about_its_size_shows_what_is_there() -> None:
    frame = bytearray(lz4.frame.compress(TEXT[:500], store_size=True))
    for announced in (0, 499, 501, MOST, MOST + 1, 2**62, 2**64 - 1):
        frame[6:14] = announced.to_bytes(8, "little")
        assert inflate(LZ4, bytes(frame), MOST)[:2] == (TEXT[:500], None)


def test_a_budget_is_for_all_that_is_inflated_with_it() -> None:
    limits = Limits(inflated_bytes=10_000, inflated_always_bytes=1000, inflated_ratio=10)
    packed = streamed_zstd(bytes(400))
    budget = Budget()
    assert [len(budget.inflate(ZSTD, packed, limits).data) for _ in range(4)] == [400, 400, 0, 0]
    assert budget.inflated == 1000
    brought = gzip.compress(NOISE[:800])
    assert budget.inflate(GZIP, brought, limits).data == NOISE[:800]
    assert (budget.compressed, budget.inflated) == (4 * len(packed) + len(brought), 1800)
    assert budget.inflate(ZSTD, packed, limits).data == bytes(400)


def test_later_exchanges_of_a_connection_have_smaller_budgets() -> None:
    limits = Limits(inflated_always_bytes=1000, inflated_always_exchanges=10, inflated_ratio=10)
    packed = streamed_zstd(bytes(1000))
    allowed = [Budget(number).inflate(ZSTD, packed, limits).fault is None for number in (0, 1, 10, 11)]
    assert allowed == [True, True, True, False]
    assert [max_inflated(1, limits, number) for number in (10, 20, 10_000)] == [1000, 500, 10]


# --- bombs --------------------------------------------------------------------------------------------------

# A zstd block of four bytes that stands for 128 KiB (RFC 8878, section 3.1.1.2.2), and a frame full of them.


def zstd_rle_bomb(blocks: int) -> bytes:
    header = b"\x28\xb5\x2f\xfd\x00\x38"  # window of 128 KiB
    block = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"A"
    return header + block * blocks


def snappy_announcing(length: int) -> bytes:
    out = bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length]) + b"\0" * 40


ZEROS = bytes(64 * MIB)
BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (GZIP, lambda: gzip.compress(ZEROS)),
    "gzip of gzip members": (GZIP, lambda: gzip.compress(bytes(MIB)) * 64),
    "lz4": (LZ4, lambda: lz4.frame.compress(ZEROS)),
    "lz4 large blocks": (LZ4, lambda: lz4.frame.compress(ZEROS, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd": (ZSTD, lambda: zstandard.ZstdCompressor(level=19).compress(ZEROS)),
    "zstd frames": (ZSTD, lambda: zstandard.ZstdCompressor().compress(bytes(MIB)) * 64),
    "zstd of one byte repeated": (ZSTD, lambda: zstd_rle_bomb(10_000)),
    "snappy": (SNAPPY, lambda: snappy.compress(ZEROS)),
    "snappy java": (SNAPPY, lambda: java_snappy(ZEROS)),
    "snappy that announces 4 GiB": (SNAPPY, lambda: snappy_announcing(2**32 - 1)),
    "snappy that announces 128 MiB": (SNAPPY, lambda: snappy_announcing(128 * MIB)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_no_more_than_the_bound(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    tracemalloc.start()
    try:
        plain, fault, _ = inflate(codec, bomb, MOST)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert plain == b""
    assert isinstance(fault, Oversized | Malformed)
    # One piece more than the bound: of LZ4 in its largest blocks 4 MiB, which its library has twice.
    assert peak < MOST + 9 * MIB


def test_what_the_libraries_allocate_themselves_is_no_more_either(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("bombs")
    for number, (codec, make) in enumerate(BOMBS.values()):
        (directory / f"{number:02}-{codec}").write_bytes(make())
    code = (
        "import pathlib, sys\n"
        "from kdissect.kafka.compression import inflate\n"
        "import lz4.block, snappy, zstandard\n"
        "from tests.peak import peak_kib\n"
        "before = peak_kib()\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    assert inflate(int(path.name[3:]), path.read_bytes(), 4 << 20).fault\n"
        "print(peak_kib() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 32 * 1024, f"{done.stdout} KiB"


def tiny_lz4(flags: int, count: int) -> bytes:
    """A frame of blocks of one byte each, not compressed."""
    block = (1 | 1 << 31).to_bytes(4, "little") + b"a"
    return b"\x04\x22\x4d\x18" + bytes([flags, 0x40, 0]) + block * count + bytes(4)


def flushed_zstd(count: int) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    blocks = [
        compressor.compress(b"a") + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for _ in range(count)
    ]
    return b"".join(blocks) + compressor.flush()


TINY: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "lz4 blocks that depend on the last": (LZ4, lambda count: tiny_lz4(0x40, count)),
    "lz4 independent blocks": (LZ4, lambda count: tiny_lz4(0x60, count)),
    "empty lz4 frames": (LZ4, lambda count: tiny_lz4(0x60, 0) * count),
    "empty snappy blocks": (SNAPPY, lambda count: java_snappy(b"")[:16] + b"\0\0\0\x01\0" * count),
    "empty gzip members": (GZIP, lambda count: gzip.compress(b"", mtime=0) * count),
    "empty zstd frames": (ZSTD, lambda count: zstandard.ZstdCompressor().compress(b"") * count),
    "zstd blocks": (ZSTD, flushed_zstd),
}


@pytest.mark.parametrize("name", TINY)
def test_millions_of_tiny_blocks_are_not_read_to_the_end(name: str) -> None:
    codec, make = TINY[name]
    few, many = make(400), make(10_000)
    assert inflate(codec, few, MOST).fault is None
    plain, fault, _ = inflate(codec, many, MOST)
    assert isinstance(fault, Malformed)
    most = 1000 + len(many) // 64
    assert len(plain) <= most
    assert f"more than {most} blocks" in str(fault)
