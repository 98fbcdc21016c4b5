"""Exchanges, as they arrive -> current state: rates, latencies and errors of the last seconds, groups.

    pulse = Pulse(limits)
    pulse.tick(packet.time_ns, packets)     regularly
    pulse.feed(Facts(exchange))
    pulse.now()

The current time is that of the latest packet or idle tick, so rates drop to zero without traffic. Holds a row
for each API, topic and client of the last minute, at most ``limits.top_rows`` of each kind and one for all
others, with counts by second (below). For groups see pulse_groups.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kdissect.exchanges.learned import Listeners
from kdissect.kafka.codes import error_name
from kdissect.limits import DEFAULT, Limits
from kdissect.model import UNANSWERED
from kdissect.names import kept
from kdissect.net.analysis import UNOPENED
from kdissect.stats.connection_log import BROKER
from kdissect.stats.pulse_groups import PulseGroups
from kdissect.stats.quantiles import Bounded
from kdissect.stats.record_counts import RecordTotals
from kdissect.stats.sums import Mergeable, Summed, either, latest, merged, summed, total
from kdissect.stats.survey import KAFKA
from kdissect.stats.tallies import Load
from kdissect.stats.traffic import Failure, failures_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.model import ConnectionKey, Exchange
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.pulse_groups import GroupSnapshot, RebalanceSnapshot


OTHER = "(other)"
"""Name of the row that counts everything without its own row."""

_IDLE_NS = 60_000_000_000  # how long an idle row is kept: long enough to notice that something has stopped
_CLOCK_STEP_NS = (
    10_000_000_000  # packets earlier than the current time by more than this: the clock was set back
)
_ARRIVALS_NS = 100_000_000
_MAX_FAILURES = 100
_FRACTIONS = (0.5, 0.95, 0.99)


@summed
class TopicVolume(Summed):
    """Records written to and read from a topic."""

    produced: RecordTotals = merged(RecordTotals)
    fetched: RecordTotals = merged(RecordTotals)
    replicated: RecordTotals = merged(RecordTotals)
    failed: int = total()


Slice = TypeVar("Slice", Load, TopicVolume)


@summed
class PulseRow(Summed, Generic[Slice]):
    """A name, and its recent counts.

    Attributes:
        failed: exchanges with an error since the row was created; ``no_answer``: unanswered requests;
            ``overdue``: those that are outstanding now, for too long.
        last_seen_ns: when it was last counted.
        software, address: for clients.
    """

    recent: Sliding[Slice] = merged()
    failed: int = total()
    no_answer: int = total()
    overdue: int = total()
    last_seen_ns: int = latest(0)
    software: str = either("")
    address: str = either("")

    def __init__(self, make: type[Slice]) -> None:
        Summed.__init__(self)
        self.recent = Sliding(make)

    def at(self, now_ns: int) -> Slice:
        """The current slice."""
        self.last_seen_ns = now_ns
        return self.recent.at(now_ns)


class LoadSnapshot(NamedTuple):
    """An API or a client. Rates are per second; percentiles of service times are None if none is known.

    Attributes:
        failed_per_second: exchanges with an error; ``failed`` counts them since the row was created, and
            ``no_answer`` unanswered requests with those that are ``overdue`` now.
        measured: number of service times.
        waits: responses per second that the broker delayed on purpose.
        connections: of a client, those active in the last minute.
    """

    name: str
    per_second: float
    p50_us: int | None
    p95_us: int | None
    p99_us: int | None
    failed_per_second: float
    failed: int
    no_answer: int
    overdue: int
    measured: int
    waits: float
    request_bytes: float
    response_bytes: float
    throttled: float
    connections: int = 0
    software: str = ""
    address: str = ""


class TopicSnapshot(NamedTuple):
    """A topic. Rates are per second."""

    name: str
    records_in: float
    bytes_in: float
    records_out: float
    bytes_out: float
    replicated_bytes: float
    failed_per_second: float
    failed: int


class FailureSnapshot(NamedTuple):
    """An error: how often it occurred so far, when last, and whether that one was expected."""

    failure: Failure
    times: int
    time_ns: int
    is_expected: bool = False


class PulseSnapshot(NamedTuple):
    """The current state.

    Attributes:
        now_ns: packet time; None before the first packet.
        silent_s: seconds since the latest packet; ``idle_s``: since the latest exchange.
        seconds: length of the window that rates cover.
        all: all exchanges together.
        failures, rebalances: the latest first.
        connections: those active in the last minute.
        not_opened: connections to Kafka listeners that were refused, not answered or one-way, so far.
        cut_off: connections that brokers ended while requests were outstanding, so far.
        segments, lost: TCP segments with payload of the connections that ended so far, and how many of those
            were lost and retransmitted.
    """

    now_ns: int | None
    silent_s: float
    idle_s: float
    seconds: float
    all: LoadSnapshot
    apis: list[LoadSnapshot]
    topics: list[TopicSnapshot]
    clients: list[LoadSnapshot]
    groups: list[GroupSnapshot]
    failures: list[FailureSnapshot]
    rebalances: list[RebalanceSnapshot]
    connections: int
    exchanges: int
    packets: int
    packets_per_second: float
    segments: int = 0
    lost: int = 0
    not_opened: int = 0
    cut_off: int = 0


class Pulse:
    """Counts recent exchanges.

    Attributes:
        packets, exchanges: so far.
        now_ns: packet time; None before the first packet.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.packets = self.exchanges = 0
        self.now_ns: int | None = None
        rows = limits.top_rows
        self._apis: Bounded[str, PulseRow[Load]] = Bounded(rows, lambda: PulseRow(Load))
        self._clients: Bounded[str, PulseRow[Load]] = Bounded(rows, lambda: PulseRow(Load))
        self._topics: Bounded[str, PulseRow[TopicVolume]] = Bounded(rows, lambda: PulseRow(TopicVolume))
        self._groups = PulseGroups(limits)
        self._failures: OrderedDict[Failure, FailureSnapshot] = OrderedDict()
        self._connections: OrderedDict[ConnectionKey, tuple[str, int]] = (
            OrderedDict()
        )  # its client, when last seen
        self._connections_of: Counter[str] = Counter()
        self._max_connections = limits.connections
        self._overdue: list[tuple[Exchange, PulseRow[Load], PulseRow[Load]]] = []  # with API and client
        self._failed = self._no_answer = self._not_opened = self._cut_off = 0
        self._segments = self._lost = 0
        self._listeners = Listeners(limits)
        self._since_ns = self._last_packet_ns = self._last_exchange_ns = self._pruned_ns = 0
        self._arrivals: deque[tuple[int, int]] = deque()  # times, packets until then

    def tick(self, time_ns: int, packets: int) -> None:
        """Advance packet time and set the number of packets; call it regularly, also on idle ticks."""
        if packets != self.packets:
            self.packets, self._last_packet_ns = packets, time_ns
        self._advance(time_ns)

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        exchange = facts.exchange
        now_ns = self._last_exchange_ns = self._advance(max(exchange.completed_ns, exchange.time_ns))
        if abs(now_ns - self._pruned_ns) >= SLICE_NS:
            self._settle_overdue()
            self._prune(now_ns)
            self._forget_connections(now_ns)
        self.exchanges += 1
        self._listeners.learn(exchange)
        api, client = self._apis[facts.api], self._clients[facts.client]
        api.at(now_ns).add(facts)
        client.at(now_ns).add(facts)
        client.address = exchange.connection.client.ip
        if name := exchange.client_software_name:
            client.software = kept(f"{name} {exchange.client_software_version or ''}".rstrip())
        if facts.errors:
            self._fail(facts, now_ns)
        elif facts.outcome == UNANSWERED:
            self._no_answer += 1
            api.no_answer += 1
            client.no_answer += 1
        self._connect(exchange.connection.key, facts.client, now_ns)
        if not self._topics.keys().isdisjoint(exchange.topic_ids):  # named since
            self._topics.rename(exchange.topic_ids)
        self._count_records(facts, now_ns)
        self._groups.feed(facts, now_ns)

    def overdue(self, outstanding: Exchange, facts: Facts) -> None:
        """Count a request that is overdue, until it is complete. ``facts``: as if it were unanswered now."""
        now_ns = self._advance(facts.exchange.completed_ns)
        api, client = self._apis[facts.api], self._clients[facts.client]
        client.address = facts.exchange.connection.client.ip
        for row in (api, client):
            row.last_seen_ns = now_ns
            row.overdue += 1
        self._overdue.append((outstanding, api, client))

    def connect(self, row: ConnectionLogRow) -> None:
        """Count a connection that has ended."""
        if self.did_not_open(row):
            self._not_opened += 1
        elif row.outstanding_calls and row.ended_by == BROKER:
            self._cut_off += 1
        if row.tcp is not None and row.protocol == KAFKA:
            self._segments += row.tcp.segments(0) + row.tcp.segments(1)
            self._lost += row.tcp.lost(0) + row.tcp.lost(1)

    def did_not_open(self, row: ConnectionLogRow) -> bool:
        """Whether a connection to a Kafka listener did not open."""
        is_listener = row.is_listener or row.broker in self._listeners
        return is_listener and row.opening in UNOPENED

    def now(self) -> PulseSnapshot:
        """The current state."""
        now_ns = self.now_ns or 0
        self._forget_connections(now_ns)
        self._settle_overdue()
        seconds = span_s(now_ns, self._since_ns)
        combined = Load()
        apis = []
        for name, row in _named(self._apis):
            counted = row.recent.sum(now_ns)
            apis.append(_load(name, row, counted, seconds))
            combined.merge(counted)
        everything: PulseRow[Load] = PulseRow(Load)
        everything.failed, everything.no_answer = self._failed, self._no_answer
        everything.overdue = len(self._overdue)
        return PulseSnapshot(
            now_ns=self.now_ns,
            silent_s=max(0, now_ns - self._last_packet_ns) / 1e9,
            idle_s=max(0, now_ns - self._last_exchange_ns) / 1e9,
            seconds=seconds,
            all=_load("", everything, combined, seconds),
            apis=apis,
            topics=[_topic(name, row, now_ns, seconds) for name, row in _named(self._topics)],
            clients=[
                _load(name, row, row.recent.sum(now_ns), seconds)._replace(
                    connections=self._connections_of[name], software=row.software, address=row.address
                )
                for name, row in _named(self._clients)
            ],
            groups=self._groups.rows(now_ns),
            failures=list(reversed(self._failures.values())),
            rebalances=self._groups.rebalances(),
            connections=len(self._connections),
            exchanges=self.exchanges,
            packets=self.packets,
            packets_per_second=self._packet_rate(now_ns),
            not_opened=self._not_opened,
            segments=self._segments,
            lost=self._lost,
            cut_off=self._cut_off,
        )

    def _advance(self, time_ns: int) -> int:
        """Advance packet time; exchanges of other connections may arrive late."""
        if self.now_ns is None:
            self.now_ns = self._since_ns = self._last_packet_ns = time_ns
        elif time_ns > self.now_ns or self.now_ns - time_ns > _CLOCK_STEP_NS:
            self.now_ns = time_ns
        return self.now_ns

    def _fail(self, facts: Facts, now_ns: int) -> None:
        if facts.serious:
            self._failed += 1
            self._apis[facts.api].failed += 1
            self._clients[facts.client].failed += 1
        for each in failures_of(facts):
            failure = facts.kept(each._replace(cluster_id=None))
            before = self._failures.pop(failure, None)
            times = before.times + 1 if before else 1
            is_expected = failure.error in facts.exchange.expected_errors
            self._failures[failure] = FailureSnapshot(failure, times, now_ns, is_expected)
        if len(self._failures) > _MAX_FAILURES:
            self._failures.popitem(last=False)

    def _connect(self, connection: ConnectionKey, client: str, now_ns: int) -> None:
        before = self._connections.pop(connection, None)
        if before is None or before[0] != client:
            self._disconnect(before)
            self._connections_of[client] += 1
        self._connections[connection] = client, now_ns
        if len(self._connections) > self._max_connections:
            self._disconnect(self._connections.popitem(last=False)[1])

    def _disconnect(self, connection: tuple[str, int] | None) -> None:
        if connection is not None:
            self._connections_of[connection[0]] -= 1
            if not self._connections_of[connection[0]]:
                del self._connections_of[connection[0]]

    def _count_records(self, facts: Facts, now_ns: int) -> None:
        for each in facts.touched:
            produced, fetched = each.produced, each.fetched
            if each.error and error_name(each.error) in facts.exchange.expected_errors:
                continue
            if each.error:
                row = self._topics[each.topic]
                row.failed += 1
                row.at(now_ns).failed += 1
            elif produced is not None:
                self._topics[each.topic].at(now_ns).produced.add(produced)
            if fetched is not None and len(fetched):
                flow = self._topics[each.topic].at(now_ns)
                (flow.replicated if facts.replica else flow.fetched).add(fetched)

    def _forget_connections(self, now_ns: int) -> None:
        """Forget idle connections."""
        while self._connections:
            connection, (_, last_seen_ns) = next(iter(self._connections.items()))
            if now_ns - last_seen_ns < _IDLE_NS:
                break
            self._disconnect(self._connections.pop(connection))

    def _settle_overdue(self) -> None:
        """Forget overdue requests that are complete: they have come as exchanges, or are about to."""
        overdue, self._overdue = self._overdue, []
        for entry in overdue:
            outstanding, api, client = entry
            if outstanding.kind:
                api.overdue -= 1
                client.overdue -= 1
            else:
                self._overdue.append(entry)

    def _prune(self, now_ns: int) -> None:
        """Forget idle rows, unless there is no traffic at all: then they show the last state."""
        self._pruned_ns = now_ns
        tables: tuple[Bounded[str, PulseRow[Load]] | Bounded[str, PulseRow[TopicVolume]], ...]
        tables = self._apis, self._clients, self._topics
        for table in tables:
            idle = [name for name, row in table.items() if _is_idle(row, now_ns)]
            for name in idle:
                del table[name]
            if table.other is not None and _is_idle(table.other, now_ns):
                table.other = None

    def _packet_rate(self, now_ns: int) -> float:
        """Packets per second, between two calls."""
        arrivals = self._arrivals
        if arrivals and arrivals[-1][0] > now_ns:
            arrivals.clear()
        if not arrivals or now_ns - arrivals[-1][0] >= _ARRIVALS_NS:
            arrivals.append((now_ns, self.packets))
        while now_ns - arrivals[0][0] > SLICES * SLICE_NS:
            arrivals.popleft()
        since_ns, packets = arrivals[0]
        return (self.packets - packets) * 1e9 / max(SLICE_NS, now_ns - since_ns)


