"""START HERE: packets -> exchanges. The path of a byte through kdissect, one stage after the other:

    result          stage                            what it does
    Packet          capture/reader.py                reads a file, stdin or an interface
    Segment         net/tcp.py                       parses link layer, tunnels, IP and TCP
    Data | Gap      net/connection.py                puts the bytes of each direction in order, each once
      opened        net/preface.py                   takes PROXY headers out of the beginning
      decrypted     tls/decryption.py                opens TLS records, if there is a key log
    Frame           kafka/framing.py                 splits a stream into frames: int32 size, payload
    Exchange        exchanges/kafka_connection.py    matches responses to requests by correlation ID
      in order      exchanges/ordering.py            sorts exchanges of all connections by completion
      decoded       kafka/bodies.py                  decodes headers and bodies by API key and version
                    kafka/internal/payloads.py       decodes the messages embedded in those bodies
                    exchanges/latency.py             splits latencies: queue, network, wait, service
      with names    exchanges/topic_names.py         resolves topic IDs to names
      with times    exchanges/end_to_end.py          determines when fetched records were produced, if enabled
    rows, lines     tables/, text/                   (called with the exchanges, not from here)

``Dissection`` runs them. Its ``steps`` goes as far as undecoded exchanges, connection by connection, and
``in_order`` does the rest: processes that share the work run the two halves in different places.

A stage is a class with ``feed`` and ``close``. It knows only the stage before it, keeps no more in memory
than limits.py allows, and reads no clock: all deadlines are in packet time.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from kdissect import core
from kdissect.capture.reader import Readable, open_capture
from kdissect.errors import CaptureError, UsageError
from kdissect.exchanges.content import PRODUCE, errors
from kdissect.exchanges.decoding import Decoding
from kdissect.exchanges.end_to_end import EndToEnd, learn_produced, produce_refs
from kdissect.exchanges.expected import expected_errors
from kdissect.exchanges.kafka_connection import KafkaConnection, MemoryBudget
from kdissect.exchanges.latency import Splitters
from kdissect.exchanges.learned import LearnedFacts, Listeners
from kdissect.exchanges.lending import Finishing, Lending
from kdissect.exchanges.ordering import ByRequest, Ordering
from kdissect.exchanges.overdue import Overdue
from kdissect.exchanges.skimming import SkimmedConnection, SkimmedForProduces
from kdissect.exchanges.topic_names import (
    TopicNameResolver,
    TopicRefs,
    Waiting,
    learn,
    topic_refs,
    undecoded_topic_refs,
)
from kdissect.exchanges.written import WrittenText, WrittenTexts
from kdissect.kafka.other_protocols import other_protocol
from kdissect.kafka.primitives import DecodeBudget
from kdissect.limits import DEFAULT, Limits
from kdissect.model import (
    ANSWERED,
    Closed,
    Data,
    Decrypted,
    Exchange,
    IdleTick,
    Packet,
    PacketBlock,
    Prefaced,
    Retransmitted,
    Segment,
)
from kdissect.net.analysis import OPENED
from kdissect.net.connection import Connections
from kdissect.net.dns import resolved
from kdissect.net.duplex import NEVER_NS
from kdissect.net.tcp import Segments, StreamNumbers
from kdissect.options import WHOLE, Options
from kdissect.sinks.plan import PlanContext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence

    from kdissect.capture.connection_index import ConnectionIndex
    from kdissect.capture.reader import Capture, Origin
    from kdissect.model import Endpoint, Gap, TlsSession
    from kdissect.net.connection import Connection, Event
    from kdissect.net.dns import Resolved
    from kdissect.net.ip import Datagram
    from kdissect.net.tcp import Shard
    from kdissect.sinks.plan import Describe, Plan, TopicIdNames
    from kdissect.sinks.sink import Sink
    from kdissect.tls.decryption import Decryption
    from kdissect.tls.keylog import KeyLog

NO_SERVER_HELLO = "TLS connections without a ServerHello"
"""A count: the ClientHello was captured, and no answer to it."""


class CaptureObserver(Protocol):
    """Called at the end of each connection."""

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        """Note a connection that has ended. Some of its exchanges may not have been yielded yet."""

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:
        """Note a connection that was refused, not answered or one-way. ``is_listener``: whether its far end
        is known as a Kafka listener, from the options or from facts learned before.
        """


@runtime_checkable
class NameObserver(CaptureObserver, Protocol):
    """Is also called with DNS responses over UDP."""

    def resolved(self, response: Resolved) -> None:
        """Note the addresses of a name."""


class Step(NamedTuple):
    """What one packet or the passing of time has led to, on all connections.

    Attributes:
        events: on connections.
        exchanges: those that the events complete, in order within each connection.
        waiting_since_ns: the earliest completion time that an exchange still to come may have; None: no
            connection waits for anything.
    """

    events: list[Event]
    exchanges: list[Exchange]
    waiting_since_ns: int | None


class ShardOutput(NamedTuple):
    """Where the core puts the lines of a shard, which another process puts in order.

    Attributes:
        plan: of the sink.
        names: of topics.
        batch: the core's ``RowBatch``.
        note: see ``Finishing.take``.
    """

    plan: Plan
    names: TopicIdNames
    batch: Any
    note: Callable[[bytes, int, int], object]


Source: TypeAlias = PacketBlock | Packet | Segment | IdleTick
"""Input of a dissection."""

_DEFAULT = Options()

_ALL_ROWS = 1 << 32


class _EnoughError(Exception):
    """The core has made the last row that was wanted."""


_RARE = Closed, Prefaced, Retransmitted, Decrypted, Exchange

_TICK_PACKETS = 1000
"""Packets between two checks for expired deadlines. The interval does not affect the results."""

_CHECK_PACKETS = 100
"""Packets, at least, between two checks of what all connections hold: after the same blocks everywhere."""


class Dissection:
    """Packets in, exchanges out: iterate over it once.

    Args:
        packets: in order of time, with idle ticks among them if the capture is live; or their segments.
        options: limits, ports and whether to show secrets. Filters are applied by the caller.
        index: notes which connection each packet belongs to.
        observer: is called at the end of each connection.
        learned: facts gathered from the whole capture beforehand (``learned_from``), so that exchanges do not
            wait for names.
        shard: the connections to dissect; None: all.
        split_latency: whether answered exchanges get the parts of their latency.
        key_log: secrets of TLS sessions, which may still grow; None: those of ``options.key_logs``.

    Attributes:
        skipped: packets that were not dissected, by reason.
        counts: packets, exchanges, connections by protocol, gaps and other events.
        noticed: notices about connections, each with the time when its connection ended, in ns: the first
            ``limits.notices`` and maybe more (``notices_of``).
        place: how far the input has been dissected: twice the number of packets and idle ticks, plus one for
            events that follow from the passing of time. It does not depend on the shard.
        now_ns: the latest packet time so far.
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
        split_latency: bool = True,
        key_log: KeyLog | None = None,
    ) -> None:
        limits, ports, kafka_ports = options.limits, options.ports, options.kafka_ports
        self._packets = packets
        self._index = index
        self._observers: list[CaptureObserver] = []
        self._learned = learned
        self._learning: LearnedFacts | None = None
        # Not in WINDOW mode: the result would depend on whether facts were gathered beforehand.
        self._listeners = learned.listeners if learned and learned.names == WHOLE else Listeners(limits)
        self._clusters = learned.clusters if learned and learned.names == WHOLE else None
        self._options = options
        self._limits = limits
        self._ports = ports | kafka_ports if ports else ports
        self._kafka_ports = kafka_ports
        self._decryption: Decryption | None = None
        self._key_log = key_log
        if options.key_logs or (key_log is not None and len(key_log)):
            self._decryption = _decryption(options, learned, key_log)
        self._unsearched = options if options.pcapng_files or key_log is not None else None
        self._split_latency = split_latency
        self._shard = shard
        self._segments = Segments(limits)
        self._numbers = StreamNumbers(limits) if options.numbers_streams else None
        listeners = self._listeners
        self._connections = Connections(
            limits, shard, is_listener=lambda end: end.port in kafka_ports or end in listeners
        )
        if observer is not None:
            self.observe(observer)
        self._kafka_connections: dict[Connection, KafkaConnection | None] = {}
        self._connection_type: type[KafkaConnection] = KafkaConnection
        self._is_needed: Callable[[int, int], bool] | None = None
        self._memory = MemoryBudget(limits)
        self._watcher: Overdue | ByRequest | None = None
        self._by_request: ByRequest | None = None
        self._describe: Describe | None = None
        self._finishing: Finishing | None = None
        self._lending: Lending | None = None
        self._queue: Lending | None = None
        self._left_queued = 0  # exchanges that are not settled yet
        self._ordering: Ordering[Exchange] = Ordering(limits)
        self._decoding = Decoding(limits, show_secrets=options.show_secrets)
        self._topic_ids = options.topic_ids
        self._resolver: TopicNameResolver[Exchange | Waiting] = TopicNameResolver(
            limits, _topic_refs, learned, options.topic_ids
        )
        self._end_to_end: EndToEnd[Exchange | WrittenText] | None = (
            EndToEnd(limits, produce_refs, learned) if options.end_to_end else None
        )
        self._written = None if self._end_to_end is None else WrittenTexts(self._end_to_end.feed)
        self._write: Callable[[WrittenText], object] = len
        self._splitters = Splitters(limits)
        self._context = PlanContext(self._resolver, limits, self._decoding, self._splitters, self._written)
        self.skipped = self._segments.skipped
        self.counts: Counter[str] = Counter()
        self.noticed: list[tuple[int, str]] = []
        self.place = self.now_ns = self._ticked_ns = 0
        self._earliest_since_tick_ns, self._packets_since_tick = NEVER_NS, 0
        self._packets_since_check = 0
        self._idle_ticks = 0

    def __iter__(self) -> Iterator[Exchange]:
        """Decoded exchanges in order of completion."""
        return self.in_order(self.steps())

    def observe(self, observer: CaptureObserver) -> None:
        """Call an observer at the end of each connection. To be called before the first packet is read."""
        self._observers.append(observer)
        self._connections.analyzes = True
        if isinstance(observer, NameObserver):
            self._segments.on_udp = self._note_resolved

    def in_order(self, steps: Iterable[Step]) -> Iterator[Exchange]:
        """Put the exchanges of ``steps`` in order of completion, decode them and resolve topic IDs.

        ``steps`` is ``self.steps()``, possibly through an iterator of the caller that observes the events.
        """
        for step in steps:
            yield from self._settled(step)
        yield from self._rest()

    def into(
        self,
        sink: Sink,
        selects: Callable[[Exchange], bool] | None = None,
        watch: Callable[[Iterable[Step]], Iterable[Step]] = iter,
        max_rows: int | None = None,
    ) -> Generator[None]:
        """Feed a sink while this is iterated over: the exchanges in order, and what the core made of others
        by the sink's plan. Whoever iterates has a turn after each exchange, and wherever the core may have
        made something, and closes this iterator if the input is not read to its end.

        Args:
            sink: takes them.
            selects: whether an exchange is selected; None: all are. The sink skips the others.
            watch: passes the steps on.
            max_rows: of the sink, after which the caller stops. None: there is no limit.
        """
        self._follow(sink, max_rows)
        feed, by_request = sink.feed, self._by_request
        try:
            for exchanges in chain(map(self._settled, watch(self.steps())), [self._rest()]):
                for exchange in exchanges:
                    if selects is not None and not selects(exchange):
                        if by_request is not None:
                            by_request.skip(exchange)
                        sink.skip(exchange)
                    elif by_request is None:
                        feed(exchange)
                    else:
                        for each in by_request.feed(exchange):
                            feed(each)
                            yield
                    del exchange  # before the next one is decoded: either may take most of the memory
                    yield
                if self._queue is not None:  # where the core may have finished some
                    yield
            for each in () if by_request is None else by_request.rest():
                feed(each)
                yield
        except _EnoughError:
            yield
        finally:
            self.pass_on()

    def reasons(self) -> Counter[str]:
        """Why the core left what it left to Python; see ``Lending.reasons``."""
        return Counter() if self._lending is None else self._lending.reasons()

    def pass_on(self) -> None:
        """Have the core pass on what it has counted and noted."""
        if self._lending is not None:
            self._lending.settle()

    def _follow(self, sink: Sink, max_rows: int | None) -> None:
        """Let the core do what the plan of a sink says."""
        plan = sink.plan
        if plan is None or not core.is_used:
            return

        def take(output: bytes, exchanges: int, rows: int) -> None:
            self.counts["exchanges"] += exchanges
            if self._written is not None:
                self._written.take(output)
                output = b""
            if rows:
                sink.take(output, rows)
                if sink.rows == max_rows:
                    raise _EnoughError

        if (release := plan.release) is not None:

            def write(written: WrittenText) -> None:
                release(written)
                if sink.rows == max_rows:
                    raise _EnoughError

            self._write = write

        self._describe = plan.describe
        rows_left = None if max_rows is None or not plan.has_row_each else lambda: max_rows - sink.rows
        self._finish(plan, take, self._resolver, rows_left=rows_left)

    def _finish(
        self,
        plan: Plan,
        take: Callable[[bytes, int, int], object],
        names: TopicIdNames,
        batch: core.native.RowBatch | None = None,
        rows_left: Callable[[], int] | None = None,
    ) -> None:
        """Let the core finish exchanges, those of a shard into a batch; see ``Finishing``."""
        of_core = plan.of_core(self._context._replace(names=names))
        if of_core is None:
            return
        resolver = self._resolver
        self._finishing = Finishing(
            of_core,
            self._ordering if batch is None else None,
            batch,
            room=lambda: resolver.room,
            refs=self._undecoded_topic_refs,
            take=take,
            rows_left=rows_left or (lambda: _ALL_ROWS),
            arrived=lambda: self._arrived,
        )

    def _settled(self, step: Step) -> Iterator[Exchange]:
        """The exchanges that are in order after a step."""
        if self._queue is None:
            yield from self._named(self._ordering.feed(step.exchanges, step.waiting_since_ns))
            return
        for item in self._ordering.merge(step.exchanges, step.waiting_since_ns, self._queue):
            yield from self._named([item])
        self._left_queued = self._queue.queued[0]
        yield from self._through()

    def _rest(self) -> Iterator[Exchange]:
        yield from self._released(self._resolver.close())
        dropped = 0 if self._learned is None or self._shard is not None else self._learned.dropped_names
        if forgotten := self._resolver.evicted + dropped:
            self.counts["names_forgotten"] += forgotten
        if (end_to_end := self._end_to_end) is not None:
            yield from self._through(end_to_end.close())
            self.counts["produced_evicted"] += end_to_end.evicted

    def learn(self, facts: LearnedFacts) -> None:
        """Gather the facts that other connections need, instead of iterating over the exchanges. Most
        messages cannot contain such facts and are skipped after their first bytes.
        """
        learners = [learn]
        for topic_id, name in self._topic_ids.items():
            facts.learn_topic(topic_id, name, 0)
        self._numbers = None
        connection_type = SkimmedConnection
        self._learning = facts
        if self._end_to_end is not None:
            facts.gathered_batches()
            learners.append(learn_produced)
            connection_type = SkimmedForProduces
        self._connection_type, self._is_needed = connection_type, connection_type.needs
        if self._decryption is not None:
            self._decryption.sessions = facts.tls_sessions
        skimmed = cast("dict[Connection, SkimmedConnection | None]", self._kafka_connections)
        for events in self._streams(self._stage()):
            for connection, side, item in events:
                kafka = skimmed.get(connection)
                if kafka is not None and kafka.skims(side, item):
                    continue
                for exchange in self._dissect(connection, side, item):
                    for learn_from in learners:
                        learn_from(exchange, facts)

    def streams(self) -> Iterator[list[Event]]:
        """The bytes of connections in order, with TLS decrypted, instead of the exchanges in them."""
        return self._streams(self._connections)

    def _streams(self, stage: Connections | Lending) -> Iterator[list[Event]]:
        return iter(self._plaintext(chain(self._events(stage), self._last_events())))

    def key_log(self, client_randoms: Iterable[bytes]) -> bytes:
        """Lines of a key log for these TLS sessions."""
        return b"" if self._decryption is None else self._decryption.key_log(client_randoms)

    def watch_requests(self, by_request: ByRequest) -> None:
        """Feed sinks in order of request: note outstanding ones as soon as their frames are whole."""
        self._watcher = self._by_request = by_request

    def watch_overdue(self, take: Callable[[Exchange, Exchange], object]) -> None:
        """Call ``take`` with each request that becomes overdue while it is outstanding; see ``Overdue``."""

        def decode(unanswered: Exchange) -> None:
            self.decode(unanswered)
            self._resolver.resolve_now(unanswered)

        self._watcher = Overdue(decode, take)

    def steps(self, output: ShardOutput | None = None) -> Iterator[Step]:
        """Dissect packets up to undecoded exchanges, not yet in order across connections. There is no step
        for packets that complete nothing and leave no connection waiting.

        Args:
            output: where the core writes lines of exchanges, which are then not in the steps.
        """
        if output is not None:
            self._finish(output.plan, output.note, output.names, output.batch)
        connections = self._connections
        waiting: int | None = None
        since: int | None = None
        for events in self._plaintext(self._events(self._stage())):
            items: list[Exchange] = []
            for event in events:
                items += self._dissect(*event)
            before, waiting = waiting, connections.waiting_since_ns
            if items:
                since = self._held_since(waiting)
                yield Step(events, items, since)
            elif self._queue is None:
                if not waiting is before is None:
                    yield Step(events, items, self._held_since(waiting))
            else:
                before, since = since, self._held_since(waiting)
                if since != before or self._queue.queued[0] != self._left_queued:
                    yield Step(events, items, since)
        yield from self._last_steps()

    def _last_steps(self) -> Iterator[Step]:
        for events in self._plaintext(self._last_events()):
            yield Step(events, [item for event in events for item in self._dissect(*event)], None)
        self.counts.update(self._connections.counts)
        if self._decryption is not None:
            self._decryption.close()
            self.counts.update(self._decryption.counts)

    def stop(self) -> None:
        """End the connections that are still open, after reading has stopped before its end: observers count
        them. Exchanges that this completes are left out, and notices: what is cut here is not damaged.
        """
        notices, noticed = self.counts["notices"], self.noticed.copy()
        deque(self._last_steps(), maxlen=0)
        self.counts["notices"], self.noticed = notices, noticed

    def _plaintext(self, events: Iterable[list[Event]]) -> Iterable[list[Event]]:
        """The same events, with TLS decrypted if there are secrets."""
        if self._decryption is not None:
            return self._decryption.plaintext(events)
        return events if self._unsearched is None else self._searching(iter(events))

    def _searching(self, packets: Iterator[list[Event]]) -> Iterator[list[Event]]:
        """Search the captures for secrets, or wait for them, when the first TLS connection begins."""
        for events in packets:
            if self._unsearched is not None and self._begins_tls(events):
                decryption = _decryption(self._unsearched, self._learned, self._key_log)
                self._unsearched = None
                if decryption.may_decrypt:
                    if self._learning is not None:
                        decryption.sessions = self._learning.tls_sessions
                    self._decryption = decryption
                    yield from decryption.plaintext(chain([events], packets))
                    return
            yield events

    def _begins_tls(self, events: list[Event]) -> bool:
        for connection, _, item in events:
            is_first = connection not in self._kafka_connections
            if is_first and isinstance(item, Data) and other_protocol(item.payload) == "TLS":
                return True
        return False

    def _events(self, stage: Connections | Lending) -> Iterator[list[Event]]:
        """Events on connections, packet by packet.

        Deadlines are checked after every ``_TICK_PACKETS`` packets, as of the earliest of their times less
        ``reorder_window_ns``: packets may be out of order by that much.
        """
        connections, segments, index = self._connections, self._segments, self._index
        numbers = self._numbers
        for packet in self._packets:
            if isinstance(packet, IdleTick):
                self.now_ns = max(self.now_ns, packet.time_ns)
                self._idle_ticks += 1
                self.place = 2 * self._arrived
                yield self._tick(packet.time_ns)
                continue
            if isinstance(packet, Segment):
                self.place += 2
                self.now_ns = max(self.now_ns, packet.time_ns)
                yield stage.feed(packet)
                self._packets_since_check += 1
                if self._packets_since_check >= _CHECK_PACKETS:
                    yield from self._excess()
                continue
            block = packet if isinstance(packet, PacketBlock) else PacketBlock.of(packet)
            count, origin, earliest_ns, latest_ns = block.span
            before = self._arrived
            self.counts["packets"] += count
            self.now_ns = max(self.now_ns, latest_ns)
            if index is None and numbers is None:
                shift = None if origin is None else before - origin
                for events in stage.feed_block(block, segments.feed):
                    if shift is None:
                        self.place = 2 * (before + block.place_of(connections.packet))
                    else:
                        self.place = 2 * (connections.packet + shift)
                    yield events
            else:
                for place, each in enumerate(block.packets, before + 1):
                    self.place = 2 * place
                    segment = segments.feed(each)
                    if segment is not None:
                        if numbers is not None:
                            connections.number = numbers.feed(segment)
                        events = connections.feed(segment)
                        if index is not None:
                            index.note(connections.ordinal(segment.ends), segments.take_parts())
                        yield events
            self.place = 2 * (before + count)
            self._packets_since_check += count
            if self._packets_since_check >= _CHECK_PACKETS:
                yield from self._excess()
            self._earliest_since_tick_ns = min(self._earliest_since_tick_ns, earliest_ns)
            self._packets_since_tick += count
            if self._packets_since_tick >= _TICK_PACKETS:
                yield self._tick(self._earliest_since_tick_ns - self._limits.reorder_window_ns)

    def _excess(self) -> Iterator[list[Event]]:
        """Let connections free memory if all together hold too much: those that have been idle longest, until
        the sum is within the limit. Those in the native core count, and lose, as if they were here.
        """
        connections, memory = self._connections, self._memory
        lender = connections.lender
        self._packets_since_check = 0
        gathered = connections.gathered
        lent = 0 if lender is None else lender.held
        if not memory.is_exceeded(gathered + lent):
            return
        if gathered:
            yield connections.flush()
        if not memory.is_exceeded(lent):
            return
        if lender is not None:
            lender.recall_all()
        for connection in connections.by_use:
            kafka = self._kafka_connections.get(connection)
            if kafka is not None and kafka.held:
                yield cast("list[Event]", [(connection, 0, each) for each in kafka.shed(self.now_ns)])
                memory.note(kafka)
                if not memory.is_exceeded():
                    break

    @property
    def _arrived(self) -> int:
        """Packets and idle ticks so far."""
        return self.counts["packets"] + self._idle_ticks

    def _stage(self) -> Connections | Lending:
        """What turns packets into events: with the native core, unless something here needs every packet."""
        connections = self._connections
        if (
            not core.is_used
            or self._index is not None
            or self._numbers is not None
            or self._watcher is not None
        ):
            return connections
        lending = Lending(
            connections,
            self._kafka_connections,
            self._open,
            self._memory,
            self._limits,
            may_open=self._may_open if self._ports or self._kafka_ports else connections.is_new,
            finishing=self._finishing,
            decryption=lambda: self._decryption,
            is_needed=self._is_needed,
            cluster_of=self._cluster_of,
            reads_tls=lambda: self._unsearched is not None,
            refuses=lambda end: end.port not in self._kafka_ports and end not in self._listeners,
        )
        self._lending = lending
        if self._finishing is not None and self._finishing.ordering is not None:
            self._queue = lending
        return lending

    def _may_open(self, ends: bytes) -> bool:
        """Whether a SYN opens a connection that is not excluded, and whose client has no port of Kafka."""
        client, broker = (int.from_bytes(port, "big") for port in (ends[-4:-2], ends[-2:]))
        is_included = not self._ports or not self._ports.isdisjoint((client, broker))
        return is_included and client not in self._kafka_ports and self._connections.is_new(ends)

    def _last_events(self) -> Iterator[list[Event]]:
        """Events at the end of the input."""
        self._segments.close()
        self.place += 2
        yield self._connections.close(self.now_ns)

    def _tick(self, time_ns: int) -> list[Event]:
        """All packets up to this time have been delivered, as far as is known."""
        self.place |= 1
        self._ticked_ns = max(self._ticked_ns, time_ns)
        self._earliest_since_tick_ns, self._packets_since_tick = NEVER_NS, 0
        if self._watcher is not None:
            self._watcher.tick(time_ns)
        return self._connections.tick(time_ns)

    @property
    def notices(self) -> list[str]:
        """See ``notices_of``."""
        return notices_of(self.noticed, self._limits)

    def finish(self, exchange: Exchange, place: int | None = None, *, writes: bool = True) -> bool:
        """Let the core finish an exchange, instead of decoding it, if it can; see ``Lending.finish``."""
        return self._lending is not None and self._lending.finish(exchange, place, writes=writes)

    def decode(self, exchange: Exchange, *, is_named: bool = True) -> None:
        """Decode headers, bodies and embedded messages of an exchange, within ``limits.decoded_bytes``, split
        its latency, and note its cluster. The exchanges of a connection must come in order. ``is_named``:
        whether its topic IDs have the names that are known now.
        """
        if (
            self._describe is not None
            and exchange.kind == ANSWERED
            and is_named
            and self._describe(exchange, self._context)
        ):
            exchange.cluster_id = exchange.connection.cluster_id
            exchange.expected_errors = expected_errors(exchange, errors(exchange))
            return
        self._decoding.decode(exchange)
        if self._split_latency:
            self._splitters.split(exchange)

    def drop_bodies(self, exchange: Exchange) -> Callable[[], None]:
        """Drop the bodies of an exchange that was just decoded. Returns what decodes them again."""
        protocols = self._decoding.protocols.known_to(exchange)
        exchange.response = None
        if exchange.api_key != PRODUCE:  # it was decoded when it was sent
            exchange.request = None

        def decode() -> None:
            anomalies, exchange.anomalies = exchange.anomalies, []
            self._decoding.decode(exchange, protocols)
            exchange.anomalies = anomalies

        return decode

    def _held_since(self, waiting_since_ns: int | None) -> int | None:
        """Completion time after which exchanges are held back; None: they are not."""
        if waiting_since_ns is None:
            return None
        return max(waiting_since_ns, self._ticked_ns - self._limits.order_age_ns)

    def _dissect(
        self,
        connection: Connection,
        side: int,
        item: Data | Gap | Prefaced | Retransmitted | Decrypted | Closed | Exchange,
    ) -> list[Exchange]:
        if isinstance(item, _RARE):
            if isinstance(item, Exchange):
                return [item]
            if isinstance(item, Closed):
                return self._close(connection, item)
            known = self._kafka_connections.get(connection)
            if isinstance(item, Decrypted):
                if known is not None:
                    self._forget(known)
                if known is not None or connection not in self._kafka_connections:
                    self._kafka_connections[connection] = self._open(connection, item.session)
            elif known is not None and isinstance(item, Retransmitted):
                known.retransmitted(side, item)
            return []
        try:
            kafka = self._kafka_connections[connection]
        except KeyError:
            kafka = self._kafka_connections[connection] = self._open(connection)
        if kafka is None:
            return []
        items = kafka.feed(side, item)
        if self._watcher is not None:
            self._watcher.note(kafka)
        self._memory.note(kafka)
        return items

    def _open(self, connection: Connection, tls: TlsSession | None = None) -> KafkaConnection | None:
        """Start dissecting a connection; None if ``options.ports`` excludes it."""
        ports = [end.port for end in connection.ends]
        if self._ports and not self._ports.intersection(ports):
            self.counts["connections on other ports"] += 1
            return None
        forced = [side for side in (0, 1) if ports[side] in self._kafka_ports]
        known = [side for side in (0, 1) if connection.ends[side] in self._listeners]
        return self._connection_type(
            connection,
            self._limits,
            forced[0] if len(forced) == 1 else None,
            self.counts,
            known[0] if len(known) == 1 else None,
            tls,
            self._cluster_of,
        )

    def _cluster_of(self, broker: Endpoint) -> str | None:
        """The cluster of a broker, as far as it is known before the first exchange of a connection."""
        known = None if self._clusters is None else self._clusters.of(broker)
        return known if self._options.clusters else self._options.cluster or known

    def _close(self, connection: Connection, end: Closed) -> list[Exchange]:
        try:
            kafka = self._kafka_connections.pop(connection)
        except KeyError:
            self._note_unopened(connection, end)
            return []
        if kafka is None:
            return []
        self._forget(kafka)
        exchanges = kafka.close(end)
        if end.tls is None and kafka.tls is not None:
            end = end._replace(tls=kafka.tls)
        for observer in self._observers:
            observer.connection(connection, kafka, end)
        if self._learning is not None and kafka.client is not None:
            broker = connection.ends[1 - kafka.client]
            self._learning.listeners.add(broker)
            if (cluster := self._options.cluster_in(connection.interface.capture)) is not None:
                self._learning.clusters.add(broker, cluster, is_given=True)
        protocol = kafka.protocol or "not recognized"
        self.counts[f"connections: {protocol}"] += 1
        if end.tls is not None and end.tls.version is None:
            self.counts[NO_SERVER_HELLO] += 1
        if kafka.protocol is None:
            self.counts[f"not recognized on port {connection.server.port}"] += 1
        for anomaly in kafka.unattached:
            if anomaly.kind == "one_direction":
                self.counts["kafka_responses_only"] += 1
            else:
                self._notice(connection, end, anomaly.detail)
        return exchanges

    def _forget(self, kafka: KafkaConnection) -> None:
        self._memory.forget(kafka)
        if self._watcher is not None:
            self._watcher.forget(kafka)

    def _note_unopened(self, connection: Connection, end: Closed) -> None:
        if not self._observers or connection.tcp is None or connection.tcp.opening in (None, OPENED):
            return
        assert connection.initiator is not None
        far_end = connection.ends[1 - connection.initiator]
        if self._ports and not self._ports.intersection(each.port for each in connection.ends):
            return
        is_listener = far_end.port in self._kafka_ports or (
            self._learned is not None and far_end in self._learned.listeners
        )
        for observer in self._observers:
            observer.unopened_connection(connection, end, is_listener=is_listener)

    def _note_resolved(self, datagram: Datagram) -> None:
        if (response := resolved(datagram.payload)) is not None:
            for observer in self._observers:
                if isinstance(observer, NameObserver):
                    observer.resolved(response)

    def _named(self, items: list[Exchange | Waiting] | list[Exchange]) -> Iterator[Exchange]:
        """Decode exchanges, unless they must wait, and yield those that have their names."""
        items.reverse()  # pop frees each exchange early: at the end of a capture there may be many
        while items:
            item: Exchange | Waiting = items.pop()
            if isinstance(item, Exchange):
                if self._resolver.is_idle:
                    if self._lending is not None and self.finish(item):
                        continue
                    self.decode(item)
                else:
                    refs = self._undecoded_topic_refs(item)
                    item = Waiting(item, 1, item.held_bytes, item.completed_ns, refs)
            yield from self._released(self._resolver.feed(item))

    def _undecoded_topic_refs(self, exchange: Exchange) -> TopicRefs:
        limits = self._limits
        return undecoded_topic_refs(exchange, DecodeBudget(limits.decoded_bytes, limits.oversized_bytes))

    def _released(self, items: list[Exchange | Waiting]) -> Iterator[Exchange]:
        """Decode those that have waited."""
        items.reverse()
        while items:
            item = items.pop()
            for exchange in (item,) if isinstance(item, Exchange) else self._decoded(item):
                if self._end_to_end is None:
                    yield self._counted(exchange)
                else:
                    yield from self._through(self._end_to_end.feed(exchange))
                del exchange  # before the next one is decoded

    def _through(self, more: Iterable[Exchange | WrittenText] = ()) -> Iterator[Exchange]:
        """The exchanges that no longer wait for other copies of their batches. Text of the core is written in
        its turn.
        """
        if self._written is not None:
            for item in self._written.through(more):
                if isinstance(item, Exchange):
                    yield self._counted(item)
                    continue
                if (changed := item.changed()) is not None:
                    self._decoding.decode(changed)
                self._write(item)

    def _decoded(self, waiting: Waiting) -> Iterator[Exchange]:
        """The exchanges that have waited, as far as the core does not finish them."""
        resolver, queue = self._resolver, self._queue
        knew, resolver.learns, resolver.unnamed = resolver.learns, False, waiting.unnamed
        if (exchange := waiting.exchange) is not None:
            is_finished = self.finish(exchange, writes=not waiting.anomalies)
            left: Iterable[tuple[Exchange, Waiting]] = [] if is_finished else [(exchange, waiting)]
        else:
            assert queue is not None
            left = queue.release(waiting)
        for exchange, item in left:
            self.decode(exchange, is_named=not item.unnamed)
            exchange.topic_ids |= item.topic_ids
            exchange.anomalies += item.anomalies
            yield exchange
        resolver.learns, resolver.unnamed = knew, frozenset()

    def _counted(self, exchange: Exchange) -> Exchange:
        self.counts["exchanges"] += 1
        return exchange

    def _notice(self, connection: Connection, end: Closed, text: str) -> None:
        self.counts["notices"] += 1
        first, second = connection.ends
        self.noticed.append((end.time_ns, f"{first} - {second}: {text}"))
        if len(self.noticed) > 2 * self._limits.notices:
            self.noticed = sorted(self.noticed)[: self._limits.notices]


