"""What brokers refuse: which errors are found, and which are steps of the protocol or have other rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.kafka.codes import error_code
from kdissect.stats.findings.errors import (
    AuthorizationDenied,
    CoordinatorUnavailable,
    NotEnoughReplicas,
    ProduceRefused,
    StorageError,
)
from tests.findings import fetch, findings_of, produce
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Rule

PRODUCE_RULES: tuple[type[Rule], ...] = (ProduceRefused, AuthorizationDenied, NotEnoughReplicas, StorageError)


def refused(error: str, times: int = 1) -> list[Facts]:
    return [produce(number, error=error_code(error)) for number in range(times)]


@pytest.mark.parametrize(
    ("error", "rule", "severity", "message"),
    [
        ("UNKNOWN_SERVER_ERROR", ProduceRefused, "error", "2 batches rejected: UNKNOWN_SERVER_ERROR"),
        ("CORRUPT_MESSAGE", ProduceRefused, "error", "2 batches rejected: CORRUPT_MESSAGE"),
        ("INVALID_RECORD", ProduceRefused, "error", "2 batches rejected: INVALID_RECORD"),
        (
            "TOPIC_AUTHORIZATION_FAILED",
            AuthorizationDenied,
            "warning",
            "Produce (topic orders) denied 2 times: TOPIC_AUTHORIZATION_FAILED",
        ),
        ("NOT_ENOUGH_REPLICAS", NotEnoughReplicas, "error", "2 batches rejected: NOT_ENOUGH_REPLICAS"),
        (
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            NotEnoughReplicas,
            "error",
            "2 batches rejected: NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
        (
            "KAFKA_STORAGE_ERROR",
            StorageError,
            "error",
            "2 responses with KAFKA_STORAGE_ERROR, topic orders",
        ),
    ],
)
def test_each_error_has_one_rule(error: str, rule: type[Rule], severity: str, message: str) -> None:
    for each in PRODUCE_RULES:
        rows = findings_of(each, refused(error, 2))
        assert [(row.severity, row.message, row.count) for row in rows] == (
            [(severity, message, 2)] if each is rule else []
        )


def test_a_finding_quotes_the_first_message_of_the_broker() -> None:
    facts = refused("INVALID_RECORD", 3)
    for each, text in zip(facts, (None, "no key", "no value"), strict=True):
        partitions = [{"index": 0, "error_code": error_code("INVALID_RECORD"), "error_message": text}]
        each.exchange.response = {"responses": [{"name": "orders", "partition_responses": partitions}]}
    (row,) = findings_of(ProduceRefused, facts)
    assert row.message == '3 batches rejected: INVALID_RECORD: "no key"'


@pytest.mark.parametrize(
    "error", ["NOT_LEADER_OR_FOLLOWER", "MESSAGE_TOO_LARGE", "REQUEST_TIMED_OUT", "NONE"]
)
def test_errors_after_which_producers_retry_or_that_have_other_rules(error: str) -> None:
    for rule in PRODUCE_RULES:
        assert findings_of(rule, refused(error, 50)) == []


def test_a_failed_disk_stops_readers_too() -> None:
    (row,) = findings_of(StorageError, [fetch(1, error=error_code("KAFKA_STORAGE_ERROR"))])
    assert row.subject == "broker 10.0.0.1:9092"


def heartbeats(error: str, times: int, every_s: float) -> list[Facts]:
    response: dict[str, Any] = {"error_code": error_code(error)}
    return [facts_of("Heartbeat", 3, 27 + number * every_s, {}, response) for number in range(times)]


@pytest.mark.parametrize(
    "error", ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"]
)
def test_a_coordinator_that_is_missing_for_long(error: str) -> None:
    (row,) = findings_of(CoordinatorUnavailable, heartbeats(error, 12, 1))
    assert (row.severity, row.subject, row.count) == ("error", "client payments", 12)
    assert row.message.startswith(f"12 responses with {error}, all within a minute")
    assert findings_of(CoordinatorUnavailable, heartbeats(error, 5, 1)) == []
    assert findings_of(CoordinatorUnavailable, heartbeats(error, 30, 20)) == []


@pytest.mark.parametrize("rule", [ProduceRefused, AuthorizationDenied, NotEnoughReplicas, StorageError])
def test_a_topic_without_a_name_is_shown_by_its_id(rule: type[Rule]) -> None:
    code = {
        ProduceRefused: "INVALID_RECORD",
        AuthorizationDenied: "TOPIC_AUTHORIZATION_FAILED",
        NotEnoughReplicas: "NOT_ENOUGH_REPLICAS",
        StorageError: "KAFKA_STORAGE_ERROR",
    }[rule]
    topic = {"topic_id": "bszCrAwKQTKvoijoHlrRoA"}
    request = {"acks": -1, "topic_data": [{**topic, "partition_data": [{"index": 0}]}]}
    result = {"index": 0, "error_code": error_code(code)}
    response = {"responses": [{**topic, "partition_responses": [result]}]}
    (row,) = findings_of(rule, [facts_of("Produce", 13, 1, request, response)])
    assert "<id bszCrAwKQTKvoijoHlrRoA>" in row.subject + row.message
