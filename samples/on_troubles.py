"""Connections in trouble, one capture each in troubles/: what an operator would capture, and what caused it.

They need their own network namespace, because packets are dropped there (nftables) and ports are fixed:

    unshare --net --mount sh -c 'ip link set lo up; python samples/make.py trouble-loss'
"""

from __future__ import annotations

import gzip
import json
import signal
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from apache_kafka import PLAIN, Cluster, kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from on_kafka import NEWEST, start_all
from on_mock import LIBRDKAFKA
from recording import recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ELSEWHERE, PROXY = 19999, 19996


@contextmanager
def trouble(
    folder: Path, name: str, what: str, findings: list[str], *ports: int, **settings: str
) -> Iterator[Cluster]:
    """A broker with the topic ``orders``, recorded while the block runs; and what is to be found."""
    path = folder / "troubles" / f"{name}.pcap"
    path.parent.mkdir(exist_ok=True)
    with kafka(NEWEST, 1, (), **settings) as cluster:
        start_all(cluster)
        if "advertised_listeners" not in settings:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(20)
        with recording(path, [PLAIN, *ports], until_quiet=False):
            yield cluster
    path.with_suffix(".pcap.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    truth = {"broker": f"Apache Kafka {NEWEST}", "clients": LIBRDKAFKA, "what": what, "findings": findings}
    path.with_suffix(".truth.json").write_text(json.dumps(truth, indent=1) + "\n")


@contextmanager
def dropping(*rules: str) -> Iterator[None]:
    """Drop the packets that nftables rules match."""
    subprocess.run(
        ["nft", "add table inet t; add chain inet t c { type filter hook input priority 0; }"], check=True
    )
    for rule in rules:
        subprocess.run(["nft", f"add rule inet t c {rule} drop"], check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete table inet t"], check=True)


def producer(where: str, client_id: str, **settings: Any) -> Producer:
    config = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": where, "client.id": client_id, "linger.ms": 0, **config})


def write(to: Producer, count: int, *, size: int = 20, timeout: float = 20) -> None:
    """Write records one by one, as far as that works."""
    for number in range(count):
        to.produce("orders", bytes(size), str(number))
        to.flush(timeout)


def loss(folder: Path) -> None:
    what = "3 % of the packets in both directions are dropped while a producer writes 300 records."
    with trouble(folder, "loss", what, ["network-loss"]) as cluster:
        one = producer(cluster.bootstrap, "writer")
        write(one, 5)
        with dropping(*(f"tcp {end} {PLAIN} numgen random mod 100 < 3" for end in ("sport", "dport"))):
            write(one, 300)
        write(one, 5)


def healthy(folder: Path) -> None:
    what = "The same without drops: nothing is to be found."
    with trouble(folder, "healthy", what, []) as cluster:
        write(producer(cluster.bootstrap, "writer"), 300)


@contextmanager
def paused(cluster: Cluster) -> Iterator[None]:
    """Stop the broker's process; its machine goes on receiving and acknowledging."""
    process = cluster.nodes[0].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def silent(folder: Path) -> None:
    what = "The broker's process is stopped (SIGSTOP) for 25 s; its machine goes on acknowledging."
    with trouble(folder, "silent", what, ["broker-silent"]) as cluster:
        one = producer(cluster.bootstrap, "writer", socket_timeout_ms=8000)
        write(one, 5)
        with paused(cluster):
            write(one, 1, timeout=25)
        one.flush(15)


def gone(folder: Path) -> None:
    what = "The broker is killed while a producer writes, which goes on trying for 5 s."
    with trouble(folder, "gone", what, ["broker-resets", "connection-refused"]) as cluster:
        one = producer(cluster.bootstrap, "writer", reconnect_backoff_max_ms=500)
        write(one, 5)
        process = cluster.nodes[0].process
        assert process is not None
        process.kill()
        process.wait()
        write(one, 1, timeout=5)


def firewall(folder: Path) -> None:
    what = "A firewall drops all packets to the broker while another client connects, for 12 s."
    with trouble(folder, "firewall", what, ["connect-timeout"]) as cluster:
        write(producer(cluster.bootstrap, "writer"), 5)
        with dropping(f"tcp dport {PLAIN}"):
            write(producer(cluster.bootstrap, "late", socket_connection_setup_timeout_ms=8000), 1, timeout=12)


def advertised(folder: Path) -> None:
    what = f"The broker advertises 127.0.0.9:{ELSEWHERE}, where nobody listens."
    settings = {"advertised_listeners": f"PLAIN://127.0.0.9:{ELSEWHERE}"}
    with trouble(
        folder, "advertised", what, ["advertised-listener-unreachable"], ELSEWHERE, **settings
    ) as cluster:
        write(producer(cluster.bootstrap, "writer", reconnect_backoff_max_ms=500), 1, timeout=5)


def tls(folder: Path) -> None:
    what = "A client uses TLS on a plaintext listener, three times; another one plaintext."
    with trouble(folder, "tls", what, ["tls-port-mismatch"]) as cluster:
        write(producer(cluster.bootstrap, "writer"), 5)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for _ in range(3):
            with suppress(OSError), socket.create_connection(("127.0.0.1", PLAIN), 5) as plain:
                context.wrap_socket(plain).close()


def stalled(folder: Path) -> None:
    what = "The broker's process is stopped (SIGSTOP) for 6 s while it is sent large records."
    with trouble(folder, "stalled", what, ["stalled-reader"], socket_receive_buffer_bytes="8192") as cluster:
        one = producer(cluster.bootstrap, "writer")
        write(one, 5)
        with paused(cluster):
            for number in range(3):
                one.produce("orders", bytes(100_000), str(number))
            one.flush(6)
        one.flush(15)


def through_proxy(
    folder: Path,
    name: str,
    what: str,
    findings: list[str],
    change: Callable[[bytes], bytes | None],
    port: int,
) -> None:
    """A client behind a proxy that changes responses; None: it ends the connection instead."""
    with (
        trouble(folder, name, what, findings, port) as cluster,
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


def closes(folder: Path) -> None:
    what = "A proxy (ours) ends each connection right behind the first request."
    through_proxy(folder, "closes", what, ["broker-closes", "reconnect-loop"], lambda _: None, PROXY)


def mismatch(folder: Path) -> None:
    what = "A proxy (ours) changes the correlation IDs of responses."
    through_proxy(
        folder,
        "mismatch",
        what,
        ["response-mismatch"],
        lambda data: data[:4] + bytes(3) + b"\x63" + data[8:],
        PROXY + 1,
    )


SCENARIOS = {
    f"trouble-{scenario.__name__}": scenario
    for scenario in (healthy, loss, silent, gone, firewall, advertised, tls, stalled, closes, mismatch)
}
