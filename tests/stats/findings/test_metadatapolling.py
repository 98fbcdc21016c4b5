from __future__ import annotations

from kdissect.stats.findings.brokers import MetadataPolling
from tests.findings import findings_of, metadata


def test_a_client_that_asks_for_everything_all_the_time() -> None:
    (row,) = findings_of(
        MetadataPolling, [metadata(number / 2, response_size=50_000) for number in range(200)]
    )
    assert row.about == "client asker"
    assert row.sentence.startswith("200 Metadata requests")
    assert "200 for all topics; responses average 50,000 bytes" in row.sentence


def test_small_answers_matter_when_they_are_many() -> None:
    (row,) = findings_of(
        MetadataPolling, [metadata(number / 10, topics=[{"name": "orders"}]) for number in range(2000)]
    )
    assert "0 for all topics" in row.sentence


def test_a_client_that_starts_and_one_that_asks_now_and_then() -> None:
    assert (
        findings_of(MetadataPolling, [metadata(number / 10, response_size=50_000) for number in range(10)])
        == []
    )
    assert (
        findings_of(MetadataPolling, [metadata(number * 10, response_size=50_000) for number in range(1000)])
        == []
    )
