"""Packets -> exchanges by the native core, as long as everything about them is usual.

    packets --core--> exchanges of its connections
       |
       +--> all others, as ever: net/connection.py -> KafkaConnection

The core opens a connection by its SYN, if nothing between these ends is known, and keeps it to its end:
SYN-ACK, a first request by which it is recognized at once, exchanges, FIN of both sides or RST. A connection
that Python has opened is lent to it once it is recognized as Kafka, nothing is held or waited for, and both
directions were seen; it may end there too. The core takes the packets of a connection until one is unusual:
lost, late or repeated in part; a frame or header that does not fit; SASL; a response that does not answer the
oldest request. It stops before that packet, which has had no effect. The connection is recalled: its state
goes into the objects here, which are made if the core has opened it, and Python processes the packet. It also
processes the packets of all other connections, several at a time.

Holds nothing; what the core holds for connections counts as theirs.
"""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import core
from kdissect.exchanges.kafka_connection import IDENTIFYING_APIS, client_software
from kdissect.exchanges.pairing import PRODUCE
from kdissect.exchanges.resolver import NO_REFS, Refs
from kdissect.exchanges.topic_names import Waiting, WaitingPart
from kdissect.exchanges.undecoded import TopicIdPlan, topic_id_plan
from kdissect.kafka import apis, schema
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.headers import (
    API_VERSIONS,
    MAX_API_KEY,
    MAX_API_VERSION,
    RequestHeader,
    request_header_version,
)
from kdissect.kafka.layout import layout, split
from kdissect.kafka.other_protocols import SMALLEST_OTHER_SIZE, other_protocol
from kdissect.kafka.recognition import begins_with_request, is_known, refused_as
from kdissect.kafka.vendors import is_vendor_key
from kdissect.model import (
    ANSWERED,
    UNACKNOWLEDGED,
    UNANSWERED,
    ConnectionInfo,
    Exchange,
    Frame,
    Packet,
    PacketBlock,
)
from kdissect.net.analysis import TcpAnalysis
from kdissect.net.connection import Connection, Ended, EndedThere, StreamState, TcpState
from kdissect.net.duplex import NEVER_NS
from kdissect.net.stream import Stream
from kdissect.net.tcp import endpoints, reversed_ends
from kdissect.tls.handshake import is_hello

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kdissect.exchanges.kafka_connection import KafkaConnection, KafkaState, MemoryBudget, UnreadState
    from kdissect.exchanges.ordering import Ordering
    from kdissect.exchanges.topic_names import TopicRefs, WaitingRoom
    from kdissect.limits import Limits
    from kdissect.model import Endpoint, Segment
    from kdissect.net.connection import Connections, Event
    from kdissect.net.duplex import ConnectionIds, Duplex
    from kdissect.tls.connection import RecordState
    from kdissect.tls.decryption import Decryption

_FOREIGN, _ODD, _FULL, _BROKEN = range(1, 5)
"""Why the core stopped. 0: it has taken as much as it may at a time."""

MAX_NS = 1 << 62
"""The core's times have 64 bits."""

_ALL = 1 << 32
_MAX_REACH = (1 << 31) - 1
_API_VERSIONS = API_VERSIONS.to_bytes(2, "big")
_BRIEF = 32
_MAX_MISSED = 64
"""A connection that is recalled after fewer than ``_BRIEF`` packets misses twice as many chances to be lent
again as before, up to ``_MAX_MISSED``."""


