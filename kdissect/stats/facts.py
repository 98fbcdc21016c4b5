"""Exchange -> the facts that several tables of a summary need, computed once. Holds no state."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from kdissect.anomalies import PARTIAL
from kdissect.exchanges import content
from kdissect.exchanges.fetch_sessions import FETCH
from kdissect.exchanges.group_events import group_events
from kdissect.exchanges.latency import UNKNOWN
from kdissect.exchanges.outcomes import outcome
from kdissect.exchanges.touched import Touched, touched
from kdissect.kafka.compression import Budget
from kdissect.model import ANSWERED, ORPHAN
from kdissect.names import NAME_BYTES, kept
from kdissect.stats.contents import ONE, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.exchanges.fetch_sessions import FetchSessions, Position
    from kdissect.exchanges.group_events import GroupEvent
    from kdissect.model import ConnectionInfo, Endpoint, Exchange
    from kdissect.sinks.plan import PartitionTest

Value = TypeVar("Value")

SLOW_US = 2_000_000
"""A longer service time is a flaw: rules need to know when it was."""

_MAX_CACHED = 4096  # endpoints whose text is cached


class Facts:
    """A tally of one exchange: the exchange, and facts from its bodies.

    Args:
        exchange: the exchange.
        sessions: the open fetch sessions, for ``positions``; None: these are not needed. The exchanges of a
            session must come in order.
        is_partition: which partitions to keep in ``touched`` and ``positions``; None: all.
        positions: after a Fetch that the core has added to its session; None: ``sessions`` have them.

    Attributes:
        api: API name; ``api 99`` for an unknown key, ``SASL token`` for a token outside Kafka's framing,
            ``unknown`` for a response whose request was not captured.
        client: client ID as it is ``kept``, or the address of a client that sent none.
        broker: address and port.
        time_ns: end of the request, or the time of the exchange if it was not captured.
        request_bytes, response_bytes: sizes of the frames, including their length bytes.
        errors: distinct error names; ``serious``: those that are not expected (expected.py).
        throttle_ms: 0 if there is none.
        latency_us: None unless answered.
        outcome: see outcomes.py.
        parts: of the latency; None unless answered.
        total_us: see ``Exchange``.
        service_us: None if it is unknown, or if the broker waited.
        wait_us: None unless all of the latency is known, and the broker waited.
        touched: its partitions, see exchanges/touched.py.
        positions: after a Fetch, in all partitions of its session.
        inflation: the limit on the records of its request that are decompressed.
        has_flaw: whether there is more to it than that the broker answered, without an error, an anomaly, a
            throttle time or a retransmission, within seconds.
    """

    form = ONE

    __slots__ = (
        *("api", "broker", "client", "errors", "exchange", "has_flaw", "inflation", "latency_us", "outcome"),
        *("parts", "request_bytes", "response_bytes", "serious", "service_us", "throttle_ms", "time_ns"),
        *("total_us", "touched", "wait_us", "positions", "_group_events", "_id", "_messages"),
    )

    def __init__(
        self,
        exchange: Exchange,
        sessions: FetchSessions | None = None,
        is_partition: PartitionTest | None = None,
        positions: Sequence[Position] | None = None,
    ) -> None:
        self.exchange = exchange
        self.api = exchange.api or _unnamed(exchange)
        self.client = kept(exchange.client_id or exchange.connection.client.ip)
        self.broker = _end(exchange.connection.broker)
        request, response, latency_us = exchange.request_frame, exchange.response_frame, exchange.latency_us
        self.time_ns = exchange.time_ns if request is None else request.end_ns
        self.request_bytes = 0 if request is None else request.wire_bytes
        self.response_bytes = 0 if response is None else response.wire_bytes
        self.errors = self.serious = content.errors(exchange)
        if exchange.expected_errors:
            self.serious = [error for error in self.errors if error not in exchange.expected_errors]
        self.throttle_ms = content.throttle_time_ms(exchange) or 0
        self.latency_us = None if latency_us is None else max(0, latency_us)
        self.touched: list[Touched] = touched(exchange)
        self.positions: Sequence[Position] = positions or ()
        if positions is None and sessions is not None and exchange.api_key == FETCH:
            self.positions = sessions.feed(exchange, self.touched)
        if is_partition is not None:
            ids = {name: topic_id for topic_id, name in exchange.topic_ids.items()}

            def is_selected(each: Touched | Position) -> bool:
                return is_partition((each.topic, *filter(None, (ids.get(each.topic),))), each.partition)

            self.touched = list(filter(is_selected, self.touched))
            self.positions = list(filter(is_selected, self.positions))
        self.inflation = Budget(exchange.number)
        self.parts = parts = None if latency_us is None else exchange.parts or UNKNOWN
        self.total_us = exchange.total_us
        self.service_us = None if parts is None else parts.service_us
        self.wait_us = parts.wait_us if parts is not None and parts.waited else None
        self.outcome = outcome(exchange)
        self.has_flaw = bool(
            exchange.kind != ANSWERED
            or self.errors
            or exchange.anomalies
            or exchange.response is None
            or self.throttle_ms
            or (parts is not None and (parts.network_us or (parts.service_us or 0) >= SLOW_US))
        )
        self._id: str | None = None
        self._messages: dict[str, str] | None = None
        self._group_events: list[GroupEvent] | None = None

    @property
    def connection(self) -> ConnectionInfo:
        """Its connection."""
        return self.exchange.connection

    @property
    def kind(self) -> str:
        """See ``Exchange``."""
        return self.exchange.kind

    @property
    def exchanges(self) -> int:
        """One."""
        return 1

    @property
    def first_ns(self) -> int:
        """The same as ``time_ns``."""
        return self.time_ns

    @property
    def last_ns(self) -> int:
        """The same."""
        return self.time_ns

    @property
    def first(self) -> list[tuple[int, str]]:
        """Time and ID."""
        return [(self.time_ns, self.id)]

    @property
    def exemplar(self) -> Exchange:
        """Itself, as those that are alike have one."""
        return self.exchange

    @property
    def completed(self) -> Noted:
        """When it was."""
        completed_ns = self.exchange.completed_ns
        return Noted(1, completed_ns, completed_ns, [(completed_ns, self.exchange.number)], [])

    def first_of(self, noted: Noted) -> list[tuple[int, str]]:
        """As of those that are alike."""
        return [(time_ns, self.id) for time_ns, _ in noted.first]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Topics and partitions in it."""
        return [(each.topic, each.partition) for each in self.touched]

    @property
    def is_whole(self) -> bool:
        """Whether nothing of its messages or before them is missing: what is not in them was not sent."""
        anomalies = self.exchange.anomalies
        return not anomalies or PARTIAL.isdisjoint(each.kind for each in anomalies)

    @property
    def messages(self) -> dict[str, str]:
        """What the broker says about the errors, by name."""
        if self._messages is None:
            self._messages = content.error_messages(self.exchange) if self.errors else {}
        return self._messages

    @property
    def group(self) -> str | None:
        """The group named in the request."""
        return content.group_id(self.exchange)

    @property
    def group_events(self) -> list[GroupEvent]:
        """Its group events as ``kept``, including heartbeats that change nothing."""
        if self._group_events is None:
            self._group_events = [self.kept(each) for each in group_events(self.exchange, include_alive=True)]
        return self._group_events

    @group_events.setter
    def group_events(self, events: list[GroupEvent]) -> None:
        self._group_events = events

    def kept(self, value: Value) -> Value:
        """Names of the exchange as tables keep them (names.py). Small messages have no long ones: a byte that
        is not UTF-8 becomes four characters.
        """
        is_small = max(self.request_bytes, self.response_bytes) <= NAME_BYTES // 4
        return value if is_small else kept(value)

    @property
    def replica(self) -> bool:
        """Whether a broker fetches to replicate: its request has a node ID."""
        return content.replica_id(self.exchange) is not None

    @property
    def id(self) -> str:
        """``connection/number``, as ``read --exchange`` takes it."""
        if self._id is None:
            self._id = self.exchange.id
        return self._id


@lru_cache(_MAX_CACHED)
def _end(endpoint: Endpoint) -> str:
    return str(endpoint)


def _unnamed(exchange: Exchange) -> str:
    if exchange.api_key is not None:
        return f"api {exchange.api_key}"
    # A response carries no API key. One with a correlation ID is framed as Kafka's, so it is not a bare
    # token.
    is_response = exchange.kind == ORPHAN and exchange.correlation_id is not None
    return "unknown" if is_response else "SASL token"
