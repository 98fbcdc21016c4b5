from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.stats.quantiles import Distinct


def of(*names: str) -> Distinct:
    distinct = Distinct()
    for name in names:
        distinct.add(name)
    return distinct


def test_names_count_once() -> None:
    names = of("b", "a", "b")
    assert len(names) == 2
    assert names.first(5) == ["a", "b"]
    assert names.first(1) == ["a"]


def test_many_are_counted_about() -> None:
    names = of(*(f"client-{number}" for number in range(20_000)))
    assert len(names) == pytest.approx(20_000, rel=0.06)
    assert len(names.first(1000)) == 100


def test_what_was_seen_counts_once_after_many() -> None:
    names = [f"client-{number}" for number in range(300)]
    names = of(*names, *names)
    assert len(names) == pytest.approx(300, rel=0.06)


@pytest.mark.parametrize(("one", "two"), [(50, 40), (90, 90), (500, 20), (20, 500), (500, 600)])
def test_merged(one: int, two: int) -> None:
    names = of(*(f"a{number}" for number in range(one)), "both")
    other = of(*(f"b{number}" for number in range(two)), "both")
    names.merge(pickle.loads(pickle.dumps(other)))
    assert len(names) == pytest.approx(one + two + 1, rel=0.06 if one + two > 99 else 0)


@given(
    st.lists(st.text("ab\u00e9\ud800", max_size=6) | st.text("ab", min_size=300, max_size=400), max_size=60),
    st.integers(0, 200),
    st.randoms(use_true_random=False),
)
def test_order_and_division_change_nothing(names: list[str], more: int, random: object) -> None:
    names += [f"name-{number}" for number in range(more)]
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    half = len(names) // 2
    one, other = of(*shuffled[:half]), of(*shuffled[half:])
    one.merge(pickle.loads(pickle.dumps(other)))
    other.merge(of(*shuffled[:half]))
    expected = of(*names)
    for each in (one, other, of(*shuffled)):
        assert (len(each), each.first(1000)) == (len(expected), expected.first(1000))
    assert expected.first(1000) == sorted(set(names))[: len(expected.first(1000))]


@pytest.mark.parametrize("count", [101, 1000, 4096, 12_000, 50_000])
def test_the_estimate_is_near_for_any_number(count: int) -> None:
    """Four standard errors: names and their hashes are always the same."""
    assert len(of(*(str(number) for number in range(count)))) == pytest.approx(count, rel=4 * 0.0163)
