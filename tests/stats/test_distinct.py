from __future__ import annotations

import pickle

import pytest

from kdissect.stats.quantiles import Distinct


def of(*names: str) -> Distinct:
    made = Distinct()
    for name in names:
        made.add(name)
    return made


def test_names_count_once() -> None:
    made = of("b", "a", "b")
    assert len(made) == 2
    assert made.first(5) == ["a", "b"]
    assert made.first(1) == ["a"]


def test_many_are_counted_about() -> None:
    made = of(*(f"client-{number}" for number in range(20_000)))
    assert len(made) == pytest.approx(20_000, rel=0.06)
    assert len(made.first(1000)) == 100


def test_what_was_seen_counts_once_after_many() -> None:
    names = [f"client-{number}" for number in range(300)]
    made = of(*names, *names)
    assert len(made) == pytest.approx(300, rel=0.06)


@pytest.mark.parametrize(("one", "two"), [(50, 40), (90, 90), (500, 20), (20, 500), (500, 600)])
def test_merged(one: int, two: int) -> None:
    made = of(*(f"a{number}" for number in range(one)), "both")
    other = of(*(f"b{number}" for number in range(two)), "both")
    made.merge(pickle.loads(pickle.dumps(other)))
    assert len(made) == pytest.approx(one + two + 1, rel=0.06 if one + two > 99 else 0)
