"""The frames of one connection -> exchanges: responses are matched to requests by correlation ID.

Kafka's brokers respond to a connection's requests in order; some other brokers and proxies do not. So
requests wait in a queue, and a response that is not for the oldest passes over older requests. If bytes may
be missing, or outstanding requests have the same correlation ID, these remain unanswered: their responses
were lost, or they expected none. Otherwise they stay outstanding, as long as a broker may take. A request is
queued as soon as its header is read: even if its body cannot be decoded, or is too large to be held, its
response is recognized.

Holds the outstanding requests: at most ``Limits.pending_requests`` and ``pending_bytes``, none for longer
than ``pending_age_ns``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cache
from itertools import pairwise
from struct import Struct
from sys import getsizeof
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError, Malformed, Truncated
from kdissect.exchanges.outcomes import PATIENCE_NS, allowed_ns
from kdissect.kafka import apis, vendors
from kdissect.kafka.bodies import can_be_response, decode_exchange, fits_response, is_unique_response
from kdissect.kafka.framing import SHED_BYTES
from kdissect.kafka.headers import (
    API_VERSIONS,
    CORRELATION_ID_BYTES,
    read_correlation_id,
    read_request_header,
)
from kdissect.kafka.other_protocols import sasl_mechanism
from kdissect.kafka.primitives import DecodeBudget
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED, Anomaly, Exchange
from kdissect.names import NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.framing import CutFrame
    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Frame

OUT_OF_ORDER = "out_of_order_response"
"""The kind of anomaly of a request that a later one overtook."""

PRODUCE = 0
NO_HANDSHAKE = "no_handshake"
"""The kind of anomaly of a SASL token without SaslHandshake before it."""

_CORRELATION_ID = Struct(">i")
_RETRANSMISSIONS_KEPT = 15
_UNACKNOWLEDGED_KEPT = 16  # a broker that responds to acks=0 at all does so immediately
_COPY_NS = 1_000_000  # bytes repeated this soon were captured twice: no sender retransmits earlier
_STEADY = 2
_DISTINCTIVE_BYTES = 64  # shorter responses of different APIs can look the same
_MAX_COMPARED = 16  # outstanding requests
_EXCHANGE_COST = 1024  # approximate overhead in bytes of an outstanding request
_PLENTY = DecodeBudget().left - 8192  # what a request leaves whose decoded form is held


class PairingState(NamedTuple):
    """The pairing of a connection, as it goes to the native core and comes back.

    Attributes:
        completed: number of completed exchanges.
        first_id, last_id: as in ``Pairing``.
        steady: requests in a row whose correlation ID rose by one.
        waiting: outstanding requests, oldest first.
        unacknowledged: correlation ID, API key and version of the latest requests with acks 0.
        has_retransmissions: whether requests were retransmitted in the core since the latest response.
    """

    completed: int
    first_id: int | None
    last_id: int | None
    steady: int
    waiting: list[Exchange]
    unacknowledged: list[tuple[int, int, int]]
    has_retransmissions: bool = False


class Pairing:
    """Requests and responses of one connection.

    Args:
        info: shared by its exchanges.
        limits: to respect.

    Attributes:
        doubts: requests sent before the outstanding ones may be missing. A controller before 0.9
            uses the same correlation ID for several requests, so a response must then also fit the layout of
            the request's API.
        first_id: correlation ID of the first request captured; None before it.
        last_id: correlation ID of the last request; None after a gap.
        repeats: whether correlation IDs repeat, as from clients before 0.9.
        misses_requests: whether any request may be missing.
    """

    __slots__ = (
        "_by_id", "_bytes", "_due_ns", "_has_long_ids", "_limits", "_misses_responses", "_number",
        "_orphan_ns", "_retransmissions", "_short", "_stale", "_steady", "_unacknowledged", "_unsure",
        "_waiting", "doubts", "first_id", "info", "last_id", "misses_requests", "repeats",
    )  # fmt: skip

    def __init__(self, info: ConnectionInfo, limits: Limits) -> None:
        self.info = info
        self._limits = limits
        self._waiting: list[Exchange] = []
        self._by_id: dict[int | None, list[Exchange]] = {}  # the same, by correlation ID; None: SASL tokens
        self._bytes = 0  # of their frames, and of long client IDs
        self._has_long_ids = False
        self._short = 0  # how many of the oldest had their bodies dropped
        self._stale = 0  # how many of the oldest may have lost their responses
        self._unsure = 0  # how many of the oldest may expect no response
        self._due_ns: list[int] = []  # until when the oldest stay outstanding: those that were overtaken
        self._misses_responses = not info.from_start  # until the first one
        self._orphan_ns = 0  # time of the latest orphan
        self.repeats = False
        self._unacknowledged: deque[tuple[int, int, int]] | None = None
        # The latest before the next response: the requests in each, and when they were sent again before.
        self._retransmissions: Sequence[list[tuple[Exchange, int | None]]] = ()
        self._number = 0
        self.doubts = self.misses_requests = False
        self.first_id: int | None = None
        self.last_id: int | None = None
        self._steady = 0  # requests in a row whose correlation ID rose by one

    @property
    def waiting(self) -> Sequence[Exchange]:
        """Outstanding requests, oldest first."""
        return self._waiting

    @property
    def completed(self) -> int:
        """Number of completed exchanges."""
        return self._number

    @property
    def held(self) -> int:
        """Bytes that outstanding requests hold, including overhead."""
        return self._bytes + _EXCHANGE_COST * len(self._waiting)

    @property
    def ids(self) -> tuple[int | None, int | None] | None:
        """Correlation IDs of the oldest and the newest outstanding request. None if there is none."""
        waiting = self._waiting
        return (waiting[0].correlation_id, waiting[-1].correlation_id) if waiting else None

    def api_of(self, correlation_id: int) -> tuple[int, int] | None:
        """API key and version of the oldest outstanding request with this correlation ID."""
        waiting = self._by_id.get(correlation_id)
        if not waiting or waiting[0].api_key is None or waiting[0].api_version is None:
            return None
        return waiting[0].api_key, waiting[0].api_version

    def request(self, frame: Frame) -> list[Exchange]:
        """Process a request frame.

        Returns:
            Exchanges that are now complete: the request itself if it expects no response, and requests that
                timed out or exceeded a limit.

        Raises:
            Truncated, Malformed: the frame is not a request.
        """
        header = read_request_header(frame.data)
        api_key, api_version, correlation_id, client_id, _ = header
        exchange = Exchange(
            self.info, 0, "", frame, None, api_key, api_version, correlation_id, client_id,
            _name(api_key) or vendors.name(api_key, self.info.vendor),
        )  # fmt: skip
        exchange.request_header = header
        last_id, self.last_id = self.last_id, correlation_id
        if self.first_id is None:
            self.first_id = correlation_id
        if last_id is not None:
            step = correlation_id - last_id
            self._steady = self._steady + 1 if step == 1 else 0
            self.repeats = self.repeats or not step
        if api_key == PRODUCE:
            budget = DecodeBudget()
            decode_exchange(exchange, budget=budget)
            request = exchange.request
            if budget.left < _PLENTY and not exchange.anomalies:
                exchange.request = None  # decoded again when the exchange is complete
            if request is not None and request.get("acks") == 0:
                if self._unacknowledged is None:
                    self._unacknowledged = deque(maxlen=_UNACKNOWLEDGED_KEPT)
                self._unacknowledged.append((correlation_id, api_key, api_version))
                return [self._complete(exchange, UNACKNOWLEDGED, frame.end_ns)]
            if exchange.request is None or "acks" not in exchange.request:
                self._unsure = len(self._waiting) + 1
        if correlation_id in self._by_id:
            self.repeats = True
            detail = f"correlation ID {correlation_id}"
            exchange.anomalies.append(Anomaly("duplicate_correlation_id", "request", detail))
        return self._wait(exchange, frame)

    def forget_last_id(self) -> int | None:
        """Requests may be missing after the last one. Returns its correlation ID, or None if correlation IDs
        do not show how many.
        """
        self.doubts = self.misses_requests = True
        last_id, self.last_id = self.last_id, None
        return last_id if self._steady >= _STEADY else None

    def expect_lost_responses(self) -> None:
        """Responses to the outstanding requests may be missing. For SASL tokens, which have no correlation
        ID, and for repeated correlation IDs, the next response may not be theirs.
        """
        self._stale = len(self._waiting)

    def token_request(self, frame: Frame, *, has_handshake: bool = True) -> list[Exchange]:
        """Process a SASL token that a client sent without a request header. Its response is the broker's next
        frame. ``has_handshake``: whether SaslHandshake, or another token, came before it.
        """
        exchange = self._new(frame, None)
        if not has_handshake:
            exchange.anomalies.append(Anomaly(NO_HANDSHAKE, "request", "no SaslHandshake before this token"))
        return self._wait(exchange, frame)

    def response(
        self, frame: Frame, *, may_be_token: bool = False, resynchronized: bool = False
    ) -> list[Exchange]:
        """Process a response frame. If it matches no request, it ``may_be_token``, whose first bytes are not
        a correlation ID. A frame found by resynchronizing on outstanding requests (``resynchronized``) must
        match one of them, or lead to one that does.

        Returns:
            Older requests that remain unanswered, then the exchange that the response completes, or an
                orphan.

        Raises:
            Truncated, Malformed: the frame is not a response.
        """
        correlation_id = read_correlation_id(frame.data)
        waiting = self._waiting
        index: int | None = 0
        if not waiting or self._stale or waiting[0].correlation_id != correlation_id:
            index = self._index_of(correlation_id)
        if (
            resynchronized
            and waiting
            and not self._was_missed(correlation_id)
            and (index is None or (self.doubts and not _can_answer(frame, waiting[index])))
        ):
            raise Malformed("the data after the gap matches no request", pos=0)
        if index is None:
            if correlation_id not in self._by_id:
                if may_be_token:
                    correlation_id = None
                elif frame.size < CORRELATION_ID_BYTES:
                    raise Truncated(f"a response of {frame.size} bytes", pos=0)
            return [self._complete(self._orphan(frame, correlation_id), ORPHAN, frame.end_ns)]
        if self.doubts and not _can_answer(frame, waiting[index]):
            return [self._complete(self._orphan(frame, correlation_id), ORPHAN, frame.end_ns)]
        return self._answer(index, frame, frame.end_ns)

    def cut_request(self, cut: CutFrame) -> Exchange | None:
        """Process a request that did not end: it becomes outstanding. None if too little of it came, or if it
        is a SASL token.
        """
        if sasl_mechanism(cut.frame.data, cut.announced) is not None:
            return None
        try:
            header = read_request_header(cut.frame.data)
        except DecodeError:
            return None
        exchange = self._new(cut.frame, None)
        exchange.api_key, exchange.api_version, exchange.correlation_id, exchange.client_id, _ = header
        exchange.api = _name(header.api_key) or vendors.name(header.api_key, self.info.vendor)
        exchange.request_header = header
        exchange.announced, exchange.is_held_up = cut.announced, True
        self._add(exchange)
        return exchange

    def cut_response(self, cut: CutFrame, now_ns: int) -> list[Exchange]:
        """Process a response that did not end. Returns as ``response``; nothing if no request is known to be
        its own.
        """
        frame, begins = cut.frame, cut.frame.data[:CORRELATION_ID_BYTES]
        if len(begins) < min(frame.size, CORRELATION_ID_BYTES):
            return []
        for index, each in enumerate(self._waiting):
            if each.correlation_id is None or (index < self._stale and self.repeats):
                break
            if _CORRELATION_ID.pack(each.correlation_id).startswith(begins):
                each.announced = cut.announced
                return self._answer(index, frame, now_ns)
        return []

    def hold_up(self, back: int) -> None:
        """Note that the broker could not respond to the requests in the last ``back`` bytes."""
        for exchange in reversed(self._waiting):
            if back <= 0:
                break
            exchange.is_held_up = True
            back -= exchange.first_frame.wire_bytes

    def _answer(self, index: int, frame: Frame, now_ns: int) -> list[Exchange]:
        """Complete a request with its response, and the older ones that no response can answer any more."""
        done: list[Exchange] = []
        if index or self._due_ns:
            index = self._settle_older(index, now_ns, done)
        self.doubts = self._misses_responses = False
        exchange = self._pop(index)
        exchange.response_frame = frame
        done.append(self._complete(exchange, ANSWERED, now_ns))
        return done

    def _settle_older(self, index: int, now_ns: int, done: list[Exchange]) -> int:
        """Before a request is answered, complete those before it whose response was lost or was never
        expected, and those that were overtaken and have been outstanding for too long. Returns its new index.
        """
        lost = index
        if not (self.doubts or self._misses_responses or self._has_equal_ids):
            lost = min(index, max(self._stale, self._unsure))
        for _ in range(lost):
            exchange = self._complete(self._pop(), UNANSWERED, now_ns)
            exchange.ended = True
            done.append(exchange)
        index -= lost
        if index:
            self._overtake(index)
        late = 0
        while late < len(self._due_ns):
            if self._due_ns[late] < now_ns and late != index:
                done.append(self._complete(self._pop(late), UNANSWERED, now_ns))
                index -= late < index
            else:
                late += 1
        return index

    def _overtake(self, index: int) -> None:
        """A request is answered before all older ones, which stay outstanding."""
        answered = self._waiting[index]
        answered.is_out_of_order = True
        for exchange in self._waiting[len(self._due_ns) : index]:
            exchange.is_out_of_order = True
            detail = f"the response to correlation ID {answered.correlation_id}, a later request, came first"
            exchange.anomalies.append(Anomaly(OUT_OF_ORDER, "response", detail))
            request = replace(exchange, anomalies=[], topic_ids={})
            decode_exchange(request, only_request=True)
            self._due_ns.append(exchange.time_ns + allowed_ns(request) + PATIENCE_NS)

    def lend(self, now_ns: int) -> PairingState | None:
        """The state, for the native core to continue. None unless the next response should answer the oldest
        request, and correlation IDs rise.
        """
        waiting = self._waiting
        ids = [each.correlation_id for each in waiting if each.correlation_id is not None]
        if (
            self.doubts
            or self.repeats
            or self._stale
            or self._short
            or self._unsure
            or self._due_ns
            or self._misses_responses
            or self._has_long_ids
            or self.first_id is None
            or self._orphan_ns > now_ns
            or any(two <= one for one, two in pairwise(ids))
        ):
            return None
        unacknowledged = list(self._unacknowledged or ())
        lent = PairingState(self._number, self.first_id, self.last_id, self._steady, waiting, unacknowledged)
        self._waiting, self._by_id, self._bytes = [], {}, 0
        return lent

    def restore(self, state: PairingState) -> None:
        """Continue from the state that the native core has reached."""
        self._number, self.first_id, self.last_id = state.completed, state.first_id, state.last_id
        self._steady = state.steady
        if state.unacknowledged:
            self._unacknowledged = deque(state.unacknowledged, maxlen=_UNACKNOWLEDGED_KEPT)
        for exchange in state.waiting:
            self._add(exchange)
        if state.has_retransmissions:
            again = [exchange for exchange in self._waiting if exchange.retransmitted_ns is not None]
            self._retransmissions = [[(exchange, None) for exchange in again]]

    def retransmitted(self, time_ns: int, back: int) -> None:
        """Requests were retransmitted, from ``back`` bytes before the end of the latest one."""
        before: list[tuple[Exchange, int | None]] = []
        for exchange in reversed(self._waiting[len(self._due_ns) :]):  # the broker has those overtaken
            if back <= 0:
                break
            if time_ns - exchange.time_ns > _COPY_NS:
                before.append((exchange, exchange.retransmitted_ns))
                exchange.retransmitted_ns = time_ns
            back -= exchange.first_frame.wire_bytes
        self._retransmissions = [*self._retransmissions[-_RETRANSMISSIONS_KEPT:], before]

    def retransmission_was_spurious(self) -> None:
        """The broker already had the requests that were retransmitted last."""
        if self._retransmissions:
            *self._retransmissions, before = self._retransmissions
            for exchange, retransmitted_ns in before:
                exchange.retransmitted_ns = retransmitted_ns

    def shorten(self) -> bool:
        """Drop the bodies of outstanding requests. Returns whether there were any."""
        before = self._bytes
        while self._short < len(self._waiting):
            self._shorten_next()
        return self._bytes < before

    def complete_unanswered(self, now_ns: int, reason: str | None = None) -> list[Exchange]:
        """Complete all outstanding requests as unanswered, because the connection ended or for another
        ``reason``.
        """
        return [self._complete_oldest(now_ns, reason) for _ in range(len(self._waiting))]

    def _complete_oldest(self, now_ns: int, reason: str | None) -> Exchange:
        oldest = self._pop()
        if reason is not None:
            oldest.anomalies.append(Anomaly("given_up", "request", reason))
        return self._complete(oldest, UNANSWERED, now_ns)

    def _wait(self, exchange: Exchange, frame: Frame) -> list[Exchange]:
        waiting, limits = self._waiting, self._limits
        self._add(exchange)
        if frame.end_ns < self._orphan_ns:  # it was recognized late, and its response may already have passed
            self._stale = len(waiting)
        while self._bytes > limits.pending_bytes and self._short < len(waiting) - 1:
            self._shorten_next()
        timed_out = []
        while len(waiting) > 1:
            if len(waiting) > limits.pending_requests:
                reason = f"more than {limits.pending_requests} outstanding requests"
            elif self._bytes > limits.pending_bytes:
                reason = f"outstanding requests hold more than {limits.pending_bytes} bytes"
            elif frame.end_ns - waiting[0].time_ns > limits.pending_age_ns:
                reason = f"outstanding for more than {limits.pending_age_ns // 1_000_000_000} s"
            else:
                break
            timed_out.append(self._complete_oldest(frame.end_ns, reason))
        return timed_out

    def _add(self, exchange: Exchange) -> None:
        self._waiting.append(exchange)
        self._by_id.setdefault(exchange.correlation_id, []).append(exchange)
        self._bytes += len(exchange.first_frame.data)
        if bytes_of_id := _long_id_bytes(exchange):
            self._has_long_ids = True
            self._bytes += bytes_of_id

    def _shorten_next(self) -> None:
        exchange = self._waiting[self._short]
        self._short += 1
        frame = exchange.request_frame
        if frame is not None and len(frame.data) > SHED_BYTES:
            self._bytes -= len(frame.data) - SHED_BYTES
            exchange.request_frame = frame._replace(data=frame.data[:SHED_BYTES])
            exchange.request = None  # decoded from all of it

    def _index_of(self, correlation_id: int | None) -> int | None:
        """The index of the request that a response answers."""
        if correlation_id not in self._by_id and None not in self._by_id:
            return None
        for index, exchange in enumerate(self._waiting):
            request_id = exchange.correlation_id
            if index < self._stale and (self.repeats or request_id is None):
                continue
            if request_id == correlation_id or request_id is None:  # the next frame answers a token
                return index
        return None

    @property
    def _has_equal_ids(self) -> bool:
        """Whether a correlation ID does not tell which request it means."""
        return len(self._by_id) < len(self._waiting) or None in self._by_id

    def _was_missed(self, correlation_id: int | None) -> bool:
        """Whether a request with this ID was sent before the newest outstanding one, but not captured."""
        newest = self._waiting[-1].correlation_id
        if correlation_id is None or newest is None:
            return False
        return correlation_id < newest and correlation_id not in self._by_id

    def _orphan(self, frame: Frame, correlation_id: int | None) -> Exchange:
        self._misses_responses = False
        self._orphan_ns = max(self._orphan_ns, frame.start_ns)
        exchange = self._new(None, frame)
        exchange.correlation_id = correlation_id
        for request_id, api_key, api_version in reversed(self._unacknowledged or ()):
            if request_id == correlation_id:  # librdkafka's mock cluster responds to acks=0
                exchange.api_key, exchange.api_version = api_key, api_version
                exchange.api = _name(api_key)
                detail = f"correlation ID {correlation_id} belongs to a request with acks=0"
                exchange.anomalies.append(Anomaly("unexpected_response", "response", detail))
                break
        else:
            self._set_api(exchange, frame)
            if not (self.misses_requests or self.first_id is None or correlation_id is None):
                detail = f"no outstanding request has correlation ID {correlation_id}"
                exchange.anomalies.append(Anomaly("unexpected_response", "response", detail))
        return exchange

    def _set_api(self, orphan: Exchange, frame: Frame) -> None:
        """Set the API of a response whose request was not captured, if its content shows it: of the requests
        outstanding now, it fits the response of only one API, and no other API has that layout.
        """
        if frame.size < _DISTINCTIVE_BYTES or not frame.complete:
            return
        used = {(each.api_key, each.api_version) for each in self._waiting[:_MAX_COMPARED]}
        fitting = [
            (api_key, version)
            for api_key, version in used
            if api_key not in (None, API_VERSIONS)
            and version is not None
            and fits_response(frame.data, api_key, version)
        ]
        if len(fitting) == 1 and is_unique_response(*fitting[0]):
            orphan.api_key, orphan.api_version = fitting[0]
            orphan.api = _name(fitting[0][0])

    def _pop(self, index: int = 0) -> Exchange:
        self._retransmissions = ()
        # The list is short, and a deque takes 600 bytes for each connection.
        exchange = self._waiting.pop(index)
        same_id = self._by_id[exchange.correlation_id]
        del same_id[0]
        if not same_id:
            del self._by_id[exchange.correlation_id]
        frame = exchange.request_frame
        assert frame is not None  # outstanding requests have one
        self._bytes -= len(frame.data)
        if self._has_long_ids:
            self._bytes -= _long_id_bytes(exchange)
        if self._short or self._stale or self._unsure or self._due_ns:
            self._short -= index < self._short
            self._stale -= index < self._stale
            self._unsure -= index < self._unsure
            del self._due_ns[index : index + 1]
        return exchange

    def _new(self, request: Frame | None, response: Frame | None) -> Exchange:
        return Exchange(self.info, 0, "", request, response, None, None, None)

    def _complete(self, exchange: Exchange, kind: str, now_ns: int) -> Exchange:
        self._number += 1
        exchange.number = self._number
        exchange.kind = kind
        exchange.completed_ns = now_ns
        return exchange


def _long_id_bytes(exchange: Exchange) -> int:
    """Memory of a client ID that is longer than most; 0 of others."""
    client_id = exchange.client_id or ""
    return getsizeof(client_id) if len(client_id) > NAME_BYTES else 0


@cache
def _name(api_key: int) -> str | None:
    api = apis.by_key(api_key)
    return api.name if api else None


def _can_answer(frame: Frame, request: Exchange) -> bool:
    api_key, version = request.api_key, request.api_version
    if api_key is None or version is None or not can_be_response(frame.data, api_key, version):
        return False
    known = apis.by_key(api_key)
    is_known = known is not None and version in known.versions
    return not (frame.complete and is_known) or fits_response(frame.data, api_key, version)
