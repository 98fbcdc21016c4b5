from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.stats.findings.clients import UnsupportedVersions
from tests.exchange_factory import connection
from tests.findings import findings_of, metadata
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts

UNSUPPORTED = 35


def greet(number: int) -> Facts:
    refused = {"error_code": UNSUPPORTED, "api_keys": []}
    return facts_of("ApiVersions", 0, number, {}, refused, "asker", connection=connection(f"c{number}"))


def join(number: int, **more: Any) -> Facts:
    answer = {"error_code": UNSUPPORTED, "generation_id": -1, "members": []}
    return facts_of("JoinGroup", 0, number, {"group_id": "g"}, answer, "asker", **more)


def old(number: int, *, answered: bool = False, on: str = "") -> Facts:
    response = {"responses": []} if answered else None
    used = connection(on or f"c{number}")
    return facts_of("Produce", 0, number, {"acks": 1, "topic_data": []}, response, connection=used)


def test_requests_that_are_refused() -> None:
    (row,) = findings_of(UnsupportedVersions, [join(number) for number in range(10)])
    assert row.subject == "client asker, JoinGroup v0, broker 10.0.0.1:9092"
    assert row.message == "10 requests were rejected"
    assert findings_of(UnsupportedVersions, [join(number) for number in range(3)]) == []


def test_a_broker_that_hangs_up_on_a_version_that_is_gone() -> None:
    (row,) = findings_of(UnsupportedVersions, [old(number) for number in range(10)])
    assert row.subject == "client payments, Produce v0, broker 10.0.0.1:9092"
    assert row.message == "10 connections ended with such a request and no response"


def test_a_capture_of_requests_alone() -> None:
    assert findings_of(UnsupportedVersions, [old(number, on=f"c{number % 6}") for number in range(60)]) == []


def test_a_broker_that_takes_it_and_was_away_for_a_while() -> None:
    assert (
        findings_of(UnsupportedVersions, [old(number, answered=number == 20) for number in range(21)]) == []
    )


def test_unanswered_requests_of_a_version_that_stays() -> None:
    assert (
        findings_of(
            UnsupportedVersions, [facts_of("Produce", 9, number, {"acks": 1}, None) for number in range(10)]
        )
        == []
    )


def test_greetings_that_lead_nowhere() -> None:
    (row,) = findings_of(UnsupportedVersions, [greet(number) for number in range(8)])
    assert (row.subject, row.count) == ("client asker", 8)
    assert row.message == "ApiVersions was rejected on 8 connections, and no other request followed"


def test_a_greeting_that_is_refused_once_a_connection() -> None:
    talk = [greet(number) for number in range(8)]
    talk += [metadata(number + 0.1, connection=connection(f"c{number}")) for number in range(8)]
    assert findings_of(UnsupportedVersions, talk) == []
