"""Real traffic: what kdissect says about each sample is what its clients said that they did, and what it said
before."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture
from kdissect.exchanges import content
from kdissect.kafka.codes import error_name
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED, Exchange
from kdissect.net.tcp import Segments
from samples.golden import FORMATS, captures, golden, kept, name_of
from tests.shared import say

if TYPE_CHECKING:
    from collections.abc import Callable

CAPTURES = captures()
ENCRYPTED = "tls"
TRUTHS = {path.name.removesuffix(".truth.json"): path for path in Path("samples").glob("*.truth.json")}
READABLE = [path for path in CAPTURES if name_of(path) in TRUTHS and name_of(path) != ENCRYPTED]


def truth_of(capture: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(TRUTHS[name_of(capture)].read_text())
    return truth


def exchanges_of(capture: Path) -> list[Exchange]:
    with open_capture(capture) as packets:
        return list(dissect(packets))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_the_output_is_the_golden_one(capture: Path, suffix: str) -> None:
    lines = say("read", *FORMATS[suffix], capture).out.splitlines()
    assert lines == kept(golden(capture, suffix)).splitlines(), "python samples/golden.py refreshes it"


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_every_sample_has_a_truth_file(capture: Path) -> None:
    assert name_of(capture) in TRUTHS


def requests_by_clients(capture: Path) -> Counter[tuple[Any, ...]]:
    """What the clients' own logs say that they sent."""
    return Counter(
        (row["client_id"], row["api"], row["version"], row["correlation_id"], row["request_bytes"])
        for row in truth_of(capture).get("requests", ())
    )


@pytest.mark.parametrize("capture", [path for path in READABLE if truth_of(path)["requests"]], ids=name_of)
def test_the_requests_are_those_that_the_clients_sent(capture: Path) -> None:
    reported = requests_by_clients(capture)
    seen: Counter[tuple[Any, ...]] = Counter()
    telling = {row["client_id"] for row in truth_of(capture)["requests"]}
    for exchange in exchanges_of(capture):
        if exchange.request_frame is None or exchange.client_id not in telling:
            continue
        size = exchange.request_frame.size + 4
        api = exchange.api or (None if exchange.api_key is None else str(exchange.api_key))
        seen[exchange.client_id, api, exchange.api_version, exchange.correlation_id, size] += 1
    if "midstream" in name_of(capture):
        assert not seen - reported
        assert seen.total() > 10
    else:
        assert (seen - reported, reported - seen) == (Counter(), Counter())


@pytest.mark.parametrize("capture", READABLE, ids=name_of)
def test_the_responses_are_those_that_the_clients_got(capture: Path) -> None:
    # A client that has closed the connection, or given up waiting, does not log the response that came all
    # the same.
    got: Counter[tuple[Any, ...]] = Counter(
        (row["client_id"], row["api"], row["correlation_id"], row["response_bytes"])
        for row in truth_of(capture).get("requests", ())
        if row["response_bytes"] is not None
    )
    seen: Counter[tuple[Any, ...]] = Counter()
    telling = {client_id for client_id, *_ in got}
    for exchange in exchanges_of(capture):
        if exchange.client_id not in telling:
            continue
        if exchange.request_frame is not None and exchange.response_frame is not None:
            size = exchange.response_frame.size + 4
            seen[exchange.client_id, exchange.api, exchange.correlation_id, size] += 1
    if "midstream" not in name_of(capture):
        assert not got - seen
        assert (seen - got).total() <= 0.1 * seen.total() + 1


LOGGED = [path for path in READABLE if truth_of(path).get("answered")]
LOGIN = ("SaslHandshake", "SaslAuthenticate", None)  # None: a token behind SaslHandshake v0


def after_the_login(exchanges: list[Exchange]) -> list[Exchange]:
    """Without what brokers do not log: where one is to log in, all up to the last of that."""
    last = {exchange.connection.id: exchange.number for exchange in exchanges if exchange.api in LOGIN}
    doors = {exchange.connection.broker.port for exchange in exchanges if exchange.connection.id in last}
    return [
        exchange
        for exchange in exchanges
        if exchange.connection.broker.port not in doors
        or exchange.number > last.get(exchange.connection.id, sys.maxsize)
    ]


def as_logged(exchange: Exchange) -> tuple[Any, ...]:
    """What a row of ``answered`` tells, but the errors."""
    ports = (exchange.connection.client.port, exchange.connection.broker.port)
    return (exchange.client_id, *ports, exchange.api, exchange.api_version, exchange.correlation_id)


