"""Segments of all connections -> ``Data``, ``Gap`` and ``Closed``, each with its connection and side.

A connection comes into being by a SYN or by payload, never by a bare acknowledgment, FIN or RST, and is
told as over when

* both sides have sent their FIN and all before it was passed on (``fin``);
* a RST came, after a while for what the capture recorded late (``reset``);
* a SYN with another sequence number begins the next connection of the same ends (``reused``);
* it is too many: the least recently used goes (``evicted``), or it was silent for too long (``idle``);
* the capture is over (``end``).

"A while" is the patience of limits.py, counted in segments of the whole capture and in packet time, which is
the latest so far: what becomes of a connection depends on its own segments, and on how many others came and
when, not on what they were. So a process that takes a ``Share`` of the connections, and lets the segments of
the others pass, finds what one finds that takes all. What is over stays known for that long, and its numbers
for longer (ended.py): segments that come again, because a capture has them from several interfaces, from
inside and outside a tunnel, or from both ends, are no other connection. The first one captured counts.
Addresses make a connection: behind NAT it is another one.

Holds, for each connection, what duplex.py holds; at most ``Limits.connections`` of them,
``stream_bytes_in_all`` together.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from kdissect.limits import DEFAULT, Limits
from kdissect.model import Closed, Data, Packet, Segment
from kdissect.net.duplex import Connection, Duplex, Event
from kdissect.net.ended import Ended
from kdissect.net.link import COOKED, ETHERNET
from kdissect.net.runs import payloads
from kdissect.net.stream import SEQUENCE_MASK, Stream, distance
from kdissect.net.tcp import (
    ACK,
    CARRIES_MASK,
    CONTROL,
    FIN,
    KIND_MASK,
    RST,
    SYN,
    USUAL,
    USUAL_CARRIES,
    USUAL_CONTROL,
    USUAL_INTERNET,
    USUAL_KIND,
    USUAL_SIZE,
    USUAL_TRANSPORT,
    reversed_ends,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.model import Stretch
    from kdissect.net.share import Share

__all__ = ["Connection", "Connections", "Event"]

_TURNED_AWAY = 256
"""Streams that found no room to gather, until those that gather must let go."""

_MOST_THEIRS = 65_536
"""Ends that are known not to be ours: those of so many directions pass without a look at them."""

_NEVER = 1 << 70
_STALE = 64

_GATHERED_SEGMENTS = 64
"""Segments that are passed on at once, at most: so that tiny ones are bounded too."""

_SHIFTS = {ETHERNET: 0, COOKED: 2}
"""Link layers whose header ends with an ethertype, and by how much it is longer than Ethernet's."""

_unpack = USUAL.unpack_from
_new = tuple.__new__
_NOTHING: list[Event] = []  # the same for all: nobody changes what ``feed`` returns


class _Way(NamedTuple):
    """One direction of one connection, found by the ends of a segment."""

    duplex: Duplex
    side: int
    stream: Stream
    other: Stream


_NOBODY = Stream()
_NO_WAY = _Way(Duplex(b"", DEFAULT, Counter()), 0, _NOBODY, _NOBODY)
"""That of ends which are not known: never plain."""


