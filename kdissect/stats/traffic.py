"""Facts -> tables of APIs, brokers, clients and others on request; errors; the slowest exchanges.

An exchange belongs to one row of each table, usually the same rows as thousands of others. So exchanges that
are alike are summed up first (tallies.py), and added to the rows together.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.latency import waiter
from kdissect.exchanges.outcomes import outstanding_ns
from kdissect.kafka.codes import error_name
from kdissect.model import UNANSWERED
from kdissect.net.duplex import NEVER_NS
from kdissect.stats.contents import EACH, SUMS
from kdissect.stats.quantiles import Bounded, Distinct, Largest, Quantiles
from kdissect.stats.sums import Summed, earliest, either, join, latest, merged, own, summed, total
from kdissect.stats.tallies import Load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdissect.limits import Limits
    from kdissect.model import LatencyParts
    from kdissect.stats.facts import Facts
    from kdissect.stats.tallies import Alike, Tally


BY = ("api", "client", "broker", "topic", "partition", "group", "connection")
"""The possible tables, by what their rows count."""

_DELAYS = ("queued", "throttled", "network")
"""The parts of a latency before the broker works on the request."""


@summed
class ApiTraffic(Load):
    """An api and its versions."""

    versions: Counter[int] = total(Counter)

    def count(self, same: Alike) -> None:
        """Count exchanges."""
        join(self, same, Load)
        if (version := same.keys.api_version) is not None:
            self.versions[version] += same.exchanges


@summed
class Broker(Load):
    """A broker, its clients and connections."""

    clients: Distinct = merged(Distinct)
    connections: Distinct = merged(Distinct)

    def count(self, same: Alike) -> None:
        """Count exchanges."""
        join(self, same, Load)
        self.clients.add(same.client)
        self.connections.merge(same.connections)


@summed
class Client(Load):
    """A client ID, with addresses, client libraries and APIs."""

    addresses: Distinct = merged(Distinct)
    apis: Counter[str] = total(Counter)
    connections: Distinct = merged(Distinct)
    principals: Distinct = merged(Distinct)
    software: Distinct = merged(Distinct)

    def count(self, same: Alike) -> None:
        """Count exchanges."""
        join(self, same, Load)
        keys = same.keys
        self.addresses.add(same.connection.client.ip)
        self.apis[keys.api] += same.exchanges
        self.connections.merge(same.connections)
        if keys.principal:
            self.principals.add(keys.principal)
        if keys.software:
            self.software.add(f"{keys.software} {keys.software_version or ''}".rstrip())


@summed
class GroupTraffic(Load):
    """A group's exchanges with its coordinator."""

    apis: Counter[str] = total(Counter)
    clients: Distinct = merged(Distinct)

    def count(self, same: Alike) -> None:
        """Count exchanges."""
        join(self, same, Load)
        self.apis[same.keys.api] += same.exchanges
        self.clients.add(same.client)


@summed
class ConnectionTraffic(Load):
    """A connection; client and broker are those of its first exchange."""

    client: str = either("")
    client_address: str = either("")
    broker: str = either("")

    def count(self, same: Alike) -> None:
        """Count exchanges."""
        if not self.client:
            self.client, self.broker = same.client, same.broker
            self.client_address = str(same.connection.client)
        join(self, same, Load)


class Failure(NamedTuple):
    """An error, with API, topic, client and cluster; None: the cluster is not known."""

    error: str
    api: str
    topic: str | None
    client: str
    cluster_id: str | None = None


def failures_of(facts: Facts) -> list[Failure]:
    """Each error once for each topic that has it; errors outside partitions once."""
    if not facts.errors:
        return []
    placed = {(error_name(each.error), each.topic): None for each in facts.touched if each.error}
    named = {error for error, _ in placed}
    unplaced = {(error, None): None for error in facts.errors if error not in named}
    cluster = facts.exchange.cluster_id
    return [Failure(error, facts.api, topic, facts.client, cluster) for error, topic in (*placed, *unplaced)]


