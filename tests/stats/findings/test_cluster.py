"""Elections, brokers that may not join, and fetch sessions that are evicted, exchange by exchange."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from kdissect.stats.findings.cluster import BrokerRejected, ElectionsLost, SessionsEvicted
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts

DUPLICATE, NOT_CONTROLLER, NO_SESSION = 101, 41, 70


def vote(after_s: float, candidate: int, *, granted: bool = False) -> Facts:
    request = {"partition_index": 0, "replica_epoch": 4, "replica_id": candidate}
    given = {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 1,
        "leader_epoch": 4,
        "vote_granted": granted,
    }

    def of(partition: dict[str, object]) -> dict[str, object]:
        return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}], "error_code": 0}

    return facts_of("Vote", 2, after_s, of(request), of(given), f"raft-client-{candidate}")


def test_votes_that_are_refused_again_and_again() -> None:
    (row,) = findings_of(ElectionsLost, [vote(number, 2 + number % 2) for number in range(40)])
    assert (row.severity, row.subject) == ("warning", "topic __cluster_metadata")
    assert row.message == "40 votes refused to nodes 2, 3, all within a minute"


def test_elections_that_somebody_wins() -> None:
    won = [vote(number, 2, granted=True) for number in range(40)]
    refused = [vote(60 * number, 3) for number in range(40)]
    assert findings_of(ElectionsLost, [*won, *refused]) == []


def test_votes_without_an_answer() -> None:
    bodies = ({"topics": None}, {"topics": [{"topic_name": None, "partitions": None}]})
    cut = [{"topics": [{"partitions": [{}, {"partition_index": 0}, {"vote_granted": None}]}]}]
    facts = [
        facts_of("Vote", 2, number, request, response, "raft-client-2")
        for number, (request, response) in enumerate(itertools.product((*bodies, *cut), repeat=2))
    ]
    assert findings_of(ElectionsLost, facts * 30) == []


def registration(after_s: float, error: int) -> Facts:
    response = {"throttle_time_ms": 0, "error_code": error, "broker_epoch": -1}
    return facts_of("BrokerRegistration", 4, after_s, {"broker_id": 3}, response, "3")


def test_a_broker_that_may_not_join() -> None:
    (row,) = findings_of(BrokerRejected, [registration(5 * number, DUPLICATE) for number in range(6)])
    assert (row.severity, row.subject, row.impact.requests) == ("warning", 'client "3"', 6)
    assert row.message == "6 requests to join rejected: DUPLICATE_BROKER_REGISTRATION"


def test_a_broker_that_returns_after_a_crash_or_finds_the_controller() -> None:
    early = [registration(2 * number, DUPLICATE) for number in range(5)]
    lost = [registration(5 * number, NOT_CONTROLLER) for number in range(5)]
    assert findings_of(BrokerRejected, [*early, registration(12, 0)]) == []
    assert findings_of(BrokerRejected, lost) == []
    often = [
        registration(3 * 3600 * number + 3 * second, DUPLICATE) for number in range(9) for second in (0, 3)
    ]
    assert findings_of(BrokerRejected, often) == []


def fetch(after_s: float, client: str, error: int = NO_SESSION) -> Facts:
    response = {"throttle_time_ms": 0, "error_code": error, "session_id": 0, "responses": []}
    return facts_of(
        "Fetch", 12, after_s, {"session_id": 7, "session_epoch": 3, "topics": []}, response, client
    )


def test_fetch_sessions_that_are_evicted() -> None:
    (row,) = findings_of(SessionsEvicted, [fetch(number, "reader") for number in range(5)])
    assert row.subject == "client reader, broker 10.0.0.1:9092"
    assert row.message == "5 fetch sessions evicted while in use, all within 10 seconds"
    (row,) = findings_of(SessionsEvicted, [fetch(60 * number, "reader") for number in range(10)])
    assert row.count == 10


def test_a_session_that_is_gone_once_is_none() -> None:
    restarted = [fetch(number / 10, f"reader-{number:02}") for number in range(20)]
    served = [fetch(number, "reader", error=0) for number in range(20)]
    assert (
        findings_of(SessionsEvicted, [*restarted, *served, *(fetch(20 * n, "reader") for n in range(4))])
        == []
    )
