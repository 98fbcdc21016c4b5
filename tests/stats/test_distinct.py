from __future__ import annotations

import pickle

import pytest

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
