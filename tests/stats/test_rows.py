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
    made = rows.spread(Quantiles())
    assert (made.count, made.min, made.mean, made.p50, made.max) == (0, None, None, None, None)


def test_spread() -> None:
    quantiles = Quantiles()
    for number in (1, 2, 4):
        quantiles.add(number)
    made = rows.spread(quantiles)
    assert (made.count, made.min, made.mean, made.p50, made.p99, made.max) == (3, 1, 2.3, 2, 4, 4)


def test_a_rate_needs_time() -> None:
    assert rows.per_second(5, 2.0) == 2.5
    assert rows.per_second(5, 0.0) is None


def test_hidden_records_are_null() -> None:
    volume = Volume()
    volume.produced.records = 3
    volume.fetched.records = 3
    volume.fetched.hidden = 1
    made = rows.volume(volume, 1.0)
    assert (made["produced_records"], made["produced_records_per_second"]) == (3, 3.0)
    assert (made["fetched_records"], made["fetched_records_per_second"]) == (None, None)
    assert isinstance(volume.produced, RecordTotals)


def test_fields_that_are_not_given_are_what_was_counted() -> None:
    client = Client()
    client.latency_us.add(5)
    client.apis.update({"Fetch": 1, "Produce": 2})
    client.addresses.add("192.0.2.1")
    client.connections.add("c0ffee")
    client.last_ns = 1_790_000_000_123_456_789
    made = rows.row_of(ClientRow, client, client="shop", **rows.load(client, 1.0))
    assert (made.client, made.latency_us.max, made.request_bytes, made.first) == ("shop", 5, 0, None)
    assert (list(made.apis), made.addresses, made.connections) == (["Produce", "Fetch"], ["192.0.2.1"], 1)
    assert made.last == rows.moment(client.last_ns)


def test_a_field_that_was_not_counted_is_refused() -> None:
    with pytest.raises(AttributeError, match="produced_records"):
        rows.row_of(TopicRow, Volume())
