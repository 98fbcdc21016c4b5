"""What is found in real captures: all that is listed here was looked at, and is so."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kdissect import dissect, open_capture, summarize
from kdissect.cli.main import kdissect
from kdissect.limits import DEFAULT, SECOND_NS
from kdissect.stats.findings.rules import RULES, Findings
from kdissect.tables.values import json_document
from samples.golden import captures, name_of
from tests.exchange_factory import connection
from tests.findings import produce
from tests.ways.matrix import CAPTURES, SUMMARY, Matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.stats.document import FindingRow

# Recorded with a quota, a leader that is moved, wrong passwords, an ACL that refuses, and a broker that
# leaves and returns: meanwhile it refuses connections. Old brokers close the connection if a login fails.
# acks=1 is what clients did by default before 3.0, and aiokafka still does.
# What another finding explains is written below it: "connection-refused < broker-unreachable".
SCENARIOS = {
    "throttled": 1,
    "authorization-denied": 1,
    "broker-unreachable": 1,
    "connection-refused < broker-unreachable": 1,
    "leaders-moving < broker-unreachable": 1,
}
CLOSES = {"broker-closes < broker-unreachable": 1}
EXPECTED: dict[str, dict[str, int]] = {
    "kafka-0.8.2": {
        "broker-unreachable": 1,
        "acks": 1,
        "leaders-moving < broker-unreachable": 1,
        **CLOSES,
        "connection-refused < broker-unreachable": 1,
    },
    "kafka-0.9": {**SCENARIOS, **CLOSES, "acks": 1},
    "kafka-0.10.2": {**SCENARIOS, **CLOSES, "acks": 1, "broker-closes": 1},
    "kafka-0.11": {**SCENARIOS, **CLOSES, "acks": 1, "broker-closes": 1},
    "kafka-1.1": {**SCENARIOS, "acks": 1, "sasl-failures": 1},
    "kafka-2.8": {**SCENARIOS, "acks": 1, "sasl-failures": 1},
    # A broker and a controller return, and a leader moves back. At the end all of them are stopped.
    "kafka-3.9": {
        "throttled": 1,
        "authorization-denied": 1,
        "sasl-failures": 1,
        "broker-resets": 1,
        "broker-unreachable": 3,
        "connection-refused < broker-unreachable": 3,
        "leaders-moving": 1,
    },
    "kafka-3.9-zookeeper": {**SCENARIOS, **CLOSES, "sasl-failures": 1},
    "kafka-4-cluster": SCENARIOS,
    "kafka-4-basics": {"throttled": 1},
    # Brokers start one after the other and refuse connections before they do; one stops, then a controller.
    "kafka-4-kraft": {
        "connection-refused": 1,
        "broker-unreachable": 2,
        "connection-refused < broker-unreachable": 1,
        "leaders-moving < broker-unreachable": 1,
    },
    "kafka-4-sasl": {"sasl-failures": 1},
    "kafka-4-storm": {"rebalance-storm": 1},
    "kafka-4-lag": {"slow-poll": 1, "falling-behind < slow-poll": 1},
    "kafka-4-quota": {"throttled": 1},
    "kafka-4-fenced": {"fenced-producers": 1},
    "kafka-4-habits": {"tiny-batches": 1, "connection-per-request": 1},
    "mock-acks0": {"acks": 1},
    "mock-aiokafka": {"acks": 1},
    # Errors that the mock cluster was configured to return.
    "mock-librdkafka": {"acks": 1, "authorization-denied": 1, "not-enough-replicas": 1},
    # kafka-python 3 cannot read how the mock cluster refuses ApiVersions, and tries again and again.
    "mock-kafka-python": {"unsupported-version-loop": 1},
    # Tansu and the mock cluster close the connection on requests that they do not know and on wrong logins.
    "raw-requests": {"broker-closes": 1, "broker-resets": 1},
    "tansu-admin": {"broker-closes": 1},
    "tansu-sasl": {"broker-closes": 1, "client-unserved < broker-closes": 1},
    "plaintext-on-tls": {"tls-port-mismatch": 1},
}


def described(rows: Sequence[FindingRow]) -> Counter[str]:
    """Rules by name; of those that another explains, with its name."""
    return Counter(f"{row.rule} < {row.explained_by}" if row.explained_by else row.rule for row in rows)


@cache
def located_in(path: Path, kafka_ports: tuple[int, ...] = ()) -> list[FindingRow]:
    """What exchanges and connections of a sample say."""
    with open_capture(path) as packets:
        findings = summarize(dissect(packets, kafka_ports=kafka_ports), parts=["findings"]).findings
    assert findings is not None
    return findings


@pytest.mark.parametrize("path", captures(), ids=name_of)
def test_samples_say_what_is_so_and_nothing_else(path: Path) -> None:
    rows = located_in(path)
    assert described(rows) == EXPECTED.get(name_of(path), {})
    assert all(0 < len(row.evidence) <= min(5, row.count) for row in rows)
    assert all(row.first <= row.last for row in rows)


TROUBLES = sorted(Path("samples/troubles").glob("*.pcap.gz"))
HABITS = {"tiny-batches", "connection-per-request"}  # of those who record: a record at a time, a proxy
# Trouble -> the findings that are shown below others, and those others.
BELOW = {
    "slow-poll": {"falling-behind < slow-poll"},
    "advertised": {"client-unserved < advertised-listener-unreachable"},
    "closes": {
        *("reconnect-loop < broker-closes", "client-unserved < broker-closes"),
        "connection-per-request < broker-closes",
    },
    "gone": {"broker-resets < broker-unreachable", "connection-refused < broker-unreachable"},
    "login": {"reconnect-loop < broker-closes", "client-unserved < broker-closes"},
    "mismatch": {"client-unserved < response-mismatch"},
    "mtu-at-client": {"network-loss < mtu-black-hole", "path-interrupted < mtu-black-hole"},
    "mtu-at-broker": {"network-loss < mtu-black-hole"},
    "mtu-response-at-client": {"network-loss < mtu-black-hole"},
    "mtu-response-at-broker": {"network-loss < mtu-black-hole"},
    "open-transaction": {"fenced-producers < readers-blocked"},
    "idle-dropped": {"path-interrupted < idle-connection-dropped"},
    "forgotten": {"client-vanished < path-interrupted"},
    "idle-reset": {"broker-resets < idle-connection-dropped"},
    "poll-cut": {"request-timeouts < long-polls-cut"},
    "session-expired": {"broker-closes < session-expired"},
    "mechanism": {"client-unserved < sasl-failures"},
    "request-limit": {"connection-per-request < broker-closes"},
    "votes-refused": {
        *("connect-timeout < quorum-unreachable", "elections-lost < quorum-unreachable"),
        *("network-loss < quorum-unreachable", "path-interrupted < quorum-unreachable"),
    },
    "leader-leaves": {"connection-refused < broker-unreachable"},
    "broker-fenced": {
        *("leaders-moving < broker-fenced", "not-leader-storm < broker-fenced"),
        *("queueing < broker-fenced", "slow-requests < broker-fenced"),
    },
    "restarts": {"connection-refused < broker-unreachable", "leaders-moving < broker-unreachable"},
    "other-cluster": {"client-unserved < broker-rejected"},
    "observer-cut": {
        *("connect-timeout < quorum-unreachable", "leaders-moving < quorum-unreachable"),
        *("network-loss < quorum-unreachable", "request-timeouts < quorum-unreachable"),
        *("queueing < quorum-unreachable", "slow-requests < quorum-unreachable"),
    },
    "sessions-evicted": {"fetch-sessions-evicted < fetch-session-churn"},
    "two-at-once": {"connect-timeout < quorum-unreachable", "network-loss < quorum-unreachable"},
}


@pytest.mark.parametrize("path", TROUBLES, ids=lambda path: path.name)
def test_troubles_give_their_findings(path: Path) -> None:
    truth = json.loads(path.with_name(path.name.replace(".pcap.gz", ".truth.json")).read_text())
    rows = located_in(path, tuple(truth.get("decode_as", ())))
    below = BELOW.get(path.name.split(".")[0], set())
    assert {name for name in described(rows) if "<" in name} == below
    causes = {row.rule for row in rows if row.explained_by is None}
    causes |= {name.split(" < ")[1] for name in below}
    assert causes - HABITS - {"broker-unreachable"} == set(truth["findings"]) - {
        name.split(" < ")[0] for name in below
    }, truth["what"]


@pytest.mark.parametrize(
    ("captures_of", "causes"),
    [
        (("gone", "loss"), {"broker-unreachable", "network-loss"}),
        (("waits", "closes"), {"throttled", "broker-closes"}),
        (("silent", "login"), {"broker-silent", "broker-closes"}),
        (("firewall", "tls"), {"connect-timeout", "tls-port-mismatch"}),
        (("mtu-at-client", "closed-port"), {"mtu-black-hole", "no-listener"}),
        (("idle-reset", "foreign"), {"idle-connection-dropped", "wrong-protocol"}),
    ],
    ids=["gone-loss", "waits-closes", "silent-login", "firewall-tls", "mtu-closed", "idle-foreign"],
)
def test_two_causes_are_two_findings(captures_of: Sequence[str], causes: set[str]) -> None:
    """Two recordings of the same addresses, one after the other; in each, the topic is a new one."""
    paths = [f"samples/troubles/{name}.pcap.gz" for name in captures_of]
    document = json.loads(CliRunner().invoke(kdissect, ["summary", "--findings", "--json", *paths]).stdout)
    rules = [row["rule"] for row in document["findings"] if row["explained_by"] is None]
    assert sorted(set(rules) - HABITS - {"topic-recreated"}) == sorted(causes)
    assert len(rules) == len(set(rules))


@pytest.mark.parametrize(
    ("names", "causes"),
    [
        (("mtu-at-client", "closed-port"), {"mtu-black-hole", "no-listener"}),
        (("poll-cut", "dropped-port"), {"long-polls-cut", "no-listener"}),
    ],
    ids=lambda each: "-".join(sorted(each)),
)
def test_two_causes_at_the_same_time_are_two_findings(names: Sequence[str], causes: set[str]) -> None:
    """Two recordings, the second one moved to the time of the first: none was recorded with two causes."""
    with ExitStack() as stack:
        paths = [Path(f"samples/troubles/{name}.pcap.gz") for name in names]
        one, other = (list(stack.enter_context(open_capture(path))) for path in paths)
    later_ns = other[0].time_ns - one[0].time_ns
    moved = [packet._replace(time_ns=packet.time_ns - later_ns) for packet in other]
    packets = sorted([*one, *moved], key=attrgetter("time_ns"))
    findings = summarize(dissect(packets), parts=["findings"]).findings or []
    rows = [row for row in findings if row.explained_by is None and row.rule not in HABITS]
    assert sorted(row.rule for row in rows if row.rule != "topic-recreated") == sorted(causes)
    assert rows[0].first <= rows[1].last
    assert rows[1].first <= rows[0].last


def test_a_cut_that_goes_on_stands_above_its_symptoms() -> None:
    """The broker does not answer a client, and another one waits for it, as long as it is not fenced."""
    with open_capture("samples/troubles/observer-cut.pcap.gz") as packets:
        every = list(packets)
    seen = [each for each in every if each.time_ns < every[0].time_ns + 22 * SECOND_NS]
    rows = summarize(dissect(seen), parts=["findings"]).findings or []
    assert {"broker-silent", "slow-requests", "queueing"} <= {row.rule for row in rows}
    assert [row.rule for row in rows if row.explained_by is None] == ["quorum-unreachable"]


@pytest.mark.parametrize("name", ["healthy", "pauses", "scanned"])
def test_healthy_traffic_has_no_findings(name: str) -> None:
    assert located_in(Path(f"samples/troubles/{name}.pcap.gz")) == []


FIELD = {  # tests/field/README.md says what these are; the others have no findings
    "answer-cut-by-client-reset": {"incomplete-messages": 1},
    "compacted-tail-stuck": {"consumer-stuck": 1},
    "gssapi-after-apiversions": {"sasl-failures": 1},
    "idempotent-epoch-bump-duplicates": {"epoch-duplicates": 1},
    "idle-flow-dropped": {
        "idle-connection-dropped": 1,
        "path-interrupted < idle-connection-dropped": 1,
    },
    "joingroup-to-0.8.2": {"broker-closes": 1},
    "legacy-crc-wrong": {"produce-refused": 1},
    "mtu-black-hole": {"mtu-black-hole": 1},
    "responses-swapped": {"responses-out-of-order": 1},
    "synack-never-arrives": {"connect-timeout": 1},
}


@pytest.mark.parametrize("path", sorted(Path("tests/field").glob("*.pcap")), ids=lambda path: path.stem)
def test_cases_from_the_field(path: Path) -> None:
    assert described(located_in(path)) == FIELD.get(path.stem, {})


@pytest.mark.parametrize("path", [*captures(), *TROUBLES], ids=name_of)
def test_the_command_says_the_same(
    path: Path, shared_directory: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The documents of tests/ways, which are those with the core, too."""
    (capture,) = (each for each in CAPTURES if each.path == path.resolve())
    if name_of(path) in ("tls", "two-at-once"):  # there, they are decrypted, or have later names
        command = ["summary", "--findings", "--json", "--names", "window", str(path)]
        text = CliRunner().invoke(kdissect, command).stdout_bytes
    else:
        text = Matrix(shared_directory, capfdbinary).expected(capture, SUMMARY).out
    assert json.loads(text)["findings"] == json.loads(json_document(located_in(path)))


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


def test_brokers_that_are_restarted_on_purpose_are_a_note() -> None:
    rows = located_in(Path("samples/troubles/restarts.pcap.gz"), ())
    (row,) = [row for row in rows if row.rule == "broker-unreachable"]
    assert row.message.startswith("after a controlled shutdown, served nobody one after the other")
    assert (row.severity, row.scope.brokers.count) == ("note", 2)
