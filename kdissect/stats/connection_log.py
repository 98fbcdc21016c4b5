"""Connections and exchanges, as they are dissected -> one row per connection, once it is complete.

When a connection ends, some of its exchanges may still be waiting to be ordered or for a topic name. So a row
is finished when its connection has ended and all its exchanges have arrived. A connection that never opened
has a row only if its far end is a Kafka listener, which may become known later. Holds a row of about 1,000
bytes for each connection that is open (``limits.connections``) or has waiting exchanges (``order_rows``,
``naming_rows``), and for those that never opened (``unopened_connections``).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges import content
from kdissect.exchanges.outcomes import WAITING_APIS, outcome
from kdissect.exchanges.pairing import NO_HANDSHAKE
from kdissect.limits import MILLISECOND_NS
from kdissect.model import (
    ANSWERED,
    INCOMPLETE,
    INCOMPLETE_REQUEST,
    ORPHAN,
    UNACKNOWLEDGED,
    UNANSWERED,
    TlsSession,
)
from kdissect.names import kept
from kdissect.stats.survey import KAFKA, Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.limits import Limits
    from kdissect.model import (
        Anomaly,
        Body,
        Closed,
        ConnectionInfo,
        ConnectionKey,
        Endpoint,
        Exchange,
        Interface,
        Proxy,
    )
    from kdissect.net.analysis import End, TcpAnalysis
    from kdissect.net.connection import Connection
    from kdissect.net.dns import Resolved

CLIENT, BROKER = "client", "broker"

TLS_ALERT = "tls_alert"
"""The anomaly of a request that was rejected with a TLS alert."""
_LOGIN_APIS = frozenset({"SaslHandshake", "SaslAuthenticate"})
HANDSHAKE_APIS = _LOGIN_APIS | {"ApiVersions"}
REFUSED = frozenset({"UNSUPPORTED_VERSION", "REBOOTSTRAP_REQUIRED"})
_TOKEN = "SASL token"
_MALFORMED = frozenset({"malformed_header", "malformed_body"})
_NO_TLS = TlsSession()
_NO_GAPS: Mapping[str, int] = {}
_NO_KEYS: frozenset[int | None] = frozenset()


class Session(NamedTuple):
    """A login's: when it ends, and its lifetime."""

    end_ns: int
    lifetime_ns: int


