"""A release of Apache Kafka with ZooKeeper -> its brokers on loopback, their log, its own clients and tools.

ZooKeeper is that of the release's own jars, listens on loopback alone and is not recorded. All of 0.8.2 to
3.9 run on Java 17.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from apache_kafka import DATA, PLAIN, SASL, Cluster, Node, jars, listens

if TYPE_CHECKING:
    from collections.abc import Iterator

ZOOKEEPER = 19181
ZOOKEEPER_SETTINGS = {
    "clientPort": str(ZOOKEEPER),
    "clientPortAddress": "127.0.0.1",
    "dataDir": f"{DATA}/zookeeper",
    "maxClientCnxns": "0",
    "admin.enableServer": "false",
}
SETTINGS = {
    "zookeeper.connect": f"127.0.0.1:{ZOOKEEPER}",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "delete.topic.enable": "true",
    "controlled.shutdown.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "replica.fetch.wait.max.ms": "4000",
    "log.cleaner.enable": "false",
}
# What the broker accepts: PLAIN with a user in this file, SCRAM with the users of ZooKeeper.
JAAS = """KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonderland-7";
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
"""
PLAIN_ALONE = JAAS.replace("  org.apache.kafka.common.security.scram.ScramLoginModule required;\n", "")


@dataclass(slots=True)
class WithZooKeeper(Cluster):
    """Brokers of one release and their ZooKeeper."""

    zookeeper: subprocess.Popen[bytes] | None = None

    @property
    def listeners(self) -> list[int]:
        """The first node's port of each listener."""
        return [PLAIN, *([SASL] if self.sasl else [])]

    def start_zookeeper(self) -> None:
        """Start it, and wait until it listens."""
        properties = self.place / "zookeeper.properties"
        properties.write_text(lines(ZOOKEEPER_SETTINGS))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.place / "zookeeper.log").open("wb") as log:
            self.zookeeper = self.java(main, str(properties), log=log)
        until = time.monotonic() + 60
        while not listens(ZOOKEEPER):
            if time.monotonic() > until:
                raise RuntimeError("ZooKeeper does not start")
            time.sleep(0.2)

    def settled(self) -> dict[int, int]:
        """Where the logs end once nothing has come for two seconds: the controller is done."""
        positions, since = self.positions(), time.monotonic()
        while time.monotonic() - since < 2:
            time.sleep(0.1)
            if self.positions() != positions:
                positions, since = self.positions(), time.monotonic()
        return positions

    def tool(self, name: str, *arguments: str, seconds: float = 60) -> str:
        """What one of Kafka's tools prints; one that does not end by itself is ended."""
        tool = self.java(name, *arguments, log=subprocess.PIPE)
        try:
            return tool.communicate(timeout=seconds)[0].decode()
        except subprocess.TimeoutExpired:
            tool.kill()
            return tool.communicate()[0].decode()

    def with_zookeeper(self, name: str, *arguments: str) -> str:
        """The same for a tool that changes what ZooKeeper keeps: nothing of that is on Kafka's wire."""
        return self.tool(name, "--zookeeper", SETTINGS["zookeeper.connect"], *arguments)

    def end(self) -> None:
        """End the brokers, the last of which is the controller's, then ZooKeeper."""
        for node in self.nodes:
            if node.process:
                node.process.kill()
                node.process.wait()
                node.process = None
        if self.zookeeper:
            self.zookeeper.kill()
            self.zookeeper.wait()
            self.zookeeper = None


def lines(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


@contextmanager
def zookeeper_kafka(
    release: str, nodes: int = 2, *, sasl: str | None = None, **settings: str
) -> Iterator[WithZooKeeper]:
    """ZooKeeper, and so many brokers that are the caller's to `start` and `wait` for.

    A setting a_b=1 means a.b = 1. With `sasl`, the names of mechanisms, brokers have one more listener.
    """
    jars(release)
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        cluster = WithZooKeeper(release, Path(place), sasl=bool(sasl))
        cluster.nodes = [
            Node(n, Path(place) / f"node-{n}.properties", Path(place) / f"node-{n}.log")
            for n in range(1, nodes + 1)
        ]
        if sasl:
            jaas = Path(place) / "jaas.conf"
            jaas.write_text(JAAS if "SCRAM" in sasl else PLAIN_ALONE)
            cluster.options = (f"-Djava.security.auth.login.config={jaas}",)
        more = {key.replace("_", "."): value for key, value in settings.items()}
        for node in cluster.nodes:
            node.properties.write_text(lines(properties(cluster, node, sasl) | more))
        try:
            cluster.start_zookeeper()
            yield cluster
        finally:
            cluster.end()
            shutil.rmtree(DATA, ignore_errors=True)


def properties(cluster: Cluster, node: Node, sasl: str | None) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{node.port(PLAIN)}"
    chosen = {**SETTINGS, "broker.id": str(node.number), "log.dirs": f"{DATA}/{node.number}"}
    if cluster.release.startswith("0.8"):
        return chosen | {"host.name": "127.0.0.1", "port": str(node.port(PLAIN))}
    if sasl:
        listeners += f",SASL_PLAINTEXT://127.0.0.1:{node.port(SASL)}"
        chosen["sasl.enabled.mechanisms"] = sasl
    return chosen | {"listeners": listeners, "advertised.listeners": listeners}
