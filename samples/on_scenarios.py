"""Scenarios in which something goes wrong, as operators know it, beside somebody with whom all is well."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import with_librdkafka as rd
from apache_kafka import BESIDE, console
from client_statistics import Statistics
from confluent_kafka import Consumer, KafkaException, Producer
from on_kafka import NEWEST, on_kafka
from on_mock import LIBRDKAFKA, assorted
from on_tansu import make_topics
from story import QUICK_QUOTA, admin

if TYPE_CHECKING:
    from collections.abc import Callable

    from truth import Truth

BY_ALL = f"{LIBRDKAFKA}, Apache Kafka {NEWEST}"
EARLIEST = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


def member(where: str, client_id: str, group_id: str) -> dict[str, Any]:
    """A member that would be missed after two seconds."""
    times = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 500, "fetch_wait_max_ms": 2000}
    return rd.settings(where, client_id, group_id=group_id, **EARLIEST, **times)


def have(consumers: list[Consumer], seconds: float = 15) -> None:
    """Let these poll until they share the topic's four partitions."""
    until = time.monotonic() + seconds
    while sum(len(each.assignment()) for each in consumers) != 4 or not all(
        each.assignment() for each in consumers
    ):
        if time.monotonic() > until:
            raise RuntimeError("the group does not come to rest")
        for each in consumers:
            each.poll(0.1)


def joined(truth: Truth, config: dict[str, Any], *others: Consumer) -> Consumer:
    """A new member of a group, when it and the others have their shares."""
    consumer = Consumer(config)
    rd.subscribe(truth, consumer, config, ["spread"])
    have([*others, consumer])
    return consumer


RESTLESS = "restless"
MORTAL = """
import sys
sys.path.insert(0, sys.argv[1])
from on_scenarios import RESTLESS, Consumer, member
consumer = Consumer(member(sys.argv[2], "mortal", RESTLESS))
consumer.subscribe(["spread"])
while True:
    consumer.poll(0.1)
"""


def kafka_4_storm(directory: Path) -> None:
    """A group in which one comes and leaves, again and again, and one dies; another group is calm."""
    settings = {"group_min_session_timeout_ms": "1000"}
    with on_kafka(directory, "kafka-4-storm", clients=LIBRDKAFKA, **settings) as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"spread": 4})
        rd.produce(truth, rd.settings(where, "source", linger_ms=5), assorted("spread", 8))
        calm = joined(truth, member(where, "calm", "calm"))
        steady = joined(truth, member(where, "steady", RESTLESS))
        did = [["calm", "calm", "joins"], [RESTLESS, "steady", "joins"]]
        for _ in range(4):
            restless = joined(truth, member(where, "restless", RESTLESS), steady)
            did.append([RESTLESS, "restless", "joins"])
            restless.close()
            have_alone(steady)
            did.append([RESTLESS, "restless", "leaves"])
        mortal = subprocess.Popen([sys.executable, "-c", MORTAL, str(Path(__file__).parent), where])
        while len(steady.assignment()) == 4:
            steady.poll(0.1)
        did.append([RESTLESS, "mortal", "joins"])
        while len(steady.assignment()) != 2:
            steady.poll(0.1)
        time.sleep(0.5)
        mortal.kill()
        mortal.wait()
        have_alone(steady)
        did.append([RESTLESS, "mortal", "dies"])
        calm.poll(0.5)
        steady.close()
        calm.close()
        truth.facts["did"] = did


def have_alone(consumer: Consumer) -> None:
    """Let it poll until it has heard that somebody left, and has all."""
    while len(consumer.assignment()) == 4:
        consumer.poll(0.1)
    have([consumer])


ROUNDS, IN_A_ROUND = 80, 25


