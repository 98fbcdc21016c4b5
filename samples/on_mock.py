"""Scenarios against librdkafka's mock cluster: three brokers on ports that the kernel chooses."""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
import with_aiokafka as aio
import with_kafka_python as kp
import with_librdkafka as rd
from brokers import MockCluster, mock_cluster
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from kafka.protocol.api_key import ApiKey
from recording import recording
from truth import Truth, librdkafka_log
from watching import watch_aiokafka, watch_kafka_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LIBRDKAFKA = f"librdkafka {confluent_kafka.libversion()[0]}"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

# Kafka's error codes that the mock cluster is configured to return.
NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS = 6, 7, 15, 19
PRODUCE, FETCH, METADATA, FIND_COORDINATOR = 0, 1, 3, 10


@contextmanager
def on_mock(
    directory: Path,
    name: str,
    clients: str,
    *options: str,
    brokers: int = 3,
    setup: Callable[[MockCluster], None] | None = None,
) -> Iterator[tuple[MockCluster, Truth]]:
    """A mock cluster with topics `plain` (1 partition) and `spread` (4), recorded while the block runs."""
    with mock_cluster(brokers) as cluster:
        truth = Truth(
            name,
            cluster.ports,
            {"broker": f"{LIBRDKAFKA} mock cluster, {brokers} brokers", "clients": clients},
        )
        truth.topics = {"plain": 1, "spread": 4}
        for topic, partitions in truth.topics.items():
            cluster.call("topic_create", topic, partitions, min(2, brokers))
        if setup:
            setup(cluster)
        with (
            recording(directory / f"{name}.pcap", cluster.ports, *options),
            librdkafka_log(truth, LIBRDKAFKA),
        ):
            yield cluster, truth
        for port, counts in sorted(cluster.requests().items()):
            truth.broker_requests[str(port)] = {
                ApiKey(key).name: count for key, count in sorted(counts.items())
            }
    truth.write(directory / f"{name}.truth.json")


def assorted(topic: str, count: int = 4) -> list[dict[str, Any]]:
    """Records of every shape: null, empty, unicode, bytes that are no text, several headers of one name."""
    shapes: list[dict[str, Any]] = [
        {"key": "k", "value": "v"},
        {"key": None, "value": "no key"},
        {"key": "tombstone", "value": None},
        {"key": b"", "value": b""},
        {"key": "schlüssel-鍵", "value": "héllo wörld, здравствуй, 世界 🦆"},
        {"key": b"\x00\xff\xfe", "value": bytes(range(256))},
        {
            "key": "with headers",
            "value": "x",
            "headers": [("a", b"1"), ("a", b"2"), ("null", None), ("ключ", "значение".encode())],
        },
        {"key": "long", "value": "abcdefghij" * 300},
    ]
    return [{"topic": topic, **shapes[i % len(shapes)]} for i in range(count)]


