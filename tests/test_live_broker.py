"""The newest Apache Kafka, started here: what kdissect says of its traffic is what its clients, the broker's
requests' log and the dump of its records' log say.

Marked ``broker``: needs a JDK, mvn and tcpdump as root, brings some 120 MB of jars the first time, and takes
half a minute.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture
from kdissect.anomalies import CATALOGUE, ERROR
from kdissect.exchanges import content
from kdissect.kafka.codes import error_name
from kdissect.kafka.records import RecordData
from kdissect.model import UNANSWERED, Embedded, Exchange
from tests.kafka.oracles import kafka_python  # noqa: F401  silences what importing kafka warns about

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEEDED = [tool for tool in ("java", "javac", "mvn", "tcpdump") if shutil.which(tool) is None]
NEEDED += [] if os.geteuid() == 0 else ["root"]
pytestmark = [
    pytest.mark.broker,
    pytest.mark.deep,
    pytest.mark.skipif(bool(NEEDED), reason=f"a broker to record needs {', '.join(NEEDED)}"),
]

TOPIC = "live"
BY_CONSOLE = [f"from the console {n}" for n in range(6)]
BY_LIBRDKAFKA = [f"from librdkafka {n}" for n in range(7)]
CONSOLE_LINE = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t(.*)")
DUMPED_BATCH = re.compile(r"^baseOffset: .* compresscodec: (\w+) crc: (\d+) isvalid: true", re.MULTILINE)
DUMPED_RECORD = re.compile(r"^\| offset: (\d+) CreateTime: .* payload: (.*)$", re.MULTILINE)


@dataclass(slots=True)
class Run:
    """What was recorded, and what everybody else says of it."""

    capture: Path
    delivered: list[tuple[int, str]]  # by librdkafka's reports
    consumed: list[tuple[int, str]]  # by the console consumer
    dump: str  # by kafka-dump-log
    answered: list[Any]  # by the broker's request log
    bodies: list[dict[str, Any]]  # by the same: what the broker decoded

    def exchanges(self) -> list[Exchange]:
        with open_capture(self.capture) as packets:
            return list(dissect(packets))

    def records(self, *options: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "kdissect", "records", "--json", *options, str(self.capture)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        return [row for row in map(json.loads, lines) if row["topic"] == TOPIC]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend("samples")
        import apache_kafka
        import request_log
        from recording import recording

        try:
            apache_kafka.jars("4.4.0")
            apache_kafka.jars(apache_kafka.BESIDE)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"mvn did not bring the jars: {error}")
        capture = tmp_path_factory.mktemp("live") / "live.pcap"

        tool = apache_kafka.console
        with apache_kafka.kafka("4.4.0") as cluster:
            where = ("--bootstrap-server", cluster.bootstrap)
            (node,) = cluster.nodes
            cluster.start(node)
            cluster.wait()
            before = cluster.positions()
            with recording(capture, cluster.ports, until_quiet=False):
                tool("TopicCommand", *where, "--create", "--topic", TOPIC, "--partitions", "1")
                codec = ("--compression-codec", "zstd")
                tool("ConsoleProducer", *where, "--topic", TOPIC, *codec, lines=BY_CONSOLE)
                delivered = produce(cluster.bootstrap)
                shown = [f"print.{what}=true" for what in ("partition", "offset")]
                properties = [part for each in shown for part in ("--formatter-property", each)]
                expected = ("--from-beginning", "--max-messages", str(len(BY_CONSOLE) + len(BY_LIBRDKAFKA)))
                console = tool("consumer.ConsoleConsumer", *where, "--topic", TOPIC, *expected, *properties)
                cluster.end()
            segment = apache_kafka.DATA / "1" / f"{TOPIC}-0" / f"{0:020}.log"
            yield Run(
                capture,
                delivered,
                [(int(offset), value) for _, offset, value in CONSOLE_LINE.findall(console)],
                tool("DumpLogSegments", "--files", str(segment), "--print-data-log"),
                list(cluster.answered(before)),
                [json.loads(line) for line in request_log.answers(cluster.logged(node, before))],
            )


def produce(bootstrap: str) -> list[tuple[int, str]]:
    from confluent_kafka import Producer

    delivered: list[tuple[int, str]] = []

    def report(error: object, message: Any) -> None:
        assert error is None
        delivered.append((message.offset(), message.value().decode()))

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip", "linger.ms": 50})
    for value in BY_LIBRDKAFKA:
        producer.produce(TOPIC, value, on_delivery=report)
    producer.flush(10)
    return delivered


def test_all_is_decoded(run: Run) -> None:
    exchanges = run.exchanges()
    assert {exchange.api for exchange in exchanges} >= {"CreateTopics", "Produce", "Fetch", "Metadata"}
    errors = [
        anomaly
        for exchange in exchanges
        for anomaly in exchange.anomalies
        if CATALOGUE[anomaly.kind].severity == ERROR
    ]
    assert errors == []


def test_the_records_are_those_that_clients_and_log_have(run: Run) -> None:
    dumped = [(int(offset), value) for offset, value in DUMPED_RECORD.findall(run.dump)]
    assert [value for _, value in dumped] == BY_CONSOLE + BY_LIBRDKAFKA
    assert run.consumed == dumped
    assert set(run.delivered) == {pair for pair in dumped if pair[1] in BY_LIBRDKAFKA}
    for side in ("--produced", "--fetched"):
        seen = {(row["offset"], row["value"]) for row in run.records(side)}
        assert seen == set(dumped), side


def test_the_batches_are_those_of_the_log(run: Run) -> None:
    in_log = {(codec, int(crc)) for codec, crc in DUMPED_BATCH.findall(run.dump)}
    seen = set()
    for exchange in run.exchanges():
        for data in (exchange.request, exchange.response):
            for records in record_data(data):
                seen |= {(batch["compression"], batch["crc"]) for batch in records.batches()}
    assert in_log == {pair for pair in seen if pair[0] in ("zstd", "gzip")}


def record_data(value: Any) -> Iterator[RecordData]:
    """Every record data anywhere in a body."""
    if isinstance(value, RecordData):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from record_data(each)
    elif isinstance(value, list):
        for each in value:
            yield from record_data(each)


def test_the_requests_are_those_that_the_broker_answered(run: Run) -> None:
    logged = {
        (
            entry.client_port,
            entry.broker_port,
            entry.api,
            entry.version,
            entry.correlation_id,
        ): entry.errors
        for entry in run.answered
        if not entry.forwarded
    }
    seen = {}
    for exchange in run.exchanges():
        if exchange.api != "Envelope" and exchange.kind != UNANSWERED:
            ports = (exchange.connection.client.port, exchange.connection.broker.port)
            key = (*ports, exchange.api, exchange.api_version, exchange.correlation_id)
            seen[key] = set(content.errors(exchange))
    assert not seen.keys() - logged.keys()
    for key, errors in seen.items():
        assert errors == {error_name(code) for code in logged[key]}
    by_api = Counter(key[2] for key in logged)
    assert by_api["Produce"] >= 2
    assert len(logged.keys() - seen.keys()) <= 0.1 * len(logged)  # what nobody waited for


def test_the_values_are_those_that_the_broker_decoded(run: Run) -> None:
    logged = {identity(entry): entry for entry in run.bodies if not entry["isForwarded"]}
    values = 0
    for exchange in run.exchanges():
        ports = (exchange.connection.client.port, exchange.connection.broker.port)
        entry = logged.get((*ports, exchange.api_key, exchange.api_version, exchange.correlation_id))
        if entry is not None and exchange.request is not None:
            values += compare(exchange.request, entry["request"], f"{exchange.api} request")
        if entry is not None and exchange.response is not None and entry["response"] is not None:
            values += compare(exchange.response, entry["response"], f"{exchange.api} response")
    assert values > 2000


def identity(entry: dict[str, Any]) -> tuple[int, ...]:
    header = entry["requestHeader"]
    broker, client, *_ = entry["connection"].split("-")
    ports = (int(end.rpartition(":")[2]) for end in (client, broker))
    return (*ports, header["requestApiKey"], header["requestApiVersion"], header["correlationId"])


# The broker logs no records, but their size.
SIZES = {"records": "recordssizeinbytes"}


def compare(ours: Any, theirs: Any, where: str) -> int:
    """The number of values, all of which must be equal; names may differ in their spelling.

    What is inside of a payload is not compared: the broker logs its bytes.
    """
    if isinstance(theirs, dict):
        named = {name.replace("_", "").lower(): value for name, value in ours.items() if name != "_tags"}
        entry = {name.lower(): value for name, value in theirs.items()}
        for name, size in SIZES.items():
            if isinstance(named.get(name), RecordData):
                data = named.pop(name)
                assert entry.pop(size, len(data)) == len(data), where
        assert named.keys() == entry.keys(), where
        return sum(compare(named[name], entry[name], f"{where}.{name}") for name in named)
    if isinstance(theirs, list):
        assert len(ours) == len(theirs), where
        return sum(compare(*pair, where) for pair in zip(ours, theirs, strict=True))
    if isinstance(ours, Embedded):
        ours = ours.data
    if isinstance(ours, bytes):
        ours = base64.b64encode(ours).decode()
    assert ours == theirs, where
    return 1
