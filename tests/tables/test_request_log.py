"""The request log, against the JSON that Kafka's own classes write, and what brokers logged."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kdissect
from kdissect.cli.terminal import OK
from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget
from kdissect.tables.request_log import as_kafka_writes, entry
from kdissect.tables.values import json_bytes
from tests.cli.commands import run
from tests.vectors.messages import RENAMED, vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.vectors.messages import Place, Vector

NEWEST = "4.4.0"
RECORDS = ("records", "unalignedRecords")


def bodies() -> Iterator[tuple[Place, Vector]]:
    """Requests and responses; of those with renamed fields, as the newest release writes them."""
    renamed = {message for message, _ in RENAMED}
    for name, places in vectors().items():
        for place, instances in places.items():
            if place.message.kind in ("request", "response"):
                for vector in instances:
                    if vector.release == NEWEST or name not in renamed:
                        yield place, vector


def logged(value: Any) -> Any:
    """What the converters leave out for the log: records, and unknown tags, which the vectors add."""
    if isinstance(value, list):
        return [logged(each) for each in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for name, each in value.items():
        if name in RECORDS and each is not None:
            result[f"{name}SizeInBytes"] = len(b64decode(each))
        elif name != "_tags":
            result[name] = logged(each)
    return result


def test_bodies_are_those_of_kafkas_own_converters() -> None:
    names = set()
    for place, vector in bodies():
        body, _ = decoder(*place)(vector.raw, 0, DecodeBudget())
        assert json.loads(json_bytes(as_kafka_writes(body))) == logged(vector.json), vector
        names.add(place.message.name)
    assert len(names) > 180


def entries(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    done = run(capsys, "read", "--request-log", *arguments)
    assert done.status == OK
    return [json.loads(line) for line in done.lines]


def truth(sample: str) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(Path(f"samples/{sample}.truth.json").read_text())
    return known


def test_each_request_that_brokers_logged_has_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for each in entries(capsys, "samples/kafka-4-basics.pcap"):
        header = each["requestHeader"]
        if each["isForwarded"]:
            continue
        shown[each["connection"], header["correlationId"], header["requestApiVersion"]] = each
    requests = truth("kafka-4-basics")["answered"]
    assert requests
    for request in requests:
        connection = f"127.0.0.1:{request['broker_port']}-127.0.0.1:{request['client_port']}"
        each = shown[connection, request["correlation_id"], request["version"]]
        assert each["requestHeader"]["clientId"] == request["client_id"]
        assert each["requestHeader"]["requestApiKeyName"].replace("_", "") == request["api"].upper()


def test_forwarded_requests_stand_for_their_envelopes(capsys: pytest.CaptureFixture[str]) -> None:
    forwarded = [each for each in entries(capsys, "samples/kafka-4-basics.pcap") if each["isForwarded"]]
    counts = truth("kafka-4-basics")["broker_requests"].values()
    assert len(forwarded) == sum(each.get("Envelope", 0) for each in counts)
    names = {each["requestHeader"]["requestApiKeyName"] for each in forwarded}
    assert "CREATE_TOPICS" in names
    assert "ENVELOPE" not in names
    for each in forwarded:
        assert each["principal"] == "User:ANONYMOUS"
        assert each["clientInformation"] == {"softwareName": "unknown", "softwareVersion": "unknown"}
        assert each["response"]


def test_an_envelope_that_failed_shows_its_error() -> None:
    envelope = next(each for each in kdissect.read("samples/kafka-4-basics.pcap") if each.api == "Envelope")
    envelope.response = {"response_data": None, "error_code": 31}
    failed = entry(envelope)
    assert failed["requestHeader"]["requestApiKeyName"] == "ENVELOPE"
    assert (failed["isForwarded"], failed["response"]) == (False, {"responseData": None, "errorCode": 31})
    envelope.response = None
    assert entry(envelope)["isForwarded"]


def test_times_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    sample = "samples/kafka-4-quota.pcap.gz"
    rows = [json.loads(line) for line in run(capsys, "read", "--json", sample).lines]
    for row, each in zip(rows, entries(capsys, sample), strict=True):
        parts = [row[f"{name}_us"] for name in ("queued", "throttled", "network")]
        total_us = None if None in [*parts, row["latency_us"]] else row["latency_us"] - sum(parts)
        assert each["totalTimeMs"] == (None if total_us is None else total_us / 1000)
        if not each["isForwarded"]:
            assert each["throttleTimeMs"] == row["throttle_time_ms"]
    assert any(row["throttled_us"] for row in rows)


def test_who_logged_in(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {
        (each["securityProtocol"], each["principal"])
        for each in entries(capsys, "samples/kafka-4-sasl.pcap")
        if each["requestHeader"]["requestApiKeyName"] == "METADATA"
    }
    assert ("SASL_PLAINTEXT", "User:alice") in shown
    assert {protocol for protocol, _ in shown} <= {"SASL_PLAINTEXT", "PLAINTEXT"}
    assert {principal for protocol, principal in shown if protocol == "PLAINTEXT"} <= {"User:ANONYMOUS"}


def test_what_was_not_seen_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    orphans = entries(capsys, "--kind", "orphan", "samples/midstream.pcap")
    assert orphans
    for each in orphans:
        assert (each["request"], each["principal"], each["securityProtocol"]) == (None, None, None)
        assert each["requestHeader"]["clientId"] is None
    unacknowledged = entries(capsys, "--kind", "unacknowledged", "samples/mock-acks0.pcap")
    assert unacknowledged
    assert all(each["response"] is None and each["totalTimeMs"] is None for each in unacknowledged)
    assert all(each["request"]["acks"] == 0 for each in unacknowledged)
