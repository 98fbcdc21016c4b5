"""What members of real groups, and real brokers, say inside their bytes: against what the clients logged."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture
from kdissect.kafka.internal import payloads
from kdissect.kafka.internal.payloads import GroupProtocols, open_payloads
from kdissect.kafka.internal.topics import is_internal, open_control_record, open_record
from kdissect.kafka.records import RecordData
from kdissect.model import Anomaly, Body, Embedded, Exchange
from samples.golden import captures, name_of
from tests.kafka.oracles import kafka_python  # noqa: F401  silences what importing kafka warns about

from kafka.record import MemoryRecords  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Iterator

CAPTURES = captures()
GROUPS = [path for path in CAPTURES if not name_of(path).startswith(("http", "tls", "midstream", "raw"))]
Places = set[tuple[str, int]]
HAVE_TELEMETRY = payloads._protobuf() is not None


def truth_of(capture: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(Path(f"samples/{name_of(capture)}.truth.json").read_text())
    return truth


@cache
def decoded_exchanges(capture: Path) -> tuple[list[Exchange], list[Anomaly]]:
    protocols = GroupProtocols()
    anomalies: list[Anomaly] = []
    exchanges = []
    with open_capture(capture) as packets:
        for exchange in dissect(packets):
            anomalies += [*exchange.anomalies, *open_payloads(exchange, protocols)]
            exchanges.append(exchange)
    return exchanges, anomalies


def body(payload: object) -> Body:
    assert isinstance(payload, Embedded)
    return payload.decoded


def places(assignment: Body) -> Places:
    topics = assignment["assigned_partitions"]
    return {(entry["topic"], partition) for entry in topics for partition in entry["partitions"]}


def assigned(exchanges: list[Exchange]) -> dict[tuple[str, str], list[Places]]:
    """(client ID, group) -> the assignments that SyncGroup handed out, in order."""
    result = defaultdict(list)
    for exchange in exchanges:
        request, response = exchange.request, exchange.response
        if exchange.api == "SyncGroup" and request and response and response["error_code"] == 0:
            assert exchange.client_id is not None
            assignment = response["assignment"]
            result[exchange.client_id, request["group_id"]].append(
                places(body(assignment)) if assignment else set()
            )
    return result


def held(truth: dict[str, Any]) -> dict[tuple[str, str], list[Places]]:
    """(client ID, group) -> what the client said it had after each assignment, whole or incremental."""
    now: dict[tuple[str, str], Places] = defaultdict(set)
    result = defaultdict(list)
    for event in truth["groups"]:
        who = event["client_id"], event["group_id"]
        partitions = {(topic, partition) for topic, partition in event["partitions"]}
        if event["event"] == "assigned":
            now[who] = now[who] | partitions
            result[who].append(now[who])
        else:
            now[who] = now[who] - partitions
    return result


@pytest.mark.parametrize("capture", GROUPS, ids=name_of)
def test_assignments_are_those_that_the_members_say_they_got(capture: Path) -> None:
    subscribed = held(truth_of(capture))
    for who, seen in assigned(decoded_exchanges(capture)[0]).items():
        rest = iter(seen)
        assert all(partitions in rest for partitions in subscribed[who]), who
        # A member that left, or joined again, before it reported the last one.
        assert len(seen) - len(subscribed[who]) <= 1, who


def test_the_samples_have_many_assignments() -> None:
    assert sum(len(seen) for path in GROUPS for seen in assigned(decoded_exchanges(path)[0]).values()) > 30


@pytest.mark.parametrize("capture", GROUPS, ids=name_of)
def test_members_are_given_what_they_subscribe_to(capture: Path) -> None:
    selected: dict[str, set[str]] = defaultdict(set)
    for exchange in decoded_exchanges(capture)[0]:
        request = exchange.request or {}
        if exchange.api == "JoinGroup":
            for protocol in request["protocols"]:
                selected[request["group_id"]] |= set(body(protocol["metadata"])["topics"])
        elif exchange.api == "SyncGroup":
            for member in request["assignments"]:
                topics = {topic for topic, _ in places(body(member["assignment"]))}
                assert topics <= selected[request["group_id"]]


def test_librdkafka_uses_sticky_user_data_for_the_cooperative_assignor() -> None:
    (capture,) = [path for path in CAPTURES if name_of(path) == "mock-rebalance"]
    user_data = [
        body(protocol["metadata"])["user_data"]
        for exchange in decoded_exchanges(capture)[0]
        if exchange.api == "JoinGroup"
        for protocol in (exchange.request or {})["protocols"]
        if protocol["name"] == "cooperative-sticky"
    ]
    assert [body(one)["generation"] for one in user_data if one] == [2, 3, 3]


@pytest.mark.skipif(not HAVE_TELEMETRY, reason="needs opentelemetry-proto")
def test_pushed_metrics() -> None:
    (capture,) = [path for path in CAPTURES if name_of(path) == "mock-next-groups"]
    pushes = [
        exchange.request for exchange in decoded_exchanges(capture)[0] if exchange.api == "PushTelemetry"
    ]
    assert len(pushes) == 7
    for push in pushes:
        assert push is not None
        scopes = [
            scope for entry in body(push["metrics"])["resource_metrics"] for scope in entry["scope_metrics"]
        ]
        names = {metric["name"] for scope in scopes for metric in scope["metrics"]}
        assert "org.apache.kafka.producer.connection.creation.total" in names
        assert {scope["scope"]["version"] for scope in scopes} == {"2.16.0"}


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_nothing_is_malformed_in_real_traffic(capture: Path) -> None:
    assert [anomaly for anomaly in decoded_exchanges(capture)[1] if anomaly.kind == "malformed_payload"] == []


# --- internal topics, where a broker fetched them from another: records as kafka-python takes them apart ----


def internal_records(capture: Path) -> Iterator[tuple[str, bool, bytes | None, bytes | None]]:
    """(topic, whether it is a control record, key, value)."""
    for exchange in decoded_exchanges(capture)[0]:
        if exchange.api not in ("Fetch", "FetchSnapshot"):
            continue
        response = exchange.response or {}
        for topic in chain(response.get("responses", ()), response.get("topics", ())):
            name = topic.get("topic") or topic.get("name") or exchange.topic_ids.get(topic["topic_id"], "")
            for partition in topic["partitions"] if is_internal(name) else ():
                data = partition.get("records") or partition.get("unaligned_records")
                if isinstance(data, RecordData):
                    records = MemoryRecords(data.payload)
                    while (batch := records.next_batch()) is not None:
                        control = getattr(batch, "is_control_batch", False)  # message sets have none
                        for record in batch:
                            yield name, control, record.key, record.value


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_every_record_of_an_internal_topic_is_understood(capture: Path) -> None:
    for topic, control, key, value in internal_records(capture):
        if control:
            record = open_control_record(key, value)
            assert record.type is not None
            shown = record.key, record.value
        else:
            shown = open_record(topic, key, value)
        assert all(payload is None or isinstance(payload, Embedded) for payload in shown)
        assert all("_trailing" not in body(payload) for payload in shown if payload is not None)


@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_committed_offsets_are_those_that_the_clients_committed(capture: Path) -> None:
    seen = Counter(
        (commit["group"], commit["topic"], commit["partition"], body(decoded_value)["offset"])
        for topic, control, key, value in internal_records(capture)
        if topic == "__consumer_offsets" and not control and value is not None
        for decoded_key, decoded_value in [open_record(topic, key, value)]
        if (commit := body(decoded_key))["_message"] == "OffsetCommitKey"
    )
    commits = [row for row in truth_of(capture)["commits"] if row["offset"] >= 0]
    for row in commits if seen else ():
        assert seen[row["group_id"], row["topic"], row["partition"], row["offset"]], row
