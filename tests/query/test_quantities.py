from __future__ import annotations

import re

import pytest

from kdissect.errors import UsageError
from kdissect.limits import SECOND_NS
from kdissect.query.filters import DAY_NS, Moment, parse_duration, parse_moment, parse_size


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("50ms", 50_000_000),
        ("1.5s", 1_500_000_000),
        ("0.1us", 100),
        ("7 µs", 7000),
        ("100ns", 100),
        ("2m", 120 * SECOND_NS),
        ("2min", 120 * SECOND_NS),
        (" 1 H ", 3600 * SECOND_NS),
        ("1d", DAY_NS),
        ("0s", 0),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "50", "ms", "-5ms", "5 parsecs", "1e3s", "5ms5", "1.s", "9" * 30 + "s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f'invalid duration "{text}": use a number and a unit: 50ms')
    ):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("5b", 5),
        ("1MB", 1_000_000),
        ("1mb", 1_000_000),
        ("1MiB", 1 << 20),
        ("64k", 64_000),
        ("64Ki", 65_536),
        ("1.5 GB", 1_500_000_000),
        ("2TiB", 2 << 40),
        ("0.5KB", 500),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 megabyte", "1ib", "1XB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f'invalid size "{text}": use 1000')):
        parse_size(text)


NINE = 1_795_251_900  # 2026-11-21T09:05:00Z


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-11-21T09:05:00Z", NINE * SECOND_NS),
        ("2026-11-21T09:05:00", NINE * SECOND_NS),
        ("2026-11-21 09:05", NINE * SECOND_NS),
        ("2026-11-21T09:05:00.5Z", NINE * SECOND_NS + 500_000_000),
        ("2026-11-21T09:05:00.123456789Z", NINE * SECOND_NS + 123_456_789),
        ("2026-11-21T09:05:00,5Z", NINE * SECOND_NS + 500_000_000),
        ("2026-11-21T10:05:00+01:00", NINE * SECOND_NS),
        ("2026-11-21T03:35:00-0530", NINE * SECOND_NS),
        ("2026-11-21", (NINE - 9 * 3600 - 300) * SECOND_NS),
        (str(NINE), NINE * SECOND_NS),
        (f"@{NINE}.25", NINE * SECOND_NS + 250_000_000),
    ],
)
def test_moments(text: str, ns: int) -> None:
    assert parse_moment(text) == Moment(ns, dated=True)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("09:05", 32_700 * SECOND_NS),
        ("9:05:01.5", 32_701 * SECOND_NS + 500_000_000),
        ("00:30+01:00", -1800 * SECOND_NS),
        ("23:30-01:00", 88_200 * SECOND_NS),
    ],
)
def test_moments_of_a_day(text: str, ns: int) -> None:
    assert parse_moment(text) == Moment(ns, dated=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("yesterday", "use 2026-11-21T09:05:00Z"),
        ("", ": use "),
        ("12345", ": use "),
        ("2026-11-21T", ": use "),
        ("2026-02-30", "day is out of range for month"),
        ("25:00", "hour must be in 0..23"),
        ("09:60", "minute must be in 0..59"),
        ("2026-11-21T09:05:00+99:00", "offset"),
        ("0000-01-01", "does not match|out of range"),
    ],
)
def test_no_moments(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_moment(text)
