"""Login responses, and how long a login is valid -> clients that cannot log in, or not again in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.limits import SECOND_NS
from kdissect.names import kept as kept_name
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import listed, many, span, times
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.findings.connections import ConnectionRule, is_kafka
from kdissect.stats.findings.rule import Evidence, Rule
from kdissect.stats.sums import earliest, joined, summed, total

if TYPE_CHECKING:
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Scope

_LOOP = 10
_NO_HANDSHAKE = "the broker takes no token without SaslHandshake, and closed the connection"


_NO_MECHANISM, _MECHANISMS = "UNSUPPORTED_SASL_MECHANISM", 10


def _some(one: set[str], other: set[str]) -> set[str]:
    return {*sorted(one | other)[:_MECHANISMS]}


@summed
class Logins(Evidence):
    """Logins that failed; the mechanisms that the listener has, if theirs was not one of them."""

    offered: set[str] = joined(_some, set)


@summed
class Sasl(Rule):
    """A client that cannot log in can do nothing else, and some retry forever."""

    name = "sasl-failures"
    needs_flaws = True
    severity = WARNING
    of = ("client", "host", "mechanism", "error")
    failed = "count"
    title = "A client fails to authenticate."
    when = (
        f"Any failure, or a broker that closes the connection when a SASL token comes without SaslHandshake; "
        f"error at {_LOOP} failures."
    )
    advice = (
        "Check the client's user, password and sasl.mechanism, and whether it sends SaslHandshake. PLAIN "
        "users are in the configuration of the broker's listener; for SCRAM users, see kafka-configs "
        "--describe --entity-type users."
    )
    apis = frozenset({"SaslHandshake", "SaslAuthenticate"})
    counts = Logins

    def feed(self, facts: Facts) -> None:
        """Count failed logins."""
        exchange = facts.exchange
        mechanism = (exchange.request or {}).get("mechanism") or exchange.sasl_mechanism
        for error in facts.errors:
            kept = self.kept[facts.client, exchange.connection.client.ip, mechanism, error]
            kept.add(facts)
            if error == _NO_MECHANISM:
                offered = ((exchange.response or {}).get("mechanisms") or ())[:_MECHANISMS]
                kept.offered = _some(kept.offered, {kept_name(each) for each in offered if each})

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if the broker closed it after a token without SaslHandshake."""
        if row.bare_tokens and row.ended_by == BROKER:
            key = row.client_id or row.client.ip, row.client.ip, row.sasl_mechanism, _NO_HANDSHAKE
            self.kept[key].note(row)

    def _level(self, each: Evidence) -> str:
        return ERROR if each.count >= _LOOP else WARNING

    def _message(self, scope: Scope, each: Logins) -> str:
        by = f" with {listed(scope['mechanism'])}" if scope.get("mechanism") else ""
        offered = f"; the listener has {listed(sorted(each.offered))}" if each.offered else ""
        return f"login{by} failed {times(each.count)}: {', '.join(scope['error'])}{offered}"


# ------------------------------------------------------------------------------------------------------------
# Connections whose login has a lifetime -> clients that do not log in again in time.
# ------------------------------------------------------------------------------------------------------------


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
