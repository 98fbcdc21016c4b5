"""Segments of all connections -> ``Data``, ``Gap`` and ``Closed``, each with its connection and side.

A SYN or payload opens a connection; a bare acknowledgment, FIN or RST does not. It is closed when

* both sides have sent a FIN, and everything before it was passed on (``fin``);
* an RST was captured, and the deadline for segments that are late in the capture has passed (``reset``);
* a SYN with another sequence number opens the next connection between the same ends (``reused``);
* there are too many connections, and it is the least recently used (``evicted``);
* it has been idle for too long (``idle``);
* the capture ends (``end``).

A connection of which only one SYN was captured has no events, unless connections are analyzed: it costs
little, and scans and floods consist of such ones.

Connections are independent: the events of one depend on its own segments and their times alone
(docs/decisions/connections-are-islands.md). Each has its own clock. A deadline passes when that clock reaches
it, or when ``tick`` says that every segment up to then has been delivered; this affects when the outcome is
noticed, not the outcome. So a process that dissects a ``Shard`` of the connections gets the same events for
them as a process that dissects all, unless a limit on all connections together was reached.

A closed connection is kept until its deadline, and its sequence numbers for longer (see
``EndedConnections``), so that repeated segments do not open another one: a capture may have a segment from
several interfaces, from inside and outside a tunnel, or from both ends. The first copy captured counts. NAT
changes the addresses, so the same connection on both sides of it is two.

Memory: what duplex.py keeps, for at most ``Limits.connections`` connections, of which all together hold at
most ``total_stream_bytes``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count, islice
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kdissect import core
from kdissect.limits import DEFAULT, Limits
from kdissect.model import Closed, Data, Packet, PacketBlock, Segment
from kdissect.net.analysis import TcpAnalysis
from kdissect.net.duplex import NEVER_NS, Connection, ConnectionIds, Duplex, Event
from kdissect.net.ip import TCP
from kdissect.net.link import COOKED, ETHERNET
from kdissect.net.stream import PIECE_COST, SEQUENCE_MASK, Stream, advance, distance
from kdissect.net.tcp import (
    ACK,
    CONTROL,
    FIN,
    FLAGS,
    RST,
    SYN,
    USUAL_BYTES,
    USUAL_OPTIONS,
    connection_key,
    reversed_ends,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kdissect.model import Endpoint, Interface
    from kdissect.net.tcp import Shard


__all__ = ["Connection", "Connections", "Event"]

_GATHERING_STREAMS = 64
"""Streams that may gather payload at the same time, up to 64 KiB each."""

_MAX_REFUSED = 256
"""After this many failures to gather for lack of room, all gathered payload is passed on to make room."""

_FOREIGN_ENDS = 65_536
"""Most cached ends (of one direction each) of connections in other shards."""

_STALE = 64
"""Outdated heap entries, besides four for each current one, at which a ``_TimeQueue`` is rebuilt."""

_GATHERED_SEGMENTS = 64
"""Most segments gathered: many tiny ones may not reach a limit in bytes."""

# The common packet: TCP over IPv4 over Ethernet. It is unpacked in words, since fewer fields cost less time.
#
#     kind      ethertype, IP version and header length, type of service
#     total     bytes from the IP header on
#     carries   flags and fragment offset, time to live, protocol
#     ends      addresses and ports, which are adjacent
#     sequence, acknowledgment
#     control   length of the TCP header in words, flags
USUAL = Struct(">12xIHxxIxx12sIIH")
_USUAL_BYTES = 54  # up to the end of a TCP header without options
_INTERNET, _TRANSPORT = 14, 34  # where the IP header begins, and the TCP header
_KIND_MASK, _USUAL_KIND = 0xFFFFFF00, 0x08004500  # IPv4 without options, of any type of service
_CARRIES_MASK, _USUAL_CARRIES = 0x3FFF00FF, TCP  # no more fragments, no fragment offset; the protocol
_USUAL_CONTROL = 0x5000  # no TCP header is shorter than five words
_SHIFTS = {ETHERNET: 0, COOKED: 2}
"""Link layers whose header ends with an ethertype, and by how much it is longer than Ethernet's."""

_MAX_NS = (1 << 63) - 1
"""The native core's times have 64 bits."""

_WINDOW, _OPTIONS = 14, 20  # where they begin in a TCP header

_unpack = USUAL.unpack_from
_new = tuple.__new__  # takes half the time of calling a named tuple's class


def _window(data: bytes, header: int, end: int) -> tuple[int, bytes]:
    """Window and options of the segment whose TCP header is ``data[header:end]``."""
    window = data[header + _WINDOW] << 8 | data[header + _WINDOW + 1]
    begin = header + _OPTIONS
    is_usual = end - begin == USUAL_BYTES and data.startswith(USUAL_OPTIONS, begin)
    return window, b"" if is_usual else data[begin:end]


