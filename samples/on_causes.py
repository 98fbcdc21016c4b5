"""Causes that a client only calls a disconnect or a timeout, one capture each in troubles/; healthy controls.

on_troubles.py says what the recordings need. These also need ethtool, because packets must not exceed
1,500 bytes where the size of packets is the trouble. What clients and brokers messages is in ``messages``.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiokafka
import kafka as kafka_python
from aiokafka.errors import KafkaError
from apache_kafka import CONTROLLER, PLAIN, SASL
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from on_kafka import JAAS
from on_troubles import (
    assigned,
    connected,
    consumer,
    dropping,
    make_topic,
    polled,
    producer,
    recorded,
    running,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from apache_kafka import Cluster

CLOSED, CUTTER = 19990, 19989
NARROW = 1200
FAR, BETWEEN = "kdissect-far", "kdissect-between"
PYTHON_CLIENT = f"kafka-python {kafka_python.__version__}"


def listener(messages: list[str]) -> dict[str, Any]:
    """The setting with which librdkafka reports its errors, each once."""

    def hear(error: Any) -> None:
        text = f"librdkafka: {error.str()}"
        if text not in messages:
            messages.append(text)

    return {"error_cb": hear}


@contextmanager
def hearing(messages: list[str]) -> Iterator[None]:
    """Note the warnings of kafka-python, each once."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = f"kafka-python: {record.getMessage()}"
            if text not in messages and len(messages) < 20:
                messages.append(text)

    logger, handler = logging.getLogger("kafka"), Handler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def logged_by(cluster: Cluster, before: dict[int, int], *words: str) -> list[str]:
    """The lines in brokers' logs that have one of these words, each once, without time."""
    lines = [
        line.strip()
        for node in cluster.nodes
        for line in cluster.logged(node, before)
        if any(word in line for word in words) and "kafka.request.logger" not in line
    ]
    return [f"broker: {line[:300]}" for line in dict.fromkeys(lines)][:12]


@contextmanager
def far_away(mtu: int = 1500) -> Iterator[str]:
    """A network namespace for clients and another one between, which carries packets up to a size and says
    nothing if one is larger; and the address at which clients reach this one.
    """
    ends = ((FAR, "far"), (BETWEEN, "one"), (BETWEEN, "two"), ("", "near"))
    commands = (
        f"ip netns add {FAR}",
        f"ip netns add {BETWEEN}",
        f"ip link add near type veth peer name one netns {BETWEEN}",
        f"ip link add two netns {BETWEEN} type veth peer name far netns {FAR}",
        "ip address add 10.99.0.1/24 dev near",
        f"ip -n {BETWEEN} address add 10.99.0.254/24 dev one",
        f"ip -n {BETWEEN} address add 10.99.7.254/24 dev two",
        f"ip -n {FAR} address add 10.99.7.7/24 dev far",
        *(f"ip {f'-n {place} ' if place else ''}link set {name} up" for place, name in ends),
        f"ip -n {FAR} link set lo up",
        *(
            f"{f'ip netns exec {place} ' if place else ''}ethtool -K {name} tso off gso off gro off"
            for place, name in ends
        ),
        "ip route add 10.99.7.0/24 via 10.99.0.254",
        f"ip -n {FAR} route add default via 10.99.7.254",
        f"ip netns exec {BETWEEN} sysctl -qw net.ipv4.ip_forward=1",
    )
    silent = "add table inet t; add chain inet t c { type filter hook output priority 0; policy drop; }"
    chain = "add chain inet t f { type filter hook forward priority 0; }"
    narrow = f"{chain}; add rule inet t f ip length > {mtu} drop"
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        subprocess.run(["ip", "netns", "exec", BETWEEN, "nft", f"{silent}; {narrow}"], check=True)
        yield "10.99.0.1"
    finally:
        for place in (FAR, BETWEEN):
            subprocess.run(["ip", "netns", "del", place], check=False)


