"""Every segment of a connection -> its TCP analysis: round trips, retransmissions, duplicate acknowledgments,
zero windows, how it opened and ended.

The definitions are those of Wireshark's tcp.analysis flags, which tests compare. They describe what passed
the place of capture: of a segment that was lost before that place only the retransmission was captured, and
it counts as one only if it comes later than an out-of-order segment would. Only commands that report on
connections collect this (``Connections.analyzes``). Memory: at most 480 bytes for each connection, and 512
more if it has retransmissions.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from kdissect.limits import SECOND_NS
from kdissect.net.stream import SEQUENCE_MASK, distance
from kdissect.net.tcp import ACK, FIN, RST, SYN, is_d_sack, window_scale

if TYPE_CHECKING:
    from kdissect.model import Segment

# The numbers of a connection, in one array: separate integers would take 32 bytes each.
_SYN_NS, _CONNECT_NS, _SYNS, _END, _END_NS = range(5)
# _LATEST_NS is the time of its latest segment, _SURVIVED_NS the longest silence after which a segment got an
# answer, _SILENT_NS that before a segment that got none so far, _TRIED_NS the time of that segment, negative
# if side 1 sent it; 0: there is none.
_LATEST_NS, _SURVIVED_NS, _SILENT_NS, _TRIED_NS, _KEEPALIVES = range(5, 10)
_ENDED_BY_FIN, _ENDED_BY_RST, _FIN_SENT = (
    2,
    4,
    8,
)  # bits of _END, whose lowest is the side that ended it first
# The numbers of a side, from _SIDE + _NUMBERS * side on. _ACK is the latest acknowledgment and window, as one
# number. _ZERO_NS is how long the window was zero; less the time since when, and so negative, while it is.
# _QUIET_NS is since when the window is zero and the side sent no new payload, 0 if it is not. _SENT_NS is
# when it last sent new payload before the connection ended. _SHORTEST_NS is the shortest round trip.
# _LARGEST is the largest payload of a segment, _PASSED the largest that was acknowledged for certain,
# _REPEATED that of the latest retransmission. _SCALE is what its latest SYN says of window scaling, see
# ``window_scale``, or one of the two values below; _WINDOW is its largest window, not scaled.
_SIDE = 10
_TOP, _UNACKED_NS, _ACK, _DUPLICATE_ACKS, _SEGMENTS, _RETRANSMITTED, _SPURIOUS, _ZERO_NS = range(8)
_QUIET_NS, _STALLED_NS, _SENT_NS, _SHORTEST_NS, _LARGEST, _PASSED, _REPEATED = range(8, 15)
_SCALE, _WINDOW = range(15, 17)
_NUMBERS = 17
_PIECE_NS = _SIDE + 2 * _NUMBERS  # of retransmissions; then come starts and counts, see ``note_at``
SHORTEST_PIECE_NS = SECOND_NS // 8
MAX_PIECES = 32
_ENDLESS_NS = 1 << 62  # all is in one piece, whatever the clock did

OPENED, REFUSED, UNANSWERED, ONE_WAY = "opened", "refused", "unanswered", "one_way"
UNOPENED = frozenset({REFUSED, UNANSWERED, ONE_WAY})

_UNKNOWN = -1
_UNSCALED = -2
_REORDERED_NS = 3_000_000
"""A segment this soon after a later one is out of order. The time to connect decides, if known."""
_COPY_NS = 1_000_000
"""A segment repeated this soon was captured twice, on two interfaces: no sender retransmits earlier."""
STALL_NS = SECOND_NS
"""An end is stalled if its window is zero and it sends nothing for so long. A broker that has many requests
of a connection waiting closes its window too, because it reads them one by one, but it responds all the time.
"""


SILENCE_NS = 10 * SECOND_NS
"""A connection is silent if no segment of either side comes for so long."""


class Silence(NamedTuple):
    """A time without segments, and the segment after it: when it came, and from which side."""

    length_ns: int
    tried_ns: int
    side: int


class End(NamedTuple):
    """The first FIN or RST of a connection: who sent it, and when."""

    side: int
    reset: bool
    time_ns: int


class TcpAnalysis:
    """The TCP analysis of one connection; ``side`` is 0 or 1 as in ``Connection``."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = array(
            "q",
            (
                *_SIDE * (0,),
                *(2 * (_UNKNOWN, 0, _UNKNOWN, *(8 * (0,)), _UNKNOWN, 0, 0, 0, _UNKNOWN, 0)),
                SHORTEST_PIECE_NS,
            ),
        )

    def feed(
        self,
        side: int,
        time_ns: int,
        sequence: int,
        acknowledgment: int,
        flags: int,
        length: int,
        window: int,
        options: bytes | None,
    ) -> None:
        """Count a segment; ``length`` is that of its payload, the others are as in ``Segment``."""
        numbers = self._numbers
        own = _SIDE + _NUMBERS * side
        other = _SIDE + _NUMBERS * (1 - side)
        if time_ns - numbers[_LATEST_NS] >= SILENCE_NS or numbers[_TRIED_NS]:
            self._silent(side, time_ns, flags)
        numbers[_LATEST_NS] = time_ns
        if numbers[own + _QUIET_NS]:
            self._quiet(own, time_ns, sequence, flags, length, window)
        if flags & (SYN | FIN | RST):
            self._control(side, time_ns, sequence, flags, length, options)
        elif length:
            top = numbers[own + _TOP]
            ahead = length if top == _UNKNOWN else distance(top, sequence) + length
            if ahead > 0:
                numbers[own + _TOP] = (sequence + length) & SEQUENCE_MASK
                numbers[own + _UNACKED_NS] = time_ns
                numbers[own + _SEGMENTS] += 1
                if length > numbers[own + _LARGEST]:
                    numbers[own + _LARGEST] = length
                if not numbers[_END]:
                    numbers[own + _SENT_NS] = time_ns
            elif length == 1 and ahead == 0 and numbers[other + _ACK] >> 16 == top:
                numbers[other + _ACK] = _UNKNOWN  # a keep-alive probe: the ACK for it is not a duplicate
                numbers[_KEEPALIVES] += 1
            else:
                self._repeated(own, time_ns, length, is_last=not ahead)
        elif distance(numbers[own + _TOP], sequence) == -1:
            numbers[other + _ACK] = _UNKNOWN
            numbers[_KEEPALIVES] += 1
        if flags & (RST | ACK) != ACK:
            return
        if not flags & SYN and not numbers[_CONNECT_NS] and numbers[_SYN_NS] and numbers[other + _TOP] >= 0:
            self._connected(side, time_ns, acknowledgment)
        if options and is_d_sack(options, acknowledgment):
            numbers[own + _SPURIOUS] += 1
        if (not window) != (numbers[own + _ZERO_NS] < 0) and not flags & (SYN | FIN):
            numbers[own + _ZERO_NS] += time_ns if window else -time_ns
        if not window and not numbers[own + _QUIET_NS] and not flags & (SYN | FIN):
            numbers[own + _QUIET_NS] = time_ns
        latest = acknowledgment << 16 | window
        before = numbers[own + _ACK]
        if latest == before:
            numbers[own + _DUPLICATE_ACKS] += not (
                length or not window or flags & (SYN | FIN) or sequence != numbers[own + _TOP]
            )
            return
        if window > numbers[own + _WINDOW] and not flags & SYN:
            numbers[own + _WINDOW] = window
        if before == _UNKNOWN or distance(before >> 16, acknowledgment) >= 0:
            numbers[own + _ACK] = latest
            if numbers[other + _LARGEST] > numbers[other + _PASSED]:
                self._passed(other, before, acknowledgment)
            if acknowledgment == numbers[other + _TOP] and numbers[other + _UNACKED_NS]:
                round_trip_ns = max(0, time_ns - numbers[other + _UNACKED_NS])
                if numbers[other + _SHORTEST_NS] == _UNKNOWN or round_trip_ns < numbers[other + _SHORTEST_NS]:
                    numbers[other + _SHORTEST_NS] = round_trip_ns
                numbers[other + _UNACKED_NS] = 0

    @property
    def state(self) -> bytes:
        """All of it, for the native core to continue."""
        return self._numbers.tobytes()

    def restore(self, state: bytes) -> None:
        """Continue from the state that the native core has reached."""
        self._numbers = array("q", state)

    def take(self, side: int, segment: Segment) -> None:
        """Count a segment; see ``feed``."""
        _, time_ns, _, _, sequence, acknowledgment, flags, _, length, window, options = segment
        self.feed(side, time_ns, sequence, acknowledgment, flags, length, window, options)

    # --- results --------------------------------------------------------------------------------------------

    @property
    def opening(self) -> str | None:
        """``opened``, ``refused`` (by an RST), ``unanswered``, or ``one_way``: a SYN-ACK was never
        acknowledged; None if its SYN was not captured.
        """
        numbers = self._numbers
        if not numbers[_SYNS]:
            return None
        if all(self._of(side, _TOP) != _UNKNOWN for side in (0, 1)):
            return ONE_WAY if self._is_one_way else OPENED
        return REFUSED if numbers[_END] & _ENDED_BY_RST else UNANSWERED

    @property
    def connect_ns(self) -> int | None:
        """From the first SYN to the end of the handshake; None if not all of it was captured."""
        return self._numbers[_CONNECT_NS] or None

    @property
    def syn_retransmissions(self) -> int:
        """How often the first SYN was repeated."""
        return max(0, self._numbers[_SYNS] - 1)

    @property
    def end(self) -> End | None:
        """Who ended it; None if neither a FIN nor an RST was captured."""
        code = self._numbers[_END]
        return End(code & 1, bool(code & _ENDED_BY_RST), self._numbers[_END_NS]) if code else None

    def segments(self, side: int) -> int:
        """Segments with new payload from a side."""
        return self._of(side, _SEGMENTS)

    def retransmitted(self, side: int) -> int:
        """Segments that a side retransmitted, including SYN-ACKs but not SYNs."""
        return self._of(side, _RETRANSMITTED)

    def spurious(self, side: int) -> int:
        """How many of those the other side had already received, as it reported (D-SACK, RFC 2883)."""
        return self._of(1 - side, _SPURIOUS)

    def lost(self, side: int) -> int:
        """How many were necessary: the segment, or one like it, had been lost."""
        return max(0, self.retransmitted(side) - self.spurious(side))

    @property
    def retransmitted_at(self) -> list[tuple[int, int]]:
        """When both sides retransmitted, and how many segments; see ``noted_at``."""
        return noted_at(self._numbers, _PIECE_NS)

    def duplicate_acks(self, side: int) -> int:
        """Duplicate acknowledgments that a side sent."""
        return self._of(side, _DUPLICATE_ACKS)

    def zero_window_ns(self, side: int, until_ns: int) -> int:
        """How long a side's receive window was zero: its application did not read."""
        zero_ns = self._of(side, _ZERO_NS)
        return max(0, zero_ns + until_ns) if zero_ns < 0 else zero_ns

    def stalled_ns(self, side: int, until_ns: int) -> int:
        """How long it was zero while the side sent nothing either: in all, of times from ``STALL_NS`` on."""
        quiet_ns = self._of(side, _QUIET_NS)
        since_ns = until_ns - quiet_ns if quiet_ns else 0
        return self._of(side, _STALLED_NS) + (since_ns if since_ns >= STALL_NS else 0)

    def sent_ns(self, side: int) -> int:
        """When a side last sent new payload, before either side ended the connection; 0: never."""
        return self._of(side, _SENT_NS)

    @property
    def latest_ns(self) -> int:
        """Time of its latest segment."""
        return self._numbers[_LATEST_NS]

    @property
    def survived_ns(self) -> int:
        """The longest silence after which a segment got an answer; 0: none."""
        return self._numbers[_SURVIVED_NS]

    @property
    def fatal_silence(self) -> Silence | None:
        """The silence after which nothing was answered any more, except with an RST; None: none was."""
        tried = self._numbers[_TRIED_NS]
        return Silence(self._numbers[_SILENT_NS], abs(tried), int(tried < 0)) if tried else None

    @property
    def keepalives(self) -> int:
        """Keep-alive probes of both sides, and probes of a zero window that look like them."""
        return self._numbers[_KEEPALIVES]

    def offers_scaling(self, side: int) -> bool | None:
        """Whether the SYN of a side offers window scaling (RFC 7323), without which no window of either side
        exceeds 65,535 bytes; None if it was not captured. A SYN-ACK can only do so if the SYN did.
        """
        scale = self._of(side, _SCALE)
        return None if scale == _UNKNOWN else scale != _UNSCALED

    def window_bytes(self, side: int) -> int | None:
        """The largest receive window of a side; None if it is unknown because a SYN was not captured."""
        scales = [self._of(each, _SCALE) for each in (0, 1)]
        if _UNKNOWN in scales:
            return None
        return self._of(side, _WINDOW) << (0 if _UNSCALED in scales else scales[side])

    def passed(self, side: int) -> int:
        """An upper bound of the largest payload of a segment of a side that was acknowledged."""
        return self._of(side, _PASSED)

    def largest(self, side: int) -> int:
        """The largest payload of a segment of a side, acknowledged or not."""
        return self._of(side, _LARGEST)

    def repeated(self, side: int) -> int:
        """Payload of the segment that a side retransmitted last; 0: none."""
        return self._of(side, _REPEATED)

    def unacknowledged(self, side: int) -> int:
        """Bytes of a side that the other side has not acknowledged; 0 if it never sent an ACK."""
        top, ack = self._of(side, _TOP), self._of(1 - side, _ACK)
        if top == _UNKNOWN or ack == _UNKNOWN:
            return 0
        return max(0, distance(ack >> 16, top) - bool(self._numbers[_END] & _FIN_SENT << side))

    def shortest_round_trip_ns(self, side: int) -> int | None:
        """The shortest time from a SYN or payload of a side to its acknowledgment, which was not delayed (RFC
        9293, 3.8.6.3) if any was not; None if none was measured.
        """
        shortest_ns = self._of(side, _SHORTEST_NS)
        return None if shortest_ns == _UNKNOWN else shortest_ns

    # --------------------------------------------------------------------------------------------------------

    @property
    def _is_one_way(self) -> bool:
        """Whether a SYN-ACK was repeated, and the other end never acknowledged anything. If it was not
        repeated, the capture may have ended, or missed the acknowledgment.
        """
        if any(map(self.segments, (0, 1))) or not any(map(self.retransmitted, (0, 1))):
            return False
        silent = [side for side in (0, 1) if self._of(side, _ACK) == _UNKNOWN]
        return bool(silent) and (self.end is None or self.end.side not in silent)

    def _of(self, side: int, number: int) -> int:
        return self._numbers[_SIDE + _NUMBERS * side + number]

    def _silent(self, side: int, time_ns: int, flags: int) -> None:
        """A segment after a silence, or the first ones behind that."""
        numbers = self._numbers
        if not numbers[_TRIED_NS]:
            if numbers[_LATEST_NS] > 0 and not flags & (SYN | FIN | RST):
                numbers[_SILENT_NS] = time_ns - numbers[_LATEST_NS]
                numbers[_TRIED_NS] = -time_ns if side else time_ns
        elif (numbers[_TRIED_NS] < 0) != side and not flags & RST:
            numbers[_SURVIVED_NS] = max(numbers[_SURVIVED_NS], numbers[_SILENT_NS])
            numbers[_TRIED_NS] = 0

    def _passed(self, other: int, before: int, acknowledgment: int) -> None:
        """An acknowledgment of new payload: of so many bytes, one segment may have had all."""
        numbers = self._numbers
        passed = numbers[other + _LARGEST]
        if acknowledgment != numbers[other + _TOP]:
            passed = 0 if before == _UNKNOWN else min(passed, distance(before >> 16, acknowledgment))
        numbers[other + _PASSED] = max(numbers[other + _PASSED], passed)

    def _control(
        self, side: int, time_ns: int, sequence: int, flags: int, length: int, options: bytes | None
    ) -> None:
        """Count a SYN, FIN or RST."""
        numbers = self._numbers
        own = _SIDE + _NUMBERS * side
        if flags & (FIN | RST):
            if not numbers[_END]:
                numbers[_END] = side | (_ENDED_BY_RST if flags & RST else _ENDED_BY_FIN)
                numbers[_END_NS] = time_ns
            if not flags & RST:
                numbers[_END] |= _FIN_SENT << side
                top = numbers[own + _TOP]
                after = (sequence + length + 1) & SEQUENCE_MASK
                if top == _UNKNOWN or distance(top, after) > 0:
                    numbers[own + _TOP] = after
                    numbers[own + _SEGMENTS] += length > 0
                    numbers[own + _UNACKED_NS] = 0  # the application decides how soon a FIN is acknowledged
                else:
                    self._retransmitted(own, time_ns)
            return
        if not flags & ACK:
            numbers[_SYNS] += 1
            numbers[_SYN_NS] = numbers[_SYN_NS] or time_ns
        elif numbers[own + _TOP] != _UNKNOWN:
            self._retransmitted(own, time_ns)
        scale = _UNKNOWN if options is None else window_scale(options)
        numbers[own + _SCALE] = _UNSCALED if scale is None else scale
        is_first = numbers[own + _TOP] == _UNKNOWN  # otherwise it is unknown which one is acknowledged
        numbers[own + _UNACKED_NS] = time_ns if is_first else 0
        numbers[own + _TOP] = (sequence + length + 1) & SEQUENCE_MASK

    def _quiet(self, own: int, time_ns: int, sequence: int, flags: int, length: int, window: int) -> None:
        """A segment of a side that was quiet with a zero window: whether it reads or sends again."""
        numbers = self._numbers
        top = numbers[own + _TOP]
        sends = length and (top == _UNKNOWN or distance(top, sequence) + length > 0)
        if sends or flags & (SYN | FIN) or (window and flags & (RST | ACK) == ACK):
            quiet_ns = time_ns - numbers[own + _QUIET_NS]
            numbers[own + _STALLED_NS] += quiet_ns if quiet_ns >= STALL_NS else 0
            numbers[own + _QUIET_NS] = 0

    def _connected(self, side: int, time_ns: int, acknowledgment: int) -> None:
        """The first acknowledgment after both SYNs."""
        if acknowledgment == self._of(1 - side, _TOP):
            self._numbers[_CONNECT_NS] = max(1, time_ns - self._numbers[_SYN_NS])

    def _repeated(self, own: int, time_ns: int, length: int, *, is_last: bool) -> None:
        """Payload without a new byte: a retransmission, unless it is out of order or was captured twice."""
        numbers = self._numbers
        since_ns = numbers[own + _UNACKED_NS]
        if since_ns:
            connect_ns = numbers[_CONNECT_NS] if numbers[_SYNS] == 1 else 0
            allowance_ns = connect_ns or (_COPY_NS if is_last else _REORDERED_NS)
            if time_ns - since_ns < allowance_ns:
                return
        self._retransmitted(own, time_ns)
        numbers[own + _REPEATED] = length
        numbers[own + _UNACKED_NS] = 0  # it is unknown which of the copies is acknowledged (Karn, RFC 6298)

    def _retransmitted(self, own: int, time_ns: int) -> None:
        self._numbers[own + _RETRANSMITTED] += 1
        note_at(self._numbers, _PIECE_NS, time_ns, 1)


