"""Exchanges -> rows of JSON or CSV, by a writer. Holds what the writer does.

On the fast path, the core writes rows, if all columns are columns of exchanges and not paths into bodies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.sinks.plan import Plan
from kdissect.sinks.sink import ALL, Each, ignore

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Exchange
    from kdissect.sinks.lines import CoreWriter
    from kdissect.sinks.sink import Demand


class Rows(Each):
    """Rows of JSON or CSV.

    Args:
        writer: writes exchanges.
        demand: which ones come, and what else is done with them.
        check, skip: see ``Each``.
    """

    def __init__(
        self,
        writer: CoreWriter,
        demand: Demand = ALL,
        *,
        check: Callable[[Exchange], object] | None = None,
        skip: Callable[[Exchange], object] = ignore,
    ) -> None:
        super().__init__(writer.feed, writer.close, check=check, skip=skip)
        self._add = writer.add
        core_plan = writer.core_plan if check is None and demand.allows_core else None
        self.plan = None if core_plan is None else Plan(core_plan, conditions=demand.conditions)

    def take(self, output: bytes, exchanges: int) -> None:
        """Write rows of the core."""
        self.rows += exchanges
        self._add(output)
