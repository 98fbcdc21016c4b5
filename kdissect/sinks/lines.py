"""Exchanges -> lines of text, or how many there are, by a writer. Holds what the writer does.

On the fast path, the core writes whole lines, if these depend on nothing but their exchange. If only the
order or number of lines depends on others, it writes what a line says about the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kdissect.sinks.plan import Plan
from kdissect.sinks.sink import ALL, Each, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.model import Exchange
    from kdissect.sinks.plan import Describe, LinePlan, PlanContext
    from kdissect.sinks.sink import Demand, Sink


class Writer(Protocol):
    """Writes exchanges as text."""

    def feed(self, exchange: Exchange) -> None:
        """Write one."""

    def close(self) -> None:
        """Write what is held; more may follow."""


class CoreWriter(Writer, Protocol):
    """Writes exchanges as text that the core can also write."""

    @property
    def core_plan(self) -> Callable[[PlanContext], Any] | None:
        """What the core must know. None: with these settings, it cannot write them."""

    def add(self, lines: bytes) -> None:
        """Write what the core has made."""


class LineWriter(CoreWriter, Protocol):
    """Writes lines of text."""

    @property
    def describe(self) -> Describe:
        """See ``Plan``."""


class Counter(Writer, Protocol):
    """Writes how many exchanges there were."""

    core_plan: Callable[[PlanContext], LinePlan] | None

    def add_answered(self, count: int) -> None:
        """Count answered exchanges without flaws."""


class Lines(Each):
    """Lines of text.

    Args:
        writer: writes exchanges.
        demand: which ones come, and what else is done with them.
        check, skip: see ``Each``.
    """

    def __init__(
        self,
        writer: LineWriter,
        demand: Demand = ALL,
        *,
        check: Callable[[Exchange], object] | None = None,
        skip: Callable[[Exchange], object] = ignore,
    ) -> None:
        super().__init__(writer.feed, writer.close, check=check, skip=skip)
        self._add = writer.add
        needs_bodies = check is not None or demand.has_latency_parts or not demand.is_known
        core_plan = writer.core_plan if check is None and demand.allows_core else None
        describe = None if needs_bodies else writer.describe
        if core_plan is not None or describe is not None:
            self.plan = Plan(core_plan, describe, demand.conditions)

    def take(self, output: bytes, exchanges: int) -> None:
        """Write lines of the core."""
        self.rows += exchanges
        self._add(output)


class Count(Each):
    """How many exchanges there are, by kind and error. The core leaves those that are not just answered.

    Args:
        counter: counts exchanges.
        demand: which ones come, and what else is done with them.
        check, skip: see ``Each``.
    """

    def __init__(
        self,
        counter: Counter,
        demand: Demand = ALL,
        *,
        check: Callable[[Exchange], object] | None = None,
        skip: Callable[[Exchange], object] = ignore,
    ) -> None:
        super().__init__(counter.feed, counter.close, check=check, skip=skip)
        self._add_answered = counter.add_answered
        if check is None and demand.allows_core:
            self.plan = without_flaws(Plan(counter.core_plan, conditions=demand.conditions))

    def take(self, output: bytes, exchanges: int) -> None:  # noqa: ARG002
        """Count exchanges; their lines are not needed."""
        self.rows += exchanges
        self._add_answered(exchanges)


def without_flaws(plan: Plan) -> Plan:
    """The same, but exchanges with errors or anomalies are fed."""
    of_plan = plan.output
    if of_plan is None:
        return plan

    def output(context: PlanContext) -> Any:
        of_all = of_plan(context)
        return of_all._replace(common=of_all.common._replace(leaves_flaws=True))

    return plan._replace(output=output, describe=None)


class Fan(Each):
    """Several sinks that get the same exchanges. The core can make one thing of an exchange; so it can if all
    but one only ``Count``.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        super().__init__(self._feed_all, self._close_all, skip=self._skip_all)
        self._sinks = sinks
        others = [sink for sink in sinks if not isinstance(sink, Count)]
        plan = (others or sinks)[0].plan
        if plan is not None and len(others) <= 1 and all(sink.plan is not None for sink in sinks):
            self.plan = without_flaws(plan) if len(sinks) > 1 else plan

    def _feed_all(self, exchange: Exchange) -> None:
        for sink in self._sinks:
            sink.feed(exchange)

    def _close_all(self) -> None:
        for sink in self._sinks:
            sink.close()

    def _skip_all(self, exchange: Exchange) -> None:
        for sink in self._sinks:
            sink.skip(exchange)

    def take(self, output: bytes, exchanges: int) -> None:
        """See ``Sink``."""
        self.rows += exchanges
        for sink in self._sinks:
            sink.take(output, exchanges)
