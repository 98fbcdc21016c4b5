"""Scenarios of odd captures: begun too late, clients killed, raw requests, TLS, no Kafka at all."""

from __future__ import annotations

import http.server
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import with_aiokafka as aio
import with_kafka_python as kp
import with_librdkafka as rd
from apache_kafka import SASL, kafka
from brokers import mock_cluster, tansu
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.api_key import ApiKey
from on_kafka import start_all
from on_mock import LIBRDKAFKA, PRODUCE, assorted, on_mock
from on_tansu import BROKER
from recording import recording
from tls_front import tls_front
from truth import Request, Truth, librdkafka_log, mark
from watching import watch_aiokafka, watch_kafka_python

if TYPE_CHECKING:
    from collections.abc import Callable


def midstream(directory: Path) -> None:
    """The capture begins when all are connected and busy and ends before they part: no SYN, no FIN."""
    truth = Truth("midstream", [], {"broker": f"{LIBRDKAFKA} mock cluster, 2 brokers", "clients": LIBRDKAFKA})
    truth.topics = {"spread": 4}
    with mock_cluster(2) as cluster, librdkafka_log(truth, LIBRDKAFKA):
        truth.ports = cluster.ports
        cluster.call("topic_create", "spread", 4, 2)
        config = rd.settings(cluster.bootstrap, "source", linger_ms=5)
        producer = rd.produce(truth, config, assorted("spread", 8), close=False)
        reading = rd.settings(
            cluster.bootstrap,
            "reader",
            group_id="readers",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )
        reading["enable.auto.commit"] = False
        reader = rd.consume(truth, reading, ["spread"], 8)
        with recording(directory / "midstream.pcap", truth.ports, until_quiet=False):
            mark("recording began")
            for record in assorted("spread", 40):
                rd.send(truth, producer, config, record)
                producer.flush(5)
            rd.read(truth, reader, reading, 40)
            rd.commit(truth, reader, reading)
            mark("last of which all was recorded")
        mark("recording ended")
        reader.close()
        producer.close()
    truth.note("facts.marks: how many of `requests` (in this order) were sent before each mark")
    truth.write(directory / "midstream.truth.json")


LONELY = """
import sys
sys.path.insert(0, sys.argv[1])
from confluent_kafka import Consumer, Producer
import with_librdkafka as rd
if sys.argv[3] == "producer":
    producer = Producer(rd.settings(sys.argv[2], "killed-producer", linger_ms=0))
    producer.produce("plain", "never acknowledged", "k")
    producer.flush(30)
else:
    consumer = Consumer(rd.settings(sys.argv[2], "killed-consumer", group_id="waiting"))
    consumer.subscribe(["plain"])
    consumer.poll(30)
"""


def unanswered(directory: Path) -> None:
    """A producer and a group member are killed while the mock cluster lets them wait."""
    with on_mock(directory, "unanswered", LIBRDKAFKA, brokers=1) as (cluster, truth):
        for who in ("producer", "consumer"):
            if who == "producer":
                cluster.delay(PRODUCE, broker_id=1, milliseconds=20_000)
            command = [sys.executable, "-c", LONELY, str(Path(__file__).parent), cluster.bootstrap, who]
            client = subprocess.Popen(command)
            time.sleep(2)
            client.kill()
            client.wait()
        truth.facts["killed while waiting"] = {"killed-producer": "Produce", "killed-consumer": "JoinGroup"}