@summed
class Failures(Summed):
    """How often a failure occurred.

    Attributes:
        expected: how often it was expected.
        first: time and ID of the first exchange.
        explained: the same of the first with a message, and the message.
    """

    count: int = total()
    expected: int = total()
    explained: tuple[int, str, str] = earliest((NEVER_NS, "", ""))
    first: tuple[int, str] = earliest((NEVER_NS, ""))
    last_ns: int = latest(0)

    @property
    def first_ns(self) -> int:
        """Time of the first."""
        return self.first[0]

    @property
    def example(self) -> str:
        """The first of them, as ``connection/number``."""
        return self.first[1]

    @property
    def message(self) -> str | None:
        """The broker's first message about it."""
        return self.explained[2] or None

    def add(
        self, time_ns: int, example: str, message: str | None = None, *, is_expected: bool = False
    ) -> None:
        """Count an occurrence, with the broker's message about it."""
        self.count += 1
        self.expected += is_expected
        self.first = min(self.first, (time_ns, example))
        if message:
            self.explained = min(self.explained, (time_ns, example, message))
        self.last_ns = max(self.last_ns, time_ns)


@summed
class WaitTimes(Summed):
    """How long one kind of wait lasted.

    Attributes:
        us: the waits, in microseconds.
        undetermined: answered exchanges that may have waited.
    """

    us: Quantiles = merged(Quantiles)
    undetermined: int = total()

    def add(self, us: int | None) -> None:
        """Count a wait; None: unknown."""
        if us is None:
            self.undetermined += 1
        else:
            self.us.add(us)


class Slow(NamedTuple):
    """A slow exchange."""

    exchange: str
    time_ns: int
    latency_us: int
    total_us: int | None
    parts: LatencyParts
    api: str
    client: str
    broker: str
    topics: tuple[str, ...]
    throttle_ms: int


class Unanswered(NamedTuple):
    """A request that the broker did not answer; ``age_us``: how long it was outstanding."""

    exchange: str
    time_ns: int
    age_us: int
    api: str
    client: str
    broker: str
    topics: tuple[str, ...]


class ClientOfCluster(NamedTuple):
    """A client, and its cluster; None: it is not known."""

    client: str
    cluster_id: str | None


