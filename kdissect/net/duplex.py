"""The segments of one connection -> its two streams, interleaved in an order that respects causality.

An acknowledgment shows what the sender of a segment had received by then. So bytes are passed on only
after everything they acknowledge was passed on in the other direction: a response never overtakes its
request, however late the request is in the capture. Whatever the order of the segments, the two streams are
the same.

Three things may never arrive. Each has a deadline in packet time, ``Limits.reorder_window_ns`` after the
connection's own clock, which is the latest time of its own segments:

* The beginning. Segments are kept until both SYNs are there. If the deadline passes without them, a stream
  begins at the lowest sequence number captured, or at the other side's acknowledgment.
* Bytes that the other side has acknowledged. They were received, so they appear late in the capture or
  never: after the deadline they are a gap. A hole that was not acknowledged, as when only one direction was
  captured, becomes a gap ``gap_age_ns`` after the time of the first bytes after it. If the other side sent
  acknowledgments since then, but of earlier bytes, it did not receive them: the network lost them.
* Segments after an RST. At the deadline the connection is closed.

There is no waiting for a direction of which nothing was captured. The side that opened the connection, or on
a known listener the other one, may begin with PROXY headers, which are not passed on (preface.py).

Memory: the segments of a beginning, two streams, and an incomplete header; see ``held``. If a stream reaches
a limit, its oldest hole becomes a gap immediately.
"""

from __future__ import annotations

from _blake2 import blake2b  # the same as in hashlib, which would load OpenSSL and delay short runs
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kdissect.model import Gap, Retransmitted
from kdissect.net.preface import Preface
from kdissect.net.stream import PIECE_COST, UNDELIVERED, Piece, Stream, advance, distance
from kdissect.net.tcp import ACK, FIN, RST, SYN, endpoints, is_d_sack, reversed_ends

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from kdissect.limits import Limits
    from kdissect.model import (
        Closed,
        ConnectionKey,
        Data,
        Decrypted,
        Endpoint,
        Interface,
        Prefaced,
        Proxy,
        Segment,
    )
    from kdissect.net.analysis import TcpAnalysis

NEVER_NS = 1 << 70

_GATHERED_BYTES = 64 * 1024
"""Most bytes in the middle of a large frame that are passed on together rather than packet by packet: more
would save little, and no longer fit the processor's caches.
"""


@dataclass(slots=True, eq=False)
class Connection:
    """What is known about a connection when its first bytes are passed on. Compared by identity.

    Attributes:
        id: 12 hex digits, see ``ConnectionIds``.
        ends: of side 0 and side 1. Side 0 sent the first segment in the capture.
        initiator: the side that sent a SYN, or received a SYN-ACK; None if neither was captured.
        from_start: by side, whether the beginning of the stream is known from a SYN or its acknowledgment.
        first_packet, first_time_ns, interface: of the earliest packet.
        ordinal: number of the connection in this run, from 1, in order of first packets.
        number: see ``tcp.StreamNumbers``; None if they are not counted.
        streams: by side, with counts of repeated and out-of-order segments.
        tcp: its TCP analysis; None if the command needs none.
        proxy: what its PROXY headers say; None without any.
        preface_fault: what is wrong with one of them.
        has_sure_id: whether no connection before may have its ID.
    """

    id: str
    ends: tuple[Endpoint, Endpoint]
    initiator: int | None
    from_start: tuple[bool, bool]
    first_packet: int
    first_time_ns: int
    interface: Interface
    ordinal: int = 0
    number: int | None = None
    streams: tuple[Stream, ...] = field(default=(), repr=False)
    tcp: TcpAnalysis | None = field(default=None, repr=False)
    proxy: Proxy | None = None
    preface_fault: str | None = None
    has_sure_id: bool = True

    @property
    def key(self) -> ConnectionKey:
        """What identifies it in this run."""
        return self.id, self.ordinal

    @property
    def server(self) -> Endpoint:
        """The end that was connected to; if no SYN was captured, the one with the lower port."""
        first, second = self.ends
        if self.initiator is None:
            return first if first.port < second.port else second
        return self.ends[1 - self.initiator]

    def client(self, side: int) -> Endpoint:
        """The end of the side that is the client, as the PROXY headers name it."""
        return (self.proxy and self.proxy.client) or self.ends[side]

    def hop(self, side: int) -> Endpoint | None:
        """The same end of the TCP connection; None without PROXY headers."""
        return self.proxy and self.ends[side]

    def expect(self, side: int, size: int) -> None:
        """Allow the next ``size`` bytes of a side to be passed on together, because its reader cannot use a
        part of them. 0: pass on bytes packet by packet.
        """
        self.streams[side].expected = size and min(size, _GATHERED_BYTES)