class Lender(Protocol):
    """The native core: it has connections that were lent to it, and others that it has opened itself.

    Attributes:
        waiting_since_ns: of those that it has opened, as ``Connections.waiting_since_ns``.
        held: bytes that it holds.
    """

    waiting_since_ns: int | None

    @property
    def held(self) -> int: ...

    def recall_all(self) -> None:
        """Recall all connections."""

    def closing(self, duplex: Duplex) -> None:
        """Recall a connection that is about to be closed, if it is lent."""

    def recall(self, ordinal: int) -> Duplex | None:
        """Recall a connection; None if a bug has lost it."""
        ...

    def tick(self, time_ns: int) -> None:
        """Every segment up to this time has been delivered: bring ``Connections`` up to date, and recall the
        connections opened by the core whose deadline has passed.
        """

    def ended(self, before: tuple[int, int]) -> Iterable[EndedThere]:
        """The connections whose end in the core is final before this deadline and ordinal."""
        ...

    def close(self) -> Iterable[tuple[int, bytes, int]]:
        """The capture has ended: the ordinals of connections that the core has opened and now closed, their
        ends, and the times of their SYNs.
        """
        ...


class BareSegment(NamedTuple):
    """A segment without payload; ``sender`` 0 is the client."""

    sender: int
    packet: int
    time_ns: int
    interface: Interface
    sequence: int
    acknowledgment: int
    flags: int


class StreamState(NamedTuple):
    """One direction of a connection, as it goes to the native core and comes back.

    Attributes:
        first: its first sequence number; None if the connection may not end in the core, and of a broker that
            sent no SYN-ACK.
        next, acknowledged, fin_ns, doubted: as in ``Stream``.
        repeated_bytes: that came again in the core.
        seen: as in ``Stream``.
    """

    first: int | None
    next: int
    acknowledged: int | None
    fin_ns: int | None = None
    doubted: bool = False
    repeated_bytes: int = 0
    seen: bool = True


class TcpState(NamedTuple):
    """What the segments of a connection leave behind, as it goes to the native core and comes back.

    Attributes:
        client: which side is the client.
        ends: of its segments.
        streams: of client and broker.
        now_ns: as in ``Duplex``.
        analysis: ``TcpAnalysis.state``; None if it is not analyzed.
        segments: SYN and SYN-ACK if the core has opened it, and the latest RST if there is any; at its end,
            the SYN alone.
        reset_ns: as in ``Duplex``.
        due_ns: the deadline; None if it is not waiting.
        idle_ns: when it becomes idle, at the earliest, if the core has opened it.
    """

    client: int
    ends: bytes
    streams: tuple[StreamState, StreamState]
    now_ns: int
    analysis: bytes | None
    segments: Sequence[BareSegment] = ()
    reset_ns: int | None = None
    due_ns: int | None = None
    idle_ns: int | None = None

    @property
    def is_half_open(self) -> bool:
        """As in ``Duplex``, of a connection that the core has opened."""
        return self.idle_ns is not None and self.streams[1].first is None

    @property
    def closed(self) -> Closed:
        """How it has ended."""
        fins_ns = [each.fin_ns for each in self.streams if each.fin_ns is not None]
        if len(fins_ns) == len(self.streams):
            return Closed("fin", max(fins_ns))
        return Closed("reset", self.now_ns if self.due_ns is None else max(self.now_ns, self.due_ns))


class EndedThere(NamedTuple):
    """A connection that has ended in the native core.

    Attributes:
        ordinal: its number.
        ended: what is remembered of it.
        closed: the event, unless it was passed on before.
        syn_ns: time of the SYN if the core has opened it.
    """

    ordinal: int
    ended: Ended
    closed: Event | None
    syn_ns: int | None


class FlowEntry(NamedTuple):
    """One direction of a connection: an entry of the table that maps the ends of a segment to it."""

    duplex: Duplex
    side: int
    stream: Stream
    other: Stream


class _TimeQueue:
    """A priority queue of connections by time, in which each has at most one time.

    Attributes:
        times: connection -> its time.
    """

    def __init__(self) -> None:
        self.times: dict[Duplex, int] = {}
        self._heap: list[tuple[int, int, Duplex]] = []  # includes outdated times, up to a limit

    def set(self, duplex: Duplex, time_ns: int) -> None:
        """Set the time of a connection; ``NEVER_NS`` removes it."""
        if time_ns == NEVER_NS:
            self.times.pop(duplex, None)
        elif self.times.get(duplex) != time_ns:
            self.times[duplex] = time_ns
            heappush(self._heap, (time_ns, duplex.ordinal, duplex))
            if len(self._heap) > _STALE + 4 * len(self.times):
                self._heap = [(time_ns, duplex.ordinal, duplex) for duplex, time_ns in self.times.items()]
                heapify(self._heap)

    def earliest_ns(self) -> int | None:
        """The earliest time; None if the queue is empty."""
        heap = self._heap
        while heap and self.times.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def until(self, time_ns: int) -> Iterator[Duplex]:
        """Remove and yield connections with a time up to ``time_ns``. Times may be set meanwhile."""
        while (earliest_ns := self.earliest_ns()) is not None and earliest_ns <= time_ns:
            duplex = self._heap[0][2]
            del self.times[duplex]
            yield duplex


