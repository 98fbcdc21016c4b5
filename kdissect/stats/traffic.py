"""Facts -> tables of apis, brokers, clients and what else was asked for; errors; the slowest exchanges.

An exchange belongs to a row of each table, and it comes after thousands that belong to the same rows. So
those that are alike are counted together first, and together they are added to the rows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka.codes import error_name
from kdissect.stats.quantiles import Bounded, Distinct, Largest, Quantiles

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.stats.facts import Facts


# ------------------------------------------------------------------------------------------------------------
# Facts of many exchanges -> how many, how large, how fast, with how many errors. Holds a row of counts.
# ------------------------------------------------------------------------------------------------------------


class Load:
    """The counts of one row, whatever the row stands for: an api, a client, a broker ...

    Attributes:
        kinds: exchanges by kind.
        request_bytes, response_bytes: of frames, their length bytes included.
        latency_us: of what was answered, without long polls.
        long_poll_us: of long polls (facts.py).
        failed: exchanges with an error code in the response.
        throttled: exchanges whose answer tells a throttle time; ``throttle_ms`` is their sum.
        first_ns, last_ns: times of the first and last of them.
    """

    __slots__ = (
        *("failed", "first_ns", "kinds", "last_ns", "latency_us", "long_poll_us", "request_bytes"),
        *("response_bytes", "throttle_ms", "throttled"),
    )

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.request_bytes = 0
        self.response_bytes = 0
        self.latency_us = Quantiles()
        self.long_poll_us = Quantiles()
        self.failed = 0
        self.throttled = 0
        self.throttle_ms = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    @property
    def exchanges(self) -> int:
        """How many."""
        return self.kinds.total()

    def add(self, facts: Facts) -> None:
        """Count one."""
        self.kinds[facts.exchange.kind] += 1
        self.request_bytes += facts.request_bytes
        self.response_bytes += facts.response_bytes
        latency_us = facts.latency_us
        if latency_us is not None:
            (self.long_poll_us if facts.long_poll else self.latency_us).add(latency_us)
        if facts.errors:
            self.failed += 1
        if facts.throttle_ms > 0:
            self.throttled += 1
            self.throttle_ms += facts.throttle_ms
        time_ns = facts.time_ns
        if self.last_ns is None or time_ns > self.last_ns:
            self.last_ns = time_ns
        if self.first_ns is None or time_ns < self.first_ns:
            self.first_ns = time_ns

    def merge(self, other: Load) -> None:
        """Add another row's counts."""
        self.kinds += other.kinds
        self.request_bytes += other.request_bytes
        self.response_bytes += other.response_bytes
        self.latency_us.merge(other.latency_us)
        self.long_poll_us.merge(other.long_poll_us)
        self.failed += other.failed
        self.throttled += other.throttled
        self.throttle_ms += other.throttle_ms
        if other.first_ns is not None and other.last_ns is not None:
            self.first_ns = other.first_ns if self.first_ns is None else min(self.first_ns, other.first_ns)
            self.last_ns = other.last_ns if self.last_ns is None else max(self.last_ns, other.last_ns)


# ------------------------------------------------------------------------------------------------------------


BY = ("api", "client", "broker", "topic", "partition", "group", "connection")
"""What rows of a table can be."""

_OF_A_KIND = 16
"""So many times ``Limits.summary_alike`` exchanges are counted, on average, before they are added to rows."""


class Alike(Load):
    """Exchanges that belong to the same rows, and what they have in common.

    Attributes:
        api, api_version, client, broker: as in ``Facts`` and ``Exchange``.
        client_end: address and port of the first of them; the address is that of all.
        principal, software, software_version: as in ``Exchange``.
        group, connection: None where there is no such table.
        connections: that they came on.
    """

    __slots__ = (
        *("api", "api_version", "broker", "client", "client_end", "connection", "connections", "group"),
        *("principal", "software", "software_version"),
    )

    def __init__(self, facts: Facts, group: str | None, connection: str | None) -> None:
        super().__init__()
        exchange = facts.exchange
        self.api = facts.api
        self.api_version = exchange.api_version
        self.client = facts.client
        self.broker = facts.broker
        self.client_end = exchange.connection.client
        self.principal = exchange.principal
        self.software = exchange.client_software_name
        self.software_version = exchange.client_software_version
        self.group = group
        self.connection = connection
        self.connections = Distinct()