Event = tuple[Connection, int, "Data | Gap | Prefaced | Retransmitted | Decrypted | Closed"]
"""Connection, side (0 for ``Closed``), item."""


class ConnectionIds:
    """The IDs of connections: a hash of both ends and the first packet's time.

    Connections can have the same ends and first time: packets may have no time (simple packet blocks), or a
    coarse one, and clocks are set back. From the second of them on, their ordinal is part of the hash. They
    come one after another, and both ends are in one shard. So ordinals do not depend on other connections, as
    long as those between the same ends are remembered: at least the latest ``Limits.connection_ids / 2``. One
    that begins no later than a forgotten one may have its ID; such are counted as ``unsure_ids``.
    """

    def __init__(self, limits: Limits, counts: Counter[str]) -> None:
        self._half = limits.connection_ids // 2
        self._counts = counts
        self._recent: dict[bytes, int] = {}  # both ends and time -> connections so far
        self._earlier: dict[bytes, int] = {}
        self._latest_ns = [-NEVER_NS] * 3  # first times in these two, and of those that are forgotten

    def next(self, ends: bytes, first_ns: int) -> str:
        """The ID of the next connection between these ends, in either order, that begins at this time."""
        key, before = self._before(ends, first_ns)
        return blake2b(key if not before else b"%b,%d" % (key, before), digest_size=6).hexdigest()

    def take(self, ends: bytes, first_ns: int) -> None:
        """Note that there is such a connection."""
        key, before = self._before(ends, first_ns)
        if not before and first_ns <= self._latest_ns[2]:
            self._counts["unsure_ids"] += 1
        self._recent[key] = before + 1
        recent_ns, earlier_ns, forgotten_ns = self._latest_ns
        recent_ns = max(recent_ns, first_ns)
        self._latest_ns = [recent_ns, earlier_ns, forgotten_ns]
        if len(self._recent) > self._half:
            if self._earlier:
                forgotten_ns = max(forgotten_ns, earlier_ns)
            self._recent, self._earlier = {}, self._recent
            self._latest_ns = [-NEVER_NS, recent_ns, forgotten_ns]

    def is_sure(self, ends: bytes, first_ns: int) -> bool:
        """Whether the ``next`` ID is certainly of no connection before."""
        return first_ns > self._latest_ns[2] or self._before(ends, first_ns)[1] > 0

    def _before(self, ends: bytes, first_ns: int) -> tuple[bytes, int]:
        key = b"".join((*sorted((ends, reversed_ends(ends))), b"%d" % first_ns))
        return key, self._recent.get(key) or self._earlier.get(key, 0)


