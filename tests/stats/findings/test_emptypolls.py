from __future__ import annotations

from kdissect.stats.findings.consumers import EmptyPolls
from tests.findings import fetch, findings_of
from tests.record_batches import Item, batch


def test_a_consumer_that_does_not_wait() -> None:
    (row,) = findings_of(EmptyPolls, [fetch(10 + number / 50, max_wait_ms=0) for number in range(400)])
    assert row.subject == "client reader, connection reader-Fetch"
    assert "400 of 400 fetches returned nothing" in row.message
    assert "max_wait_ms is at most 0" in row.message


def test_consumers_that_wait_or_get_something() -> None:
    assert findings_of(EmptyPolls, [fetch(number / 2) for number in range(400)]) == []
    some = batch([Item()])
    assert (
        findings_of(
            EmptyPolls, [fetch(10 + number / 50, data=some if number % 2 else b"") for number in range(400)]
        )
        == []
    )


def test_followers_and_errors_are_no_empty_polls() -> None:
    assert findings_of(EmptyPolls, [fetch(10 + number / 50, replica_id=1) for number in range(400)]) == []
    assert findings_of(EmptyPolls, [fetch(10 + number / 50, error=6) for number in range(400)]) == []
