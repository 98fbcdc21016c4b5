from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.findings.clients import ConnectionChurn
from tests.exchange_factory import connection
from tests.findings import findings_of, metadata
from tests.producers import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.facts import Facts


def talks(number: int, requests: int, every_s: float = 1.0, brokers: int = 1) -> Iterator[Facts]:
    for place in range(number):
        used = connection(f"c{place}", port=40_000 + place, broker=f"10.0.1.{place % brokers}")
        at_s = 27 + place * every_s  # START_NS is 20 seconds behind a minute
        yield facts_of(
            "ApiVersions", 2, at_s, {}, {"error_code": 0, "api_keys": []}, "asker", connection=used
        )
        for each in range(requests):
            yield metadata(at_s + each / 100, connection=used)


def test_a_connection_for_each_request() -> None:
    (row,) = findings_of(ConnectionChurn, talks(30, 1))
    assert row.subject == "client asker at 10.0.0.5, broker 10.0.1.0:9092"
    assert row.message.startswith("30 of 30 connections carried at most 3 requests")
    assert row.evidence[0] == "c0"


def test_connections_that_are_used_or_few_or_rare_or_go_to_many_brokers() -> None:
    assert findings_of(ConnectionChurn, talks(30, 10)) == []
    assert findings_of(ConnectionChurn, talks(5, 1)) == []
    assert findings_of(ConnectionChurn, talks(30, 1, every_s=30)) == []
    assert findings_of(ConnectionChurn, talks(30, 1, brokers=15)) == []


def test_tokens_do_not_identify_the_client_of_a_connection() -> None:
    tokens = [
        facts_of(
            "Metadata",
            7,
            number,
            {"sasl_token": None},
            None,
            api_key=None,
            connection=connection(f"c{number}"),
        )
        for number in range(30)
    ]
    assert findings_of(ConnectionChurn, tokens) == []
