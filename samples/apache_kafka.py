"""A release of Apache Kafka from Maven Central -> its brokers on loopback, their log, its own clients.

Needs a JDK (17 or later) and mvn. The jars, some 45 MB a release, stay in $KDISSECT_KAFKA_JARS, by default a
directory among the system's temporary files. Each broker is a controller too (KRaft; old_kafka.py has
those of ZooKeeper), has 400 MB of heap and keeps its data in DATA, which is emptied before and after.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import request_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from request_log import Answered
    from truth import Truth

JAVA = Path(__file__).resolve().parent / "java"
JARS = Path(os.environ.get("KDISSECT_KAFKA_JARS") or Path(tempfile.gettempdir()) / "kdissect-kafka-jars")
# Brokers tell this path in DescribeLogDirs and DescribeConfigs: it must say nothing of the machine.
DATA = Path("/tmp/kdissect-sample")
CLUSTER_ID = "kdissect-sampleCluster"
PLAIN, SASL, CONTROLLER = 19291, 19491, 19391
BROKER_HEARTBEAT = 63
BESIDE = "4.3.1"  # of 4.4.0 Maven Central has neither kafka-streams nor kafka-tools

# Few partitions, long waits, no heartbeats in the metadata log: little traffic that no client caused.
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "4000",
    "metadata.max.idle.interval.ms": "0",
    # Until there is a leader, controllers ask each other for it as fast as they can.
    "controller.quorum.election.timeout.ms": "150",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "replica.fetch.wait.max.ms": "4000",
}
REPLICAS = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


@dataclass(frozen=True, slots=True)
class Jars:
    """What Maven is to bring for a release, and which of our Java files speak to it."""

    scala: str = "2.13"
    profiles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ("since-0.11/Clients.java", "since-2.8/Admins.java")


OLD = ("old",)
RELEASES = {
    "0.8.2.2": Jars("2.11", OLD, ("since-0.8.2/Clients.java",)),
    "0.9.0.1": Jars("2.11", OLD, ("since-0.9/Clients.java",)),
    "0.10.2.2": Jars("2.12", OLD, ("since-0.9/Clients.java",)),
    "0.11.0.3": Jars("2.12", OLD, ("since-0.11/Clients.java", "since-0.11/Admins.java")),
    "1.1.1": Jars("2.12", (), ("since-0.11/Clients.java", "since-0.11/Admins.java")),
    "2.8.2": Jars(),
    "3.9.1": Jars(),
    "4.4.0": Jars(sources=(*Jars().sources, "since-4.0/Newest.java", "since-4.0/Receiver.java")),
    BESIDE: Jars(profiles=("beside",), sources=("since-4.0/Streams.java",)),
}


@dataclass(slots=True)
class Node:
    """One broker; with KRaft a controller too, unless it is no voter. With a namespace, it runs in that."""

    number: int
    properties: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    is_voter: bool = True
    address: str = "127.0.0.1"
    namespace: str = ""

    def port(self, first: int) -> int:
        """Its port of a listener, given that of the first node."""
        return first + 2 * (self.number - 1)

    def end(self, first: int) -> str:
        """Its address and port of that listener."""
        return f"{self.address}:{self.port(first)}"


@dataclass(slots=True)
class Cluster:
    """Brokers of one release."""

    release: str
    place: Path
    nodes: list[Node] = field(default_factory=list)
    sasl: bool = False
    options: tuple[str, ...] = ()  # of the Java machine

    @property
    def listeners(self) -> list[int]:
        """The first node's port of each listener."""
        return [PLAIN, CONTROLLER, *([SASL] if self.sasl else [])]

    @property
    def bootstrap(self) -> str:
        """For clients that do not log in."""
        return ",".join(node.end(PLAIN) for node in self.nodes)

    @property
    def sasl_bootstrap(self) -> str:
        """For clients that log in."""
        return ",".join(node.end(SASL) for node in self.nodes)

    @property
    def voters(self) -> list[Node]:
        """The nodes that are controllers."""
        return [node for node in self.nodes if node.is_voter]

    @property
    def ports(self) -> list[int]:
        """All ports, the controllers' included."""
        return [node.port(first) for first in self.listeners for node in self.nodes]

    def java(
        self, *command: str, log: IO[bytes] | int | None = None, namespace: str = ""
    ) -> subprocess.Popen[bytes]:
        """Run a class of Kafka's, or of ours, with its arguments."""
        classes = [str(self.classes()), f"{jars(self.release)}/*"]
        return run_java(*self.options, "-cp", ":".join(classes), *command, log=log, namespace=namespace)

    def classes(self) -> Path:
        """Where our Java files, compiled against the jars of this release, are."""
        return compiled(self.release, self.place / "classes")

    def format(self, node: Node, *users: str) -> None:
        """Give a node its empty storage, and the quorum its users (SCRAM-SHA-256=[name=...,password=...])."""
        command = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(node.properties)]
        if not node.is_voter:
            command += ["--no-initial-controllers"]
        elif len(self.voters) == 1:
            command += ["--standalone"]
        else:
            voters = (
                f"{one.number}@{one.end(CONTROLLER)}:kdissect-voter-{one.number}-nodeA" for one in self.voters
            )
            command += ["--initial-controllers", ",".join(voters)]
        for user in users:
            command += ["--add-scram", user]
        if self.java(*command, log=subprocess.DEVNULL).wait():
            raise RuntimeError(f"no storage for node {node.number}")

    def start(self, node: Node) -> None:
        """Start a node; what it logs comes behind what it logged before."""
        with node.log.open("ab") as log:
            node.process = self.java("kafka.Kafka", str(node.properties), log=log, namespace=node.namespace)

    def wait(self) -> None:
        """Wait until every broker takes connections, which it does once the controller has let it."""
        for node in self.nodes:
            until = time.monotonic() + 60
            while not listens(node.port(PLAIN), node.address):
                if time.monotonic() > until or (node.process and node.process.poll() is not None):
                    raise RuntimeError(f"broker {node.number} does not start: {node.log.read_text()[-2000:]}")
                time.sleep(0.2)

    def forget(self, node: Node) -> None:
        """Take a stopped node's data and give it an empty storage."""
        shutil.rmtree(DATA / str(node.number))
        self.format(node)

    def stop(self, node: Node) -> None:
        """Let a broker take its leave."""
        if node.process:
            node.process.terminate()
            node.process.wait(30)
            node.process = None

    def end(self) -> None:
        """End all: one takes its leave; of several the last could not, because it has lost its quorum."""
        if len(self.nodes) == 1:
            self.stop(self.nodes[0])
        for node in self.nodes:
            if node.process:
                node.process.kill()
                node.process.wait()
                node.process = None

    def clients(self, truth: Truth, *steps: dict[str, Any], where: str | None = None) -> None:
        """Let Kafka's own clients take these steps (Clients.java tells which there are)."""
        with self.meanwhile(truth, *steps, where=where):
            pass

    @contextmanager
    def meanwhile(
        self, truth: Truth, *steps: dict[str, Any], where: str | None = None, main: str = "Clients"
    ) -> Iterator[None]:
        """Let them do so while the block runs; at its end tell them that it is enough, and wait."""
        bootstrap = {"bootstrap.servers": where or self.bootstrap}
        arguments = [json.dumps(configured(step, bootstrap)) for step in steps]
        java = self.java(main, *arguments, log=subprocess.PIPE)
        try:
            yield
        finally:
            report_known(truth, java)

    def answered(self, since: dict[int, int] | None = None) -> Iterator[Answered]:
        """What the brokers logged of each request they answered, behind the given positions of their logs."""
        for node in self.nodes:
            yield from request_log.read(self.logged(node, since), node.port(PLAIN))

    def logged(self, node: Node, since: dict[int, int] | None = None) -> Iterator[str]:
        """The lines of a broker's log, behind the position given for it."""
        with node.log.open("rb") as log:
            log.seek((since or {}).get(node.number, 0))
            for line in log:
                yield line.decode()

    def leader(self) -> Node:
        """The controller that has answered most heartbeats: only their leader does without an error."""
        beats = Counter(
            request.broker_port
            for request in self.answered()
            if request.api_key == BROKER_HEARTBEAT and not request.errors
        )
        return max(self.nodes, key=lambda node: beats[node.port(CONTROLLER)])

    def positions(self) -> dict[int, int]:
        """Where the logs end now."""
        return {node.number: node.log.stat().st_size for node in self.nodes}