# ------------------------------------------------------------------------------------------------------------
# When something happened -> how much of it in each piece of time, aligned to 1970. The pieces double when
# there are more than ``MAX_PIECES``. All is in one array, behind other numbers: the length of a piece at
# ``place``, then the start and the amount of each.
# ------------------------------------------------------------------------------------------------------------


def note_at(numbers: array[int], place: int, time_ns: int, amount: int) -> None:
    """Add an amount at a time."""
    _add_piece(numbers, place, time_ns, amount)
    while len(numbers) > place + 1 + 2 * MAX_PIECES:
        numbers[place] *= 2
        pieces = noted_at(numbers, place)
        del numbers[place + 1 :]
        for start_ns, each in pieces:
            _add_piece(numbers, place, start_ns, each)


def _add_piece(numbers: array[int], place: int, time_ns: int, amount: int) -> None:
    """Add an amount to the last piece, or to a new one."""
    start_ns = time_ns - time_ns % numbers[place]
    is_same = len(numbers) > place + 1 and (numbers[-2] == start_ns or numbers[place] >= _ENDLESS_NS)
    if is_same:
        numbers[-1] += amount
    else:
        numbers.extend((start_ns, amount))


def noted_at(numbers: array[int], place: int) -> list[tuple[int, int]]:
    """Starts of pieces, and the amount in each."""
    return list(zip(numbers[place + 1 :: 2], numbers[place + 2 :: 2], strict=True))
