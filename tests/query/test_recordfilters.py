from __future__ import annotations

from typing import Any

import pytest

from kdissect.errors import UsageError
from kdissect.exchanges.partition_records import decode_batches, partition_records
from kdissect.kafka.records import RecordData
from kdissect.limits import Limits
from kdissect.query.record_filters import RecordCriteria, RecordFilter
from tests.exchange_factory import exchange
from tests.record_batches import COMMIT_KEY, CONTROL, Item, batch

GROUP_KEY = b"\0\2\0\2g1"
RAW = batch(
    [
        Item(b"a1", b"0", ((b"trace", b"4bf9"),)),
        Item(b"a2", b"1", ((b"null", None),)),
        Item(None),
        Item(b"\xff"),
    ],
    base_offset=10,
) + batch([Item(COMMIT_KEY, b"\0\0\0\0\0\7")], base_offset=14, flags=CONTROL)


def kept(
    *, produced: bool = False, topic: str = "orders", raw: bytes = RAW, **criteria: Any
) -> list[int | None]:
    """Offsets of what passes; of a Produce places in the batch."""
    return kept_by(RecordFilter(RecordCriteria(**criteria)), produced=produced, topic=topic, raw=raw)


def kept_by(
    chosen: RecordFilter, *, produced: bool = False, topic: str = "orders", raw: bytes = RAW
) -> list[Any]:
    records = RecordData(raw, 0, len(raw))
    if produced:
        body = {"topic_data": [{"name": topic, "partition_data": [{"index": 3, "records": records}]}]}
        item = exchange("Produce", 9, body)
    else:
        body = {"responses": [{"topic": topic, "partitions": [{"partition_index": 3, "records": records}]}]}
        item = exchange("Fetch", 11, {}, body)
    return [
        record.offset
        for each in partition_records(item)
        if chosen.matches_partition(each)
        for open_batch in decode_batches(each)
        for record in open_batch
        if chosen.matches(record)
    ]


def test_without_criteria_everything_passes() -> None:
    assert kept() == [10, 11, 12, 13, 14]
    assert kept(produced=True) == [None] * 5


def test_topics_and_partitions() -> None:
    assert kept(topics=["ord*"]) == kept(topics=["x", "orders"], partitions=["3"]) == kept()
    assert kept(topics=["payments"]) == kept(partitions=["2"]) == kept(partitions=["payments:3"]) == []
    assert kept(partitions=["orders:3"]) == kept()


def test_keys() -> None:
    assert kept(keys=["a*"]) == [10, 11]
    assert kept(keys=["a2", "\\xff"]) == [11, 13]
    assert kept(topic="__consumer_offsets", raw=batch([Item(GROUP_KEY, None)]), keys=["g?"]) == [0]


def test_headers() -> None:
    assert kept(headers=["trace"]) == kept(headers=["trace=4b*"]) == [10]
    assert kept(headers=["tr*", "null"]) == [10, 11]
    assert kept(headers=["null=*"]) == kept(headers=["trace=x"]) == []


def test_offsets() -> None:
    assert kept(offsets=["11..12"]) == [11, 12]
    assert kept(offsets=["12.."]) == [12, 13, 14]
    assert kept(offsets=["..10", "14"]) == [10, 14]
    assert kept(produced=True, offsets=["0.."]) == []


@pytest.mark.parametrize("text", ["", "..", "x", "5-9", "9..5", "-1", "1..2..3"])
def test_what_is_no_offset(text: str) -> None:
    with pytest.raises(UsageError):
        RecordFilter(RecordCriteria(offsets=[text]))


def test_traces_and_schemas() -> None:
    trace = b"0af7651916cd43dd8448eb211c80319c"
    headers = ((b"traceparent", b"00-" + trace + b"-b7ad6b7169203331-01"),)
    raw = batch([Item(headers=headers), Item(b"\0\0\0\0\x11k"), Item(None, b"\0\0\0\0\3v")])
    assert kept(raw=raw, traces=[trace.decode()]) == kept(raw=raw, traces=["0af7*"]) == [0]
    assert kept(raw=raw, traces=["x"]) == []
    assert kept(raw=raw, schemas=["17"]) == [1]
    assert kept(raw=raw, schemas=["17", "3"]) == [1, 2]


def test_control() -> None:
    assert kept(control=True) == [14]
    assert kept(control=False) == [10, 11, 12, 13]


def test_directions() -> None:
    chosen = RecordFilter(RecordCriteria(produced=True))
    assert kept_by(chosen) == []
    assert len(kept_by(chosen, produced=True)) == 5
    chosen = RecordFilter(RecordCriteria(fetched=True))
    assert len(kept_by(chosen)) == 5
    assert kept_by(chosen, produced=True) == []


def test_unique() -> None:
    chosen = RecordFilter(RecordCriteria(unique=True))
    assert len(kept_by(chosen)) == 5
    assert kept_by(chosen) == []
    assert len(kept_by(chosen, topic="others")) == 5
    assert len(kept_by(chosen, produced=True)) == 5  # of unknown offset: cannot be known


def test_unique_forgets_what_is_long_ago() -> None:
    chosen = RecordFilter(RecordCriteria(unique=True), Limits(unique_records=4))
    assert kept_by(chosen) == [10, 11, 12, 13, 14]
    assert chosen.forgotten == 1
    assert kept_by(chosen) == [10, 11, 12, 13, 14]
    assert RecordFilter(RecordCriteria()).forgotten == 0
