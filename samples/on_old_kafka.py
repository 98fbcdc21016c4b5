"""Scenarios against Apache Kafka with ZooKeeper: for each release the same story, as far as it knows it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import request_log
from old_kafka import SETTINGS, WithZooKeeper, zookeeper_kafka
from recording import recording
from story import (
    ACL,
    OPEN,
    QUICK_QUOTA,
    QUOTA,
    SCRAM_USER,
    TOPICS,
    admin,
    all_over_the_wire,
    client,
    codecs,
    logins,
    members,
    moving_leader,
    produce,
    throttled,
    transactions,
)
from truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLAIN_AND_SCRAM = "PLAIN,SCRAM-SHA-256"
ZOOKEEPER_ADDRESS = SETTINGS["zookeeper.connect"]
OLD_AUTHORIZER = "kafka.security.auth.SimpleAclAuthorizer"
NEW_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


@contextmanager
def on_old_kafka(
    directory: Path, name: str, release: str, *, sasl: str | None = None, **settings: str
) -> Iterator[tuple[WithZooKeeper, Truth]]:
    """Two brokers of one release, running and recorded while the block runs."""
    with zookeeper_kafka(release, sasl=sasl, **settings) as cluster:
        programs = {"broker": f"Apache Kafka {release}, 2 brokers", "clients": f"Apache Kafka {release}"}
        truth = Truth(name, cluster.ports, programs)
        truth.topics = {str(topic["name"]): int(str(topic["partitions"])) for topic in TOPICS}
        for node in cluster.nodes:
            cluster.start(node)
        cluster.wait()
        before = cluster.settled()
        with recording(directory / f"{name}.pcap", cluster.ports, until_quiet=False):
            yield cluster, truth
            cluster.end()
        request_log.report(truth, cluster.answered(before))
    truth.write(directory / f"{name}.truth.json")


def kafka_2_8(directory: Path) -> None:
    """The first release whose whole story goes over the wire."""
    newer(directory, "kafka-2.8", "2.8.2")


def kafka_3_9_zookeeper(directory: Path) -> None:
    """The last release with ZooKeeper: the newest of what its controller says to brokers."""
    newer(directory, "kafka-3.9-zookeeper", "3.9.1")


def newer(directory: Path, name: str, release: str) -> None:
    settings = {"authorizer_class_name": NEW_AUTHORIZER, "delegation_token_master_key": "of-no-use"}
    settings |= OPEN | QUICK_QUOTA
    with on_old_kafka(directory, name, release, sasl=PLAIN_AND_SCRAM, **settings) as (cluster, truth):
        all_over_the_wire(cluster, truth)


def in_zookeeper(cluster: WithZooKeeper, *, scram: bool, quota: bool = True) -> None:
    """A user, a quota and an ACL, of which nothing is on the wire."""
    if scram:
        secret = f"SCRAM-SHA-256=[iterations=4096,password={SCRAM_USER['password']}]"
        change(cluster, "users", str(SCRAM_USER["name"]), secret)
    if quota:
        change(cluster, "clients", str(QUOTA["client"]), f"{QUOTA['key']}={QUOTA['value']}")


def change(cluster: WithZooKeeper, kind: str, name: str, config: str) -> None:
    entity = ("--entity-type", kind, "--entity-name", name)
    cluster.with_zookeeper("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", config)


def make_acl(cluster: WithZooKeeper) -> None:
    where = f"zookeeper.connect={ZOOKEEPER_ADDRESS}"
    for principal, operation in ((ACL["principal"], "All"), ("User:*", "Describe")):
        allow = ("--add", "--allow-principal", principal, "--operation", operation, "--topic", ACL["topic"])
        cluster.tool("kafka.admin.AclCommand", "--authorizer-properties", where, *allow)


def make_topics(cluster: WithZooKeeper) -> None:
    """A topic's partitions are led by the brokers by turns."""
    for topic in TOPICS:
        replicas = ["1:2", "2:1"] if topic.get("replicas") else ["1"]
        assignment = ("--replica-assignment", ",".join(replicas))
        cluster.with_zookeeper(
            "kafka.admin.TopicCommand", "--create", "--topic", str(topic["name"]), *assignment
        )
    time.sleep(1)


def elect_leaders(cluster: WithZooKeeper) -> None:
    cluster.with_zookeeper("kafka.admin.PreferredReplicaLeaderElectionCommand")


def describe_groups(cluster: WithZooKeeper, group: str, *options: str) -> None:
    """ListGroups, DescribeGroups and what else the tool asks."""
    tool, where = "kafka.admin.ConsumerGroupCommand", ("--bootstrap-server", cluster.bootstrap)
    cluster.tool(tool, *options, *where, "--list")
    cluster.tool(tool, *options, *where, "--describe", "--group", group)


ADMIN_0_11 = ("create topics", "describe topics", "list topics", "describe cluster", "set topic config")
ADMIN_0_11 += ("describe configs", "describe broker", "create acl", "describe acls")
ADMIN_1_1 = ("more partitions", "describe log dirs", "move log dir", "delete records")


def kafka_1_1(directory: Path) -> None:
    """Users, quotas and elections go through ZooKeeper, all else over the wire."""
    with_transactions(directory, "kafka-1.1", "1.1.1", ADMIN_1_1)


