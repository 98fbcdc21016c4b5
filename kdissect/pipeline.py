"""START HERE: the way of a byte through kdissect, from top to bottom.

    Packet      capture/reader.py        a file, stdin or an interface
      Segment     net/tcp.py               link layer, IP, fragments, TCP header
        Data | Gap  net/connection.py        each direction's bytes in order, each once
          Frame       kafka/framing.py         int32 size + payload
            Exchange    analysis/dialogue.py     requests paired with responses by correlation id
                          analysis/ordering.py     in order of completion over all connections
                          kafka/bodies.py          headers and bodies decoded by api key and version
                          kafka/internal/          payloads inside them opened
                          analysis/naming.py       topic ids become names
              sinks/      lines, trees, JSON lines, CSV

Every stage is a class with ``feed`` and ``close``, holds no more than limits.py says, and knows no stage but
the one below.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.analysis.dialogue import Dialogue
from kdissect.analysis.holdings import Holdings
from kdissect.analysis.naming import Naming
from kdissect.analysis.ordering import Ordering
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.internal.groups import GroupProtocols
from kdissect.kafka.internal.payloads import open_payloads
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Closed, Lull
from kdissect.net.connection import Connections
from kdissect.net.tcp import Segments

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from kdissect.analysis.survey import Survey
    from kdissect.capture.trail import Trail
    from kdissect.model import Data, Exchange, Gap, Packet
    from kdissect.net.connection import Connection


class Dissection:
    """Packets in, exchanges out: iterate over it once.

    Args:
        packets: in order of time; lulls among them where they come live.
        limits: bounds of every stage.
        ports: look only at connections with one of these ports; empty: at all.
        kafka_ports: connections with one of these are Kafka, whatever their bytes look like, and that end is
            the broker.
        show_secrets: leave credentials in the bodies.
        trail: told of each packet which connection it belongs to.
        survey: told of each connection at its end.

    Attributes:
        skipped: packets that were not looked at, by reason.
        counts: packets, exchanges, connections by protocol, gaps and what else there is to count.
        notices: sentences about connections, for a person; at most ``limits.notices``.
    """

    def __init__(
        self,
        packets: Iterable[Packet | Lull],
        *,
        limits: Limits = DEFAULT,
        ports: Collection[int] = (),
        kafka_ports: Collection[int] = (),
        show_secrets: bool = False,
        trail: Trail | None = None,
        survey: Survey | None = None,
    ) -> None:
        self._packets = packets
        self._trail = trail
        self._survey = survey
        self._limits = limits
        self._ports = frozenset(ports) | (frozenset(kafka_ports) if ports else frozenset())
        self._kafka_ports = frozenset(kafka_ports)
        self._show_secrets = show_secrets
        self._segments = Segments(limits)
        self._connections = Connections(limits)
        self._dialogues: dict[Connection, Dialogue | None] = {}
        self._holdings = Holdings(limits)
        self._ordering = Ordering(limits)
        self._group_protocols = GroupProtocols(limits)
        self._naming = Naming(limits)
        self._time_ns = 0
        self.skipped = self._segments.skipped
        self.counts: Counter[str] = Counter()
        self.notices: list[str] = []

    def __iter__(self) -> Iterator[Exchange]:
        """Exchanges in order of completion."""
        connections, segments, ordering = self._connections, self._segments, self._ordering
        trail = self._trail
        for packet in self._packets:
            if isinstance(packet, Lull):
                yield from self._wait(packet.time_ns)
                continue
            self.counts["packets"] += 1
            events = connections.feed_usual(packet) if trail is None else None
            if events is None:
                segment = segments.feed(packet)
                if segment is None:
                    continue
                events = connections.feed(segment)
                if trail is not None:
                    trail.note(connections.ordinal(segment.ends), segments.take_parts())
            if packet.time_ns > self._time_ns:
                self._time_ns = packet.time_ns
            if not (events or ordering.held):
                continue
            exchanges: list[Exchange] = []
            for event in events:
                exchanges += self._dissect(*event)
            if exchanges or ordering.held:
                yield from self._named(ordering.feed(exchanges, self._waiting_since_ns()))
        segments.close()
        exchanges = [exchange for event in connections.close() for exchange in self._dissect(*event)]
        exchanges.sort(key=lambda exchange: exchange.order)
        yield from self._named(ordering.feed(exchanges, None))
        named = self._naming.close()
        self.counts["exchanges"] += len(named)
        yield from named
        self.counts.update(connections.counts)

    def _wait(self, now_ns: int) -> Iterator[Exchange]:
        """Time goes on without packets: what has waited long enough waits no more."""
        self._time_ns = max(self._time_ns, now_ns)
        events = self._connections.wait(self._time_ns)
        exchanges = [exchange for event in events for exchange in self._dissect(*event)]
        exchanges.sort(key=lambda exchange: exchange.order)
        if exchanges or self._ordering.held:
            yield from self._named(self._ordering.feed(exchanges, self._waiting_since_ns()))

    def _waiting_since_ns(self) -> int | None:
        """Exchanges that completed later are held back; None: none are."""
        since_ns = self._connections.waiting_since_ns
        return None if since_ns is None else max(since_ns, self._time_ns - self._limits.order_age_ns)

    def _dissect(self, connection: Connection, side: int, item: Data | Gap | Closed) -> list[Exchange]:
        if isinstance(item, Closed):
            return self._close(connection, item)
        try:
            dialogue = self._dialogues[connection]
        except KeyError:
            dialogue = self._dialogues[connection] = self._begin(connection)
        if dialogue is None:
            return []
        exchanges = dialogue.feed(side, item)
        if self._holdings.note(dialogue):
            for silent in self._holdings.excess():
                exchanges += silent.shed(self._time_ns)
        return exchanges

    def _begin(self, connection: Connection) -> Dialogue | None:
        """None for a connection that the user does not want to see."""
        ports = [end.port for end in connection.ends]
        if self._ports and not self._ports.intersection(ports):
            self.counts["connections on other ports"] += 1
            return None
        forced = [side for side in (0, 1) if ports[side] in self._kafka_ports]
        return Dialogue(connection, self._limits, forced[0] if len(forced) == 1 else None, self.counts)

    def _close(self, connection: Connection, end: Closed) -> list[Exchange]:
        dialogue = self._dialogues.pop(connection, None)
        if dialogue is None:
            return []
        self._holdings.forget(dialogue)
        is_evicted = end.reason == "evicted"
        exchanges = dialogue.close(self._time_ns, "too many connections" if is_evicted else None)
        if self._survey is not None:
            self._survey.connection(connection, dialogue, end)
        protocol = dialogue.protocol or "not recognised"
        self.counts[f"connections: {protocol}"] += 1
        if protocol == "TLS":
            self._notice(connection, "TLS, not decrypted")
        for anomaly in dialogue.unattached:
            self._notice(connection, anomaly.detail)
        return exchanges

    def _named(self, exchanges: list[Exchange]) -> Iterator[Exchange]:
        exchanges.reverse()  # to let go of each as it leaves: at the end of a capture they are many
        while exchanges:
            exchange = exchanges.pop()
            decode_exchange(exchange, show_secrets=self._show_secrets)
            exchange.anomalies += open_payloads(exchange, self._group_protocols, self._limits)
            named = self._naming.feed(exchange)
            self.counts["exchanges"] += len(named)
            yield from named

    def _notice(self, connection: Connection, text: str) -> None:
        self.counts["notices"] += 1
        if len(self.notices) < self._limits.notices:
            first, second = connection.ends
            self.notices.append(f"{first} - {second}: {text}")


def dissect(
    packets: Iterable[Packet | Lull],
    *,
    limits: Limits = DEFAULT,
    ports: Collection[int] = (),
    kafka_ports: Collection[int] = (),
    show_secrets: bool = False,
    trail: Trail | None = None,
    survey: Survey | None = None,
) -> Dissection:
    """Dissect packets, for example those of ``open_capture("capture.pcap")``; see ``Dissection``."""
    return Dissection(
        packets,
        limits=limits,
        ports=ports,
        kafka_ports=kafka_ports,
        show_secrets=show_secrets,
        trail=trail,
        survey=survey,
    )
