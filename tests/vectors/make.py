"""Apache Kafka's own classes -> messages.jsonl.xz and records.jsonl.xz, which tests/kafka reads.

    python tests/vectors/make.py

Needs java (17 or later) and mvn. The jars, some 400 MB for all releases, stay in $KDISSECT_KAFKA_JARS, by
default a directory among the system's temporary files. The same jars and the same JDK make the same files.
"""

from __future__ import annotations

import lzma
import os
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
JARS = Path(os.environ.get("KDISSECT_KAFKA_JARS") or Path(tempfile.gettempdir()) / "kdissect-kafka-jars")

BROKER, CLIENTS, CONNECT, STREAMS = "kafka_2.13", "kafka-clients", "connect-runtime", "kafka-streams"

# Release -> which messages: 3.9 is the last that has every version from 0 on, 4.4 the newest; of the others
# only what had another layout then, or is gone.
MESSAGES = {
    "2.7.2": "EndQuorumEpochRequestData|LeaderChangeMessage",
    "2.8.2": "LeaderChangeMessage|(RegisterBroker|UnregisterBroker|Topic|Partition|Config|AccessControl"
    "|FenceBroker|UnfenceBroker|RemoveTopic|DelegationToken|UserScramCredential|FeatureLevel|Quota)Record",
    "3.2.3": "(RemoveFeatureLevel|DelegationToken|UserScramCredential|FeatureLevel|AccessControl)Record"
    "|RemoteLogSegmentMetadata.*",
    "3.5.2": "ConsumerGroup.*",
    "3.7.2": "ConsumerGroup.*",
    "3.9.1": ".*",
    "4.0.1": "Share(Group.*|Snapshot|Update)Value",
    "4.4.0": ".*",
}
# Kafka Streams and Kafka Connect have formats of their own; of Streams 4.4.0 there is no jar.
WITH_STREAMS = "3.9.1"

# 0.8.2 and 0.9 write magic 0, 0.10 magic 1, 0.11 magic 2; the later ones what they still write of each.
RECORDS = {
    "0.8.2.2": CLIENTS,
    "0.9.0.1": CLIENTS,
    "0.10.2.2": CLIENTS,
    "0.11.0.3": CLIENTS,
    "1.0.2": CLIENTS,
    "3.9.1": BROKER,
    "4.4.0": BROKER,
}


def main() -> None:
    """Make both files."""
    messages = []
    for release, names in MESSAGES.items():
        artifacts = (BROKER, STREAMS) if release == WITH_STREAMS else (BROKER,)
        messages.append(run("MessageVectors", artifacts, release, names))
    messages.append(run("GroupVectors", (CONNECT, STREAMS), WITH_STREAMS))
    store("messages.jsonl.xz", messages)
    records = [run("RecordVectors", (artifact,), release) for release, artifact in RECORDS.items()]
    store("records.jsonl.xz", records)


def run(program: str, artifacts: tuple[str, ...], release: str, *arguments: str) -> bytes:
    """What one of the programs prints with the jars of a release."""
    classes = {jar.name: str(jar) for artifact in artifacts for jar in jars(artifact, release).iterdir()}
    path = os.pathsep.join(classes[name] for name in sorted(classes))
    command = ["java", "-cp", path, str(HERE / f"{program}.java"), release, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def jars(artifact: str, release: str) -> Path:
    """The directory with the jars of a release; Maven brings them once."""
    directory = JARS / f"{artifact}-{release}"
    if not directory.exists():
        command = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-Dkafka.version={release}", f"-Dkafka.artifact={artifact}"]
        subprocess.run([*command, f"-DoutputDirectory={directory}.part"], check=True)
        Path(f"{directory}.part").rename(directory)
    return directory


def store(name: str, parts: list[bytes]) -> None:
    """Write one file and return what is in it."""
    lines = b"".join(parts)
    packed = lzma.compress(lines, preset=9 | lzma.PRESET_EXTREME)
    (HERE / name).write_bytes(packed)
    print(f"{name}: {len(lines.splitlines())} vectors, {len(packed)} bytes")  # noqa: T201


if __name__ == "__main__":
    main()
