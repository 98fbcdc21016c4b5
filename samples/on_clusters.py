"""Causes inside a cluster, one capture each in troubles/: controllers, brokers and fetch sessions.

on_troubles.py says what the recordings need. With ``spread``, each node has its own host: a network
namespace on a bridge, where all packets are captured. What nodes and clients log is in ``messages``.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import kafka as kafka_python
from apache_kafka import CLUSTER_ID, CONTROLLER, DATA, PLAIN, kafka
from confluent_kafka.admin import AdminClient
from on_causes import PYTHON_CLIENT, listener, logged_by
from on_kafka import NEWEST, start_all
from on_troubles import (
    consumer,
    make_topic,
    meanwhile,
    polled,
    process_of,
    producer,
    recorded,
    running,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from apache_kafka import Cluster, Node

BRIDGE = "between"
ON_BRIDGE = ("-i", BRIDGE)
USUAL = {  # what SETTINGS of apache_kafka.py changes, as in a cluster of somebody's
    "broker_heartbeat_interval_ms": "2000",
    "controller_quorum_election_timeout_ms": "1000",
    "replica_fetch_wait_max_ms": "500",
}


@contextmanager
def hosts(count: int) -> Iterator[list[tuple[str, str]]]:
    """Network namespaces on a bridge: the address and name of each. This one is there too."""
    places = [(f"10.99.0.{number}", f"kdissect-{number}") for number in range(1, count + 1)]

    def run(command: str) -> None:
        subprocess.run(command.split(), check=True)

    try:
        run(f"ip link add {BRIDGE} type bridge")
        run(f"ip address add 10.99.0.254/24 dev {BRIDGE}")
        run(f"ip link set {BRIDGE} up")
        for number, (address, place) in enumerate(places):
            run(f"ip netns add {place}")
            run(f"ip link add to{number} type veth peer name near netns {place}")
            run(f"ip link set to{number} master {BRIDGE} up")
            run(f"ip -n {place} address add {address}/24 dev near")
            run(f"ip -n {place} link set near up")
            run(f"ip -n {place} link set lo up")
        yield places
    finally:
        for number, (_, place) in enumerate(places):
            subprocess.run(["ip", "link", "del", f"to{number}"], check=False)  # sockets keep namespaces
            subprocess.run(["ip", "netns", "del", place], check=False)
        subprocess.run(["ip", "link", "del", BRIDGE], check=False)


@contextmanager
def apart(one: Node, other: Node) -> Iterator[None]:
    """Drop what one node sends to the other, and back, when it has passed the bridge."""
    for to, source in ((one, other), (other, one)):
        rules = (
            "add table inet apart; add chain inet apart c { type filter hook input priority 0; }; "
            f"add rule inet apart c ip saddr {source.address} drop"
        )
        subprocess.run(["ip", "netns", "exec", to.namespace, "nft", rules], check=True)
    try:
        yield
    finally:
        for node in (one, other):
            command = ["ip", "netns", "exec", node.namespace, "nft", "delete table inet apart"]
            subprocess.run(command, check=True)


@contextmanager
def spread(nodes: int = 3, voters: int = 1, **settings: str) -> Iterator[Cluster]:
    """Nodes on a host each, with the topic ``orders``: a partition led by each."""
    with (
        hosts(nodes) as places,
        kafka(NEWEST, nodes, voters=voters, hosts=places, **{**USUAL, **settings}) as cluster,
    ):
        start_all(cluster)
        numbers = [node.number for node in cluster.nodes]
        make_topic(cluster.bootstrap, "orders", *(numbers[at:] + numbers[:at] for at in range(nodes)))
        time.sleep(3)
        yield cluster


@contextmanager
def watched(
    directory: Path, cluster: Cluster, name: str, what: str, findings: list[str], *words: str
) -> Iterator[list[str]]:
    """Record brokers and controllers while the block runs, and what they log with these words."""
    before = cluster.positions()
    ports = [node.port(CONTROLLER) for node in cluster.voters]
    with recorded(directory, cluster, name, what, findings, *ports, options=ON_BRIDGE, logs=False) as truth:
        truth["messages"] = []
        yield truth["messages"]
        truth["messages"] += logged_by(cluster, before, *words)


def writing(cluster: Cluster, messages: list[str], seconds: float, name: str = "writer") -> None:
    """Write a record to each partition every half a second."""
    one = producer(cluster.bootstrap, name, **listener(messages))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for partition in range(len(cluster.nodes)):
            one.produce("orders", bytes(20), partition=partition)
        one.poll(0)
        time.sleep(0.5)
    one.flush(20)


_ELECTIONS = ("andidate", "Leader(", "Rejecting", "prospective", "fenced", "Fencing")


def votes_refused(directory: Path) -> None:
    what = (
        "Three controllers, which are brokers too. For 45 s one of them and the leader get no packets from "
        "each other. It asks the third one for votes, again and again, which hears the leader and refuses."
    )
    findings = ["quorum-unreachable", "elections-lost"]
    with spread(voters=3) as cluster:
        leader = cluster.leader()
        alone = next(node for node in cluster.nodes if node is not leader)
        with watched(directory, cluster, "votes-refused", what, findings, *_ELECTIONS) as messages:
            time.sleep(3)
            with apart(alone, leader):
                time.sleep(45)
            time.sleep(6)
            messages.append(f"node {alone.number} apart from {leader.number}")


def leader_leaves(directory: Path) -> None:
    what = (
        "The leader of three controllers ends, as for an upgrade, and returns after 8 s. The others elect a "
        "leader at once. A producer writes meanwhile."
    )
    with spread(voters=3) as cluster:
        leader = cluster.leader()
        with (
            watched(directory, cluster, "leader-leaves", what, ["leaders-moving"], *_ELECTIONS) as messages,
            meanwhile(writing, cluster, messages, 24),
        ):
            time.sleep(3)
            cluster.stop(leader)
            time.sleep(8)
            cluster.start(leader)


def observer_cut(directory: Path) -> None:
    what = (
        "A controller and two brokers. For 25 s one broker and the controller get no packets from each "
        "other; clients reach both. The controller fences the broker, the other one leads its partitions."
    )
    findings = ["quorum-unreachable", "queueing", "slow-requests"]
    with spread() as cluster:
        one, *_, last = cluster.nodes
        with (
            watched(directory, cluster, "observer-cut", what, findings, "enc", "eartbeat") as messages,
            meanwhile(writing, cluster, messages, 36),
        ):
            time.sleep(3)
            with apart(last, one):
                time.sleep(25)


def observer_lost(directory: Path) -> None:
    what = (
        "A broker starts with a wrong port in controller.quorum.bootstrap.servers, where nothing listens. "
        "The cluster beside it is well."
    )
    findings = ["no-listener"]
    with spread() as cluster:
        last = cluster.nodes[-1]
        cluster.stop(last)
        time.sleep(2)
        wrong = f"{cluster.nodes[0].address}:{CONTROLLER + 1}"
        with last.properties.open("a") as properties:
            properties.write(f"controller.quorum.bootstrap.servers={wrong}\n")
        cluster.forget(last)
        before = cluster.positions()
        ports = (CONTROLLER, CONTROLLER + 1)
        with recorded(
            directory, cluster, "observer-lost", what, findings, *ports, options=ON_BRIDGE, logs=False
        ) as truth:
            cluster.start(last)
            time.sleep(20)
            truth["messages"] = logged_by(cluster, before, "Disconnect", "could not be established", "rror")


def broker_fenced(directory: Path) -> None:
    what = (
        "A controller and two brokers. One broker's process is stopped (SIGSTOP) for 15 s: the controller "
        "fences it after 9 s without heartbeat, and the others lead its partitions. A producer writes."
    )
    findings = ["broker-fenced", "queueing", "slow-requests"]
    with spread() as cluster:
        last = cluster.nodes[-1]
        with (
            watched(directory, cluster, "broker-fenced", what, findings, "enc") as messages,
            meanwhile(writing, cluster, messages, 26),
        ):
            time.sleep(3)
            process_of(last).send_signal(signal.SIGSTOP)
            try:
                time.sleep(15)
            finally:
                process_of(last).send_signal(signal.SIGCONT)


def restarts(directory: Path) -> None:
    what = (
        "Two brokers restart one after the other, as for an upgrade; the controller stays. A producer "
        "writes. Inside the cluster, all is well."
    )
    with (
        spread() as cluster,
        watched(directory, cluster, "restarts", what, [], "enc") as messages,
        meanwhile(writing, cluster, messages, 60),
    ):
        for node in cluster.nodes[1:]:
            time.sleep(3)
            cluster.stop(node)
            cluster.start(node)
            cluster.wait()


def same_node(directory: Path) -> None:
    what = (
        "A broker starts with the node.id of another one that runs, on another host. The controller refuses "
        "it until it gives up."
    )
    with spread(initial_broker_registration_timeout_ms="25000") as cluster:
        last = cluster.nodes[-1]
        cluster.stop(last)
        with last.properties.open("a") as properties:
            properties.write("node.id=2\n")
        cluster.forget(last)
        with watched(
            directory, cluster, "same-node", what, ["broker-rejected"], "egist", "uplicate"
        ) as messages:
            cluster.start(last)
            writing(cluster, messages, 35)


def other_cluster(directory: Path) -> None:
    what = (
        "A broker starts with the storage of another cluster, whose ID differs. The controller refuses what "
        "it asks."
    )
    with spread() as cluster:
        last = cluster.nodes[-1]
        cluster.stop(last)
        cluster.forget(last)
        place = DATA / str(last.number) / "meta.properties"
        place.write_text(place.read_text().replace(CLUSTER_ID, "kdissect-otherCluster-"))
        with watched(
            directory, cluster, "other-cluster", what, ["broker-rejected"], "luster", "egist"
        ) as messages:
            cluster.start(last)
            writing(cluster, messages, 30)


def python_reader(where: str, name: str, *topics: str) -> Any:
    """A consumer of all partitions of these topics, without a group."""
    one = kafka_python.KafkaConsumer(
        bootstrap_servers=where,
        client_id=name,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=500,
        consumer_timeout_ms=1000,
    )
    one.assign(
        [
            kafka_python.TopicPartition(topic, partition)
            for topic in topics
            for partition in sorted(one.partitions_for_topic(topic))
        ]
    )
    return one


@contextmanager
def reading(*readers: Any) -> Iterator[None]:
    """Let these poll while the block runs, each in its thread."""
    enough = threading.Event()

    def poll(reader: Any) -> None:
        while not enough.is_set():
            reader.poll(500)

    threads = [threading.Thread(target=poll, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def open_sessions(where: str, topic: str, seconds: float) -> int:
    """Connect, poll and leave, as a job does that starts for each poll; how often."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        one = python_reader(where, "hourly-job", topic)
        one.poll(200)
        one.close()
        count += 1
    return count


