"""Connections and exchanges, as they are dissected -> one row per connection, once it is complete.

When a connection ends, some of its exchanges may still be waiting to be ordered or for a topic name. So a row
is finished when its connection has ended and all its exchanges have arrived. Holds a row of some 600 bytes
for each connection that is open (``limits.connections``) or has waiting exchanges (``order_rows``,
``naming_rows``).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.exchanges.outcomes import outcome
from kdissect.model import UNANSWERED
from kdissect.stats.survey import KAFKA, Survey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.limits import Limits
    from kdissect.model import Anomaly, Closed, Endpoint, Exchange
    from kdissect.net.connection import Connection

_NO_GAPS: Mapping[str, int] = {}


class ConnectionLogRow:
    """One connection.

    Attributes:
        capture: the file in which it starts.
        first_ns: time of its first packet; of its first exchange as long as it is open.
        last_ns: time of its last bytes.
        client, broker: the two ends; if no message shows which is which, the client is the one that
            opened it.
        close_reason: as in ``model.Closed``; None if reading was stopped before it ended.
        protocol: ``Kafka``, ``TLS`` ...; None if not recognized.
        from_start: whether its start was captured.
        client_id: of the first request that has one.
        gaps: ``KafkaConnection.gaps``.
        kinds: exchanges by kind.
        no_answer: requests that the broker did not answer.
        errors: exchanges whose response has an error.
        repeated_bytes, out_of_order: bytes captured again, segments captured out of order; None while it is
            open, like the next three.
        exchanges_total: its number of exchanges; None while it is open.
        resyncs, skipped_bytes, unread_bytes: as in ``KafkaConnection``.
        unattached: anomalies after the last exchange.
        is_selected: whether any of its exchanges matches the filters.
    """

    __slots__ = (
        "anomalies",
        "broker",
        "capture",
        "client",
        "client_id",
        "client_software_name",
        "client_software_version",
        "close_reason",
        "exchanges_total",
        "first_ns",
        "from_start",
        "gaps",
        "id",
        "is_selected",
        "kinds",
        "last_ns",
        "no_answer",
        "out_of_order",
        "principal",
        "protocol",
        "repeated_bytes",
        "request_bytes",
        "response_bytes",
        "resyncs",
        "sasl_mechanism",
        "skipped_bytes",
        "unattached",
        "unread_bytes",
    )  # fmt: skip

    def __init__(self, connection_id: str, capture: str, client: Endpoint, broker: Endpoint) -> None:
        self.id = connection_id
        self.capture = capture
        self.client, self.broker = client, broker
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
        self.request_bytes = self.response_bytes = self.anomalies = self.no_answer = 0
        self.gaps: Mapping[str, int] = _NO_GAPS
        self.repeated_bytes: int | None = None
        self.out_of_order: int | None = None
        self.resyncs: int | None = None
        self.skipped_bytes: int | None = None
        self.unread_bytes: int | None = None
        self.unattached: list[Anomaly] = []
        self.is_selected = False

    @property
    def exchanges(self) -> int:
        """How many were added so far."""
        return self.kinds.total()

    def add(self, exchange: Exchange) -> None:
        """Add an exchange."""
        self.kinds[exchange.kind] += 1
        self.no_answer += outcome(exchange) == UNANSWERED
        self.anomalies += len(exchange.anomalies)
        self.client_id = exchange.client_id if self.client_id is None else self.client_id
        self.client_software_name = exchange.client_software_name or self.client_software_name
        self.client_software_version = exchange.client_software_version or self.client_software_version
        self.principal = exchange.principal or self.principal
        self.sasl_mechanism = exchange.sasl_mechanism or self.sasl_mechanism
        if self.first_ns is None:
            self.first_ns = exchange.first_frame.start_ns
        if self.exchanges_total is None:
            self.last_ns = (exchange.response_frame or exchange.first_frame).end_ns
        if exchange.request_frame is not None:
            self.request_bytes += exchange.request_frame.wire_bytes
        if exchange.response_frame is not None:
            self.response_bytes += exchange.response_frame.wire_bytes


class ConnectionLog(Survey):
    """A survey that also keeps a row for each connection."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._rows: dict[str, ConnectionLogRow] = {}
        self._finished: list[ConnectionLogRow] = []

    def connection(
        self, connection: Connection, kafka: KafkaConnection, end: Closed, *, is_selected: bool = True
    ) -> None:
        """Take a connection that has ended; keep anomalies after its last exchange only if it is selected."""
        super().connection(connection, kafka, end)
        row = self._rows.get(connection.id)
        if row is None:
            client_side = connection.initiator or 0 if kafka.client is None else kafka.client
            client, broker = connection.ends[client_side], connection.ends[1 - client_side]
            row = ConnectionLogRow(connection.id, connection.interface.capture, client, broker)
            self._rows[connection.id] = row
        row.capture = connection.interface.capture
        row.first_ns, row.last_ns = connection.first_time_ns, kafka.last_ns
        row.close_reason = end.reason
        row.protocol = kafka.protocol
        row.from_start = connection.initiator is not None
        row.exchanges_total = kafka.exchanges
        row.gaps = kafka.gaps
        row.repeated_bytes = sum(stream.repeated_bytes for stream in connection.streams)
        row.out_of_order = sum(stream.out_of_order for stream in connection.streams)
        row.resyncs, row.skipped_bytes = kafka.resyncs, kafka.skipped_bytes
        row.unread_bytes = kafka.unread_bytes
        row.unattached = list(kafka.unattached) if is_selected else []
        row.anomalies += len(row.unattached)
        self._finish(row)

    def exchange(self, exchange: Exchange, *, is_selected: bool = True) -> None:
        """Take an exchange."""
        super().exchange(exchange)
        info = exchange.connection
        row = self._rows.get(info.id)
        if row is None:
            capture = exchange.first_frame.interface.capture
            row = self._rows[info.id] = ConnectionLogRow(info.id, capture, info.client, info.broker)
        row.is_selected = row.is_selected or is_selected
        row.add(exchange)
        if row.exchanges_total is not None:
            self._finish(row)

    def finished(self) -> list[ConnectionLogRow]:
        """The rows completed since the last call."""
        rows = self._finished
        if rows:
            self._finished = []
        return rows

    def close(self) -> list[ConnectionLogRow]:
        """All remaining rows: reading was stopped before they were complete."""
        self._finished += self._rows.values()
        self._rows.clear()
        return self.finished()

    def _finish(self, row: ConnectionLogRow) -> None:
        assert row.exchanges_total is not None
        if row.exchanges >= row.exchanges_total:
            self._finished.append(self._rows.pop(row.id))
