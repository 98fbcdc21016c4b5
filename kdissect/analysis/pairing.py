"""The frames of one connection -> exchanges: each response to its request, by correlation id.

Brokers answer a connection's requests in order. So requests wait in order, and when a response comes, every
older request that still waits will never be answered: its response was lost, or it wanted none. A request
waits from the moment its header is read: a body that cannot be decoded never costs its response.

Holds the requests that wait: at most ``Limits.pending_requests`` and ``pending_bytes``, none longer than
``pending_age_ns``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kdissect.errors import Truncated
from kdissect.kafka import apis
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.headers import CORRELATION_ID_BYTES, read_correlation_id, read_request_header
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED, Anomaly, Exchange

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Frame

PRODUCE = 0
_UNACKNOWLEDGED_KEPT = 16  # a broker that answers acks=0 all the same does so at once
_EXCHANGE_COST = 1024  # bytes that a waiting request costs besides its frame, about


class Pairing:
    """Requests and responses of one connection.

    Args:
        info: shared by the exchanges made here.
        limits: bounds.
    """

    __slots__ = ("_by_id", "_bytes", "_info", "_limits", "_number", "_unacknowledged", "_waiting")

    def __init__(self, info: ConnectionInfo, limits: Limits) -> None:
        self._info = info
        self._limits = limits
        self._waiting: list[Exchange] = []
        self._by_id: dict[int | None, list[Exchange]] = {}  # the same, by correlation id; None: SASL tokens
        self._bytes = 0  # of their frames
        self._unacknowledged: deque[tuple[int, int, int]] | None = None
        self._number = 0

    @property
    def held(self) -> int:
        """Bytes that the requests that wait cost."""
        return self._bytes + _EXCHANGE_COST * len(self._waiting)

    @property
    def ids(self) -> tuple[int | None, int | None] | None:
        """Correlation ids of the oldest and the newest request that waits; None where none does."""
        waiting = self._waiting
        return (waiting[0].correlation_id, waiting[-1].correlation_id) if waiting else None

    def asked(self, correlation_id: int) -> tuple[int, int] | None:
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
        exchange = self._new(frame, None)
        self._is_about(exchange, header.api_key, header.api_version)
        exchange.request_header = header
        exchange.correlation_id, exchange.client_id = header.correlation_id, header.client_id
        if header.api_key == PRODUCE:
            decode_exchange(exchange)
            if exchange.request is not None and exchange.request.get("acks") == 0:
                if self._unacknowledged is None:
                    self._unacknowledged = deque(maxlen=_UNACKNOWLEDGED_KEPT)
                self._unacknowledged.append((header.correlation_id, header.api_key, header.api_version))
                return [self._complete(exchange, UNACKNOWLEDGED, frame.end_ns)]
        if header.correlation_id in self._by_id:
            detail = f"correlation id {header.correlation_id}"
            exchange.anomalies.append(Anomaly("duplicate_correlation_id", "request", detail))
        return self._wait(exchange, frame)

    def token_request(self, frame: Frame) -> list[Exchange]:
        """Take a SASL token that a client sent outside Kafka's framing; its answer is the next frame of the
        broker.
        """
        return self._wait(self._new(frame, None), frame)

    def response(self, frame: Frame, *, may_be_token: bool = False) -> list[Exchange]:
        """Take a response frame; one to nobody ``may_be_token``, whose first bytes are no correlation id.

        Returns:
            Older requests that were never answered, then the exchange that the response completes, or an
            orphan.

        Raises:
            Truncated: the frame is no response at all.
        """
        correlation_id = read_correlation_id(frame.data)
        if correlation_id not in self._by_id and None not in self._by_id:
            if may_be_token:
                correlation_id = None
            elif frame.size < CORRELATION_ID_BYTES:
                raise Truncated(f"a response of {frame.size} bytes", pos=0)
            return [self._complete(self._orphan(frame, correlation_id), ORPHAN, frame.end_ns)]
        done: list[Exchange] = []
        while True:
            exchange = self._pop()
            if exchange.correlation_id in (correlation_id, None):  # a token is answered by what comes next
                exchange.response_frame = frame
                done.append(self._complete(exchange, ANSWERED, frame.end_ns))
                return done
            done.append(self._complete(exchange, UNANSWERED, frame.end_ns))

    def give_up(self, now_ns: int, reason: str | None = None) -> list[Exchange]:
        """What waits is unanswered: nothing more will come, or for another ``reason``."""
        return [self._give_up(now_ns, reason) for _ in range(len(self._waiting))]

    def _give_up(self, now_ns: int, reason: str | None) -> Exchange:
        oldest = self._pop()
        if reason is not None:
            oldest.anomalies.append(Anomaly("given_up", "request", reason))
        return self._complete(oldest, UNANSWERED, now_ns)

    def _wait(self, exchange: Exchange, frame: Frame) -> list[Exchange]:
        waiting, limits = self._waiting, self._limits
        waiting.append(exchange)
        self._by_id.setdefault(exchange.correlation_id, []).append(exchange)
        self._bytes += len(frame.data)
        given_up = []
        while len(waiting) > 1:
            if len(waiting) > limits.pending_requests:
                reason = f"more than {limits.pending_requests} requests wait"
            elif self._bytes > limits.pending_bytes:
                reason = f"requests that wait hold more than {limits.pending_bytes} bytes"
            elif frame.end_ns - waiting[0].time_ns > limits.pending_age_ns:
                reason = f"waited more than {limits.pending_age_ns // 1_000_000_000} s"
            else:
                break
            given_up.append(self._give_up(frame.end_ns, reason))
        return given_up

    def _orphan(self, frame: Frame, correlation_id: int | None) -> Exchange:
        exchange = self._new(None, frame)
        exchange.correlation_id = correlation_id
        for asked_id, api_key, api_version in reversed(self._unacknowledged or ()):
            if asked_id == correlation_id:  # librdkafka's mock cluster answers what wanted no answer
                self._is_about(exchange, api_key, api_version)
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
        self._bytes -= len(exchange.first_frame.data)
        return exchange

    def _is_about(self, exchange: Exchange, api_key: int, api_version: int) -> None:
        api = apis.by_key(api_key)
        exchange.api = api.name if api else None
        exchange.api_key, exchange.api_version = api_key, api_version

    def _new(self, request: Frame | None, response: Frame | None) -> Exchange:
        return Exchange(self._info, 0, "", request, response, None, None, None)

    def _complete(self, exchange: Exchange, kind: str, now_ns: int) -> Exchange:
        self._number += 1
        exchange.number = self._number
        exchange.kind = kind
        exchange.completed_ns = now_ns
        return exchange
