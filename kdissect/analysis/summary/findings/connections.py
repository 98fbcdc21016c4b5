"""Connections of a client to a broker -> clients that open one for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis.summary.findings.evidence import Evidence, Minutes
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_GREETINGS = frozenset({"ApiVersions", "SaslHandshake", "SaslAuthenticate"})
_MOST = 10  # connections
_REQUESTS = 3  # of a connection that was not worth it
_SHARE = 0.8


class Connected(Evidence):
    """A connection: its first exchange, and what came after the greetings."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Connected)
        self.requests += other.requests


class Connections(Rule):
    """Each connection costs a TCP and often a TLS handshake, ApiVersions, a login, and memory of the
    broker.
    """

    name = "connection-per-request"
    severity = WARNING
    title = "A client opens a connection to the same broker for nearly every request."
    when = (
        f"{_MOST} connections from one address to one broker in a minute, {_SHARE:.0%} of them with at most "
        f"{_REQUESTS} requests besides greetings; clients keep one or two to each broker."
    )
    advice = "Keep one producer, consumer or admin client for as long as the process lives."
    counts = Connected

    def feed(self, facts: Facts) -> None:
        """Count what a connection is used for. Tokens without a header do not tell whose it is."""
        exchange = facts.exchange
        if exchange.api_key is None:
            return
        key = facts.client, exchange.connection.client.ip, facts.broker, exchange.connection.id
        kept = self.kept[key]
        if not kept.count:
            kept.add(facts)
        if facts.api not in _GREETINGS:
            kept.requests += 1

    def findings(self) -> Iterator[FindingRow]:
        """Tell of clients with many short connections."""
        ends: dict[Any, list[Connected]] = {}
        for (*end, _), each in self.kept.items():
            ends.setdefault(tuple(end), []).append(each)
        for (client, ip, broker), connected in ends.items():
            short = Minutes()
            for each in connected:
                if each.requests <= _REQUESTS:
                    short.occurred(each)
            if short.busiest >= _MOST and short.count >= _SHARE * len(connected):
                yield self.found(
                    f"client {client} at {ip}, broker {broker}",
                    f"{short.count:,} of {len(connected):,} connections carry at most {_REQUESTS} requests, "
                    f"{short.busiest:,} of them within a minute",
                    short,
                )