@pytest.mark.parametrize("capture", LOGGED, ids=name_of)
def test_other_requests_are_those_that_the_brokers_answered(capture: Path) -> None:
    truth = truth_of(capture)
    telling = {row["client_id"] for row in truth["requests"]}
    # Correlation ids are unique only by grace of the client: those in Scala always said 0.
    logged = Counter((*list(row.values())[:-1],) for row in truth["answered"])
    errors = {(*list(row.values())[:-1],): row["errors"] for row in truth["answered"]}
    clients = {key[1:]: key[0] for key in logged}
    seen: Counter[tuple[Any, ...]] = Counter()
    answered: Counter[tuple[Any, ...]] = Counter()
    for exchange in after_the_login(exchanges_of(capture)):
        if exchange.client_id in telling or exchange.api == "Envelope":
            continue
        key = as_logged(exchange)
        if exchange.kind == ORPHAN:  # what was on its way when the recording began has no client ID
            key = clients[key[1:]], *key[1:]
        seen[key] += 1
        if exchange.kind not in (UNANSWERED, UNACKNOWLEDGED) and not exchange.is_cut:
            answered[key] += 1
            codes = errors.get(key)  # null: up to 0.11 brokers did not log responses
            assert codes is None or set(content.errors(exchange)) == {error_name(code) for code in codes}
    assert not answered - logged
    assert not logged - seen


def produced(capture: Path) -> list[dict[str, Any]]:
    """The records that were sent: of one with acks 0 a client need not know the partition."""
    rows = truth_of(capture).get("produced", ())
    return [
        row for row in rows if row["error"] is None and (row["partition"] is not None or row["acks"] == 0)
    ]


PRODUCING = [path for path in READABLE if produced(path) and name_of(path) != "midstream"]


@pytest.mark.parametrize("capture", PRODUCING, ids=name_of)
def test_the_records_are_as_many_as_the_clients_produced(capture: Path) -> None:
    sent = 0
    telling = {row["client_id"] for row in produced(capture)}
    for exchange in exchanges_of(capture):
        if (
            exchange.api == "Produce"
            and exchange.client_id in telling
            and exchange.kind in (ANSWERED, UNACKNOWLEDGED, UNANSWERED)
        ):
            count = content.records(exchange)
            if count is None or content.errors(exchange):
                return  # compressed message sets do not tell, and what was refused is sent again
            sent += count
    assert sent == len(produced(capture))


# What is not decoded, and why: librdkafka's mock cluster and Tansu answer a version that they do not know in
# a layout that is no version's, or lack or add fields (samples/README.md, "Oddities"); raw-requests asks for
# APIs and versions that nobody knows; one byte too many is librdkafka's, in AlterUserScramCredentials.
OF_THE_MOCK_CLUSTER = ("truncated_body", "trailing_bytes")
UNDECODED: dict[str, tuple[str, ...]] = {
    "mock-acks0": OF_THE_MOCK_CLUSTER,
    "mock-kafka-python": (*OF_THE_MOCK_CLUSTER, "unexpected_null"),
    "mock-librdkafka": OF_THE_MOCK_CLUSTER,
    "mock-next-groups": OF_THE_MOCK_CLUSTER,
    "mock-old-versions": OF_THE_MOCK_CLUSTER,
    "mock-rebalance": OF_THE_MOCK_CLUSTER,
    "odd-clients": ("trailing_bytes",),
    "unanswered": OF_THE_MOCK_CLUSTER,
    "tansu-admin": ("truncated_body", "trailing_bytes", "unexpected_null"),
    "raw-requests": ("truncated_body", "unknown_version", "unknown_api"),
    "kafka-4-basics": ("trailing_bytes",),
}
# These say of the capture, not of a frame, what it lacks: brokers write a response's length before the rest,
# and a recording begins in the middle of what brokers say to each other.
OF_THE_CAPTURE = {"tls_alert", "partial_frame", "incomplete_message", "resynchronized", "unexpected_response"}


@pytest.mark.parametrize("capture", READABLE, ids=name_of)
def test_all_is_decoded_but_what_is_known_not_to_be(capture: Path) -> None:
    exchanges = exchanges_of(capture)
    kinds = {anomaly.kind for exchange in exchanges for anomaly in exchange.anomalies} - OF_THE_CAPTURE
    assert kinds <= set(UNDECODED.get(name_of(capture), ()))
    if not kinds:
        bodies = [body for each in exchanges for body in (each.request, each.response) if body is not None]
        assert not any("_undecoded" in body or "_trailing" in body for body in bodies)


if TYPE_CHECKING:
    Feature = Callable[[Exchange], bool]


def has_api(*apis: str) -> Feature:
    return lambda exchange: exchange.api in apis


def fails(error: str, *apis: str) -> Feature:
    return lambda exchange: exchange.api in apis and error in content.errors(exchange)


def logs_in(mechanism: str) -> Feature:
    return lambda exchange: exchange.sasl_mechanism == mechanism and exchange.principal is not None


def rebalances(exchange: Exchange) -> bool:
    """A group of the older protocol comes to its second generation."""
    return exchange.api == "JoinGroup" and (exchange.response or {}).get("generation_id", 0) > 1


