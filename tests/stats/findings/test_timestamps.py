from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.kafka.records import RecordData
from kdissect.stats.findings.timestamps import FarTimestamps
from tests.exchange_factory import START_NS
from tests.findings import findings_of
from tests.producers import facts_of
from tests.record_batches import Item, batch, message_set

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts

NOW_MS = START_NS // 1_000_000
HOUR_MS, YEAR_MS = 3_600_000, 31_557_600_000


def produce(after_s: float, timestamp_ms: int) -> Facts:
    return written(after_s, batch([Item()], base_ms=timestamp_ms, max_ms=timestamp_ms))


def written(after_s: float, data: bytes) -> Facts:
    records = {"index": 0, "records": RecordData(data, 0, len(data))}
    request = {"acks": -1, "topic_data": [{"name": "orders", "partition_data": [records]}]}
    result = {"index": 0, "error_code": 0, "base_offset": 0}
    response = {"responses": [{"name": "orders", "partition_responses": [result]}]}
    return facts_of("Produce", 9, after_s, request, response)


def test_clocks_that_differ_a_little_and_old_data() -> None:
    usual = (NOW_MS, NOW_MS + HOUR_MS, NOW_MS - 10 * YEAR_MS, 0, -1)
    assert findings_of(FarTimestamps, [produce(1 + place, each) for place, each in enumerate(usual)]) == []


def test_seconds_and_microseconds() -> None:
    for timestamp_ms, text in (
        (1_700_000_000, "1970-01-20 16:13"),
        (1_900_000_000_000, "2030-03-17 17:46"),
        (NOW_MS * 1000, f"{NOW_MS * 1000:,} ms"),
    ):
        (row,) = findings_of(FarTimestamps, [produce(1, NOW_MS), produce(2, timestamp_ms)])
        assert (row.count, row.subject) == (1, "client payments, topic orders")
        assert row.message.startswith(f"1 batch with timestamps as far as {text}; the capture's clock says ")


def test_messages_of_the_old_formats() -> None:
    (row,) = findings_of(FarTimestamps, [written(1, message_set(1, [Item(timestamp_ms=1_700_000_000)]))])
    assert row.message.startswith("1 batch with timestamps as far as 1970-01-20 16:13; ")
    assert findings_of(FarTimestamps, [written(1, message_set(0, [Item()]))]) == [], "it has no timestamp"
