"""Scenarios against Apache Kafka itself."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import request_log
import with_aiokafka as aio
import with_kafka_python as kp
import with_librdkafka as rd
from apache_kafka import BESIDE, DATA, Cluster, compiled, jars, kafka, report_known, run_java
from confluent_kafka import Producer, TopicPartition
from on_mock import CODECS, LIBRDKAFKA, assorted
from on_tansu import admin_by_kafka_python, admin_by_librdkafka, make_topics, transactions
from recording import recording
from story import (
    ALICE,
    OPEN,
    QUICK_QUOTA,
    QUOTA,
    SCRAM_USER,
    admin,
    all_over_the_wire,
    client,
    login,
    members,
    moving_leader,
    produce,
    throttled,
)
from truth import Truth, librdkafka_log
from watching import watch_aiokafka, watch_kafka_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NEWEST = "4.4.0"
TEXT = "org.apache.kafka.common.serialization.Serdes$StringSerde"


@contextmanager
def on_kafka(
    directory: Path,
    name: str,
    release: str = NEWEST,
    nodes: int = 1,
    *,
    users: tuple[str, ...] = (),
    from_start: bool = False,
    clients: str = "",
    options: tuple[str, ...] = (),
    **settings: str,
) -> Iterator[tuple[Cluster, Truth]]:
    """Brokers of one release, recorded while the block runs, or from before their start."""
    clients = clients or f"{LIBRDKAFKA}, {kp.NAME}, {aio.NAME}, Apache Kafka {release}"
    broker = f"Apache Kafka {release}" + (f", {nodes} brokers" if nodes > 1 else "")
    with kafka(release, nodes, users, **settings) as cluster:
        cluster.options = options
        truth = Truth(name, cluster.ports, {"broker": broker, "clients": clients})
        if not from_start:
            start_all(cluster)
        before = cluster.positions() if not from_start else None
        with (
            recording(directory / f"{name}.pcap", cluster.ports, until_quiet=False),
            librdkafka_log(truth, LIBRDKAFKA),
            watch_kafka_python(truth),
            watch_aiokafka(truth),
        ):
            if from_start:
                start_all(cluster)
            yield cluster, truth
            rd.let_go()
            cluster.end()
        request_log.report(truth, cluster.answered(before))
        pushed = [
            reported
            for node in cluster.nodes
            for reported in request_log.telemetry(cluster.logged(node, before))
        ]
        if pushed:
            truth.facts["telemetry"] = pushed
    truth.write(directory / f"{name}.truth.json")


def start_all(cluster: Cluster) -> None:
    for node in cluster.nodes:
        cluster.start(node)
    cluster.wait()


def kafka_4_basics(directory: Path) -> None:
    """Each codec and each acks, groups of both protocols, admin calls, a quota that throttles."""
    with on_kafka(directory, "kafka-4-basics") as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"plain": 1, "spread": 2, "orders": 2, "old": 1})
        for codec in CODECS:
            config = rd.settings(where, f"codec-{codec}", compression_type=codec, linger_ms=30)
            rd.produce(truth, config, assorted("spread", 8))
        rd.produce(truth, rd.settings(where, "rd-acks0", acks=0, linger_ms=5), assorted("plain", 4))
        rd.produce(truth, rd.settings(where, "rd-acks1", acks=1, linger_ms=5), assorted("plain", 2))
        kp.produce(truth, where, "kp-idempotent", assorted("plain", 4), codec="zstd", enable_idempotence=True)
        aio.run(truth, aio.produce(truth, where, "aio-acks0", assorted("plain", 4), acks=0))
        config = rd.settings(where, "reader", group_id="readers", auto_offset_reset="earliest")
        config["enable.auto.commit"] = False
        reader = rd.consume(truth, config, ["orders", "spread"], 40)
        rd.commit(truth, reader, config)
        reader.close()
        kp.attempt(
            truth,
            "kp-group",
            "consume",
            lambda: kp.consume_pair(truth, where, "kp-group", ["spread", "plain"], count=54),
        )
        admin_by_librdkafka(truth, where)
        rd.let_go()
        admin_by_kafka_python(truth, where)
        cluster.clients(truth, *java_steps())


def java_steps() -> list[dict[str, Any]]:
    """Kafka's own clients: topics with configurations, acks, the new group protocol, a quota."""
    late = {"name": "late", "partitions": 2, "config": {"cleanup.policy": "compact"}}
    quota = {"client": "throttled", "key": "producer_byte_rate", "value": 50}
    member = client(
        "java-reader", group_id="java-readers", auto_offset_reset="earliest", group_protocol="consumer"
    )
    calls = ["create topics", "create topics", "describe topics", "set topic config", "set quota"]
    calls += ["describe quotas", "describe metadata quorum", "describe features", "elect leaders"]
    return [
        {"do": "admin", "config": client("java-admin"), "calls": calls, "topics": [late], "quota": quota},
        {
            "do": "produce",
            "config": client("java-zstd", compression_type="zstd"),
            "topic": "late",
            "count": 6,
        },
        {"do": "produce", "config": client("java-acks0", acks="0"), "topic": "late", "count": 3},
        {
            "do": "produce",
            "config": client("throttled", max_block_ms="9000"),
            "topic": "late",
            "count": 3,
            "repeat": 20,
        },
        {"do": "produce", "config": client("java-lost", max_block_ms="500"), "topic": "nowhere", "count": 1},
        {
            "do": "consume",
            "config": member | {"enable.auto.commit": "false"},
            "topics": ["late"],
            "count": 12,
        },
    ]


