"""The limit on the memory of all connections."""

from __future__ import annotations

from kdissect.exchanges.kafka_connection import MemoryBudget
from kdissect.limits import Limits


class Held:
    """Stands for a dialogue."""

    def __init__(self, held: int) -> None:
        self.held = held


def shed(budget: MemoryBudget, *fed: Held) -> list[Held]:
    """Feed until the budget is checked; return the connections that had to shed."""
    out: list[Held] = []
    for number in range(64):
        if budget.note(fed[number % len(fed)]):  # type: ignore[arg-type]
            for kafka in budget.excess():
                kafka.held = 0  # type: ignore[misc]
                out.append(kafka)  # type: ignore[arg-type]
    return out


def test_within_the_bound_nobody_lets_go() -> None:
    budget = MemoryBudget(Limits(total_held_bytes=100))
    assert shed(budget, Held(50), Held(50)) == []
    assert budget.held == 100


def test_past_it_those_silent_for_longest_let_go_first() -> None:
    budget = MemoryBudget(Limits(total_held_bytes=100))
    first, second, third = Held(40), Held(40), Held(40)
    assert shed(budget, first, second) == []
    assert shed(budget, third) == [first]
    first.held = 30
    assert shed(budget, first) == [second]
    assert budget.held == 70


def test_what_is_over_counts_no_more() -> None:
    budget = MemoryBudget(Limits(total_held_bytes=100))
    one, other = Held(90), Held(90)
    shed(budget, one)
    budget.forget(one)  # type: ignore[arg-type]
    assert shed(budget, other) == []
    assert budget.held == 90


def test_what_cannot_be_let_go_is_needed_once() -> None:
    budget = MemoryBudget(Limits(total_held_bytes=10))
    stubborn = [Held(20), Held(20)]
    for kafka in stubborn:
        budget.note(kafka)  # type: ignore[arg-type]
    assert list(budget.excess()) == stubborn
