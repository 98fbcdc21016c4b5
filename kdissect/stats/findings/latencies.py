"""Latencies and throttle times -> clients that a quota slows down, brokers slower than others, requests that
take long or wait for earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import WARNING
from kdissect.limits import MILLISECOND_NS
from kdissect.model import ANSWERED
from kdissect.phrases import duration, many
from kdissect.stats.contents import EACH, ONE, QUEUED_US, SUM, SUMS
from kdissect.stats.facts import SLOW_US
from kdissect.stats.findings.rule import Evidence, Rule, combined
from kdissect.stats.quantiles import Bounded, Quantiles
from kdissect.stats.sums import largest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Alike, Tally

_MIN_THROTTLED = 10
_MIN_THROTTLE_MS = 1000


@summed
class Throttles(Evidence):
    """Responses with a throttle time."""

    max_ms: int = largest()
    sum_ms: int = total()


@summed
class Throttled(Rule):
    """A client that waits because of a quota looks slow, although broker and network are fine."""

    name = "throttled"
    severity = WARNING
    of = ("client", "broker")
    lost = "sum_ms"
    title = "A quota throttles a client."
    when = (
        f"{_MIN_THROTTLED} responses with a throttle time, or {_MIN_THROTTLE_MS:,} ms in total; occasional "
        "short throttling is normal under a quota."
    )
    advice = (
        "Reduce or spread the load, or raise producer_byte_rate, consumer_byte_rate or request_percentage of "
        "this client or user (kafka-configs --describe --entity-type clients, or users, shows them)."
    )
    needs_flaws = True
    counts = Throttles

    def feed(self, facts: Facts) -> None:
        """Count throttle times."""
        if facts.throttle_ms > 0:
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.sum_ms += facts.throttle_ms
            kept.max_ms = max(kept.max_ms, facts.throttle_ms)

    def _reports(self, each: Throttles) -> bool:
        return each.count >= _MIN_THROTTLED or each.sum_ms >= _MIN_THROTTLE_MS

    def _message(self, _: Scope, each: Throttles) -> str:
        return (
            f"{many(each.count, 'response')} with a throttle time, "
            f"{duration(each.sum_ms * MILLISECOND_NS)} in total, "
            f"longest {duration(each.max_ms * MILLISECOND_NS)}"
        )


# ------------------------------------------------------------------------------------------------------------
# Service times by API and broker -> brokers that are slower than the others.
# ------------------------------------------------------------------------------------------------------------


_MEASURED = 20  # exchanges of a broker
_TIMES_SLOWER = 5
_SLOWER_US = 10_000


@summed
class Speed(Evidence):
    """Exchanges of an API at a broker, in microseconds: service times, and what clients waited in all.

    Attributes:
        slowest: for the message: median, the same without the round trip, median of the next slowest broker,
            API, broker, exchanges.
    """

    service_us: Quantiles = merged(Quantiles)
    total_us: Quantiles = merged(Quantiles)
    slowest: tuple[int, int, int, str, str, int] = largest((0, 0, 0, "", "", 0))

    def add_times(self, tally: Alike) -> None:
        """Add measured exchanges."""
        self.service_us.merge(tally.service_us)
        self.total_us.merge(tally.total_us)
        self.add(tally)


def _both_times(total_us: int | None, service_us: int) -> str:
    """``300.0ms, of which the broker 66.0ms``; only the latter if the former is not known."""
    broker = duration(service_us * 1000)
    if total_us is None or total_us < service_us:
        return broker
    return f"{duration(total_us * 1000)}, of which the broker {broker}"


@summed
class SlowBroker(Rule):
    """If all brokers are slow, the load may be too high; if only one is, the problem is on that broker."""

    name = "slow-broker"
    severity = WARNING
    of = ("broker", "API")
    apart = "broker"
    title = "One broker responds much more slowly than its peers."
    when = (
        f"The median service time of an API, without the round trip to the broker, is {_TIMES_SLOWER} times "
        f"that of the next slowest broker and {_SLOWER_US // 1000} ms longer, with {_MEASURED} requests or "
        "more on each."
    )
    advice = "Compare its disks, garbage collection, network and number of leaders with those of its peers."
    takes = SUMS
    counts = Speed

    round_trips: Bounded[str, Quantiles] = merged()  # the shortest of each connection to a broker

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.round_trips = Bounded(limits.summary_rows, Quantiles)

    def feed(self, tally: Alike) -> None:
        """Note how long a broker took."""
        if tally.keys.is_measured:
            self.kept[tally.api, tally.broker].add_times(tally)

    def connect(self, row: ConnectionLogRow) -> None:
        """Note how far away the broker is: seen from a client, service times include a round trip."""
        round_trip_ns = None if row.tcp is None else row.tcp.shortest_round_trip_ns(row.client_side)
        if round_trip_ns is not None and row.kinds[ANSWERED]:
            self.round_trips[str(row.broker)].add(round_trip_ns // 1000)

    def findings(self) -> Iterator[RulePart]:
        """Brokers that are slower than all others, by API."""
        apis: dict[str, list[tuple[int, str, Speed]]] = {}
        for (api, broker), each in sorted(self.kept.items()):
            (median_us,) = each.service_us.at((0.5,))
            if median_us is not None and each.count >= _MEASURED:
                apis.setdefault(api, []).append((median_us, broker, each))
        for api, speeds in apis.items():
            if len(speeds) > 1:
                slowest = max(speeds, key=self._at_least_us)
                peer = max((each for each in speeds if each is not slowest), key=self._at_most_us)
                min_us, max_us = self._at_least_us(slowest), self._at_most_us(peer)
                if min_us >= _TIMES_SLOWER * max_us and min_us - max_us >= _SLOWER_US:
                    slow_us, broker, each = slowest
                    evidence = combined([each])
                    evidence.slowest = slow_us, min_us, peer[0], api, broker, each.count
                    yield self.part((broker, api), evidence)

    def _message(self, scope: Scope, each: Speed) -> str:
        slow_us, min_us, peer_us, api, broker, count = each.slowest
        (total_us,) = each.total_us.at((0.5,)) if len(scope["API"]) == 1 else (None,)
        times = _both_times(slow_us if total_us is None else total_us, min_us)
        round_trip = (
            f", the round trip {duration((slow_us - min_us) * 1000)}"
            if broker in self.round_trips
            else " (round trip not captured)"
        )
        of = many(count, "exchange" if len(scope["API"]) == 1 else f"{api} exchange")
        return f"median of {of} {times}{round_trip}; next slowest broker: {duration(peer_us * 1000)}"

    def _at_least_us(self, speed: tuple[int, str, Speed]) -> int:
        """A broker's median service time without the longest round trip of its connections."""
        median_us, broker, _ = speed
        return max(0, median_us - (self._round_trips(broker).max or 0))

    def _at_most_us(self, speed: tuple[int, str, Speed]) -> int:
        """The same without the shortest."""
        median_us, broker, _ = speed
        return max(0, median_us - (self._round_trips(broker).min or 0))

    def _round_trips(self, broker: str) -> Quantiles:
        return self.round_trips.get(broker, Quantiles())


