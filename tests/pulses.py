"""What happens now, for tests: heartbeats, records written and read, offsets committed, and a pulse of
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import Pulse
from tests.exchange_factory import START_NS, connection
from tests.groups import join, sync
from tests.producers import facts_of
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    from kdissect.limits import Limits

SECOND_NS = 1_000_000_000
NOT_LEADER = 6
_BATCH = batch([Item(b"k", b"v")] * 10)
BATCH = RecordData(_BATCH, 0, len(_BATCH))


def at(seconds: float) -> int:
    return START_NS + round(seconds * SECOND_NS)


def beat(seconds: float, client: str = "app", *, error: int = 0, latency_ms: float = 5, **more: Any) -> Facts:
    """A heartbeat that names no group."""
    answer = {"throttle_time_ms": 0, "error_code": error}
    more.setdefault("connection", connection(client))
    latency_ns = round(latency_ms * 1_000_000)
    return facts_of("Heartbeat", 4, seconds, {"group_id": ""}, answer, client, latency_ns=latency_ns, **more)


def produce(seconds: float, topic: str = "orders", *, error: int = 0, offset: int = 0) -> Facts:
    """Ten records written."""
    entry = {"name": topic, "partition_data": [{"index": 0, "records": BATCH}]}
    answer = {
        "name": topic,
        "partition_responses": [{"index": 0, "error_code": error, "base_offset": offset}],
    }
    request = {"acks": -1, "topic_data": [entry]}
    return facts_of("Produce", 7, seconds, request, {"responses": [answer]}, "shop")


def fetch(seconds: float, topic: str = "orders", *, replica_id: int = -1, end: int = 10) -> Facts:
    """Ten records read, or replicated."""
    entry = {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0}]}
    row = {"partition_index": 0, "error_code": 0, "high_watermark": end, "records": BATCH}
    request = {"replica_id": replica_id, "max_wait_ms": 1, "topics": [entry]}
    response = {"error_code": 0, "responses": [{"topic": topic, "partitions": [row]}]}
    return facts_of("Fetch", 7, seconds, request, response, "reader")


def commit(seconds: float, offset: int, group: str = "billing", topic: str = "orders") -> Facts:
    """An offset committed."""
    entry = {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}
    row = {"name": topic, "partitions": [{"partition_index": 0, "error_code": 0}]}
    request = {"group_id": group, "generation_id_or_member_epoch": 1, "member_id": "m", "topics": [entry]}
    return facts_of("OffsetCommit", 8, seconds, request, {"topics": [row]}, "reader")


def fed(*facts: Facts, limits: Limits = DEFAULT) -> Pulse:
    """A pulse that was fed with them."""
    pulse = Pulse(limits)
    for each in facts:
        pulse.feed(each)
    return pulse


def busy() -> Pulse:
    """Ten seconds of a small cluster: two clients write and read, one fails, one group forms and falls
    behind."""
    facts = [Facts(join("reader", 1, 1, members=["reader"])), Facts(sync("reader", 2, 1, {"orders": [0]}))]
    for second in range(10):
        facts += [produce(second, offset=100 * second), fetch(second + 0.1, end=100 * second + 10)]
        facts += [beat(second + 0.2, latency_ms=1), beat(second + 0.3, latency_ms=20)]
    facts += [produce(9.4, "refunds", error=NOT_LEADER), commit(9.5, 400, "g")]
    pulse = fed(*facts)
    pulse.tick(at(9.9), 1234)
    return pulse
