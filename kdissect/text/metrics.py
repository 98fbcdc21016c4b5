"""Facts of exchanges and current statistics -> metrics for Prometheus. Holds a limited number of series.

    metrics = Metrics(limits, pulse.now, drops)
    metrics.feed(facts)
    prometheus_client.generate_latest(metrics.registry)

Counters are updated by ``feed``; gauges are read when a scrape collects them. The first
``limits.metric_labels`` topics, clients and groups have their own series, the others are counted together:
a server keeps each name for weeks, and a client can send any number of names. docs/metrics.md explains each
metric.
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING

from kdissect.errors import UsageError
from kdissect.exchanges.latency import FETCHES, waiter
from kdissect.extras import install
from kdissect.kafka.codes import error_name
from kdissect.model import UNANSWERED
from kdissect.phrases import printable
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.pulse import OTHER
from kdissect.stats.pulse_groups import STATES
from kdissect.stats.survey import KAFKA
from kdissect.version import __version__

try:
    from prometheus_client import (
        CollectorRegistry,
        Counter,
        Histogram,
        ProcessCollector,
        disable_created_metrics,
    )
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError as error:
    raise UsageError(f"--prometheus needs prometheus-client: {install('metrics')}") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

    from kdissect.limits import Limits
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.pulse import PulseSnapshot

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: brokers answer within milliseconds, and clients time out after 30 s by default."""

_NAME_CHARACTERS = 200  # of a label; a client ID may have 32,767


class Names:
    """Names -> labels: the first ``max_names`` names, made printable; ``OTHER`` for the rest."""

    def __init__(self, max_names: int) -> None:
        self._known: set[str] = set()
        self._max_names = max_names

    def __call__(self, name: str) -> str:
        """The label of a name."""
        name = printable(name[:_NAME_CHARACTERS])
        if name not in self._known:
            if len(self._known) >= self._max_names:
                return OTHER
            self._known.add(name)
        return name