def united(table: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """A table whose keys are tuples with a ``cluster_id``. If they know only one, rows whose cluster is not
    known are counted with it.
    """
    clusters = {key.cluster_id for key in table}
    if len(clusters) != 2 or None not in clusters:
        return table
    (known,) = clusters - {None}
    result: dict[Any, Any] = {}
    for key, value in table.items():
        named = key._replace(cluster_id=known)
        if named in result:
            result[named].merge(deepcopy(value))
        else:
            result[named] = deepcopy(value)
    return result


@summed
class TrafficTables(Summed):
    """The tables whose rows count exchanges."""

    apis: Bounded[str, ApiTraffic] = merged()
    brokers: Bounded[str, Broker] = merged()
    clients: Bounded[ClientOfCluster, Client] = merged()
    groups: Bounded[str, GroupTraffic] = merged()
    connections: Bounded[str, ConnectionTraffic] = merged()
    _by_connection: bool = own()

    takes = SUMS

    def __init__(self, limits: Limits, by: frozenset[str]) -> None:
        Summed.__init__(self)
        rows = limits.summary_rows
        self._by_connection = "connection" in by
        self.apis = Bounded(rows, ApiTraffic)
        self.brokers = Bounded(rows, Broker)
        self.clients = Bounded(rows, Client)
        self.groups = Bounded(rows, GroupTraffic)
        self.connections = Bounded(rows, ConnectionTraffic)

    def feed(self, tally: Alike) -> None:
        """Count exchanges in the rows of all tables."""
        keys, connection = tally.keys, tally.connection
        self.apis[keys.api].count(tally)
        self.brokers[tally.broker].count(tally)
        self.clients[ClientOfCluster(tally.client, connection.cluster_id)].count(tally)
        if keys.group is not None:
            self.groups[keys.group].count(tally)
        if self._by_connection:
            self.connections[connection.name].count(tally)

    @property
    def all(self) -> Load:
        """Total of all exchanges: the sum over APIs."""
        load = Load()
        for row in (*self.apis.values(), *(() if self.apis.other is None else (self.apis.other,))):
            load.merge(row)
        return load


@summed
class Traffic(Summed):
    """Counts exchanges.

    Args:
        limits: ``summary_rows`` limits each table.
        by: tables besides those of APIs, brokers and clients: names of ``BY``.
        slowest: number of slowest exchanges to keep, and of unanswered requests.

    Attributes:
        failures: errors, with API, topic and client.
        slowest: the exchanges with the longest service times.
        unanswered: the requests that were outstanding the longest.
        waits: by kind of request that brokers delay on purpose (``waiter``), and
            by the other parts of latencies: ``queued``, ``throttled``, ``network``.
        anomalies: number of anomalies by kind.
        tables: of all sums so far.
    """

    failures: Bounded[Failure, Failures] = merged()
    slowest: Largest = merged()
    unanswered: Largest = merged()
    waits: Bounded[str, WaitTimes] = merged()
    anomalies: Counter[str] = total(Counter)
    tables: TrafficTables = merged()

    takes = EACH

    def __init__(self, limits: Limits, by: frozenset[str] = frozenset(), slowest: int = 10) -> None:
        Summed.__init__(self)
        self.failures = Bounded(limits.summary_rows, Failures)
        self.slowest = Largest(slowest)
        self.unanswered = Largest(slowest)
        self.waits = Bounded(limits.summary_rows, WaitTimes)
        self.tables = TrafficTables(limits, by)

    def feed(self, tally: Tally) -> None:
        """Count errors, waits and anomalies; note the slowest exchanges, and unanswered requests."""
        if tally.exchange is None:
            self._count_counted_waits(tally)
            return
        exchange = tally.exchange
        for failure in failures_of(tally):
            is_expected = failure.error in exchange.expected_errors
            message = tally.messages.get(failure.error)
            self.failures[failure].add(exchange.time_ns, tally.id, message, is_expected=is_expected)
        if tally.service_us is not None:
            self.slowest.add(tally.service_us, exchange, partial(_slow, tally))
        if tally.parts is not None:
            self._count_waits(tally, tally.parts)
        if tally.outcome == UNANSWERED:
            age_us = max(0, outstanding_ns(exchange)) // 1000
            self.unanswered.add(age_us, exchange, partial(_unanswered, tally, age_us))
        for anomaly in exchange.anomalies:
            self.anomalies[anomaly.kind] += 1

    def _count_counted_waits(self, tally: Alike) -> None:
        if tally.reads is not None and not tally.keys.is_measured:
            wait = self.waits[tally.reads.kind]
            wait.us.merge(tally.wait_us)
            wait.undetermined += tally.undetermined
        if tally.queued_us.count:
            self.waits[_DELAYS[0]].us.merge(tally.queued_us)

    def _count_waits(self, facts: Facts, parts: LatencyParts) -> None:
        if (kind := waiter(facts.exchange)) is not None and facts.service_us is None:
            self.waits[kind].add(facts.wait_us)
        for name, us in zip(_DELAYS, parts, strict=False):
            if us != 0:
                self.waits[name].add(us)


def _slow(facts: Facts) -> Slow:
    assert facts.latency_us is not None
    assert facts.parts is not None
    named = facts.api, facts.client, facts.broker, some_topics(facts), facts.throttle_ms
    exchange = facts.exchange
    return Slow(facts.id, exchange.time_ns, facts.latency_us, facts.total_us, facts.parts, *named)


def _unanswered(facts: Facts, age_us: int) -> Unanswered:
    ends = facts.api, facts.client, facts.broker
    return Unanswered(facts.id, facts.exchange.time_ns, age_us, *ends, some_topics(facts))


def some_topics(facts: Facts) -> tuple[str, ...]:
    """The first topics of an exchange."""
    return tuple(dict.fromkeys(each.topic for each in facts.touched[:100]))[:5]