@summed
class SlowService(Evidence):
    """Slow requests of a connection; the longest service time and its total time, in microseconds."""

    longest: tuple[int, int] = largest((0, -1))


@summed
class SlowConnections(Evidence):
    """Connections with such requests; longest service time, median and total time of one, in microseconds."""

    longest: tuple[int, int, int] = largest((0, 0, -1))

    @property
    def lost_us(self) -> int:
        """How much longer the slowest took."""
        return self.longest[0] - self.longest[1]


@summed
class SlowRequests(Rule):
    """A disk that stalls, a replica that acks=all waits for, or a long pause delays few requests, but so long
    that a client notices. Percentiles do not show it.
    """

    name = "slow-requests"
    severity = WARNING
    of = ("client", "broker", "API")
    lost = "lost_us"
    title = "Some requests take seconds longer than is usual."
    when = (
        f"A service time {SLOW_US // 1_000_000} s above the median of the same API, client and broker, with "
        f"{_MEASURED} requests or more. Times that brokers wait on purpose, throttle times, "
        "retransmissions and the wait for earlier responses are not service time."
    )
    advice = (
        "Look at the broker's log at that time: disk stalls, garbage collection, replicas that left the ISR "
        "(replica.lag.time.max.ms bounds how long acks=all waits for one), leaders that moved."
    )
    takes = frozenset({ONE, SUM})
    needs_flaws = True
    counts = SlowService

    service_us: Bounded[tuple[str, str, str], Quantiles] = merged()  # by client, broker and API

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.service_us = Bounded(limits.summary_rows, Quantiles)

    def feed(self, tally: Tally) -> None:
        """Note how long a broker took; of one exchange, when, if it took long."""
        key = tally.client, tally.broker, tally.api
        if tally.exchange is None:
            if tally.keys.is_measured and tally.keys.api_key is not None:
                self.service_us[key].merge(tally.service_us)
        elif (tally.service_us or 0) >= SLOW_US and tally.exchange.api_key is not None:
            kept = self.kept[(*key, tally.connection.key)]
            kept.add(tally)
            kept.last_ns = max(kept.last_ns, tally.time_ns + 1000 * (tally.latency_us or 0))
            total_us = -1 if tally.total_us is None else tally.total_us
            kept.longest = max(kept.longest, (tally.service_us or 0, total_us))

    def findings(self) -> Iterator[RulePart]:
        """Clients with such requests, by broker and API."""
        slow: dict[tuple[str, str, str], SlowConnections] = {}
        for (client, broker, api, connection), each in self.kept.items():
            usual, (longest_us, total_us) = self.service_us.get((client, broker, api)), each.longest
            (median_us,) = (None,) if usual is None or usual.count < _MEASURED else usual.at((0.5,))
            if median_us is not None and longest_us - median_us >= SLOW_US:
                evidence = slow.setdefault((client, broker, api), SlowConnections())
                evidence.take(each.first_ns, connection[0])
                evidence.last_ns = max(evidence.last_ns, each.last_ns)
                evidence.ends |= each.ends
                evidence.longest = max(evidence.longest, (longest_us, median_us, total_us))
        for key, evidence in slow.items():
            yield self.part(key, evidence)

    def _message(self, _: Scope, each: SlowConnections) -> str:
        longest_us, median_us, total_us = each.longest
        return (
            f"up to {_both_times(None if total_us < 0 else total_us, longest_us)}, median "
            f"{duration(median_us * 1000)}, on {many(each.count, 'connection')}"
        )


