"""Exchanges -> rows of tables, which are made and kept column by column. Holds what the tables do.

On the fast path, the core adds rows of the tables in ``rows.NATIVE_TABLES``, if all tables are among those
for which it knows what to leave (``rows.are_native``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kdissect.sinks.plan import Plan
from kdissect.sinks.sink import ALL, Each

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.written import WrittenText
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PlanContext, RowPlan
    from kdissect.sinks.sink import Demand

    Guard = Callable[[Callable[..., object]], Callable[..., object]]


class Tables(Protocol):
    """Makes rows and keeps them."""

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """What the core must know to add rows. None: it cannot, to these tables in this format."""

    def feed(self, exchange: Exchange) -> None:
        """Add the rows of a selected exchange."""

    def skip(self, exchange: Exchange) -> None:
        """Add the rows of an exchange that is not selected."""

    def settle(self) -> None:
        """Count what the core has added, and write what is full."""


def _unguarded(write: Callable[..., object]) -> Callable[..., object]:
    return write


class Columns(Each):
    """Rows of tables. What ends them depends on how the reading ended, so it is not done here.

    Args:
        tables: make and keep them.
        demand: which exchanges come, and what else is done with them.
        guard: wraps the functions that write rows.
        release: see ``Plan``.
    """

    is_text = False

    def __init__(
        self,
        tables: Tables,
        demand: Demand = ALL,
        guard: Guard = _unguarded,
        release: Callable[[WrittenText], object] | None = None,
    ) -> None:
        super().__init__(guard(tables.feed), skip=guard(tables.skip))
        self._settle = guard(tables.settle)
        core_plan = tables.core_plan if demand.has_latency_parts and demand.allows_core else None
        if core_plan is not None:
            guarded = None if release is None else guard(release)
            self.plan = Plan(core_plan, conditions=demand.conditions, release=guarded)

    def take(self, output: bytes, exchanges: int) -> None:  # noqa: ARG002  (it is in the columns)
        """Count rows of the core."""
        self.rows += exchanges
        self._settle()
