from __future__ import annotations

from kdissect.stats.findings.producers import TinyBatches
from tests.findings import findings_of, produce


def test_a_batch_for_each_record() -> None:
    (row,) = findings_of(TinyBatches, [produce(10 + number / 50) for number in range(600)])
    assert row.subject == "client payments, topic orders"
    assert row.message.startswith("600 batches averaging 1.0 records and ")
    assert row.count == 600


def test_records_that_are_rare_or_large_or_gathered() -> None:
    assert findings_of(TinyBatches, [produce(number) for number in range(600)]) == []
    assert findings_of(TinyBatches, [produce(10 + number / 50, size=5000) for number in range(600)]) == []
    assert findings_of(TinyBatches, [produce(10 + number / 50, records=10) for number in range(600)]) == []