# ------------------------------------------------------------------------------------------------------------
# Requests that wait for the responses to earlier ones -> producers that outrun a connection.
# ------------------------------------------------------------------------------------------------------------


_MIN_QUEUED = 10


@summed
class Queued(Evidence):
    """Produce requests of a connection that waited long; the number of all, their longest wait, how long they
    took in all, and the broker for them.
    """

    requests: int = total()
    longest_us: int = largest()
    total_us: Quantiles = merged(Quantiles)
    service_us: Quantiles = merged(Quantiles)


@summed
class QueuedConnections(Evidence):
    """Connections on which requests wait, and these requests."""

    queued: Queued = merged(Queued)


@summed
class Queueing(Rule):
    """A broker processes the requests of a connection one by one. A producer that sends faster fills a queue:
    each record waits for all before it, however fast the broker is.
    """

    name = "queueing"
    severity = WARNING
    of = ("client",)
    lost = "queued.longest_us"
    title = "A producer sends faster than its connection is served: requests wait for earlier ones."
    when = (
        f"{_MIN_QUEUED} Produce requests of a connection that waited {QUEUED_US // 1_000_000} s or more for "
        "the responses to earlier requests. The broker is not silent: it responds in order, all the time."
    )
    advice = (
        "Let the producer send fewer and larger requests: raise linger.ms and batch.size, or lower "
        "max.in.flight.requests.per.connection (librdkafka: 1,000,000 by default). If each request takes "
        "long, see what it waits for: acks=all waits for all replicas in sync."
    )
    takes = EACH
    apis = frozenset({"Produce"})
    counts = Queued

    def feed(self, tally: Tally) -> None:
        """Add how long requests waited for the responses to earlier ones."""
        kept = self.kept[tally.client, tally.connection.key]
        kept.requests += tally.exchanges
        if tally.exchange is None:
            kept.add_noted(tally, tally.queued)
            kept.longest_us = max(kept.longest_us, tally.queued_us.max or 0)
            kept.total_us.merge(tally.total_us)
            kept.service_us.merge(tally.service_us)
            return
        parts = tally.parts
        queued_us = (parts.queued_us or 0) if parts is not None else 0
        kept.longest_us = max(kept.longest_us, queued_us)
        if queued_us >= QUEUED_US:
            kept.add(tally)
        if (total_us := tally.total_us) is not None and tally.service_us is not None:
            kept.total_us.add(total_us)
            kept.service_us.add(tally.service_us)

    def findings(self) -> Iterator[RulePart]:
        """Producers with such connections."""
        clients: dict[str, QueuedConnections] = {}
        for (client, connection), each in self.kept.items():
            if each.count >= _MIN_QUEUED:
                evidence = clients.setdefault(client, QueuedConnections())
                evidence.queued.merge(each)
                evidence.take(each.first_ns, connection[0])
                evidence.last_ns = max(evidence.last_ns, each.last_ns)
                evidence.ends |= each.ends
        for client, evidence in clients.items():
            yield self.part(client, evidence)

    def _message(self, _: Scope, each: QueuedConnections) -> str:
        queued = each.queued
        (total_us,), (service_us,) = queued.total_us.at((0.5,)), queued.service_us.at((0.5,))
        times = "" if service_us is None else f"; median of all {_both_times(total_us, service_us)}"
        return (
            f"{queued.count:,} of {many(queued.requests, 'Produce request')} on "
            f"{many(each.count, 'connection')} waited {QUEUED_US // 1_000_000} s or more for the "
            f"responses to earlier ones, up to {duration(queued.longest_us * 1000)}{times}"
        )
