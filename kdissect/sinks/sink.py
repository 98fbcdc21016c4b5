"""What all sinks have in common: the protocol between the pipeline and its output. Holds nothing.

Dissection.into(sink)     exchanges, in order -> sink.feed
                          what the core made by sink.plan, in its turn -> sink.take
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kdissect import core

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Exchange
    from kdissect.options import Options
    from kdissect.sinks.plan import Conditions, Plan, PlanContext


class Criteria(Protocol):
    """Decides which exchanges are selected: a ``Filter``."""

    @property
    def is_empty(self) -> bool:
        """Whether all are."""

    @property
    def is_simple(self) -> bool:
        """Whether that depends on no more in the bodies than errors."""

    @property
    def is_decidable(self) -> bool:
        """Whether the core can decide it for any."""

    def conditions(self, context: PlanContext) -> Conditions:
        """The same for the core, once the first packet is known."""


class Demand(NamedTuple):
    """Which exchanges a sink gets, and what else is done with each: with the sink's own settings, this
    decides what its plan is.

    Attributes:
        selects_all: whether all exchanges are selected, each as soon as it is complete.
        has_latency_parts: whether they have the parts of their latency.
        one_by_one: whether each is needed before the next one: to check it, to flush its row, or to sort it
            by request.
        is_known: whether it is known which exchanges are selected before their bodies are decoded.
        conditions: from the context of a plan to which are selected, once the first packet is known, if the
            core can decide that for any. None: all are, or it cannot.
    """

    selects_all: bool = True
    has_latency_parts: bool = True
    one_by_one: bool = False
    is_known: bool = True
    conditions: Callable[[PlanContext], Conditions] | None = None

    @classmethod
    def of(
        cls,
        options: Options,
        criteria: Criteria | None = None,
        *,
        has_latency_parts: bool = True,
        one_by_one: bool = False,
    ) -> Demand:
        """What the options of a dissection ask for. ``criteria``: those of the options, if the core may
        decide which exchanges match.
        """
        is_decided_here = bool(options.exchanges or options.end_to_end)
        is_empty = not options.is_filtered if criteria is None else criteria.is_empty
        selects_all = is_empty and not is_decided_here
        decided = None if selects_all or is_decided_here else criteria
        return cls(
            selects_all,
            has_latency_parts,
            one_by_one,
            selects_all or (decided is not None and decided.is_simple),
            decided.conditions if decided is not None and decided.is_decidable else None,
        )

    @property
    def allows_core(self) -> bool:
        """Whether the core may finish exchanges, as far as the sink can use what it makes."""
        return (self.selects_all or self.conditions is not None) and not self.one_by_one and core.is_used


ALL = Demand()
"""Every exchange, without exception."""


class Sink(Protocol):
    """Takes the exchanges of a dissection, or what the core made of them, and makes one kind of output."""

    @property
    def plan(self) -> Plan | None:
        """What the core does for this sink. None: nothing, every exchange is fed."""

    @property
    def rows(self) -> int:
        """Rows so far, of selected exchanges."""

    def feed(self, exchange: Exchange) -> None:
        """Take a selected exchange."""

    def skip(self, exchange: Exchange) -> None:
        """Take an exchange that is not selected."""

    def take(self, output: bytes, exchanges: int) -> None:
        """Take what the core made of some selected exchanges, in its turn: the text of their lines or rows.
        Columns and tallies have no text: the core has passed them on.
        """

    def close(self) -> None:
        """Finish what is held."""

    def part(self) -> Any:
        """At the end: what another process needs of this sink besides the text that it has written."""

    def merge(self, part: Any) -> None:
        """Take the part of a sink with the same settings that got other connections."""


def ignore(_: Exchange) -> None:
    """Do nothing: no output depends on this exchange."""


def _checked(
    check: Callable[[Exchange], object], feed: Callable[[Exchange], object], exchange: Exchange
) -> None:
    check(exchange)
    feed(exchange)


class Each:
    """A sink of which the core can do nothing: trees, fields, stories. All others begin with it.

    Args:
        feed: takes selected exchanges.
        close: finishes what is held.
        check: called before an exchange is fed.
        skip: takes the exchanges that are not selected.
        divide: prepares for rows that several processes write; returns how many bytes separate a row from the
            one before it.

    Attributes:
        is_text: whether all that it makes is text, in order of the exchanges.
        divide: see above.
        after_row: called when a row was written, by sinks that may write several for an exchange.
    """

    is_text = True
    plan: Plan | None = None
    after_row: Callable[[], object] | None = None

    def __init__(
        self,
        feed: Callable[[Exchange], object],
        close: Callable[[], object] = int,
        *,
        check: Callable[[Exchange], object] | None = None,
        skip: Callable[[Exchange], object] = ignore,
        divide: Callable[[], int] = int,
    ) -> None:
        self._feed = feed if check is None else partial(_checked, check, feed)
        self._close = close
        self.divide = divide
        self._skip = skip
        self.rows = 0

    def feed(self, exchange: Exchange) -> None:
        """Take a selected exchange: a row."""
        self.rows += 1
        self._feed(exchange)

    def skip(self, exchange: Exchange) -> None:
        """See ``Sink``."""
        self._skip(exchange)

    def take(self, output: bytes, exchanges: int) -> None:
        """Nothing is planned."""
        raise NotImplementedError

    def close(self) -> None:
        """See ``Sink``."""
        self._close()

    def part(self) -> Any:
        """Nothing but what was written."""

    def merge(self, part: Any) -> None:
        """Do nothing."""
