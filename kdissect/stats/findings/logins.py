"""Connections whose login has a lifetime -> clients that do not log in again in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import WARNING
from kdissect.limits import SECOND_NS
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import many, span
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.findings.connections import ConnectionRule, is_kafka
from kdissect.stats.findings.rule import Evidence
from kdissect.stats.sums import earliest, summed, total

if TYPE_CHECKING:
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import Scope

_AFTER_NS = SECOND_NS


@summed
class Expiries(Evidence):
    """Connections that ended after their session, the shortest lifetime, and requests without a response."""

    lifetime_ns: int = earliest(NEVER_NS)
    requests: int = total()


@summed
class SessionExpired(ConnectionRule):
    """Brokers with connections.max.reauth.ms, and tokens that expire, give each login a lifetime (KIP-368). A
    client that does not log in again is disconnected, again and again, with its request outstanding.
    """

    name = "session-expired"
    severity = WARNING
    of = (CLIENT, "host", BROKER)
    cut = "count"
    failed = "requests"
    title = "A broker ends connections whose SASL session has expired: the client did not log in again."
    when = (
        "Any connection that the broker ended after the lifetime in the last SaslAuthenticate response, "
        f"within {_AFTER_NS // SECOND_NS} s of a request."
    )
    advice = (
        "Use a client that authenticates again (KIP-368: Java since 2.2, librdkafka, kafka-python 3), or "
        "raise connections.max.reauth.ms of the broker and the lifetime of tokens."
    )
    counts = Expiries

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it ended for that reason."""
        session = row.session
        if session is None or not is_kafka(row) or row.end is None or row.ended_by != BROKER:
            return
        is_late = row.end.time_ns >= session.end_ns
        if is_late and row.outstanding and row.idle_ns is not None and row.idle_ns <= _AFTER_NS:
            kept = self.count(row, row.end.time_ns)
            kept.lifetime_ns = min(kept.lifetime_ns, session.lifetime_ns)
            kept.requests += row.outstanding

    def _message(self, _: Scope, each: Expiries) -> str:
        return (
            f"{many(each.count, 'connection')} ended by the broker because the login had expired after "
            f"{span(each.lifetime_ns)}; the client did not log in again"
        )