def kafka_0_11(directory: Path) -> None:
    """The first release with record batches, transactions and an admin client; logins by bare tokens."""
    with_transactions(directory, "kafka-0.11", "0.11.0.3", ())


def with_transactions(directory: Path, name: str, release: str, more: tuple[str, ...]) -> None:
    settings = {"authorizer_class_name": OLD_AUTHORIZER, **OPEN, **QUICK_QUOTA}
    with on_old_kafka(directory, name, release, sasl=PLAIN_AND_SCRAM, **settings) as (cluster, truth):
        in_zookeeper(cluster, scram=True)
        cluster.clients(
            truth,
            admin(*ADMIN_0_11),
            *codecs("none", "gzip", "snappy", "lz4"),
            members("spread", "readers"),
            *transactions(),
            produce("refused", "secret", 1, max_block_ms="1500"),
            throttled(),
        )
        logins(cluster, truth)
        moving_leader(cluster, truth, lambda: elect_leaders(cluster))
        describe_groups(cluster, "readers")
        cluster.clients(truth, admin(*more, "delete acl", "delete topics"))


def kafka_0_10_2(directory: Path) -> None:
    """Message sets of magic 1, the first SCRAM; topics and ACLs go through ZooKeeper."""
    settings = {"authorizer_class_name": OLD_AUTHORIZER, **OPEN, **QUICK_QUOTA}
    with on_old_kafka(directory, "kafka-0.10.2", "0.10.2.2", sasl=PLAIN_AND_SCRAM, **settings) as (
        cluster,
        truth,
    ):
        in_zookeeper(cluster, scram=True)
        make_acl(cluster)
        make_topics(cluster)
        without_transactions(cluster, truth)
        logins(cluster, truth)
        moving_leader(cluster, truth, lambda: elect_leaders(cluster))
        cluster.tool("kafka.admin.BrokerApiVersionsCommand", "--bootstrap-server", cluster.bootstrap)
        describe_groups(cluster, "readers", "--new-consumer")
        old_tools(cluster)


def kafka_0_9(directory: Path) -> None:
    """The first consumer groups on the wire, the first quotas; a login only with Kerberos."""
    settings = {"authorizer_class_name": OLD_AUTHORIZER, **OPEN, **QUICK_QUOTA}
    with on_old_kafka(directory, "kafka-0.9", "0.9.0.1", **settings) as (cluster, truth):
        in_zookeeper(cluster, scram=False)
        make_acl(cluster)
        make_topics(cluster)
        without_transactions(cluster, truth)
        moving_leader(cluster, truth, lambda: elect_leaders(cluster))
        describe_groups(cluster, "readers", "--new-consumer")
        old_tools(cluster)


def without_transactions(cluster: WithZooKeeper, truth: Truth) -> None:
    cluster.clients(
        truth,
        *codecs("none", "gzip", "snappy", "lz4"),
        members("spread", "readers"),
        produce("refused", "secret", 1, max_block_ms="1500"),
        throttled(),
    )


def old_tools(cluster: WithZooKeeper) -> None:
    """What the clients in Scala ask for, by the tools that use them."""
    brokers = ("--broker-list", cluster.bootstrap)
    cluster.tool("kafka.tools.GetOffsetShell", *brokers, "--topic", "spread", "--time", "-1")
    some = ("--topic", "plain", "--partition", "0", "--max-messages", "3")
    cluster.tool("kafka.tools.SimpleConsumerShell", *brokers, *some, "--no-wait-at-logend")


def kafka_0_8_2(directory: Path) -> None:
    """Two producers, and consumers that share a topic through ZooKeeper and commit to Kafka."""
    with on_old_kafka(directory, "kafka-0.8.2", "0.8.2.2") as (cluster, truth):
        make_topics(cluster)
        config = {"zookeeper_connect": ZOOKEEPER_ADDRESS, "consumer_timeout_ms": "200"}
        config |= {
            "auto_offset_reset": "smallest",
            "offsets_storage": "kafka",
            "dual_commit_enabled": "false",
        }
        config |= {"fetch_wait_max_ms": "500", "auto_commit_interval_ms": "2000"}
        readers = members("spread", "readers", **config)
        for member in readers["members"]:
            member["config"]["consumer.id"] = member["config"]["client.id"]
        cluster.clients(
            truth,
            *codecs("none", "gzip", "snappy", "lz4"),
            *by_scala("none", "gzip", "snappy"),
            {"do": "offsets", "config": client("simple"), "topic": "plain", "port": cluster.ports[0]},
        )
        with cluster.meanwhile(truth, readers):
            time.sleep(4.5)
            cluster.clients(truth, produce("late"))
        moving_leader(cluster, truth, lambda: elect_leaders(cluster))
        old_tools(cluster)


def by_scala(*names: str) -> list[dict[str, Any]]:
    return [
        produce(f"scala-{name}", count=3, compression_codec=name, request_required_acks="-1")
        | {"do": "produce by Scala"}
        for name in names
    ]


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "kafka-0.8.2": kafka_0_8_2,
    "kafka-0.9": kafka_0_9,
    "kafka-0.10.2": kafka_0_10_2,
    "kafka-0.11": kafka_0_11,
    "kafka-1.1": kafka_1_1,
    "kafka-2.8": kafka_2_8,
    "kafka-3.9-zookeeper": kafka_3_9_zookeeper,
}