def kafka_4_transactions(directory: Path) -> None:
    """Transactions of all libraries, committed and aborted; readers of them, and of internal topics."""
    with on_kafka(directory, "kafka-4-transactions") as (cluster, truth):
        where = cluster.bootstrap
        make_topics(truth, where, {"plain": 1, "spread": 2})
        rd.produce(truth, rd.settings(where, "source", linger_ms=5), assorted("plain", 3))
        with_offsets(truth, where)
        kp.transaction(truth, where)
        aio.run(truth, aio.transaction(truth, where))
        transactional = client("java-payments", transactional_id="pay-java")
        ends = ["commit", "abort", "commit"]
        reader = client("java-committed", isolation_level="read_committed")
        cluster.clients(
            truth,
            {"do": "produce", "config": transactional, "topic": "spread", "count": 2, "transactions": ends},
            {"do": "consume", "config": reader, "topics": ["spread", "plain"], "count": 14, "seconds": 3},
            {"do": "admin", "config": client("java-admin"), "calls": ["list transactions"]},
        )
        for level in ("read_committed", "read_uncommitted"):
            config = rd.settings(
                where, level, group_id=level, auto_offset_reset="earliest", isolation_level=level
            )
            config["enable.auto.commit"] = False
            reader_ = rd.consume(truth, config, ["plain", "spread"], 30, seconds=2)
            rd.commit(truth, reader_, config)
            reader_.close()
        internal = {
            "do": "consume",
            "config": client("java-internal", exclude_internal_topics="false"),
            "topics": ["__consumer_offsets", "__transaction_state"],
            "count": 200,
            "seconds": 2,
        }
        cluster.clients(truth, internal)


def with_offsets(truth: Truth, where: str) -> None:
    """One transaction committed together with offsets of a group; then as elsewhere."""
    reading = rd.settings(where, "payments-in", group_id="pay-in", auto_offset_reset="earliest")
    reading["enable.auto.commit"] = False
    reader = rd.consume(truth, reading, ["plain"], 3)
    config = rd.settings(where, "payments-rd", transactional_id="pay-rd", linger_ms=5)
    producer = Producer(config)
    producer.init_transactions(20)
    producer.begin_transaction()
    for record in assorted("spread", 4):
        rd.send(truth, producer, config, record)
    offsets = [TopicPartition("plain", 0, 3)]
    producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 10)
    producer.commit_transaction(20)
    reader.close()
    producer.close()
    transactions(truth, where)


USERS = ("SCRAM-SHA-256=[name=bob,password=looking-glass-9]",)
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonderland-7";'


def kafka_4_sasl(directory: Path) -> None:
    """Logins with PLAIN and SCRAM-SHA-256, by each library; with each, one with a wrong password."""
    with on_kafka(directory, "kafka-4-sasl", users=USERS, sasl=JAAS) as (cluster, truth):
        make_topics(truth, cluster.bootstrap, {"plain": 1})
        where = cluster.sasl_bootstrap
        for mechanism, user, password in (
            ("PLAIN", "alice", "wonderland-7"),
            ("PLAIN", "alice", "wrong-pass-1"),
            ("SCRAM-SHA-256", "bob", "looking-glass-9"),
            ("SCRAM-SHA-256", "bob", "wrong-pass-2"),
        ):
            sasl_logins(truth, where, mechanism, user, password)
        for mechanism, module, user, password in (
            ("PLAIN", "plain.PlainLoginModule", "alice", "wonderland-7"),
            ("SCRAM-SHA-256", "scram.ScramLoginModule", "bob", "looking-glass-9"),
            ("SCRAM-SHA-256", "scram.ScramLoginModule", "bob", "wrong-pass-4"),
        ):
            config = client(f"java-{mechanism.lower()}", sasl_mechanism=mechanism, max_block_ms="2000")
            config["security.protocol"] = "SASL_PLAINTEXT"
            config["sasl.jaas.config"] = (
                f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
            )
            step = {"do": "produce", "config": config, "topic": "plain", "count": 1}
            cluster.clients(truth, step, where=where)
        truth.note("A Java client's logins (ApiVersions, SaslHandshake, SaslAuthenticate) are in no log.")


