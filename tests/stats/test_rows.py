from __future__ import annotations

import pytest

from kdissect.stats import rows
from kdissect.stats.document import ClientRow, TopicRow
from kdissect.stats.quantiles import Quantiles
from kdissect.stats.record_counts import RecordTotals, Volume
from kdissect.stats.traffic import Client


def test_moment_cuts_to_microseconds() -> None:
    assert rows.moment(1_790_000_000_123_456_789).isoformat() == "2026-09-21T14:13:20.123456+00:00"


def test_spread_of_nothing_is_null() -> None:
    result = rows.spread(Quantiles())
    assert (result.count, result.min, result.mean, result.p50, result.max) == (0, None, None, None, None)


def test_spread() -> None:
    quantiles = Quantiles()
    for number in (1, 2, 4):
        quantiles.add(number)
    result = rows.spread(quantiles)
    assert (result.count, result.min, result.mean, result.p50, result.p99, result.max) == (3, 1, 2.3, 2, 4, 4)


def test_no_rate_without_elapsed_time() -> None:
    assert rows.per_second(5, 2.0) == 2.5
    assert rows.per_second(5, 0.0) is None


def test_hidden_records_are_null() -> None:
    volume = Volume()
    volume.produced.records = 3
    volume.fetched.records = 3
    volume.fetched.uncounted = 1
    result = rows.volume(volume, 1.0)
    assert (result["produced_records"], result["produced_records_per_second"]) == (3, 3.0)
    assert (result["fetched_records"], result["fetched_records_per_second"]) == (None, None)
    assert isinstance(volume.produced, RecordTotals)


def test_omitted_fields_are_taken_from_the_counts() -> None:
    client = Client()
    client.service_us.add(5)
    client.apis.update({"Fetch": 1, "Produce": 2})
    client.addresses.add("192.0.2.1")
    client.connections.add("c0ffee")
    client.last_ns = 1_790_000_000_123_456_789
    result = rows.row_of(ClientRow, client, client="shop", **rows.load(client, 1.0))
    assert (result.client, result.service_us.max, result.request_bytes, result.first) == ("shop", 5, 0, None)
    assert (list(result.apis), result.addresses, result.connections) == (
        ["Produce", "Fetch"],
        ["192.0.2.1"],
        1,
    )
    assert result.last == rows.moment(client.last_ns)


def test_a_field_that_was_not_counted_is_refused() -> None:
    with pytest.raises(AttributeError, match="produced_records"):
        rows.row_of(TopicRow, Volume())
