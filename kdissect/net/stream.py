"""Pieces of one direction, in any order -> its bytes in order, each byte once, with gaps for missing bytes.

    next         head
     |            |
     v            v
     .............[piece][piece].......[piece]
          hole        a run       hole   a run

Pieces are sorted by sequence number and never overlap; none begins before ``next``. A hole is a segment that
is late, or missing from the capture.

If bytes overlap, those captured first are used: a receiver may have used either copy, and this choice never
has to be revised. ``Stream`` does not decide how long to wait; duplex.py calls ``skip`` to make a hole a gap.
Memory: the pieces; see ``held``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from kdissect.model import Data, Gap

if TYPE_CHECKING:
    from collections import Counter

    from kdissect.model import Interface, Segment

PIECE_COST = 256
"""Approximate memory of a piece besides its payload: counted, so that limits apply to tiny segments too."""

LOST, CUT, UNDELIVERED = "lost", "cut", "undelivered"

SEQUENCE_MASK = 0xFFFF_FFFF
_HALF = 0x8000_0000


def distance(start: int, end: int) -> int:
    """How far ``end`` is after ``start``, negative if before: sequence numbers wrap (RFC 9293, 3.4)."""
    return ((end - start + _HALF) & SEQUENCE_MASK) - _HALF


def advance(sequence: int, length: int) -> int:
    """The sequence number ``length`` bytes after ``sequence``."""
    return (sequence + length) & SEQUENCE_MASK


class Piece(NamedTuple):
    """Bytes ``start`` to ``end`` of a stream, by sequence number.

    Attributes:
        payload: the captured bytes; fewer than ``end - start`` if the packet was truncated.
        acknowledges: what the segment acknowledged; None if nothing has to be waited for.
        packet, time_ns, interface: of the packet that carried it.
    """

    start: int
    end: int
    payload: bytes
    acknowledges: int | None
    packet: int
    time_ns: int
    interface: Interface


class Stream:
    """One direction of a connection.

    Attributes:
        next: sequence number of the next byte to pass on.
        first: sequence number of the first byte; None until it is known.
        exact: whether ``first`` comes from a SYN or its acknowledgment, rather than from the first data
            captured.
        seen: whether any segment of this direction was captured.
        expected: bytes that may be passed on together, see ``Connection.expect``.
        fin, fin_ns: sequence number and time of the FIN; None until one was captured.
        ended: everything up to the FIN was passed on.
        acked: highest acknowledgment by the other side, of bytes that were not passed on at the time.
        acknowledged: latest acknowledgment by the other side in a segment without payload.
        stuck: latest acknowledgment by the other side after bytes behind a hole came, if it does not cover
            the hole: the other side misses these bytes too.
        doubted: whether bytes were retransmitted that the other side may report as spurious, before it
            responds.
        overdue: ``acked`` as of when the deadline for the holes before it was set; None if nothing is waited
            for.
        pieces: bytes that are held.
        runs: number of runs of adjacent pieces.
        held: memory of the pieces, in bytes.
        stray: sequence number after a segment that was rejected for being too far ahead. Another segment that
            continues it is accepted.
        syn: whether a SYN of this direction was captured.
        gathered: bytes in order that are waiting to be passed on together, see connection.py.
        repeated_bytes: bytes that were captured again.
        out_of_order: pieces that were captured out of order.
    """

    __slots__ = (
        "acked", "acknowledged", "doubted", "ended", "exact", "expected", "fin", "fin_ns", "first",
        "gathered", "held", "next", "out_of_order", "overdue", "pieces", "repeated_bytes", "runs", "seen",
        "stray", "stuck", "syn",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next = 0
        self.first: int | None = None
        self.exact = False
        self.seen = False
        self.fin: int | None = None
        self.fin_ns: int | None = None
        self.ended = False
        self.acked: int | None = None
        self.acknowledged: int | None = None
        self.stuck: int | None = None
        self.doubted = False
        self.overdue: int | None = None
        self.pieces: list[Piece] = []
        self.runs = 0
        self.held = 0
        self.stray: int | None = None
        self.syn = False
        self.gathered: list[Data] = []
        self.expected = 0
        self.repeated_bytes = self.out_of_order = 0

    @property
    def top(self) -> int:
        """Sequence number after the last byte that was captured."""
        return self.pieces[-1].end if self.pieces else self.next

    def is_ahead(self, segment: Segment) -> bool:
        """Whether a segment has bytes after all captured ones: it is not a copy, and fills no hole."""
        end = advance(segment.sequence, segment.length)
        return self.first is not None and segment.length > 0 and distance(self.top, end) > 0

    @property
    def holes(self) -> int:
        """Number of holes before pieces."""
        return self.runs - bool(self.pieces and self.pieces[0].start == self.next)

    @property
    def is_drained(self) -> bool:
        """Whether nothing is held, and no FIN waits for the bytes before it."""
        return self.seen and not self.pieces and (self.fin is None or self.ended)

    @property
    def is_blocked(self) -> bool:
        """Whether the byte at ``next`` was not captured yet."""
        return not self.pieces or self.pieces[0].start != self.next

    @property
    def misses_bytes(self) -> bool:
        """Whether the other side has acknowledged bytes that were not passed on."""
        return self.acked is not None and distance(self.next, self.acked) > 0

    @property
    def is_overdue(self) -> bool:
        """Whether some of the overdue bytes were not passed on."""
        return self.overdue is not None and distance(self.next, self.overdue) > 0

    @property
    def is_stuck(self) -> bool:
        """Whether the other side waits for the byte at ``next``, or for one before it: it was not captured
        because it was lost on the way.
        """
        return self.stuck is not None and distance(self.stuck, self.next) >= 0 and not self.misses_bytes

    def begin(self, sequence: int, *, exact: bool) -> None:
        self.first = self.next = sequence
        self.exact = exact

    def put(self, piece: Piece, counts: Counter[str]) -> None:
        """Add the bytes of a piece that are new."""
        base = self.next
        low = distance(base, piece.start)
        high = low + distance(piece.start, piece.end)
        if low < 0:
            counts["retransmitted_bytes"] += min(0, high) - low
            self.repeated_bytes += min(0, high) - low
            low = 0
        elif low > 0 and piece.start != self.top:
            counts["out_of_order"] += 1
            self.out_of_order += 1
        index = bisect_right(self.pieces, low, key=lambda held: distance(base, held.end))
        before = self.held
        while low < high:
            held = self.pieces[index] if index < len(self.pieces) else None
            until = high if held is None else min(high, distance(base, held.start))
            if low < until:
                self._insert(index, _part(piece, advance(base, low), advance(base, until)))
            elif held is not None:
                index, until = self._overlap(index, low, high, piece, counts)
            index += 1
            low = until
        if self.held == before:
            counts["repeated_segments"] += 1

    def release(self, other: Stream) -> list[Data | Gap]:
        """Pass on bytes that are in order and acknowledge only what ``other`` has passed on."""
        out: list[Data | Gap] = []
        count = 0
        for piece in self.pieces:
            if piece.start != self.next or (
                piece.acknowledges is not None and distance(other.next, piece.acknowledges) > 0
            ):
                break
            self._emit(piece, out)
            count += 1
        if count:
            self._drop(count)
        if self.next == self.fin and not (self.pieces and self.pieces[0].start == self.next):
            # A FIN takes one sequence number. If there is data at that number, it was not a FIN.
            self.next = advance(self.next, 1)
            self.ended = True
        return out

    def skip(self, end: int, cause: Segment | Piece) -> list[Data | Gap]:
        """Make missing bytes a gap: from ``next`` up to ``end``, the FIN or the first piece, whichever comes
        first. A gap that no piece follows gets packet and time of ``cause``.
        """
        out: list[Data | Gap] = []
        if self.fin is not None and distance(self.next, self.fin) > 0 and distance(self.fin, end) > 0:
            end = self.fin  # the FIN's own sequence number is not a byte
        head = self.pieces[0] if self.pieces else None
        if head is not None and distance(head.start, end) >= 0:
            end, cause = head.start, head
        length = distance(self.next, end)
        if head is not None or length > 1 or end == self.fin:
            self._gap(length, UNDELIVERED if self.is_stuck else LOST, cause, out)
        # Otherwise a single number after all captured bytes is missing: that of a FIN.
        self.next = end
        return out

    def forget(self) -> None:
        self.pieces.clear()
        self.runs = self.held = 0

    def _insert(self, index: int, piece: Piece) -> None:
        pieces = self.pieces
        after = index > 0 and pieces[index - 1].end == piece.start
        before = index < len(pieces) and pieces[index].start == piece.end
        self.runs += 1 - after - before
        self.held += PIECE_COST + len(piece.payload)
        pieces.insert(index, piece)

    def _overlap(
        self, index: int, low: int, high: int, piece: Piece, counts: Counter[str]
    ) -> tuple[int, int]:
        """Bytes ``low`` to at most ``high`` after ``next`` were captured again: keep the lower of the two
        acknowledgments, and ignore its bytes. All at once up to the end of the run of pieces from ``index``,
        because a segment can overlap hundreds of small ones.

        Returns:
            Index of the last of these pieces, and where the overlap ends.
        """
        base, pieces, last = self.next, self.pieces, index
        while (end := (pieces[last].end - base) & SEQUENCE_MASK) < high:
            if last + 1 == len(pieces) or pieces[last + 1].start != pieces[last].end:
                break
            last += 1
        until, held = min(high, end), pieces[index : last + 1]
        counts["overlapping_bytes"] += until - low
        self.repeated_bytes += until - low
        start, own = distance(base, held[0].start), distance(base, piece.start)
        known = [(start, b"".join([each.payload for each in held]))]
        if len(known[0][1]) < end - start:  # some packets were truncated
            known = [(distance(base, each.start), each.payload) for each in held]
        for start, payload in known:
            begin, stop = max(low, start), min(until, start + len(payload))
            repeated, before = piece.payload[begin - own : stop - own], payload[begin - start : stop - start]
            if repeated != before:
                counts["conflicting_bytes"] += sum(a != b for a, b in zip(before, repeated, strict=False))
        acknowledges = piece.acknowledges
        for place, each in enumerate(held, index):
            if each.acknowledges is not None and (
                acknowledges is None or distance(acknowledges, each.acknowledges) > 0
            ):
                pieces[place] = each._replace(acknowledges=acknowledges)
        return last, until

    def _emit(self, piece: Piece, out: list[Data | Gap]) -> None:
        if piece.payload:
            out.append(Data(piece.packet, piece.time_ns, piece.interface, piece.payload))
        self._gap(distance(piece.start, piece.end) - len(piece.payload), CUT, piece, out)
        self.next = piece.end

    def _gap(self, length: int, reason: str, source: Segment | Piece, out: list[Data | Gap]) -> None:
        if length > 0:
            out.append(Gap(source.packet, source.time_ns, source.interface, length, reason))

    def _drop(self, count: int) -> None:
        """Remove pieces at the front, all of one run."""
        pieces = self.pieces
        self.held -= sum(PIECE_COST + len(piece.payload) for piece in pieces[:count])
        if count == len(pieces) or pieces[count].start != pieces[count - 1].end:
            self.runs -= 1
        del pieces[:count]


def _part(piece: Piece, start: int, end: int) -> Piece:
    """Bytes ``start`` to ``end`` of a piece."""
    if start == piece.start and end == piece.end:
        return piece
    low = distance(piece.start, start)
    return piece._replace(start=start, end=end, payload=piece.payload[low : low + distance(start, end)])
