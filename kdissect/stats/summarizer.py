"""Exchanges -> a summary of them: START HERE for what ``kdissect summary`` counts.

    Exchange  ->  facts.py        facts that several parts need, computed once: a tally of one exchange
              ->  tallies.py      exchanges that are alike, counted together
                    traffic.py      APIs, brokers, clients, errors, the slowest
                    record_counts.py topics and partitions
                    cluster.py      node IDs, racks, versions that brokers support
                    intervals.py    time series
                    grouped.py      combinations of columns
                    by_cluster.py   a part for each cluster: of topics, and the parts marked *
                    groups.py*      members and rebalances of groups
                    lag.py*         lag of clients and groups
                    client_connections.py connections, from opening to end
                    versions.py     versions in use, and those newer brokers reject
                    transactions.py* transactions, fenced producers, sequence numbers
                    findings/*      likely problems: rules.py lists the rules
              ->  rows.py         counts to rows
                  health.py       the verdict on the traffic
              ->  document.py     the typed result

Every part has one ``feed``, declares which tallies it ``takes``, has ``merge`` (sums.py) and bounded tables
(quantiles.py): summaries of parts of a capture, divided by connection, merge into the summary of the capture.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kdissect.exchanges.fetch_sessions import FetchSessions
from kdissect.exchanges.learned import LearnedFacts
from kdissect.limits import DEFAULT, SECOND_NS, Limits
from kdissect.sinks.sink import Demand
from kdissect.sinks.tallies import Tallies
from kdissect.stats import rows
from kdissect.stats.by_cluster import ByCluster
from kdissect.stats.client_connections import ClientConnections
from kdissect.stats.cluster import Cluster
from kdissect.stats.connection_log import ConnectionFeed
from kdissect.stats.contents import COUNTED_BY_CORE, FORMS, ONE, SUM
from kdissect.stats.core_tallies import tally_plan
from kdissect.stats.document import SCHEMA_VERSION, CaptureRow, ExchangesByRow, RecordsByRow, Summary
from kdissect.stats.facts import Facts
from kdissect.stats.findings.rules import Findings
from kdissect.stats.grouped import Grouped, columns_of, largest_first
from kdissect.stats.groups import Groups
from kdissect.stats.health import health
from kdissect.stats.intervals import Intervals
from kdissect.stats.lag import Lag, largest_lag_first, worst_first
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.record_counts import RecordCounts
from kdissect.stats.sums import Summed, fed, merged, merged_by_name, own, summed, values_of
from kdissect.stats.tallies import Load, Summing
from kdissect.stats.traffic import Traffic
from kdissect.stats.transactions import Transactions
from kdissect.stats.versions import VersionUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kdissect.exchanges.fetch_sessions import Position
    from kdissect.model import Exchange
    from kdissect.net.dns import Resolved
    from kdissect.options import Options
    from kdissect.query.filters import Filter
    from kdissect.sinks.plan import PartitionTest, PlanContext, TallyPlan
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.quality import Check
    from kdissect.stats.tallies import Alike, Tally

    class Dissected(Protocol):
        """Exchanges and other counts: a ``Dissection``."""

        counts: Mapping[str, int]
        skipped: Mapping[str, int]

        def __iter__(self) -> Iterator[Exchange]:
            """Exchanges in order of completion."""


Counted = TypeVar("Counted", "Summarizer", "HealthCounts")

_CHUNK = 64
"""Most exchanges that wait to be counted. Then each part counts all of them before the next part does: that
takes a fifth less time than exchange by exchange, because less code is in use at a time."""
_WAITING_BYTES = 1 << 20
"""Most bytes of their frames."""
_CONNECTIONS = "connections: "

PARTS: dict[str, Callable[[Limits], Any]] = {
    "group_history": lambda limits: ByCluster(partial(Groups, limits), limits),
    "lag": lambda limits: ByCluster(partial(Lag, limits), limits, largest_lag_first),
    "versions": VersionUse,
    "transactions": lambda limits: ByCluster(partial(Transactions, limits), limits),
    "client_connections": ClientConnections,
    "findings": Findings,
}
"""Optional parts, by their name in the document."""
OF_PARTS = {
    "quality_findings": "findings",
    "lag_over_time": "lag",
    "host_connections": "client_connections",
    "connections_over_time": "client_connections",
}
"""Further tables of the document, and the part that counts them."""
OF_CONNECTIONS = frozenset({"client_connections", "findings"})
"""Those that also count connections, with ``connect``."""


@summed
class Summarizer(Summed):
    """Counts exchanges.

    Args:
        limits: sizes of the tables.
        by: further tables, names of ``traffic.BY``.
        grouped: columns of one table by several, names of ``traffic.BY``; empty: no such table.
        interval_ns: length of an interval of the time series; 0: no time series.
        max_intervals: if there are more, their length doubles; 0: it does not.
        slowest: number of slowest exchanges to list, and of unanswered requests.
        parts: optional parts, names of ``PARTS``.
    """

    traffic: Traffic = merged()
    records: ByCluster = merged()
    cluster: Cluster = merged()
    intervals: Intervals | None = merged()
    grouped: ByCluster | None = merged()
    parts: dict[str, Any] = merged_by_name()
    learned: LearnedFacts = merged()
    _by: frozenset[str] = own()
    _grouped: tuple[str, ...] = own()
    _sessions: FetchSessions = fed()
    _feeds: dict[str, Sequence[Callable[[Any], object]]] = fed(partial(dict.fromkeys, FORMS, ()))  # by form
    _summing: Summing = fed(partial(Summing, DEFAULT, ()))
    _waiting: list[Facts] = fed(list)
    _waiting_bytes: int = fed(int)

    def __init__(
        self,
        limits: Limits = DEFAULT,
        *,
        by: frozenset[str] = frozenset(),
        grouped: Sequence[str] = (),
        parts: frozenset[str] = frozenset(),
        interval_ns: int = 0,
        max_intervals: int = 0,
        slowest: int = 10,
    ) -> None:
        self.traffic = Traffic(limits, by, slowest)
        self.records = ByCluster(
            partial(RecordCounts, limits, by_partition="partition" in by), limits, rows.by_bytes
        )
        self.cluster = Cluster(limits)
        self.intervals = Intervals(limits, interval_ns, by, max_intervals) if interval_ns else None
        columns = columns_of(grouped)
        self.grouped = (
            ByCluster(partial(Grouped, limits, columns), limits, largest_first) if columns else None
        )
        self.parts = {name: PARTS[name](limits) for name in sorted(parts)}
        self.learned = LearnedFacts(limits)
        self._by, self._grouped = by, columns
        self._sessions = FetchSessions(limits)
        counters = self.traffic, self.traffic.tables, self.records, self.cluster, self.intervals, self.grouped
        self._feeds = {
            form: [
                counter.feed
                for counter in (*counters, *self.parts.values())
                if counter is not None and form in counter.takes
            ]
            for form in FORMS
        }
        self._summing = Summing(
            limits,
            self._feeds[SUM],
            by_group="group" in by,
            by_connection="connection" in by,
        )
        self._waiting, self._waiting_bytes = [], 0

    def feed(
        self,
        exchange: Exchange,
        is_partition: PartitionTest | None = None,
        positions: Sequence[Position] | None = None,
    ) -> None:
        """Count an exchange, and of its partitions those that are selected. Some counts wait for
        ``settle``. ``positions``: as for ``Facts``.
        """
        self._waiting.append(Facts(exchange, self._sessions, is_partition, positions))
        self._waiting_bytes += exchange.held_bytes + exchange.decoded_bytes
        if len(self._waiting) >= _CHUNK or self._waiting_bytes >= _WAITING_BYTES:
            self._count()

    def core_plan(
        self, context: PlanContext, log: ConnectionFeed, is_partition: PartitionTest | None = None
    ) -> TallyPlan:
        """How the native core can count usual exchanges.

        Args:
            context: see ``tally_plan``.
            log: counts the connections.
            is_partition: see ``tally_plan``.
        """
        return tally_plan(
            context,
            log,
            self._feed_counted,
            self.feed,
            self._sessions,
            slowest=self.traffic.slowest,
            interval=lambda: 0 if self.intervals is None else self.intervals.length_ns,
            by=self._by.union(self._grouped, () if self.intervals is None else self.intervals.apart),
            is_partition=is_partition,
        )

    def _feed_counted(self, tally: Alike) -> None:
        """Count exchanges that the core has counted."""
        for feed in self._feeds[COUNTED_BY_CORE]:
            feed(tally)
        for topic in tally.topics:
            if topic.id is not None:
                self.learned.learn_topic(topic.id, topic.name, topic.named_ns)
        if (exemplar := tally.exemplar) is not None:
            for topic_id, name in exemplar.topic_ids.items():
                self.learned.learn_topic(topic_id, name, tally.completed.first_ns)
        self._summing.feed(tally)

    def settle(self) -> None:
        """Count everything that waits."""
        self._count()
        self._summing.settle()

    def _count(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for feed in (self._summing.feed, *self._feeds[ONE]):
            for facts in waiting:
                feed(facts)
        for facts in waiting:
            for topic_id, name in facts.exchange.topic_ids.items():
                self.learned.learn_topic(topic_id, name, facts.exchange.completed_ns)

    def merge(self, other: Summarizer) -> None:
        """Add the counts of another part of the same captures."""
        self.settle()
        other.settle()
        Summed.merge(self, other)

    @property
    def takes_connections(self) -> bool:
        """Whether ``connect`` must be called with each connection that has ended."""
        return not OF_CONNECTIONS.isdisjoint(self.parts)

    def connection_feed(self, limits: Limits, *, filtered: bool) -> ConnectionFeed:
        """What passes connections on to ``connect``, as observer of a dissection.

        Args:
            limits: of the feed.
            filtered: as for ``ConnectionFeed``.
        """
        feed = ConnectionFeed(limits, self.connect, filtered=filtered)
        feed.on_name.append(self.resolved)
        return feed

    def sink(self, options: Options, criteria: Filter) -> Tallies[Summarizer, ConnectionFeed]:
        """What counts the exchanges of a dissection, whose observer is its ``connections``.

        Args:
            options: of the dissection.
            criteria: those of the options.
        """
        return _sink(self, options, criteria)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count a connection that has ended, after all its exchanges."""
        self._count()
        if self.intervals is not None:
            self.intervals.connect(row)
        for name in OF_CONNECTIONS.intersection(self.parts):
            self.parts[name].connect(row)

    def resolved(self, response: Resolved) -> None:
        """Count a DNS response."""
        if (findings := self.parts.get("findings")) is not None:
            findings.resolved(response)

    def close(
        self,
        captures: Sequence[str],
        counts: Mapping[str, int],
        skipped: Mapping[str, int],
        check: Check | None = None,
    ) -> Summary:
        """Return the summary.

        Args:
            captures: names of the captures.
            counts: ``Dissection.counts``.
            skipped: ``Dissection.skipped``.
            check: what is known about the capture; None: nothing.
        """
        self.settle()
        names = {topic_id: name for topic_id, (name, _) in self.learned.topics.items()}
        for value in values_of(self):
            if isinstance(value, Bounded):
                value.rename(names)  # counted before a name was seen
        traffic, records, by = self.traffic, self.records.rows_of, self._by
        seconds = self._seconds()
        parts = {name: self.parts[name].rows() if name in self.parts else None for name in PARTS}
        findings = parts["findings"]
        is_series, lag, ended = (
            self.intervals is not None,
            self.parts.get("lag"),
            self.parts.get("client_connections"),
        )
        grouped = [] if self.grouped is None else self.grouped.rows_of(lambda part: part.rows(seconds))
        return Summary(
            schema_version=SCHEMA_VERSION,
            quality=None if check is None else check.quality,
            quality_findings=None if check is None or findings is None else check.doubts,
            health=None if findings is None else health(findings, traffic.tables.all),
            capture=self._capture(captures, counts, skipped, seconds),
            apis=rows.apis(traffic, seconds),
            brokers=rows.brokers(traffic, self.cluster, seconds),
            clients=rows.clients(traffic, seconds),
            topics=records(partial(rows.topics, seconds=seconds)),
            partitions=records(partial(rows.partitions, seconds=seconds)) if "partition" in by else None,
            groups=rows.groups(traffic, seconds) if "group" in by else None,
            connections=rows.connections(traffic, seconds) if "connection" in by else None,
            exchanges_by=[row for row in grouped if isinstance(row, ExchangesByRow)] or None,
            records_by=[row for row in grouped if isinstance(row, RecordsByRow)] or None,
            errors=rows.errors(traffic),
            unanswered=rows.unanswered(traffic, names),
            slowest=rows.slowest(traffic, names),
            waits=rows.waits(traffic),
            intervals=None if self.intervals is None else self.intervals.rows(),
            busiest=None if self.intervals is None else self.intervals.busiest(names),
            lag_over_time=lag.rows_of(Lag.over_time, worst_first) if is_series and lag is not None else None,
            host_connections=None if ended is None else ended.host_rows(),
            connections_over_time=ended.over_time() if is_series and ended is not None else None,
            **parts,
            other=self._other_counts(),
        )

    def _seconds(self) -> float:
        counted = self.traffic.tables.all
        first_ns, last_ns = counted.first_ns, counted.last_ns
        return 0.0 if first_ns is None or last_ns is None else (last_ns - first_ns) / SECOND_NS

    def _capture(
        self, captures: Sequence[str], counts: Mapping[str, int], skipped: Mapping[str, int], seconds: float
    ) -> CaptureRow:
        counted = self.traffic.tables.all
        return CaptureRow(
            captures=list(captures),
            packets=counts.get("packets", 0),
            connections={
                name.removeprefix(_CONNECTIONS): count
                for name, count in sorted(counts.items())
                if name.startswith(_CONNECTIONS)
            },
            exchanges=counted.exchanges,
            first=None if counted.first_ns is None else rows.moment(counted.first_ns),
            last=None if counted.last_ns is None else rows.moment(counted.last_ns),
            seconds=seconds,
            request_bytes=counted.request_bytes,
            response_bytes=counted.response_bytes,
            lost_bytes=counts.get("lost_bytes", 0) + counts.get("cut_bytes", 0),
            gaps=counts.get("gaps", 0),
            anomalies=rows.ranked(self.traffic.anomalies),
            skipped=rows.ranked(skipped),
        )

    def _other_counts(self) -> dict[str, int]:
        tables = self.traffic.tables
        counts = other_counts(
            apis=(tables.apis, "exchanges"),
            brokers=(tables.brokers, "exchanges"),
            clients=(tables.clients, "exchanges"),
            groups=(tables.groups, "exchanges"),
            connections=(tables.connections, "exchanges"),
            errors=(self.traffic.failures, "count"),
        )
        for part in (self.records, self.intervals, self.grouped, *self.parts.values()):
            counts |= {} if part is None else part.other_counts()
        return counts


