"""Connections that have ended -> those of each client to each broker, from opening to end.

Holds a row of about 3 KB for each client and broker, at most ``limits.summary_rows``. Connections that never
opened are counted in separate rows, of which only those to Kafka listeners are reported: which endpoints are
listeners may become known only at the end.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.exchanges.learned import Listeners
from kdissect.net.analysis import ONE_WAY, REFUSED, UNANSWERED, UNOPENED
from kdissect.stats.document import ClientConnectionsRow
from kdissect.stats.quantiles import Bounded, Quantiles
from kdissect.stats.rows import row_of, spread
from kdissect.stats.sums import Summed, merged, summed, total
from kdissect.stats.survey import KAFKA

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Endpoint
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.usual import Usual


@summed
class SideCounts(Summed):
    """Counts of one end of connections."""

    segments: int = total()
    retransmissions: int = total()
    spurious: int = total()
    duplicate_acks: int = total()
    zero_window_ns: int = total()
    round_trip_us: Quantiles = merged(Quantiles)

    def add(self, row: ConnectionLogRow, side: int) -> None:
        """Add a side of a connection; the round trip is that to it."""
        tcp = row.tcp
        assert tcp is not None
        self.segments += tcp.segments(side)
        self.retransmissions += tcp.retransmitted(side)
        self.spurious += tcp.spurious(side)
        self.duplicate_acks += tcp.duplicate_acks(side)
        self.zero_window_ns += tcp.zero_window_ns(side, row.closed_ns or 0)
        if (round_trip_ns := tcp.shortest_round_trip_ns(1 - side)) is not None:
            self.round_trip_us.add(round_trip_ns // 1000)


@summed
class ConnectionCounts(Summed):
    """The connections of a client to a broker."""

    connections: int = total()
    openings: Counter[str] = total(Counter)
    syn_retransmissions: int = total()
    connect_us: Quantiles = merged(Quantiles)
    client: SideCounts = merged(SideCounts)
    broker: SideCounts = merged(SideCounts)
    ends: Counter[str] = total(Counter)
    outstanding: int = total()
    tls: Counter[str] = total(Counter)

    def add(self, row: ConnectionLogRow) -> None:
        """Add a connection."""
        tcp = row.tcp
        assert tcp is not None
        self.connections += 1
        self.syn_retransmissions += tcp.syn_retransmissions
        self.outstanding += row.outstanding
        if row.tls.cipher is not None:
            self.tls[f"{row.tls.version} {row.tls.cipher}"] += 1
        if tcp.opening is not None:
            self.openings[tcp.opening] += 1
        if tcp.connect_ns is not None:
            self.connect_us.add(tcp.connect_ns // 1000)
        if tcp.opening not in UNOPENED:
            self.client.add(row, row.client_side)
            self.broker.add(row, 1 - row.client_side)
            self.ends[row.ending] += 1


@summed
class ClientConnections(Summed):
    """The connections of all clients."""

    kept: Bounded[tuple[str, Endpoint], ConnectionCounts] = merged()
    unopened: Bounded[tuple[str, Endpoint], ConnectionCounts] = merged()
    listeners: Listeners = merged()

    def __init__(self, limits: Limits) -> None:
        self.kept = Bounded(limits.summary_rows, ConnectionCounts)
        self.unopened = Bounded(limits.summary_rows, ConnectionCounts)
        self.listeners = Listeners(limits)

    def feed(self, facts: Facts) -> None:
        """Learn which endpoints are brokers."""
        self.listeners.learn(facts.exchange)

    def feed_usual(self, usual: Usual) -> None:
        """Learn the same from exchanges that the core has counted."""
        self.listeners.add(usual.connection.broker)

    def connect(self, row: ConnectionLogRow) -> None:
        """Add a connection that has ended."""
        if row.opening in UNOPENED:
            if row.is_listener:
                self.listeners.add(row.broker)
            self.unopened[row.client.ip, row.broker].add(row)
        elif row.protocol == KAFKA:
            self.kept[row.client_id or row.client.ip, row.broker].add(row)

    def rows(self) -> list[ClientConnectionsRow]:
        """The rows, those with the most connections first."""
        reached = [(key, each) for key, each in self.unopened.items() if key[1] in self.listeners]
        rows = [_row(*key, each) for key, each in (*self.kept.items(), *reached)]
        return sorted(rows, key=lambda row: (-row.connections, row.client, row.broker))

    def other_counts(self) -> dict[str, int]:
        """Connections without their own row."""
        return {} if self.kept.other is None else {"client_connections": self.kept.other.connections}


def _row(client: str, broker: Endpoint, counted: ConnectionCounts) -> ClientConnectionsRow:
    ends = {
        f"{end}_{name}": getattr(getattr(counted, end), name)
        for end in ("client", "broker")
        for name in ("segments", "retransmissions", "spurious", "duplicate_acks")
    }
    return row_of(
        ClientConnectionsRow,
        counted,
        client=client,
        broker=str(broker),
        refused=counted.openings[REFUSED],
        unanswered=counted.openings[UNANSWERED],
        one_way=counted.openings[ONE_WAY],
        client_zero_window_us=counted.client.zero_window_ns // 1000,
        broker_zero_window_us=counted.broker.zero_window_ns // 1000,
        client_round_trip_us=spread(counted.client.round_trip_us),
        broker_round_trip_us=spread(counted.broker.round_trip_us),
        **ends,
    )
