"""What is found in real captures: all that is listed here was looked at, and is so."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kdissect import dissect, open_capture, summarize
from kdissect.cli.main import kdissect
from kdissect.limits import DEFAULT
from kdissect.stats.findings.rules import RULES, Findings
from kdissect.tables.values import json_document
from samples.golden import captures, name_of
from tests.exchange_factory import connection
from tests.findings import produce

if TYPE_CHECKING:
    from collections.abc import Collection

    from kdissect.stats.document import FindingRow

# Recorded with a quota, a leader that is moved, wrong passwords, an ACL that refuses, and a broker that
# leaves and returns: meanwhile it refuses connections. Old brokers close the connection if a login fails.
# acks=1 is what clients did by default before 3.0, and aiokafka still does.
SCENARIOS = {"throttled": 1, "leaders-moving": 1, "connection-refused": 1, "authorization-denied": 1}
EXPECTED: dict[str, dict[str, int]] = {
    "kafka-0.8.2": {"leaders-moving": 1, "acks": 1, "connection-refused": 1, "broker-closes": 1},
    "kafka-0.9": {**SCENARIOS, "acks": 1, "broker-closes": 1},
    "kafka-0.10.2": {**SCENARIOS, "acks": 1, "authorization-denied": 2, "broker-closes": 5},
    "kafka-0.11": {**SCENARIOS, "acks": 1, "authorization-denied": 2, "broker-closes": 7},
    "kafka-1.1": {**SCENARIOS, "acks": 1, "authorization-denied": 2, "sasl-failures": 2},
    "kafka-2.8": {**SCENARIOS, "acks": 1, "sasl-failures": 2},
    "kafka-3.9": {**SCENARIOS, "sasl-failures": 2, "connection-refused": 3, "broker-resets": 1},
    "kafka-3.9-zookeeper": {**SCENARIOS, "sasl-failures": 2, "broker-closes": 1},
    "kafka-4-cluster": SCENARIOS,
    "kafka-4-basics": {"throttled": 1},
    "kafka-4-kraft": {"leaders-moving": 1, "connection-refused": 6},
    "kafka-4-sasl": {"sasl-failures": 7},
    "kafka-4-storm": {"rebalance-storm": 1},
    "kafka-4-lag": {"falling-behind": 1},
    "kafka-4-quota": {"throttled": 2},
    "kafka-4-fenced": {"fenced-producers": 1},
    "kafka-4-habits": {"tiny-batches": 1, "connection-per-request": 1},
    "mock-acks0": {"acks": 1},
    "mock-aiokafka": {"acks": 1},
    # Errors that the mock cluster was configured to return.
    "mock-librdkafka": {"acks": 1, "authorization-denied": 1, "not-enough-replicas": 1},
    # kafka-python 3 cannot read how the mock cluster refuses ApiVersions, and tries again and again.
    "mock-kafka-python": {"unsupported-version-loop": 1},
    # Tansu and the mock cluster close the connection on requests that they do not know and on wrong logins.
    "raw-requests": {"broker-closes": 2, "broker-resets": 1},
    "tansu-admin": {"broker-closes": 2},
    "tansu-sasl": {"broker-closes": 4},
    "plaintext-on-tls": {"tls-port-mismatch": 2},
}


def located_in(path: Path, kafka_ports: Collection[int] = ()) -> list[FindingRow]:
    """What exchanges and connections of a sample say."""
    with open_capture(path) as packets:
        findings = summarize(dissect(packets, kafka_ports=kafka_ports), parts=["findings"]).findings
    assert findings is not None
    return findings


@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_samples_say_what_is_so_and_nothing_else(path: Path) -> None:
    rows = located_in(path)
    assert Counter(row.rule for row in rows) == EXPECTED.get(name_of(path), {})
    assert all(0 < len(row.evidence) <= min(5, row.count) for row in rows)
    assert all(row.first <= row.last for row in rows)


TROUBLES = sorted(Path("samples/troubles").glob("*.pcap.gz"))
HABITS = {"tiny-batches", "connection-per-request"}  # of those who record: a record at a time, a proxy


@pytest.mark.parametrize("path", TROUBLES, ids=lambda path: path.name)
def test_troubles_give_their_findings(path: Path) -> None:
    truth = json.loads(path.with_name(path.name.replace(".pcap.gz", ".truth.json")).read_text())
    rules = {row.rule for row in located_in(path, truth.get("decode_as", ()))}
    assert rules - HABITS == set(truth["findings"]), truth["what"]


def test_healthy_traffic_has_no_findings() -> None:
    assert located_in(Path("samples/troubles/healthy.pcap.gz")) == []


@pytest.mark.parametrize("path", [*captures(), *TROUBLES], ids=name_of)
def test_the_command_says_the_same(path: Path) -> None:
    command = ["summary", "--findings", "--json", "--names", "window", str(path)]
    document = json.loads(CliRunner().invoke(kdissect, command).stdout)
    assert document["findings"] == json.loads(json_document(located_in(path)))


def test_the_worst_stands_first() -> None:
    findings = Findings(DEFAULT)
    for number in range(300):
        findings.feed(produce(10 + number / 50, error=10 if number == 5 else 0))
    assert [(row.severity, row.rule) for row in findings.rows()] == [
        ("error", "oversized-messages"),
        ("note", "tiny-batches"),
    ]


def test_no_findings_without_exchanges() -> None:
    assert Findings(DEFAULT).rows() == []
    findings = Findings(DEFAULT)
    of_cluster = findings.of_clusters.of(connection())
    assert len(findings.of_connections.rules) + len(of_cluster.rules) == len(RULES)
