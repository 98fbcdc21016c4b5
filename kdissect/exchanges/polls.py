"""Fetch and ShareFetch exchanges -> whether it is a long poll, and which broker fetches. Holds nothing.

An empty response to a request that waited for the whole of its ``max_wait_ms`` is a long poll. Its latency
says how long there was nothing to read, not how fast the broker is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.exchanges import content
from kdissect.exchanges.touched import touched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.exchanges.touched import Touched
    from kdissect.model import Exchange

_LONG_POLL_APIS = frozenset({"Fetch", "ShareFetch"})  # the broker delays the response until there are records
_LONG_POLL_FRACTION = 0.9  # of max_wait_ms: brokers check their timers every few milliseconds
_MS_NS = 1_000_000


def is_long_poll(exchange: Exchange, partitions: Sequence[Touched] | None = None) -> bool:
    """Whether a fetch waited as long as it was allowed to, and returned no records and no error.

    Args:
        exchange: any. Most are not fetches.
        partitions: ``touched(exchange)``, if already known.
    """
    request, latency_ns = exchange.request, exchange.latency_ns
    if exchange.api not in _LONG_POLL_APIS or request is None or latency_ns is None:
        return False
    max_wait_ms = request.get("max_wait_ms")
    if not max_wait_ms or latency_ns // 1000 * 1000 < _LONG_POLL_FRACTION * _MS_NS * max_wait_ms:
        return False
    if content.errors(exchange):
        return False
    records = (each.fetched for each in (touched(exchange) if partitions is None else partitions))
    return not any(each is not None and len(each) for each in records)


def replica_id(exchange: Exchange) -> int | None:
    """The broker that fetches to replicate. None for consumers, which send -1.

    In a struct of its own since version 15 (KIP-903).
    """
    request = exchange.request
    if exchange.api != "Fetch" or request is None:
        return None
    broker_id: int = (request.get("replica_state") or request).get("replica_id", -1)
    return broker_id if broker_id >= 0 else None