class Metrics:
    """Counts, and is collected by a scrape.

    Args:
        limits: for ``metric_labels``.
        now: returns the current statistics; called in the thread that serves the scrape.
        drops: returns packets dropped by the kernel, and by kdissect.

    Attributes:
        registry: all metrics.
    """

    def __init__(
        self, limits: Limits, now: Callable[[], PulseSnapshot], drops: Callable[[], tuple[int, int]]
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # an extra series for each, with its start time
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self._now = now
        self._drops = drops
        max_names = limits.metric_labels
        self._apis, self._errors, self._topics = Names(max_names), Names(max_names), Names(max_names)
        self._clients, self._groups, self._waiters = Names(max_names), Names(max_names), Names(max_names)
        self._exchanges = self._counter("exchanges", "Exchanges, by kind.", "api", "kind")
        self._failures = self._counter("errors", "Exchanges with an error code, by error.", "api", "error")
        self._expected = self._counter(
            "expected_errors", "Errors that are normal steps of the protocol, by error.", "api", "error"
        )
        self._no_answer = self._counter(
            "unanswered_requests", "Requests that ended without a response.", "api"
        )
        self._incomplete = self._counter(
            "incomplete_messages",
            "Requests and responses that began but did not end, because the connection did.",
            *("api", "message"),
        )
        self._requests = self._counter("request_bytes", "Bytes of request frames.", "api")
        self._responses = self._counter("response_bytes", "Bytes of response frames.", "api")
        self._long_polls = self._counter(
            "long_polls", "Fetches that waited for records. Use kdissect_wait_seconds_count.", "api"
        )
        self._throttled = self._counter("throttled_exchanges", "Responses with a throttle time.", "api")
        self._latency = self._histogram(
            "latency",
            "Time from request to response, excluding requests that waited. Use kdissect_service_seconds.",
        )
        self._service = self._histogram(
            "service", "Service time: latency without queueing, throttling, retransmissions and waits."
        )
        self._wait = self._histogram("wait", "Time that the broker waited for records or group members.")
        self._total = self._histogram(
            "total", "Time that clients waited at least, from the first byte sent to the last one received."
        )
        self._undetermined = self._counter(
            "undetermined", "Responses whose service time and wait are unknown.", "api"
        )
        self._records = self._counter("topic_records", "Records, by topic.", "topic", "direction")
        self._bytes = self._counter("topic_bytes", "Bytes of record batches.", "topic", "direction")
        self._topic_errors = self._counter("topic_errors", "Partition-level errors.", "topic")
        self._client_exchanges = self._counter("client_exchanges", "Exchanges, by client.", "client")
        self._client_errors = self._counter(
            "client_errors", "Exchanges with an error code, by client.", "client"
        )
        self._client_no_answer = self._counter(
            "client_unanswered_requests", "Requests that ended without a response, by client.", "client"
        )
        self._ended = self._counter(
            "connections_ended", "Kafka connections that ended, by the first FIN or RST.", "by", "flag"
        )
        self._cut_off = self._counter(
            "connections_cut_off", "Connections that brokers ended while requests were outstanding."
        )
        self._not_opened = self._counter(
            "connections_not_opened", "Connections to Kafka listeners that did not open.", "result"
        )
        self._segments = self._counter("tcp_segments", "Data segments of ended connections.", "end")
        self._retransmissions = self._counter(
            "tcp_retransmissions", "Necessary retransmissions of ended connections.", "end"
        )
        self._zero_window = self._counter(
            "tcp_zero_window_seconds", "Total time with a zero receive window, of ended connections.", "end"
        )
        self._connect = Histogram(
            "kdissect_connect_seconds",
            "Time from the first SYN to the end of the TCP handshake.",
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._anomalies = self._counter("anomalies", "Anomalies in the data.", "kind")
        self.registry.register(self)

    def feed(self, facts: Facts) -> None:
        """Count an exchange."""
        exchange = facts.exchange
        api, client = self._apis(facts.api), self._clients(facts.client)
        self._exchanges.labels(api, exchange.kind).inc()
        self._client_exchanges.labels(client).inc()
        if facts.outcome == UNANSWERED:
            self._no_answer.labels(api).inc()
            self._client_no_answer.labels(client).inc()
        if exchange.announced is not None:
            self._incomplete.labels(api, "response" if exchange.is_cut else "request").inc()
        if exchange.request_frame is not None:
            self._requests.labels(api).inc(exchange.request_frame.wire_bytes)
        if exchange.response_frame is not None:
            self._responses.labels(api).inc(exchange.response_frame.wire_bytes)
        if facts.latency_us is not None:
            self._time(facts, api, facts.latency_us)
        if (total_us := exchange.total_us) is not None:
            self._total.labels(self._waiters(waiter(exchange) or api)).observe(total_us / 1e6)
        if facts.serious:
            self._client_errors.labels(client).inc()
        for error in facts.errors:
            counter = self._failures if error in facts.serious else self._expected
            counter.labels(api, self._errors(error)).inc()
        if facts.throttle_ms > 0:
            self._throttled.labels(api).inc()
        for anomaly in exchange.anomalies:
            self._anomalies.labels(anomaly.kind).inc()
        self._count_partitions(facts)

    def connect(self, row: ConnectionLogRow, *, did_not_open: bool) -> None:
        """Count a connection that has ended. ``did_not_open``: as in ``Pulse``."""
        tcp = row.tcp
        if did_not_open:
            self._not_opened.labels(row.opening).inc()
        if tcp is None or row.protocol != KAFKA:
            return
        if row.end is not None:
            self._ended.labels(row.ended_by, "RST" if row.end.reset else "FIN").inc()
        if row.outstanding_calls and row.ended_by == BROKER:
            self._cut_off.inc()
        if tcp.connect_ns is not None:
            self._connect.observe(tcp.connect_ns / 1e9)
        for end, side in ((CLIENT, row.client_side), (BROKER, 1 - row.client_side)):
            self._segments.labels(end).inc(tcp.segments(side))
            self._retransmissions.labels(end).inc(tcp.lost(side))
            self._zero_window.labels(end).inc(tcp.zero_window_ns(side, row.closed_ns or 0) / 1e9)

    def collect(self) -> Iterator[Metric]:
        """The current state, for a scrape."""
        now = self._now()
        info = GaugeMetricFamily("kdissect_build_info", "Build information.", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield CounterMetricFamily("kdissect_packets", "Packets captured.", value=now.packets)
        dropped = CounterMetricFamily(
            "kdissect_packets_dropped", "Packets dropped, by component.", labels=["by"]
        )
        for by, count in zip(("kernel", "kdissect"), self._drops(), strict=True):
            dropped.add_metric([by], count)
        yield dropped
        yield GaugeMetricFamily(
            "kdissect_last_packet_age_seconds", "Time since the latest packet.", value=now.silent_s
        )
        yield GaugeMetricFamily(
            "kdissect_connections", "Connections active in the last minute.", value=now.connections
        )
        overdue: Tally[str] = Tally()
        for row in now.apis:
            overdue[self._apis(row.name)] += row.overdue
        yield _gauge(
            "overdue_requests", "Outstanding requests that the broker should have answered.", "api", overdue
        )
        yield from self._collect_clients(now)
        yield from self._collect_groups(now)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"kdissect_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"kdissect_{name}_seconds", text, ["api"], registry=self.registry, buckets=BUCKETS)

    def _time(self, facts: Facts, api: str, latency_us: int) -> None:
        if facts.wait_us is not None:
            self._wait.labels(self._waiters(waiter(facts.exchange) or api)).observe(facts.wait_us / 1e6)
            if facts.exchange.api_key in FETCHES:
                self._long_polls.labels(api).inc()
            return
        self._latency.labels(api).observe(latency_us / 1e6)
        if facts.service_us is not None:
            self._service.labels(api).observe(facts.service_us / 1e6)
        else:
            self._undetermined.labels(api).inc()

    def _count_partitions(self, facts: Facts) -> None:
        for each in facts.touched:
            data = each.produced or each.fetched
            if not (each.error or data):
                continue
            topic = self._topics(each.topic)
            if each.error and error_name(each.error) not in facts.exchange.expected_errors:
                self._topic_errors.labels(topic).inc()
            if data and not (each.error and each.produced):
                direction = "produced" if each.produced else "replicated" if facts.replica else "fetched"
                self._records.labels(topic, direction).inc(data.count() or 0)
                self._bytes.labels(topic, direction).inc(len(data))

    def _collect_clients(self, now: PulseSnapshot) -> Iterator[Metric]:
        connections: Tally[str] = Tally()
        overdue: Tally[str] = Tally()
        info = GaugeMetricFamily("kdissect_client_info", "Client library.", labels=["client", "software"])
        for row in now.clients:
            client = self._clients(row.name)
            connections[client] += row.connections
            overdue[client] += row.overdue
            if row.software and client != OTHER:
                info.add_metric([client, printable(row.software[:_NAME_CHARACTERS])], 1)
        yield _gauge(
            "client_connections",
            "Connections of the client active in the last minute.",
            "client",
            connections,
        )
        yield _gauge(
            "client_overdue_requests",
            "Outstanding requests of the client that the broker should have answered.",
            "client",
            overdue,
        )
        yield info

    def _collect_groups(self, now: PulseSnapshot) -> Iterator[Metric]:
        members: Tally[str] = Tally()
        lags: Tally[str] = Tally()
        rebalances = CounterMetricFamily("kdissect_group_rebalances", "Rebalances.", labels=["group"])
        state = GaugeMetricFamily(
            "kdissect_group_state", "Current state of the group (1 = active).", labels=["group", "state"]
        )
        for row in now.groups:
            group = self._groups(row.name)
            members[group] += row.members
            if row.lag is not None:
                lags[group] += row.lag
            if group != OTHER:
                rebalances.add_metric([group], row.rebalances)
                for each in STATES if row.state is not None else ():
                    state.add_metric([group, each], row.state == each)
        yield _gauge("group_members", "Members active in the last minute.", "group", members)
        yield _gauge(
            "group_lag_records",
            "Records between the committed offsets and the ends of the partitions.",
            "group",
            lags,
        )
        yield rebalances
        yield state


def _gauge(name: str, text: str, label: str, values: Tally[str]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"kdissect_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
