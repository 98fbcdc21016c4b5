from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from kdissect.stats.sequences import Runs, Sequence, SequenceRun


def sequence(*batches: tuple[int, int, int]) -> Sequence:
    """Batches as epoch, base sequence, records."""
    result = Sequence()
    for number, (epoch, base, records) in enumerate(batches):
        result.add(epoch, base, records, number, f"c/{number}")
    return result


def test_numbers_one_behind_the_other_have_no_hole() -> None:
    result = sequence((0, 0, 3), (0, 3, 2), (0, 5, 1))
    assert (result.gaps, result.missing, result.duplicates, result.example) == (0, 0, 0, None)
    assert (result.batches, result.records, result.epochs) == (3, 6, 1)


def test_the_first_number_may_be_any() -> None:
    assert sequence((0, 1000, 3), (0, 1003, 2)).missing == 0


def test_a_hole_and_what_is_behind_it() -> None:
    result = sequence((0, 0, 3), (0, 10, 2), (0, 12, 1), (0, 20, 1))
    assert (result.gaps, result.missing, result.duplicates, result.example) == (2, 14, 0, "c/1")


def test_what_is_sent_again_is_no_hole() -> None:
    result = sequence((0, 0, 3), (0, 3, 2), (0, 3, 2), (0, 5, 1))
    assert (result.gaps, result.duplicates) == (0, 2)


def test_a_hole_may_be_filled_later() -> None:
    assert sequence((0, 0, 3), (0, 5, 2), (0, 3, 2)).gaps == 0


def test_each_epoch_counts_from_0() -> None:
    result = sequence((0, 0, 3), (1, 0, 2), (2, 0, 2))
    assert (result.gaps, result.duplicates, result.epochs) == (0, 0, 3)


def test_old_epochs_are_added_up() -> None:
    result = sequence(*((epoch, base, 2) for epoch in range(30) for base in (0, 2, 5, 5)))
    assert (result.epochs, result.gaps, result.missing, result.duplicates) == (30, 30, 30, 60)


def test_behind_the_last_number_comes_0() -> None:
    last = 2**31 - 3
    result = sequence((0, last - 2, 2), (0, last, 5), (0, 2, 4))
    assert (result.gaps, result.missing, result.duplicates) == (0, 0, 0)


def test_errors_are_counted() -> None:
    result = Sequence()
    result.add(0, 0, 1, 5, "c/1", "OUT_OF_ORDER_SEQUENCE_NUMBER")
    result.add(0, 0, 1, 3, "c/2", None)
    assert dict(result.errors) == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
    assert (result.first_ns, result.last_ns) == (3, 5)


def test_of_many_holes_the_smallest_stay_as_they_are() -> None:
    runs = Runs()
    for number in range(1000):
        runs.add(SequenceRun(number * 10, number * 10 + 1, number, "c/1"))
    assert len(runs.runs) <= 64
    assert (runs.gaps, runs.missing, runs.seen) == (999, 9 * 999, 1000)


Batches = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(1, 5)), max_size=40)


@given(Batches, Batches)
def test_merged_parts_equal_one_run(one: list[tuple[int, int, int]], two: list[tuple[int, int, int]]) -> None:
    merged, everything = sequence(*one), sequence(*one, *two)
    merged.merge(pickle.loads(pickle.dumps(sequence(*two))))
    for name in ("gaps", "missing", "duplicates", "batches", "records", "epochs"):
        assert getattr(merged, name) == getattr(everything, name)


@given(Batches)
def test_holes_are_what_sets_of_numbers_say(batches: list[tuple[int, int, int]]) -> None:
    seen: dict[int, set[int]] = {}
    for epoch, base, records in batches:
        seen.setdefault(epoch, set()).update(range(base, base + records))
    result = sequence(*batches)
    assert result.missing == sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in seen.values())
    assert result.duplicates == sum(each[2] for each in batches) - sum(map(len, seen.values()))
