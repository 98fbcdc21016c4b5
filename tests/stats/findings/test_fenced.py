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
