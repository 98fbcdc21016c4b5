"""Exchange -> what every table of a summary wants to know of it, found out once. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis import content
from kdissect.analysis.touched import Touched, touched

if TYPE_CHECKING:
    from kdissect.model import Body, Exchange

_WAITING = frozenset({"Fetch", "ShareFetch"})  # the broker holds them back until there is something to say
_WAITED = 0.9  # of max_wait_ms: brokers look at the clock every few milliseconds


class Facts:
    """An exchange, and what its bodies say.

    Attributes:
        api: its name, or ``api 99`` where the key is not known, or ``SASL token`` for what has none.
        client: the client id, or the address of a client that told none.
        broker: address and port.
        errors: distinct error names.
        throttle_ms: 0 where there is none.
        latency_us: None unless answered.
        long_poll: an empty answer to a Fetch or ShareFetch that waited for as long as the client allowed.
            Its latency says how long there was nothing to read, not how fast the broker is.
        group: the group that the request names.
        replica: whether a broker fetches, to copy: it tells its node id.
        touched: what it does to each partition.
    """

    __slots__ = (
        *("api", "broker", "client", "errors", "exchange", "group", "latency_us", "long_poll"),
        *("replica", "throttle_ms", "touched"),
    )

    def __init__(self, exchange: Exchange) -> None:
        latency_ns = exchange.latency_ns
        self.exchange = exchange
        self.api = exchange.api or _unknown(exchange.api_key)
        self.client = exchange.client_id or exchange.connection.client.ip
        self.broker = str(exchange.connection.broker)
        self.errors = content.errors(exchange)
        self.throttle_ms = content.throttle_time_ms(exchange) or 0
        self.latency_us = None if latency_ns is None else max(0, latency_ns) // 1000
        self.group = content.group_id(exchange)
        self.touched: list[Touched] = touched(exchange)
        self.replica = self.api == "Fetch" and _replica_id(exchange.request) >= 0
        self.long_poll = self.api in _WAITING and self._is_long_poll()

    @property
    def id(self) -> str:
        """``connection/number``, as ``read --exchange`` takes it."""
        return f"{self.exchange.connection.id}/{self.exchange.number}"

    def _is_long_poll(self) -> bool:
        request = self.exchange.request
        max_wait_ms = None if request is None else request.get("max_wait_ms")
        if self.latency_us is None or not max_wait_ms or self.errors:
            return False
        if self.latency_us < _WAITED * 1000 * max_wait_ms:
            return False
        return not any(records is not None and len(records) for records in (t.fetched for t in self.touched))


def _replica_id(request: Body | None) -> int:
    """Who fetches: -1 is a consumer. It stands in a struct of its own from version 15 on (KIP-903)."""
    if request is None:
        return -1
    state = request.get("replica_state") or request
    found: int = state.get("replica_id", -1)
    return found


def _unknown(api_key: int | None) -> str:
    return "SASL token" if api_key is None else f"api {api_key}"