def far_script(script: str, *arguments: str) -> list[str]:
    """Run a script in the namespace for clients; the lines that it prints."""
    here = str(Path(__file__).parent)
    command = ["ip", "netns", "exec", FAR, sys.executable, "-c", script, here, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def listening(address: str, **more: str) -> dict[str, str]:
    """The settings of a broker that advertises an address."""
    controller = f"CONTROLLER://127.0.0.1:{CONTROLLER}"
    return {
        "listeners": f"PLAIN://0.0.0.0:{PLAIN},{controller}",
        "advertised_listeners": f"PLAIN://{address}:{PLAIN},{controller}",
        **more,
    }


_FAR_LARGE = """
import sys
sys.path.insert(0, sys.argv[1])
from on_causes import listener
from on_troubles import assigned, polled, producer, write
messages, where = [], sys.argv[2]
if sys.argv[3] == "write":
    slow = {"message_timeout_ms": 25000, "request_timeout_ms": 10000, "socket_timeout_ms": 10000}
    one = producer(where, "writer", **slow, **listener(messages))
    write(one, 5)
    write(one, 1, size=5000, timeout=28)
else:
    reader = assigned(where, "reader", socket_timeout_ms=8000, **listener(messages))
    polled(reader, seconds=25)
print("\\n".join(messages))
"""
_AT = {"client": {"options": ("-i", "far"), "namespace": FAR}, "broker": {"options": ("-i", "near")}}
_NARROW = (
    f"The path carries no packet of more than {NARROW} bytes, and nothing says so (a router in a network "
    "namespace drops them; interfaces allow 1,500). "
)


def _large_record(directory: Path, name: str, where: str) -> None:
    what = (
        f"{_NARROW}A producer's small records arrive, a record of 5,000 bytes never does. Captured at the "
        f"{where}."
    )
    with far_away(NARROW) as address, running(**listening(address)) as cluster:
        make_topic(f"{address}:{PLAIN}", "orders", [1])
        with recorded(directory, cluster, name, what, ["mtu-black-hole"], **_AT[where]) as truth:
            truth["messages"] = far_script(_FAR_LARGE, f"{address}:{PLAIN}", "write")


def mtu_at_client(directory: Path) -> None:
    _large_record(directory, "mtu-at-client", "client")


def mtu_at_broker(directory: Path) -> None:
    _large_record(directory, "mtu-at-broker", "broker")


def _large_response(directory: Path, name: str, where: str) -> None:
    what = (
        f"{_NARROW}A consumer's requests arrive, and responses without records come back; a response with a "
        f"record of 5,000 bytes never does. Captured at the {where}."
    )
    with far_away(NARROW) as address, running(**listening(address)) as cluster:
        make_topic(f"{address}:{PLAIN}", "orders", [1])
        with recorded(directory, cluster, name, what, ["mtu-black-hole"], **_AT[where]) as truth:
            truth["messages"] = []
            write_later = threading.Timer(
                6, write, (producer(f"{address}:{PLAIN}", "writer"), 1), {"size": 5000}
            )
            write_later.start()
            truth["messages"] = far_script(_FAR_LARGE, f"{address}:{PLAIN}", "read")
            write_later.join()


def mtu_response_at_client(directory: Path) -> None:
    _large_response(directory, "mtu-response-at-client", "client")


def mtu_response_at_broker(directory: Path) -> None:
    _large_response(directory, "mtu-response-at-broker", "broker")


def _after_silence(directory: Path, name: str, what: str, findings: list[str], verdict: str) -> None:
    with running() as cluster, recorded(directory, cluster, name, what, findings) as truth:
        truth["messages"] = []
        hasty = {"request_timeout_ms": 6000, "socket_timeout_ms": 8000}
        one = producer(cluster.bootstrap, "writer", **hasty, **listener(truth["messages"]))
        write(one, 3)
        time.sleep(25)
        write(one, 3)
        time.sleep(45)
        with dropping(f"tcp sport {{{','.join(map(str, connected()))}}}", verdict=verdict):
            write(one, 3)


def idle_dropped(directory: Path) -> None:
    what = (
        "A firewall forgets connections that were silent for 40 s and drops their packets (nftables). A "
        "producer writes after 25 s of silence, then after 45 s. Its new connection works."
    )
    _after_silence(directory, "idle-dropped", what, ["idle-connection-dropped"], "drop")


def idle_reset(directory: Path) -> None:
    what = (
        "A load balancer forgets connections that were silent for 40 s and resets them (nftables). A "
        "producer writes after 25 s of silence, then after 45 s. Its new connection works."
    )
    _after_silence(directory, "idle-reset", what, ["idle-connection-dropped"], "reject with tcp reset")


def pauses(directory: Path) -> None:
    what = (
        "A producer writes once in 40 s. A consumer pauses its partition for 15 s, another one waits for "
        "records with polls of 20 s. The broker closes connections that are silent for 50 s. Nothing is to "
        "be found."
    )
    with (
        running(connections_max_idle_ms="50000") as cluster,
        recorded(directory, cluster, "pauses", what, []),
    ):
        where = cluster.bootstrap
        writer = producer(where, "writer")
        patient = assigned(where, "patient", fetch_wait_max_ms=20000)
        pausing = assigned(where, "pausing")
        write(writer, 3)
        polled(patient, pausing, seconds=4)
        pausing.pause([TopicPartition("orders", 0)])
        polled(patient, pausing, seconds=15)
        pausing.resume([TopicPartition("orders", 0)])
        polled(patient, pausing, seconds=21)
        write(writer, 3)
        polled(patient, pausing, seconds=5)
        time.sleep(55)
        write(writer, 3)
        polled(patient, seconds=2)


def serve_for(server: socket.socket, seconds: float) -> None:
    """Pass on bytes between clients and the broker; end connections after so long without any."""

    def relay(client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", PLAIN), 5) as broker:
            while ready := select.select([client, broker], [], [], seconds)[0]:
                for one in ready:
                    data = one.recv(65536)
                    if not data:
                        return
                    (broker if one is client else client).sendall(data)

    with suppress(OSError):
        while True:
            client, _ = server.accept()
            threading.Thread(target=relay, args=(client,), daemon=True).start()


def poll_cut(directory: Path) -> None:
    what = (
        "A proxy (ours) ends connections on which nothing is sent for 6 s. A consumer's fetches wait up to "
        "20 s for records. Captured between the consumer and the proxy."
    )
    settings = {"advertised_listeners": f"PLAIN://127.0.0.1:{CUTTER}"}
    with (
        socket.create_server(("127.0.0.1", CUTTER)) as server,
        running(**settings) as cluster,
    ):
        threading.Thread(target=serve_for, args=(server, 6), daemon=True).start()
        where = f"127.0.0.1:{CUTTER}"
        make_topic(where, "orders", [1])
        with recorded(
            directory, cluster, "poll-cut", what, ["long-polls-cut"], CUTTER, beside=False
        ) as truth:
            truth["messages"] = []
            reader = assigned(where, "reader", fetch_wait_max_ms=20000, **listener(truth["messages"]))
            writer = producer(where, "writer")
            for _ in range(3):
                write(writer, 1)
                polled(reader, seconds=14)


def closed_port(directory: Path) -> None:
    what = f"Two clients connect to port {CLOSED}, where nothing listens. The broker is not in the capture."
    with recorded(directory, None, "closed-port", what, ["no-listener"], CLOSED) as truth:
        truth["messages"] = []
        one = producer(
            f"127.0.0.1:{CLOSED}", "writer", reconnect_backoff_max_ms=1000, **listener(truth["messages"])
        )
        write(one, 1, timeout=6)
        with hearing(truth["messages"]), suppress(Exception):
            kafka_python.KafkaProducer(bootstrap_servers=f"127.0.0.1:{CLOSED}", bootstrap_timeout_ms=4000)


def dropped_port(directory: Path) -> None:
    what = f"A firewall drops what a client sends to port {CLOSED}. The broker is not in the capture."
    with (
        recorded(directory, None, "dropped-port", what, ["no-listener"], CLOSED) as truth,
        dropping(f"tcp dport {CLOSED}"),
    ):
        truth["messages"] = []
        quick = {"socket_connection_setup_timeout_ms": 4000, "reconnect_backoff_max_ms": 500}
        write(
            producer(f"127.0.0.1:{CLOSED}", "writer", **quick, **listener(truth["messages"])), 1, timeout=20
        )


def scanned(directory: Path) -> None:
    what = (
        "A scanner tries 60 ports, each twice; the broker's port once: it connects and leaves. A producer "
        "writes. Nothing is to be found."
    )
    with running() as cluster, recorded(directory, cluster, "scanned", what, [], *range(20000, 20060)):
        write(producer(cluster.bootstrap, "writer", linger_ms=50), 3)
        for port in (*range(20000, 20060), PLAIN, *range(20000, 20060)):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1, ("127.0.0.5", 0)):
                pass


def tls_only(directory: Path) -> None:
    what = (
        "Two clients use TLS on a plaintext listener, again and again. No client uses plaintext. The broker "
        "takes the ClientHello for the size of a request."
    )
    with running() as cluster:
        time.sleep(3)
        before = cluster.positions()
        with recorded(directory, cluster, "tls-only", what, ["tls-not-answered"]) as truth:
            truth["messages"] = []
            secure = {"security_protocol": "ssl", "enable_ssl_certificate_verification": "false"}
            one = producer(
                cluster.bootstrap,
                "writer",
                reconnect_backoff_max_ms=1000,
                **secure,
                **listener(truth["messages"]),
            )
            write(one, 1, timeout=6)
            with hearing(truth["messages"]), suppress(Exception):
                kafka_python.KafkaProducer(
                    bootstrap_servers=cluster.bootstrap, security_protocol="SSL", bootstrap_timeout_ms=4000
                )
            truth["messages"] += logged_by(cluster, before, "Invalid", "closed", "receive")


def foreign(directory: Path) -> None:
    what = (
        "A health check sends HTTP requests to a broker's port, an SSH client and a PostgreSQL client try it "
        "too. The broker closes their connections. A producer writes."
    )
    with running() as cluster:
        before = cluster.positions()
        with recorded(directory, cluster, "foreign", what, ["wrong-protocol"]) as truth:
            write(producer(cluster.bootstrap, "writer", linger_ms=50), 3)
            greetings = (
                *[b"GET /healthz HTTP/1.1\r\nHost: kafka\r\nUser-Agent: probe\r\n\r\n"] * 4,
                b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
                bytes.fromhex("0000000804d2162f"),
            )
            for greeting in greetings:
                with suppress(OSError), socket.create_connection(("127.0.0.1", PLAIN), 5) as client:
                    client.settimeout(3)
                    client.sendall(greeting)
                    client.recv(100)
                time.sleep(0.5)
            truth["messages"] = logged_by(cluster, before, "Invalid", "receive", "Unexpected error")


_FAR_WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from on_causes import listener
from on_troubles import producer, write
messages = []
write(producer(sys.argv[2], "writer", reconnect_backoff_max_ms=1000, **listener(messages)), 1, timeout=8)
print("\\n".join(messages))
"""


def loopback(directory: Path) -> None:
    what = (
        "A broker advertises 127.0.0.1 to a client on another machine (a network namespace), which then "
        "connects to itself. Captured between the two."
    )
    with (
        far_away() as address,
        running(**listening("127.0.0.1")) as cluster,
    ):
        make_topic(cluster.bootstrap, "orders", [1])
        findings = ["advertised-listener-unreachable"]
        with recorded(directory, cluster, "loopback", what, findings, options=("-i", "near")) as truth:
            truth["messages"] = far_script(_FAR_WRITER, f"{address}:{PLAIN}")


def one_address(directory: Path) -> None:
    what = (
        "Two brokers advertise the same address, the first one's. The second one leads a partition: what is "
        "written to it goes to the wrong broker."
    )
    settings = {"advertised_listeners": f"PLAIN://127.0.0.1:{PLAIN}"}
    with running(2, **settings) as cluster:
        where = f"127.0.0.1:{PLAIN}"
        make_topic(where, "orders", [1], [2])
        with recorded(directory, cluster, "one-address", what, ["shared-address"]) as truth:
            truth["messages"] = []
            hasty = {"message_timeout_ms": 6000, "retry_backoff_ms": 300}
            one = producer(where, "writer", **hasty, **listener(truth["messages"]))
            reports: list[str] = []
            for partition in (0, 1):
                one.produce(
                    "orders",
                    b"order",
                    partition=partition,
                    on_delivery=lambda error, _: reports.append(str(error)),
                )
            one.flush(10)
            truth["messages"] += [f"librdkafka: delivery: {report}" for report in reports]


def skipped(directory: Path) -> None:
    what = (
        "40 of 60 records are deleted (as retention does) behind a consumer that has read 10 and waits. It "
        "fetches offset 10, which is gone, and goes on at the earliest one: 30 records are never read."
    )
    with (
        running() as cluster,
        recorded(directory, cluster, "skipped", what, ["offset-out-of-range"]) as truth,
    ):
        where = cluster.bootstrap
        writer = producer(where, "writer", linger_ms=50)
        for batch in (10, 50):
            for number in range(batch):
                writer.produce("orders", b"order", str(number), partition=0)
            writer.flush(10)
            if batch == 10:
                reader = consumer(where, "reader", queued_min_messages=1)
                reader.assign([TopicPartition("orders", 0, 0)])
                offsets = _offsets(reader, 10)
                reader.pause([TopicPartition("orders", 0)])
                polled(reader, seconds=1)
        deleting = AdminClient({"bootstrap.servers": where, "client.id": "retention"})
        next(iter(deleting.delete_records([TopicPartition("orders", 0, 40)]).values())).result(10)
        reader.resume([TopicPartition("orders", 0)])
        offsets += _offsets(reader, 20)
        truth["offsets_read"] = offsets


def _offsets(reader: Any, count: int) -> list[int]:
    offsets: list[int] = []
    end = time.monotonic() + 20
    while len(offsets) < count and time.monotonic() < end:
        message = reader.poll(0.1)
        if message is not None and not message.error():
            offsets.append(message.offset())
    return offsets


_ALICE = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
_PASSWORD = "wonderland-7"


async def _write_on(where: str, messages: list[str], **settings: Any) -> None:
    one = aiokafka.AIOKafkaProducer(bootstrap_servers=where, client_id="never-renewing", **settings)
    await one.start()
    for number in range(9):
        try:
            await asyncio.wait_for(one.send_and_wait("orders", str(number).encode()), 10)
        except KafkaError as error:
            messages.append(f"aiokafka: {error!r}")
        await asyncio.sleep(4)
    await one.stop()


def session_expired(directory: Path) -> None:
    what = (
        "A broker limits sessions to 8 s (connections.max.reauth.ms). aiokafka does not log in again: the "
        "broker closes its connections with its next requests. librdkafka does, and writes too."
    )
    secure = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
    settings = {**_ALICE, "sasl_plain_username": "alice", "sasl_plain_password": _PASSWORD}
    findings = ["session-expired"]
    with (
        running(sasl=JAAS, connections_max_reauth_ms="8000") as cluster,
        recorded(directory, cluster, "session-expired", what, findings, SASL) as truth,
    ):
        truth["messages"] = []
        other = producer(
            cluster.sasl_bootstrap,
            "renewing",
            **secure,
            sasl_password=_PASSWORD,
            **listener(truth["messages"]),
        )
        write(other, 1)
        asyncio.run(_write_on(cluster.sasl_bootstrap, truth["messages"], **settings))
        write(other, 1)


def mechanism(directory: Path) -> None:
    what = (
        "A client logs in with SCRAM-SHA-512; the listener has PLAIN and SCRAM-SHA-256. Another one writes."
    )
    with running(sasl=JAAS) as cluster:
        before = cluster.positions()
        with recorded(directory, cluster, "mechanism", what, ["sasl-failures"], SASL) as truth:
            truth["messages"] = []
            write(producer(cluster.bootstrap, "writer", linger_ms=50), 3)
            one = producer(
                cluster.sasl_bootstrap, "scram", security_protocol="sasl_plaintext",
                sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password=_PASSWORD,
                reconnect_backoff_max_ms=1000, **listener(truth["messages"]),
            )  # fmt: skip
            write(one, 1, timeout=5)
            truth["messages"] += logged_by(cluster, before, "mechanism")


def request_limit(directory: Path) -> None:
    what = (
        "A broker accepts requests of up to 50,000 bytes (socket.request.max.bytes). A producer sends a "
        "record of 100,000 bytes, again and again: the broker closes the connection inside the request."
    )
    with running(socket_request_max_bytes="50000") as cluster:
        before = cluster.positions()
        with recorded(directory, cluster, "request-limit", what, ["broker-closes"]) as truth:
            truth["messages"] = []
            one = producer(
                cluster.bootstrap,
                "writer",
                message_timeout_ms=6000,
                retry_backoff_ms=300,
                **listener(truth["messages"]),
            )
            write(one, 3)
            write(one, 1, size=100_000, timeout=8)
            truth["messages"] += logged_by(cluster, before, "Invalid", "receive")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    f"trouble-{scenario.__name__.replace('_', '-')}": scenario
    for scenario in (
        *(mtu_at_client, mtu_at_broker, mtu_response_at_client, mtu_response_at_broker),
        *(idle_dropped, idle_reset, poll_cut, pauses),
        *(closed_port, dropped_port, scanned, tls_only, foreign, loopback, one_address),
        *(skipped, session_expired, mechanism, request_limit),
    )
}
