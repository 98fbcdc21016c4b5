from __future__ import annotations

import pickle
from collections import Counter
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import core
from kdissect.stats.quantiles import EXACT, Largest, Quantiles, bucket_of, middle_of
from tests.exchange_factory import exchange

FRACTIONS = (0.0, 0.001, 0.25, 0.5, 0.95, 0.99, 1.0)
numbers_of_any_size = st.integers(0, 63).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))


@st.composite
def many_numbers(draw: st.DrawFn) -> list[int]:
    """Up to a few times as many numbers as are kept, of any size."""
    count, bits = draw(st.integers(0, 3 * EXACT)), draw(st.integers(1, 63))
    random = draw(st.randoms(use_true_random=False))
    return [random.getrandbits(random.randint(1, bits)) for _ in range(count)]


def of(numbers: list[int]) -> Quantiles:
    result = Quantiles()
    for number in numbers:
        result.add(number)
    return result


def everything(one: Quantiles) -> object:
    """All that a distribution says."""
    return (
        *(one.count, one.total, one.min, one.max, one.at(FRACTIONS), one.buckets()),
        one.histogram((0, 1, 100, 1000, 10**6, 10**12)),
    )


def merged(*parts: Quantiles) -> Quantiles:
    result = Quantiles()
    for part in parts:
        result.merge(pickle.loads(pickle.dumps(part)))
    return result


def test_nothing_has_no_quantiles() -> None:
    assert everything(Quantiles()) == (0, 0, None, None, [None] * 7, {}, [0] * 7)


def test_few_are_exact() -> None:
    result = of([5, 1, 4, 2, 3])
    assert result.at((0.0, 0.5, 0.95, 1.0)) == [1, 3, 5, 5]
    assert (result.count, result.total, result.min, result.max) == (5, 15, 1, 5)


def test_of_one_more_than_are_exact_there_are_buckets() -> None:
    numbers = [1000 + number for number in range(EXACT + 1)]
    assert of(numbers[:-1]).at((0.3,)) == [1076]
    assert of(numbers).at((0.3,)) == [1080]  # the middle of 1072 to 1087
    assert of([7000] * 300).at((0.5, 1.0)) == [7000, 7000]  # not the middle: nothing is below the minimum


@given(numbers_of_any_size)
def test_a_bucket_has_numbers_within_a_percent(number: int) -> None:
    bucket = bucket_of(number)
    middle = middle_of(bucket)
    assert 0 <= bucket < (64 - 6) * 64
    assert bucket_of(middle) == bucket
    assert abs(middle - number) * 128 <= number
    assert bucket_of(number + 1) - bucket in (0, 1)


def test_there_is_no_bucket_between_two() -> None:
    assert [bucket_of(number) for number in range(128)] == list(range(128))
    assert [bucket_of(middle_of(bucket)) for bucket in range(3712)] == list(range(3712))
    assert bucket_of((1 << 63) - 1) == 3711


@given(many_numbers())
def test_quantiles_are_near_the_number_of_their_rank(numbers: list[int]) -> None:
    result, ordered = of(numbers), sorted(numbers)
    assert (result.count, result.total) == (len(numbers), sum(numbers))
    assert result.buckets() == Counter(map(bucket_of, numbers))
    for fraction, answer in zip(FRACTIONS, result.at(FRACTIONS), strict=True):
        if not numbers:
            assert answer is None
            continue
        number = ordered[max(1, ceil(fraction * len(ordered))) - 1]
        assert answer is not None
        assert abs(answer - number) * 128 <= (0 if len(numbers) <= EXACT else number)
        assert ordered[0] <= answer <= ordered[-1]


@given(many_numbers(), st.data())
def test_order_and_division_change_nothing(numbers: list[int], data: st.DataObject) -> None:
    expected = everything(of(numbers))
    shuffled = list(numbers)
    data.draw(st.randoms(use_true_random=False)).shuffle(shuffled)
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, len(numbers))] * 2)))
    one, two, three = of(shuffled[:first]), of(shuffled[first:second]), of(shuffled[second:])
    assert everything(of(shuffled)) == expected
    assert everything(merged(one, two, three)) == expected
    assert everything(merged(three, two, one)) == expected
    assert everything(merged(one, merged(two, three))) == expected
    assert everything(merged(merged(one, two), three)) == expected


@given(many_numbers(), many_numbers())
def test_what_is_merged_stays_as_it_is(numbers: list[int], more: list[int]) -> None:
    one, other = of(numbers), of(more)
    one.merge(other)
    one.merge(of(more))
    one.add(1)
    assert everything(other) == everything(of(more))


@pytest.mark.core
@pytest.mark.skipif(not core.is_used, reason="installed without the native core")
@given(many_numbers(), st.sampled_from([(), (-1,), (-(1 << 63), (1 << 63) - 1)]))
def test_the_core_counts_the_same(numbers: list[int], more: tuple[int, ...]) -> None:
    counted = Quantiles.of(*core.native.quantiles([*numbers, *more]))
    assert everything(counted) == everything(of([*numbers, *more]))
    counted.merge(of(numbers))
    assert everything(counted) == everything(of([*numbers, *more, *numbers]))


def test_durations_of_a_clock_that_was_set_back_are_nothing() -> None:
    assert everything(of([-5, 3])) == everything(of([0, 3]))


@pytest.mark.parametrize("count", [10, 200, 5000])
def test_a_histogram_has_all_numbers(count: int) -> None:
    numbers = list(range(count))
    Random(count).shuffle(numbers)
    counts = of(numbers).histogram((1, count // 2, count))
    assert (len(counts), sum(counts)) == (4, count)
    exact = [1, count // 2 - 1, count - count // 2, 0]
    for counted, true in zip(counts, exact, strict=True):
        assert abs(counted - true) <= (0 if count <= EXACT else count // 128)


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