class ConnectionLogRow:
    """One connection.

    Attributes:
        key: what identifies it in this run.
        capture: the file in which it starts.
        first_ns: time of its first packet; of its first exchange as long as it is open.
        last_ns: time of its last bytes.
        client, broker: the two ends; if no message shows which is which, the client is the one that
            opened it. If a PROXY header names the client, it is that one.
        hop, proxy, cluster_id: as in ``model.ConnectionInfo``.
        close_reason: as in ``model.Closed``; None if reading stopped before it ended.
        protocol: ``Kafka``, ``TLS`` ...; None if not recognized.
        from_start: whether its start was captured.
        client_id: of the first request that has one, as it is ``kept``.
        gaps, lost_at: as in ``KafkaConnection``.
        kinds: exchanges by kind.
        no_answer: requests that the broker did not answer; ``incomplete``: exchanges with a message that did
            not end.
        errors: exchanges whose response has an error.
        out_of_order: segments captured out of order; None while it is open, like the next three.
        exchanges_total: its number of exchanges; None while it is open.
        resyncs, skipped_bytes, unread_bytes: as in ``KafkaConnection``.
        unattached: anomalies after the last exchange.
        tcp, client_side: its TCP analysis, and which side of it is the client; None while it is open.
        opening: as in ``TcpAnalysis``; None if its SYN was not captured, and while it is open.
        end: who ended it; None if neither a FIN nor an RST was captured.
        closed_ns: packet time of its end.
        repeated: bytes that were captured again, by side.
        seen: by side, whether any packet was captured.
        requests: those besides ApiVersions and SASL; None: none has a header.
        outstanding: requests without a response at its end.
        outstanding_bytes: the largest of those requests.
        session: of the last login, if it has a lifetime (KIP-368).
        outstanding_calls, outstanding_ns, outstanding_api: of those that do not wait by design, as Fetch and
            JoinGroup do: their number, when the first was sent, API and version of the last.
        waited: keys of the APIs of answered requests that wait by design.
        held_api: API and version of the last outstanding request that waits by design, and is not of those.
        last_call: when the last answered request that does not wait by design was sent, and when its response
            came.
        tls: its TLS session; empty if it is not TLS.
        tls_alerts: requests that the broker rejected with a TLS alert.
        bare_tokens: SASL tokens without SaslHandshake that were not answered; ``malformed``: requests that do
            not follow their schema, which were not answered either.
        served: answered requests after the handshake.
        is_refused: whether a response says why the client cannot use the connection: a failed login, a
            version that the broker does not have, another broker or cluster than expected (KIP-1242).
        throttle_ns: the sum of the throttle times in its responses, for which brokers do not read from it
            (KIP-219); ``muted_ns``: until when, at least.
        is_listener: whether its far end was known as a Kafka listener when it ended, or did not open.
        is_selected: whether any of its exchanges matches the filters.
    """

    __slots__ = (
        "anomalies",
        "bare_tokens",
        "broker",
        "capture",
        "client",
        "client_id",
        "client_side",
        "client_software_name",
        "client_software_version",
        "close_reason",
        "closed_ns",
        "cluster_id",
        "end",
        "exchanges_total",
        "first_ns",
        "from_start",
        "gaps",
        "held_api",
        "hop",
        "incomplete",
        "is_listener",
        "is_refused",
        "is_selected",
        "key",
        "kinds",
        "last_call",
        "last_ns",
        "lost_at",
        "malformed",
        "muted_ns",
        "no_answer",
        "opening",
        "out_of_order",
        "outstanding",
        "outstanding_api",
        "outstanding_bytes",
        "outstanding_calls",
        "outstanding_ns",
        "principal",
        "protocol",
        "proxy",
        "repeated",
        "request_bytes",
        "requests",
        "response_bytes",
        "resyncs",
        "sasl_mechanism",
        "seen",
        "served",
        "session",
        "skipped_bytes",
        "tcp",
        "throttle_ns",
        "tls",
        "tls_alerts",
        "unattached",
        "unread_bytes",
        "waited",
    )  # fmt: skip

    def __init__(self, key: ConnectionKey, capture: str, client: Endpoint, broker: Endpoint) -> None:
        self.key = key
        self.capture = capture
        self.client, self.broker = client, broker
        self.hop: Endpoint | None = None
        self.proxy: Proxy | None = None
        self.cluster_id: str | None = None
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.close_reason: str | None = None
        self.protocol: str | None = KAFKA
        self.from_start: bool | None = None
        self.client_id: str | None = None
        self.client_software_name: str | None = None
        self.client_software_version: str | None = None
        self.principal: str | None = None
        self.sasl_mechanism: str | None = None
        self.exchanges_total: int | None = None
        self.kinds: Counter[str] = Counter()
        self.request_bytes = self.response_bytes = self.anomalies = self.no_answer = self.incomplete = 0
        self.gaps: Mapping[str, int] = _NO_GAPS
        self.lost_at: Sequence[tuple[int, int]] = ()
        self.tcp: TcpAnalysis | None = None
        self.opening: str | None = None
        self.client_side = 0
        self.end: End | None = None
        self.closed_ns: int | None = None
        self.repeated = self.seen = (0, 0)
        self.outstanding = self.outstanding_calls = self.served = self.tls_alerts = self.bare_tokens = 0
        self.malformed = 0
        self.requests: int | None = None
        self.outstanding_ns: int | None = None
        self.outstanding_api: str | None = None
        self.held_api: str | None = None
        self.waited: frozenset[int | None] = _NO_KEYS
        self.tls = _NO_TLS
        self.last_call: tuple[int, int] | None = None
        self.out_of_order: int | None = None
        self.resyncs: int | None = None
        self.skipped_bytes: int | None = None
        self.unread_bytes: int | None = None
        self.unattached: list[Anomaly] = []
        self.throttle_ns = self.muted_ns = self.outstanding_bytes = 0
        self.session: Session | None = None
        self.is_listener = self.is_refused = self.is_selected = False

    @property
    def id(self) -> str:
        """Its ID."""
        return self.key[0]

    @property
    def client_end(self) -> Endpoint:
        """The client's end of the TCP connection."""
        return self.hop or self.client

    @property
    def exchanges(self) -> int:
        """Number of exchanges added so far."""
        return self.kinds.total()

    @property
    def repeated_bytes(self) -> int | None:
        """Bytes captured again; None while it is open."""
        return None if self.tcp is None else sum(self.repeated)

    @property
    def ended_by(self) -> str | None:
        """``client`` or ``broker``; None if neither a FIN nor an RST was captured."""
        return None if self.end is None else CLIENT if self.end.side == self.client_side else BROKER

    @property
    def ending(self) -> str:
        """``client FIN``, ``broker RST`` ...; ``open`` if neither a FIN nor an RST was captured."""
        return "open" if self.end is None else f"{self.ended_by} {'RST' if self.end.reset else 'FIN'}"

    @property
    def fails_login(self) -> bool:
        """Whether the broker ended it at a login, as some do instead of responding."""
        logins = (*_LOGIN_APIS, _TOKEN)
        return self.ended_by == BROKER and (self.outstanding_api or "").startswith(logins)

    @property
    def idle_ns(self) -> int | None:
        """From its last bytes to the FIN or RST that ended it; None without one, or without bytes."""
        if self.end is None or self.last_ns is None:
            return None
        return max(0, self.end.time_ns - self.last_ns)

    def add(self, exchange: Exchange) -> None:
        """Add an exchange."""
        self._note_outstanding(exchange)
        self.kinds[exchange.kind] += 1
        if exchange.api_key is not None:
            self.requests = (self.requests or 0) + (exchange.api not in HANDSHAKE_APIS)
        if exchange.kind == UNANSWERED or exchange.announced is not None:
            result = outcome(exchange)
            self.no_answer += result == UNANSWERED
            self.incomplete += result in (INCOMPLETE, INCOMPLETE_REQUEST)
        if exchange.anomalies:
            self.anomalies += len(exchange.anomalies)
            kinds = {anomaly.kind for anomaly in exchange.anomalies}
            self.tls_alerts += TLS_ALERT in kinds
            is_unanswered = exchange.kind == UNANSWERED
            self.bare_tokens += NO_HANDSHAKE in kinds and is_unanswered
            self.malformed += is_unanswered and not _MALFORMED.isdisjoint(kinds)
        identity = (
            exchange.client_software_name,
            exchange.client_software_version,
            exchange.principal,
            exchange.sasl_mechanism,
        )
        if exchange.response is not None:
            self._note_response(exchange, exchange.response)
        first, last = exchange.first_frame, exchange.response_frame or exchange.first_frame
        self._note_client(identity, exchange.client_id, (first.start_ns, last.end_ns))
        if exchange.request_frame is not None:
            self.request_bytes += exchange.request_frame.wire_bytes
        if exchange.response_frame is not None:
            self.response_bytes += exchange.response_frame.wire_bytes

    def _note_response(self, exchange: Exchange, response: Body) -> None:
        """Note a throttle time, and errors."""
        if (throttle_ms := response.get("throttle_time_ms")) and exchange.response_frame is not None:
            throttle_ns = max(0, throttle_ms) * MILLISECOND_NS
            self.throttle_ns += throttle_ns
            self.muted_ns = max(self.muted_ns, exchange.response_frame.end_ns + throttle_ns)
        is_login = exchange.api in _LOGIN_APIS
        if is_login and "auth_bytes" in response and not response.get("error_code"):
            lifetime_ns = max(0, response.get("session_lifetime_ms") or 0) * MILLISECOND_NS
            ended = exchange.response_frame if lifetime_ns else None
            self.session = Session(ended.end_ns + lifetime_ns, lifetime_ns) if ended else None
        if not self.is_refused and (errors := content.errors(exchange)):
            self.is_refused = is_login or not REFUSED.isdisjoint(errors)

    def add_usual(
        self,
        identity: tuple[str | None, str | None, str | None, str | None],
        client_id: str | None,
        exchanges: tuple[int, int, int],
        sizes: tuple[int, int],
        times_ns: tuple[int, int],
        last_call: tuple[int, int] | None,
        waited: frozenset[int],
    ) -> None:
        """Add whole exchanges without anomalies; see ``ConnectionPlan``."""
        self.outstanding = self.outstanding_calls = self.outstanding_bytes = 0
        self.outstanding_ns = self.held_api = None
        self.waited |= waited
        number, served, unacknowledged = exchanges
        self.served += served
        self.requests = (self.requests or 0) + served + unacknowledged
        for kind, count in ((ANSWERED, number), (UNACKNOWLEDGED, unacknowledged)):
            if count:
                self.kinds[kind] += count
        self.last_call = last_call or self.last_call
        self._note_client(identity, client_id, times_ns)
        self.request_bytes += sizes[0]
        self.response_bytes += sizes[1]

    def _note_client(
        self,
        identity: tuple[str | None, str | None, str | None, str | None],
        client_id: str | None,
        times_ns: tuple[int, int],
    ) -> None:
        """Note who the client is, and when exchanges began and ended."""
        self.client_id = kept(client_id) if self.client_id is None else self.client_id
        software_name, software_version, principal, mechanism = identity
        self.client_software_name = software_name or self.client_software_name
        self.client_software_version = software_version or self.client_software_version
        self.principal = principal or self.principal
        self.sasl_mechanism = mechanism or self.sasl_mechanism
        if self.first_ns is None:
            self.first_ns = times_ns[0]
        if self.exchanges_total is None:
            self.last_ns = times_ns[1]

    def _note_outstanding(self, exchange: Exchange) -> None:
        """Exchanges come in order of completion: a request that is still outstanding comes after all
        responses.
        """
        if exchange.kind in (ANSWERED, ORPHAN):
            is_whole = exchange.kind == ANSWERED and exchange.announced is None
            self.served += is_whole and exchange.api not in HANDSHAKE_APIS
            self.outstanding = int(exchange.kind == ANSWERED and not is_whole)  # its rest
            self.outstanding_calls = self.outstanding_bytes = 0
            self.outstanding_ns = self.held_api = None
            if exchange.api in WAITING_APIS:
                self.waited |= {exchange.api_key}
            response = exchange.response_frame
            if exchange.latency_us is not None and response and exchange.api not in WAITING_APIS:
                self.last_call = exchange.time_ns, response.start_ns
        elif exchange.kind == UNANSWERED:
            self.outstanding += 1
            if exchange.request_frame is not None:
                self.outstanding_bytes = max(self.outstanding_bytes, exchange.request_frame.size)
            if exchange.api not in WAITING_APIS:
                self.outstanding_calls += 1
                self.outstanding_api = _named(exchange)
                if self.outstanding_ns is None and not (exchange.is_held_up or exchange.is_out_of_order):
                    self.outstanding_ns = exchange.time_ns
            elif exchange.api_key not in self.waited:
                self.held_api = _named(exchange)


