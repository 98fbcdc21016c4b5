from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kdissect.text.style import FORMATS, Times, _moment, iso_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON_NS = 1_790_000_000_123_456_789  # 2026-09-21T14:13:20.123456789Z


@pytest.fixture
def _in_nepal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "<+0545>-05:45")
    time.tzset()
    _moment.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    _moment.cache_clear()


@pytest.mark.usefixtures("_in_nepal")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("u", "14:13:20.123456"),
        ("ud", "2026-09-21T14:13:20.123456Z"),
        ("a", "19:58:20.123456"),
        ("ad", "2026-09-21T19:58:20.123456+05:45"),
        ("e", "1790000000.123456"),
        ("r", "0.000000"),
        ("d", "0.000000"),
        ("dd", "0.000000"),
    ],
)
def test_each_format(name: str, text: str) -> None:
    assert Times(name).text(NOON_NS) == text


def test_every_format_is_described() -> None:
    assert set(FORMATS) == {"a", "ad", "d", "dd", "e", "r", "u", "ud"}


def test_skipped_exchanges_count_for_d_but_not_for_dd() -> None:
    second = 1_000_000_000
    for name, expected in (("d", "1.000000"), ("dd", "3.000000"), ("r", "3.500000")):
        times = Times(name, first_ns=NOON_NS - second // 2)
        times.text(NOON_NS)
        times.skip(NOON_NS + 2 * second)
        assert times.text(NOON_NS + 3 * second) == expected


def test_times_run_backwards_where_exchanges_complete_out_of_order() -> None:
    times = Times("d")
    times.text(NOON_NS)
    assert times.text(NOON_NS - 1_500_000_000) == "-1.500000"


def test_fewer_digits_for_narrow_terminals() -> None:
    assert Times("u", digits=3).text(NOON_NS) == "14:13:20.123"
    assert Times("r", digits=3, first_ns=0).text(1_234_567_890) == "1.234"


@pytest.mark.parametrize("time_ns", [-1, 2**63 * 1000, 253_402_300_800 * 1_000_000_000])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_any_time_can_be_shown(name: str, time_ns: int) -> None:
    assert Times(name).text(time_ns)


def test_timestamps_of_the_wire() -> None:
    assert iso_ms(1_790_000_000_123) == "2026-09-21T14:13:20.123Z"
    assert iso_ms(-1) is None
    assert iso_ms(2**63 - 1) is None


@pytest.mark.parametrize(
    ("name", "heading", "text"),
    [
        ("u", "TIME (UTC)", "14:13:20.123"),
        ("ud", "TIME (UTC)", "2026-09-21T14:13:20.123"),
        ("e", "TIME", "1790000000.123"),
        ("r", " TIME (s)", "    0.000"),
        ("d", "DELTA (s)", "    0.000"),
    ],
)
def test_in_a_column_the_heading_says_the_zone(name: str, heading: str, text: str) -> None:
    times = Times(name, digits=3, in_column=True)
    assert (times.heading, times.text(NOON_NS)) == (heading, text)