def _is_idle(row: PulseRow[Load] | PulseRow[TopicVolume], now_ns: int) -> bool:
    return not row.overdue and now_ns - row.last_seen_ns >= _IDLE_NS


def _named(table: Bounded[str, PulseRow[Slice]]) -> Iterator[tuple[str, PulseRow[Slice]]]:
    yield from table.items()
    if table.other is not None:
        yield OTHER, table.other


def _load(name: str, row: PulseRow[Load], counted: Load, seconds: float) -> LoadSnapshot:
    p50, p95, p99 = counted.service_us.at(_FRACTIONS)
    return LoadSnapshot(
        name=name,
        per_second=counted.exchanges / seconds,
        p50_us=p50,
        p95_us=p95,
        p99_us=p99,
        failed_per_second=counted.failed / seconds,
        failed=row.failed,
        no_answer=row.no_answer + row.overdue,
        overdue=row.overdue,
        measured=counted.service_us.count,
        waits=counted.wait_us.count / seconds,
        request_bytes=counted.request_bytes / seconds,
        response_bytes=counted.response_bytes / seconds,
        throttled=counted.throttled / seconds,
    )


def _topic(name: str, row: PulseRow[TopicVolume], now_ns: int, seconds: float) -> TopicSnapshot:
    flow = row.recent.sum(now_ns)
    return TopicSnapshot(
        name=name,
        records_in=flow.produced.records / seconds,
        bytes_in=flow.produced.bytes / seconds,
        records_out=flow.fetched.records / seconds,
        bytes_out=flow.fetched.bytes / seconds,
        replicated_bytes=flow.replicated.bytes / seconds,
        failed_per_second=flow.failed / seconds,
        failed=row.failed,
    )


