"""Connections in trouble, one capture each in troubles/: what an operator would capture, and what caused it.

They need their own network namespace, because packets are dropped there (nftables) and ports are fixed, and
mounts of their own, because a disk is filled:

    unshare --net --mount sh -c 'ip link set lo up; python samples/make.py trouble-loss'
"""

from __future__ import annotations

import gzip
import json
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafka as kafka_python
from apache_kafka import DATA, PLAIN, SASL, Cluster, kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from on_kafka import JAAS, NEWEST, start_all
from on_mock import LIBRDKAFKA
from others import tls_listener
from recording import recording
from request_log import TIMES
from story import OPEN, QUICK_QUOTA, admin
from truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from apache_kafka import Node
    from request_log import Answered

ELSEWHERE, PROXY = 19999, 19996
PREFERRED = 0  # of elections


@contextmanager
def trouble(
    directory: Path, name: str, what: str, findings: list[str], *ports: int, **settings: str
) -> Iterator[Cluster]:
    """A broker with the topic ``orders``, recorded while the block runs; and what is to be found."""
    with running(**settings) as cluster, recorded(directory, cluster, name, what, findings, *ports):
        yield cluster


@contextmanager
def running(nodes: int = 1, release: str = NEWEST, **settings: str) -> Iterator[Cluster]:
    """Brokers with the topic ``orders``, of a partition on each."""
    with kafka(release, nodes, (), **settings) as cluster:
        start_all(cluster)
        if "advertised_listeners" not in settings:
            make_topic(cluster.bootstrap, "orders", *([node.number] for node in cluster.nodes))
        yield cluster


def make_topic(where: str, name: str, *partitions: list[int], **config: str) -> None:
    """Make a topic, given the brokers of each partition."""
    topic = NewTopic(name, len(partitions), replica_assignment=list(partitions), config=named(config))
    admin = AdminClient({"bootstrap.servers": where})
    admin.create_topics([topic])[name].result(20)


