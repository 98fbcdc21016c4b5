"""Decoded record data for tests, and expected values."""

from __future__ import annotations

from typing import Any

import pytest

from kdissect.anomalies import CATALOGUE
from kdissect.kafka.batches import Batch, read_records
from kdissect.kafka.recordbatch import Record
from kdissect.kafka.records import RecordData
from tests.record_batches import BASE_MS, CODECS, CONTROL, TRANSACTIONAL, Item, batch

EVERY_FORMAT = pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in (0, 1, 2) for codec in CODECS]
)
ITEMS = [Item(b"key", b"value", (), BASE_MS + 7), Item(None, b"x" * 500, (), BASE_MS - 9), Item(b"", None)]
EMBEDDED_MARK = b"\0\0\0\0\0\5"


def decoded_batches(data: bytes, **options: Any) -> list[Batch]:
    """The same from a field of its own and from the middle of a frame."""
    alone = list(read_records(RecordData(data, 0, len(data)), **options))
    inside = list(read_records(RecordData(b"ab" + data + b"cdef" * 30, 2, 2 + len(data)), **options))
    assert alone == inside
    assert all(anomaly.kind in CATALOGUE for each in alone for anomaly in each.anomalies)
    return alone


def only(data: bytes, **options: Any) -> Batch:
    (result,) = decoded_batches(data, **options)
    return result


def kinds(result: Batch) -> list[str]:
    return [anomaly.kind for anomaly in result.anomalies]


def places(result: Batch) -> list[int]:
    return [record.offset for record in result.records]


def expected(magic: int, items: list[Item], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + place, item.timestamp_ms if magic else None, item.key, item.value)
        for place, item in enumerate(items)
    ]


def marker(key: bytes, producer_id: int, offset: int) -> bytes:
    return batch(
        [Item(key, EMBEDDED_MARK)], flags=TRANSACTIONAL | CONTROL, base_offset=offset, producer_id=producer_id
    )


def transactional(producer_id: int, offset: int, count: int = 2) -> bytes:
    return batch([Item()] * count, flags=TRANSACTIONAL, base_offset=offset, producer_id=producer_id)