def sasl_logins(truth: Truth, where: str, mechanism: str, user: str, password: str) -> None:
    ending = f"{mechanism.lower()}-{user if password.startswith('wrong') else 'good'}"
    config = rd.settings(where, f"rd-{ending}", reconnect_backoff_ms=5000, compression_type="none")
    config |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    config |= {"sasl.username": user, "sasl.password": password, "message.timeout.ms": 1000}
    rd.produce(truth, config, assorted("plain", 1))
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    options |= {"sasl_plain_username": user, "sasl_plain_password": password}
    short: dict[str, Any] = {"bootstrap_timeout_ms": 800, "max_block_ms": 1000}
    kp.attempt(
        truth,
        f"kp-{ending}",
        "produce",
        lambda: kp.produce(truth, where, f"kp-{ending}", assorted("plain", 1), **options, **short),
    )
    aio.run(truth, aio.produce(truth, where, f"aio-{ending}", assorted("plain", 1), **options), seconds=5)


def kafka_4_kraft(directory: Path) -> None:
    """Three brokers from the first vote on: a topic, a user, a quota; the leader leaves and returns empty."""
    with on_kafka(
        directory,
        "kafka-4-kraft",
        nodes=3,
        from_start=True,
        metadata_log_max_record_bytes_between_snapshots="2000",
    ) as (cluster, truth):
        where = cluster.bootstrap
        topic = {"name": "spread", "partitions": 2, "replicas": 3, "config": {"retention.ms": "123456789"}}
        truth.topics["spread"] = 2
        user = {"name": "carol", "password": "through-the-looking-glass", "salt": "salt-of-carol"}
        quota = {"client": "throttled", "key": "producer_byte_rate", "value": 50}
        calls = [
            "create topics",
            "set topic config",
            "set user",
            "describe users",
            "set quota",
            "describe metadata quorum",
        ]
        step = {
            "do": "admin",
            "config": client("java-admin"),
            "topics": [topic],
            "user": user,
            "quota": quota,
        }
        cluster.clients(truth, step | {"calls": calls})
        rd.produce(truth, rd.settings(where, "producer", linger_ms=5), assorted("spread", 4))
        leader = cluster.leader()
        cluster.stop(leader)
        cluster.forget(leader)
        rd.produce(truth, rd.settings(where, "producer", linger_ms=5), assorted("spread", 2))
        cluster.start(leader)
        cluster.wait()
        time.sleep(2)


THREE = [
    {"name": "spread", "partitions": 2, "replicas": 3},
    {"name": "plain", "partitions": 1, "replicas": 1},
    {"name": "secret", "partitions": 1, "replicas": 1},
]
# With an authorizer, which before it knows its ACLs lets only super users vote; and one broker may be away.
AUTHORIZED = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
    "transaction_state_log_min_isr": "1",
    "share_coordinator_state_topic_min_isr": "1",
    **OPEN,
    **QUICK_QUOTA,
}


def kafka_3_9(directory: Path) -> None:
    """The last 3.x as a quorum of three; logins, an ACL, a quota, transactions, a leader that moves."""
    release = "3.9.1"
    settings = {"delegation_token_secret_key": "of-no-use", "sasl": JAAS, **AUTHORIZED}
    with on_kafka(directory, "kafka-3.9", release, 3, clients=f"Apache Kafka {release}", **settings) as (
        cluster,
        truth,
    ):
        truth.topics = {str(topic["name"]): int(str(topic["partitions"])) for topic in THREE}
        all_over_the_wire(cluster, truth, THREE)


