from __future__ import annotations

import pickle

from kdissect.stats.quantiles import Bounded


class Sum:
    def __init__(self) -> None:
        self.total = 0

    def merge(self, other: Sum) -> None:
        self.total += other.total


def table(most: int = 2, **counted: int) -> Bounded[str, Sum]:
    bounded: Bounded[str, Sum] = Bounded(most, Sum)
    for key, number in counted.items():
        bounded[key].total += number
    return bounded


def totals(of: Bounded[str, Sum]) -> dict[str, int]:
    return {key: each.total for key, each in of.items()}


def test_a_missing_key_gets_a_value() -> None:
    bounded = table(a=3)
    bounded["a"].total += 4
    assert totals(bounded) == {"a": 7}
    assert bounded.other is None


def test_keys_past_the_limit_share_one_value() -> None:
    bounded = table(a=1, b=2, c=3, d=4)
    assert totals(bounded) == {"a": 1, "b": 2}
    assert bounded.other is not None
    assert bounded.other.total == 7


def test_merged_it_is_what_one_table_would_be() -> None:
    bounded = table(a=1)
    bounded.merge(table(a=2, b=3))
    assert totals(bounded) == {"a": 3, "b": 3}
    bounded.merge(table(most=1, c=5, d=6))
    assert totals(bounded) == {"a": 3, "b": 3}
    assert bounded.other is not None
    assert bounded.other.total == 11


def test_it_travels_between_processes() -> None:
    bounded = pickle.loads(pickle.dumps(table(a=1, b=2, c=3)))
    assert totals(bounded) == {"a": 1, "b": 2}
    assert bounded.other.total == 3
    bounded["d"].total += 1
    assert bounded.other.total == 4