def frame(
    api_key: int, version: int, correlation_id: int, body: bytes = b"", flexible: bool = False
) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, 3) + b"raw" + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def take(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError("the broker hung up")
        data += more
    return data


def raw_requests(directory: Path) -> None:
    """What no client library sends: unknown versions and APIs, many requests at once, one byte by byte."""
    truth = Truth(
        "raw-requests",
        [19095],
        {"broker": f"{BROKER}; {LIBRDKAFKA} mock cluster", "clients": "plain sockets"},
    )
    software = b"\x04raw\x021\0"
    no_topics = struct.pack(">i", 0)
    versions = [(18, 0, b"", False), (18, 2, b"", False), (18, 3, software, True), (18, 4, software, True)]
    too_new = [
        (18, 5, software, True),
        (18, 99, software, True),
        (3, 99, no_topics, True),
        (999, 0, b"", False),
    ]
    with tansu(19095) as first, mock_cluster(1) as cluster:
        truth.ports += cluster.ports
        with recording(directory / "raw-requests.pcap", truth.ports):
            for port in truth.ports:
                # What is too new has a connection of its own, because brokers hang up on it.
                send_requests(truth, port, versions, each=True)
                for request in too_new:
                    send_requests(truth, port, [request], each=True)
                send_requests(truth, port, [(18, 0, b"", False), (3, 0, no_topics, False)] * 4, each=False)
                send_requests(truth, port, [(18, 0, b"", False)], each=True, pause=0.01)
    truth.facts["bootstrap"] = [first, cluster.bootstrap]
    truth.write(directory / "raw-requests.truth.json")


def send_requests(
    truth: Truth, port: int, requests: list[tuple[int, int, bytes, bool]], each: bool, pause: float = 0.0
) -> None:
    """Send requests on one connection: each after the answer to the one before, or all in one piece."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = []
        for number, (key, version, body, flexible) in enumerate(requests, 1):
            data = frame(key, version, number, body, flexible)
            known = Request(
                client_id="raw",
                software="plain socket",
                broker=f"127.0.0.1:{port}",
                client_port=connection.getsockname()[1],
                api=ApiKey(key).name if key in set(ApiKey) else str(key),
                version=version,
                correlation_id=number,
                request_bytes=len(data),
            )
            sent.append((data, known))
            truth.requests.append(known)
        try:
            if not each:
                connection.sendall(b"".join(data for data, _ in sent))
            for data, known in sent:
                if each and pause:
                    for byte in data:
                        connection.sendall(bytes([byte]))
                        time.sleep(pause)
                elif each:
                    connection.sendall(data)
                size = struct.unpack(">i", take(connection, 4))[0]
                answer = take(connection, size)
                known.response_bytes = 4 + size
                truth.facts.setdefault("answers", []).append(
                    {
                        "broker_port": port,
                        "api": known.api,
                        "version": known.version,
                        "first_bytes": answer[:24].hex(),
                    }
                )
        except OSError as error:
            truth.error(
                "raw", f"api {sent[0][1].api} v{sent[0][1].version} to port {port}", type(error).__name__
            )


def certificate_and_key(place: str) -> tuple[str, str]:
    """Make a certificate for this machine and its key, in a directory."""
    certificate, key = f"{place}/cert.pem", f"{place}/key.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    make += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
    return certificate, key


def tls(directory: Path) -> None:
    """Kafka inside TLS; the keys of the Python clients' sessions are in tls.keys."""
    keys = directory / "tls.keys"
    keys.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        certificate, key = certificate_and_key(place)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        context = ssl.create_default_context(cafile=certificate)
        context.keylog_filename = str(keys)
        where = "127.0.0.1:9093"
        truth = Truth(
            "tls",
            [9093],
            {"broker": f"{BROKER} behind tls_front.py", "clients": f"{LIBRDKAFKA}, {kp.NAME}, {aio.NAME}"},
        )
        with (
            tansu(19098, advertised=where),
            tls_front(9093, 19098, server),
            recording(directory / "tls.pcap", truth.ports),
            librdkafka_log(truth, LIBRDKAFKA),
        ):
            secure = {"security.protocol": "ssl", "ssl.ca.location": certificate}
            rd.produce(truth, rd.settings(where, "rd-tls") | secure, assorted("sealed", 3))
            with watch_kafka_python(truth):
                kp.produce(
                    truth,
                    where,
                    "kp-tls",
                    assorted("sealed", 3),
                    security_protocol="SSL",
                    ssl_context=context,
                )
            with watch_aiokafka(truth):
                steps = aio.produce(
                    truth,
                    where,
                    "aio-tls",
                    assorted("sealed", 3),
                    security_protocol="SSL",
                    ssl_context=context,
                )
                aio.run(truth, steps)
    truth.topics = {"sealed": 3}
    truth.note("The requests passed inside TLS: none of them can be seen in the capture without tls.keys.")
    truth.write(directory / "tls.truth.json")


def tls_listener(place: str) -> dict[str, str]:
    """Settings of Apache Kafka for TLS on the port of SASL; the certificate is written into a directory."""
    certificate, key = certificate_and_key(place)
    keystore = Path(place, "keystore.pem")
    keystore.write_bytes(Path(key).read_bytes() + Path(certificate).read_bytes())
    return {
        "sasl": "of-no-use",
        "listener_security_protocol_map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SSL",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(keystore),
    }


def plaintext_on_tls(directory: Path) -> None:
    """Clients without TLS on the port of a listener that expects it."""
    with tempfile.TemporaryDirectory() as place, kafka("4.4.0", **tls_listener(place)) as cluster:
        start_all(cluster)
        clients = f"{LIBRDKAFKA}, {kp.NAME}"
        truth = Truth("plaintext-on-tls", [SASL], {"broker": "Apache Kafka 4.4.0", "clients": clients})
        where = cluster.sasl_bootstrap
        with recording(directory / "plaintext-on-tls.pcap", truth.ports):
            Producer({"bootstrap.servers": where, "client.id": "rd-plain"}).poll(2)
            admin = {"client_id": "kp-plain", "bootstrap_timeout_ms": 500, "reconnect_backoff_ms": 300}
            try:
                KafkaAdminClient(bootstrap_servers=where, **admin)
            except KafkaError as error:
                truth.error("kp-plain", "connect", type(error).__name__)
    truth.note("No client got a response: of each connection the first request, ApiVersions, is on the wire.")
    truth.write(directory / "plaintext-on-tls.truth.json")


ODD_CLIENTS = [b"evil\x1b]0;pwned\x07", b"c" * 2000, b"\x01" * 300, b"\xff\xfe caf\xe9", b""]


def odd_clients(directory: Path) -> None:
    """Client IDs that no library sends, and bytes after an ApiVersions request: on connections of which the
    beginning was recorded, and on others.
    """
    with mock_cluster(1) as cluster:
        (port,) = cluster.ports
        software = {"broker": f"{LIBRDKAFKA} mock cluster", "clients": "plain sockets"}
        truth = Truth("odd-clients", [port], software)
        early = [
            socket.create_connection(("127.0.0.1", port), timeout=2) for _ in range(len(ODD_CLIENTS) + 1)
        ]
        with recording(directory / "odd-clients.pcap", truth.ports):
            for client_id, connection in zip(ODD_CLIENTS, early, strict=False):
                send_as(truth, connection, port, client_id)
            send_as(truth, early[-1], port, b"rdkafka", bytes(4))
            for client_id in ODD_CLIENTS:
                send_as(truth, socket.create_connection(("127.0.0.1", port), timeout=2), port, client_id)
    truth.write(directory / "odd-clients.truth.json")


def send_as(
    truth: Truth, connection: socket.socket, port: int, client_id: bytes, behind: bytes = b""
) -> None:
    """Send ApiVersions v0, with bytes behind it, and Metadata v1; each after the answer to the one before."""
    with connection:
        for number, (key, version, body) in enumerate(((18, 0, behind), (3, 1, bytes(4))), 1):
            header = struct.pack(">hhih", key, version, number, len(client_id)) + client_id
            data = struct.pack(">i", len(header) + len(body)) + header + body
            known = Request(
                client_id=client_id.decode(errors="backslashreplace"),
                software="plain socket",
                broker=f"127.0.0.1:{port}",
                client_port=connection.getsockname()[1],
                api=ApiKey(key).name,
                version=version,
                correlation_id=number,
                request_bytes=len(data),
            )
            truth.requests.append(known)
            try:
                connection.sendall(data)
                size = struct.unpack(">i", take(connection, 4))[0]
                take(connection, size)
            except OSError as error:
                truth.error(str(known.client_id)[:20], f"API {known.api}", type(error).__name__)
                return
            known.response_bytes = 4 + size


class Answers(http.server.BaseHTTPRequestHandler):
    """A short page, a long one and one that is not there; no name or version of this machine."""

    server_version, sys_version, protocol_version = "sample", "", "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        body = b"no such page\n" * (20 if self.path == "/long" else 1)
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def http_on_9092(directory: Path) -> None:
    """A web server on Kafka's port."""
    truth = Truth("http-on-9092", [9092], {"broker": "Python http.server", "clients": "Python urllib"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 9092), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with recording(directory / "http-on-9092.pcap", [9092]):
            for page in ["", "long", "none"] * 3:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:9092/{page}", timeout=5).read()
                except urllib.error.HTTPError as error:
                    truth.error("urllib", f"GET /{page}", error.code)
        server.shutdown()
    truth.note("No Kafka at all: not one exchange.")
    truth.write(directory / "http-on-9092.truth.json")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "midstream": midstream,
    "unanswered": unanswered,
    "raw-requests": raw_requests,
    "tls": tls,
    "plaintext-on-tls": plaintext_on_tls,
    "odd-clients": odd_clients,
    "http-on-9092": http_on_9092,
}
