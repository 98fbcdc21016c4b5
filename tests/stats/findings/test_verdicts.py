"""Findings without which the verdict on traffic in trouble would be good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kdissect.limits import DEFAULT
from kdissect.model import LatencyParts
from kdissect.stats.facts import SLOW_US
from kdissect.stats.findings.causes import rows
from kdissect.stats.findings.clients import ClientUnserved
from kdissect.stats.findings.consumers import BlockedReaders
from kdissect.stats.findings.latencies import Queueing, SlowRequests
from kdissect.stats.findings.producers import FencedProducers, TransactionFailed
from kdissect.stats.findings.rules import Findings
from kdissect.stats.rows import moment
from kdissect.stats.tallies import Summing
from tests import producers as p
from tests.exchange_factory import connection
from tests.findings import fed, findings_of, metadata, produce
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def measured(facts: Facts, *, queued_us: int = 0, service_us: int = 1000) -> Facts:
    facts.parts = LatencyParts(queued_us, 0, 0, 0, service_us)
    facts.service_us = service_us
    facts.has_flaw = service_us >= SLOW_US
    return facts


@pytest.mark.parametrize(
    ("longest_us", "expected"), [(1_900_000, []), (8_000_000, ["up to 8.00s, median 1.00ms"])]
)
def test_a_request_that_takes_seconds_longer_than_usual(longest_us: int, expected: list[str]) -> None:
    usual = [measured(metadata(number)) for number in range(30)]
    long = measured(metadata(40), service_us=longest_us)
    rows = findings_of(SlowRequests, [*usual, long])
    assert [row.message.rpartition(", on")[0] for row in rows] == expected
    assert [row.first for row in rows] == [moment(long.time_ns)] * len(expected), "not before"


def test_a_usual_time_is_not_slow() -> None:
    assert findings_of(SlowRequests, [measured(metadata(n), service_us=5_000_000) for n in range(30)]) == []
    assert findings_of(SlowRequests, [measured(metadata(1), service_us=5_000_000)]) == []


@pytest.mark.parametrize(("waiting", "count"), [(9, 0), (10, 1)])
def test_a_producer_that_outruns_its_connection(waiting: int, count: int) -> None:
    sent = [measured(produce(n / 10), queued_us=1_500_000 if n < waiting else 10) for n in range(100)]
    rows = findings_of(Queueing, sent)
    assert [row.subject for row in rows] == ["client payments"] * count
    for row in rows:
        assert row.message == (
            "10 of 100 Produce requests on 1 connection waited 1 s or more for the responses to earlier "
            "ones, up to 1.50s"
        )
        assert row.last == moment(sent[waiting - 1].time_ns), "not after"


def test_a_client_none_of_whose_requests_succeeds() -> None:
    handshake = facts_of("ApiVersions", 2, 0, {}, {"error_code": 0, "api_keys": []})
    refused = [produce(number, error=3) for number in range(1, 4)]
    (row,) = findings_of(ClientUnserved, [handshake, *refused])
    assert row.subject == "client payments at 10.0.0.8"
    assert row.message == "none of its requests succeeded; 3 failed or stayed unanswered"
    assert findings_of(ClientUnserved, [handshake, *refused, produce(5)]) == []
    assert findings_of(ClientUnserved, [handshake, *refused[:2]]) == []


def test_that_no_request_succeeds_stands_below_the_reason_if_that_is_known() -> None:
    refused = [produce(number, error=3) for number in range(3)]
    for error, expected in (
        (3, [("client-unserved", None)]),
        (87, [("produce-refused", None), ("client-unserved", "produce-refused")]),
    ):
        findings = Findings(DEFAULT)
        for facts in [produce(number, error=error) for number in range(3)]:
            findings.feed(facts)
        summing = Summing(DEFAULT, [findings.feed])
        for facts in refused:
            summing.feed(facts)
        summing.settle()
        assert [(row.rule, row.explained_by) for row in findings.rows()] == expected


def transactional(api: str, after_s: float, error: int, **fields: Any) -> Facts:
    request = {"transactional_id": "pay", "producer_id": 1, "producer_epoch": 0, **fields}
    response = {"error_code": error, "producer_id": 1, "producer_epoch": 0}
    return facts_of(api, 3, after_s, request, response, connection=connection(f"of-{api}"))


def test_a_transaction_that_cannot_end() -> None:
    start = transactional("InitProducerId", 0, 0, transaction_timeout_ms=4000)
    (row,) = findings_of(TransactionFailed, [start, transactional("EndTxn", 18, 48, committed=True)])
    assert (row.severity, row.subject) == ("error", "client payments, transactional ID pay")
    assert row.message == "EndTxn refused with INVALID_TXN_STATE, once; its transaction.timeout.ms is 4,000"
    concurrent = transactional("EndTxn", 18, 51, committed=True)  # the producer retries
    assert findings_of(TransactionFailed, [start, concurrent]) == []


def stable(after_s: float, offset: int, end: int) -> Facts:
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": end,
        "last_stable_offset": offset,
        "records": None,
    }
    response = {"error_code": 0, "responses": [{"topic": "orders", "partitions": [partition]}]}
    expected = {"partition": 0, "fetch_offset": offset}
    request = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "topics": [{"topic": "orders", "partitions": [expected]}],
    }
    return facts_of("Fetch", 7, after_s, request, response, "reader")


def test_an_open_transaction_that_readers_wait_for() -> None:
    held = [stable(number, 30, 30 + 2 * number) for number in range(10)]
    (row,) = findings_of(BlockedReaders, held)
    assert row.subject == "partition orders-0"
    assert row.message == (
        "a transaction was open: the last stable offset stood at 30 for 8.00s, 18 offsets below the high "
        "watermark"
    )


def test_the_transaction_that_readers_wait_for_explains_what_its_producer_gets() -> None:
    facts = [p.init(0, timeout_ms=4000), p.add(0.5), p.produce(0.6, 0)]
    facts += [stable(number, 30, 30 + 2 * number) for number in range(1, 10)]
    late = [p.end(60, error=p.PRODUCER_FENCED)]
    parts = fed([*facts, *late], BlockedReaders, FencedProducers).rows()
    assert [(row.rule, row.severity, row.explained_by) for row in rows(parts, {"readers-blocked": 0})] == [
        ("readers-blocked", "error", None), ("fenced-producers", "error", "readers-blocked"),
    ]  # fmt: skip
    assert parts[0].scope == {
        "topic": ["orders"], "partition": ["orders-0"], "client": ["payments"], "transactional ID": ["pay"],
    }  # fmt: skip
    again = [p.init(20, 1), p.add(21, 1), p.produce(22, 0, 1, 1), p.end(23, 1)]
    (part,) = fed([*facts, *again], BlockedReaders).rows()
    assert part.until_ns == again[1].exchange.time_ns, "what comes later has another cause"


def test_readers_that_do_not_wait() -> None:
    assert findings_of(BlockedReaders, [stable(n, 30 + n, 35 + n) for n in range(10)]) == []  # it moves
    assert findings_of(BlockedReaders, [stable(n, 30, 30) for n in range(10)]) == []  # nothing is written
    assert findings_of(BlockedReaders, [stable(n, -1, 30) for n in range(10)]) == []  # read_uncommitted
