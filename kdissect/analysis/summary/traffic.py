"""Facts -> tables of apis, brokers, clients and what else was asked for; errors; the slowest exchanges."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kdissect.analysis.summary.bounded import Bounded
from kdissect.analysis.summary.distinct import Distinct
from kdissect.analysis.summary.load import Load
from kdissect.analysis.summary.quantiles import Largest
from kdissect.kafka.codes import error_name

if TYPE_CHECKING:
    from kdissect.analysis.summary.facts import Facts
    from kdissect.limits import Limits

BY = ("api", "client", "broker", "topic", "partition", "group", "connection")
"""What rows of a table can be."""


class Api(Load):
    """An api and its versions."""

    __slots__ = ("versions",)

    def __init__(self) -> None:
        super().__init__()
        self.versions: Counter[int] = Counter()

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        super().add(facts)
        if facts.exchange.api_version is not None:
            self.versions[facts.exchange.api_version] += 1

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        super().merge(other)
        assert isinstance(other, Api)
        self.versions += other.versions


class Broker(Load):
    """A broker, and who is connected to it."""

    __slots__ = ("clients", "connections")

    def __init__(self) -> None:
        super().__init__()
        self.clients = Distinct()
        self.connections = Distinct()

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        super().add(facts)
        self.clients.add(facts.client)
        self.connections.add(facts.exchange.connection.id)

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        super().merge(other)
        assert isinstance(other, Broker)
        self.clients.merge(other.clients)
        self.connections.merge(other.connections)


class Client(Load):
    """A client id: where from, by which software, for what."""

    __slots__ = ("addresses", "apis", "connections", "principals", "software")

    def __init__(self) -> None:
        super().__init__()
        self.addresses = Distinct()
        self.apis: Counter[str] = Counter()
        self.connections = Distinct()
        self.principals = Distinct()
        self.software = Distinct()

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        super().add(facts)
        exchange = facts.exchange
        self.addresses.add(exchange.connection.client.ip)
        self.apis[facts.api] += 1
        self.connections.add(exchange.connection.id)
        if exchange.principal:
            self.principals.add(exchange.principal)
        if name := exchange.client_software_name:
            self.software.add(f"{name} {exchange.client_software_version or ''}".rstrip())

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        super().merge(other)
        assert isinstance(other, Client)
        self.addresses.merge(other.addresses)
        self.apis += other.apis
        self.connections.merge(other.connections)
        self.principals.merge(other.principals)
        self.software.merge(other.software)


class Group(Load):
    """A group, as its coordinator sees it."""

    __slots__ = ("apis", "clients")

    def __init__(self) -> None:
        super().__init__()
        self.apis: Counter[str] = Counter()
        self.clients = Distinct()

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        super().add(facts)
        self.apis[facts.api] += 1
        self.clients.add(facts.client)

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        super().merge(other)
        assert isinstance(other, Group)
        self.apis += other.apis
        self.clients.merge(other.clients)


class Connected(Load):
    """A connection, told by its first exchange."""

    __slots__ = ("broker", "client", "client_address")

    def __init__(self) -> None:
        super().__init__()
        self.client = self.client_address = self.broker = ""

    def add(self, facts: Facts) -> None:
        """Count an exchange."""
        if not self.client:
            self.client, self.broker = facts.client, facts.broker
            self.client_address = str(facts.exchange.connection.client)
        super().add(facts)

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        super().merge(other)
        assert isinstance(other, Connected)
        self.client = self.client or other.client
        self.client_address = self.client_address or other.client_address
        self.broker = self.broker or other.broker


class Failure(NamedTuple):
    """An error, and whom it met."""

    error: str
    api: str
    topic: str | None
    client: str


def failures_of(facts: Facts) -> list[Failure]:
    """Each error once for each topic that has it; an error of no partition, once."""
    if not facts.errors:
        return []
    found = {(error_name(each.error), each.topic): None for each in facts.touched if each.error}
    named = {error for error, _ in found}
    unplaced = {(error, None): None for error in facts.errors if error not in named}
    return [Failure(error, facts.api, topic, facts.client) for error, topic in (*found, *unplaced)]


class Failures:
    """How often it did."""

    __slots__ = ("count", "example", "first_ns", "last_ns")

    def __init__(self) -> None:
        self.count = 0
        self.first_ns = self.last_ns = 0
        self.example = ""

    def add(self, time_ns: int, example: str) -> None:
        """Count one."""
        self._take(1, time_ns, time_ns, example)

    def merge(self, other: Failures) -> None:
        """Add another row's count."""
        if other.count:
            self._take(other.count, other.first_ns, other.last_ns, other.example)

    def _take(self, count: int, first_ns: int, last_ns: int, example: str) -> None:
        if not self.count or first_ns < self.first_ns:
            self.first_ns, self.example = first_ns, example
        self.last_ns = max(self.last_ns, last_ns)
        self.count += count


