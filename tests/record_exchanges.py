"""Records with their context, from the bytes of a batch: without frames or captures."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.partition_records import decode_batches, partition_records
from kdissect.kafka.records import RecordData
from tests.exchange_factory import exchange
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.exchanges.partition_records import CarriedRecord, DecodedBatch
    from kdissect.model import Exchange

SNAPSHOT_ID = {"end_offset": 90, "epoch": 3}


def data(raw: bytes) -> RecordData:
    """Record data somewhere in a frame."""
    return RecordData(b"??" + raw, 2, 2 + len(raw))


def fetch(raw: bytes, *, topic: str = "orders", partition: dict[str, Any] | None = None) -> Exchange:
    """A Fetch of partition 3."""
    partitions = [{"partition_index": 3, "records": data(raw), **(partition or {})}]
    return exchange("Fetch", 11, {}, {"responses": [{"topic": topic, "partitions": partitions}]})


def produce(raw: bytes, answer: dict[str, Any] | None = None, *, topic: str = "orders") -> Exchange:
    """A Produce to partition 3; ``answer``: its struct in the response. None: no response."""
    sent = {"topic_data": [{"name": topic, "partition_data": [{"index": 3, "records": data(raw)}]}]}
    topic_response = {"name": topic, "partition_responses": [{"index": 3, **(answer or {})}]}
    return exchange("Produce", 9, sent, None if answer is None else {"responses": [topic_response]})


def snapshot(raw: bytes, position: int, size: int, *, topic: str = "__cluster_metadata") -> Exchange:
    """A slice of a snapshot."""
    partition = {"index": 0, "snapshot_id": SNAPSHOT_ID, "size": size, "position": position}
    partitions = [{**partition, "unaligned_records": data(raw)}]
    return exchange("FetchSnapshot", 0, {}, {"topics": [{"name": topic, "partitions": partitions}]})


def long_batch(odd: Iterable[int], count: int = 150) -> bytes:
    """A batch in which records in odd places say more than the others: of a trace, of schemas, of nothing
    though they begin as those do.
    """
    mores = cycle((
        Item(headers=((b"b3", b"80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1"), (b"a", None))),
        Item(b"\0\0\1\x86\xa1avro", b"\0\0\0\0\x07avro"),
        Item(b"", b"\0"),
        Item(b"\xff", None, timestamp_ms=-1),
    ))  # fmt: skip
    items = [Item(b"%d" % place, b'"%d"' % place) for place in range(count)]
    for place in odd:
        items[place] = next(mores)
    return batch(items)


def batches_of(*exchanges: Exchange) -> list[DecodedBatch]:
    """All their batches."""
    return [
        batch
        for exchange in exchanges
        for each in partition_records(exchange)
        for batch in decode_batches(each)
    ]


def opened(fetched: Exchange, **options: Any) -> list[CarriedRecord]:
    """Every record that an exchange carries."""
    return [
        record
        for each in partition_records(fetched)
        for opened_batch in decode_batches(each, **options)
        for record in opened_batch
    ]
