"""An exchange -> its outcome: whether the broker answered, and if not, whether it still could have.
Stateless.

A request is unanswered once no response can follow, or once it has been outstanding for 30 s longer than it
allows the broker to wait. Some requests do: a Fetch waits for records, a JoinGroup for the other members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.model import ANSWERED, NOT_EXPECTED, ORPHAN, PENDING, UNACKNOWLEDGED, UNANSWERED

if TYPE_CHECKING:
    from kdissect.model import Exchange

PATIENCE_NS = 30 * SECOND_NS
"""The request.timeout.ms of Kafka's clients by default; that of librdkafka, socket.timeout.ms, is 60 s."""

_JOIN_GROUP = 11
_OUTCOMES = {ANSWERED: ANSWERED, UNACKNOWLEDGED: NOT_EXPECTED, ORPHAN: ORPHAN}


def outcome(exchange: Exchange) -> str | None:
    """One of ``model.OUTCOMES``. None if the response may not have been captured."""
    if exchange.kind != UNANSWERED:
        return _OUTCOMES[exchange.kind]
    if exchange.ended is None:
        return None
    return UNANSWERED if exchange.ended or overdue_ns(exchange) > PATIENCE_NS else PENDING


def overdue_ns(exchange: Exchange) -> int:
    """How much longer an unanswered request was outstanding than it allows the broker to wait."""
    return outstanding_ns(exchange) - allowed_ns(exchange)


def outstanding_ns(exchange: Exchange) -> int:
    """For how long an unanswered request was outstanding: until an end of the connection closed it."""
    ended_ns = exchange.connection.ended_ns
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
