from __future__ import annotations

from kdissect.stats.findings.producers import RequestsTooLarge
from tests.findings import findings_of, produce

MESSAGE_TOO_LARGE = 10


def test_a_message_that_is_refused() -> None:
    (row,) = findings_of(RequestsTooLarge, [produce(1, error=MESSAGE_TOO_LARGE, size=2000)])
    assert (row.subject, row.severity) == ("client payments, topic orders", "error")
    assert row.message.startswith("1 batch rejected as too large, the largest with 2,0")


def test_a_large_record_that_passed() -> None:
    (row,) = findings_of(RequestsTooLarge, [produce(1, size=1_000_000), produce(2)])
    assert (row.severity, row.count) == ("note", 1)


def test_large_batches_of_small_records_and_other_errors() -> None:
    assert findings_of(RequestsTooLarge, [produce(1, size=300_000, records=5), produce(2, error=6)]) == []
