"""Steps of a scenario that kafka-python takes: what they learn goes into a Truth."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from kafka.version import __version__
from truth import Truth, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NAME = f"kafka-python {__version__}"


def produce(
    truth: Truth,
    where: str,
    client_id: str,
    records: Iterable[dict[str, Any]],
    codec: str = "none",
    **more: Any,
) -> None:
    more.setdefault("enable_idempotence", False)
    compression = None if codec == "none" else codec
    producer = KafkaProducer(
        bootstrap_servers=where, client_id=client_id, compression_type=compression, linger_ms=20, **more
    )
    try:
        send_all(truth, producer, client_id, records, codec, more.get("acks", -1))
    finally:
        producer.close()


def send_all(
    truth: Truth,
    producer: Any,
    client_id: str,
    records: Iterable[dict[str, Any]],
    codec: str,
    acks: int | str,
) -> None:
    waiting = []
    for record in records:
        record = encoded(record)
        known = known_record(client_id, record, codec, acks)
        truth.produced.append(known)
        waiting.append((known, producer.send(**record)))
    producer.flush(20)
    for known, future in waiting:
        try:
            report = future.get(20)
            known["partition"] = report.partition
            known["offset"] = report.offset if report.offset >= 0 else None
        except KafkaError as error:
            known["error"] = str(error)


def encoded(record: dict[str, Any]) -> dict[str, Any]:
    """The same record with text as bytes: both Python clients take nothing else without a serializer."""
    out = dict(record)
    for name in ("key", "value"):
        if isinstance(out.get(name), str):
            out[name] = out[name].encode()
    # Neither client takes a header without a value.
    out["headers"] = [(name, value) for name, value in record.get("headers", []) if value is not None]
    return out


def known_record(client_id: str, record: dict[str, Any], codec: str, acks: int | str) -> dict[str, Any]:
    return {
        "client_id": client_id,
        "topic": record["topic"],
        "partition": None,
        "offset": None,
        "key": payload(record.get("key")),
        "value": payload(record.get("value")),
        "headers": [[name, payload(value)] for name, value in record.get("headers", [])],
        "codec": codec,
        "acks": acks,
        "error": None,
    }


class Report(ConsumerRebalanceListener):  # type: ignore[misc]
    """Notes what a member is given and what is taken from it."""

    def __init__(self, truth: Truth, client_id: str, group_id: str) -> None:
        self._report = lambda event, partitions: truth.groups.append(
            {
                "client_id": client_id,
                "group_id": group_id,
                "event": event,
                "member_id": None,
                "partitions": sorted([p.topic, p.partition] for p in partitions),
            }
        )

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Note what is taken."""
        self._report("revoked", revoked)

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Note what is given."""
        self._report("assigned", assigned)


def member(truth: Truth, where: str, client_id: str, group: str, topics: list[str], **more: Any) -> Any:
    settings = {
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 500,
        **more,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=where, client_id=client_id, group_id=group, enable_auto_commit=False, **settings
    )
    consumer.subscribe(topics, listener=Report(truth, client_id, group))
    return consumer


def read(truth: Truth, consumer: Any, client_id: str, count: int, seconds: float) -> int:
    got = 0
    until = time.monotonic() + seconds
    while got < count and time.monotonic() < until:
        for messages in consumer.poll(timeout_ms=200).values():
            for message in messages:
                got += 1
                truth.consumed.append(consumed_record(client_id, message))
    return got


def consumed_record(client_id: str, message: Any) -> dict[str, Any]:
    return {
        "client_id": client_id,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "key": payload(message.key),
        "value": payload(message.value),
        "headers": [[name, payload(value)] for name, value in message.headers or []],
    }


def commit(truth: Truth, consumer: Any, client_id: str, group: str) -> None:
    offsets = {
        partition: OffsetAndMetadata(consumer.position(partition), "", -1)
        for partition in consumer.assignment()
    }
    consumer.commit(offsets)
    for partition, value in sorted(offsets.items()):
        truth.commits.append(
            {
                "client_id": client_id,
                "group_id": group,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": value.offset,
            }
        )


def consume_pair(truth: Truth, where: str, group: str, topics: list[str], count: int, **more: Any) -> None:
    """One member reads all, commits and asks for offsets; a second joins; both leave."""
    first = member(truth, where, f"{group}-1", group, topics, **more)
    read(truth, first, f"{group}-1", count, 8)
    commit(truth, first, f"{group}-1", group)
    partition = TopicPartition(topics[0], 0)
    attempt(truth, f"{group}-1", "beginning offsets", lambda: first.beginning_offsets([partition]))
    ends = attempt(truth, f"{group}-1", "end offsets", lambda: first.end_offsets([partition]))
    truth.facts[f"end of {partition.topic}-0"] = ends and ends[partition]
    attempt(truth, f"{group}-1", "offsets for times", lambda: first.offsets_for_times({partition: 1}))
    attempt(truth, f"{group}-1", "committed", lambda: first.committed(partition))
    second = member(truth, where, f"{group}-2", group, topics, **more)
    attempt(truth, group, "share", lambda: share(truth, [(first, f"{group}-1"), (second, f"{group}-2")]))
    first.close()
    second.close()


def share(truth: Truth, members: list[tuple[Any, str]]) -> None:
    """Poll until each member has partitions. (The mock cluster refuses some a SyncGroup.)"""
    until = time.monotonic() + 12
    while not all(consumer.assignment() for consumer, _ in members) and time.monotonic() < until:
        for consumer, client_id in members:
            read(truth, consumer, client_id, 1, 0.2)


def transaction(truth: Truth, where: str, **more: Any) -> None:
    """One transaction committed, one aborted."""
    producer = KafkaProducer(bootstrap_servers=where, client_id="payments", transactional_id="pay-kp", **more)
    record = {"topic": "plain", "key": "t", "value": "in a transaction"}
    try:
        producer.init_transactions()
        producer.begin_transaction()
        send_all(truth, producer, "payments", [record, record], "none", -1)
        producer.commit_transaction()
        producer.begin_transaction()
        send_all(truth, producer, "payments", [record], "none", -1)
        producer.abort_transaction()
        truth.facts["transactions"] = {"transactional_id": "pay-kp", "committed": 1, "aborted": 1}
    except KafkaError as error:
        truth.error("payments", "transaction", error)
    finally:
        producer.close(timeout=2)


def old(truth: Truth, where: str, release: tuple[int, ...], records: list[dict[str, Any]]) -> None:
    """Produce and consume as kafka-python does with a broker that is said to be of this release."""
    name = "kp-" + ".".join(str(number) for number in release)
    if release < (0, 11):
        records = [{**record, "headers": []} for record in records]
    produce(truth, where, name, records, codec="gzip", api_version=release)
    consumer = member(truth, where, name, name, ["plain"], api_version=release)
    try:
        read(truth, consumer, name, 2, 6)
        commit(truth, consumer, name, name)
    finally:
        consumer.close()


def attempt(truth: Truth, client_id: str, doing: str, step: Callable[[], Any]) -> Any:
    try:
        return step()
    except (KafkaError, ValueError, AssertionError, NotImplementedError) as error:
        truth.error(client_id, doing, f"{type(error).__name__}: {error}")
        return None
