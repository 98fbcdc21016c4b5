"""Real traffic: what kdissect says about each sample is what its clients said that they did, and what it said
before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kdissect import dissect, open_capture
from kdissect.analysis import content
from kdissect.kafka.codes import error_name
from kdissect.model import ANSWERED, UNACKNOWLEDGED, UNANSWERED, Exchange
from kdissect.net.tcp import Segments
from samples.golden import FORMATS, GOLDEN, captures, name_of, output

CAPTURES = captures()
ENCRYPTED = "tls"
TRUTHS = {path.name.split(".")[0]: path for path in Path("samples").glob("*.truth.json")}
READABLE = [path for path in CAPTURES if name_of(path) in TRUTHS and name_of(path) != ENCRYPTED]


def truth_of(capture: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(TRUTHS[name_of(capture)].read_text())
    return truth


def exchanges_of(capture: Path) -> list[Exchange]:
    with open_capture(capture) as packets:
        return list(dissect(packets))


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("capture", CAPTURES, ids=name_of)
def test_the_output_is_the_golden_one(capture: Path, ending: str) -> None:
    golden = GOLDEN / f"{name_of(capture)}.{ending}"
    lines = output(capture, FORMATS[ending]).splitlines()
    assert lines == golden.read_bytes().splitlines(), "python samples/golden.py refreshes it"


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
    said = requests_by_clients(capture)
    seen: Counter[tuple[Any, ...]] = Counter()
    telling = {row["client_id"] for row in truth_of(capture)["requests"]}
    for exchange in exchanges_of(capture):
        if exchange.request_frame is None or exchange.client_id not in telling:
            continue
        size = exchange.request_frame.size + 4
        api = exchange.api or (None if exchange.api_key is None else str(exchange.api_key))
        seen[exchange.client_id, api, exchange.api_version, exchange.correlation_id, size] += 1
    if "midstream" in name_of(capture):
        assert not seen - said
        assert seen.total() > 10
    else:
        assert (seen - said, said - seen) == (Counter(), Counter())


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
# Brokers log nothing before a login has succeeded; a Java client's first ApiVersions is then of version 0.
BEFORE_THE_LOGIN = {("ApiVersions", 0), ("SaslHandshake", 1), ("SaslAuthenticate", 2)}


def as_logged(exchange: Exchange) -> tuple[Any, ...]:
    """What a row of ``answered`` tells, but the errors."""
    ports = (exchange.connection.client.port, exchange.connection.broker.port)
    return (exchange.client_id, *ports, exchange.api, exchange.api_version, exchange.correlation_id)


@pytest.mark.parametrize("capture", LOGGED, ids=name_of)
def test_other_requests_are_those_that_the_brokers_answered(capture: Path) -> None:
    truth = truth_of(capture)
    telling = {row["client_id"] for row in truth["requests"]}
    logged = {
        (*list(row.values())[:-1],): {error_name(code) for code in row["errors"]} for row in truth["answered"]
    }
    assert len(logged) == len(truth["answered"])
    seen = {
        as_logged(exchange): exchange
        for exchange in exchanges_of(capture)
        if exchange.client_id not in telling
        and exchange.api != "Envelope"
        and (exchange.api, exchange.api_version) not in BEFORE_THE_LOGIN
    }
    answered = {key for key, exchange in seen.items() if exchange.kind != UNANSWERED}
    # An answer that the client did not wait for may be logged, and not be on the wire.
    assert answered <= logged.keys() <= seen.keys()
    assert {key: set(content.errors(seen[key])) for key in answered} == {key: logged[key] for key in answered}


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
    for exchange in exchanges_of(capture):
        if exchange.api == "Produce" and exchange.kind in (ANSWERED, UNACKNOWLEDGED, UNANSWERED):
            count = content.records(exchange)
            if count is None or content.errors(exchange):
                return  # compressed message sets do not tell, and what was refused is sent again
            sent += count
    assert sent == len(produced(capture))


def test_kafka_inside_tls_is_told_to_be_tls() -> None:
    (capture,) = [path for path in CAPTURES if name_of(path) == ENCRYPTED]
    with open_capture(capture) as packets:
        run = dissect(packets)
        assert list(run) == []
    assert run.counts["connections: TLS"] == len(run.notices) > 0
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
