"""Steps of a scenario that confluent-kafka (librdkafka) takes: what they learn goes into a Truth."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Message, Producer
from truth import Truth, payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

QUIET = {"enable.metrics.push": False}


def settings(bootstrap: str, client_id: str, **more: Any) -> dict[str, Any]:
    """A configuration that logs every request on file descriptor 2; `a_b=1` means a.b = 1."""
    named = {key.replace("_", "."): value for key, value in more.items()}
    return {"bootstrap.servers": bootstrap, "client.id": client_id, "debug": "protocol", **QUIET, **named}


def sent_record(record: dict[str, Any]) -> Callable[[Any, Message], None]:
    def delivered(error: Any, message: Message) -> None:
        record["partition"] = message.partition()
        record["offset"] = (
            message.offset() if not error and message.offset() is not None and message.offset() >= 0 else None
        )
        record["error"] = str(error) if error else None

    return delivered


def produce(
    truth: Truth, config: dict[str, Any], records: Iterable[dict[str, Any]], close: bool = True
) -> Producer:
    """Produce records, each the arguments of Producer.produce, and wait for their reports."""
    producer = Producer(config)
    for record in records:
        send(truth, producer, config, record)
    producer.flush(20)
    if close:
        producer.close()
    return producer


def send(truth: Truth, producer: Producer, config: dict[str, Any], record: dict[str, Any]) -> None:
    known = {
        "client_id": config["client.id"],
        "topic": record["topic"],
        "partition": None,
        "offset": None,
        "key": payload(record.get("key")),
        "value": payload(record.get("value")),
        "headers": [[name, payload(value)] for name, value in record.get("headers", [])],
        "codec": config.get("compression.type", "none"),
        "acks": config.get("acks", -1),
        "error": None,
    }
    truth.produced.append(known)
    producer.produce(**record, on_delivery=sent_record(known))


def consume(
    truth: Truth, config: dict[str, Any], topics: list[str], count: int, seconds: float = 20
) -> Consumer:
    """Join the group and read until `count` records have come; the consumer is left open."""
    consumer = Consumer(config)
    subscribe(truth, consumer, config, topics)
    read(truth, consumer, config, count, seconds)
    return consumer


def subscribe(truth: Truth, consumer: Consumer, config: dict[str, Any], topics: list[str]) -> None:
    def callback(event: str) -> Callable[[Consumer, list[Any]], None]:
        def report(who: Consumer, partitions: list[Any]) -> None:
            truth.groups.append(
                {
                    "client_id": config["client.id"],
                    "group_id": config["group.id"],
                    "event": event,
                    "member_id": who.memberid(),
                    "partitions": sorted([p.topic, p.partition] for p in partitions),
                }
            )

        return report

    consumer.subscribe(topics, on_assign=callback("assigned"), on_revoke=callback("revoked"))


def read(truth: Truth, consumer: Consumer, config: dict[str, Any], count: int, seconds: float = 20) -> int:
    until = time.monotonic() + seconds
    got = 0
    while got < count and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            truth.error(config["client.id"], "poll", message.error())
            continue
        got += 1
        truth.consumed.append(consumed_record(config["client.id"], message))
    return got


def consumed_record(client_id: str, message: Message) -> dict[str, Any]:
    return {
        "client_id": client_id,
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "key": payload(message.key()),
        "value": payload(message.value()),
        "headers": [[name, payload(value)] for name, value in message.headers() or []],
    }


def commit(truth: Truth, consumer: Consumer, config: dict[str, Any]) -> None:
    for partition in consumer.commit(asynchronous=False) or []:
        truth.commits.append(
            {
                "client_id": config["client.id"],
                "group_id": config["group.id"],
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": partition.offset,
            }
        )


def attempt(truth: Truth, client_id: str, doing: str, step: Callable[[], Any]) -> Any:
    """Do something that may well be refused; a refusal is part of the truth."""
    try:
        return step()
    except (KafkaException, ValueError) as error:
        truth.error(client_id, doing, error)
        return None


def settle(truth: Truth, client_id: str, doing: str, futures: dict[Any, Any]) -> None:
    """Wait for the futures of an admin call."""
    for what, future in futures.items():
        attempt(truth, client_id, f"{doing} {what}", lambda future=future: future.result(15))


def let_go() -> None:
    """An AdminClient has no close(): the handle goes with its last reference."""
    gc.collect()