class Api(Load):
    """An api and its versions."""

    __slots__ = ("versions",)

    def __init__(self) -> None:
        super().__init__()
        self.versions: Counter[int] = Counter()

    def count(self, alike: Alike) -> None:
        """Count exchanges."""
        super().merge(alike)
        if alike.api_version is not None:
            self.versions[alike.api_version] += alike.exchanges

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

    def count(self, alike: Alike) -> None:
        """Count exchanges."""
        super().merge(alike)
        self.clients.add(alike.client)
        self.connections.merge(alike.connections)

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

    def count(self, alike: Alike) -> None:
        """Count exchanges."""
        super().merge(alike)
        self.addresses.add(alike.client_end.ip)
        self.apis[alike.api] += alike.exchanges
        self.connections.merge(alike.connections)
        if alike.principal:
            self.principals.add(alike.principal)
        if alike.software:
            self.software.add(f"{alike.software} {alike.software_version or ''}".rstrip())

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

    def count(self, alike: Alike) -> None:
        """Count exchanges."""
        super().merge(alike)
        self.apis[alike.api] += alike.exchanges
        self.clients.add(alike.client)

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

    def count(self, alike: Alike) -> None:
        """Count exchanges."""
        if not self.client:
            self.client, self.broker = alike.client, alike.broker
            self.client_address = str(alike.client_end)
        super().merge(alike)

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


class Tables:
    """The tables whose rows count exchanges."""

    __slots__ = ("apis", "brokers", "clients", "connections", "groups")

    def __init__(self, rows: int) -> None:
        self.apis: Bounded[str, Api] = Bounded(rows, Api)
        self.brokers: Bounded[str, Broker] = Bounded(rows, Broker)
        self.clients: Bounded[str, Client] = Bounded(rows, Client)
        self.groups: Bounded[str, Group] = Bounded(rows, Group)
        self.connections: Bounded[str, Connected] = Bounded(rows, Connected)

    def count(self, alike: Alike) -> None:
        """Add exchanges to the rows that they belong to."""
        self.apis[alike.api].count(alike)
        self.brokers[alike.broker].count(alike)
        self.clients[alike.client].count(alike)
        if alike.group is not None:
            self.groups[alike.group].count(alike)
        if alike.connection is not None:
            self.connections[alike.connection].count(alike)

    def merge(self, other: Tables) -> None:
        """Add the tables of another part of the same captures."""
        self.apis.merge(other.apis)
        self.brokers.merge(other.brokers)
        self.clients.merge(other.clients)
        self.groups.merge(other.groups)
        self.connections.merge(other.connections)

    @property
    def all(self) -> Load:
        """Of all exchanges: each is one api's."""
        found = Load()
        for row in (*self.apis.values(), *(() if self.apis.other is None else (self.apis.other,))):
            found.merge(row)
        return found


class Traffic:
    """Counts exchanges.

    Args:
        limits: ``summary_rows`` bounds each table.
        by: further tables, besides those of apis, brokers and clients: names of ``BY``.
        slowest: how many of the slowest exchanges to keep.

    Attributes:
        failures: errors, and whom they met.
        slowest: exchanges.
        anomalies: of all exchanges, by kind.
    """

    def __init__(self, limits: Limits, by: frozenset[str] = frozenset(), slowest: int = 10) -> None:
        self.failures: Bounded[Failure, Failures] = Bounded(limits.summary_rows, Failures)
        self.slowest = Largest(slowest)
        self.anomalies: Counter[str] = Counter()
        self._tables = Tables(limits.summary_rows)
        self._alike: dict[tuple[object, ...], Alike] = {}
        self._most_alike = limits.summary_alike
        self._counted = 0
        self._groups_too = "group" in by
        self._connections_too = "connection" in by

    @property
    def tables(self) -> Tables:
        """The tables, of all exchanges so far."""
        self._settle()
        return self._tables

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        exchange = facts.exchange
        self._count(facts, exchange)
        for failure in failures_of(facts):
            self.failures[failure].add(exchange.time_ns, facts.id)
        latency_us = facts.latency_us
        if latency_us is not None and latency_us > self.slowest.least and not facts.long_poll:
            self._keep(facts, latency_us)
        for anomaly in exchange.anomalies:
            self.anomalies[anomaly.kind] += 1

    def merge(self, other: Traffic) -> None:
        """Add what another one counted of other connections."""
        self.tables.merge(other.tables)
        self.failures.merge(other.failures)
        self.slowest.merge(other.slowest)
        self.anomalies += other.anomalies

    def _count(self, facts: Facts, exchange: Exchange) -> None:
        connection = exchange.connection
        group = facts.group if self._groups_too else None
        own = connection.id if self._connections_too else None
        key = (
            *(facts.api, exchange.api_version, facts.client, facts.broker, connection.client.ip, group, own),
            *(exchange.principal, exchange.client_software_name, exchange.client_software_version),
        )
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Alike(facts, group, own)
        alike.add(facts)
        alike.connections.add(connection.id)
        self._counted += 1
        if len(self._alike) >= self._most_alike or self._counted >= self._most_alike * _OF_A_KIND:
            self._settle()

    def _settle(self) -> None:
        for alike in self._alike.values():
            self._tables.count(alike)
        self._alike.clear()
        self._counted = 0

    def _keep(self, facts: Facts, latency_us: int) -> None:
        time_ns = facts.exchange.time_ns
        topics = tuple(dict.fromkeys(each.topic for each in facts.touched[:100]))[:5]
        slow = Slow(
            facts.id, time_ns, latency_us, facts.api, facts.client, facts.broker, topics, facts.throttle_ms
        )
        self.slowest.add(latency_us, time_ns, slow)