# ------------------------------------------------------------------------------------------------------------
# Values of time slices -> their sum over the last seconds. Holds ``SLICES`` values.
#
# A slice is any value that can be created and merged: a ``Load``, quantiles, a row of counts. Old slices are
# dropped, so values need no subtraction.
# ------------------------------------------------------------------------------------------------------------


SLICE_NS = 1_000_000_000
SLICES = 10
WINDOW_S = SLICES * SLICE_NS // 1_000_000_000

_MIN_S = 1.0  # a shorter time gives no meaningful rate

Value = TypeVar("Value", bound=Mergeable)


def span_s(now_ns: int, since_ns: int) -> float:
    """The seconds that a window covers; ``since_ns`` is when counting began."""
    window_ns = now_ns - (now_ns // SLICE_NS - SLICES + 1) * SLICE_NS
    return max(_MIN_S, min(window_ns, now_ns - since_ns) / 1e9)


class Sliding(Generic[Value]):
    """A sliding window of counts."""

    __slots__ = ("_make", "_slices")

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._slices: deque[tuple[int, Value]] = deque(maxlen=SLICES)

    def at(self, now_ns: int) -> Value:
        """The value of the current slice."""
        number, slices = now_ns // SLICE_NS, self._slices
        if slices:
            last, value = slices[-1]
            if last == number:
                return value
            if last > number:  # the clock was set back
                slices.clear()
        value = self._make()
        slices.append((number, value))
        return value

    def sum(self, now_ns: int) -> Value:
        """The sum of the window, as a new value."""
        number, combined = now_ns // SLICE_NS, self._make()
        for at, value in self._slices:
            if number - SLICES < at <= number:
                combined.merge(value)
        return combined

    def merge(self, other: Sliding[Value]) -> None:
        """Add the slices of another window."""
        slices = dict(self._slices)
        for number, value in other._slices:
            if number in slices:
                slices[number].merge(value)
            else:
                slices[number] = value
        self._slices = deque(sorted(slices.items(), key=lambda item: item[0]), maxlen=SLICES)