def kafka_4_lag(directory: Path) -> None:
    """A group that keeps up with a producer and one that does not, and what Kafka's tools say of both."""
    clients = f"{LIBRDKAFKA}, tools of Apache Kafka {BESIDE}"
    with on_kafka(directory, "kafka-4-lag", clients=clients) as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"orders": 2})
        statistics = Statistics(truth)
        producer = Producer(rd.settings(where, "shop", linger_ms=20) | statistics.of("shop"))
        # Fetches a batch of each partition, and others when its program has taken all records of one.
        little = {"fetch_max_bytes": 4000, "message_max_bytes": 2000, "max_partition_fetch_bytes": 1300}
        little["queued_min_messages"] = 1
        configs = [
            rd.settings(where, "quick", group_id="quick", **EARLIEST) | statistics.of("quick"),
            rd.settings(where, "slow", group_id="slow", **EARLIEST, **little) | statistics.of("slow"),
        ]
        quick, slow = readers = [Consumer(config) for config in configs]
        for reader, config in zip(readers, configs, strict=True):
            rd.subscribe(truth, reader, config, ["orders"])
            while len(reader.assignment()) != 2:
                reader.poll(0.1)
        taken = dict.fromkeys(("quick", "slow"), 0)
        delivered: dict[str, int] = {"orders-0": 0, "orders-1": 0}
        for number in range(ROUNDS):
            partition = number % 2
            for item in range(IN_A_ROUND):
                value = f"order {number}.{item}: three ducks, two apples"
                producer.produce("orders", value, partition=partition)
            if producer.flush(10) == 0:
                delivered[f"orders-{partition}"] += IN_A_ROUND
            while taken["quick"] < IN_A_ROUND * (number + 1):
                taken["quick"] += len([one for one in quick.consume(IN_A_ROUND, 1) if not one.error()])
            # It has something new to commit each time, however slow the machine is.
            few = slow.consume(2, 5 if number % 10 in (0, 9) else 0.05)
            taken["slow"] += len([one for one in few if not one.error()])
            if number % 10 == 9:
                for reader, config in zip(readers, configs, strict=True):
                    rd.commit(truth, reader, config)
        for reader in readers:
            reader.pause(reader.assignment())
        truth.facts |= {"delivered": delivered, "taken": taken}
        truth.facts["kafka-consumer-groups"] = described(where, "quick") + described(where, "slow")
        truth.facts["kafka-log-dirs"] = log_dirs(where, "orders")
        statistics.last(shop=producer, quick=quick, slow=slow)
        for reader in readers:
            reader.close()
        producer.close()
        truth.note("facts.statistics: librdkafka's, the last before the client closed.")


def described(where: str, group_id: str) -> list[dict[str, Any]]:
    """What kafka-consumer-groups says of a group's offsets."""
    say = "consumer.group.ConsumerGroupCommand"
    printed = console(say, "--bootstrap-server", where, "--describe", "--group", group_id)
    rows = [line.split() for line in printed.splitlines() if line.split()]
    names = [name.lower() for name in rows[0]]
    cells = [dict(zip(names, row, strict=False)) for row in rows[1:]]
    numbers = ("partition", "current-offset", "log-end-offset", "lag")
    return [row | {name: int(row[name]) for name in numbers} for row in cells]


def log_dirs(where: str, topic: str) -> dict[str, int]:
    """What kafka-log-dirs says of the size of a topic's partitions."""
    printed = console("LogDirsCommand", "--bootstrap-server", where, "--describe", "--topic-list", topic)
    (line,) = (line for line in printed.splitlines() if line.startswith("{"))
    (broker,) = json.loads(line)["brokers"]
    return {each["partition"]: each["size"] for place in broker["logDirs"] for each in place["partitions"]}


def kafka_4_quota(directory: Path) -> None:
    """A producer and a consumer that quotas slow down, and one of each that may do as it likes."""
    with on_kafka(directory, "kafka-4-quota", clients=BY_ALL, **QUICK_QUOTA) as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"limited": 1, "free": 1})
        cluster.clients(
            truth,
            *(
                admin("set quota", quota={"client": client_id, "key": key, "value": value})
                for client_id, key, value in (
                    ("limited-writer", "producer_byte_rate", 4000),
                    ("limited-reader", "consumer_byte_rate", 6000),
                )
            ),
        )
        throttles: list[dict[str, Any]] = []

        def on_throttle(client_id: str) -> Callable[[Any], None]:
            def add(event: Any) -> None:
                milliseconds = round(event.throttle_time * 1000)
                if milliseconds:
                    throttles.append({"client_id": client_id, "throttle_time_ms": milliseconds})

            return add

        for topic in ("limited", "free"):
            client_id = f"{topic}-writer"
            config = rd.settings(where, client_id, linger_ms=0) | {"throttle_cb": on_throttle(client_id)}
            producer = Producer(config)
            for number in range(24):
                rd.send(truth, producer, config, {"topic": topic, "value": f"{number:3} " * 190})
                producer.flush(20)
            producer.poll(0.5)
            producer.close()
        for topic in ("limited", "free"):
            client_id = f"{topic}-reader"
            little = {"fetch_max_bytes": 2000, "message_max_bytes": 2000, "max_partition_fetch_bytes": 1000}
            config = rd.settings(where, client_id, group_id=client_id, **EARLIEST, **little)
            config["throttle_cb"] = on_throttle(client_id)
            reader = rd.consume(truth, config, [topic], 24)
            rd.commit(truth, reader, config)
            reader.poll(0.5)
            reader.close()
        truth.facts["throttled"] = throttles