class Finishing(NamedTuple):
    """How the core finishes exchanges, instead of passing them on.

    Attributes:
        plan: a ``CorePlan`` (sinks/plan.py).
        ordering: of the other exchanges. None: what it makes is of a shard, to be put in order by another
            process; each exchange is finished as soon as it is complete.
        batch: the core's ``RowBatch`` that gets the lines of a shard, with their keys
            (core/src/runs/merge.rs).
        room: how much can wait behind exchanges that have left the ordering. None: none of them waits.
        refs: from an exchange to the topic IDs and names in it, which stays undecoded.
        take: takes what was made, of how many exchanges, and how many of them are selected; if they are those
            of a shard, nothing was made.
        rows_left: how many selected ones are still wanted.
        arrived: number of packets and idle ticks so far, including the block being processed.
    """

    plan: Any
    ordering: Ordering[Exchange] | None
    batch: core.native.RowBatch | None
    room: Callable[[], WaitingRoom | None]
    refs: Callable[[Exchange], TopicRefs]
    take: Callable[[bytes, int, int], object]
    rows_left: Callable[[], int]
    arrived: Callable[[], int]


class StageLimits(NamedTuple):
    """The limits of kdissect/limits.py that apply in the core.

    Attributes:
        frame_bytes: of a frame.
        reach: maximum distance of a RST from the next byte.
    """

    frame_bytes: int
    pending_requests: int
    pending_bytes: int
    pending_age_ns: int
    connection_idle_ns: int
    reorder_window_ns: int
    reach: int


class ConnectionState(NamedTuple):
    """A connection as it goes to the native core, is recalled from it, or has ended there.

    Each part is of the class that continues with it. What the connection remembers of its exchanges
    (memory.py) goes the same ways, but only once the exchanges before are through.

    Attributes:
        ordinal: its number.
        duplex: the object of one that was lent; None if the core has opened it.
        tcp: of its streams.
        kafka: of its messages; None if it was not recognized yet, or its end is not to be reported.
        records: of client and broker; None without TLS.
        taken: how many segments the core has taken.
        latest: order of its last exchange in the core's queue; None if there is none.
        unread: instead of ``kafka``, of a connection whose bytes are not read.
    """

    ordinal: int
    duplex: Duplex | None
    tcp: TcpState
    kafka: KafkaState | None
    records: tuple[RecordState, RecordState] | None = None
    taken: int = 0
    latest: tuple[int, int] | None = None
    unread: UnreadState | None = None

    @property
    def is_reported(self) -> bool:
        """Whether observers note its end: also if it was refused."""
        is_refused = self.tcp.is_half_open and self.tcp.analysis is not None
        return self.kafka is not None or self.unread is not None or is_refused


class _Left(NamedTuple):
    """An exchange that the core leaves, as an event, and the packet of its place."""

    event: Any
    packet: int

    @property
    def exchange(self) -> Exchange:
        exchange: Exchange = self.event[-1]
        return exchange


class _Callbacks(NamedTuple):
    """What the core calls. It reads the attributes by name.

    Attributes:
        usual: see ``_usual``.
        introduction: from a request to whether a connection that begins with it is recognized at once; and if
            it is ApiVersions, name and version of the client's software.
        may_open: whether a SYN between these ends certainly opens a connection.
        is_known: whether requests of an API and version are known.
        refused: see ``refused_as``; the third argument are the ends of the segment.
        shard: number of the shard of connections to take, and of shards; None: there is only one.
        is_needed: see ``Lending``.
        info: from ends and time of a SYN, and the connection's number, to what its exchanges share.
        topic_ids: see ``topic_id_plan``.
        new: ``tuple.__new__``.
    """

    usual: Callable[[int, int], tuple[str | None, bool, int] | None]
    introduction: Callable[[bytes], tuple[bool, str | None, str | None]]
    may_open: Callable[[bytes], bool]
    is_known: Callable[[int, int], bool]
    refused: Callable[[bytes, bool, bytes], str | None]
    shard: tuple[int, int] | None
    is_needed: Callable[[int, int], bool] | None
    info: Callable[[bytes, int, int], ConnectionInfo]
    topic_ids: Callable[[int, int], TopicIdPlan | None] = topic_id_plan
    exchange: type[Exchange] = Exchange
    frame: type[Frame] = Frame
    request_header: type[RequestHeader] = RequestHeader
    new: Callable[..., Any] = tuple.__new__