def _topic_refs(item: Exchange | Waiting) -> TopicRefs:
    return item.refs if isinstance(item, Waiting) else topic_refs(item)


def notices_of(noticed: Iterable[tuple[int, str]], limits: Limits) -> list[str]:
    """The texts of the first ``limits.notices`` notices, in order of time: of ``Dissection.noticed``, of all
    that share a capture.
    """
    return [text for _, text in sorted(noticed)[: limits.notices]]


def _decryption(options: Options, learned: LearnedFacts | None, key_log: KeyLog | None) -> Decryption:
    """A stage that decrypts. Loads the ciphers: few runs need them."""
    from kdissect.tls.decryption import Decryption
    from kdissect.tls.keylog import read_key_logs

    if key_log is None:
        key_log = read_key_logs(options.key_logs, options.pcapng_files, options.limits)
    return Decryption(key_log, options.limits, None if learned is None else learned.tls_sessions)


def learned_from(
    paths: Sequence[Origin],
    options: Options,
    shard: Shard | None = None,
    watch: Callable[[Iterable[Source], Capture], Iterable[Source]] | None = None,
    key_log: KeyLog | None = None,
) -> LearnedFacts:
    """The first pass over captures: the facts learned from them, for the ``Dissection`` that follows.
    Captures that cannot be read are skipped.

    Args:
        paths: names of the captures. They are files, because they are read again.
        options: as for the dissection.
        shard: the connections to learn from; None: all.
        watch: passes packets on.
        key_log: as for the dissection.
    """
    facts = LearnedFacts(options.limits, options.names)
    with suppress(CaptureError), open_capture(*paths, limits=options.limits) as capture:
        packets = Readable(capture.packet_blocks())
        watched = packets if watch is None else watch(packets, capture)
        Dissection(watched, options, shard=shard, key_log=key_log).learn(facts)
    return facts


def dissect(
    packets: Iterable[Source],
    *,
    limits: Limits = DEFAULT,
    ports: Collection[int] = (),
    kafka_ports: Collection[int] = (),
    show_secrets: bool = False,
) -> Dissection:
    """Dissect packets, for example those of ``open_capture("capture.pcap")``. Arguments as in ``Options``.

    Raises:
        UsageError: it is given a path.
    """
    if isinstance(packets, (str, bytes, os.PathLike)):
        raise UsageError(f"dissect takes packets; for a file: kdissect.read({os.fspath(packets)!r})")
    return Dissection(packets, Options(limits, frozenset(ports), frozenset(kafka_ports), show_secrets))
