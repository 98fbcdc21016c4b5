"""Exchanges of producers for tests: a coordinator, brokers and clients, each on a connection of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.exchanges.fetch_sessions import FetchSessions
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from tests.exchange_factory import START_NS, connection, exchange
from tests.record_batches import CONTROL, TRANSACTIONAL, Item, batch

if TYPE_CHECKING:
    from kdissect.model import Body

SECOND_NS = 1_000_000_000
PRODUCER_FENCED, CONCURRENT_TRANSACTIONS = 90, 51
OUT_OF_ORDER = 45


def facts_of(
    api: str,
    version: int,
    after_s: float,
    request: Body,
    response: Body | None,
    client: str = "payments",
    **more: Any,
) -> Facts:
    """One exchange, so many seconds behind START_NS; its number is the millisecond."""
    more.setdefault("connection", connection(f"{client}-{api}", f"10.0.0.{len(client)}"))
    more.setdefault("number", round(after_s * 1000))
    time_ns = START_NS + round(after_s * SECOND_NS)
    of = exchange(api, version, request, response, time_ns=time_ns, client_id=client, **more)
    return Facts(of, FetchSessions(DEFAULT))


def init(
    after_s: float,
    epoch: int = 0,
    *,
    name: str | None = "pay",
    error: int = 0,
    timeout_ms: int = 60_000,
    **more: Any,
) -> Facts:
    request = {"transactional_id": name, "transaction_timeout_ms": timeout_ms}
    response = {"error_code": error, "producer_id": 7, "producer_epoch": epoch}
    return facts_of("InitProducerId", 1, after_s, request, response, **more)


def add(after_s: float, epoch: int = 0, *, error: int = 0, **more: Any) -> Facts:
    request = {
        "v3_and_below_transactional_id": "pay",
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
    }
    result = {"partition_index": 0, "partition_error_code": error}
    response = {"results_by_topic_v3_and_below": [{"name": "orders", "results_by_partition": [result]}]}
    return facts_of("AddPartitionsToTxn", 1, after_s, request, response, **more)


def add_for(after_s: float, epoch: int, *, verify_only: bool) -> Facts:
    """A broker asks the coordinator."""
    entry = {
        "transactional_id": "pay",
        "producer_id": 7,
        "producer_epoch": epoch,
        "verify_only": verify_only,
        "topics": [{"name": "orders", "partitions": [0]}],
    }
    response = {"error_code": 0, "results_by_transaction": [{"transactional_id": "pay", "topic_results": []}]}
    return facts_of("AddPartitionsToTxn", 5, after_s, {"transactions": [entry]}, response, "broker")


def produce(
    after_s: float,
    base_sequence: int,
    records: int = 1,
    epoch: int = 0,
    *,
    name: str | None = "pay",
    error: int = 0,
    partition: int = 0,
    answered: bool = True,
    **more: Any,
) -> Facts:
    data = batch(
        [Item()] * records,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        flags=TRANSACTIONAL if name else 0,
    )
    written = {"index": partition, "records": RecordData(data, 0, len(data))}
    result = {"index": partition, "error_code": error, "base_offset": 0}
    request = {
        "transactional_id": name,
        "acks": -1,
        "topic_data": [{"name": "orders", "partition_data": [written]}],
    }
    response = {"responses": [{"name": "orders", "partition_responses": [result]}]}
    return facts_of("Produce", 9, after_s, request, response if answered else None, **more)


def commit_offsets(after_s: float, epoch: int = 0) -> Facts:
    entry = {"name": "in", "partitions": [{"partition_index": 0, "committed_offset": 3}]}
    request = {
        "transactional_id": "pay",
        "group_id": "g",
        "producer_id": 7,
        "producer_epoch": epoch,
        "topics": [entry],
    }
    answer = {"name": "in", "partitions": [{"partition_index": 0, "error_code": 0}]}
    return facts_of("TxnOffsetCommit", 2, after_s, request, {"topics": [answer]})


def end(
    after_s: float, epoch: int = 0, *, commits: bool = True, error: int = 0, bumped: int | None = None
) -> Facts:
    request = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": epoch, "committed": commits}
    response: dict[str, Any] = {"error_code": error}
    if bumped is not None:
        response |= {"producer_id": 7, "producer_epoch": bumped}
    return facts_of("EndTxn", 1 if bumped is None else 5, after_s, request, response)


def mark(after_s: float, epoch: int = 0, *, commits: bool = True) -> Facts:
    entry = {
        "producer_id": 7,
        "producer_epoch": epoch,
        "transaction_result": commits,
        "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
    }
    return facts_of("WriteTxnMarkers", 1, after_s, {"markers": [entry]}, {"markers": []}, "broker")


def fetch_markers(after_s: float) -> Facts:
    """A consumer gets a control batch."""
    data = batch([Item()], producer_id=7, producer_epoch=0, flags=TRANSACTIONAL | CONTROL)
    answer = {"partition_index": 0, "error_code": 0, "records": RecordData(data, 0, len(data))}
    response = {"responses": [{"topic": "orders", "partitions": [answer]}]}
    return facts_of("Fetch", 7, after_s, {"replica_id": -1, "topics": []}, response, "reader")
