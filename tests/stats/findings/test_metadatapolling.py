from __future__ import annotations

from kdissect.stats.findings.clients import MetadataPolling
from tests.findings import findings_of, metadata


def test_a_client_that_keeps_requesting_all_topics() -> None:
    (row,) = findings_of(
        MetadataPolling, [metadata(number / 2, response_size=50_000) for number in range(200)]
    )
    assert row.subject == "client asker"
    assert row.message.startswith("200 Metadata requests")
    assert "200 for all topics; responses average 50,000 bytes" in row.message


def test_many_small_responses_are_reported() -> None:
    (row,) = findings_of(
        MetadataPolling, [metadata(number / 10, topics=[{"name": "orders"}]) for number in range(2000)]
    )
    assert "0 for all topics" in row.message


def test_starting_and_occasional_clients_are_not_reported() -> None:
    assert (
        findings_of(MetadataPolling, [metadata(number / 10, response_size=50_000) for number in range(10)])
        == []
    )
    assert (
        findings_of(MetadataPolling, [metadata(number * 10, response_size=50_000) for number in range(1000)])
        == []
    )