def _named(exchange: Exchange) -> str:
    """API and version."""
    if exchange.api_key is None:
        return _TOKEN
    return f"{exchange.api or f'API {exchange.api_key}'} v{exchange.api_version}"


class ConnectionLog(Survey):
    """A survey that also keeps a row for each connection.

    Attributes:
        on_row: called with each row once it is complete, and with those of all connections that never opened.
        on_name: called with each DNS response.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.on_row: list[Callable[[ConnectionLogRow], object]] = []
        self.on_name: list[Callable[[Resolved], object]] = []
        self._rows: dict[ConnectionKey, ConnectionLogRow] = {}
        self._ended: dict[ConnectionKey, ConnectionLogRow] = {}
        self._finished: list[ConnectionLogRow] = []
        self._unopened: OrderedDict[ConnectionLogRow, None] = OrderedDict()

    def connection(
        self, connection: Connection, kafka: KafkaConnection, end: Closed, *, is_selected: bool = True
    ) -> None:
        """Take a connection that has ended; keep anomalies after its last exchange only if the connection is
        selected.
        """
        super().connection(connection, kafka, end)
        row = self._rows.get(connection.key)
        if row is None:
            row = self._rows[connection.key] = _row(connection, kafka.client)
        _close(row, connection, kafka.client, end)
        row.last_ns = max(connection.first_time_ns, kafka.last_ns)  # the clock may have been set back
        row.protocol = kafka.protocol
        row.is_listener = kafka.listener_side == 1 - row.client_side
        row.from_start = connection.initiator is not None
        row.exchanges_total = kafka.exchanges
        row.gaps, row.lost_at = kafka.gaps, kafka.lost_at
        row.resyncs, row.skipped_bytes = kafka.resyncs, kafka.skipped_bytes
        row.unread_bytes = kafka.unread_bytes
        row.unattached = list(kafka.unattached) if is_selected else []
        row.anomalies += len(row.unattached)
        self._finish(row)

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:
        """Take a connection that never opened; its row waits until its far end is known as a listener."""
        super().unopened_connection(connection, end, is_listener=is_listener)
        row = _row(connection, None)
        _close(row, connection, None, end)
        row.protocol, row.from_start, row.exchanges_total = None, True, 0
        row.is_listener = is_listener
        self._keep_unopened(row)

    def resolved(self, response: Resolved) -> None:
        """Pass on a DNS response."""
        for callback in self.on_name:
            callback(response)

    def _keep_unopened(self, row: ConnectionLogRow) -> None:
        self._pass_on(row)
        self._unopened[row] = None
        if len(self._unopened) > self._max_unopened:
            self._unopened.popitem(last=False)

    def exchange(self, exchange: Exchange, *, is_selected: bool = True) -> None:
        """Take an exchange."""
        super().exchange(exchange)
        row = self._row_of(exchange.connection, exchange.first_frame.interface)
        row.is_selected = row.is_selected or is_selected
        row.cluster_id = exchange.cluster_id
        row.add(exchange)
        if row.exchanges_total is not None:
            self._finish(row)

    def usual_exchanges(
        self,
        info: ConnectionInfo,
        interface: Interface,
        identity: tuple[str | None, str | None, str | None, str | None],
        client_id: str | None,
        exchanges: tuple[int, int, int],
        is_selected: bool,
        sizes: tuple[int, int],
        times_ns: tuple[int, int],
        last_call: tuple[int, int] | None,
        waited: Sequence[int],
        is_refused: bool,
    ) -> None:
        """Take consecutive exchanges of a connection, all whole and without anomalies; see
        ``sink.ConnectionPlan``.
        """
        self.listeners.add(info.broker)
        self._count_usual(exchanges[0], exchanges[2])
        row = self._row_of(info, interface)
        row.is_selected = row.is_selected or is_selected
        row.cluster_id = info.cluster_id
        row.add_usual(identity, client_id, exchanges, sizes, times_ns, last_call, frozenset(waited))
        row.is_refused = row.is_refused or is_refused
        if row.exchanges_total is not None:
            self._finish(row)

    def _row_of(self, info: ConnectionInfo, interface: Interface) -> ConnectionLogRow:
        row = self._rows.get(info.key)
        if row is None:
            row = ConnectionLogRow(info.key, interface.capture, info.client, info.broker)
            row.hop, row.proxy = info.hop, info.proxy
            self._rows[info.key] = row
        return row

    def finished(self) -> list[ConnectionLogRow]:
        """The rows completed since the last call, in the order in which connections ended: the last exchanges
        of some come late, together with others.
        """
        rows = self._finished
        if rows:
            self._finished = []
        return rows

    def close(self) -> list[ConnectionLogRow]:
        """All remaining rows, because reading stopped before they were complete."""
        self._finished += (row for row in self._unopened if row.broker in self.listeners)
        self._finished += {**self._ended, **self._rows}.values()
        self._ended.clear()
        self._rows.clear()
        self._unopened.clear()
        return self.finished()

    def _finish(self, row: ConnectionLogRow) -> None:
        assert row.exchanges_total is not None
        self._ended[row.key] = row
        if row.exchanges >= row.exchanges_total:
            if all(row.seen) and row.from_start and not row.gaps and not row.resyncs:
                self.whole += row.kinds[ORPHAN]  # their requests are not missing
            self._pass_on(row)
            del self._rows[row.key]
            while self._ended and (key := next(iter(self._ended))) not in self._rows:
                self._finished.append(self._ended.pop(key))

    def _pass_on(self, row: ConnectionLogRow) -> None:
        for callback in self.on_row:
            callback(row)


class ConnectionFeed(ConnectionLog):
    """A log that passes each row on once it is complete, including all connections that never opened.

    Args:
        limits: of the survey.
        on_row: called with each row.
        filtered: whether only connections with an exchange that matches the filters are passed on.
    """

    def __init__(self, limits: Limits, *on_row: Callable[[ConnectionLogRow], object], filtered: bool) -> None:
        super().__init__(limits)
        self.on_row += on_row
        self._filtered = filtered

    def close(self) -> list[ConnectionLogRow]:
        """Pass on the remaining rows of connections that have ended."""
        for row in self._rows.values():
            if row.tcp is not None:
                self._pass_on(row)
        self._ended.clear()
        self._rows.clear()
        return []

    def _finish(self, row: ConnectionLogRow) -> None:
        super()._finish(row)
        self.finished()

    def _keep_unopened(self, row: ConnectionLogRow) -> None:
        self._pass_on(row)

    def _pass_on(self, row: ConnectionLogRow) -> None:
        if row.is_selected or not self._filtered:
            super()._pass_on(row)


def _row(connection: Connection, client_side: int | None) -> ConnectionLogRow:
    """The row of a connection; if no message shows which end is the client, it is the one that opened it."""
    side = connection.initiator or 0 if client_side is None else client_side
    client, broker = connection.client(side), connection.ends[1 - side]
    row = ConnectionLogRow(connection.key, connection.interface.capture, client, broker)
    row.hop, row.proxy = connection.hop(side), connection.proxy
    return row


def _close(row: ConnectionLogRow, connection: Connection, client_side: int | None, end: Closed) -> None:
    """Fill in the TCP analysis of a connection that has ended."""
    one, two = connection.streams
    row.capture = connection.interface.capture
    row.first_ns, row.closed_ns, row.close_reason = connection.first_time_ns, end.time_ns, end.reason
    row.client_side = connection.initiator or 0 if client_side is None else client_side
    row.tcp = connection.tcp
    row.opening = None if connection.tcp is None else connection.tcp.opening
    row.tls = end.tls or _NO_TLS
    row.principal = row.principal or row.tls.principal
    row.end = None if connection.tcp is None else connection.tcp.end
    row.repeated, row.seen = (one.repeated_bytes, two.repeated_bytes), (one.seen, two.seen)
    row.out_of_order = one.out_of_order + two.out_of_order
