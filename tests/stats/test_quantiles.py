from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right

import datasketches
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.stats.quantiles import RANK_ERROR, Largest, Quantiles
from tests.exchange_factory import exchange

FRACTIONS = (0.0, 0.5, 0.95, 0.99, 1.0)


def of(numbers: list[int]) -> Quantiles:
    result = Quantiles()
    for number in numbers:
        result.add(number)
    return result


def assert_ranks(result: Quantiles, numbers: list[int], error: float) -> None:
    """The true rank of each value is near the requested one."""
    ordered = sorted(numbers)
    for fraction, answer in zip(FRACTIONS, result.at(FRACTIONS), strict=True):
        assert answer is not None
        low = bisect_left(ordered, answer) / len(ordered)
        high = bisect_right(ordered, answer) / len(ordered)
        assert low - error <= fraction <= high + error


def test_nothing_has_no_quantiles() -> None:
    result = Quantiles()
    assert (result.count, result.total, result.min, result.max) == (0, 0, None, None)
    assert result.at((0.5, 0.99)) == [None, None]


def test_few_are_exact() -> None:
    result = of([5, 1, 4, 2, 3])
    assert result.at((0.0, 0.5, 0.95, 1.0)) == [1, 3, 5, 5]
    assert (result.count, result.total, result.min, result.max) == (5, 15, 1, 5)


@pytest.mark.parametrize("count", [256, 257, 5000, 100_000])
def test_many_are_within_the_stated_error(count: int) -> None:
    numbers = [(number * 7919) % count for number in range(count)]
    # The error holds with 99% of probability: three times of it is as good as sure.
    assert_ranks(of(numbers), numbers, 3 * RANK_ERROR)


def test_the_error_is_what_the_library_says() -> None:
    assert datasketches.kll_doubles_sketch.get_normalized_rank_error(400, False) == pytest.approx(
        RANK_ERROR, abs=1e-4
    )


@given(st.lists(st.lists(st.integers(0, 10**9), max_size=400), min_size=1, max_size=4))
def test_merged_they_count_all(parts: list[list[int]]) -> None:
    result = Quantiles()
    for part in parts:
        result.merge(pickle.loads(pickle.dumps(of(part))))
    numbers = [number for part in parts for number in part]
    assert (result.count, result.total) == (len(numbers), sum(numbers))
    if numbers:
        assert (result.min, result.max) == (min(numbers), max(numbers))
        assert_ranks(result, numbers, 3 * RANK_ERROR)


def test_the_bytes_are_those_of_a_sketch_of_doubles() -> None:
    read = datasketches.kll_doubles_sketch.deserialize(of(list(range(1000))).serialize())
    assert (read.n, read.get_min_value(), read.get_max_value()) == (1000, 0.0, 999.0)


@pytest.mark.parametrize("count", [10, 200, 5000])
def test_a_histogram_has_all_numbers(count: int) -> None:
    numbers = Quantiles()
    for value in range(count):
        numbers.add(value)
    counts = numbers.histogram((1, count // 2, count))
    assert (len(counts), sum(counts)) == (4, count)
    exact = [1, count // 2 - 1, count - count // 2, 0]
    for counted, true in zip(counts, exact, strict=True):
        assert abs(counted - true) <= (0 if count <= 256 else 2 * RANK_ERROR * count)


def test_the_largest_are_kept_and_of_equals_the_earlier() -> None:
    result = Largest(3)
    for time, number in enumerate([5, 9, 5, 1, 7, 5]):
        add(result, number, time, (number, time))
    assert result.all() == [(9, 1), (7, 4), (5, 0)]


@pytest.mark.parametrize("split", range(6))
def test_which_of_equals_come_first_does_not_depend_on_the_process(split: int) -> None:
    one, other = Largest(3), Largest(3)
    for time in (5, 0, 4, 2, 1, 3):
        add(one if time < split else other, 7, time, time)
    one.merge(other)
    assert one.all() == [0, 1, 2]


def add(largest: Largest, number: int, time: int, item: object) -> None:
    """Add an item of an exchange that was completed then."""
    completed = exchange("Heartbeat", 4, {}, {}, time_ns=time)
    completed.completed_ns = time
    largest.add(number, completed, lambda: item)


def test_the_largest_of_two() -> None:
    one, two = Largest(2), Largest(2)
    add(one, 5, 1, "one")
    add(two, 5, 0, "two")
    add(two, 6, 2, "three")
    one.merge(two)
    assert one.all() == ["three", "two"]


@pytest.mark.parametrize("count", [0, 1, 300, 5000])
def test_what_was_serialized_is_read_again(count: int) -> None:
    result = of(list(range(count)))
    again = Quantiles.deserialize(result.serialize(), result.total)
    assert (again.count, again.total, again.min, again.max) == (
        result.count, result.total, result.min, result.max,
    )  # fmt: skip
    assert again.at(FRACTIONS) == result.at(FRACTIONS)
