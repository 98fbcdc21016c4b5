from __future__ import annotations

from kdissect.stats.findings.producers import FencedProducers
from tests import producers as p
from tests.findings import findings_of


def test_a_producer_that_was_fenced() -> None:
    facts = [p.produce(1, 0, error=p.PRODUCER_FENCED), p.end(2, error=p.PRODUCER_FENCED)]
    (row,) = findings_of(FencedProducers, facts)
    assert row.subject == "client payments, transactional ID pay"
    assert (row.severity, row.count) == ("error", 2)
    assert row.message == "2 responses with a fencing error"


def test_producers_that_only_have_to_wait() -> None:
    assert findings_of(FencedProducers, [p.add(1, error=p.CONCURRENT_TRANSACTIONS), p.produce(2, 0)]) == []


def test_a_producer_whose_own_transaction_timed_out() -> None:
    late = [p.init(1, timeout_ms=4000), p.add(2), p.produce(2.1, 0), p.end(9, error=p.PRODUCER_FENCED)]
    timed_out = (
        "1 response with a fencing error: its transaction had timed out (transaction.timeout.ms is 4,000)"
    )
    (row,) = findings_of(FencedProducers, late)
    assert row.message == timed_out
    aborted = p.mark(6.2, 1, commits=False)  # by the coordinator, which counts its epoch up
    assert [row.message for row in findings_of(FencedProducers, [*late, aborted])] == [timed_out]
    for why, other in (
        ("in time", p.end(5, error=p.PRODUCER_FENCED)),
        ("another came", p.init(8, 1, client="b")),
    ):
        facts = [*late[:3], other, *(late[3:] if why == "another came" else ())]
        assert [row.message for row in findings_of(FencedProducers, facts)] == [
            "1 response with a fencing error"
        ], why