def listens(port: int, address: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def run_java(
    *command: str, log: IO[bytes] | int | None = None, namespace: str = ""
) -> subprocess.Popen[bytes]:
    """Start a Java machine. If its output is read, lines can also be written to its stdin."""
    options = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += [f"-Dlog4j2.configurationFile={(JAVA / 'log4j2.properties').as_uri()}"]
    stdin = subprocess.PIPE if log == subprocess.PIPE else subprocess.DEVNULL
    inside = ["ip", "netns", "exec", namespace] if namespace else []  # which becomes the Java machine
    return subprocess.Popen([*inside, "java", *options, *command], stdin=stdin, stdout=log)


def console(name: str, *arguments: str, lines: Iterable[str] = ()) -> str:
    """What a command line tool of Kafka prints (of org.apache.kafka.tools), given these lines."""
    java = run_java(
        "-cp", f"{jars(BESIDE)}/*", f"org.apache.kafka.tools.{name}", *arguments, log=subprocess.PIPE
    )
    printed = java.communicate("".join(f"{line}\n" for line in lines).encode(), 60)[0].decode()
    if java.returncode:
        raise RuntimeError(f"{name} failed: {printed}")
    return str(printed)


def jars(release: str) -> Path:
    """The directory with the jars of a release; Maven brings them once."""
    directory = JARS / release
    if not directory.exists():
        build = RELEASES[release]
        command = ["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-P{profile}" for profile in build.profiles]
        command += [f"-Dkafka.version={release}", f"-Dscala.version={build.scala}"]
        subprocess.run([*command, f"-DoutputDirectory={directory}.part"], check=True)
        Path(f"{directory}.part").rename(directory)
    return directory


def compiled(release: str, directory: Path) -> Path:
    """Our Java files for a release as classes in this directory."""
    if not directory.exists():
        sources = [str(JAVA / source) for source in ("Reporter.java", *RELEASES[release].sources)]
        command = [
            "javac",
            "-XDsuppressNotes",
            "-proc:none",
            "-cp",
            f"{jars(release)}/*",
            "-d",
            str(directory),
        ]
        subprocess.run([*command, *sources], check=True)
    return directory


def configured(step: dict[str, Any], bootstrap: dict[str, str]) -> dict[str, Any]:
    """A step whose client, or each of whose members, knows where the brokers are."""
    if "members" in step:
        return {**step, "members": [configured(member, bootstrap) for member in step["members"]]}
    return {**step, "config": bootstrap | step["config"]}


def report_known(truth: Truth, java: subprocess.Popen[bytes]) -> None:
    """What our Java classes write, when they have ended."""
    for line in java.communicate(b"enough\n")[0].splitlines():
        if line.startswith(b"{"):  # else a complaint of the library's, in its log
            known = json.loads(line)
            getattr(truth, known.pop("kind")).append(known)
    if java.returncode:
        raise RuntimeError(f"{java.args} failed")


@contextmanager
def kafka(
    release: str,
    nodes: int = 1,
    users: tuple[str, ...] = (),
    *,
    voters: int | None = None,
    hosts: Sequence[tuple[str, str]] = (),
    **settings: str,
) -> Iterator[Cluster]:
    """Storage for so many brokers, and their end; `start` and `wait` are the caller's, who may record before.

    A setting a_b=1 means a.b = 1. The first of them are the voters, by default all; hosts have the address
    and namespace of each. With `sasl` (a JAAS configuration for PLAIN) brokers have one more
    listener, for SASL/PLAIN and SCRAM-SHA-256.
    """
    jars(release)
    shutil.rmtree(DATA, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        cluster = Cluster(release, Path(place), sasl="sasl" in settings)
        cluster.nodes = [
            Node(n, Path(place) / f"node-{n}.properties", Path(place) / f"node-{n}.log")
            for n in range(1, nodes + 1)
        ]
        for node, (address, namespace) in zip(cluster.nodes, hosts, strict=False):
            node.address, node.namespace = address, namespace
        for node in cluster.nodes[voters:] if voters else ():
            node.is_voter = False
        for node in cluster.nodes:
            lines = [f"{key}={value}" for key, value in properties(cluster, node, settings).items()]
            node.properties.write_text("\n".join(lines) + "\n")
            cluster.format(node, *users)
        try:
            yield cluster
        finally:
            cluster.end()
            shutil.rmtree(DATA, ignore_errors=True)


def properties(cluster: Cluster, node: Node, more: dict[str, str]) -> dict[str, str]:
    listeners = f"PLAIN://{node.end(PLAIN)}"
    listeners += f",SASL://{node.end(SASL)}" if cluster.sasl else ""
    listeners += f",CONTROLLER://{node.end(CONTROLLER)}" if node.is_voter else ""
    chosen = {
        **SETTINGS,
        **({} if node.is_voter else {"process.roles": "broker"}),
        **dict.fromkeys(REPLICAS, str(len(cluster.nodes))),
        "node.id": str(node.number),
        "controller.quorum.bootstrap.servers": ",".join(one.end(CONTROLLER) for one in cluster.voters),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "log.dirs": f"{DATA}/{node.number}",
    }
    more = {key.replace("_", "."): value for key, value in more.items()}
    if cluster.sasl:
        chosen["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
        chosen["listener.name.sasl.plain.sasl.jaas.config"] = more.pop("sasl")
        chosen["listener.name.sasl.scram-sha-256.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
    return chosen | more
