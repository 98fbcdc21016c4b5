from __future__ import annotations

from kdissect.stats.findings.consumers import OutOfRange
from tests.findings import fetch, findings_of

OFFSET_OUT_OF_RANGE = 1


def test_a_consumer_that_was_too_slow() -> None:
    (row,) = findings_of(OutOfRange, [fetch(1), fetch(2, error=OFFSET_OUT_OF_RANGE), fetch(3)])
    assert (row.subject, row.count) == ("client reader, topic orders", 1)
    assert row.message == "requested an out-of-range offset once"


def test_consumers_that_keep_up_other_errors_and_followers() -> None:
    facts = [fetch(1), fetch(2, error=6), fetch(3, error=OFFSET_OUT_OF_RANGE, replica_id=1)]
    assert findings_of(OutOfRange, facts) == []
