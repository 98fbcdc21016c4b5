"""Steps of a scenario that aiokafka takes: what they learn goes into a Truth."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
    __version__,
)
from aiokafka.errors import KafkaError
from with_kafka_python import consumed_record, encoded, known_record

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from truth import Truth

NAME = f"aiokafka {__version__}"


def run(truth: Truth, steps: Coroutine[Any, Any, None], seconds: float = 25) -> None:
    """Run the steps to their end, or note that they found none."""
    try:
        asyncio.run(asyncio.wait_for(steps, seconds))
    except (KafkaError, TimeoutError) as error:
        truth.error("aiokafka", steps.__name__, f"{type(error).__name__}: {error}")


async def produce(
    truth: Truth,
    where: str,
    client_id: str,
    records: Iterable[dict[str, Any]],
    codec: str = "none",
    **more: Any,
) -> None:
    compression = None if codec == "none" else codec
    producer = AIOKafkaProducer(
        bootstrap_servers=where, client_id=client_id, compression_type=compression, linger_ms=20, **more
    )
    await producer.start()
    try:
        await send_all(truth, producer, client_id, records, codec, more.get("acks", -1))
    finally:
        await producer.stop()


async def send_all(
    truth: Truth, producer: Any, client_id: str, records: Iterable[dict[str, Any]], codec: str, acks: int
) -> None:
    waiting = []
    for record in records:
        record = encoded(record)
        known = known_record(client_id, record, codec, acks)
        truth.produced.append(known)
        waiting.append((known, await producer.send(**record)))
    await producer.flush()
    for known, future in waiting:
        try:
            report = await future
        except KafkaError as error:
            known["error"] = str(error)
            continue
        if report is not None:
            known["partition"] = report.partition
            known["offset"] = report.offset if report.offset >= 0 else None


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


async def member(truth: Truth, where: str, client_id: str, group: str, topics: list[str]) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=where,
        client_id=client_id,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        max_poll_interval_ms=10_000,
    )
    consumer.subscribe(topics, listener=Report(truth, client_id, group))
    await consumer.start()
    return consumer


async def read(truth: Truth, consumer: Any, client_id: str, count: int, seconds: float) -> int:
    got = 0
    until = time.monotonic() + seconds
    while got < count and time.monotonic() < until:
        for messages in (await consumer.getmany(timeout_ms=200)).values():
            for message in messages:
                got += 1
                truth.consumed.append(consumed_record(client_id, message))
    return got


async def commit(truth: Truth, consumer: Any, client_id: str, group: str) -> None:
    offsets = {partition: await consumer.position(partition) for partition in consumer.assignment()}
    await consumer.commit(offsets)
    for partition, offset in sorted(offsets.items()):
        truth.commits.append(
            {
                "client_id": client_id,
                "group_id": group,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": offset,
            }
        )


async def consume_pair(
    truth: Truth, where: str, group: str, topics: list[str], count: int, members: int = 2
) -> None:
    """One member reads all, asks for offsets and commits; a second may join; all leave."""
    first = await member(truth, where, f"{group}-1", group, topics)
    await read(truth, first, f"{group}-1", count, 8)
    await commit(truth, first, f"{group}-1", group)
    partition = TopicPartition(topics[0], 0)
    try:
        await first.beginning_offsets([partition])
        truth.facts[f"end of {partition.topic}-0"] = (await first.end_offsets([partition]))[partition]
        await first.offsets_for_times({partition: 1})
        await first.committed(partition)
    except KafkaError as error:
        truth.error(f"{group}-1", "offsets", error)
    if members == 1:
        await first.stop()
        return
    second = await member(truth, where, f"{group}-2", group, topics)
    until = time.monotonic() + 12
    while not (first.assignment() and second.assignment()) and time.monotonic() < until:
        await read(truth, first, f"{group}-1", 1, 0.2)
        await read(truth, second, f"{group}-2", 1, 0.2)
    await first.stop()
    await second.stop()


async def transaction(truth: Truth, where: str) -> None:
    """One transaction committed, one aborted."""
    producer = AIOKafkaProducer(bootstrap_servers=where, client_id="payments", transactional_id="pay-aio")
    record = {"topic": "plain", "key": "t", "value": "in a transaction"}
    try:
        await producer.start()
        await producer.begin_transaction()
        await send_all(truth, producer, "payments", [record, record], "none", -1)
        await producer.commit_transaction()
        await producer.begin_transaction()
        await send_all(truth, producer, "payments", [record], "none", -1)
        await producer.abort_transaction()
        truth.facts["transactions"] = {"transactional_id": "pay-aio", "committed": 1, "aborted": 1}
    except KafkaError as error:
        truth.error("payments", "transaction", f"{type(error).__name__}: {error}")
    finally:
        await producer.stop()
