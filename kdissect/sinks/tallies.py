"""Exchanges -> counts, by a counter. Holds what that does.

On the fast path, the core counts exchanges without errors or other flaws, of the APIs in ``tally_plan``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kdissect.sinks.plan import Plan
from kdissect.sinks.sink import ALL, Each

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PartitionTest, PlanContext, TallyPlan
    from kdissect.sinks.sink import Demand


class ConnectionTotals(Protocol):
    """Counts the exchanges of connections: a ``ConnectionFeed``."""

    def exchange(self, exchange: Exchange, *, is_selected: bool = True) -> None:
        """Count one."""

    def close(self) -> Any:
        """Count the connections that are still open."""

    def merge(self, other: Any) -> None:
        """Add what was counted of other connections."""


class Counts(Protocol):
    """Counts what is in exchanges."""

    def core_plan(self, context: PlanContext, log: Any, is_partition: PartitionTest | None) -> TallyPlan:
        """What the core must know to count exchanges, of which the ``log`` counts the connections."""

    def feed(self, exchange: Exchange, is_partition: PartitionTest | None) -> None:
        """Count one, and of its partitions those that are selected; None: all."""

    def settle(self) -> None:
        """Count what waits."""

    def merge(self, other: Any) -> None:
        """Add what was counted elsewhere."""


Counted = TypeVar("Counted", bound=Counts)
Connected = TypeVar("Connected", bound=ConnectionTotals)


class Tallies(Each, Generic[Counted, Connected]):
    """Counts of exchanges and connections.

    Args:
        counts: of selected exchanges.
        connections: of all exchanges.
        demand: which ones come, and what else is done with them.
        is_partition: which partitions of selected exchanges are counted; None: all.

    Attributes:
        counts, connections: see above.
    """

    is_text = False

    def __init__(
        self,
        counts: Counted,
        connections: Connected,
        demand: Demand = ALL,
        is_partition: PartitionTest | None = None,
    ) -> None:
        super().__init__(self._count, self._settle, skip=partial(connections.exchange, is_selected=False))
        self.counts = counts
        self._is_partition = is_partition
        self.connections = connections
        if demand.allows_core and demand.has_latency_parts:
            plan = partial(counts.core_plan, log=connections, is_partition=is_partition)
            self.plan = Plan(plan, conditions=demand.conditions)

    def _count(self, exchange: Exchange) -> None:
        self.counts.feed(exchange, self._is_partition)
        self.connections.exchange(exchange)

    def _settle(self) -> None:
        self.connections.close()
        self.counts.settle()

    def take(self, output: bytes, exchanges: int) -> None:  # noqa: ARG002  (the core has passed on the counts)
        """Count rows of the core."""
        self.rows += exchanges

    def part(self) -> Any:
        """All counts."""
        return self.counts, self.connections

    def merge(self, part: Any) -> None:
        """Add counts."""
        counts, connections = part
        self.counts.merge(counts)
        self.connections.merge(connections)