class Duplex:
    """Both directions of one connection.

    Attributes:
        ends: of the first segment, as in ``Segment.ends``.
        ordinal: as in ``Connection.ordinal``.
        number: as in ``Connection.number``.
        connection: None until the beginning is known.
        tcp: its TCP analysis; None if the command needs none.
        streams: by side.
        plain: whether it is open, nothing is held or waited for, PROXY headers can no longer follow, and no
            retransmission may be reported as spurious: the next segment in order can be passed on directly.
        preface: what takes PROXY headers out; None before the beginning is known, and after they were.
        is_finished: everything up to the FIN of both sides was passed on.
        is_close_reported: whether ``Closed`` was passed on.
        reset_ns: time of the first RST.
        now_ns: the connection's own clock: the latest time of its segments, or of a deadline that has passed.
        due_ns: the deadline; ``NEVER_NS`` if it is not waiting.
        cause: the latest segment, without payload, while something is waited for.
    """

    __slots__ = (
        "_counts", "_due_begin", "_due_end", "_early", "_early_held", "_early_ns", "_ids", "_initiator",
        "_is_listener", "_limits", "_reach", "cause", "connection", "due_ns", "ends", "is_close_reported",
        "is_finished", "now_ns",
        "number", "ordinal", "plain", "preface", "reset_ns", "streams", "tcp",
    )  # fmt: skip

    def __init__(
        self,
        ends: bytes,
        now_ns: int,
        limits: Limits,
        counts: Counter[str],
        ids: ConnectionIds,
        ordinal: int = 0,
        is_listener: Callable[[Endpoint], bool] = lambda _: False,
    ) -> None:
        self.ends = ends
        self.ordinal = ordinal
        self.number: int | None = None
        self.connection: Connection | None = None
        self.tcp: TcpAnalysis | None = None
        self.streams = (Stream(), Stream())
        self.plain = self.is_finished = self.is_close_reported = False
        self.reset_ns: int | None = None
        self.now_ns = now_ns
        self.due_ns = NEVER_NS
        self.cause: Segment | None = None
        self._counts = counts
        self._ids = ids
        self._limits = limits
        # A segment from farther ahead than can be held belongs to an earlier connection between these ends.
        self._reach = 2 * limits.stream_bytes
        self._early: list[tuple[int, Segment]] | None = []
        self._early_held = 0
        self._early_ns = 0
        self._initiator: int | None = None
        self._due_begin = self._due_end = False
        self.preface: Preface | None = None
        self._is_listener = is_listener

    @property
    def held(self) -> int:
        """Memory for everything that is held, in bytes."""
        held = self._early_held + self.streams[0].held + self.streams[1].held
        return held if self.preface is None else held + self.preface.held

    @property
    def is_one_way(self) -> bool:
        """Whether only one direction was captured, and nothing of that is held or waited for."""
        one, two = self.streams
        return (
            one.seen != two.seen
            and (one.is_drained or two.is_drained)
            and self.due_ns == NEVER_NS
            and self.preface is None
            and not (one.doubted or two.doubted)
            and self.reset_ns is None
        )

    @property
    def waiting_since_ns(self) -> int:
        """The earliest time that an event still to come may have: that of the earliest segment held, or the
        deadline. ``NEVER_NS`` if nothing is waited for.
        """
        if self.is_close_reported:
            return NEVER_NS
        if self._early:
            return self._early_ns
        held = (stream.pieces[0].time_ns for stream in self.streams if stream.pieces)
        return min((*held, self.due_ns))

    @property
    def established(self) -> bool:
        """Whether both sides sent a SYN, or payload was passed on."""
        return all(stream.syn for stream in self.streams) or any(
            stream.first is not None and stream.next != stream.first for stream in self.streams
        )

    @property
    def is_half_open(self) -> bool:
        """Whether nothing but one SYN was captured, and an RST if it was refused."""
        return self._early is not None and len(self._early) == 1 and self._early_held == PIECE_COST

    def is_new(self, side: int, segment: Segment) -> bool:
        """Whether a SYN opens another connection between the same ends. Otherwise it is repeated, or late."""
        first = advance(segment.sequence, 1)
        stream = self.streams[side]
        if self.reset_ns is not None and segment.time_ns > self.reset_ns:
            if segment.flags & ACK and not self.established:
                return True  # it was refused; some clients retry with the same sequence number
            if not segment.flags & ACK:
                return not stream.exact or first != stream.first
        if stream.first is not None:
            return not 0 <= distance(first, stream.first) <= (0 if stream.exact else self._reach)
        return any(
            not 0 <= distance(first, early.sequence) <= self._reach
            for early_side, early in self._early or ()
            if early_side == side and early.length
        )

    def feed(self, side: int, segment: Segment, out: list[Event]) -> None:
        if segment.flags & RST:
            self._reset(side, segment)
            if self._early is not None:
                return
        if segment.flags & SYN and self.streams[side].syn:
            self._counts["repeated_segments"] += 1
        if self._early is not None:
            self._early.append((side, segment))
            self._early_held += PIECE_COST + len(segment.payload)
            self._early_ns = min(self._early_ns or segment.time_ns, segment.time_ns)
            if segment.flags & SYN:
                self._learn_start(side, segment)
            self.streams[side].seen = True
            if all(stream.syn for stream in self.streams) or self._early_held > self._limits.stream_bytes:
                self.begin(out)
            return
        if (other := self.streams[1 - side]).doubted:
            self._settle_doubt(side, segment, other, out)
        repeated = self._take(side, segment)
        self._release(out)
        if repeated is not None:
            self._report_late(side, segment, repeated, out)
        self._enforce_limits(side, out)

    def begin(self, out: list[Event]) -> None:
        """Determine where the streams begin, and process the segments kept so far."""
        early = self._early
        if early is None:
            return
        self.connection = self._identify(early)
        side = self._opening_side(self.connection)
        self.preface = None if side is None else Preface(side, self._limits)
        for side, stream in enumerate(self.streams):
            own = [segment for sent_by, segment in early if sent_by == side]
            if stream.first is None:
                data = [segment.sequence for segment in own if segment.length]
                acks = [
                    segment.acknowledgment
                    for sent_by, segment in early
                    if sent_by != side and segment.flags & ACK
                ]
                if data:
                    stream.begin(min(data, key=lambda sequence: distance(data[0], sequence)), exact=False)
                elif acks:
                    stream.begin(max(acks, key=lambda sequence: distance(acks[0], sequence)), exact=False)
        self._early = None
        self._early_held = 0
        for side, segment in early:
            repeated = self._take(side, segment)
            self._release(out)
            if repeated is not None:
                self._report_late(side, segment, repeated, out)
            self._enforce_limits(side, out)

    def drop(self) -> None:
        """The connection ends half open, without events: the next one may have the same first time."""
        self._ids.take(self.ends, self._early_ns)

    def set_deadline(self) -> None:
        """Set the deadline for everything that is waited for now, unless the current one is still needed.
        Must be called after every change.
        """
        one, two = self.streams
        if self.due_ns != NEVER_NS and (
            self._due_end
            or (self._due_begin and self._early is not None and self.reset_ns is None)
            or one.is_overdue
            or two.is_overdue
        ):
            self.plain = False
            return
        self._due_begin = self._early is not None
        self._due_end = self.is_finished or self.reset_ns is not None
        waits = self._due_begin or self._due_end
        for stream in self.streams:
            stream.overdue = stream.acked if stream.misses_bytes else None
            waits = waits or stream.misses_bytes
        if waits:
            self.due_ns = self.now_ns + self._limits.reorder_window_ns
        else:
            self.due_ns = min(
                (self._hole_deadline_ns(stream) for stream in self.streams if stream.pieces), default=NEVER_NS
            )
        is_certain = self.preface is None and not (one.doubted or two.doubted)
        self.plain = self.due_ns == NEVER_NS and is_certain and one.is_drained and two.is_drained

    def _hole_deadline_ns(self, stream: Stream) -> int:
        """When the hole before the first piece becomes a gap, acknowledged or not."""
        return stream.pieces[0].time_ns + self._limits.gap_age_ns

    def expire(self, out: list[Event]) -> bool:
        """The deadline has passed: stop waiting. Returns whether the connection is to be closed."""
        self.now_ns, self.due_ns = max(self.now_ns, self.due_ns), NEVER_NS
        if self._due_begin:
            self.begin(out)
        while not self.is_finished and (late := [side for side in (0, 1) if self.streams[side].is_overdue]):
            blocked = [side for side in late if self.streams[side].is_blocked]
            if blocked:
                side = min(blocked, key=self._head_time)
                overdue = self.streams[side].overdue
                assert overdue is not None
                self._skip(side, overdue, self._last_cause(), out)
            elif len(late) == 2:
                self._break_tie(out)
            else:
                break  # waiting for the other side, whose deadline has not passed
        for side, stream in enumerate(self.streams):
            while stream.pieces and self._hole_deadline_ns(stream) <= self.now_ns:
                self._unblock(side, out)
        return self._due_end

    def flush(self, out: list[Event]) -> None:
        """Pass on everything that is held, earliest first, with gaps for what is missing."""
        self.begin(out)
        while not self.is_finished and any(stream.pieces for stream in self.streams):
            self._unblock(min((0, 1), key=self._head_time), out)
        for side, stream in enumerate(self.streams):
            if stream.misses_bytes and stream.acked is not None and not self.is_finished:
                self._skip(side, stream.acked, self._last_cause(), out)
        self.end_preface(out)

    def end_preface(self, out: list[Event]) -> None:
        """Pass on what may be a PROXY header: it will not become complete."""
        if (preface := self.preface) is not None:
            self._settle_preface(preface, preface.close(), out)

    def _last_cause(self) -> Segment:
        """Packet and time of a gap after the last captured byte: those of the latest segment, at the current
        time.
        """
        assert self.cause is not None  # set while anything is missing
        return self.cause._replace(time_ns=self.now_ns)

    def _reset(self, side: int, segment: Segment) -> None:
        """Accept an RST if its sequence number is plausible for this connection, or its acknowledgment is."""
        near = self._early is not None or self._near(self.streams[side], segment.sequence)
        if not near and segment.flags & ACK:
            near = self._near(self.streams[1 - side], segment.acknowledgment)
        if not near:
            self._counts["stray_segments"] += 1
        elif self.reset_ns is None:
            self.reset_ns = segment.time_ns
        else:
            self._counts["repeated_segments"] += 1

    def _near(self, stream: Stream, sequence: int) -> bool:
        return stream.first is None or abs(distance(stream.next, sequence)) <= self._reach

    def _learn_start(self, side: int, segment: Segment) -> None:
        has_ack = bool(segment.flags & ACK)
        if self._initiator is None:
            self._initiator = 1 - side if has_ack else side
        stream, other = self.streams[side], self.streams[1 - side]
        stream.syn = True
        if not stream.exact:
            stream.begin(advance(segment.sequence, 1), exact=True)
        if has_ack and not other.exact:
            other.begin(segment.acknowledgment, exact=True)

    def _identify(self, early: list[tuple[int, Segment]]) -> Connection:
        first = min((segment for _, segment in early), key=lambda segment: (segment.time_ns, segment.packet))
        one, two = self.streams
        connection_id = self._ids.next(self.ends, first.time_ns)
        is_sure = self._ids.is_sure(self.ends, first.time_ns)
        self._ids.take(self.ends, first.time_ns)
        return Connection(
            connection_id,
            endpoints(self.ends),
            self._initiator,
            (one.exact, two.exact),
            first.packet,
            first.time_ns,
            first.interface,
            self.ordinal,
            self.number,
            streams=self.streams,
            tcp=self.tcp,
            has_sure_id=is_sure,
        )

    def _report_late(self, side: int, segment: Segment, repeated: int, out: list[Event]) -> None:
        """Report bytes that were repeated, or that filled a hole, so that later ones could be passed on; see
        ``Retransmitted``. Bytes that had been acknowledged do not count: their first copy had arrived.
        """
        stream, length = self.streams[side], segment.length
        back = distance(segment.sequence, stream.next)
        acknowledged = stream.acknowledged
        is_needed = acknowledged is None or distance(acknowledged, advance(segment.sequence, length)) > 0
        if is_needed and (repeated or back > length):
            assert self.connection is not None
            out.append((self.connection, side, Retransmitted(segment.time_ns, back)))
            stream.doubted = True

    def _settle_doubt(self, side: int, segment: Segment, other: Stream, out: list[Event]) -> None:
        """Pass on the report of a side that a retransmission was spurious; its next payload is a response."""
        if segment.options and is_d_sack(segment.options, segment.acknowledgment):
            assert self.connection is not None
            out.append((self.connection, 1 - side, Retransmitted(segment.time_ns, 0, is_spurious=True)))
        if segment.length:
            other.doubted = False

    def _take(self, side: int, segment: Segment) -> int | None:
        """Take a segment. Returns how far before the end of the passed-on bytes it begins; 0 if it may fill a
        hole, None otherwise.
        """
        stream, other = self.streams[side], self.streams[1 - side]
        flags = segment.flags
        if flags & RST:
            return None
        start = advance(segment.sequence, 1) if flags & SYN else segment.sequence
        end = advance(start, segment.length)
        if not stream.seen or stream.first is None:
            stream.seen = True
            if stream.first is None or (
                segment.length and not stream.exact and distance(stream.next, end) > 0
            ):
                stream.begin(start, exact=False)
        if distance(stream.top, start) > self._reach and stream.stray != start:
            stream.stray = end
            self._counts["stray_segments"] += 1
            return None
        acknowledges = None
        if flags & ACK:
            acknowledges = self._acknowledge(other, segment.acknowledgment, segment.time_ns)
        if flags & ACK and not segment.length:
            other.acknowledged = segment.acknowledgment
        if segment.length and stream.fin is not None and distance(stream.fin, start) >= 0:
            self._counts["bytes_after_fin"] += segment.length  # a receiver ignores them: RFC 9293, 3.10.7.4
            return None
        if flags & FIN:
            if stream.fin is None and distance(stream.next, end) >= 0:
                stream.fin, stream.fin_ns = end, segment.time_ns
            elif not segment.length:
                self._counts["repeated_segments"] += 1
        elif segment.length <= 1 and advance(start, 1) == stream.top and not (flags & SYN or stream.ended):
            self._counts["keep_alive_probes"] += 1  # RFC 9293, 3.8.4; zero-window probes look the same
            return None
        if not segment.length:
            return None
        repeated = distance(start, stream.next)
        is_late = repeated > 0 or (repeated == 0 and bool(stream.pieces))
        payload, packet, time_ns = segment.payload, segment.packet, segment.time_ns
        stream.put(Piece(start, end, payload, acknowledges, packet, time_ns, segment.interface), self._counts)
        return repeated if is_late else None

    def _acknowledge(self, stream: Stream, sequence: int, time_ns: int) -> int | None:
        """Note that the receiver has ``stream`` up to ``sequence``. Returns ``sequence`` if bytes before it
        are still missing.
        """
        if stream.fin is not None and distance(stream.fin, sequence) > 1:
            sequence = advance(stream.fin, 1)
        if distance(stream.next, sequence) <= 0:
            if stream.pieces and stream.is_blocked and time_ns >= stream.pieces[0].time_ns:
                stream.stuck = sequence
            return None
        if not stream.seen:
            stream.next = sequence
            return None
        if distance(stream.top, sequence) > self._reach:
            return None
        if stream.acked is None or distance(stream.acked, sequence) > 0:
            stream.acked = sequence
        return sequence

    def _release(self, out: list[Event]) -> None:
        one, two = self.streams
        moved = True
        while moved:
            before = one.next, two.next
            self._emit(0, one.release(two), out)
            self._emit(1, two.release(one), out)
            moved = before != (one.next, two.next)
        self.is_finished = (one.ended or two.ended) and all(
            stream.ended or not stream.seen for stream in self.streams
        )
        if self.is_finished:
            one.forget()
            two.forget()

    def _enforce_limits(self, side: int, out: list[Event]) -> None:
        stream, limits = self.streams[side], self._limits
        if stream.held > limits.stream_bytes or stream.holes > limits.stream_gaps:
            stream.stuck = None  # the acknowledgment of what is missing may still come
        while stream.pieces and (stream.holes > limits.stream_gaps or stream.held > limits.stream_bytes):
            self._unblock(side, out)

    def _unblock(self, side: int, out: list[Event]) -> None:
        """Stop waiting for anything that keeps the first piece of a stream from being passed on."""
        stream, other = self.streams[side], self.streams[1 - side]
        head = stream.pieces[0]
        if stream.is_blocked:
            self._skip(side, head.start, head, out)
        elif head.acknowledges is not None and other.is_blocked:
            self._skip(1 - side, head.acknowledges, head, out)
        else:
            self._break_tie(out)

    def _break_tie(self, out: list[Event]) -> None:
        """The first pieces of both streams acknowledge each other. So the bytes of the later one were also in
        an earlier segment, which is missing: drop its acknowledgment.
        """
        later = max(self.streams, key=lambda stream: (stream.pieces[0].time_ns, stream.pieces[0].packet))
        later.pieces[0] = later.pieces[0]._replace(acknowledges=None)
        self._release(out)

    def _skip(self, side: int, end: int, cause: Segment | Piece, out: list[Event]) -> None:
        self._emit(side, self.streams[side].skip(end, cause), out)
        self._release(out)

    def _emit(self, side: int, items: list[Data | Gap], out: list[Event]) -> None:
        assert self.connection is not None
        for item in items:
            if isinstance(item, Gap):
                self._counts[f"{item.reason}_bytes"] += item.length
                self._counts["undelivered_gaps" if item.reason == UNDELIVERED else "gaps"] += 1
            if (preface := self.preface) is not None and side == preface.side:
                self._settle_preface(preface, preface.feed(item), out)
            else:
                out.append((self.connection, side, item))

    def _opening_side(self, connection: Connection) -> int | None:
        """The side that may begin with PROXY headers: it opened the connection, or if that was not captured,
        the other one is known as a listener.
        """
        if connection.initiator is not None:
            return connection.initiator
        first, second = map(self._is_listener, connection.ends)
        return None if first == second else int(first)

    def _settle_preface(
        self, preface: Preface, items: Sequence[Data | Gap | Prefaced], out: list[Event]
    ) -> None:
        connection = self.connection
        assert connection is not None
        connection.proxy, connection.preface_fault = preface.proxy, preface.fault
        out += [(connection, preface.side, item) for item in items]
        if preface.is_done:
            self.preface = None

    def _head_time(self, side: int) -> tuple[int, int, int]:
        """Sort key of a side: the one with the older first piece comes first."""
        pieces = self.streams[side].pieces
        return (0, pieces[0].time_ns, pieces[0].packet) if pieces else (1, 0, side)