@contextmanager
def recorded(
    directory: Path,
    cluster: Cluster | None,
    name: str,
    what: str,
    findings: list[str],
    *ports: int,
    beside: bool = True,
    options: tuple[str, ...] = (),
    namespace: str = "",
    logs: bool = True,
) -> Iterator[dict[str, Any]]:
    """Record these ports while the block runs, and beside them the brokers', if there are any. It may add to
    what becomes the truth file, in which the brokers' logs of requests can be left out.
    """
    path = directory / "troubles" / f"{name}.pcap"
    path.parent.mkdir(exist_ok=True)
    software = {"broker": cluster and f"Apache Kafka {cluster.release}", "clients": LIBRDKAFKA}
    truth: dict[str, Any] = {**software, "what": what, "findings": findings}
    before = cluster.positions() if cluster else {}
    brokers = {node.port(PLAIN) for node in cluster.nodes} if cluster and beside else set()  # no controllers
    with recording(path, [*brokers, *ports], *options, until_quiet=False, namespace=namespace):
        yield truth
    requests = cluster.answered(before) if cluster and logs else ()
    truth["answered"] = [logged(request) for request in requests if request.broker_port in brokers]
    path.with_suffix(".pcap.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    path.with_suffix(".truth.json").write_text(written(truth))


def logged(request: Answered) -> list[Any]:
    """What a broker logged of a request, in few words: there are hundreds of them."""
    assert request.times is not None
    ends = f"{request.client_port}-{request.broker_port}"
    spent = (request.times[name] for name in TIMES)
    return [ends, request.correlation_id, request.client_id, request.api, request.errors, *spent]


def written(truth: dict[str, Any]) -> str:
    """Indented JSON in which a request is a line."""
    rows = truth.pop("answered")
    text = json.dumps({**truth, "answered": []}, indent=1)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return text.removesuffix("[]\n}") + f"[\n{lines}\n ]\n}}\n"


@contextmanager
def mounted(place: Path) -> Iterator[None]:
    """A disk of 1 MB."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def dropping(*rules: str, hook: str = "input", verdict: str = "drop") -> Iterator[None]:
    """Drop the packets that nftables rules match: behind tcpdump, or, as output, before it."""
    chain = f"add chain inet {hook} c {{ type filter hook {hook} priority 0; }}"
    subprocess.run(["nft", f"add table inet {hook}; {chain}"], check=True)
    for rule in rules:
        subprocess.run(["nft", f"add rule inet {hook} c {rule} {verdict}"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", f"delete table inet {hook}"], check=True)


def producer(where: str, client_id: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": where, "client.id": client_id, "linger.ms": 0, **named(settings)})


def named(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as librdkafka names them, and its callbacks."""
    return {key if callable(value) else key.replace("_", "."): value for key, value in settings.items()}


def write(to: Producer, count: int, topic: str = "orders", *, size: int = 20, timeout: float = 20) -> None:
    """Write records one by one, as far as that works."""
    for number in range(count):
        to.produce(topic, bytes(size), str(number))
        to.flush(timeout)


def loss(directory: Path) -> None:
    what = "3 % of the packets in both directions are dropped while a producer writes 300 records."
    with trouble(directory, "loss", what, ["network-loss"]) as cluster:
        one = producer(cluster.bootstrap, "writer")
        write(one, 5)
        with dropping(*(f"tcp {end} {PLAIN} numgen random mod 100 < 3" for end in ("sport", "dport"))):
            write(one, 300)
        write(one, 5)


def healthy(directory: Path) -> None:
    what = "A producer batches 300 records; a member of a group reads them. Nothing is to be found."
    with trouble(directory, "healthy", what, []) as cluster:
        reader = member(cluster.bootstrap, "reader")
        polled(reader, until=lambda: bool(reader.assignment()))
        writer = producer(cluster.bootstrap, "writer", linger_ms=50)
        for number in range(300):
            writer.produce("orders", bytes(20), str(number))
            polled(reader, seconds=0.01)
        writer.flush(20)
        polled(reader, seconds=1)
        reader.commit(asynchronous=False)
        reader.close()


def process_of(node: Node) -> subprocess.Popen[bytes]:
    """The process of a broker that runs."""
    assert node.process is not None
    return node.process


@contextmanager
def paused(cluster: Cluster) -> Iterator[None]:
    """Stop the broker's process; its machine goes on receiving and acknowledging."""
    process = process_of(cluster.nodes[0])
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def silent(directory: Path) -> None:
    what = "The broker's process is stopped (SIGSTOP) for 25 s; its machine goes on acknowledging."
    with trouble(directory, "silent", what, ["broker-silent"]) as cluster:
        one = producer(cluster.bootstrap, "writer", socket_timeout_ms=8000)
        write(one, 5)
        with paused(cluster):
            write(one, 1, timeout=25)
        one.flush(15)


def gone(directory: Path) -> None:
    what = "The broker is killed while a producer writes, which goes on trying for 5 s."
    with trouble(directory, "gone", what, ["broker-resets", "connection-refused"]) as cluster:
        one = producer(cluster.bootstrap, "writer", reconnect_backoff_max_ms=500)
        write(one, 5)
        process = process_of(cluster.nodes[0])
        process.kill()
        process.wait()
        write(one, 1, timeout=5)


def firewall(directory: Path) -> None:
    what = "A firewall drops all packets to the broker while another client connects, for 12 s."
    with trouble(directory, "firewall", what, ["connect-timeout"]) as cluster:
        write(producer(cluster.bootstrap, "writer"), 5)
        with dropping(f"tcp dport {PLAIN}"):
            write(producer(cluster.bootstrap, "late", socket_connection_setup_timeout_ms=8000), 1, timeout=12)


def advertised(directory: Path) -> None:
    what = f"The broker advertises 127.0.0.9:{ELSEWHERE}, where nobody listens."
    settings = {"advertised_listeners": f"PLAIN://127.0.0.9:{ELSEWHERE}"}
    with trouble(
        directory, "advertised", what, ["advertised-listener-unreachable"], ELSEWHERE, **settings
    ) as cluster:
        write(producer(cluster.bootstrap, "writer", reconnect_backoff_max_ms=500), 1, timeout=5)


def tls(directory: Path) -> None:
    what = "A client uses TLS on a plaintext listener, three times; another one plaintext."
    with trouble(directory, "tls", what, ["tls-port-mismatch"]) as cluster:
        write(producer(cluster.bootstrap, "writer"), 5)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(3):
            with suppress(OSError), socket.create_connection(("127.0.0.1", PLAIN), 5) as plain:
                context.wrap_socket(plain).close()


def stalled(directory: Path) -> None:
    what = "The broker's process is stopped (SIGSTOP) for 6 s while it is sent large records."
    with trouble(
        directory, "stalled", what, ["stalled-reader"], socket_receive_buffer_bytes="8192"
    ) as cluster:
        one = producer(cluster.bootstrap, "writer")
        write(one, 5)
        with paused(cluster):
            for number in range(3):
                one.produce("orders", bytes(100_000), str(number))
            one.flush(6)
        one.flush(15)


def through_proxy(
    directory: Path,
    name: str,
    what: str,
    findings: list[str],
    change: Callable[[bytes], bytes | None],
    port: int,
) -> None:
    """A client behind a proxy that changes responses; None: it ends the connection instead."""
    with (
        trouble(directory, name, what, findings, port) as cluster,
        socket.create_server(("127.0.0.1", port)) as server,
    ):
        write(producer(cluster.bootstrap, "writer"), 5)
        threading.Thread(target=serve, args=(server, change), daemon=True).start()
        write(producer(f"127.0.0.1:{port}", "behind-proxy", reconnect_backoff_max_ms=200), 1, timeout=6)


def serve(server: socket.socket, change: Callable[[bytes], bytes | None]) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            with client, suppress(OSError), socket.create_connection(("127.0.0.1", PLAIN), 5) as broker:
                client.settimeout(2)
                while request := client.recv(65536):
                    broker.sendall(request)
                    response = change(broker.recv(65536))
                    if response is None:
                        break
                    client.sendall(response)


def closes(directory: Path) -> None:
    what = "A proxy (ours) ends each connection right behind the first request."
    through_proxy(directory, "closes", what, ["broker-closes", "reconnect-loop"], lambda _: None, PROXY)


def mismatch(directory: Path) -> None:
    what = "A proxy (ours) changes the correlation IDs of responses."
    through_proxy(
        directory,
        "mismatch",
        what,
        ["response-mismatch"],
        lambda data: data[:4] + bytes(3) + b"\x63" + data[8:],
        PROXY + 1,
    )


def login(directory: Path) -> None:
    what = (
        "A producer that does not log in connects to a listener that expects a login, again and again: the "
        "broker closes each connection behind its first request. Another producer uses the plaintext one."
    )
    findings = ["broker-closes", "reconnect-loop"]
    with running(sasl=JAAS) as cluster, recorded(directory, cluster, "login", what, findings, SASL):
        write(producer(cluster.bootstrap, "writer"), 5)
        write(producer(cluster.sasl_bootstrap, "anonymous", reconnect_backoff_max_ms=300), 1, timeout=6)


def consumer(where: str, client_id: str, **settings: Any) -> Consumer:
    """A consumer of the group ``readers``."""
    known = {"bootstrap.servers": where, "client.id": client_id, "group.id": "readers"}
    return Consumer(
        {**known, "auto.offset.reset": "earliest", "enable.auto.commit": False, **named(settings)}
    )


def member(where: str, client_id: str, **settings: Any) -> Consumer:
    """A member of the group that reads ``orders``."""
    one = consumer(where, client_id, heartbeat_interval_ms=500, **settings)
    one.subscribe(["orders"])
    return one


def polled(*consumers: Consumer, until: Callable[[], bool] = lambda: False, seconds: float = 20) -> int:
    """Let these poll until something is so; how many records they got."""
    end = time.monotonic() + seconds
    got = 0
    while not until() and time.monotonic() < end:
        for each in consumers:
            message = each.poll(0.02)
            got += message is not None and not message.error()
    return got


def waits(directory: Path) -> None:
    what = (
        "A consumer keeps up with a producer and asks for metadata while its fetch waits; another one lags, "
        "with fetches that return one batch; a second member joins the first one's group; a quota throttles "
        "a producer, which sends its requests without waiting for responses."
    )
    quota = {"client": "limited", "key": "producer_byte_rate", "value": 20000}
    with trouble(directory, "waits", what, ["throttled"], **QUICK_QUOTA) as cluster:
        cluster.clients(Truth("waits", [], {}), admin("set quota", quota=quota))
        where = cluster.bootstrap
        keeping_up = member(where, "keeps-up")
        polled(keeping_up, until=lambda: bool(keeping_up.assignment()))
        shop = producer(where, "shop")
        for _ in range(4):
            write(shop, 10)
            polled(keeping_up, seconds=0.2)
            keeping_up.list_topics(timeout=5)
            polled(keeping_up, seconds=0.7)
        little = {
            "fetch_queue_backoff_ms": 10,
            "fetch_message_max_bytes": 100,
            "queued_min_messages": 1,
            "fetch_max_bytes": 1000,
        }
        lagging = member(where, "lags", group_id="late readers", message_max_bytes=1000, **little)
        read = 0
        while read < 40:
            read += polled(lagging, seconds=0.02)
        lagging.close()
        second = member(where, "second")
        polled(keeping_up, second, seconds=3)
        limited = producer(where, "limited", max_in_flight=5, batch_num_messages=1)
        for number in range(20):
            limited.produce("orders", bytes(2000), str(number))
        limited.flush(30)
        second.close()
        keeping_up.close()


def refusals(directory: Path) -> None:
    what = (
        "A broker with an authorizer denies a producer a topic that only bob may write. A log directory on a "
        "disk of 1 MB is full. A compacted topic refuses a record without a key. The internal topic of "
        "groups needs three replicas, of which one broker can have one: no group has a coordinator."
    )
    findings = ["authorization-denied", "coordinator-unavailable", "produce-refused", "storage-error"]
    full = DATA / "full"
    settings = {
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        **OPEN,
        "offsets_topic_replication_factor": "3",
        "log_dirs": f"{DATA}/1,{full}",
        "metadata_log_dir": f"{DATA}/1",
        # An index is mapped into memory: on a full disk it would end the process.
        "log_index_size_max_bytes": "4096",
        "log_index_interval_bytes": "100000000",
    }
    with mounted(full), running(**settings) as cluster:
        where = cluster.bootstrap
        make_topic(where, "compacted", [1], cleanup_policy="compact")
        for name in ("secret", "one", "two", "three"):
            make_topic(where, name, [1])
        filled = next(name for name in ("one", "two", "three") if (full / f"{name}-0").exists())
        literal, everything = ResourcePatternType.LITERAL, AclOperation.ALL
        acl = AclBinding(
            ResourceType.TOPIC, "secret", literal, "User:bob", "*", everything, AclPermissionType.ALLOW
        )
        allowing = AdminClient({"bootstrap.servers": where})
        next(iter(allowing.create_acls([acl]).values())).result(20)
        with recorded(directory, cluster, "refusals", what, findings):
            hasty = {"message_timeout_ms": 1500, "retry_backoff_ms": 500}
            write(producer(where, "intruder", **hasty), 1, "secret", timeout=4)
            keyless = producer(where, "keyless")
            keyless.produce("compacted", b"no key")
            keyless.flush(5)
            filler = producer(where, "filler", **hasty)
            write(filler, 15, filled, size=100_000, timeout=4)
            polled(member(where, "homeless"), seconds=20)


@contextmanager
def meanwhile(act: Callable[..., object], *args: Any, **more: Any) -> Iterator[None]:
    """Call a function in a thread beside the block, and wait for it after that."""
    thread = threading.Thread(target=act, args=args, kwargs=more)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def slowed(node: Node) -> Iterator[None]:
    """Stop a broker's process for 80 ms, again and again."""
    enough = threading.Event()
    process = process_of(node)

    def stop_and_go() -> None:
        while not enough.wait(0.01):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.08)
            process.send_signal(signal.SIGCONT)

    with meanwhile(stop_and_go):
        try:
            yield
        finally:
            enough.set()