_NO_STREAM = Stream()
_NO_FLOW = FlowEntry(
    Duplex(b"", 0, DEFAULT, Counter(), ConnectionIds(DEFAULT, Counter())), 0, _NO_STREAM, _NO_STREAM
)
"""Stands for the flow of unknown ends; its connection is never ``plain``."""


class Connections:
    """The table of connections.

    Args:
        limits: of streams and connections.
        shard: the connections to track; None: all.
        analyzes: whether to keep a ``TcpAnalysis`` of each connection.
        is_listener: whether PROXY headers may come to an end although the SYN was not captured.

    Attributes:
        analyzes: the same; it may change before the first packet.
        number: of the next segment's connection, see ``tcp.StreamNumbers``; None if they are not counted.
        packet: number of the packet that caused the latest events.
        ids: of the connections.
        lender: the native core, if it has any of the connections.
        counts: ``connections``, ``retransmitted_bytes``, ``overlapping_bytes``, ``conflicting_bytes``
            (overlapping ones that differ from those captured first), ``out_of_order`` segments, ``gaps``,
            ``lost_bytes``, ``cut_bytes``, ``undelivered_gaps``, ``undelivered_bytes`` (lost on the network),
            ``stray_segments`` (from too far ahead), ``bytes_after_fin``,
            ``repeated_segments`` (a SYN, FIN or RST again, or payload without any new byte),
            ``keep_alive_probes``, ``segments_without_connection``, ``segments_after_close``, ``closed_`` with
            each reason. Three of them count cases in which connections affected one another:
            ``streams_flushed`` and ``ended_forgotten`` (limits on all connections together),
            ``late_segments`` (segments older than the latest tick).
    """

    def __init__(
        self,
        limits: Limits = DEFAULT,
        shard: Shard | None = None,
        *,
        analyzes: bool = False,
        is_listener: Callable[[Endpoint], bool] = lambda _: False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.packet = 0
        self.number: int | None = None
        self._limits = limits
        self.analyzes = analyzes
        self._is_listener = is_listener
        self._shard = shard
        self._foreign: set[bytes] = set()  # ends of connections in other shards
        self._flows: dict[bytes, FlowEntry] = {}
        # By ordinal, least recently used first. None: the native core has opened it.
        self._order: OrderedDict[int, Duplex | None] = OrderedDict()
        self._held: dict[int, int] = {}  # ordinal -> bytes held, in order of when it began to hold any
        self._held_in_all = 0
        self._ended = EndedConnections(limits)
        self.ids = ConnectionIds(limits, self.counts)
        self._waits = _TimeQueue()  # since when each waits
        self._deadlines = _TimeQueue()
        self._idle = _TimeQueue()  # when each becomes idle, at the earliest
        self._ticked_ns = -NEVER_NS
        self._gathering: dict[Stream, FlowEntry] = {}
        self._refused = 0
        self.lender: Lender | None = None

    @property
    def remembered(self) -> int:
        """Number of connections in the table, including closed ones whose deadline has not passed."""
        return len(self._order)

    @property
    def waiting_since_ns(self) -> int | None:
        """The earliest time that an event still to come on a waiting connection may have; None if no
        connection waits.
        """
        waits = self._waits
        since_ns = waits.earliest_ns() if waits.times else None
        if self.lender is None or (other_ns := self.lender.waiting_since_ns) is None:
            return since_ns
        return other_ns if since_ns is None else min(since_ns, other_ns)

    def ordinal(self, ends: bytes) -> int:
        """``Connection.ordinal`` of the current connection between these ends; 0: none."""
        flow = self._flows.get(ends)
        return 0 if flow is None else flow.duplex.ordinal

    def feed_block(
        self, block: PacketBlock, segment_of: Callable[[Packet], Segment | None]
    ) -> Iterator[list[Event]]:
        """Process the packets of a block one by one; yield the events of each packet that causes any.

        The fast path is here. It parses the common packet (TCP over IPv4, without options, not fragmented,
        not truncated) and passes on the common segment (the next one of its direction, on a connection that
        is not waiting) without creating any object except ``Data``. ``segment_of`` parses all other packets.
        """
        _, interface, data, places = block
        shift = _SHIFTS.get(interface.link_type, len(data))  # other link types: too long for any packet
        min_bytes, internet, transport = shift + _USUAL_BYTES, shift + _INTERNET, shift + _TRANSPORT
        flows, foreign, idle_ns = self._flows, self._foreign, self._limits.connection_idle_ns
        analyzes = self.analyzes
        last_used: Duplex | None = None
        last_ends = b""  # packets of one direction usually follow each other
        duplex, side, stream, other = _NO_FLOW
        packets = zip(count(1), block.numbers, places)
        for place, packet, (time_ns, begin, stop, on_wire) in packets:
            is_usual = False
            if stop - begin >= min_bytes:
                kind, total, carries, ends, sequence, acknowledgment, control = _unpack(data, begin + shift)
                start, end = begin + transport + (control >> 10 & 0x3C), begin + internet + total
                is_usual = (
                    start <= end <= stop
                    and kind & _KIND_MASK == _USUAL_KIND
                    and carries & _CARRIES_MASK == _USUAL_CARRIES
                    and control >= _USUAL_CONTROL
                )
            if is_usual:
                size = end - start
            else:
                segment = segment_of(_new(Packet, (packet, time_ns, interface, data[begin:stop], on_wire)))
                if segment is None:
                    continue
                _, _, _, ends, sequence, acknowledgment, control, payload, size, window, options = segment
            if ends != last_ends:
                last_ends = ends
                duplex, side, stream, other = flows.get(ends, _NO_FLOW)
            if (
                sequence == stream.next
                and duplex.plain
                and 0 <= time_ns - duplex.now_ns <= idle_ns
                and control & CONTROL == ACK
                and (acknowledgment == other.next or distance(acknowledgment, other.next) > 0)
                and (is_usual or size == len(payload))
            ):
                duplex.now_ns = time_ns
                if analyzes:
                    if is_usual:
                        window, options = _window(data, begin + transport, start)
                    assert duplex.tcp is not None
                    duplex.tcp.feed(side, time_ns, sequence, acknowledgment, ACK, size, window, options)
                if duplex is not last_used:
                    last_used = duplex
                    self._order.move_to_end(duplex.ordinal)
                if not size:
                    other.acknowledged = acknowledgment
                    continue
                stream.next = (sequence + size) & SEQUENCE_MASK
                if is_usual:
                    payload = data[start:end]
                    if stream.expected > 2 * size and not analyzes:
                        last = place + min((stream.expected - 1) // size, _GATHERED_SEGMENTS) - 1
                        pattern = kind, total, carries, ends, stream.next, acknowledgment, control
                        layout = shift, start - begin, end - begin
                        run = data, places[place:last], layout, pattern, time_ns, time_ns + idle_ns
                        more, joined = _native_payloads(*run) or payloads(*run)
                        if more:
                            place, packet, (time_ns, *_) = next(islice(packets, joined - 1, None))
                            duplex.now_ns = time_ns
                            payload += more
                            stream.next = (sequence + len(payload)) & SEQUENCE_MASK
                connection = duplex.connection
                assert connection is not None
                item = _new(Data, (packet, time_ns, interface, payload))
                self.packet = packet
                if not stream.expected:
                    yield [(connection, side, item)]
                elif events := self._gather(flows[ends], connection, item, size):
                    yield events
                continue
            if ends in foreign or not self.is_ours(ends):
                continue
            if is_usual:
                window, options = (
                    _window(data, begin + transport, start) if analyzes or other.doubted else (0, b"")
                )
                sent = ends, sequence, acknowledgment, control & FLAGS, data[start:end], size, window, options
                segment = _new(Segment, (packet, time_ns, interface, *sent))
            assert segment is not None
            self.packet = packet
            yield self._feed(segment)
            last_used = None
            last_ends = b""

    def feed(self, segment: Segment) -> list[Event]:
        packet = PacketBlock(segment.packet, segment.interface, b"", [(segment.time_ns, 0, 0, 0)])
        return next(self.feed_block(packet, lambda _: segment), [])

    def tick(self, time_ns: int) -> list[Event]:
        """Every segment up to this time has been delivered: expire deadlines and idle connections."""
        out: list[Event] = []
        if self.lender is not None:
            self.lender.tick(time_ns)
        for duplex in self._deadlines.until(time_ns):
            self._forget_ended((duplex.due_ns, duplex.ordinal), out)
            self._expire(duplex, out)
        self._forget_ended((time_ns + 1, 0), out)
        for duplex in self._idle.until(time_ns - 1):
            if self._is_idle(duplex, time_ns):
                self._close_idle(duplex, out)
            else:
                self._idle.set(duplex, duplex.now_ns + self._limits.connection_idle_ns)
        self._ended.tick(time_ns)
        self._ticked_ns = max(self._ticked_ns, time_ns)
        return out

    def close(self, time_ns: int) -> list[Event]:
        """The capture has ended: close every connection. ``time_ns`` is the latest time of a packet."""
        out = self.tick(time_ns)
        for ordinal, ends, syn_ns in () if self.lender is None else self.lender.close():
            self.ids.take(ends, syn_ns)
            self._drop(ordinal)
        for ordinal in list(self._order):
            duplex = self._duplex(ordinal)
            if duplex is None:
                continue
            if self._is_idle(duplex, time_ns):
                self._close_idle(duplex, out)
            else:
                self._close(duplex, "end", time_ns, out)
        return out

    def flow(self, ends: bytes) -> FlowEntry | None:
        """The direction of the current connection between these ends; None if there is none."""
        return self._flows.get(ends)

    def flush(self, duplex: Duplex | None = None) -> list[Event]:
        """Pass on what a connection has gathered; None: what all have."""
        out: list[Event] = []
        if duplex is None:
            self._flush_all(out)
        else:
            self._flush_both(duplex, out)
        return out

    @property
    def gathered(self) -> int:
        """Bytes gathered in all."""
        return sum(len(item.payload) for stream in self._gathering for item in stream.gathered)

    @property
    def by_use(self) -> list[Connection]:
        """All connections with events, least recently used first; those in the native core must be recalled
        before.
        """
        duplexes = self._order.values()
        return [each.connection for each in duplexes if each is not None and each.connection is not None]

    @property
    def room(self) -> int:
        """How many connections can be opened before a limit is reached."""
        limits = self._limits
        held = (limits.total_stream_bytes - self._held_in_all) // PIECE_COST
        return max(0, min(limits.connections - len(self._order), held))

    def is_new(self, ends: bytes) -> bool:
        """Whether a SYN between these ends certainly opens a connection, of this shard."""
        return ends not in self._flows and not self.were_used(ends) and self.is_ours(ends)

    def were_used(self, ends: bytes) -> bool:
        """Whether a connection between these ends is remembered that has ended."""
        return self._ended.knows(ends)

    def use(self, used: Iterable[tuple[int, Duplex | None, int, bool]]) -> None:
        """Connections that the native core has had segments, latest last: their numbers, what was lent (None:
        the core has opened it), the time, and whether they are half open.
        """
        order, held = self._order, self._held
        for ordinal, duplex, now_ns, is_half_open in used:
            order[ordinal] = duplex
            order.move_to_end(ordinal)
            if duplex is not None:
                duplex.now_ns = now_ns
            elif is_half_open != (ordinal in held):
                self._hold(ordinal, PIECE_COST if is_half_open else 0)

    def resume(self, ordinal: int, state: TcpState, lent: Duplex | None) -> Duplex:
        """Take a connection that the native core has opened, or that was lent to it."""
        duplex = lent or self._enter(state.ends, state.segments[0].time_ns, ordinal)
        if state.analysis is not None:
            duplex.tcp = duplex.tcp or TcpAnalysis()
            duplex.tcp.restore(state.analysis)
        both = duplex.ends, reversed_ends(duplex.ends)
        for sender, packet, time_ns, interface, sequence, acknowledgment, flags in state.segments:
            side = sender ^ state.client
            sent = sequence, acknowledgment, flags, b"", 0
            segment = Segment(packet, time_ns, interface, both[side], *sent)
            if not flags & RST:
                duplex.feed(side, segment, [])
        for sender, each in enumerate(state.streams):
            if duplex.connection is None:
                continue
            stream = duplex.streams[sender ^ state.client]
            stream.next, stream.acknowledged, stream.fin_ns = each.next, each.acknowledged, each.fin_ns
            stream.doubted = each.doubted
            stream.repeated_bytes += each.repeated_bytes
            if each.next != stream.first:
                duplex.preface = None  # the core takes no connection with PROXY headers before they are done
            if each.fin_ns is not None:
                stream.fin, stream.ended = advance(each.next, -1), True
        duplex.reset_ns = state.reset_ns
        duplex.is_finished = duplex.is_close_reported = all(stream.ended for stream in duplex.streams)
        if state.due_ns is not None:
            duplex.now_ns = state.due_ns - self._limits.reorder_window_ns
        duplex.set_deadline()
        if state.due_ns is not None and not duplex.is_finished:
            duplex.cause = segment
        duplex.now_ns = state.now_ns
        self._deadlines.set(duplex, duplex.due_ns)
        if state.idle_ns is not None:
            self._idle.set(duplex, state.idle_ns)
        self._account(duplex)
        return duplex

    def lose(self, ordinal: int) -> None:
        """Forget a connection that the native core has lost."""
        self._drop(ordinal)
        self._hold(ordinal, 0)

    @property
    def shard(self) -> tuple[int, int] | None:
        """Number of the shard that is tracked, and of shards; None: all connections are."""
        return None if self._shard is None else (self._shard.number, self._shard.of)

    def is_ours(self, ends: bytes) -> bool:
        """Whether to track a connection between these ends."""
        if self._shard is None or ends in self._flows or self._shard.owns(ends):
            return True
        if len(self._foreign) >= _FOREIGN_ENDS:
            self._foreign.clear()
        self._foreign.add(ends)
        return False

    def _gather(self, flow: FlowEntry, connection: Connection, item: Data, size: int) -> list[Event]:
        """Gather the next bytes of a stream whose reader expects many, until there are enough. ``size`` is
        the payload size of one packet.
        """
        _, side, stream, _ = flow
        if not stream.gathered:
            too_large = stream.expected < 2 * size  # joining so few would take longer than it saves
            if too_large or len(self._gathering) >= _GATHERING_STREAMS:
                stream.expected = 0
                out: list[Event] = [(connection, side, item)]
                self._refused += not too_large
                if self._refused >= _MAX_REFUSED:
                    self._refused = 0
                    self._flush_all(out)  # some may have stalled: make room for others
                return out
            self._gathering[stream] = flow
        stream.gathered.append(item)
        stream.expected -= len(item.payload)
        if stream.expected > 0 and len(stream.gathered) < _GATHERED_SEGMENTS:
            return []
        out = []
        self._flush_gathered(flow, out)
        return out

    def _flush_gathered(self, flow: FlowEntry, out: list[Event]) -> None:
        """Pass on what one direction has gathered, as if its last packet had carried all of it."""
        duplex, side, stream, _ = flow
        assert duplex.connection is not None
        payload = b"".join([item.payload for item in stream.gathered])
        out.append((duplex.connection, side, stream.gathered[-1]._replace(payload=payload)))
        stream.expected = 0
        stream.gathered = []
        del self._gathering[stream]

    def _flush_all(self, out: list[Event]) -> None:
        for flow in list(self._gathering.values()):
            self._flush_gathered(flow, out)

    def _flush_both(self, duplex: Duplex, out: list[Event]) -> None:
        """Pass on what both directions have gathered, before an unusual event of their connection."""
        for stream in duplex.streams:
            if stream.gathered:
                self._flush_gathered(self._gathering[stream], out)

    def _feed(self, segment: Segment) -> list[Event]:
        out: list[Event] = []
        flow = self._flows.get(segment.ends)
        if segment.time_ns < self._ticked_ns:
            self.counts["late_segments"] += 1
        if flow is not None:
            self._advance(flow, segment, out)
            flow = self._flows.get(segment.ends)
        begins = segment.flags & (SYN | RST) == SYN
        if self._is_repeated(segment, flow):
            self.counts["segments_after_close"] += 1
            return out
        if begins and flow is not None and flow.duplex.is_new(flow.side, segment):
            self._close(flow.duplex, "reused", segment.time_ns, out)
            flow = None
        if flow is None:
            if not begins and (segment.flags & RST or not segment.length):
                self.counts["segments_without_connection"] += 1
                return out
            flow = self._open(segment, out)
        duplex = flow.duplex
        self._order.move_to_end(duplex.ordinal)
        if duplex.is_finished:
            self.counts["segments_after_close"] += 1
            return out
        self._flush_both(duplex, out)
        if duplex.tcp is not None:
            duplex.tcp.take(flow.side, segment)
        duplex.feed(flow.side, segment, out)
        self._settle(duplex, out)
        if duplex.plain or duplex.is_finished:
            duplex.cause = None
        else:
            duplex.cause = segment._replace(payload=b"") if segment.payload else segment
        self._enforce_limit(out)
        return out

    def _advance(self, flow: FlowEntry, segment: Segment, out: list[Event]) -> None:
        """Advance a connection's clock to its next segment, expiring the deadlines in between."""
        duplex, time_ns = flow.duplex, segment.time_ns
        while duplex.due_ns <= time_ns:
            if self._expire(duplex, out):
                return
        if self._is_idle(duplex, time_ns):
            self._close_idle(duplex, out)
        elif duplex.now_ns - time_ns > self._limits.reorder_window_ns and flow.stream.is_ahead(segment):
            # The clock of the capturing machine was set back: waiting times can no longer be measured.
            while duplex.due_ns != NEVER_NS:
                if self._expire(duplex, out):
                    return
            duplex.now_ns = time_ns
        else:
            duplex.now_ns = max(duplex.now_ns, time_ns)

    def _is_repeated(self, segment: Segment, flow: FlowEntry | None) -> bool:
        """Whether a segment belongs to a closed connection. If the ends are in use again, this is checked
        only for segments that would open or close the current connection and are not next in its stream.
        """
        if flow is not None and (
            not segment.flags & (SYN | FIN | RST) or segment.sequence == flow.stream.next
        ):
            return False
        return self._ended.covers(segment)

    def _open(self, segment: Segment, out: list[Event]) -> FlowEntry:
        while len(self._order) >= max(1, self._limits.connections):
            oldest = self._duplex(next(iter(self._order)))
            if oldest is not None:
                self._close(oldest, "evicted", segment.time_ns, out)
        self.counts["connections"] += 1
        duplex = self._enter(segment.ends, segment.time_ns, self.counts["connections"])
        duplex.number = self.number
        if self.analyzes:
            duplex.tcp = TcpAnalysis()
        self._idle.set(duplex, duplex.now_ns + self._limits.connection_idle_ns)
        return self._flows[segment.ends]

    def _enter(self, ends: bytes, now_ns: int, ordinal: int) -> Duplex:
        """Enter a connection in the tables."""
        duplex = Duplex(ends, now_ns, self._limits, self.counts, self.ids, ordinal, self._is_listener)
        one, two = duplex.streams
        self._flows[reversed_ends(ends)] = FlowEntry(duplex, 1, two, one)
        self._flows[ends] = FlowEntry(duplex, 0, one, two)
        self._order[ordinal] = duplex
        return duplex

    def _duplex(self, ordinal: int) -> Duplex | None:
        """The connection with this number; None if it was lost."""
        duplex = self._order[ordinal]
        if duplex is None:
            assert self.lender is not None
            duplex = self.lender.recall(ordinal)
        return duplex

    def _forget_ended(self, before: tuple[int, int], out: list[Event]) -> None:
        """Remember as closed what has ended in the native core before this deadline and ordinal."""
        if self.lender is not None:
            for each in self.lender.ended(before):
                self._remember(each.ended)
                if each.syn_ns is not None:
                    self.ids.take(each.ended.ends, each.syn_ns)
                self._drop(each.ordinal)
                if each.closed is not None:
                    out.append(each.closed)

    def _is_idle(self, duplex: Duplex, now_ns: int) -> bool:
        return now_ns - duplex.now_ns > self._limits.connection_idle_ns

    def _close_idle(self, duplex: Duplex, out: list[Event]) -> None:
        self._close(duplex, "idle", duplex.now_ns + self._limits.connection_idle_ns, out)

    def _close(self, duplex: Duplex, reason: str, time_ns: int, out: list[Event]) -> None:
        """Pass on what is held, report the end unless it was reported, and remove the connection."""
        if self.lender is not None:
            self.lender.closing(duplex)
            if duplex.ordinal not in self._order:
                return  # a bug has lost it
        self._flush_both(duplex, out)
        is_reported = not duplex.is_half_open or duplex.reset_ns is not None or duplex.tcp is not None
        if is_reported:
            duplex.flush(out)
        else:
            duplex.drop()
        if duplex.is_finished:
            reason = "fin"
        elif duplex.reset_ns is not None:
            reason = "reset"
        if reason in ("fin", "reset", "reused"):
            one, two = (_numbers(stream.first, stream.next) for stream in duplex.streams)
            self._remember(Ended(duplex.ends, time_ns, (one, two)))
        if is_reported:
            self._report_closed(duplex, reason, time_ns, out)
        else:
            self.counts[f"closed_{reason}"] += 1
        self._remove(duplex)

    def _drop(self, ordinal: int) -> None:
        """Remove a connection that the native core has."""
        if (duplex := self._order.get(ordinal)) is not None:
            self._remove(duplex)
        else:
            self._order.pop(ordinal, None)

    def _remove(self, duplex: Duplex) -> None:
        """Remove a closed connection from the tables."""
        self._flows.pop(duplex.ends, None)
        self._flows.pop(reversed_ends(duplex.ends), None)
        del self._order[duplex.ordinal]
        duplex.due_ns = NEVER_NS
        self._deadlines.set(duplex, NEVER_NS)
        self._idle.set(duplex, NEVER_NS)
        self._account(duplex)

    def _settle(self, duplex: Duplex, out: list[Event]) -> None:
        """Update a connection's end and its next deadline, after segments or a deadline."""
        if duplex.is_finished:
            self._report_closed(duplex, "fin", duplex.now_ns, out)
        duplex.set_deadline()
        self._deadlines.set(duplex, duplex.due_ns)
        self._account(duplex)

    def _report_closed(self, duplex: Duplex, reason: str, time_ns: int, out: list[Event]) -> None:
        if duplex.is_close_reported:
            return
        assert duplex.connection is not None
        duplex.end_preface(out)
        duplex.is_close_reported = True
        self.counts[f"closed_{reason}"] += 1
        out.append((duplex.connection, 0, Closed(reason, time_ns)))

    def _expire(self, duplex: Duplex, out: list[Event]) -> bool:
        """Expire a connection's deadline; return whether that closed the connection."""
        self._flush_both(duplex, out)
        if duplex.expire(out):
            self._close(duplex, "reset", duplex.now_ns, out)
            return True
        self._settle(duplex, out)
        return False

    def _account(self, duplex: Duplex) -> None:
        """Update how many bytes a connection holds, and since when it waits."""
        is_known = duplex.ordinal in self._order
        self._hold(duplex.ordinal, duplex.held if is_known else 0)
        self._waits.set(duplex, duplex.waiting_since_ns if is_known else NEVER_NS)

    def _hold(self, ordinal: int, held: int) -> None:
        self._held_in_all += held - self._held.get(ordinal, 0)
        if held:
            self._held[ordinal] = held
        else:
            self._held.pop(ordinal, None)

    def _remember(self, ended: Ended) -> None:
        if self._ended.add(ended):
            self.counts["ended_forgotten"] += 1

    def _enforce_limit(self, out: list[Event]) -> None:
        while self._held_in_all > self._limits.total_stream_bytes:
            longest = self._duplex(next(iter(self._held)))
            if longest is None:
                continue
            self.counts["streams_flushed"] += 1
            longest.flush(out)
            self._settle(longest, out)


# ------------------------------------------------------------------------------------------------------------
# Consecutive packets of one message -> their payloads.
#
# A large message fills many packets that differ only in sequence number: same connection, size and
# acknowledgment. After the first was parsed, one comparison checks each of the others.
# ------------------------------------------------------------------------------------------------------------


def payloads(
    data: bytes,
    places: Iterable[tuple[int, int, int, int]],
    layout: tuple[int, int, int],
    pattern: tuple[int, int, int, bytes, int, int, int],
    now_ns: int,
    until_ns: int,
) -> tuple[bytes, int]:
    """Payloads of the packets after the first one of a run, joined, and their number.

    Args:
        data: the buffer that holds the packets.
        places: of the packets in it, as in ``PacketBlock``. The first packet that does not fit ends the run.
        layout: positions in each packet: of the fields of ``USUAL``, of the payload's start and end.
        pattern: the fields that the next packet of the run must have.
        now_ns: time of the packet before; times must not go back.
        until_ns: time that no packet may reach.
    """
    at, start, end = layout
    kind, total, carries, ends, sequence, acknowledgment, control = pattern
    result: list[bytes] = []
    for time_ns, begin, stop, _ in places:
        expected = kind, total, carries, ends, sequence, acknowledgment, control
        if begin + end > stop or not now_ns <= time_ns < until_ns or _unpack(data, begin + at) != expected:
            break
        result.append(data[begin + start : begin + end])
        sequence = (sequence + end - start) & SEQUENCE_MASK
        now_ns = time_ns
    return b"".join(result), len(result)


def _native_payloads(
    data: bytes, places: Iterable[tuple[int, int, int, int]], *run: Any
) -> tuple[bytes, int] | None:
    """As ``payloads``, by the native core if it has found the packets. None: it has not."""
    if not core.is_used or not isinstance(places, core.native.Places) or run[-1] > _MAX_NS:
        return None
    return core.native.payloads(data, places, *run)


# ------------------------------------------------------------------------------------------------------------
# Closed connections -> whether a segment belongs to one of them, and so is a repeated one.
#
# Merged captures of both ends contain each connection twice. If their clocks differ by seconds, the second
# copy begins or ends long after the first was closed. So a SYN with the sequence number of a closed
# connection, or payload within its sequence numbers, does not open a connection. Otherwise connections would
# be counted twice, or the last seconds of one would become another.
#
# Memory: the first and last sequence numbers of the streams of up to ``_MAX_ENDED`` connections, for each of
# ``Limits.ended_connections`` pairs of ends, until ``ended_age_ns`` has passed.
# ------------------------------------------------------------------------------------------------------------


_LONG = 1 << 30
_MAX_ENDED = 4
"""Most connections remembered for one pair of ends: a minute of TIME_WAIT keeps most from having more."""


class Ended(NamedTuple):
    """A closed connection: the ends of side 0, when it was closed, and by side the first and the next
    sequence number of the stream (None: nothing of it was captured).
    """

    ends: bytes
    time_ns: int
    numbers: tuple[tuple[int, int] | None, tuple[int, int] | None]


class EndedConnections:
    """Remembers closed connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ended: OrderedDict[bytes, tuple[Ended, ...]] = OrderedDict()

    def knows(self, ends: bytes) -> bool:
        """Whether any connection between these ends is remembered."""
        return connection_key(ends) in self._ended

    def add(self, ended: Ended) -> bool:
        """Remember a connection; return whether the limit forced another one to be forgotten early."""
        key = connection_key(ended.ends)
        self._ended[key] = (*self._ended.pop(key, ())[1 - _MAX_ENDED :], ended)
        is_full = len(self._ended) > self._limits.ended_connections
        if is_full:
            self._ended.popitem(last=False)
        return is_full

    def tick(self, time_ns: int) -> None:
        """Every segment up to this time has been delivered: forget connections that are too old for repeated
        segments.
        """
        since_ns = time_ns - self._limits.ended_age_ns
        while self._ended and next(iter(self._ended.values()))[-1].time_ns < since_ns:
            self._ended.popitem(last=False)

    def covers(self, segment: Segment) -> bool:
        """Whether a segment lies within a closed connection."""
        for ended in self._ended.get(connection_key(segment.ends), ()):
            numbers = ended.numbers[segment.ends != ended.ends]
            recent = abs(segment.time_ns - ended.time_ns) <= self._limits.ended_age_ns
            if numbers and recent and _within(segment, *numbers):
                return True
        return False


def _numbers(first: int | None, following: int) -> tuple[int, int] | None:
    if first is None:
        return None
    # Sequence numbers more than 2 GiB back look as if they were ahead: keep only the end of a longer stream.
    return first if distance(first, following) >= 0 else advance(following, -_LONG), following


def _within(segment: Segment, first: int, following: int) -> bool:
    if segment.flags & SYN:
        return advance(segment.sequence, 1) == first
    end = advance(segment.sequence, segment.length)
    return distance(first, segment.sequence) >= -1 and distance(end, following) >= 0
