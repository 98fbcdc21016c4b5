"""What all sinks have in common: the protocol between the pipeline and its output. Holds nothing.

Dissection.into(sink)     exchanges, in order -> sink.feed
                          what the core made by sink.plan, in its turn -> sink.take
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from kdissect import core

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.latency import Splitters
    from kdissect.kafka.internal.payloads import GroupProtocols
    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Exchange
    from kdissect.options import Options

    Identity = tuple[str | None, str | None, str | None, str | None]


class TopicIdNames(Protocol):
    """Names of topic IDs."""

    def name(self, topic_id: str, completed_ns: int) -> str | None:
        """The name in an exchange that was completed then; None if it is not known."""

    def learn(self, topic_id: str, name: str) -> None:
        """Keep a name. An exception: Python must take the exchange that reveals it."""


class PlanContext(NamedTuple):
    """What an output depends on besides its exchanges.

    Attributes:
        names: of topics.
        limits: to respect.
        protocols: of groups.
        splitters: of latencies.
    """

    names: TopicIdNames
    limits: Limits
    protocols: GroupProtocols
    splitters: Splitters


class CommonForm(NamedTuple):
    """What the core must know to finish exchanges in any way. It reads the attributes by name.

    Attributes:
        shared: from what the exchanges of a connection share, and software name and version, principal and
            SASL mechanism of its client, to the texts that they share, in a table the values.
        api: from API key and version to the core's ``Line`` or ``Row``, the bytes expected after the
            correlation ID of a response, and the texts that such exchanges share. None: they are left to
            Python.
        error: from an error code to its name.
        topic_name: from a topic ID, and when an exchange was completed, to its name; None if it is not known.
        learn_name: takes the ID of a topic and its name.
        around: from a second since 1970 to the texts before and after the decimal point and its digits.
        budget: memory for the bodies of an exchange.
        leaves_flaws: whether exchanges with errors in the response, or anomalies, are left to Python.
    """

    shared: Callable[[ConnectionInfo, Identity], list[Any]]
    api: Callable[[int, int], tuple[Any, bytes, list[Any]] | None]
    error: Callable[[int], str]
    topic_name: Callable[[str, int], str | None]
    learn_name: Callable[[str, str], None]
    around: Callable[[int], tuple[str, str]]
    budget: int
    leaves_flaws: bool = False


class ConnectionForm(NamedTuple):
    """What the core must know to count exchanges by connection.

    Attributes:
        take: takes some exchanges of a connection: what they share; the interface of the first; software
            name and version, principal and SASL mechanism of the client; the first client ID; their number;
            bytes of requests and responses; start of the first and end of the last; begin and end of the
            latency of the last one whose API is not among ``waiting``; keys of the APIs that are. It is
            called before the sink takes what was made of them.
        waiting: keys of APIs.
    """

    take: Callable[..., None]
    waiting: list[int]


Describe: TypeAlias = "Callable[[Exchange, PlanContext], bool]"
"""Sets ``text`` and ``errors`` of an exchange that is not decoded, unless something in it is unusual. Returns
whether it did."""


class Plan(NamedTuple):
    """What the core does for a sink, settled before the first packet. The exchanges that it leaves are fed.

    Attributes:
        form: from the context to what the core must know to finish exchanges: a ``LineForm``, ``RowForm`` or
            ``TallyForm``. None: it finishes none.
        describe: describes exchanges that are fed. None: all of them are decoded.
    """

    form: Callable[[PlanContext], Any] | None = None
    describe: Describe | None = None


class Demand(NamedTuple):
    """Which exchanges a sink gets, and what else is done with each: with the sink's own settings, this
    decides what its plan is.

    Attributes:
        selects_all: whether all exchanges are selected, each as soon as it is complete.
        has_latency_parts: whether they have the parts of their latency.
        one_by_one: whether each is needed before the next one: to check it, to stop after a number of rows,
            to flush its row, or to sort it by request.
    """

    selects_all: bool = True
    has_latency_parts: bool = True
    one_by_one: bool = False

    @classmethod
    def of(cls, options: Options, *, one_by_one: bool = False) -> Demand:
        """What the options of a dissection ask for."""
        selects_all = not (options.is_filtered or options.exchanges or options.end_to_end)
        return cls(selects_all, one_by_one=one_by_one)

    @property
    def allows_core(self) -> bool:
        """Whether the core may finish exchanges, as far as the sink can use what it makes."""
        return self.selects_all and not self.one_by_one and core.is_used


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
        """Take what the core made of some exchanges, in its turn: the text of their lines or rows. Columns
        and tallies have no text, and their form has taken them.
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
