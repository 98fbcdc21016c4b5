"""Segments of all connections -> ``Data``, ``Gap`` and ``Closed``, each with its connection and side.

A connection comes into being by a SYN or by payload, never by a bare acknowledgment, FIN or RST, and is
told as over when

* both sides have sent their FIN and all before it was passed on (``fin``);
* a RST came, after a while for what the capture recorded late (``reset``);
* a SYN with another sequence number begins the next connection of the same ends (``reused``);
* it is too many: the least recently used goes (``evicted``), or it was silent for too long (``idle``);
* the capture is over (``end``).

"A while" is the patience of limits.py, counted in segments of the whole capture and in packet time. What is
over stays known for that long, and its numbers for longer (ended.py): segments that come again, because a
capture has them from several interfaces, from inside and outside a tunnel, or from both ends, are no other
connection. The first one captured counts. Addresses make a connection: behind NAT it is another one.

Holds, for each connection, what duplex.py holds; at most ``Limits.connections`` of them,
``stream_bytes_in_all`` together.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kdissect.limits import DEFAULT, Limits
from kdissect.model import Closed, Data, Segment
from kdissect.net.duplex import Connection, Duplex, Event
from kdissect.net.ended import Ended
from kdissect.net.ip import TCP
from kdissect.net.link import ETHERNET, IPV4
from kdissect.net.stream import SEQUENCE_MASK, Stream, distance
from kdissect.net.tcp import (
    ACK,
    CONTROL,
    FIN,
    IPV4_WITHOUT_OPTIONS,
    RST,
    SYN,
    USUAL,
    USUAL_SIZE,
    USUAL_START,
    reversed_ends,
)

if TYPE_CHECKING:
    from kdissect.model import Packet

__all__ = ["Connection", "Connections", "Event"]

_SWEEP = 256
"""Segments between two looks for idle connections: often enough, and it costs nothing."""

_LOOK_AGAIN = 16
"""Segments until the next look when patience has lasted enough segments, but not enough time."""

_GATHERED_SEGMENTS = 64
"""Segments that are passed on at once, at most: so that tiny ones are bounded too."""

_unpack = USUAL.unpack_from
_new = tuple.__new__
_NOTHING: list[Event] = []  # the same for all: nobody changes what ``feed`` returns


class _Way(NamedTuple):
    """One direction of one connection, found by the ends of a segment."""

    duplex: Duplex
    side: int
    stream: Stream
    other: Stream


class Connections:
    """The table of connections.

    Attributes:
        counts: what was seen and what it cost: ``connections``, ``retransmitted_bytes``,
            ``overlapping_bytes`` and ``conflicting_bytes`` (of those, what differs from what was captured
            first), ``out_of_order`` segments, ``gaps``, ``lost_bytes``, ``cut_bytes``, ``stray_segments``
            (from too far ahead), ``bytes_after_fin``, ``repeated_segments`` (a SYN, FIN or RST again, or
            payload of which every byte had come), ``keep_alive_probes``, ``segments_without_connection``,
            ``segments_after_close``, and ``closed_`` with each reason.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.counts: Counter[str] = Counter()
        self._limits = limits
        self._ways: dict[bytes, _Way] = {}
        self._order: OrderedDict[Duplex, None] = OrderedDict()  # least recently used first
        self._held: dict[Duplex, int] = {}  # those that hold something, longest first
        self._held_in_all = 0
        self._ended = Ended(limits)
        self._patient: OrderedDict[Duplex, tuple[int, int]] = OrderedDict()  # since which segment and time
        self._arrivals = 0
        self._due = _SWEEP  # count of segments at which to look at the clock
        self._last: Segment | None = None
        self._gathering: dict[Stream, _Way] = {}

    @property
    def remembered(self) -> int:
        """How many connections are known now, those included whose end was told a moment ago."""
        return len(self._order)

    @property
    def waiting_since_ns(self) -> int | None:
        """Time of the earliest segment that any connection holds back, None while none does."""
        for duplex in self._held:
            return duplex.holds_since_ns
        return None

    def ordinal(self, ends: bytes) -> int:
        """Which connection (``Connection.ordinal``) segments with these ends belong to now; 0: none."""
        way = self._ways.get(ends)
        return 0 if way is None else way.duplex.ordinal

    def feed_usual(self, packet: Packet) -> list[Event] | None:
        """Take the usual packet by the shortest way: what ``Segments.feed`` and ``feed`` do with it, in one
        go and without a ``Segment``, in half the time. None: the packet is another one, and was not taken.
        """
        number, time_ns, interface, data, _ = packet
        if len(data) < USUAL_SIZE or interface.link_type != ETHERNET:
            return None
        ethertype, version, total, place, protocol, ends, sequence, acknowledgment, size, flags = _unpack(
            data
        )
        way = self._ways.get(ends)
        if way is None:
            return None
        duplex, side, stream, other = way
        start, end = USUAL_START + (size >> 4) * 4, 14 + total
        if not (
            sequence == stream.next
            and duplex.plain
            and flags & CONTROL == ACK
            and USUAL_SIZE <= start <= end <= len(data)
            and ethertype == IPV4
            and version == IPV4_WITHOUT_OPTIONS
            and protocol == TCP
            and not place & 0x3FFF
            and (acknowledgment == other.next or distance(acknowledgment, other.next) > 0)
            and self._arrivals < self._due - 1
        ):
            return None
        self._arrivals += 1
        duplex.last_ns = time_ns
        self._order.move_to_end(duplex)
        length = end - start
        if not length:
            return _NOTHING
        stream.next = (sequence + length) & SEQUENCE_MASK
        connection = duplex.connection
        assert connection is not None
        wanted = connection.wanted[side]
        if wanted <= length or not stream.gathered or len(stream.gathered) >= _GATHERED_SEGMENTS - 1:
            if wanted:
                return self._gather(way, connection, packet, data[start:end])
            # Half the price of calling the class: a named tuple's own __new__ is a Python function.
            return [(connection, side, _new(Data, (number, time_ns, interface, data[start:end])))]
        stream.gathered.append(data[start:end])
        stream.gathered_from = packet
        connection.wanted[side] = wanted - length
        return _NOTHING

    def feed(self, segment: Segment) -> list[Event]:
        """Take a segment."""
        arrivals = self._arrivals = self._arrivals + 1
        packet, time_ns, interface, ends, sequence, acknowledgment, flags, payload, length = segment
        way = self._ways.get(ends)
        if way is not None and arrivals < self._due:
            # The usual segment: the next of its direction, on a connection where nothing waits.
            duplex, side, stream, other = way
            if (
                sequence == stream.next
                and duplex.plain
                and flags & CONTROL == ACK
                and length == len(payload)
                and (acknowledgment == other.next or distance(acknowledgment, other.next) > 0)
            ):
                duplex.last_ns = time_ns
                self._order.move_to_end(duplex)
                if not length:
                    return _NOTHING
                stream.next = (sequence + length) & SEQUENCE_MASK
                connection = duplex.connection
                assert connection is not None
                if connection.wanted[side]:
                    return self._gather(way, connection, segment, payload)
                # Half the price of calling the class: a named tuple's own __new__ is a Python function.
                return [(connection, side, _new(Data, (packet, time_ns, interface, payload)))]
        return self._feed(segment, way)

    def wait(self, now_ns: int) -> list[Event]:
        """All that was captured until now has come: patience need not wait for more segments."""
        out: list[Event] = []
        if self._last is not None:
            self._look_at_clock(self._last._replace(time_ns=now_ns), out, patience_segments=0)
        return out

    def close(self) -> list[Event]:
        """The capture is over, and with it every connection."""
        out: list[Event] = []
        if self._last is not None:
            for duplex in list(self._order):
                self._close(duplex, "end", self._last, out)
        return out

    def _gather(
        self, way: _Way, connection: Connection, carrier: Packet | Segment, payload: bytes
    ) -> list[Event]:
        """The next bytes in the middle of what is wanted as a whole: keep them until enough has come."""
        _, side, stream, _ = way
        wanted = connection.wanted
        if not stream.gathered:
            too_large = wanted[side] < 2 * len(payload)  # joining them would cost more than it saves
            if too_large or len(self._gathering) >= self._limits.gathering_streams:
                wanted[side] = 0
                return [(connection, side, Data(*carrier[:3], payload))]
            self._gathering[stream] = way
        stream.gathered.append(payload)
        stream.gathered_from = carrier
        wanted[side] -= len(payload)
        if wanted[side] > 0 and len(stream.gathered) < _GATHERED_SEGMENTS:
            return _NOTHING
        out: list[Event] = []
        self._pass_on(way, out)
        return out

    def _pass_on(self, way: _Way, out: list[Event]) -> None:
        """Let go of what one direction has gathered."""
        duplex, side, stream, _ = way
        assert duplex.connection is not None
        assert stream.gathered_from is not None
        out.append((duplex.connection, side, Data(*stream.gathered_from[:3], b"".join(stream.gathered))))
        duplex.connection.wanted[side] = 0
        stream.gathered = []
        stream.gathered_from = None
        del self._gathering[stream]

    def _pass_on_both(self, duplex: Duplex, out: list[Event]) -> None:
        """The same for both directions of a connection to which something unusual happens."""
        for stream in duplex.streams:
            if stream.gathered:
                self._pass_on(self._gathering[stream], out)

    def _feed(self, segment: Segment, way: _Way | None) -> list[Event]:
        self._last = segment
        out: list[Event] = []
        if self._arrivals >= self._due:
            self._look_at_clock(segment, out, self._limits.patience_segments)
            self._arrivals -= 1
            return out + self.feed(segment)
        begins = segment.flags & (SYN | RST) == SYN
        if self._came_again(segment, way):
            self.counts["segments_after_close"] += 1
            return out
        if begins and way is not None and way.duplex.is_new(way.side, segment):
            self._close(way.duplex, "reused", segment, out)
            way = None
        if way is None:
            if not begins and (segment.flags & RST or not segment.length):
                self.counts["segments_without_connection"] += 1
                return out
            way = self._open(segment, out)
        duplex = way.duplex
        duplex.last_ns = segment.time_ns
        self._order.move_to_end(duplex)
        if duplex.over:
            self.counts["segments_after_close"] += 1
            return out
        self._pass_on_both(duplex, out)
        duplex.feed(way.side, segment, self._arrivals, out)
        self._settle(duplex, out)
        if not duplex.patient:
            self._be_patient(duplex, segment.time_ns)
        self._keep_bound(segment, out)
        return out

    def _came_again(self, segment: Segment, way: _Way | None) -> bool:
        """Whether a segment is of a connection that is over. Where another one has their ends by now, that
        is asked only of those that would begin or end it, and are not what it waits for.
        """
        if way is not None and (not segment.flags & (SYN | FIN | RST) or segment.sequence == way.stream.next):
            return False
        return self._ended.knows(segment)

    def _open(self, segment: Segment, out: list[Event]) -> _Way:
        while len(self._order) >= max(1, self._limits.connections):
            self._close(next(iter(self._order)), "evicted", segment, out)
        self.counts["connections"] += 1
        duplex = Duplex(segment.ends, self._limits, self.counts)
        one, two = duplex.streams
        self._ways[reversed_ends(segment.ends)] = _Way(duplex, 1, two, one)
        way = self._ways[segment.ends] = _Way(duplex, 0, one, two)
        self._order[duplex] = None
        return way

    def _close(self, duplex: Duplex, reason: str, cause: Segment, out: list[Event]) -> None:
        """Pass on what is held, tell that the connection is over unless that was told, and forget it."""
        self._pass_on_both(duplex, out)
        duplex.flush(cause, out)
        if duplex.over:
            reason = "fin"
        elif duplex.reset_ns is not None:
            reason = "reset"
        if reason in ("fin", "reset", "reused"):
            self._ended.add(duplex, cause.time_ns)
        self._tell_closed(duplex, reason, out)
        self._ways.pop(duplex.ends, None)
        self._ways.pop(reversed_ends(duplex.ends), None)
        self._patient.pop(duplex, None)
        del self._order[duplex]
        self._account(duplex)

    def _settle(self, duplex: Duplex, out: list[Event]) -> None:
        """See what became of a connection."""
        if duplex.over:
            self._tell_closed(duplex, "fin", out)
        self._account(duplex)

    def _tell_closed(self, duplex: Duplex, reason: str, out: list[Event]) -> None:
        if duplex.told:
            return
        assert duplex.connection is not None
        duplex.told = True
        self.counts[f"closed_{reason}"] += 1
        out.append((duplex.connection, 0, Closed(reason)))

    def _be_patient(self, duplex: Duplex, now_ns: int) -> None:
        if duplex.be_patient():
            self._patient[duplex] = self._arrivals, now_ns
            self._due = min(self._due, self._arrivals + self._limits.patience_segments)

    def _look_at_clock(self, segment: Segment, out: list[Event], patience_segments: int) -> None:
        """End the patience that has lasted long enough, and the connections that were silent for too long."""
        now_ns, limits = segment.time_ns, self._limits
        if len(self._gathering) >= limits.gathering_streams:
            for way in list(self._gathering.values()):  # some may wait for nothing: it is others' turn
                self._pass_on(way, out)
        while self._patient:
            duplex, (since, since_ns) = next(iter(self._patient.items()))
            if self._arrivals - since < patience_segments or abs(now_ns - since_ns) < limits.patience_ns:
                break
            del self._patient[duplex]
            self._end_patience(duplex, segment, out)
        while self._order:
            oldest = next(iter(self._order))
            if now_ns - oldest.last_ns <= limits.connection_idle_ns:
                break
            self._close(oldest, "idle", segment, out)
        self._due = self._arrivals + _SWEEP
        if self._patient:
            due = next(iter(self._patient.values()))[0] + limits.patience_segments
            self._due = min(self._due, max(due, self._arrivals + _LOOK_AGAIN))

    def _end_patience(self, duplex: Duplex, segment: Segment, out: list[Event]) -> None:
        self._pass_on_both(duplex, out)
        if duplex.lose_patience(segment, out):
            self._close(duplex, "reset", segment, out)
            return
        self._settle(duplex, out)
        self._be_patient(duplex, segment.time_ns)

    def _account(self, duplex: Duplex) -> None:
        held = duplex.held if duplex in self._order else 0
        self._held_in_all += held - self._held.get(duplex, 0)
        if held:
            self._held[duplex] = held
        else:
            self._held.pop(duplex, None)

    def _keep_bound(self, cause: Segment, out: list[Event]) -> None:
        while self._held_in_all > self._limits.stream_bytes_in_all:
            longest = next(iter(self._held))
            longest.flush(cause, out)
            self._settle(longest, out)
