from __future__ import annotations

from collections import Counter
from typing import Any

from kdissect.stats.pulse import SLICE_NS, SLICES, WINDOW_S, Sliding, span_s

START_NS = 1_790_000_000 * SLICE_NS


class Count:
    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def merge(self, other: Any) -> None:
        self.of += other.of


def counted(*at: float) -> Sliding[Count]:
    window = Sliding(Count)
    for seconds in at:
        window.at(START_NS + round(seconds * SLICE_NS)).of["x"] += 1
    return window


def total(window: Sliding[Count], at: float) -> int:
    return window.sum(START_NS + round(at * SLICE_NS)).of["x"]


def test_what_is_in_the_window_counts_and_nothing_else() -> None:
    window = counted(0, 0.5, 3, 9.9)
    assert [total(window, at) for at in (9.9, 10, 12.9, 13, 18.9, 19, 1000)] == [4, 2, 2, 1, 1, 0, 0]


def test_what_is_silent_comes_back() -> None:
    window = counted(0, 500, 500.1)
    assert total(window, 505) == 2


def test_a_clock_that_is_set_back_begins_anew() -> None:
    window = counted(100, 101, 3)
    assert total(window, 3) == 1
    assert total(window, 101) == 0


def test_no_more_slices_than_the_window_has_are_held() -> None:
    window = counted(*range(1000))
    assert len(window._slices) == SLICES == WINDOW_S
    assert total(window, 999) == SLICES


def test_a_sum_is_a_value_of_its_own() -> None:
    window = counted(0)
    window.sum(START_NS).of["x"] += 100
    assert total(window, 0) == 1


def test_windows_add_up() -> None:
    window = counted(0, 1)
    window.merge(counted(1, 2))
    assert [total(window, at) for at in (2, 10, 11)] == [4, 3, 1]


def test_rates_cover_the_elapsed_time() -> None:
    assert span_s(START_NS, START_NS) == 1
    assert span_s(START_NS + 4 * SLICE_NS, START_NS) == 4
    assert span_s(START_NS + 100 * SLICE_NS, START_NS) == 9
    assert span_s(START_NS + 100 * SLICE_NS + SLICE_NS // 2, START_NS) == 9.5