@summed
class HealthCounts(Summed):
    """What the verdict on the traffic depends on: findings, and the load of exchanges.

    Args:
        limits: sizes of tables.
    """

    findings: Findings = merged()
    load: Load = merged()
    sessions: FetchSessions = fed()
    _summing: Summing = fed(partial(Summing, DEFAULT, ()))

    def __init__(self, limits: Limits) -> None:
        self.findings, self.load = Findings(limits), Load()
        self.sessions = FetchSessions(limits)
        self._summing = Summing(limits, [self.findings.feed, self.load.add])

    def sink(self, options: Options, criteria: Filter) -> Tallies[HealthCounts, ConnectionFeed]:
        """See ``Summarizer``."""
        return _sink(self, options, criteria)

    def feed(
        self,
        exchange: Exchange,
        is_partition: PartitionTest | None = None,
        positions: Sequence[Position] | None = None,
    ) -> None:
        """See ``Summarizer``."""
        self.count(Facts(exchange, self.sessions, is_partition, positions))

    def count(self, tally: Tally) -> None:
        """Count a tally; the facts of an exchange must know of ``sessions``."""
        self.findings.feed(tally)
        self._summing.feed(tally)

    def core_plan(
        self, context: PlanContext, log: ConnectionFeed, is_partition: PartitionTest | None = None
    ) -> TallyPlan:
        """What the core must know to count exchanges."""
        return tally_plan(
            context,
            log,
            self.count,
            self.feed,
            self.sessions,
            is_partition=is_partition,
        )

    def settle(self) -> None:
        """Count what waits."""
        self._summing.settle()

    def connect(self, row: ConnectionLogRow) -> None:
        """Count a connection that has ended, after all its exchanges."""
        self.findings.connect(row)

    def resolved(self, response: Resolved) -> None:
        """Count a DNS response."""
        self.findings.resolved(response)


