"""TLS listeners of Apache Kafka itself, with the key log of the agent that most brokers' key logs come from.

    python samples/make.py kafka-4-tls kafka-4-front kafka-4-tls-1.0 kafka-4-tls-resumed

The agent (name.neykov:extract-tls-secrets) is loaded into the broker, so its lines are those of all clients.
The front of OpenSSL has ciphers that Java does not have. Its clients write their own key logs, except Java.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import with_aiokafka as aio
import with_kafka_python as kp
import with_librdkafka as rd
from apache_kafka import PLAIN as PLAIN_PORT
from apache_kafka import SASL, kafka
from on_kafka import JAAS, NEWEST, USERS, on_kafka, start_all
from on_mock import assorted
from on_tansu import make_topics
from OpenSSL import SSL
from others import certificate_and_key, tls_listener
from recording import recording
from story import client
from tls_front import tls_front
from truth import Truth
from watching import watch_kafka_python

HERE = Path(__file__).resolve().parent
FRONT = "127.0.0.1:19591"
BEHIND_FRONT = {
    "sasl": "of-no-use",
    "advertised_listeners": f"PLAIN://127.0.0.1:{PLAIN_PORT},SASL://{FRONT}",
    "listener_security_protocol_map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:PLAINTEXT",
}
ALLOW_CLIENT_RENEGOTIATION = 1 << 8  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION
OPENSSL_CIPHERS = {"kp-ccm": "AES128-CCM", "kp-ccm-8": "AES256-CCM8", "kp-cbc": "AES256-SHA256"}
"""Client ID -> cipher suite of TLS 1.2, as OpenSSL names it. CBC has encrypt-then-MAC."""
OLD_CIPHERS = {
    "java-1.0-cbc-128": "TLS_RSA_WITH_AES_128_CBC_SHA",
    "java-1.0-cbc-256": "TLS_RSA_WITH_AES_256_CBC_SHA",
}
AGENT = "name.neykov:extract-tls-secrets:4.0.0"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAVA_CLIENTS = {
    "java-1.3-gcm": ("TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    "java-1.3-chacha": ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
    "java-1.2-gcm": ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    "java-1.2-cbc": ("TLSv1.2", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
}


def agent(place: str) -> Path:
    """The agent's jar; Maven brings it."""
    command = ["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"]
    subprocess.run([*command, f"-Dartifact={AGENT}", f"-DoutputDirectory={place}"], check=True)
    return next(Path(place).glob("extract-tls-secrets*.jar"))


def kafka_4_tls(directory: Path) -> None:
    """All four client libraries, TLS 1.2 and 1.3, on a listener with SASL."""
    directory = directory / "tls"
    directory.mkdir(exist_ok=True)
    keys = directory / "kafka-4-tls.keys"
    keys.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        listener = tls_listener(place) | {"sasl": JAAS}
        protocols = "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL"
        listener["listener_security_protocol_map"] = protocols
        options = (f"-javaagent:{agent(place)}={keys}",)
        with on_kafka(directory, "kafka-4-tls", users=USERS, options=options, **listener) as (cluster, truth):
            make_topics(truth, cluster.bootstrap, {"sealed": 2})
            truth.ports = [SASL]
            where, certificate = cluster.sasl_bootstrap, f"{place}/cert.pem"
            secure = {"security.protocol": "SASL_SSL", "ssl.ca.location": certificate}
            secure |= {"sasl.username": "alice", "sasl.password": "wonderland-7", "sasl.mechanism": "PLAIN"}
            rd.produce(truth, rd.settings(where, "rd-tls", linger_ms=5) | secure, assorted("sealed", 6))
            reading: dict[str, Any] = {"group.id": "readers", "auto.offset.reset": "earliest"}
            config = rd.settings(where, "rd-reader") | secure | reading
            rd.consume(truth, config, ["sealed"], 6).close()
            login: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"}
            login |= {"sasl_plain_username": "bob", "sasl_plain_password": "looking-glass-9"}
            context = ssl.create_default_context(cafile=certificate)
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            kp.produce(truth, where, "kp-1.2", assorted("sealed", 4), ssl_context=context, **login)
            context = ssl.create_default_context(cafile=certificate)
            aio.run(
                truth,
                aio.produce(truth, where, "aio-1.3", assorted("sealed", 4), ssl_context=context, **login),
            )
            for name, (version, suite) in JAVA_CLIENTS.items():
                config = client(name, linger_ms="5") | {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "PLAIN",
                    "sasl.jaas.config": f'{PLAIN} required username="alice" password="wonderland-7";',
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": certificate,
                    "ssl.enabled.protocols": version,
                    "ssl.cipher.suites": suite,
                }
                step = {"do": "produce", "config": config, "topic": "sealed", "count": 3}
                cluster.clients(truth, step, where=where)
            truth.note("The key log was written by an agent inside the broker.")
    capture = directory / "kafka-4-tls.pcap"
    capture.with_suffix(".pcap.gz").write_bytes(gzip.compress(capture.read_bytes(), mtime=0))
    capture.unlink()