class Lending:
    """Takes blocks of packets in place of ``Connections``.

    Args:
        connections: all connections.
        kafka: the dissection of each; None if it is excluded.
        open_kafka: starts the dissection of a connection.
        memory: of all connections.
        limits: to respect.
        may_open: whether the core may open a connection by a SYN between these ends.
        finishing: if given, the core also finishes exchanges, each in its turn.
        decryption: returns what decrypts TLS; None if nothing does.
        is_needed: if given, exchanges of APIs and versions for which it is false are skipped, and of
            connections that end in the core, only the first to each broker is closed.
        cluster_of: returns the cluster of a broker, if it is known.
        reads_tls: whether Python waits for the first TLS connection.
        refuses: whether the first bytes of a connection to this end may show that it is not Kafka.

    Attributes:
        waiting_since_ns: see ``net.connection.Lender``.
    """

    def __init__(
        self,
        connections: Connections,
        kafka: dict[Connection, KafkaConnection | None],
        open_kafka: Callable[[Connection], KafkaConnection | None],
        memory: MemoryBudget,
        limits: Limits,
        *,
        may_open: Callable[[bytes], bool],
        finishing: Finishing | None = None,
        decryption: Callable[[], Decryption | None] = lambda: None,
        is_needed: Callable[[int, int], bool] | None = None,
        cluster_of: Callable[[Endpoint], str | None] = lambda _: None,
        refuses: Callable[[Endpoint], bool] = lambda _: True,
        reads_tls: Callable[[], bool] = lambda: False,
    ) -> None:
        assert core.is_used
        self._connections = connections
        self._kafka = kafka
        self._open_kafka = open_kafka
        self._memory = memory
        self._max_held = limits.total_held_bytes
        self._max_decoded = limits.decoded_bytes
        stage_limits = StageLimits(
            frame_bytes=min(limits.frame_max_bytes, limits.frame_bytes, SMALLEST_OTHER_SIZE - 1),
            pending_requests=limits.pending_requests,
            pending_bytes=limits.pending_bytes,
            pending_age_ns=limits.pending_age_ns,
            connection_idle_ns=limits.connection_idle_ns,
            reorder_window_ns=limits.reorder_window_ns,
            reach=min(2 * limits.stream_bytes, _MAX_REACH),
        )

        self._info = partial(_info, connections.ids, cluster_of)

        def introduction(frame: bytes) -> tuple[bool, str | None, str | None]:
            is_first = begins_with_request(frame, limits)
            return is_first, *(client_software(frame) if frame.startswith(_API_VERSIONS) else (None, None))

        def refused(payload: bytes, begins: bool, ends: bytes) -> str | None:
            if not refuses(endpoints(ends)[begins]) or decryption():
                return None
            if other_protocol(payload) == "TLS" and not reads_tls() and is_hello(payload, from_client=begins):
                return "TLS"
            return refused_as(payload, limits, begins=begins)

        callbacks = _Callbacks(
            _usual,
            introduction,
            may_open,
            is_known,
            refused,
            connections.shard,
            is_needed,
            self._info,
        )
        self._core = core.native.Lending(stage_limits, callbacks, (ANSWERED, UNACKNOWLEDGED, UNANSWERED))
        self._missing: dict[Duplex, tuple[int, int]] = {}  # chances to be lent that each misses: all, left
        self._obstacles: Counter[str] = Counter()  # chances to be lent that were missed, by reason
        self._entered = 0  # connections that the core has opened and ``Connections`` does not know
        self._is_broken = False
        self._left: Exchange | None = None  # the latest exchange that the core has left
        self._decryption = decryption
        self.waiting_since_ns: int | None = None
        connections.lender = self
        if connections.analyzes:
            self._core.analyze()
        self._finishing = finishing
        if finishing is not None:
            self._core.follow(finishing.plan, finishing.batch)

    def feed_block(
        self, block: PacketBlock, segment_of: Callable[[Packet], Segment | None]
    ) -> Iterator[list[Event]]:
        """As ``Connections.feed_block``; an exchange that the core completes is a separate event. Those that
        it can finish are queued: then there may be no event, also where only the time changes since when
        connections wait, but the queue may have some that are due.
        """
        connections, core, finishing = self._connections, self._core, self._finishing
        number, interface, _, places = block
        at, end, was_full = 0, len(places), False
        is_shard = finishing is not None and finishing.ordering is None
        if finishing is not None and is_shard:
            core.shift = finishing.arrived() - block.span[0] + 1 - number
        while at < end and not self._is_broken:
            order_room, newest_ns = (_ALL, _ALL), 0
            if finishing is not None and finishing.ordering is not None:
                order_room = finishing.ordering.room
                newest_ns = max(-MAX_NS, min(finishing.ordering.newest_ns, MAX_NS))
            opens = max(0, connections.room - self._entered) if self._has_room else 0
            start = at
            steps, at, reason, following, candidates = core.run(
                block,
                interface.link_type,
                at,
                (*order_room, newest_ns),
                (opens, connections.counts["connections"]),
            )
            self._count()
            for index, waiting_since_ns, events, closed in steps:
                if is_shard:
                    yield from self._written_before(block.number_at(index))
                for *_, exchange in events:
                    _learn(exchange)
                self.waiting_since_ns = waiting_since_ns
                connections.packet = block.number_at(index)
                if closed is not None:
                    if finishing is not None and not is_shard:
                        yield []  # what was completed before comes first
                    events.append(self._closed(closed))
                yield events
            if is_shard:
                yield from self._written_before(block.number_at(at))
            self.waiting_since_ns = core.waiting_since_ns
            if finishing is not None and at > start and not is_shard:
                yield []
            if not reason:
                continue
            if reason == _ODD:
                (packet,) = block.part(at, at + 1).packets
                segment = segment_of(packet)
                if segment is not None:
                    events = self.feed(segment)
                    connections.packet = segment.packet
                    yield events
                    candidates = [segment.ends]
            elif reason == _FOREIGN:
                self._update()
                yield from connections.feed_block(block.part(at, following), segment_of)
            else:
                self.recall_all()
                self._is_broken = self._is_broken or reason == _BROKEN
                if was_full and at == start:
                    break  # it has made no room
                was_full = reason == _FULL
            for ends in candidates if self._has_room else ():
                if (flow := connections.flow(ends)) is not None and (
                    events := connections.flush(flow.duplex)
                ):
                    connections.packet = block.number_at(following - 1)
                    yield events
                self._lend(ends)
            at = following
        if self._is_broken:
            self.recall_all()
        if at < end:
            yield from connections.feed_block(block.part(at), segment_of)

    def _written_before(self, packet: int) -> Iterator[list[Event]]:
        """Finish a shard's exchanges that were completed before this packet; yield those that the core
        leaves.
        """
        while (written := self._written((0, packet), _ALL))[0]:
            if (left := written[1]) is not None:
                self._connections.packet = left.packet
                yield [left.event]

    @property
    def queued(self) -> tuple[int, int]:
        """See ``ordering.CompletedQueue``."""
        exchanges, size = self._core.queued
        return exchanges, size

    @property
    def first(self) -> tuple[int, int]:
        """See ``ordering.CompletedQueue``."""
        time_ns, packet = self._core.first or (NEVER_NS, 0)
        return time_ns, packet

    def taken(self, before: tuple[int, int], max_exchanges: int = _ALL) -> Iterator[Exchange | Waiting]:
        """See ``ordering.CompletedQueue``: those that the core leaves, and those that wait in it."""
        assert self._finishing is not None
        while max_exchanges > 0:
            if (room := self._finishing.room()) is None:
                exchanges, left = self._written(before, max_exchanges)
                item: Exchange | Waiting | None = None if left is None else left.exchange
            else:
                item = self._waiting(before, max_exchanges, room)
                exchanges = 0 if item is None else item.exchanges
            if not exchanges:
                break
            max_exchanges -= exchanges
            if item is not None:
                yield item

    def release(self, waiting: Waiting) -> Iterator[tuple[Exchange, Waiting]]:
        """Finish the exchanges that have waited longest in the core; yield those that it leaves, and what
        stands for each.
        """
        more = waiting.exchanges
        while more:
            exchanges, left = self._written(None, more, writes=not waiting.anomalies)
            if not exchanges:
                break
            more -= exchanges
            if left is not None:
                yield left.exchange, waiting.of(waiting.exchanges - more - 1)

    def _written(
        self, before: tuple[int, int] | None, max_exchanges: int, *, writes: bool = True
    ) -> tuple[int, _Left | None]:
        """Finish exchanges before this place, or those that wait. Returns how many, and the last one if the
        core leaves it.
        """
        finishing = self._finishing
        assert finishing is not None
        output, exchanges, rows, odd = self._core.written(
            None if before is None else _place(before), max_exchanges, finishing.rows_left(), writes
        )
        if exchanges:
            finishing.take(output, exchanges, rows)
        if odd is None:
            return exchanges, None
        event, packet = odd
        left = _Left(event, packet)
        self._left = left.exchange
        _learn(left.exchange)
        return exchanges + 1, left

    def finish(self, exchange: Exchange, place: int | None = None, *, writes: bool = True) -> bool:
        """Finish an exchange whose turn it is, and that was paired here. Returns False if the core leaves it,
        as it does without ``writes``. ``place``: where it was completed, if it is one of a shard.
        """
        if self._finishing is None or exchange is self._left:
            return False
        finished = self._core.finish_paired(exchange, place, writes)
        if finished is None:
            return False
        output, rows = finished
        self._finishing.take(output, 1, rows)
        return True

    def _waiting(self, before: tuple[int, int], max_exchanges: int, room: WaitingRoom) -> Waiting | None:
        """Let the next exchanges before this place wait in the core."""
        assert self._finishing is not None
        left = (room.exchanges, room.bytes) if self.first[0] >= room.since_ns else (0, 0)
        waits = self._core.wait(_place(before), max_exchanges, left, self._max_decoded)
        if waits is None:
            return None
        exchanges, size, completed_ns, known, copy, parts = waits
        if copy is not None:
            _decode_produce(copy)
            refs = self._finishing.refs(copy)
        else:
            refs = NO_REFS if known is None else Refs(*known)
        return Waiting(None, exchanges, size, completed_ns, refs, [WaitingPart(*part) for part in parts])

    def settle(self) -> None:
        """Pass on all that the core has counted."""
        self._core.pass_on(True)

    def feed(self, segment: Segment) -> list[Event]:
        """As ``Connections.feed``."""
        self._update()
        if (ordinal := self._core.ordinal(segment.ends)) is not None:
            self.recall(ordinal)
        return self._connections.feed(segment)

    def closing(self, duplex: Duplex) -> None:
        """See ``net.connection.Lender``."""
        self.recall(duplex.ordinal)
        self._missing.pop(duplex, None)
        self._core.readmit(duplex.ends)
        self._core.readmit(reversed_ends(duplex.ends))

    def tick(self, time_ns: int) -> None:
        """See ``net.connection.Lender``."""
        self._update()
        for ordinal in self._core.tick(_clamped(time_ns)):
            self.recall(ordinal)

    def ended(self, before: tuple[int, int]) -> Iterable[EndedThere]:
        """See ``net.connection.Lender``."""
        time_ns, ordinal = before
        ended = self._core.ended((_clamped(time_ns), ordinal))
        if ended:
            self._count()
            self.waiting_since_ns = self._core.waiting_since_ns
        for *_, state in ended:
            if state is not None and (duplex := state.duplex) is not None:
                if state.kafka is None:
                    self._discard(duplex)
                self.closing(duplex)
        self._core.pass_on(False)
        return [
            EndedThere(
                ordinal,
                Ended(*remembered),
                None if state is None or not state.is_reported else self._closed(state),
                syn_ns,
            )
            for ordinal, remembered, syn_ns, state in ended
        ]

    def close(self) -> Iterable[tuple[int, bytes, int]]:
        """See ``net.connection.Lender``."""
        closed = self._core.close()
        self._count()
        self._core.pass_on(False)
        return closed

    def _closed(self, state: ConnectionState) -> Event:
        """The end of a connection in the core; its objects get the state that it has reached."""
        tcp, last = state.tcp, state.kafka or state.unread
        if state.duplex is None:
            _, packet, time_ns, interface, *_ = tcp.segments[0]
            info = None if last is None else last.info
            if info is None:
                info = self._info(tcp.ends, time_ns, state.ordinal)
            connection = Connection(
                info.id,
                (info.client, info.broker),
                0,
                (True, not tcp.is_half_open),
                packet,
                time_ns,
                interface,
                info.ordinal,
                streams=(Stream(), Stream()),
                tcp=None if tcp.analysis is None else TcpAnalysis(),
            )
            for stream, each in zip(connection.streams, tcp.streams, strict=True):
                stream.seen = each.first is not None
        else:
            assert state.duplex.connection is not None
            connection = state.duplex.connection
        if last is not None:
            self._restore(connection, state)
        for sender, each in enumerate(tcp.streams):
            connection.streams[sender ^ tcp.client].repeated_bytes += each.repeated_bytes
        if connection.tcp is not None and tcp.analysis is not None:
            connection.tcp.restore(tcp.analysis)
        return connection, 0, tcp.closed

    def _restore(self, connection: Connection, state: ConnectionState) -> KafkaConnection:
        """Continue from the state that the core has reached; it may have opened the connection."""
        if state.duplex is None:
            self._kafka[connection] = self._open_kafka(connection)
        kafka = self._kafka[connection]
        assert kafka is not None
        if state.unread is not None:
            kafka.restore_unread(state.unread)
        elif state.kafka is not None:
            kafka.restore(state.kafka)
        return kafka

    def _update(self) -> None:
        """Set the clocks of the connections that the core has, and their place among the recently used."""
        self._connections.use(self._core.take_touched())
        self._entered = 0

    def _count(self) -> None:
        counts = self._connections.counts
        for name, number in self._core.take_counts():
            if number:
                counts[name] += number
                if name == "connections":
                    self._entered += number

    def reasons(self) -> Counter[str]:
        """How often packets, exchanges and connections went to Python, or stayed there, by reason."""
        packets, exchanges = self._core.take_reasons()
        counts = Counter({f"packet: {why}": number for why, number in packets})
        for why, key, version, number in exchanges:
            api = apis.by_key(key)
            counts[f"exchange: {f'{api.name} v{version}: ' if api else ''}{why}"] += number
        counts.update({f"connection not lent: {why}": number for why, number in self._obstacles.items()})
        return counts

    @property
    def held(self) -> int:
        """See ``net.connection.Lender``."""
        held: int = self._core.held
        return held

    @property
    def _has_room(self) -> bool:
        """Whether the limit on the memory of all connections is far away."""
        return 2 * (self._memory.held + self.held) < self._max_held

    def _lend(self, ends: bytes) -> None:
        """Lend the connection between these ends to the core, if it is plain."""
        if (why := self._obstacle(ends)) is not None:
            self._obstacles[why] += 1

    def _obstacle(self, ends: bytes) -> str | None:
        """Lend the connection between these ends to the core, or return why not."""
        flow = self._connections.flow(ends)
        if flow is None:
            if not self._connections.is_ours(ends):
                self._core.ignore(ends)
            return "another process has it, or it has ended"
        duplex, connection = flow.duplex, flow.duplex.connection
        one, two = duplex.streams
        both = duplex.ends, reversed_ends(duplex.ends)
        unread = None
        if connection in self._kafka and (known := self._kafka[connection]) is not None:
            unread = known.lend_unread()
        if not (duplex.plain or (unread is not None and duplex.is_one_way)):
            return "segments are missing, or only one direction was seen"
        if connection not in self._kafka or one.fin is not None or two.fin is not None or both[0] == both[1]:
            return "it has not begun, or is about to end"
        assert connection is not None
        kafka = self._kafka[connection]
        decryption = self._decryption()
        if kafka is None or (
            decryption is not None and kafka.is_decrypted and not decryption.is_lendable(connection)
        ):
            for each in both:
                self._core.ignore(each)
            return "it is excluded, or its cipher is left to Python"
        if duplex in self._missing:
            missed, left = self._missing[duplex]
            self._missing[duplex] = missed, left - 1
            if left > 0:
                return "it was recalled soon after it was lent"
        if self._core.has(duplex.ordinal) or not -MAX_NS < duplex.now_ns < MAX_NS:
            return "the core has it, or its time is out of range"
        if unread is not None:
            if decryption is None or decryption.is_bypassed(connection):
                self._lend_state(duplex, 0, None, unread=unread)
            return None
        if kafka.client is None:
            return "it was not recognized"
        if self._finishing is not None and self._finishing.ordering is not None:
            latest = self._finishing.ordering.latest(connection.key)
            if latest is not None and latest[0] >= duplex.now_ns:
                return "its last exchange is not in order yet"
        if decryption is not None and not kafka.is_decrypted:
            decryption = None
        records = None if decryption is None else decryption.lend(connection)
        if decryption is not None and records is None:
            return "its TLS records are left to Python"
        lent = kafka.lend(duplex.now_ns)
        if lent is None:
            return "requests or frames are unusual, or not known yet"
        if records is not None and kafka.client == 1:
            records = records[1], records[0]
        if self._lend_state(duplex, kafka.client, lent, records):
            self._memory.forget(kafka)
        else:
            kafka.restore(lent)
        return None

    def _lend_state(
        self,
        duplex: Duplex,
        client: int,
        kafka: KafkaState | None,
        records: tuple[RecordState, RecordState] | None = None,
        unread: UnreadState | None = None,
    ) -> bool:
        """Lend a connection in this state. Returns whether that succeeded: not if there was a panic."""
        may_end = (
            kafka is not None
            and records is None
            and kafka.pairing.last_id is not None
            and all(stream.first is not None for stream in duplex.streams)
            and not self._connections.were_used(duplex.ends)
        )
        first, second = (
            StreamState(stream.first if may_end else None, stream.next, stream.acknowledged, seen=stream.seen)
            for stream in (duplex.streams if client == 0 else reversed(duplex.streams))
        )
        ends = duplex.ends if client == 0 else reversed_ends(duplex.ends)
        analysis = None if duplex.tcp is None else duplex.tcp.state
        tcp = TcpState(client, ends, (first, second), duplex.now_ns, analysis)
        is_lent = self._core.lend(ConnectionState(duplex.ordinal, duplex, tcp, kafka, records, unread=unread))
        self._is_broken = self._is_broken or not is_lent
        return is_lent

    def recall_all(self) -> None:
        """See ``net.connection.Lender``."""
        self._update()
        for ordinal in self._core.all:
            self.recall(ordinal)

    def recall(self, ordinal: int) -> Duplex | None:
        """Put the state of a connection that the core has into its objects. None if it has been lost."""
        if not self._core.has(ordinal):
            return None
        state = self._core.recall(ordinal)
        self._core.pass_on(False)
        self.waiting_since_ns = self._core.waiting_since_ns
        if state is None:  # what the core has taken of it is a gap
            self._is_broken = True
            self._connections.lose(ordinal)
            return None
        if state.latest is not None:
            assert state.kafka is not None
            assert self._finishing is not None
            assert self._finishing.ordering is not None  # a shard's exchanges do not wait
            self._finishing.ordering.note_latest(state.kafka.info.key, state.latest)
        for exchange in () if state.kafka is None else state.kafka.pairing.waiting:
            _decode_produce(exchange)
        duplex = self._connections.resume(ordinal, state.tcp, state.duplex)
        if (state.kafka is None and state.unread is None) or duplex.is_finished:
            self._discard(duplex)
            return duplex
        assert duplex.connection is not None
        kafka = self._restore(duplex.connection, state)
        if state.records is not None and (decryption := self._decryption()) is not None:
            sides = state.tcp.client, 1 - state.tcp.client
            for side, records in zip(sides, state.records, strict=True):
                decryption.restore(duplex.connection, side, records)
        self._memory.note(kafka)
        self._note_missing(duplex, state.taken)
        return duplex

    def _discard(self, duplex: Duplex) -> None:
        """Drop what was read of a connection that has ended in the core, which reports nothing of it."""
        if duplex.connection is not None and (kafka := self._kafka.pop(duplex.connection, None)) is not None:
            kafka.discard()

    def _note_missing(self, duplex: Duplex, taken: int) -> None:
        """A connection was recalled after so many packets."""
        if taken < _BRIEF:
            missed = min(_MAX_MISSED, 2 * self._missing.get(duplex, (0, 0))[0] + 1)
            self._missing[duplex] = missed, missed
        else:
            self._missing.pop(duplex, None)