def kafka_4_fenced(directory: Path) -> None:
    """Two producers with one transactional ID: the second ends the first; and one that is alone."""
    with on_kafka(directory, "kafka-4-fenced", clients=LIBRDKAFKA) as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"payments": 2})
        outcomes: dict[str, list[str]] = {}
        producers = {}

        def begin(client_id: str, transactional_id: str) -> dict[str, Any]:
            config = rd.settings(where, client_id, transactional_id=transactional_id, linger_ms=5)
            producers[client_id] = Producer(config)
            producers[client_id].init_transactions(20)
            write(client_id, config)
            return config

        def write(client_id: str, config: dict[str, Any]) -> None:
            producers[client_id].begin_transaction()
            for record in assorted("payments", 4):
                rd.send(truth, producers[client_id], config, record)
            producers[client_id].flush(10)

        def end(client_id: str) -> None:
            try:
                producers[client_id].commit_transaction(20)
                outcome = "committed"
            except KafkaException as error:
                truth.error(client_id, "commit", error)
                outcome = error.args[0].name()
            outcomes.setdefault(client_id, []).append(outcome)

        alone = begin("alone", "pay-alone")
        end("alone")
        begin("first", "pay-shared")
        second = begin("second", "pay-shared")
        end("first")
        end("second")
        write("second", second)
        end("second")
        write("alone", alone)
        end("alone")
        for client_id, producer in producers.items():
            rd.attempt(truth, client_id, "close", producer.close)
        truth.facts["outcomes"] = outcomes


def kafka_4_habits(directory: Path) -> None:
    """Each record in a batch of its own; each over a connection of its own; and as it should be."""
    with on_kafka(directory, "kafka-4-habits", clients=LIBRDKAFKA) as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"clicks": 1})
        statistics = Statistics(truth)
        delivered = {"single": 240, "gathering": 240, "hasty": 12}
        for client_id, linger_ms in (("single", 0), ("gathering", 200)):
            producer = Producer(rd.settings(where, client_id, linger_ms=linger_ms) | statistics.of(client_id))
            for number in range(delivered[client_id]):
                producer.produce("clicks", f"click {number}")
                if not linger_ms:
                    producer.flush(10)
            if producer.flush(10):
                raise RuntimeError("not all was delivered")
            statistics.last(**{client_id: producer})
            producer.close()
        for number in range(delivered["hasty"]):
            producer = Producer(rd.settings(where, "hasty", linger_ms=0))
            producer.produce("clicks", f"in haste {number}")
            if producer.flush(10):
                raise RuntimeError("not all was delivered")
            producer.close()
        truth.facts["delivered"] = delivered


def kafka_4_latecomer(directory: Path) -> None:
    """Clients that know their topics, and ten seconds later one that asks for them."""
    with on_kafka(directory, "kafka-4-latecomer", clients=LIBRDKAFKA) as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"orders": 2})
        # They ask for metadata when they start, and never again.
        at_rest = {"topic_metadata_refresh_interval_ms": -1, "metadata_max_age_ms": 86_400_000}
        writing = rd.settings(where, "shop", linger_ms=5, **at_rest)
        readers = {}
        for client_id in ("billing", "shipping"):
            config = rd.settings(where, client_id, group_id=client_id, **EARLIEST, **at_rest)
            readers[client_id] = rd.consume(truth, config, ["orders"], 0), config
        producer = Producer(writing)

        def write_and_read(rounds: int) -> None:
            for _ in range(rounds):
                for each in range(3):
                    number = len(truth.produced)
                    record = {"topic": "orders", "key": f"customer-{number % 7}", "value": f"order {number}"}
                    rd.send(truth, producer, writing, record | {"partition": each % 2})
                producer.flush(10)
                for reader, config in readers.values():
                    rd.read(truth, reader, config, 3)
                time.sleep(0.1)

        write_and_read(5)
        for _ in range(20):
            for reader, _ in readers.values():
                reader.poll(0.1)
        truth.facts["all at rest"] = time.time_ns()
        write_and_read(85)
        truth.facts["the latecomer"] = time.time_ns()
        late = rd.settings(where, "latecomer", linger_ms=5)
        rd.produce(truth, late, [{"topic": "orders", "value": "late"}])
        write_and_read(5)
        for reader, _ in readers.values():
            reader.close()
        producer.close()
        truth.note("facts: nanoseconds since 1970, by the clock of the packets")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "kafka-4-storm": kafka_4_storm,
    "kafka-4-lag": kafka_4_lag,
    "kafka-4-quota": kafka_4_quota,
    "kafka-4-fenced": kafka_4_fenced,
    "kafka-4-habits": kafka_4_habits,
    "kafka-4-latecomer": kafka_4_latecomer,
}
