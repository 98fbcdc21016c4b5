"""Steps for Kafka's own clients: what each capture of a release tells, as far as the release knows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from apache_kafka import Cluster
    from truth import Truth

COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
SCRAM_USER = {"name": "bob", "password": "looking-glass-9", "salt": "salt-of-bob"}
QUOTA = {"client": "throttled", "key": "producer_byte_rate", "value": 2000}
# A topic that only bob may write and read.
ACL = {"topic": "secret", "principal": "User:bob"}
# Who says so keeps the authorizer from refusing everything that nobody has allowed.
OPEN = {"allow_everyone_if_no_acl_found": "true"}
QUICK_QUOTA = {"quota_window_num": "2"}

# Logs in by PLAIN, whose users stand in a file of the broker's.
ALICE = ("alice", "wonderland-7")
TOPICS: list[dict[str, Any]] = [
    {"name": "spread", "partitions": 2, "replicas": 2},
    {"name": "plain", "partitions": 1},
    {"name": "secret", "partitions": 1},
]


def client(client_id: str, **config: str) -> dict[str, str]:
    """A configuration of Kafka's own clients; a_b=1 means a.b = 1."""
    return {"client.id": client_id, **{key.replace("_", "."): value for key, value in config.items()}}


def produce(client_id: str, topic: str = "spread", count: int = 4, **config: Any) -> dict[str, Any]:
    step = {
        name: config.pop(name)
        for name in ("repeat", "pause", "endless", "transactions", "offsets")
        if name in config
    }
    return {"do": "produce", "config": client(client_id, **config), "topic": topic, "count": count, **step}


def consume(client_id: str, topic: str, count: int, **config: Any) -> dict[str, Any]:
    step = {name: config.pop(name) for name in ("seconds",) if name in config}
    return {"do": "consume", "config": client(client_id, **config), "topics": [topic], "count": count, **step}


def members(topic: str, group: str, *, static: bool = False, **config: str) -> dict[str, Any]:
    """Two members of a group: the second makes the first share, and leaves it alone again."""
    config = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": "false", **config}
    if "group_protocol" not in config:  # of the newer protocol the broker says when
        config = {"heartbeat_interval_ms": "700", "session_timeout_ms": "6000", **config}
    both = [
        consume(f"{group}-1", topic, 1000, seconds=8, **config),
        consume(f"{group}-2", topic, 1000, seconds=3, **config),
    ]
    if static:
        for member in both:
            member["config"]["group.instance.id"] = member["config"]["client.id"]
    return {"do": "pair", "members": both}


def admin(*calls: str, **more: Any) -> dict[str, Any]:
    return {"do": "admin", "config": client("admin"), "calls": calls, "topics": TOPICS, "acl": ACL} | more


def codecs(*names: str) -> list[dict[str, Any]]:
    """A batch of each codec, and each acks."""
    steps = [produce(f"codec-{name}", count=6, compression_type=name, linger_ms="50") for name in names]
    steps += [produce("acks0", "plain", acks="0", linger_ms="50"), produce("acks1", "plain", 2, acks="1")]
    return steps


def throttled() -> dict[str, Any]:
    return produce("throttled", "plain", 4, repeat=150, max_block_ms="9000")


def login(mechanism: str, user: str, password: str, **config: Any) -> dict[str, Any]:
    """One record by a client that logs in: to the topic that is bob's."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    jaas = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
    good = "wrong" if password.startswith("wrong") else "good"
    config = {"sasl_mechanism": mechanism, "sasl_jaas_config": jaas, "max_block_ms": "2500", **config}
    # One that is refused tries again as fast as it may.
    config |= {"security_protocol": "SASL_PLAINTEXT", "reconnect_backoff_ms": "2000"}
    return produce(f"{mechanism.lower()}-{good}", "secret", 1, **config)


def transactions() -> list[dict[str, Any]]:
    """Committed and aborted, each with an offset of a group; readers of both isolation levels."""
    ends = ["commit", "abort", "commit"]
    offsets = {"group": "payments", "topic": "plain"}
    config = {"transactional_id": "pay", "linger_ms": "20"}
    return [
        produce("payments", "spread", 2, transactions=ends, offsets=offsets, **config),
        consume("committed", "spread", 1000, seconds=2, isolation_level="read_committed"),
        consume("uncommitted", "spread", 1000, seconds=2, isolation_level="read_uncommitted"),
    ]


def logins(cluster: Cluster, truth: Truth) -> None:
    """Alice may log in and is refused the topic, bob may write to it, and each forgets the password once."""
    steps = [
        login("PLAIN", *ALICE),
        login("PLAIN", "alice", "wrong-pass-1"),
        login("SCRAM-SHA-256", "bob", "looking-glass-9"),
        login("SCRAM-SHA-256", "bob", "wrong-pass-2"),
    ]
    cluster.clients(truth, *steps, where=cluster.sasl_bootstrap)
    truth.note("Logins (ApiVersions before them, SaslHandshake, SaslAuthenticate, tokens) are in no log.")


def moving_leader(cluster: Cluster, truth: Truth, elect: Callable[[], object]) -> None:
    """The second broker leaves and returns, then the leaders are elected anew, while somebody writes."""
    with cluster.meanwhile(truth, produce("mover", "spread", 100, endless=True, pause=300, retries="9")):
        time.sleep(2.5)
        cluster.stop(cluster.nodes[1])
        time.sleep(0.5)
        cluster.start(cluster.nodes[1])
        cluster.wait()
        time.sleep(1.5)
        elect()
        time.sleep(1.5)


FIRST = ("describe topics", "set topic config", "describe configs", "set user", "describe users")
FIRST += ("create acl", "describe acls", "set quota", "describe quotas")
LAST = ("list topics", "describe cluster", "describe features", "more partitions", "list offsets")
LAST += ("delete records", "describe log dirs", "list partition reassignments")
LAST += ("list consumer groups", "describe group", "group offsets")
LAST += ("delete group offsets", "delete group", "delete acl", "delete topics")


def all_over_the_wire(cluster: Cluster, truth: Truth, topics: list[dict[str, Any]] = TOPICS) -> None:
    """The whole story, for releases since 2.8: also users, quotas, ACLs and elections go over the wire."""
    cluster.clients(
        truth,
        admin("create topics", *FIRST, topics=topics, user=SCRAM_USER, quota=QUOTA),
        *codecs("none", "gzip", "snappy", "lz4", "zstd"),
        members("spread", "eager"),
        members("spread", "cooperative", static=True, partition_assignment_strategy=COOPERATIVE),
        *transactions(),
        throttled(),
    )
    logins(cluster, truth)
    bob = login("SCRAM-SHA-256", "bob", SCRAM_USER["password"])["config"] | {"client.id": "tokens"}
    tokens = admin("create delegation token", "describe delegation token") | {"config": bob}
    cluster.clients(truth, tokens, where=cluster.sasl_bootstrap)
    moving_leader(
        cluster, truth, lambda: cluster.clients(truth, admin("elect leaders", "move", brokers=[2, 1]))
    )
    cluster.clients(truth, admin(*LAST, group="eager"))
