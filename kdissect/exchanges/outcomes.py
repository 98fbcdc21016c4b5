"""An exchange -> its outcome: whether the broker answered, and if not, whether it still could have.
Stateless.

A request is unanswered once no response can follow, or once it has been outstanding for 30 s longer than it
allows the broker to wait. Some requests do: a Fetch waits for records, a JoinGroup for the other members. It
is abandoned if no response was due when the connection was closed in order: the client left, or the broker
did while it held a long poll. A message that began but did not end is incomplete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.limits import MIB, MILLISECOND_NS, SECOND_NS
from kdissect.model import (
    ABANDONED,
    ANSWERED,
    INCOMPLETE,
    INCOMPLETE_REQUEST,
    NOT_EXPECTED,
    ORPHAN,
    PENDING,
    UNACKNOWLEDGED,
    UNANSWERED,
)

if TYPE_CHECKING:
    from kdissect.model import Exchange

PATIENCE_NS = 30 * SECOND_NS
"""The request.timeout.ms of Kafka's clients by default; that of librdkafka, socket.timeout.ms, is 60 s."""

LONG_POLLS = frozenset({"Fetch", "ShareFetch"})
WAITING_APIS = LONG_POLLS | {"JoinGroup", "SyncGroup"}
"""APIs whose responses brokers delay."""

TIMED_OUT_NS = SECOND_NS
"""A client that closes a connection after so long has timed out: timeouts of clients are longer."""

AT_ONCE_NS = SECOND_NS // 10
"""A broker that closes a connection so soon after a long poll rejects the request."""

_FETCH, _JOIN_GROUP = 1, 11
_MAX_REQUEST = (("socket.request.max.bytes", 100 * MIB),)
_MAX_RESPONSE = (("receive.message.max.bytes", 100_000_000),)
_MAX_FETCH = (("fetch.max.bytes", 50 * MIB), *_MAX_RESPONSE)
"""Settings that limit the size of messages, and defaults: of brokers, of librdkafka, of all consumers."""

_OUTCOMES = {ANSWERED: ANSWERED, UNACKNOWLEDGED: NOT_EXPECTED, ORPHAN: ORPHAN}


def outcome(exchange: Exchange) -> str | None:
    """One of ``model.OUTCOMES``. None if the response may not have been captured."""
    if exchange.announced is not None:
        return INCOMPLETE if exchange.is_cut else INCOMPLETE_REQUEST
    if exchange.kind != UNANSWERED:
        return _OUTCOMES[exchange.kind]
    if exchange.ended is None:
        return None
    if exchange.ended:
        return ABANDONED if _is_abandoned(exchange) else UNANSWERED
    return UNANSWERED if overdue_ns(exchange) > PATIENCE_NS else PENDING


def _is_abandoned(exchange: Exchange) -> bool:
    """Whether no response was due when an end of the connection closed it in order. Other requests than those
    that brokers hold are due at once: their ``timeout_ms`` is when the client stops waiting. While the client
    is still reading the response to an earlier one, nothing is due.
    """
    if exchange.closed_by_client is None or exchange.is_out_of_order:
        return False
    waited_ns = outstanding_ns(exchange)
    allowed_to_wait_ns = allowed_ns(exchange) if exchange.api in WAITING_APIS else 0
    if exchange.closed_by_client:
        return exchange.is_behind or waited_ns < allowed_to_wait_ns + TIMED_OUT_NS
    return exchange.api in LONG_POLLS and AT_ONCE_NS <= waited_ns <= allowed_to_wait_ns


def overdue_ns(exchange: Exchange) -> int:
    """How much longer an unanswered request was outstanding than it allows the broker to wait."""
    return outstanding_ns(exchange) - allowed_ns(exchange)


def outstanding_ns(exchange: Exchange) -> int:
    """For how long an unanswered request was outstanding: until an end of the connection closed it."""
    ended_ns = exchange.ended_ns
    until_ns = exchange.completed_ns if ended_ns is None else min(exchange.completed_ns, ended_ns)
    return until_ns - exchange.time_ns


def allowed_ns(exchange: Exchange) -> int:
    """How long the request allows the broker to wait before it responds: ``max_wait_ms`` of Fetch and
    ShareFetch, ``rebalance_timeout_ms`` of JoinGroup (version 0: ``session_timeout_ms``), ``timeout_ms`` of
    Produce and of requests that change the cluster.
    """
    request = exchange.request or {}
    if exchange.api_key == _JOIN_GROUP:
        names: tuple[str, ...] = ("rebalance_timeout_ms", "session_timeout_ms")
    else:
        names = ("max_wait_ms", "timeout_ms")
    allowed_ms: int = next((request[name] for name in names if name in request), 0)
    return max(0, allowed_ms) * MILLISECOND_NS


def exceeded_settings(exchange: Exchange) -> list[tuple[str, int]]:
    """The settings whose default the announced size of an incomplete message exceeds, and these defaults."""
    limits = (
        _MAX_REQUEST if not exchange.is_cut else _MAX_FETCH if exchange.api_key == _FETCH else _MAX_RESPONSE
    )
    return [each for each in limits if (exchange.announced or 0) > each[1]]