def brokers(directory: Path) -> None:
    what = (
        "Of three brokers one is slow: its process is stopped (SIGSTOP) for 80 ms, again and again. Then the "
        "leader of a partition moves while a producer writes. Then a broker leaves that has the second "
        "replica of a topic which needs two in sync."
    )
    findings = ["not-enough-replicas", "slow-broker"]
    with running(3) as cluster:
        where = cluster.bootstrap
        leader = cluster.leader()
        slow, leaving = (node for node in cluster.nodes if node is not leader)
        make_topic(where, "moved", [leader.number, slow.number])
        make_topic(where, "safe", [leader.number, leaving.number], min_insync_replicas="2")
        with recorded(directory, cluster, "brokers", what, findings) as truth:
            truth["slow"] = slow.port(PLAIN)
            writer = producer(where, "writer")
            write(writer, 6)
            with slowed(slow):
                for number in range(90):
                    writer.produce("orders", b"order", partition=number % 3)
                    writer.flush(10)
            unaware = producer(where, "unaware", retry_backoff_ms=100)
            write(unaware, 3, "moved")
            mover = kafka_python.KafkaAdminClient(bootstrap_servers=where.split(","), client_id="mover")
            swapped = [slow.number, leader.number]
            mover.alter_partition_reassignments({kafka_python.TopicPartition("moved", 0): swapped})
            time.sleep(1)
            mover.elect_leaders(PREFERRED, {"moved": [0]})
            write(unaware, 5, "moved")
            mover.close()
            careful = producer(f"127.0.0.1:{leader.port(PLAIN)}", "careful", message_timeout_ms=3000)
            write(careful, 3, "safe")
            writer.close()
            unaware.close()
            cluster.stop(leaving)
            write(careful, 1, "safe", timeout=4)


