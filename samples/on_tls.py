"""TLS listeners of Apache Kafka itself, with the key log of the agent that most brokers' key logs come from.

    python samples/make.py kafka-4-tls

The agent (name.neykov:extract-tls-secrets) is loaded into the broker, so its lines are those of all clients.
"""

from __future__ import annotations

import gzip
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import with_aiokafka as aio
import with_kafka_python as kp
import with_librdkafka as rd
from apache_kafka import SASL
from on_kafka import JAAS, USERS, on_kafka
from on_mock import assorted
from on_tansu import make_topics
from others import tls_listener
from story import client

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


def kafka_4_tls(folder: Path) -> None:
    """All four client libraries, TLS 1.2 and 1.3, on a listener with SASL."""
    folder = folder / "tls"
    folder.mkdir(exist_ok=True)
    keys = folder / "kafka-4-tls.keys"
    keys.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as place:
        listener = tls_listener(place) | {"sasl": JAAS}
        protocols = "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL"
        listener["listener_security_protocol_map"] = protocols
        options = (f"-javaagent:{agent(place)}={keys}",)
        with on_kafka(folder, "kafka-4-tls", users=USERS, options=options, **listener) as (cluster, truth):
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
    capture = folder / "kafka-4-tls.pcap"
    capture.with_suffix(".pcap.gz").write_bytes(gzip.compress(capture.read_bytes(), mtime=0))
    capture.unlink()


SCENARIOS = {"kafka-4-tls": kafka_4_tls}