def mock_librdkafka(directory: Path) -> None:
    with on_mock(directory, "mock-librdkafka", LIBRDKAFKA) as (cluster, truth):
        where = cluster.bootstrap
        for codec in CODECS:
            config = rd.settings(where, f"codec-{codec}", compression_type=codec, linger_ms=30)
            rd.produce(truth, config, assorted("spread", 16))
        rd.produce(truth, rd.settings(where, "leader-only", acks=1), assorted("plain", 4))
        rd.produce(
            truth,
            rd.settings(where, "idempotent", enable_idempotence=True, linger_ms=5),
            assorted("plain", 8),
        )
        pipelined(truth, where)
        refused(truth, cluster)
        transactions(truth, where)

        config = rd.settings(
            where,
            "reader",
            group_id="readers",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        config["enable.auto.commit"] = False
        reader = Consumer(config)
        rd.attempt(
            truth,
            "reader",
            "offsets for times",
            lambda: reader.offsets_for_times([TopicPartition("plain", 0, 1)], 5),
        )
        low, high = reader.get_watermark_offsets(TopicPartition("plain", 0), timeout=5)
        truth.facts["watermarks of plain-0"] = [low, high]
        rd.subscribe(truth, reader, config, ["plain", "spread"])
        rd.read(truth, reader, config, sum(record["error"] is None for record in truth.produced), seconds=8)
        rd.commit(truth, reader, config)
        reader.committed([TopicPartition("plain", 0)], timeout=5)
        reader.close()


def pipelined(truth: Truth, where: str) -> None:
    """Many requests on one connection before the first is answered."""
    config = rd.settings(where, "pipelined", max_in_flight=20, batch_num_messages=2, linger_ms=0)
    rd.produce(
        truth,
        config,
        [{"topic": "plain", "partition": 0, "key": str(i), "value": "x" * i} for i in range(40)],
    )


def refused(truth: Truth, cluster: MockCluster) -> None:
    """Errors that the mock cluster was configured to return, and a topic that does not exist."""
    push_errors(cluster, PRODUCE, [NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS])
    config = rd.settings(cluster.bootstrap, "refused", retry_backoff_ms=20, retries=5)
    rd.produce(truth, config, assorted("plain", 1))
    truth.facts["produce errors answered"] = [
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS",
    ]
    cluster.call("topic_set_error", "forbidden", 29)
    config = rd.settings(cluster.bootstrap, "refused", message_timeout_ms=500)
    rd.produce(truth, config, assorted("forbidden", 1))


def push_errors(cluster: MockCluster, api_key: int, codes: list[int]) -> None:
    cluster.call("push_request_errors_array", api_key, len(codes), (ctypes.c_int * len(codes))(*codes))


def transactions(truth: Truth, where: str) -> None:
    """One transaction committed together with offsets of a group, one aborted."""
    config = rd.settings(where, "payments", transactional_id="pay-1", linger_ms=5)
    reader_config = rd.settings(where, "payments-in", group_id="pay-in", auto_offset_reset="earliest")
    reader_config["enable.auto.commit"] = False
    reader = rd.consume(truth, reader_config, ["plain"], 3)
    producer = Producer(config)
    producer.init_transactions(10)
    producer.begin_transaction()
    for record in assorted("spread", 6):
        rd.send(truth, producer, config, record)
    producer.send_offsets_to_transaction(
        [TopicPartition("plain", 0, 3)], reader.consumer_group_metadata(), 10
    )
    producer.commit_transaction(10)
    producer.begin_transaction()
    for record in assorted("spread", 3):
        rd.send(truth, producer, config, record)
    producer.flush(10)
    rd.attempt(truth, "payments", "abort", lambda: producer.abort_transaction(10))
    reader.close()
    producer.close()
    truth.facts["transactions"] = {"transactional_id": "pay-1", "committed": 1, "aborted": 1}


def mock_next_groups(directory: Path) -> None:
    """The consumer group protocol of KIP-848, share groups of KIP-932, telemetry of KIP-714."""

    def setup(cluster: MockCluster) -> None:
        cluster.call("telemetry_set_push_interval", 1000)
        cluster.call(
            "telemetry_set_requested_metrics", (ctypes.c_char_p * 1)(b"org.apache.kafka.producer"), 1
        )

    with on_mock(directory, "mock-next-groups", LIBRDKAFKA, setup=setup) as (cluster, truth):
        where = cluster.bootstrap
        config = rd.settings(where, "told", compression_type="zstd") | {"enable.metrics.push": True}
        producer = rd.produce(truth, config, assorted("spread", 12), close=False)
        members = [
            rd.settings(where, f"next-{i}", group_id="next", group_protocol="consumer") for i in (1, 2)
        ]
        consumers = []
        for config in members:
            config |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
            consumer = Consumer(config)
            consumers.append(consumer)
            rd.subscribe(truth, consumer, config, ["spread", "plain"])
            rd.read(truth, consumer, config, 12, seconds=3)
        until = time.monotonic() + 6
        while not all(consumer.assignment() for consumer in consumers) and time.monotonic() < until:
            for consumer, config in zip(consumers, members, strict=True):
                rd.read(truth, consumer, config, 1, seconds=0.2)
        rd.commit(truth, consumers[0], members[0])
        for consumer in consumers:
            consumer.close()
        share_group(truth, where, producer, config)
        producer.flush(5)
        producer.close()


def share_group(truth: Truth, where: str, producer: Producer, config: dict[str, Any]) -> None:
    config = rd.settings(where, "sharer", group_id="sharers") | {"share.acknowledgement.mode": "explicit"}
    sharer = ShareConsumer(config)
    sharer.subscribe(["spread"])
    until = time.monotonic() + 5
    while time.monotonic() < until and not any(r["client_id"] == "sharer" for r in truth.consumed):
        for record in assorted("spread", 2):
            rd.send(truth, producer, config, record)
        producer.poll(0.1)
        for message in sharer.poll(0.5) or []:
            truth.consumed.append(rd.consumed_record("sharer", message))
            sharer.acknowledge(message)
    rd.attempt(truth, "sharer", "commit", lambda: sharer.commit_sync(5))
    sharer.close()


def mock_rebalance(directory: Path) -> None:
    """Two static members of a group come and go, once with eager and once with cooperative rebalancing."""
    with on_mock(
        directory,
        "mock-rebalance",
        LIBRDKAFKA,
        setup=lambda c: c.call("group_initial_rebalance_delay_ms", 500),
    ) as (
        cluster,
        truth,
    ):
        where = cluster.bootstrap
        rd.produce(truth, rd.settings(where, "source", linger_ms=5), assorted("spread", 24))
        for strategy in ("range", "cooperative-sticky"):
            group = f"workers-{strategy}"
            common: dict[str, Any] = {
                "group_id": group,
                "partition_assignment_strategy": strategy,
                "auto_offset_reset": "earliest",
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 300,
                "enable_auto_commit": False,
            }
            configs = [
                rd.settings(where, f"{strategy}-{i}", **common, group_instance_id=f"{strategy}-{i}")
                for i in (1, 2)
            ]
            first = rd.consume(truth, configs[0], ["spread"], 24, seconds=6)
            rd.commit(truth, first, configs[0])
            second = Consumer(configs[1])
            rd.subscribe(truth, second, configs[1], ["spread"])
            until = time.monotonic() + 10
            while time.monotonic() < until and not (
                len(second.assignment()) == 2 and len(first.assignment()) == 2
            ):
                rd.read(truth, first, configs[0], 1, 0.2)
                rd.read(truth, second, configs[1], 1, 0.2)
            second.unsubscribe()
            rd.read(truth, first, configs[0], 1, 1)
            second.close()
            first.close()


def mock_acks0(directory: Path) -> None:
    """Producers of three libraries that want no answer; the mock cluster answers them all the same."""
    with on_mock(directory, "mock-acks0", f"{LIBRDKAFKA}, {kp.NAME}, {aio.NAME}") as (cluster, truth):
        where = cluster.bootstrap
        rd.produce(truth, rd.settings(where, "rd-acks0", acks=0, linger_ms=2), assorted("spread", 8))
        with watch_kafka_python(truth):
            kp.produce(truth, where, "kp-acks0", assorted("spread", 8), acks=0, api_version=(2, 3))
        with watch_aiokafka(truth):
            aio.run(truth, aio.produce(truth, where, "aio-acks0", assorted("spread", 8), acks=0))


def mock_kafka_python(directory: Path) -> None:
    with (
        on_mock(directory, "mock-kafka-python", kp.NAME, "--time-stamp-precision=nano") as (cluster, truth),
        watch_kafka_python(truth),
    ):
        where = cluster.bootstrap
        # Asks with ApiVersions v4; the mock cluster's refusal fits no layout, and kafka-python gives up.
        kp.attempt(
            truth, "asks", "connect", lambda: kp.produce(truth, where, "asks", [], bootstrap_timeout_ms=300)
        )
        # With the release configured, it requests v2.
        config = {"api_version": (2, 3)}
        for codec in CODECS:
            kp.produce(truth, where, f"codec-{codec}", assorted("spread", 8), codec=codec, **config)
        kp.produce(truth, where, "idempotent", assorted("plain", 4), enable_idempotence=True, **config)
        kp.consume_pair(truth, where, "kp-group", ["spread", "plain"], count=44, **config)
        kp.transaction(truth, where, **config)


def mock_aiokafka(directory: Path) -> None:
    with on_mock(directory, "mock-aiokafka", aio.NAME) as (cluster, truth), watch_aiokafka(truth):
        where = cluster.bootstrap
        for codec in CODECS:
            aio.run(truth, aio.produce(truth, where, f"codec-{codec}", assorted("spread", 8), codec=codec))
        aio.run(truth, aio.produce(truth, where, "idempotent", assorted("plain", 4), enable_idempotence=True))
        aio.run(truth, aio.consume_pair(truth, where, "aio-group", ["spread", "plain"], count=44, members=1))
        aio.run(truth, aio.transaction(truth, where))


# What brokers of these releases offered: api key -> highest version.
RELEASES: dict[str, dict[int, int]] = {
    "0.9.0": {0: 1, 1: 1, 2: 0, 3: 0, 8: 2, 9: 1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0},
    "0.10.2": {0: 2, 1: 3, 2: 1, 3: 2, 8: 2, 9: 2, 10: 0, 11: 1, 12: 0, 13: 0, 14: 0, 18: 0},
    "1.0.0": {0: 5, 1: 6, 2: 2, 3: 5, 8: 3, 9: 3, 10: 1, 11: 2, 12: 1, 13: 1, 14: 1, 18: 1, 22: 0},
    "2.0.0": {0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 18: 2, 22: 1},
    "2.3.0": {0: 7, 1: 11, 2: 5, 3: 8, 8: 7, 9: 5, 10: 2, 11: 5, 12: 3, 13: 2, 14: 3, 18: 2, 22: 1},
}


def mock_old_versions(directory: Path) -> None:
    """Each client as it speaks to older releases; the mock cluster offers what they offered."""
    with on_mock(directory, "mock-old-versions", f"{LIBRDKAFKA}, {kp.NAME}", brokers=1) as (cluster, truth):
        where = cluster.bootstrap
        for release, versions in RELEASES.items():
            for key, highest in versions.items():
                cluster.call("set_apiversion", key, 0, highest)
            common: dict[str, Any] = {}
            if ApiKey.ApiVersions not in versions:
                common = {"api_version_request": False, "broker_version_fallback": release}
            name = f"rd-{release}"
            config = rd.settings(where, name, compression_type="gzip", linger_ms=5, **common)
            rd.produce(truth, config, assorted("plain", 6 if release >= "1" else 2))
            config = rd.settings(where, name, group_id=name, auto_offset_reset="earliest", **common)
            config["enable.auto.commit"] = False
            reader = rd.consume(truth, config, ["plain"], 4, seconds=8)
            rd.attempt(
                truth, name, "commit", lambda reader=reader, config=config: rd.commit(truth, reader, config)
            )
            reader.close()
            with watch_kafka_python(truth):
                numbers = tuple(int(part) for part in release.split("."))
                kp.attempt(
                    truth,
                    f"kp-{release}",
                    "produce and consume",
                    lambda n=numbers: kp.old(truth, where, n, assorted("plain", 2)),
                )


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "mock-librdkafka": mock_librdkafka,
    "mock-kafka-python": mock_kafka_python,
    "mock-aiokafka": mock_aiokafka,
    "mock-next-groups": mock_next_groups,
    "mock-rebalance": mock_rebalance,
    "mock-acks0": mock_acks0,
    "mock-old-versions": mock_old_versions,
}
