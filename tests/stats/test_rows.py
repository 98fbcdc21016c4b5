from __future__ import annotations

from kdissect.stats import rows
from kdissect.stats.quantiles import Quantiles
from kdissect.stats.record_counts import Carried, Volume


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
    assert isinstance(volume.produced, Carried)
