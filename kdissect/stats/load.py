"""Facts -> counts of exchanges: of a row of a table; and of exchanges that are alike."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.model import ABANDONED, ANSWERED, INCOMPLETE, INCOMPLETE_REQUEST, PENDING, UNANSWERED
from kdissect.names import entries
from kdissect.stats.quantiles import Quantiles
from kdissect.stats.sums import Summed, earlier, earliest, later, latest, merged, own, summed, total

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, ConnectionKey
    from kdissect.stats.facts import Facts
    from kdissect.stats.usual import Usual


# ------------------------------------------------------------------------------------------------------------
# Facts of exchanges -> their number, sizes, latencies and errors. Holds one row of counts.
# ------------------------------------------------------------------------------------------------------------


@summed
class Load(Summed):
    """The counts of one row: of an API, a client, a broker ...

    Attributes:
        kinds: exchanges by kind.
        no_answer: requests that the broker did not answer; ``abandoned``: those to which no response was due;
            ``pending``: those that were still waiting when the capture ended (outcomes.py).
        incomplete_responses, incomplete_requests: exchanges with a message that did not end; ``broken_off``:
            those of them whose connection ended.
        request_bytes, response_bytes: sizes of frames, including their length bytes.
        service_us: of answered exchanges whose service time is known.
        wait_us: of those for which the broker waited on purpose.
        undetermined: number of the other answered exchanges.
        total_us: what clients waited at least, of exchanges for which that is known.
        failed: exchanges with an error in the response that is not expected; ``expected``: those with
            expected errors only (exchanges/expected.py).
        throttled: exchanges with a throttle time in the response; ``throttle_ms`` is their sum.
        first_ns, last_ns: times of the first and last of them.
    """

    kinds: Counter[str] = total(Counter)
    no_answer: int = total()
    abandoned: int = total()
    pending: int = total()
    incomplete_responses: int = total()
    incomplete_requests: int = total()
    broken_off: int = total()
    request_bytes: int = total()
    response_bytes: int = total()
    service_us: Quantiles = merged(Quantiles)
    wait_us: Quantiles = merged(Quantiles)
    undetermined: int = total()
    total_us: Quantiles = merged(Quantiles)
    failed: int = total()
    expected: int = total()
    throttled: int = total()
    throttle_ms: int = total()
    first_ns: int | None = earliest()
    last_ns: int | None = latest()

    @property
    def exchanges(self) -> int:
        """Number of exchanges."""
        return self.kinds.total()

    @property
    def unclear(self) -> int:
        """Number of requests whose response may not have been captured."""
        known = self.no_answer + self.abandoned + self.pending + self.incomplete_requests
        return self.kinds[UNANSWERED] - known

    @property
    def incomplete(self) -> int:
        """Number of incomplete messages."""
        return self.incomplete_responses + self.incomplete_requests

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        self.kinds[facts.exchange.kind] += 1
        if facts.outcome != ANSWERED:
            self.no_answer += facts.outcome == UNANSWERED
            self.abandoned += facts.outcome == ABANDONED
            self.pending += facts.outcome == PENDING
            self.incomplete_responses += facts.outcome == INCOMPLETE
            self.incomplete_requests += facts.outcome == INCOMPLETE_REQUEST
            self.broken_off += facts.exchange.announced is not None and bool(facts.exchange.ended)
        self.request_bytes += facts.request_bytes
        self.response_bytes += facts.response_bytes
        if facts.service_us is not None:
            self.service_us.add(facts.service_us)
        elif facts.wait_us is not None:
            self.wait_us.add(facts.wait_us)
        elif facts.parts is not None:
            self.undetermined += 1
        if (total_us := facts.total_us) is not None:
            self.total_us.add(total_us)
        if facts.errors:
            self.failed += bool(facts.serious)
            self.expected += not facts.serious
        if facts.throttle_ms > 0:
            self.throttled += 1
            self.throttle_ms += facts.throttle_ms
        time_ns = facts.time_ns
        if self.last_ns is None or time_ns > self.last_ns:
            self.last_ns = time_ns
        if self.first_ns is None or time_ns < self.first_ns:
            self.first_ns = time_ns

    def add_usual(self, usual: Usual) -> None:
        """Count exchanges that the core has counted."""
        self.kinds[ANSWERED] += usual.exchanges
        self.request_bytes += usual.bytes[0]
        self.response_bytes += usual.bytes[1]
        self.service_us.merge(usual.service_us)
        self.wait_us.merge(usual.wait_us)
        self.undetermined += usual.undetermined
        self.total_us.merge(usual.total_us)
        self.first_ns = earlier(self.first_ns, usual.noted.first_ns)
        self.last_ns = later(self.last_ns, usual.noted.last_ns)


# ------------------------------------------------------------------------------------------------------------
# Exchanges that are alike, counted together: of a connection, and different only in time, size and content.
#
# Many tables and rules need no more of them than their number, sizes and latencies, the first few, and the
# first and last time. Holds ``Limits.summary_buckets`` such counts, until they are passed on: all of them
# when there are more, and those of a connection when it has ended.
# ------------------------------------------------------------------------------------------------------------


FIRST = 5
"""Exchanges whose IDs are kept."""


class AggregateKeys(NamedTuple):
    """What the exchanges of a connection have in common; see ``Facts`` and ``Exchange``.

    Attributes:
        api_key: None for SASL tokens without a header, and without a request.
        group: None without a table of groups.
        is_measured: whether the service times are known.
    """

    api: str
    api_key: int | None
    api_version: int | None
    client_id: str | None
    software: str | None
    software_version: str | None
    principal: str | None
    kind: str
    group: str | None
    has_request: bool
    has_flaw: bool
    is_measured: bool


@summed
class Aggregate(Load):
    """Exchanges that are alike.

    Attributes:
        connection: their connection.
        client, broker: as in ``Facts``.
        first: times and IDs of the first ``FIRST`` of them, in order.
    """

    keys: AggregateKeys = own()
    connection: ConnectionInfo = own()
    client: str = own()
    broker: str = own()
    first: list[tuple[int, str]] = own(list)

    def __init__(self, keys: AggregateKeys, connection: ConnectionInfo, client: str, broker: str) -> None:
        Load.__init__(self)
        self.keys, self.connection = keys, connection
        self.client, self.broker = client, broker

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        Load.add(self, facts)
        first = self.first
        if len(first) < FIRST or facts.time_ns <= first[-1][0]:
            self.first = sorted([*first, (facts.time_ns, facts.id)])[:FIRST]

    def add_usual(self, usual: Usual) -> None:
        """Count exchanges that the core has counted."""
        Load.add_usual(self, usual)
        self.first = sorted([*self.first, *usual.first(usual.noted)])[:FIRST]


class Aggregator:
    """Counts exchanges that are alike together.

    Args:
        limits: to respect.
        callbacks: called with the counts.
        by_group: whether those of different groups differ.
    """

    def __init__(
        self, limits: Limits, callbacks: Iterable[Callable[[Aggregate], object]], *, by_group: bool = False
    ) -> None:
        self._callbacks = list(callbacks)
        self._by_group = by_group
        self._max_buckets = limits.summary_buckets
        self._counts: dict[ConnectionKey, dict[tuple[Any, ...], Aggregate]] = {}  # by connection
        self._held = 0

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        exchange = facts.exchange
        key = (
            facts.api,
            exchange.api_key,
            exchange.api_version,
            facts.kept(exchange.client_id),
            exchange.client_software_name,
            exchange.client_software_version,
            exchange.principal,
            exchange.kind,
            facts.kept(facts.group) if self._by_group else None,
            exchange.request_frame is not None,
            facts.has_flaw,
            facts.service_us is not None,
        )
        self._aggregate(key, exchange.connection, facts).add(facts)
        if self._held > self._max_buckets:
            self.settle()

    def feed_usual(self, usual: Usual) -> None:
        """Add exchanges that the core has counted."""
        software, version, principal, _ = usual.identity
        key = (
            usual.api,
            usual.api_key,
            usual.api_version,
            usual.client_id,
            software,
            version,
            principal,
            ANSWERED,
            usual.group if self._by_group else None,
            True,
            False,
            usual.is_measured,
        )
        self._aggregate(key, usual.connection, usual).add_usual(usual)
        if self._held > self._max_buckets:
            self.settle()

    def _aggregate(self, key: tuple[Any, ...], connection: ConnectionInfo, ends: Facts | Usual) -> Aggregate:
        """The counts of exchanges with these ``AggregateKeys``."""
        counts = self._counts.get(connection.key)
        if counts is None:
            counts = self._counts[connection.key] = {}
        aggregate = counts.get(key)
        if aggregate is None:
            keys = AggregateKeys(*key)
            aggregate = counts[key] = Aggregate(keys, connection, ends.client, ends.broker)
            self._held += entries(key)
        return aggregate

    def settle(self, connection: ConnectionKey | None = None) -> None:
        """Pass on the counts of a connection; None: of all."""
        for each in list(self._counts) if connection is None else (connection,):
            for key, aggregate in self._counts.pop(each, {}).items():
                self._held -= entries(key)
                for callback in self._callbacks:
                    callback(aggregate)
