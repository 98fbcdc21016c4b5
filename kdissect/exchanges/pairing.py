"""The frames of one connection -> exchanges: each response to its request, by correlation id.

Brokers answer a connection's requests in order. So requests wait in order, and when a response comes, every
older request that still waits will never be answered: its response was lost, or it wanted none. A request
waits from the moment its header is read: a body that cannot be decoded, or is too large to be held, never
costs its response.

Holds the requests that wait: at most ``Limits.pending_requests`` and ``pending_bytes``, none longer than
``pending_age_ns``.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING

from kdissect.errors import Malformed, Truncated
from kdissect.kafka import apis
from kdissect.kafka.bodies import can_be_response, decode_exchange, fits_response
from kdissect.kafka.framing import SHED_BYTES
from kdissect.kafka.headers import CORRELATION_ID_BYTES, read_correlation_id, read_request_header
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED, Anomaly, Exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Frame

PRODUCE = 0
_UNACKNOWLEDGED_KEPT = 16  # a broker that answers acks=0 all the same does so at once
_STEADY = 2
_EXCHANGE_COST = 1024  # bytes that a waiting request costs besides its frame, about


class Pairing:
    """Requests and responses of one connection.

    Args:
        info: shared by the exchanges made here.
        limits: bounds.

    Attributes:
        doubts: requests may be missing that were sent before those that wait. A controller before 0.9 gives
            several requests the same correlation id, so an answer must now also fit what was asked.
    """

    __slots__ = (
        "_by_id", "_bytes", "_info", "_last_id", "_limits", "_number", "_orphan_ns", "_repeats", "_short",
        "_stale", "_steady", "_unacknowledged", "_waiting", "doubts",
    )  # fmt: skip

    def __init__(self, info: ConnectionInfo, limits: Limits) -> None:
        self._info = info
        self._limits = limits
        self._waiting: list[Exchange] = []
        self._by_id: dict[int | None, list[Exchange]] = {}  # the same, by correlation id; None: SASL tokens
        self._bytes = 0  # of their frames
        self._short = 0  # of the oldest, whose bodies were let go
        self._stale = 0  # the oldest, whose answers may have been missed
        self._orphan_ns = 0  # time of the latest orphan
        self._repeats = False  # whether correlation ids come again, as those of clients before 0.9
        self._unacknowledged: deque[tuple[int, int, int]] | None = None
        self._number = 0
        self.doubts = False
        self._last_id: int | None = None
        self._steady = 0  # requests in a row that counted on by one

    @property
    def waiting(self) -> Sequence[Exchange]:
        """Requests that wait, the oldest first."""
        return self._waiting

    @property
    def completed(self) -> int:
        """Exchanges that have their number: all but those that wait."""
        return self._number

    @property
    def held(self) -> int:
        """Bytes that the requests that wait cost."""
        return self._bytes + _EXCHANGE_COST * len(self._waiting)

    @property
    def ids(self) -> tuple[int | None, int | None] | None:
        """Correlation ids of the oldest and the newest request that waits; None where none does."""
        waiting = self._waiting
        return (waiting[0].correlation_id, waiting[-1].correlation_id) if waiting else None

    def api_of(self, correlation_id: int) -> tuple[int, int] | None:
        """Api key and version of the oldest request that waits with this correlation id."""
        waiting = self._by_id.get(correlation_id)
        if not waiting or waiting[0].api_key is None or waiting[0].api_version is None:
            return None
        return waiting[0].api_key, waiting[0].api_version

    def request(self, frame: Frame) -> list[Exchange]:
        """Take a request frame.

        Returns:
            What is complete now: the request itself if it wants no response, requests given up because a
            bound was reached.

        Raises:
            Truncated, Malformed: the frame is no request at all.
        """
        header = read_request_header(frame.data)
        api_key, api_version, correlation_id, client_id, _ = header
        exchange = Exchange(
            self._info, 0, "", frame, None, api_key, api_version, correlation_id, client_id, _name(api_key)
        )
        exchange.request_header = header
        last_id, self._last_id = self._last_id, correlation_id
        if last_id is not None:
            step = correlation_id - last_id
            self._steady = self._steady + 1 if step == 1 else 0
            self._repeats = self._repeats or not step
        if api_key == PRODUCE:
            decode_exchange(exchange)
            if exchange.request is not None and exchange.request.get("acks") == 0:
                if self._unacknowledged is None:
                    self._unacknowledged = deque(maxlen=_UNACKNOWLEDGED_KEPT)
                self._unacknowledged.append((correlation_id, api_key, api_version))
                return [self._complete(exchange, UNACKNOWLEDGED, frame.end_ns)]
        if correlation_id in self._by_id:
            self._repeats = True
            detail = f"correlation id {correlation_id}"
            exchange.anomalies.append(Anomaly("duplicate_correlation_id", "request", detail))
        return self._wait(exchange, frame)

    def forget_last_id(self) -> int | None:
        """Requests may be missing behind the last one: its correlation id, None where these do not tell how
        many.
        """
        self.doubts = True
        last_id, self._last_id = self._last_id, None
        return last_id if self._steady >= _STEADY else None

    def mistrust(self) -> None:
        """Responses may be missing, of any request that waits now: of what carries no correlation id, or one
        that is used again and again, the next response need not be the answer.
        """
        self._stale = len(self._waiting)

    def token_request(self, frame: Frame) -> list[Exchange]:
        """Take a SASL token that a client sent outside Kafka's framing; its answer is the next frame of the
        broker.
        """
        return self._wait(self._new(frame, None), frame)

    def response(
        self, frame: Frame, *, may_be_token: bool = False, resynchronized: bool = False
    ) -> list[Exchange]:
        """Take a response frame; one to nobody ``may_be_token``, whose first bytes are no correlation id. One
        that ``resynchronized`` by its content, because somebody waits, has to answer somebody.

        Returns:
            Older requests that were never answered, then the exchange that the response completes, or an
            orphan.

        Raises:
            Truncated, Malformed: the frame is no response at all.
        """
        correlation_id = read_correlation_id(frame.data)
        waiting = self._waiting
        index: int | None = 0
        if not waiting or self._stale or waiting[0].correlation_id != correlation_id:
            index = self._index_of(correlation_id)
        if (
            resynchronized
            and waiting
            and (index is None or (self.doubts and not _can_answer(frame, waiting[index])))
        ):
            raise Malformed("what follows the gap matches no request", pos=0)
        if index is None:
            if correlation_id not in self._by_id:
                if may_be_token:
                    correlation_id = None
                elif frame.size < CORRELATION_ID_BYTES:
                    raise Truncated(f"a response of {frame.size} bytes", pos=0)
            return [self._complete(self._orphan(frame, correlation_id), ORPHAN, frame.end_ns)]
        if self.doubts:
            if not _can_answer(frame, waiting[index]):
                return [self._complete(self._orphan(frame, correlation_id), ORPHAN, frame.end_ns)]
            self.doubts = False
        done: list[Exchange] = []
        while index:
            index -= 1
            done.append(self._complete(self._pop(), UNANSWERED, frame.end_ns))
        exchange = self._pop()
        exchange.response_frame = frame
        done.append(self._complete(exchange, ANSWERED, frame.end_ns))
        return done

    def shorten(self) -> bool:
        """Let go of the bodies of what waits; whether there was any."""
        before = self._bytes
        while self._short < len(self._waiting):
            self._shorten_next()
        return self._bytes < before

    def complete_unanswered(self, now_ns: int, reason: str | None = None) -> list[Exchange]:
        """What waits is unanswered: nothing more will come, or for another ``reason``."""
        return [self._complete_oldest(now_ns, reason) for _ in range(len(self._waiting))]

    def _complete_oldest(self, now_ns: int, reason: str | None) -> Exchange:
        oldest = self._pop()
        if reason is not None:
            oldest.anomalies.append(Anomaly("given_up", "request", reason))
        return self._complete(oldest, UNANSWERED, now_ns)

    def _wait(self, exchange: Exchange, frame: Frame) -> list[Exchange]:
        waiting, limits = self._waiting, self._limits
        waiting.append(exchange)
        if frame.end_ns < self._orphan_ns:  # it was found late, and its answer may have gone by
            self._stale = len(waiting)
        self._by_id.setdefault(exchange.correlation_id, []).append(exchange)
        self._bytes += len(frame.data)
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

    def _shorten_next(self) -> None:
        exchange = self._waiting[self._short]
        self._short += 1
        frame = exchange.request_frame
        if frame is not None and len(frame.data) > SHED_BYTES:
            self._bytes -= len(frame.data) - SHED_BYTES
            exchange.request_frame = frame._replace(data=frame.data[:SHED_BYTES])
            exchange.request = None  # as it was decoded

    def _index_of(self, correlation_id: int | None) -> int | None:
        """Whom a response answers, as a place among those that wait."""
        if correlation_id not in self._by_id and None not in self._by_id:
            return None
        for index, exchange in enumerate(self._waiting):
            request_id = exchange.correlation_id
            if index < self._stale and (self._repeats or request_id is None):
                continue
            if request_id == correlation_id or request_id is None:  # a token is answered by what comes next
                return index
        return None

    def _orphan(self, frame: Frame, correlation_id: int | None) -> Exchange:
        self._orphan_ns = max(self._orphan_ns, frame.start_ns)
        exchange = self._new(None, frame)
        exchange.correlation_id = correlation_id
        for request_id, api_key, api_version in reversed(self._unacknowledged or ()):
            if request_id == correlation_id:  # librdkafka's mock cluster answers what wanted no answer
                exchange.api_key, exchange.api_version = api_key, api_version
                exchange.api = _name(api_key)
                detail = f"correlation id {correlation_id} was a request with acks 0"
                exchange.anomalies.append(Anomaly("unasked_response", "response", detail))
                break
        return exchange

    def _pop(self) -> Exchange:
        exchange = self._waiting.pop(0)  # a list of few: a deque costs 600 bytes for each connection
        same_id = self._by_id[exchange.correlation_id]
        del same_id[0]
        if not same_id:
            del self._by_id[exchange.correlation_id]
        frame = exchange.request_frame
        assert frame is not None  # it is a request that waits
        self._bytes -= len(frame.data)
        if self._short:
            self._short -= 1
        if self._stale:
            self._stale -= 1
        return exchange

    def _new(self, request: Frame | None, response: Frame | None) -> Exchange:
        return Exchange(self._info, 0, "", request, response, None, None, None)

    def _complete(self, exchange: Exchange, kind: str, now_ns: int) -> Exchange:
        self._number += 1
        exchange.number = self._number
        exchange.kind = kind
        exchange.completed_ns = now_ns
        return exchange


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