_PATIENCE = 122
"""Seconds after which a session may be evicted by one that has more partitions: a constant of Kafka's."""


def _churned(directory: Path, name: str, what: str, findings: list[str], slots: int, patience: float) -> None:
    with running(max_incremental_fetch_session_cache_slots=str(slots)) as cluster:
        where = cluster.bootstrap
        make_topic(where, "clicks", *[[1]] * 5)
        write(producer(where, "writer"), 3)
        readers = [python_reader(where, f"reader-{number}", "orders") for number in range(4)]
        with reading(*readers):
            time.sleep(patience)
            with recorded(directory, cluster, name, what, findings, logs=False) as truth:
                truth["clients"] = PYTHON_CLIENT
                time.sleep(3)
                truth["opened"] = open_sessions(where, "clicks", 20)
                time.sleep(2)
        for reader in readers:
            reader.close()


def sessions_evicted(directory: Path) -> None:
    what = (
        "A broker has room for 8 fetch sessions. Four consumers use one each, for more than two minutes. A "
        "job connects for each poll and opens a session of five partitions: it evicts theirs, and from then "
        "on nobody gets one."
    )
    findings = ["fetch-session-churn", "fetch-sessions-evicted", "metadata-polling"]
    _churned(directory, "sessions-evicted", what, findings, 8, _PATIENCE)


