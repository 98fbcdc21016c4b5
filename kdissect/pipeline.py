"""START HERE: the way of a byte through kdissect, from top to bottom.

    Packet      capture/reader.py        a file, stdin or an interface
      Segment     net/tcp.py               link layer, IP, fragments, TCP header
        Data | Gap  net/connection.py        each direction's bytes in order, each once
          Frame       kafka/framing.py         int32 size + payload
            Exchange    exchanges/kafka_connection.py     requests paired with responses by correlation id
                          exchanges/ordering.py     in order of completion over all connections
                          kafka/bodies.py          headers and bodies decoded by api key and version
                          kafka/internal/          payloads inside them opened
                          exchanges/topic_names.py       topic ids become names
              tables/, text/   typed rows, lines, trees

Every stage is a class with ``feed`` and ``close``, holds no more than limits.py says, and knows no stage but
the one below.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kdissect.exchanges.kafka_connection import KafkaConnection, MemoryBudget
from kdissect.exchanges.ordering import Ordering
from kdissect.exchanges.topic_names import TopicNameResolver, learn, topic_refs
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.internal.payloads import GroupProtocols, open_payloads
from kdissect.kafka.primitives import DecodeBudget
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Closed, Exchange, IdleTick, Packet, PacketBlock, Segment
from kdissect.net.connection import Connections
from kdissect.net.duplex import NEVER_NS
from kdissect.net.tcp import Segments
from kdissect.options import Options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kdissect.capture.connection_index import ConnectionIndex
    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.model import Data, Gap
    from kdissect.net.connection import Connection, Event
    from kdissect.net.tcp import Shard


class CaptureObserver(Protocol):
    """What is told of each connection at its end."""

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        """Take a connection that is over; of its exchanges some may still be on their way."""


Step: TypeAlias = "tuple[list[Event], list[Exchange], int | None]"
"""What happens on connections with a packet; what that completes, of each connection in its order; and since
when any connection waits, None while none does."""

Source: TypeAlias = PacketBlock | Packet | Segment | IdleTick
"""What a dissection is made of."""

_DEFAULT = Options()

_TICK_PACKETS = 1000
"""How often it is looked at which deadlines have passed: what comes of it is the same whenever that is."""


class Dissection:
    """Packets in, exchanges out: iterate over it once.

    Args:
        packets: in order of time; lulls among them where they come live. Or the segments that they carry.
        options: limits, ports and whether to show secrets; which exchanges to select is for later.
        trail: told of each packet which connection it belongs to.
        survey: told of each connection at its end.
        learned: what all parts of the capture say about topic ids: an id is named if that was at most
            ``limits.naming_window_ns`` later, and nothing waits for it.
        share: take only some of the connections.

    Attributes:
        skipped: packets that were not looked at, by reason.
        counts: packets, exchanges, connections by protocol, gaps and what else there is to count.
        noticed: sentences about connections, and at which ``place``; more than ``limits.notices`` only where
            several are of the last place.
        place: how far the packets have been dissected: twice their number, and one more for what becomes
            clear behind them, because time has gone on. The same whatever share of the connections is taken.
        now_ns: the latest time of a packet so far.
    """

    def __init__(
        self,
        packets: Iterable[Source],
        options: Options = _DEFAULT,
        *,
        index: ConnectionIndex | None = None,
        observer: CaptureObserver | None = None,
        learned: LearnedFacts | None = None,
        shard: Shard | None = None,
    ) -> None:
        limits, ports, kafka_ports = options.limits, options.ports, options.kafka_ports
        self._packets = packets
        self._index = index
        self._observer = observer
        self._limits = limits
        self._ports = ports | kafka_ports if ports else ports
        self._kafka_ports = kafka_ports
        self._show_secrets = options.show_secrets
        self._segments = Segments(limits)
        self._connections = Connections(limits, shard)
        self._kafka_connections: dict[Connection, KafkaConnection | None] = {}
        self._memory = MemoryBudget(limits)
        self._ordering: Ordering[Exchange] = Ordering(limits)
        self._group_protocols = GroupProtocols(limits)
        self._budget = DecodeBudget(oversized=limits.oversized_bytes)  # of the exchange that is being decoded
        self._resolver: TopicNameResolver[Exchange] = TopicNameResolver(limits, topic_refs, learned)
        self.skipped = self._segments.skipped
        self.counts: Counter[str] = Counter()
        self.noticed: list[tuple[int, str]] = []
        self.place = self.now_ns = self._ticked_ns = 0
        self._earliest_since_tick_ns, self._packets_since_tick = (
            NEVER_NS,
            0,
        )  # of the packets since the last tick: time, count

    def __iter__(self) -> Iterator[Exchange]:
        """Exchanges in order of completion."""
        return self.in_order(self.steps())

    def in_order(self, steps: Iterable[Step]) -> Iterator[Exchange]:
        """Exchanges of ``steps()``, which the caller may look at on their way, in order of completion."""
        ordering = self._ordering
        for _, items, waiting_since_ns in steps:
            yield from self._named(ordering.feed(items, waiting_since_ns))
        yield from self._counted(self._resolver.close())

    def learn(self, facts: LearnedFacts) -> None:
        """Take what the exchanges say about other connections, in place of iterating over them. Those that
        cannot say anything are not decoded.
        """
        for _, exchanges, _ in self.steps():
            for exchange in exchanges:
                learn(exchange, facts)

    def steps(self) -> Iterator[Step]:
        """What packets complete, before it is put in order and named. Those that complete nothing and make no
        connection wait are passed over.
        """
        connections = self._connections
        waiting: int | None = None
        for events in self._events():
            items: list[Exchange] = []
            for event in events:
                items += self._dissect(*event)
            before, waiting = waiting, connections.waiting_since_ns
            if items or not waiting is before is None:
                yield events, items, self._held_since(waiting)
        self._segments.close()
        self.place += 2
        events = connections.close(self.now_ns)
        yield events, [item for event in events for item in self._dissect(*event)], None
        self.counts.update(connections.counts)

    def _events(self) -> Iterator[list[Event]]:
        """What happens on connections, packet by packet."""
        connections, segments, index = self._connections, self._segments, self._index
        for packet in self._packets:
            if isinstance(packet, IdleTick):
                self.now_ns = max(self.now_ns, packet.time_ns)
                yield self._tick(packet.time_ns)
                continue
            if isinstance(packet, Segment):
                self.place += 2
                self.now_ns = max(self.now_ns, packet.time_ns)
                yield connections.feed(packet)
                continue
            block = packet if isinstance(packet, PacketBlock) else PacketBlock.of(packet)
            places, before = block.places, self.counts["packets"]
            self.counts["packets"] += len(places)
            self.now_ns = max(self.now_ns, max(places)[0])
            if index is None:
                for events in connections.feed_block(block, segments.feed):
                    self.place = 2 * (before + connections.place)
                    yield events
            else:
                for place, each in enumerate(block.packets, before + 1):
                    self.place = 2 * place
                    segment = segments.feed(each)
                    if segment is not None:
                        events = connections.feed(segment)
                        index.note(connections.ordinal(segment.ends), segments.take_parts())
                        yield events
            self.place = 2 * self.counts["packets"]
            self._earliest_since_tick_ns = min(self._earliest_since_tick_ns, min(places)[0])
            self._packets_since_tick += len(places)
            if self._packets_since_tick >= _TICK_PACKETS:
                yield self._tick(self._earliest_since_tick_ns - self._limits.patience_ns)

    def _tick(self, time_ns: int) -> list[Event]:
        """All packets up to a time have been delivered, as far as one can tell."""
        self.place |= 1
        self._ticked_ns = max(self._ticked_ns, time_ns)
        self._earliest_since_tick_ns, self._packets_since_tick = NEVER_NS, 0
        return self._connections.tick(time_ns)

    @property
    def notices(self) -> list[str]:
        """Sentences about connections, for a person; at most ``limits.notices``."""
        return [text for _, text in sorted(self.noticed)[: self._limits.notices]]

    def decode(self, exchange: Exchange) -> None:
        """Open what an exchange consists of."""
        limits, budget = self._limits, self._budget
        budget.left = limit = limits.decoded_bytes
        decode_exchange(exchange, show_secrets=self._show_secrets, budget=budget)
        if anomalies := open_payloads(exchange, self._group_protocols, limits, budget):
            exchange.anomalies += anomalies
        exchange.decoded_bytes = limit - budget.left

    def _held_since(self, waiting_since_ns: int | None) -> int | None:
        """Exchanges that completed later are held back; None: none are."""
        if waiting_since_ns is None:
            return None
        return max(waiting_since_ns, self._ticked_ns - self._limits.order_age_ns)

    def _dissect(self, connection: Connection, side: int, item: Data | Gap | Closed) -> list[Exchange]:
        if isinstance(item, Closed):
            return self._close(connection, item)
        try:
            kafka = self._kafka_connections[connection]
        except KeyError:
            kafka = self._kafka_connections[connection] = self._open(connection)
        if kafka is None:
            return []
        items = kafka.feed(side, item)
        if self._memory.note(kafka):
            for idle in self._memory.excess():
                items += idle.shed(item.time_ns)
        return items

    def _open(self, connection: Connection) -> KafkaConnection | None:
        """None for a connection that the user does not want to see."""
        ports = [end.port for end in connection.ends]
        if self._ports and not self._ports.intersection(ports):
            self.counts["connections on other ports"] += 1
            return None
        forced = [side for side in (0, 1) if ports[side] in self._kafka_ports]
        return KafkaConnection(connection, self._limits, forced[0] if len(forced) == 1 else None, self.counts)

    def _close(self, connection: Connection, end: Closed) -> list[Exchange]:
        kafka = self._kafka_connections.pop(connection, None)
        if kafka is None:
            return []
        self._memory.forget(kafka)
        is_evicted = end.reason == "evicted"
        reason = "too many connections" if is_evicted else None
        exchanges = kafka.close(end.time_ns, reason)
        if self._observer is not None:
            self._observer.connection(connection, kafka, end)
        protocol = kafka.protocol or "not recognized"
        self.counts[f"connections: {protocol}"] += 1
        if protocol == "TLS":
            self._notice(connection, "TLS, not decrypted")
        for anomaly in kafka.unattached:
            self._notice(connection, anomaly.detail)
        return exchanges

    def _named(self, exchanges: list[Exchange]) -> Iterator[Exchange]:
        exchanges.reverse()  # none is kept once it has left: at the end of a capture they are many
        while exchanges:
            exchange = exchanges.pop()
            self.decode(exchange)
            yield from self._counted(self._resolver.feed(exchange))

    def _counted(self, exchanges: list[Exchange]) -> Iterator[Exchange]:
        for exchange in exchanges:
            self.counts["exchanges"] += 1
            yield exchange

    def _notice(self, connection: Connection, text: str) -> None:
        self.counts["notices"] += 1
        noticed, place = self.noticed, self.place
        if len(noticed) < self._limits.notices or noticed[-1][0] == place:
            first, second = connection.ends
            noticed.append((place, f"{first} - {second}: {text}"))


def dissect(
    packets: Iterable[Source],
    *,
    limits: Limits = DEFAULT,
    ports: Collection[int] = (),
    kafka_ports: Collection[int] = (),
    show_secrets: bool = False,
) -> Dissection:
    """Dissect packets, for example those of ``open_capture("capture.pcap")``; see ``Options``."""
    return Dissection(packets, Options(limits, frozenset(ports), frozenset(kafka_ports), show_secrets))