def kafka_4_cluster(directory: Path) -> None:
    """Three brokers: an ACL, a quota, metrics that clients push, a share group, leaders that move."""
    settings = {
        **AUTHORIZED,
        "metric_reporters": "Receiver",
        "group_consumer_min_heartbeat_interval_ms": "700",
        "group_consumer_heartbeat_interval_ms": "700",
        "sasl": JAAS,
    }
    with on_kafka(directory, "kafka-4-cluster", nodes=3, clients=f"Apache Kafka {NEWEST}", **settings) as (
        cluster,
        truth,
    ):
        truth.topics = {str(topic["name"]): int(str(topic["partitions"])) for topic in THREE}
        metrics = {"metrics": "org.apache.kafka.producer.record.", "interval.ms": "1000"}
        configs = [
            {"type": "CLIENT_METRICS", "name": "records", "set": metrics | {"match": "client_id=telling"}},
            {"type": "GROUP", "name": "sharers", "set": {"share.auto.offset.reset": "earliest"}},
        ]
        first = ("create topics", "set configs", "set user", "create acl", "describe acls", "set quota")
        cluster.clients(
            truth,
            admin(*first, topics=THREE, configs=configs, user=SCRAM_USER, quota=QUOTA),
            produce("telling", count=8, pause=500),
            members("spread", "readers", group_protocol="consumer"),
            throttled(),
        )
        cluster.clients(truth, login("PLAIN", *ALICE), where=cluster.sasl_bootstrap)
        share_group(cluster, truth)
        moving_leader(
            cluster, truth, lambda: cluster.clients(truth, admin("elect leaders", "move", brokers=[3, 1]))
        )
        cluster.clients(
            truth, admin("list partition reassignments", "describe metadata quorum", "delete acl")
        )


def share_group(cluster: Cluster, truth: Truth) -> None:
    """Two members take records by turns, and give some of them back."""
    config = {"group_id": "sharers", "share_acknowledgement_mode": "explicit"}
    both = [
        {"config": client(f"sharer-{n}", **config), "topics": ["spread"], "seconds": seconds}
        for n, seconds in ((1, 8), (2, 4))
    ]
    with cluster.meanwhile(truth, {"do": "pair", "members": both}, main="Newest"):
        time.sleep(5)
        cluster.clients(truth, produce("late", count=6))
    calls = ["list groups", "describe share group", "share offsets", "set share offsets"]
    calls += ["delete share offsets", "delete share group", "describe producers", "list config resources"]
    step = {"do": "admin", "config": client("share-admin"), "calls": calls, "group": "sharers"}
    with cluster.meanwhile(truth, step | {"topic": "spread"}, main="Newest"):
        pass


def kafka_4_streams(directory: Path) -> None:
    """A Streams application that counts words, in a group as of old and in a streams group (KIP-1071)."""
    clients = f"Apache Kafka {NEWEST}, Kafka Streams {BESIDE}"
    settings = {
        "group_streams_min_heartbeat_interval_ms": "1000",
        "group_streams_heartbeat_interval_ms": "1000",
    }
    with on_kafka(directory, "kafka-4-streams", clients=clients, **settings) as (cluster, truth):
        topics = [{"name": name, "partitions": 2} for name in ("lines", "counts")]
        truth.topics = {"lines": 2, "counts": 2}
        cluster.clients(truth, admin("create topics", topics=topics), produce("writer", "lines", 6))
        for protocol in ("classic", "streams"):
            count_words(cluster, truth, f"count-{protocol}", protocol)
        calls = ["list groups", "describe streams group", "delete streams group"]
        step = {"do": "admin", "config": client("admin"), "calls": calls, "group": "count-streams"}
        with cluster.meanwhile(truth, step | {"topic": "counts"}, main="Newest"):
            pass
        cluster.clients(
            truth,
            {"do": "consume", "config": client("reader"), "topics": ["counts"], "count": 40, "seconds": 3},
        )


def count_words(cluster: Cluster, truth: Truth, name: str, protocol: str) -> None:
    config = client(name, application_id=name, group_protocol=protocol, commit_interval_ms="1000")
    config |= {"bootstrap.servers": cluster.bootstrap, "state.dir": str(DATA / "streams")}
    config |= {"default.key.serde": TEXT, "default.value.serde": TEXT}
    config |= {"main.consumer.auto.offset.reset": "earliest", "statestore.cache.max.bytes": "0"}
    step = {"do": "count words", "config": config, "from": "lines", "to": "counts", "seconds": 9}
    classes = [str(compiled(BESIDE, cluster.place / "streams")), f"{jars(BESIDE)}/*"]
    java = run_java("-cp", ":".join(classes), "Streams", json.dumps(step), log=subprocess.PIPE)
    report_known(truth, java)


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "kafka-4-basics": kafka_4_basics,
    "kafka-4-transactions": kafka_4_transactions,
    "kafka-4-sasl": kafka_4_sasl,
    "kafka-4-kraft": kafka_4_kraft,
    "kafka-4-cluster": kafka_4_cluster,
    "kafka-4-streams": kafka_4_streams,
    "kafka-3.9": kafka_3_9,
}