class Connections:
    """The table of connections.

    Args:
        limits: bounds.
        share: which connections are ours; None: all.

    Attributes:
        arrivals: segments so far, those included that are not ours.
        now_ns: the latest time of any of them.
        counts: what was seen and what it cost: ``connections``, ``retransmitted_bytes``,
            ``overlapping_bytes`` and ``conflicting_bytes`` (of those, what differs from what was captured
            first), ``out_of_order`` segments, ``gaps``, ``lost_bytes``, ``cut_bytes``, ``stray_segments``
            (from too far ahead), ``bytes_after_fin``, ``repeated_segments`` (a SYN, FIN or RST again, or
            payload of which every byte had come), ``keep_alive_probes``, ``segments_without_connection``,
            ``segments_after_close``, and ``closed_`` with each reason.
    """

    def __init__(self, limits: Limits = DEFAULT, share: Share | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.arrivals = 0
        self.now_ns = 0
        self._limits = limits
        self._share = share
        self._theirs: set[bytes] = set()  # ends of connections that are not ours
        self._ways: dict[bytes, _Way] = {}
        self._order: OrderedDict[Duplex, None] = OrderedDict()  # least recently used first
        self._held: dict[Duplex, int] = {}  # those that hold something, longest first
        self._held_in_all = 0
        self._ended = Ended(limits)
        self._waits: list[tuple[int, int, Duplex]] = []  # a heap of when they began to; some do no more
        self._waits_since: dict[Duplex, int] = {}
        self._places = count()
        self._patient: OrderedDict[Duplex, tuple[int, int]] = OrderedDict()  # since which segment and time
        self._due_ns = _NEVER  # when to look at the clock
        self._last: Segment | None = None
        self._gathering: dict[Stream, _Way] = {}
        self._turned_away = 0

    @property
    def remembered(self) -> int:
        """How many connections are known now, those included whose end was told a moment ago."""
        return len(self._order)

    @property
    def waiting_since_ns(self) -> int | None:
        """Time of the earliest segment that any connection holds back, None while none does."""
        waits = self._waits
        while waits and self._waits_since.get(waits[0][2]) != waits[0][0]:
            heappop(waits)
        return waits[0][0] if waits else None

    @property
    def due_ns(self) -> int:
        """Before this time there is nothing to do but for segments of our own."""
        return self._due_ns

    @property
    def dues(self) -> Iterator[tuple[int, int]]:
        """When there is something to do whoever's segment comes: so many arrivals, and a time. The first that
        brings time forward and reaches both of a pair is when it is done.
        """
        for since, since_ns in self._patient.values():
            yield since + self._limits.patience_segments, since_ns + self._limits.patience_ns
            break
        for oldest in self._order:
            yield 0, oldest.last_ns + self._limits.connection_idle_ns + 1
            break

    def ordinal(self, ends: bytes) -> int:
        """Which connection (``Connection.ordinal``) segments with these ends belong to now; 0: none."""
        way = self._ways.get(ends)
        return 0 if way is None else way.duplex.ordinal

    def along(
        self, stretch: Stretch, segment_of: Callable[[Packet], Segment | None]
    ) -> Iterator[list[Event]]:
        """Take the packets of a stretch one by one; get what those bring that bring something.

        The usual packet goes the shortest way: what ``segment_of`` and ``feed`` do with it, in one go, and
        nothing is made of it but what is passed on. All others go the long way.
        """
        number, interface, data, places = stretch
        shift = _SHIFTS.get(interface.link_type, 0)
        least = USUAL_SIZE + shift if interface.link_type in _SHIFTS else _NEVER
        internet, transport = shift + USUAL_INTERNET, shift + USUAL_TRANSPORT
        ways, theirs, patience_ns = self._ways, self._theirs, self._limits.patience_ns
        arrivals, now_ns, due_ns = self.arrivals, self.now_ns, self._due_ns
        latest: Duplex | None = None
        known = b""  # as a rule many packets of one direction come one behind another
        duplex, side, stream, other = _NO_WAY
        packets = enumerate(places, number)
        for packet, (time_ns, begin, stop, on_wire) in packets:
            if stop - begin >= least and now_ns - patience_ns < time_ns < due_ns:
                kind, total, carries, ends, sequence, acknowledgment, control = _unpack(data, begin + shift)
                start, end = begin + transport + (control >> 10 & 0x3C), begin + internet + total
                if (
                    start <= end <= stop
                    and kind & KIND_MASK == USUAL_KIND
                    and carries & CARRIES_MASK == USUAL_CARRIES
                    and control >= USUAL_CONTROL
                ):
                    if ends != known:
                        known = ends
                        duplex, side, stream, other = ways.get(ends, _NO_WAY)
                    if (
                        sequence == stream.next
                        and duplex.plain
                        and control & CONTROL == ACK
                        and (acknowledgment == other.next or distance(acknowledgment, other.next) > 0)
                    ):
                        arrivals += 1
                        if time_ns > now_ns:
                            now_ns = time_ns
                        duplex.last_ns = now_ns
                        if duplex is not latest:
                            latest = duplex
                            self._order.move_to_end(duplex)
                        if start == end:
                            continue
                        payload, size = data[start:end], end - start
                        stream.next = (sequence + size) & SEQUENCE_MASK
                        connection = duplex.connection
                        assert connection is not None
                        wanted = connection.wanted[side]
                        if wanted > 2 * size:
                            first = packet + 1 - number
                            last = first + min((wanted - 1) // size, _GATHERED_SEGMENTS) - 1
                            like = kind, total, carries, ends, stream.next, acknowledgment, control
                            spot = shift, start - begin, end - begin
                            more = payloads(data, places[first:last], spot, like, now_ns, due_ns)
                            if more:
                                packet, (time_ns, *_) = next(islice(packets, len(more) - 1, None))
                                now_ns = duplex.last_ns = time_ns
                                arrivals += len(more)
                                payload += b"".join(more)
                                stream.next = (sequence + len(payload)) & SEQUENCE_MASK
                        # Half the price of calling the class: a named tuple's own __new__ is in Python.
                        item = _new(Data, (packet, time_ns, interface, payload))
                        self.arrivals, self.now_ns = arrivals, now_ns
                        if not wanted:
                            yield [(connection, side, item)]
                        elif events := self._gather(ways[ends], connection, item, size):
                            yield events
                        continue
                    if ends in theirs:
                        arrivals += 1
                        if time_ns > now_ns:
                            now_ns = time_ns
                        continue
            self.arrivals, self.now_ns = arrivals, now_ns
            segment = segment_of(Packet(packet, time_ns, interface, data[begin:stop], on_wire))
            if segment is not None:
                yield self.feed(segment)
                arrivals, now_ns, due_ns = self.arrivals, self.now_ns, self._due_ns
                latest = None
                known = b""
        self.arrivals, self.now_ns = arrivals, now_ns

    def feed(self, segment: Segment) -> list[Event]:
        """Take a segment."""
        self.arrivals += 1
        packet, time_ns, interface, ends, sequence, acknowledgment, flags, payload, length = segment
        out: list[Event] = []
        if time_ns > self.now_ns:
            self.now_ns = time_ns
            if time_ns >= self._due_ns:
                self._look_at_clock(segment, out, self._limits.patience_segments)
        elif self.now_ns - time_ns >= self._limits.patience_ns:
            # The clock was set back, or there are two: it does not tell any more how long patience lasted.
            self._look_at_clock(segment, out, self._limits.patience_segments, patience_ns=0)
        way = self._ways.get(ends)
        if way is None and self._share is not None and not self._share.owns(ends):
            if len(self._theirs) >= _MOST_THEIRS:
                self._theirs.clear()
            self._theirs.add(ends)
            return out
        if way is not None and not out:
            # The usual segment: the next of its direction, on a connection where nothing waits.
            duplex, side, stream, other = way
            if (
                sequence == stream.next
                and duplex.plain
                and flags & CONTROL == ACK
                and length == len(payload)
                and (acknowledgment == other.next or distance(acknowledgment, other.next) > 0)
            ):
                duplex.last_ns = self.now_ns
                self._order.move_to_end(duplex)
                if not length:
                    return _NOTHING
                stream.next = (sequence + length) & SEQUENCE_MASK
                connection = duplex.connection
                assert connection is not None
                # Half the price of calling the class: a named tuple's own __new__ is a Python function.
                item = _new(Data, (packet, time_ns, interface, payload))
                return (
                    self._gather(way, connection, item, length)
                    if connection.wanted[side]
                    else [(connection, side, item)]
                )
        self._feed(segment, way, out)
        return out

    def wait(self, now_ns: int) -> list[Event]:
        """All that was captured until now has come: patience need not wait for more segments."""
        out: list[Event] = []
        self.now_ns = max(self.now_ns, now_ns)
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

    def _gather(self, way: _Way, connection: Connection, item: Data, size: int) -> list[Event]:
        """The next bytes in the middle of what is wanted as a whole, from packets that carry ``size`` each:
        keep them until enough has come.
        """
        _, side, stream, _ = way
        wanted = connection.wanted
        if not stream.gathered:
            too_large = wanted[side] < 2 * size  # joining them would cost more than it saves
            if too_large or len(self._gathering) >= self._limits.gathering_streams:
                wanted[side] = 0
                out: list[Event] = [(connection, side, item)]
                self._turned_away += not too_large
                if self._turned_away >= _TURNED_AWAY:
                    self._turned_away = 0
                    for each in list(
                        self._gathering.values()
                    ):  # some may wait for nothing: it is others' turn
                        self._pass_on(each, out)
                return out
            self._gathering[stream] = way
        stream.gathered.append(item)
        wanted[side] -= len(item.payload)
        if wanted[side] > 0 and len(stream.gathered) < _GATHERED_SEGMENTS:
            return _NOTHING
        out = []
        self._pass_on(way, out)
        return out

    def _pass_on(self, way: _Way, out: list[Event]) -> None:
        """Let go of what one direction has gathered, as if the last packet had carried all of it."""
        duplex, side, stream, _ = way
        assert duplex.connection is not None
        payload = b"".join([item.payload for item in stream.gathered])
        out.append((duplex.connection, side, stream.gathered[-1]._replace(payload=payload)))
        duplex.connection.wanted[side] = 0
        stream.gathered = []
        del self._gathering[stream]

    def _pass_on_both(self, duplex: Duplex, out: list[Event]) -> None:
        """The same for both directions of a connection to which something unusual happens."""
        for stream in duplex.streams:
            if stream.gathered:
                self._pass_on(self._gathering[stream], out)

    def _feed(self, segment: Segment, way: _Way | None, out: list[Event]) -> None:
        self._last = segment
        begins = segment.flags & (SYN | RST) == SYN
        if self._came_again(segment, way):
            self.counts["segments_after_close"] += 1
            return
        if begins and way is not None and way.duplex.is_new(way.side, segment):
            self._close(way.duplex, "reused", segment, out)
            way = None
        if way is None:
            if not begins and (segment.flags & RST or not segment.length):
                self.counts["segments_without_connection"] += 1
                return
            way = self._open(segment, out)
        duplex = way.duplex
        duplex.last_ns = self.now_ns
        self._order.move_to_end(duplex)
        if duplex.over:
            self.counts["segments_after_close"] += 1
            return
        self._pass_on_both(duplex, out)
        duplex.feed(way.side, segment, self.arrivals, out)
        waits = not duplex.plain or duplex.streams[0].missing or duplex.streams[1].missing
        duplex.cause = segment._replace(payload=b"") if waits and not duplex.over else None
        self._settle(duplex, out)
        if not duplex.patient:
            self._be_patient(duplex)
        self._keep_bound(segment, out)

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
        self._due_ns = min(self._due_ns, self.now_ns + self._limits.connection_idle_ns + 1)
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

    def _be_patient(self, duplex: Duplex) -> None:
        if duplex.be_patient():
            self._patient[duplex] = self.arrivals, self.now_ns
            self._due_ns = min(self._due_ns, self.now_ns + self._limits.patience_ns)

    def _look_at_clock(
        self, segment: Segment, out: list[Event], patience_segments: int, patience_ns: int | None = None
    ) -> None:
        """End the patience that has lasted long enough, and the connections that were silent for too long."""
        now_ns, limits = self.now_ns, self._limits
        patience_ns = limits.patience_ns if patience_ns is None else patience_ns
        while self._patient:
            duplex, (since, since_ns) = next(iter(self._patient.items()))
            if self.arrivals - since < patience_segments or now_ns - since_ns < patience_ns:
                break
            del self._patient[duplex]
            self._end_patience(duplex, segment, out)
        while self._order:
            oldest = next(iter(self._order))
            if now_ns - oldest.last_ns <= limits.connection_idle_ns:
                break
            self._close(oldest, "idle", segment, out)
        self._due_ns = _NEVER
        for oldest in self._order:
            self._due_ns = oldest.last_ns + limits.connection_idle_ns + 1
            break
        for _, since_ns in self._patient.values():
            self._due_ns = min(self._due_ns, since_ns + limits.patience_ns)
            break

    def _end_patience(self, duplex: Duplex, segment: Segment, out: list[Event]) -> None:
        self._pass_on_both(duplex, out)
        if duplex.lose_patience(segment, out):
            self._close(duplex, "reset", segment, out)
            return
        self._settle(duplex, out)
        self._be_patient(duplex)

    def _account(self, duplex: Duplex) -> None:
        held = duplex.held if duplex in self._order else 0
        self._held_in_all += held - self._held.get(duplex, 0)
        if not held:
            self._held.pop(duplex, None)
            self._waits_since.pop(duplex, None)
            return
        self._held[duplex] = held
        since_ns = duplex.holds_since_ns
        if self._waits_since.get(duplex) != since_ns:
            self._waits_since[duplex] = since_ns
            heappush(self._waits, (since_ns, next(self._places), duplex))
            if len(self._waits) > _STALE + 4 * len(self._waits_since):
                self._waits = [each for each in self._waits if self._waits_since.get(each[2]) == each[0]]
                heapify(self._waits)

    def _keep_bound(self, cause: Segment, out: list[Event]) -> None:
        while self._held_in_all > self._limits.stream_bytes_in_all:
            longest = next(iter(self._held))
            longest.flush(cause, out)
            self._settle(longest, out)