def sessions_opened(directory: Path) -> None:
    what = (
        "A job connects for each poll and opens a fetch session each time. The broker has room for 1,000: "
        "nobody is evicted."
    )
    _churned(directory, "sessions-opened", what, ["fetch-session-churn", "metadata-polling"], 1000, 3)


def reader_of_recreated(directory: Path) -> None:
    what = (
        "A topic is deleted and created again while a member of a group reads it. It reads the 5 records of "
        "the first and the 8 of the second."
    )
    with running() as cluster:
        where = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": where, "client.id": "operator"})
        make_topic(where, "carts", [1])
        with recorded(directory, cluster, "reader-of-recreated", what, ["topic-recreated"]) as truth:
            truth["messages"] = []
            writer = producer(where, "writer", topic_metadata_refresh_interval_ms=2000)
            reader = consumer(
                where,
                "reader",
                auto_offset_reset="earliest",
                topic_metadata_refresh_interval_ms=2000,
                **listener(truth["messages"]),
            )
            reader.subscribe(["carts"])
            write(writer, 5, "carts")
            truth["read"] = polled(reader, seconds=6)
            admin.delete_topics(["carts"])["carts"].result(20)
            polled(reader, seconds=4)
            make_topic(where, "carts", [1])
            polled(reader, seconds=3)
            write(writer, 8, "carts")
            truth["read_later"] = polled(reader, seconds=8)
            reader.close()


def two_at_once(directory: Path) -> None:
    what = (
        "Two causes at once: a broker and the controller get no packets from each other for 20 s, and "
        "meanwhile an operator deletes a topic and creates it again, to which a producer writes."
    )
    findings = ["quorum-unreachable", "topic-recreated"]
    with spread() as cluster:
        one, *_, last = cluster.nodes
        admin = AdminClient({"bootstrap.servers": one.end(PLAIN), "client.id": "operator"})
        make_topic(one.end(PLAIN), "carts", [1])
        with watched(directory, cluster, "two-at-once", what, findings, "enc", "opic") as messages:
            carts = producer(one.end(PLAIN), "carts", topic_metadata_refresh_interval_ms=2000)
            write(carts, 3, "carts")
            with apart(last, one):
                time.sleep(5)
                admin.delete_topics(["carts"])["carts"].result(20)
                time.sleep(3)
                make_topic(one.end(PLAIN), "carts", [1])
                write(carts, 3, "carts")
                time.sleep(12)
            time.sleep(6)
            messages.append(f"node {last.number} apart from {one.number}")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    f"trouble-{scenario.__name__.replace('_', '-')}": scenario
    for scenario in (
        *(votes_refused, leader_leaves, observer_cut, observer_lost, broker_fenced, restarts),
        *(same_node, other_cluster, sessions_evicted, sessions_opened, reader_of_recreated, two_at_once),
    )
}
