"""Connections that have ended -> those of each client to each broker, from opening to end.

Holds a row of about 3 KB for each client and broker, at most ``limits.summary_rows``. Connections that never
opened are counted in separate rows, of which only those to Kafka listeners are reported: which endpoints are
listeners may become known only at the end. Of each of ``_LISTENERS`` brokers, it also holds at most 100
connections one by one.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges.learned import Listeners
from kdissect.limits import SECOND_NS
from kdissect.net.analysis import ONE_WAY, REFUSED, UNANSWERED, UNOPENED
from kdissect.net.duplex import NEVER_NS
from kdissect.stats.contents import EACH
from kdissect.stats.document import ClientConnectionsRow, HostConnectionsRow, LifetimeRow
from kdissect.stats.quantiles import Bounded, Quantiles, other_counts
from kdissect.stats.rows import moment, per_second, row_of, spread
from kdissect.stats.sums import Summed, earliest, joined, latest, merged, summed, total
from kdissect.stats.survey import KAFKA
from kdissect.stats.windows import Windows

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Endpoint
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.tallies import Tally


_LISTENERS = 1000
_LIFETIMES, _ALL_LIFETIMES = 25, 400  # of each kind and broker; in all
_RESET, _UNOPENED, _OUTSTANDING, _OTHER = range(4)  # kinds of connections, the most harmful first


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
        if row.opening is not None:
            self.openings[row.opening] += 1
        if tcp.connect_ns is not None:
            self.connect_us.add(tcp.connect_ns // 1000)
        if row.opening not in UNOPENED:
            self.client.add(row, row.client_side)
            self.broker.add(row, 1 - row.client_side)
            self.ends[row.ending] += 1


@summed
class HostCounts(Summed):
    """The connections of a host to a broker; the round trip of each is that between host and broker."""

    connections: int = total()
    bytes: int = total()
    segments: int = total()
    lost: int = total()
    round_trip_us: Quantiles = merged(Quantiles)
    windows: Windows = merged(Windows)
    first_ns: int = earliest(NEVER_NS)
    last_ns: int = latest(0)

    def add(self, row: ConnectionLogRow) -> None:
        """Add a connection."""
        tcp = row.tcp
        assert tcp is not None
        self.connections += 1
        self.bytes += row.request_bytes + row.response_bytes
        self.segments += tcp.segments(0) + tcp.segments(1)
        self.lost += tcp.lost(0) + tcp.lost(1)
        one_ns, other_ns = tcp.shortest_round_trip_ns(0), tcp.shortest_round_trip_ns(1)
        if one_ns is not None and other_ns is not None:
            self.round_trip_us.add((one_ns + other_ns) // 1000)
        self.windows.add(row)
        self.first_ns = min(self.first_ns, row.first_ns or NEVER_NS)
        self.last_ns = max(self.last_ns, row.last_ns or 0)

    @property
    def seconds(self) -> float:
        """From the first packet to the last bytes."""
        return max(0, self.last_ns - self.first_ns) / SECOND_NS


class _Lifetime(NamedTuple):
    """A connection; of two, the one to show is the smaller: with more outstanding requests, or longer."""

    less_outstanding: int
    shorter_ns: int
    id: str
    start_ns: int
    client: str
    broker: str
    ending: str
    exchanges: int


def _first(one: list[_Lifetime], other: list[_Lifetime]) -> list[_Lifetime]:
    return sorted((*one, *other))[:_LIFETIMES]


@summed
class Lifetimes(Summed):
    """The first connections of one kind to a broker."""

    first: list[_Lifetime] = joined(_first, list)

    def add(self, row: ConnectionLogRow) -> None:
        """Add a connection."""
        start_ns = row.first_ns or 0
        end_ns = row.last_ns if row.end is None else row.end.time_ns
        is_open = row.opening not in UNOPENED
        insort(
            self.first,
            _Lifetime(
                less_outstanding=-row.outstanding_calls,
                shorter_ns=min(0, start_ns - (end_ns or start_ns)),
                id=row.id,
                start_ns=start_ns,
                client=row.client_id or row.client.ip,
                broker=str(row.broker),
                ending=row.ending if is_open else str(row.opening),
                exchanges=row.exchanges,
            ),
        )
        del self.first[_LIFETIMES:]


@summed
class ClientConnections(Summed):
    """The connections of all clients."""

    kept: Bounded[tuple[str, Endpoint], ConnectionCounts] = merged()
    unopened: Bounded[tuple[str, Endpoint], ConnectionCounts] = merged()
    hosts: Bounded[tuple[str, Endpoint], HostCounts] = merged()
    lifetimes: Bounded[tuple[int, Endpoint], Lifetimes] = merged()
    listeners: Listeners = merged()

    takes = EACH

    def __init__(self, limits: Limits) -> None:
        self.kept = Bounded(limits.summary_rows, ConnectionCounts)
        self.unopened = Bounded(limits.summary_rows, ConnectionCounts)
        self.hosts = Bounded(limits.summary_rows, HostCounts)
        self.lifetimes = Bounded(4 * _LISTENERS, Lifetimes)
        self.listeners = Listeners(limits)

    def feed(self, tally: Tally) -> None:
        """Learn which endpoints are brokers."""
        broker = tally.connection.broker
        if (exemplar := tally.exemplar) is None:
            self.listeners.add(broker)
        else:
            self.listeners.learn(exemplar, broker)

    def connect(self, row: ConnectionLogRow) -> None:
        """Add a connection that has ended."""
        if row.opening in UNOPENED:
            if row.is_listener:
                self.listeners.add(row.broker)
            self.unopened[row.client.ip, row.broker].add(row)
            kind = _UNOPENED
        elif row.protocol == KAFKA:
            self.kept[row.client_id or row.client.ip, row.broker].add(row)
            self.hosts[row.client.ip, row.broker].add(row)
            is_reset = row.end is not None and row.end.reset
            kind = _RESET if is_reset else _OUTSTANDING if row.outstanding_calls else _OTHER
        else:
            return
        self.lifetimes[kind, row.broker].add(row)

    def rows(self) -> list[ClientConnectionsRow]:
        """The rows, those with the most connections first."""
        rows = [_row(*key, each) for key, each in (*self.kept.items(), *self._failed().items())]
        return sorted(rows, key=lambda row: (-row.connections, row.client, row.broker))

    def host_rows(self) -> list[HostConnectionsRow]:
        """The rows of hosts, those with the most connections first."""
        failed, none = self._failed(), HostCounts()
        rows = []
        for key in {**self.hosts, **failed}:
            counted = self.hosts.get(key, none)
            rows.append(
                row_of(
                    HostConnectionsRow,
                    counted,
                    host=key[0],
                    broker=str(key[1]),
                    failed=failed[key].connections if key in failed else 0,
                    round_trip_us=spread(counted.round_trip_us),
                    bytes_per_second=per_second(counted.bytes, counted.seconds),
                    client_window_bytes=counted.windows.client_window_bytes,
                    broker_window_bytes=counted.windows.broker_window_bytes,
                    client_unscaled=counted.windows.client_unscaled,
                    broker_unscaled=counted.windows.broker_unscaled,
                )
            )
        return sorted(rows, key=lambda row: (-row.connections - row.failed, row.host, row.broker))

    def over_time(self) -> list[LifetimeRow]:
        """Some connections, the most harmful first."""
        by_kind = (
            sorted(chain(*(each.first for key, each in self.lifetimes.items() if self._is_shown(kind, key))))
            for kind in range(_OTHER + 1)
        )
        return [
            LifetimeRow(
                connection=each.id,
                client=each.client,
                broker=each.broker,
                start=moment(each.start_ns),
                end=moment(each.start_ns - each.shorter_ns),
                ending=each.ending,
                exchanges=each.exchanges,
                outstanding=-each.less_outstanding,
            )
            for each in list(chain(*by_kind))[:_ALL_LIFETIMES]
        ]

    def _is_shown(self, kind: int, key: tuple[int, Endpoint]) -> bool:
        return key[0] == kind and (kind != _UNOPENED or key[1] in self.listeners)

    def _failed(self) -> dict[tuple[str, Endpoint], ConnectionCounts]:
        """Connections to Kafka listeners that never opened."""
        return {key: each for key, each in self.unopened.items() if key[1] in self.listeners}

    def other_counts(self) -> dict[str, int]:
        """Connections without their own row."""
        return other_counts(
            client_connections=(self.kept, "connections"), host_connections=(self.hosts, "connections")
        )


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
