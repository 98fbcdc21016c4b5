"""Records with what the messages around them tell, from the bytes of a batch: no frames, no captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis.carried import carried, open_carried
from kdissect.kafka.records import RecordData
from tests.exchanges import exchange

if TYPE_CHECKING:
    from kdissect.analysis.carried import CarriedRecord
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
    """A Produce to partition 3; ``answer``: what the response says of it, None: there is none."""
    sent = {"topic_data": [{"name": topic, "partition_data": [{"index": 3, "records": data(raw)}]}]}
    told = {"name": topic, "partition_responses": [{"index": 3, **(answer or {})}]}
    return exchange("Produce", 9, sent, None if answer is None else {"responses": [told]})


def snapshot(raw: bytes, position: int, size: int, *, topic: str = "__cluster_metadata") -> Exchange:
    """A slice of a snapshot."""
    partition = {"index": 0, "snapshot_id": SNAPSHOT_ID, "size": size, "position": position}
    partitions = [{**partition, "unaligned_records": data(raw)}]
    return exchange("FetchSnapshot", 0, {}, {"topics": [{"name": topic, "partitions": partitions}]})


def opened(found: Exchange, **options: Any) -> list[CarriedRecord]:
    """Every record that an exchange carries."""
    return [
        record
        for each in carried(found)
        for opened_batch in open_carried(each, **options)
        for record in opened_batch
    ]
