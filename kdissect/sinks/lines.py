"""Exchanges -> lines of text, or how many there are, by a writer. Holds what the writer does.

On the fast path, the core writes whole lines, if these depend on nothing but their exchange. If only the
order or number of lines depends on others, it writes what a line says about the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kdissect.sinks.sink import ALL, Each, Plan, ignore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.model import Exchange
    from kdissect.sinks.sink import CommonForm, Demand, Describe, PlanContext, Sink


class LineForm(NamedTuple):
    """What the core must know to write lines of text.

    Attributes:
        facts: of all forms.
        digits: after the decimal point of a time.
        gap: between columns.
        width: of the latency.
        client: from a client ID to its cell.
        follow: takes a connection and the arguments of ``GroupProtocols.follow``, and returns what that does.
        rejected: from the version of an ApiVersions request that a broker does not support, and the frames of
            both messages, to what stands after the latency. It depends on nothing else.
        unacknowledged: what stands for the latency of unacknowledged requests.
        followed: what stands after the errors if bytes follow a body.
        ends: width of both ends. None: ``shared`` writes them.
    """

    facts: CommonForm
    digits: int
    gap: str
    width: int
    client: Callable[[str], str]
    follow: Callable[..., bool]
    rejected: Callable[[int, bytes, bytes], str]
    unacknowledged: str
    followed: str
    ends: int | None


class Writer(Protocol):
    """Writes exchanges as text."""

    def feed(self, exchange: Exchange) -> None:
        """Write one."""

    def close(self) -> None:
        """Write what is held; more may follow."""


class CoreWriter(Writer, Protocol):
    """Writes exchanges as text that the core can also write."""

    @property
    def form(self) -> Callable[[PlanContext], Any] | None:
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

    form: Callable[[PlanContext], LineForm] | None

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
        needs_bodies = check is not None or demand.has_latency_parts or not demand.selects_all
        form = writer.form if check is None and demand.allows_core else None
        describe = None if needs_bodies else writer.describe
        if form is not None or describe is not None:
            self.plan = Plan(form, describe)

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
            self.plan = without_flaws(Plan(counter.form))

    def take(self, output: bytes, exchanges: int) -> None:  # noqa: ARG002
        """Count exchanges; their lines are not needed."""
        self.rows += exchanges
        self._add_answered(exchanges)


def without_flaws(plan: Plan) -> Plan:
    """The same, but exchanges with errors or anomalies are fed."""
    of_plan = plan.form
    if of_plan is None:
        return plan

    def form(context: PlanContext) -> Any:
        of_all = of_plan(context)
        return of_all._replace(facts=of_all.facts._replace(leaves_flaws=True))

    return Plan(form)


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