def assigned(where: str, client_id: str, **settings: Any) -> Consumer:
    """A consumer of ``orders`` without a group, when it has begun to fetch."""
    one = consumer(where, client_id, **settings)
    one.assign([TopicPartition("orders", 0, 0)])
    polled(one, seconds=2)
    return one


def connected() -> set[int]:
    """The ports of clients that are connected to the broker."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = ([int(end.partition(":")[2], 16) for end in line.split()[1:3]] for line in lines)
    return {mine for mine, other in ends if other == PLAIN}


def forgotten(directory: Path) -> None:
    what = (
        "A firewall forgets two connections and drops their packets (nftables). Those of the writer's are "
        "captured before they are dropped, as at the client; what the reader sends is dropped before it is "
        "captured, as at the broker. Both clients connect again."
    )
    findings = ["path-interrupted", "client-vanished"]
    with ExitStack() as dropped, trouble(directory, "forgotten", what, findings) as cluster:
        reader = assigned(cluster.bootstrap, "reader", socket_timeout_ms=5000, fetch_wait_max_ms=2000)
        of_reader = connected()
        writer = producer(cluster.bootstrap, "writer", request_timeout_ms=1000, socket_timeout_ms=8000)
        write(writer, 5)
        at_client, at_broker = (",".join(map(str, ports)) for ports in (connected() - of_reader, of_reader))
        dropped.enter_context(dropping(f"tcp sport {{{at_client}}}", f"tcp dport {{{at_broker}}}"))
        dropped.enter_context(dropping(f"tcp sport {{{at_broker}}}", hook="output"))
        write(writer, 1)
        polled(reader, seconds=24)  # the writer's request is outstanding for 30 s more than it allows


def handshake(directory: Path) -> None:
    what = (
        "A broker accepts three connections from an address. A client that uses TLS, as the listener does, "
        "opens more: the broker closes them."
    )
    findings = ["connection-closed-in-handshake"]
    with (
        tempfile.TemporaryDirectory() as place,
        running(**tls_listener(place), max_connections_per_ip="3") as cluster,
        recorded(directory, cluster, "handshake", what, findings, SASL) as truth,
        ExitStack() as kept,
    ):
        truth["decode_as"] = [SASL]  # nothing in the capture says that it is Kafka's
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(3):
            plain = kept.enter_context(socket.create_connection(("127.0.0.1", SASL), 5))
            kept.enter_context(context.wrap_socket(plain))
        secure = {"security_protocol": "ssl", "enable_ssl_certificate_verification": "false"}
        write(producer(cluster.sasl_bootstrap, "late", reconnect_backoff_ms=500, **secure), 1, timeout=5)


MORTAL = """
import sys
sys.path.insert(0, sys.argv[1])
from on_troubles import assigned
assigned(sys.argv[2], "mortal", fetch_wait_max_ms=20000).poll(60)
"""


def outcomes(directory: Path) -> None:
    what = (
        "The recording starts and ends while a consumer waits for the response to a Fetch. A producer asks "
        "for no responses (acks=0). A consumer is killed while it waits. The broker's process is stopped "
        "(SIGSTOP) for 33 s, and then answers a producer that has gone on waiting."
    )
    with running() as cluster:
        where = cluster.bootstrap
        early = assigned(where, "early", fetch_wait_max_ms=3000)
        with recorded(directory, cluster, "outcomes", what, []) as truth:
            polled(early, seconds=4)
            write(producer(where, "unconcerned", acks=0), 3)
            patient = producer(where, "patient", request_timeout_ms=1000)
            write(patient, 3)
            with running_python(MORTAL, where) as mortal:
                time.sleep(5)
                mortal.kill()
            latencies = []
            with paused(cluster):
                patient.produce(
                    "orders", b"late", on_delivery=lambda _, message: latencies.append(message.latency())
                )
                patient.flush(33)
            patient.flush(20)
            (truth["late"],) = latencies
            polled(early, seconds=5)


@contextmanager
def running_python(script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A script in a process of its own."""
    directory = str(Path(__file__).parent)
    process = subprocess.Popen([sys.executable, "-c", script, directory, *arguments])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def expected(directory: Path) -> None:
    what = (
        "A Java client is newer than the broker, and creates a topic twice. Two consumers are the first to "
        "join a group: its coordinator is not there yet."
    )
    with running(release="3.9.1") as cluster, recorded(directory, cluster, "expected", what, []):
        newer = replace(cluster, release=NEWEST, place=cluster.place / "newer")
        creating = admin("create topics", "create topics", topics=[{"name": "late", "partitions": 1}])
        newer.clients(Truth("expected", [], {}), creating)
        one = member(cluster.bootstrap, "one")
        polled(one, until=lambda: bool(one.assignment()))
        two = member(cluster.bootstrap, "two")
        polled(one, two, seconds=2)
        two.close()
        one.close()


SCENARIOS = {
    f"trouble-{scenario.__name__}": scenario
    for scenario in (
        *(healthy, loss, silent, gone, firewall, advertised, tls, stalled, closes, mismatch),
        *(login, waits, refusals, brokers, forgotten, handshake, outcomes, expected),
    )
}
