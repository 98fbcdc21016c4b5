"""The limit on the memory of all connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kdissect.exchanges.kafka_connection import MemoryBudget
from kdissect.limits import Limits

if TYPE_CHECKING:
    from kdissect.exchanges.kafka_connection import KafkaConnection


class Held:
    """Stands for a connection."""

    def __init__(self, held: int) -> None:
        self.held = held


def exceeds(budget: MemoryBudget, *fed: Any, elsewhere: int = 0) -> bool:
    for each in fed:
        budget.note(cast("KafkaConnection", each))
    return budget.is_exceeded(elsewhere)


def test_what_connections_hold_is_added_up() -> None:
    budget = MemoryBudget(Limits(total_held_bytes=100))
    one, other = Held(50), Held(50)
    assert not exceeds(budget, one, other, one)
    assert budget.held == 100
    assert exceeds(budget, elsewhere=1)
    one.held = 51
    assert exceeds(budget, one)
    one.held = 0
    assert not exceeds(budget, one, elsewhere=50)
    assert budget.held == 50


def test_what_is_over_counts_no_more() -> None:
    budget = MemoryBudget(Limits(total_held_bytes=100))
    one, other = Held(90), Held(90)
    assert exceeds(budget, one, other)
    for each in (one, other):
        budget.note(cast("KafkaConnection", each))
        budget.forget(cast("KafkaConnection", each))
    assert not exceeds(budget)
    assert budget.held == 0