def front_settings(certificate: str, key: str, keys: Path) -> SSL.Context:
    """All ciphers of OpenSSL, and renegotiation by clients; each session is written to a key log."""
    context = SSL.Context(SSL.TLS_METHOD)
    context.use_certificate_file(certificate)
    context.use_privatekey_file(key)
    context.set_cipher_list(b"ALL:@SECLEVEL=0")
    context.set_options(ALLOW_CLIENT_RENEGOTIATION)

    def note(_: SSL.Connection, line: bytes) -> None:
        with keys.open("ab") as log:
            log.write(line + b"\n")

    context.set_keylog_callback(note)
    return context


def printed(truth: Truth, *command: str, **environment: str) -> None:
    """The records that a program says it has produced."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, **environment})
    truth.produced += map(json.loads, done.stdout.splitlines())


def kafka_4_front(directory: Path) -> None:
    """Go, Node, Python and Java through a front of OpenSSL, behind which all is in clear."""
    port = int(FRONT.rpartition(":")[2])
    with tempfile.TemporaryDirectory() as place, kafka(NEWEST, **BEHIND_FRONT) as cluster:
        certificate, key = certificate_and_key(place)
        logs = {name: Path(place, f"{name}.keys") for name in ("go", "node", "python", "front")}
        install_clients(place)
        limits = Path(place, "java.security")
        limits.write_text("jdk.tls.keyLimits=AES/GCM/NoPadding KeyUpdate 2^10\n")
        start_all(cluster)
        clients = f"franz-go 1.18.1, kafkajs 2.2.4, {kp.NAME}, Apache Kafka {NEWEST}"
        broker = f"Apache Kafka {NEWEST} behind tls_front.py"
        truth = Truth("kafka-4-front", [port, SASL], {"broker": broker, "clients": clients})
        make_topics(truth, cluster.bootstrap, {"sealed": 2})
        cluster.options = (f"-Djava.security.properties={limits}",)
        capture = directory / "tls" / "kafka-4-front.pcap"
        with (
            tls_front(port, SASL, front_settings(certificate, key, logs["front"])),
            recording(capture, truth.ports),
            watch_kafka_python(truth),
        ):
            for name, cipher in OPENSSL_CIPHERS.items():
                context = ssl.create_default_context(cafile=certificate)
                context.maximum_version = ssl.TLSVersion.TLSv1_2
                context.set_ciphers(f"{cipher}:@SECLEVEL=0")
                context.keylog_filename = str(logs["python"])
                secure: dict[str, Any] = {"security_protocol": "SSL", "ssl_context": context}
                kp.produce(truth, FRONT, name, assorted("sealed", 2), **secure)
            printed(truth, f"{place}/produce", FRONT, certificate, str(logs["go"]), "go-1.3", "sealed", "3")
            node = ["node", f"--tls-keylog={logs['node']}", str(HERE / "node" / "producer.js")]
            printed(
                truth,
                *(*node, FRONT, certificate, "node-1.2", "sealed", "3", "TLSv1.2"),
                NODE_PATH=f"{place}/node_modules",
            )
            config = client("java-updates", linger_ms="5") | java_trust(certificate)
            step = {"do": "produce", "config": config, "topic": "sealed", "count": 3, "repeat": 20}
            cluster.clients(truth, step, where=FRONT)
        known = {line.split()[1] for name in logs if name != "front" for line in lines_of(logs[name])}
        kept = [line for line in lines_of(logs["front"]) if line.split()[1] not in known]
        logs["front"].write_text("".join(kept))
        secrets = [option for log in logs.values() for option in ("--inject-secrets", f"tls,{log}")]
        subprocess.run(["editcap", *secrets, capture, capture.with_suffix(".pcapng")], check=True)
    capture.unlink()
    truth.note(f"Port {port} has TLS; port {SASL} has the same bytes between the front and the broker.")
    truth.write(directory / "tls" / "kafka-4-front.truth.json")


def install_clients(place: str) -> None:
    """Those of Go and of Node, in a directory."""
    subprocess.run(["go", "build", "-C", HERE / "go", "-o", f"{place}/produce", "."], check=True)
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place]
    shutil.copy(HERE / "node" / "package.json", place)
    subprocess.run(npm, check=True)


def kafka_4_tls_1_0(directory: Path) -> None:
    """TLS 1.0 with RSA key exchange, which Java speaks only if its security properties are overridden."""
    keys = directory / "tls" / "kafka-4-tls-1.0.keys"
    keys.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        security = Path(place, "java.security")
        security.write_text("jdk.tls.disabledAlgorithms=\njdk.tls.legacyAlgorithms=\n")
        old = {"ssl.enabled.protocols": "TLSv1", "ssl.cipher.suites": ",".join(OLD_CIPHERS.values())}
        settings = tls_listener(place) | {key.replace(".", "_"): value for key, value in old.items()}
        with kafka(NEWEST, **settings) as cluster:
            cluster.options = (f"-javaagent:{agent(place)}={keys}", f"-Djava.security.properties={security}")
            start_all(cluster)
            broker = f"Apache Kafka {NEWEST}"
            truth = Truth("kafka-4-tls-1.0", [SASL], {"broker": broker, "clients": broker})
            make_topics(truth, cluster.bootstrap, {"sealed": 1})
            with recording(directory / "tls" / "kafka-4-tls-1.0.pcap", truth.ports):
                for name, cipher in OLD_CIPHERS.items():
                    config = client(name, linger_ms="5") | old | {"ssl.cipher.suites": cipher}
                    config |= java_trust(f"{place}/cert.pem")
                    step = {"do": "produce", "config": config, "topic": "sealed", "count": 3}
                    cluster.clients(truth, step, where=cluster.sasl_bootstrap)
    truth.write(directory / "tls" / "kafka-4-tls-1.0.truth.json")


def kafka_4_tls_resumed(directory: Path) -> None:
    """Go, whose later connections resume the session of the first, and Node, with their own key logs. Behind
    the front: Kafka's own listener does not accept Go's tickets (OpenJDK 17).
    """
    keys = directory / "tls" / "kafka-4-tls-resumed.keys"
    keys.unlink(missing_ok=True)
    port = int(FRONT.rpartition(":")[2])
    with tempfile.TemporaryDirectory() as place, kafka(NEWEST, **BEHIND_FRONT) as cluster:
        certificate, key = certificate_and_key(place)
        install_clients(place)
        start_all(cluster)
        clients = "franz-go 1.18.1, kafkajs 2.2.4"
        broker = f"Apache Kafka {NEWEST} behind tls_front.py"
        truth = Truth("kafka-4-tls-resumed", [port], {"broker": broker, "clients": clients})
        make_topics(truth, cluster.bootstrap, {"sealed": 1})
        with (
            tls_front(port, SASL, front_settings(certificate, key, Path(place, "front.keys"))),
            recording(directory / "tls" / "kafka-4-tls-resumed.pcap", truth.ports),
        ):
            go = f"{place}/produce", FRONT, certificate, str(keys), "go-1.2", "sealed", "3", "resume"
            printed(truth, *go)
            node = "node", f"--tls-keylog={keys}", str(HERE / "node" / "producer.js"), FRONT, certificate
            modules = f"{place}/node_modules"
            printed(truth, *node, "node-1.3", "sealed", "3", "TLSv1.3", NODE_PATH=modules)
    keys.chmod(0o644)
    truth.write(directory / "tls" / "kafka-4-tls-resumed.truth.json")


def java_trust(certificate: str) -> dict[str, str]:
    """Settings of Kafka's own clients that trust this certificate."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificate,
    }


def lines_of(log: Path) -> list[str]:
    """The lines of a key log with secrets."""
    return [line for line in log.read_text().splitlines(keepends=True) if not line.startswith("#")]


SCENARIOS = {
    "kafka-4-tls": kafka_4_tls,
    "kafka-4-front": kafka_4_front,
    "kafka-4-tls-1.0": kafka_4_tls_1_0,
    "kafka-4-tls-resumed": kafka_4_tls_resumed,
}
