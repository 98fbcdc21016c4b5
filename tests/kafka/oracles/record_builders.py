"""The record builders and readers of kafka-python and aiokafka, with one shape for both."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.record_batches import BASE_MS, LZ4, ZSTD, Item, offsets

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's import uses importlib.resources
    import kafka.codec as kafka_python_codec
    import kafka.record.default_records as kafka_python_default
    import kafka.record.legacy_records as kafka_python_legacy
    import kafka.record.memory_records as kafka_python_memory
import aiokafka.record.default_records as aiokafka_default
import aiokafka.record.legacy_records as aiokafka_legacy
import aiokafka.record.memory_records as aiokafka_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.recordbatch import Record

_SIZE = 1 << 24


class Implementation(NamedTuple):
    """Modules of one client."""

    name: str
    default: Any
    legacy: Any
    memory: Any


class Seen(NamedTuple):
    """A record as any reader shows it."""

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


IMPLEMENTATIONS = (
    Implementation("kafka-python", kafka_python_default, kafka_python_legacy, kafka_python_memory),
    Implementation("aiokafka", aiokafka_default, aiokafka_legacy, aiokafka_memory),
)


def writes(magic: int, codec: int) -> bool:
    """LZ4 with magic 0 is refused by aiokafka, and has a test of its own; zstd came with magic 2."""
    return (magic, codec) != (0, LZ4) and not (magic < 2 and codec == ZSTD)


def write(
    implementation: Implementation,
    magic: int,
    codec: int,
    items: Sequence[Item],
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """A batch or set by their builder."""
    if magic == 2:
        builder = implementation.default.DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=transactional,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            batch_size=_SIZE,
        )
    else:
        builder = implementation.legacy.LegacyRecordBatchBuilder(
            magic=magic, compression_type=codec, batch_size=_SIZE
        )
    for item, offset in zip(items, offsets(items), strict=True):
        headers = [(key.decode(), value) for key, value in item.headers]
        options = {"headers": headers} if magic == 2 else {}
        timestamp = item.timestamp_ms if magic else None
        assert builder.append(offset, timestamp=timestamp, key=item.key, value=item.value, **options)
    return bytes(builder.build())


def read(implementation: Implementation, data: bytes) -> list[Seen]:
    """All records by their reader, whose checksums hold."""
    batches = implementation.memory.MemoryRecords(data)
    result = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        result += [
            Seen(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
            for record in batch
        ]
    return result


def ours(records: Sequence[Record]) -> list[Seen]:
    return [Seen(*record) for record in records]


def header_checksum(data: bytes) -> Any:
    """What kafka-python needs of the package xxhash: XXH32 of less than 16 bytes (its description, "XXH32
    algorithm", steps 5 to 7).
    """
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    whole = len(data) // 4 * 4
    result = prime5 + len(data)
    for at in range(0, whole, 4):
        result = _rotated(result + int.from_bytes(data[at : at + 4], "little") * prime3, 17) * prime4
    for byte in data[whole:]:
        result = _rotated(result + byte * prime5, 11) * prime1
    result &= 0xFFFFFFFF
    result = (result ^ result >> 15) * prime2 & 0xFFFFFFFF
    result = (result ^ result >> 13) * prime3 & 0xFFFFFFFF
    digest = (result ^ result >> 16).to_bytes(4, "big")
    return SimpleNamespace(digest=lambda: digest)


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> 32 - bits


def expected(magic: int, items: Sequence[Item], base_offset: int = 0) -> list[Seen]:
    return [
        Seen(
            base_offset + offset,
            item.timestamp_ms if magic else None,
            item.key,
            item.value,
            tuple((key.decode(), value) for key, value in item.headers) if magic == 2 else (),
        )
        for item, offset in zip(items, offsets(items), strict=True)
    ]


__all__ = [
    "BASE_MS",
    "IMPLEMENTATIONS",
    "Implementation",
    "expected",
    "header_checksum",
    "kafka_python_codec",
    "ours",
    "read",
    "write",
    "writes",
]
