"""Batches and message sets for tests: whatever a producer or a broker could write, and what nobody should.

Written from the protocol guide with no code of ``kdissect.kafka``, so that a misunderstanding cannot be on
both sides.
"""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import lz4.frame
import snappy
import zstandard
from crc32c import crc32c

from kdissect.kafka.compression import xxh32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

BASE_MS = 1_700_000_000_000
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
LOG_APPEND, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
COMMIT_KEY, ABORT_KEY = b"\0\0\0\1", b"\0\0\0\0"
JAVA_SNAPPY = b"\x82SNAPPY\x00" + b"\0\0\0\1" * 2

Headers = tuple[tuple[bytes, bytes | None], ...]


class Item(NamedTuple):
    """What is put into a record."""

    key: bytes | None = None
    value: bytes | None = b"value"
    headers: Headers = ()
    timestamp_ms: int = BASE_MS
    offset: int | None = None  # relative; None: behind the one before


def java_snappy(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """As xerial's SnappyOutputStream writes it."""
    blocks = (snappy.compress(data[at : at + block_bytes]) for at in range(0, len(data), block_bytes))
    return JAVA_SNAPPY + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def java_lz4(data: bytes) -> bytes:
    """As Kafka's KafkaLZ4BlockOutputStream writes it: independent blocks of 64 KiB, no content size."""
    return lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )


def lz4_of_magic_0(data: bytes) -> bytes:
    """The same with KAFKA-3160: the header checksum also covers the frame's magic."""
    frame = bytearray(java_lz4(data))
    frame[6] = xxh32(bytes(frame[:6])) >> 8 & 0xFF
    return bytes(frame)


def streamed_zstd(data: bytes) -> bytes:
    """As a stream, whose frame does not have the size of its content."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


COMPRESS: dict[int, Callable[[bytes], bytes]] = {
    NONE: bytes,
    GZIP: lambda data: gzip.compress(data, mtime=0),
    SNAPPY: java_snappy,
    LZ4: java_lz4,
    ZSTD: streamed_zstd,
}


def varint(value: int) -> bytes:
    """Zigzag, in as few bytes as it takes."""
    value = value << 1 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def nullable(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(item: Item, offset_delta: int, *, base_ms: int = BASE_MS, length: int | None = None) -> bytes:
    """One record of magic 2; ``length``: a lie."""
    body = b"".join(
        [
            b"\0",
            varint(item.timestamp_ms - base_ms),
            varint(offset_delta),
            nullable(item.key),
            nullable(item.value),
            varint(len(item.headers)),
            *(nullable(part) for header in item.headers for part in header),
        ]
    )
    return varint(len(body) if length is None else length) + body


def batch(
    items: Sequence[Item] = (),
    *,
    codec: int = NONE,
    flags: int = 0,
    base_offset: int = 0,
    leader_epoch: int = 0,
    base_ms: int = BASE_MS,
    max_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    last_offset_delta: int | None = None,
    count: int | None = None,
    payload: bytes | None = None,
    compress: Callable[[bytes], bytes] | None = None,
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """One batch of magic 2; ``count``, ``crc``, ``length``: lies; ``payload``: instead of the records."""
    deltas = offsets(items)
    if payload is None:
        plain = b"".join(
            record(item, delta, base_ms=base_ms) for item, delta in zip(items, deltas, strict=True)
        )
        payload = (compress or COMPRESS[codec])(plain)
    if max_ms is None:
        max_ms = max((item.timestamp_ms for item in items), default=base_ms)
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else 0
    checked = (
        struct.pack(
            ">hiqqqhii",
            codec | flags,
            last_offset_delta,
            base_ms,
            max_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(items) if count is None else count,
        )
        + payload
    )
    rest = struct.pack(">ibI", leader_epoch, 2, crc32c(checked) if crc is None else crc) + checked
    return struct.pack(">qi", base_offset, len(rest) if length is None else length) + rest


def message(
    magic: int,
    item: Item = Item(),  # noqa: B008  (a tuple)
    *,
    offset: int = 0,
    attributes: int = 0,
    crc: int | None = None,
    size: int | None = None,
) -> bytes:
    """One message of magic 0 or 1."""
    checked = struct.pack(">bb", magic, attributes)
    if magic:
        checked += struct.pack(">q", item.timestamp_ms)
    for part in (item.key, item.value):
        checked += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    rest = struct.pack(">I", crc32(checked) if crc is None else crc) + checked
    return struct.pack(">qi", offset, len(rest) if size is None else size) + rest


def messages(magic: int, items: Sequence[Item], *, base_offset: int = 0, attributes: int = 0) -> bytes:
    """A set that is not compressed."""
    return b"".join(
        message(magic, item, offset=base_offset + delta, attributes=attributes)
        for item, delta in zip(items, offsets(items), strict=True)
    )


def message_set(
    magic: int,
    items: Sequence[Item],
    *,
    codec: int = NONE,
    base_offset: int = 0,
    flags: int = 0,
    wrapper_offset: int | None = None,
    wrapper_ms: int | None = None,
    compress: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """A set as a broker has it: with magic 1, offsets inside a compressed message are relative."""
    if codec == NONE:
        return messages(magic, items, base_offset=base_offset, attributes=flags)
    inner = messages(magic, items, base_offset=0 if magic else base_offset)
    if compress is None:
        compress = lz4_of_magic_0 if (magic, codec) == (0, LZ4) else COMPRESS[codec]
    if wrapper_offset is None:
        wrapper_offset = base_offset + offsets(items)[-1]
    if wrapper_ms is None:
        wrapper_ms = max(item.timestamp_ms for item in items)
    wrapper = Item(None, compress(inner), (), wrapper_ms)
    return message(magic, wrapper, offset=wrapper_offset, attributes=codec | flags)


def entries(magic: int, items: Sequence[Item], *, codec: int = NONE, base_offset: int = 0) -> bytes:
    """The same items in any format; magic 0 and 1 cannot hold headers."""
    if magic == 2:
        return batch(items, codec=codec, base_offset=base_offset)
    return message_set(magic, items, codec=codec, base_offset=base_offset)


def offsets(items: Iterable[Item]) -> list[int]:
    """The relative offset of each item."""
    result: list[int] = []
    for item in items:
        result.append(item.offset if item.offset is not None else (result[-1] + 1 if result else 0))
    return result
