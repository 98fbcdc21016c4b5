from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.stats.findings.responses import RequestTimeouts
from tests.exchange_factory import START_NS, connection
from tests.findings import findings_of
from tests.producers import SECOND_NS, facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def waiting(after_s: float, until_s: float, api: str = "Metadata", **request: Any) -> Facts:
    """A request without an answer, and until when it was outstanding."""
    completed_ns = START_NS + round(until_s * SECOND_NS)
    used = connection(f"c{after_s}")
    return facts_of(api, 7, after_s, request, None, completed_ns=completed_ns, connection=used)


def test_requests_that_outlast_what_they_allow() -> None:
    produce = {"acks": -1, "timeout_ms": 30_000}
    (row,) = findings_of(
        RequestTimeouts, [waiting(0, 31), waiting(1, 31), waiting(2, 38, "Produce", **produce)]
    )
    assert row.subject == "client payments, broker 10.0.0.1:9092"
    assert row.message == "3 unanswered requests (2 Metadata, 1 Produce), outstanding for up to 36.00s"
    assert (row.rule, row.severity, row.count) == ("request-timeouts", "error", 3)
    assert row.evidence == ["c0/0", "c1/1000", "c2/2000"]


def test_clients_that_close_early() -> None:
    fetch = {"max_wait_ms": 500, "topics": []}
    join = {"rebalance_timeout_ms": 300_000}
    healthy = [
        waiting(0, 5),
        *(waiting(number, number + 0.5, "Fetch", **fetch) for number in range(20)),
        waiting(0, 200, "JoinGroup", **join),
    ]
    assert findings_of(RequestTimeouts, healthy) == []


def test_requests_that_may_still_be_answered() -> None:
    request = waiting(0, 29)
    request.exchange.ended = False
    request.outcome = "pending"
    assert findings_of(RequestTimeouts, [request]) == []