def _place(order: tuple[int, int]) -> tuple[int, int]:
    time_ns, packet = order
    return min(time_ns, MAX_NS), packet


def _clamped(time_ns: int) -> int:
    return max(-MAX_NS, min(time_ns, MAX_NS))


def _info(
    ids: ConnectionIds,
    cluster_of: Callable[[Endpoint], str | None],
    ends: bytes,
    first_ns: int,
    ordinal: int,
) -> ConnectionInfo:
    """What the exchanges share of a connection that its client opened with a SYN, until that has ended."""
    client, broker = endpoints(ends)
    return ConnectionInfo(
        ids.next(ends, first_ns),
        client,
        broker,
        ordinal=ordinal,
        from_start=True,
        has_sure_id=ids.is_sure(ends, first_ns),
        cluster_id=cluster_of(broker),
    )


def _learn(exchange: Exchange) -> None:
    """Do what is done in Python when a request is sent, and when an exchange is complete."""
    _decode_produce(exchange)
    if exchange.api_key == API_VERSIONS:
        info = exchange.connection
        info.client_software_name = exchange.client_software_name
        info.client_software_version = exchange.client_software_version


def _decode_produce(exchange: Exchange) -> None:
    """As when it was sent, see pairing.py."""
    if exchange.api_key == PRODUCE and exchange.request is None:
        decode_exchange(exchange, only_request=True)


@cache
def _usual(api_key: int, api_version: int) -> tuple[str | None, bool, int] | None:
    """What the core must know about requests of this API and version: name; whether the header has tags; and
    for Produce, what comes before ``acks`` (0: nothing, 1: a string, 2: a compact string). None: such
    requests are left to Python.
    """
    is_possible = 0 <= api_key <= MAX_API_KEY and 0 <= api_version <= MAX_API_VERSION
    if not is_possible or is_vendor_key(api_key) or api_key in IDENTIFYING_APIS - {API_VERSIONS}:
        return None
    header_version = request_header_version(api_key, api_version)
    if not header_version:
        return None
    before_acks = 0
    if api_key == PRODUCE:
        message = schema.request(PRODUCE)
        if message is None or api_version not in message.versions:
            return None
        positional, _ = split(layout(message, api_version).fields, api_version)
        fields = [field.name for field in positional]
        before = fields[: fields.index("acks")]
        if before not in ([], ["transactional_id"]):
            return None
        if before:
            before_acks = 2 if message.is_flexible(api_version) else 1
    api = apis.by_key(api_key)
    return api.name if api else None, header_version == 2, before_acks
