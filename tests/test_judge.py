"""What brokers log of each request (samples/troubles/*.truth.json) against what is said of it: how long the
broker took, and for what; errors; what became of requests that have no response.

The broker's times begin when it has read a request, and include the time to write the response. So the rest
of a latency, without queue, throttling and retransmissions, is a little longer than they are: by two wake-ups
of threads, on the two busy processors on which these captures were recorded.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import pytest

from kdissect import dissect, open_capture, summarize
from kdissect.exchanges.outcomes import outcome
from kdissect.kafka.codes import error_name
from kdissect.model import ANSWERED, INCOMPLETE, NOT_EXPECTED, ORPHAN, PENDING, Exchange, LatencyParts
from kdissect.stats.facts import Facts

DIRECTORY = Path("samples/troubles")
UNHINDERED = ("waits", "loss", "refusals", "expected")  # no broker is stopped meanwhile
LOGGED = (*UNHINDERED, "brokers", "forgotten", "outcomes")

# Milliseconds by which the rest of a latency is longer than the broker's time: nine of ten, and all.
USUAL, LONGEST = 4, 40
# By which a throttle time is over earlier than packets show: it begins before its response is on the wire.
EARLIER = 4


class Logged(NamedTuple):
    """What a broker logged of a request; milliseconds."""

    connection: str
    correlation_id: int
    client: str | None
    api: str
    errors: list[int]
    total: float
    request_queue: float
    local: float
    remote: float
    throttle: float
    response_queue: float
    send: float


@cache
def truth(sample: str) -> dict[str, object]:
    result: dict[str, object] = json.loads((DIRECTORY / f"{sample}.truth.json").read_text())
    return result


@cache
def exchanges(sample: str) -> list[Exchange]:
    with open_capture(DIRECTORY / f"{sample}.pcap.gz") as packets:
        return list(dissect(packets))


@cache
def judged(sample: str) -> list[tuple[Exchange, LatencyParts, Logged]]:
    """The answered exchanges in order, each with what its broker logged."""
    rows = (Logged(*row) for row in truth(sample)["answered"])  # type: ignore[attr-defined]
    log = {(row.connection, row.correlation_id): row for row in rows}
    pairs = []
    for exchange in exchanges(sample):
        if exchange.kind == ANSWERED:
            ends = exchange.connection
            assert exchange.parts is not None
            assert exchange.correlation_id is not None
            key = f"{ends.client.port}-{ends.broker.port}", exchange.correlation_id
            pairs.append((exchange, exchange.parts, log.pop(key)))
    return pairs


def latency_us(exchange: Exchange) -> int:
    assert exchange.latency_us is not None
    return exchange.latency_us


def before_us(parts: LatencyParts) -> int:
    """Until the broker could read the request; all of it is known."""
    assert None not in parts[:3]
    return sum(part or 0 for part in parts[:3])


@pytest.mark.parametrize("sample", LOGGED)
def test_each_answer_is_in_the_log_with_its_api_and_errors(sample: str) -> None:
    assert judged(sample)
    for exchange, _, logged in judged(sample):
        assert (exchange.api, exchange.client_id) == (logged.api, logged.client)
        assert sorted(Facts(exchange).errors) == sorted(map(error_name, logged.errors))


@pytest.mark.parametrize("sample", UNHINDERED)
def test_the_rest_of_a_latency_is_the_broker_s_time(sample: str) -> None:
    longer = []
    for exchange, parts, logged in judged(sample):
        if None not in parts[:4]:
            rest_us = latency_us(exchange) - before_us(parts)
            assert rest_us == (parts.wait_us if parts.service_us is None else parts.service_us)
            longer.append(rest_us / 1000 - (logged.total - logged.send))
            assert longer[-1] > (-EARLIER if parts.throttled_us else 0)
    assert len(longer) >= len(judged(sample)) - 2  # the first fetches of two consumers
    assert quantiles(longer, n=10)[-1] < USUAL
    assert max(longer) < LONGEST


def test_fetches_that_waited_are_those_that_the_broker_delayed() -> None:
    waited, served = defaultdict(list), defaultdict(list)
    for exchange, parts, logged in judged("waits"):
        if exchange.api == "Fetch" and parts.wait_us is not None:
            (waited if parts.waited else served)[exchange.client_id].append((parts, logged))
    delayed = [logged.remote for each in waited.values() for _, logged in each if logged.remote]
    at_once = [logged.total for each in waited.values() for _, logged in each if not logged.remote]
    assert len(delayed) > 20
    # These found a record that had come just before they did, which no packet of theirs shows.
    assert max(at_once) < 25
    assert all(logged.remote == 0 for each in served.values() for _, logged in each)
    # Who keeps up waits, who lags is served: what a ranking by service time needs.
    assert len(waited["keeps-up"]) > 10 * len(served["keeps-up"])
    assert len(served["lags"]) > 10 * len(waited["lags"])


def test_members_of_a_group_wait_for_each_other() -> None:
    joined = [(parts, logged) for exchange, parts, logged in judged("waits") if logged.api == "JoinGroup"]
    assert all(parts.waited for parts, _ in joined)
    assert any(logged.remote > 50 for _, logged in joined)


def test_requests_behind_a_fetch_that_waits_are_queued() -> None:
    behind = [
        (exchange, parts, logged)
        for exchange, parts, logged in judged("waits")
        if logged.api == "Metadata" and exchange.client_id == "keeps-up" and (parts.queued_us or 0) > 100_000
    ]
    assert behind
    for exchange, parts, logged in behind:
        assert logged.total < 25
        assert (parts.queued_us or 0) + 1000 * logged.total == pytest.approx(latency_us(exchange), abs=5000)


def test_throttled_is_what_the_broker_logged_for_the_request_before() -> None:
    on_connection: dict[str, list[tuple[LatencyParts, Logged]]] = defaultdict(list)
    for exchange, parts, logged in judged("waits"):
        if exchange.client_id == "limited":
            on_connection[exchange.connection.id].append((parts, logged))
    produced = max(on_connection.values(), key=len)
    pairs = list(pairwise(produced))
    assert sum(before.throttle > 0 for (_, before), _ in pairs) > 5
    for (_, before), (parts, _) in pairs:
        assert parts.throttled_us is not None  # all were sent long before it was over
        assert before.throttle - EARLIER < parts.throttled_us / 1000 <= before.throttle


def test_retransmissions_explain_latencies() -> None:
    late = [(exchange, parts) for exchange, parts, _ in judged("loss") if parts.network_us]
    assert len(late) >= 3
    for exchange, parts, logged in judged("loss"):
        if latency_us(exchange) > 150_000:
            assert parts.network_us
            assert parts.network_us > 0.9 * latency_us(exchange)
            assert logged.total < LONGEST


def test_the_slow_broker_takes_long_and_does_not_know() -> None:
    """Its process is stopped before it reads a request: only packets show that."""
    ports: dict[int, list[float]] = defaultdict(list)
    for exchange, parts, logged in judged("brokers"):
        if logged.api == "Produce" and exchange.client_id == "writer":
            ports[exchange.connection.broker.port].append((parts.service_us or 0) / 1000 - logged.total)
    slow = truth("brokers")["slow"]
    medians = {port: sorted(longer)[len(longer) // 2] for port, longer in ports.items()}
    assert [port for port, median in medians.items() if median > 40] == [slow]
    assert len(medians) == 3


def errors_of(sample: str) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """API and error: those that are expected, and the others."""
    expected, serious = set(), set()
    for exchange in exchanges(sample):
        for error in Facts(exchange).errors:
            (expected if error in exchange.expected_errors else serious).add((exchange.api or "", error))
    return expected, serious


def test_steps_of_the_protocol_are_no_trouble() -> None:
    expected, serious = errors_of("expected")
    assert expected == {
        ("ApiVersions", "UNSUPPORTED_VERSION"),
        ("CreateTopics", "TOPIC_ALREADY_EXISTS"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "MEMBER_ID_REQUIRED"),
        ("Heartbeat", "REBALANCE_IN_PROGRESS"),
    }
    assert serious == set()
    # The first request to a leader that moved is a step too; too few replicas are not.
    assert errors_of("brokers") == (
        {("Produce", "NOT_LEADER_OR_FOLLOWER"), ("Fetch", "FENCED_LEADER_EPOCH")},
        {("Produce", "NOT_ENOUGH_REPLICAS")},
    )


def test_a_coordinator_that_does_not_come_is_trouble() -> None:
    """Its errors are expected for five seconds."""
    count = {True: 0, False: 0}
    for exchange in exchanges("refusals"):
        if "COORDINATOR_NOT_AVAILABLE" in Facts(exchange).errors:
            count["COORDINATOR_NOT_AVAILABLE" in exchange.expected_errors] += 1
    assert count[True] >= 3
    assert count[False] >= 10


def test_what_became_of_each_request() -> None:
    by_client: dict[str | None, list[Exchange]] = defaultdict(list)
    for exchange in exchanges("outcomes"):
        by_client[exchange.client_id].append(exchange)
    orphans = by_client.pop(None)  # sent before the recording began, by the one that reads early
    assert [outcome(each) for each in orphans][:1] == [ORPHAN]
    *answered, last = (outcome(each) for each in by_client["early"])
    assert (set(answered), last) == ({ANSWERED}, PENDING)
    unconcerned = [outcome(each) for each in by_client["unconcerned"] if each.api == "Produce"]
    assert unconcerned == [NOT_EXPECTED] * 3
    fetches = [outcome(each) for each in by_client["mortal"] if each.api == "Fetch"]
    assert fetches[-1] == INCOMPLETE  # it was killed: the host resets the connection at the first bytes
    with open_capture(DIRECTORY / "outcomes.pcap.gz") as packets:
        assert not summarize(dissect(packets)).unanswered
    # After 30 s more than it allows, a request counts as unanswered: until its response comes after all.
    late = by_client["patient"][-1]
    assert outcome(late) == ANSWERED
    assert latency_us(late) / 1e6 == pytest.approx(truth("outcomes")["late"], abs=0.2)
    assert latency_us(late) > 31_000_000