class Slow(NamedTuple):
    """A slow exchange."""

    exchange: str
    time_ns: int
    latency_us: int
    api: str
    client: str
    broker: str
    topics: tuple[str, ...]
    throttle_ms: int


class Traffic:
    """The tables.

    Args:
        limits: ``summary_rows`` bounds each table.
        by: further tables, besides those of apis, brokers and clients: names of ``BY``.
        slowest: how many of the slowest exchanges to keep.
    """

    def __init__(self, limits: Limits, by: frozenset[str] = frozenset(), slowest: int = 10) -> None:
        rows = limits.summary_rows
        self.apis: Bounded[str, Api] = Bounded(rows, Api)
        self.brokers: Bounded[str, Broker] = Bounded(rows, Broker)
        self.clients: Bounded[str, Client] = Bounded(rows, Client)
        self.groups: Bounded[str, Group] = Bounded(rows, Group)
        self.connections: Bounded[str, Connected] = Bounded(rows, Connected)
        self.failures: Bounded[Failure, Failures] = Bounded(rows, Failures)
        self.slowest = Largest(slowest)
        self.anomalies: Counter[str] = Counter()
        self._groups_too = "group" in by
        self._connections_too = "connection" in by

    @property
    def all(self) -> Load:
        """Of all exchanges: each is one api's."""
        found = Load()
        for row in (*self.apis.values(), *(() if self.apis.other is None else (self.apis.other,))):
            found.merge(row)
        return found

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        self.apis[facts.api].add(facts)
        self.brokers[facts.broker].add(facts)
        self.clients[facts.client].add(facts)
        if self._groups_too and facts.group is not None:
            self.groups[facts.group].add(facts)
        if self._connections_too:
            self.connections[facts.exchange.connection.id].add(facts)
        for failure in failures_of(facts):
            self.failures[failure].add(facts.exchange.time_ns, facts.id)
        if facts.latency_us is not None and facts.latency_us > self.slowest.least and not facts.long_poll:
            self._keep(facts, facts.latency_us)
        for anomaly in facts.exchange.anomalies:
            self.anomalies[anomaly.kind] += 1

    def merge(self, other: Traffic) -> None:
        """Add the tables of another part of the same captures."""
        self.apis.merge(other.apis)
        self.brokers.merge(other.brokers)
        self.clients.merge(other.clients)
        self.groups.merge(other.groups)
        self.connections.merge(other.connections)
        self.failures.merge(other.failures)
        self.slowest.merge(other.slowest)
        self.anomalies += other.anomalies

    def _keep(self, facts: Facts, latency_us: int) -> None:
        time_ns = facts.exchange.time_ns
        topics = tuple(dict.fromkeys(each.topic for each in facts.touched[:100]))[:5]
        slow = Slow(
            facts.id, time_ns, latency_us, facts.api, facts.client, facts.broker, topics, facts.throttle_ms
        )
        self.slowest.add(latency_us, time_ns, slow)