def _sink(counts: Counted, options: Options, criteria: Filter) -> Tallies[Counted, ConnectionFeed]:
    filtered = not criteria.is_empty or bool(options.exchanges)
    observer = ConnectionFeed(options.limits, counts.connect, filtered=filtered)
    observer.on_name.append(counts.resolved)
    demand = Demand.of(options, criteria, one_by_one=criteria.may_exclude_ids)
    return Tallies(counts, observer, demand, is_partition=criteria.is_partition)


def full_tables(counts: Summarizer | HealthCounts) -> int:
    """How many tables count names together that they have no room for."""
    return sum(isinstance(value, Bounded) and value.other is not None for value in values_of(counts))


def summarize(
    exchanges: Dissected | Iterable[Exchange],
    *,
    limits: Limits = DEFAULT,
    by: Iterable[str] = (),
    parts: Iterable[str] = (),
    interval_s: float = 0,
    slowest: int = 10,
) -> Summary:
    """Summarize exchanges, for example those of ``dissect(packets)``.

    Args:
        exchanges: a ``Dissection``, which must not have begun if ``parts`` has findings or connections; or
            any exchanges, of which only those are counted.
        limits: sizes of the tables.
        by: further tables: ``partition``, ``group``, ``connection``.
        parts: optional parts: names of ``PARTS``.
        interval_s: length of an interval of the time series in seconds; 0: none.
        slowest: number of slowest exchanges to list.
    """
    summarizer = Summarizer(
        limits,
        by=frozenset(by),
        parts=frozenset(parts),
        interval_ns=round(interval_s * SECOND_NS),
        slowest=slowest,
    )
    takes_connections = summarizer.takes_connections
    connections = summarizer.connection_feed(limits, filtered=False) if takes_connections else None
    observe = getattr(exchanges, "observe", None)
    if connections is not None and observe is not None:
        observe(connections)
    captures: dict[str, None] = {}
    for exchange in exchanges:
        captures[exchange.first_frame.interface.capture] = None
        summarizer.feed(exchange)
        if connections is not None:
            connections.exchange(exchange)
    if connections is not None:
        connections.close()
    return summarizer.close(
        list(captures), getattr(exchanges, "counts", {}), getattr(exchanges, "skipped", {})
    )