def is_turned_away(exchange: Exchange) -> bool:
    """By an error, or, where the token has no header, by silence."""
    refused = "SASL_AUTHENTICATION_FAILED" in content.errors(exchange)
    return refused or (exchange.api is None and exchange.kind == UNANSWERED)


def is_throttled(exchange: Exchange) -> bool:
    return exchange.api == "Produce" and bool(content.throttle_time_ms(exchange))


def is_of_a_replica(exchange: Exchange) -> bool:
    """Also a controller's, which fetches the log of the quorum; the broker's number moved in Fetch v15."""
    if exchange.api != "Fetch" or exchange.request is None:
        return False
    replica = exchange.request.get("replica_state", exchange.request).get("replica_id", -1)
    return bool(replica >= 0)


# What the table "Releases of Apache Kafka" says is in a capture: by what kdissect shows of it.
FEATURES: dict[str, Feature] = {
    "produce, consume": has_api("Produce"),
    "group rebalance": rebalances,
    "transaction": has_api("EndTxn"),
    "topic creation": has_api("CreateTopics"),
    "group description": has_api("DescribeGroups"),
    "ACL creation": has_api("CreateAcls"),
    "access denied": lambda exchange: "TOPIC_AUTHORIZATION_FAILED" in content.errors(exchange),
    "SASL/PLAIN": logs_in("PLAIN"),
    "SCRAM": logs_in("SCRAM-SHA-256"),
    "failed login": is_turned_away,
    "leader change": fails("NOT_LEADER_OR_FOLLOWER", "Produce", "Fetch"),
    "throttling": is_throttled,
    "controller requests": has_api("LeaderAndIsr", "UpdateMetadata", "StopReplica"),
    "AlterPartition": has_api("AlterPartition"),
    "Envelope": has_api("Envelope"),
    "Fetch between brokers": is_of_a_replica,
    "Vote": has_api("Vote"),
    "BeginQuorumEpoch": has_api("BeginQuorumEpoch"),
    "FetchSnapshot": has_api("FetchSnapshot"),
    "BrokerRegistration": has_api("BrokerRegistration"),
    "BrokerHeartbeat": has_api("BrokerHeartbeat"),
    "ConsumerGroupHeartbeat": has_api("ConsumerGroupHeartbeat"),
    "share group": has_api("ShareFetch"),
    "streams group": has_api("StreamsGroupHeartbeat"),
    "PushTelemetry": has_api("PushTelemetry"),
}
TABLE = "## Releases of Apache Kafka"


def table() -> list[tuple[str, dict[str, str]]]:
    """The table's rows: a feature, and what is said of it for each release."""
    _, _, text = Path("samples/README.md").read_text().partition(TABLE)
    rows = [line.strip("|").split("|") for line in text.split("\n\n")[2].splitlines()]
    cells = [[cell.strip().strip("`") for cell in row] for row in rows]
    return [(row[0], dict(zip(cells[0][1:], row[1:], strict=True))) for row in cells[2:]]


def samples_of(release: str) -> list[Path]:
    """Of the newest there are several."""
    several = release == RELEASES[-1]
    return [
        path
        for path in READABLE
        if name_of(path) == f"kafka-{release}" or (several and name_of(path).startswith("kafka-4-"))
    ]


RELEASES = list(table()[0][1])


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_says_what_is_in_the_captures(release: str) -> None:
    exchanges = [exchange for capture in samples_of(release) for exchange in exchanges_of(capture)]
    for feature, reported in table():
        is_one = FEATURES[feature]
        assert (reported[release] == "yes") == any(map(is_one, exchanges)), feature


def test_metrics_are_those_that_the_broker_got() -> None:
    (capture,) = [path for path in CAPTURES if name_of(path) == "kafka-4-cluster"]
    got = Counter(
        (row["client_id"], row["client_instance_id"], row["terminating"])
        for row in truth_of(capture)["facts"]["telemetry"]
    )
    seen: Counter[tuple[Any, ...]] = Counter()
    for exchange in exchanges_of(capture):
        if exchange.api == "PushTelemetry" and exchange.request:
            body = exchange.request
            seen[exchange.client_id, body["client_instance_id"], body["terminating"]] += 1
    assert seen == got


def test_kafka_inside_tls_is_recognized_as_tls() -> None:
    (capture,) = [path for path in CAPTURES if name_of(path) == ENCRYPTED]
    with open_capture(capture) as packets:
        run = dissect(packets)
        assert list(run) == []
    assert run.counts["connections: TLS"] > 0
    assert run.notices == []
    assert truth_of(capture)["requests"]


def test_no_sample_holds_anything_but_tcp_that_was_looked_at() -> None:
    for capture in CAPTURES:
        with open_capture(capture) as packets:
            segments = Segments()
            assert all(segments.feed(packet) is not None for packet in packets)
            assert not segments.skipped


def test_samples_are_small() -> None:
    total = sum(path.stat().st_size for path in Path("samples").rglob("*") if path.is_file())
    assert total < 15_000_000
