"""Connections on which only one end uses TLS, or whose TLS handshake fails -> findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.exchanges.learned import Listeners
from kdissect.model import ANSWERED
from kdissect.phrases import many
from kdissect.stats.connection_log import BROKER, TLS_ALERT
from kdissect.stats.findings.connections import ERROR_AT, ConnectionRule
from kdissect.stats.findings.listeners import Addresses
from kdissect.stats.findings.rule import Evidence, Rule, combined
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import merged, summed, total
from kdissect.stats.survey import TLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import Endpoint
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope


@summed
class Mismatches(Evidence):
    """Failed requests and handshakes; those of them that were answered with a TLS alert."""

    alerts: int = total()


@summed
class TlsPortMismatch(ConnectionRule):
    """A client with the wrong security.protocol for the port retries forever, and its errors look like
    network problems: disconnects and timeouts.
    """

    name = "tls-port-mismatch"
    severity = ERROR
    counts = Mismatches
    cut = "count"
    title = "A client uses TLS on a plaintext listener, or plaintext on a TLS listener."
    when = (
        "Any Kafka request that is answered with a TLS alert; any ClientHello after which the broker ends "
        "the connection without sending a byte, on a listener that serves plaintext."
    )
    advice = "Make the client's security.protocol and port match the broker's listeners."

    needs_flaws = True
    follows = Addresses

    hellos: Bounded[tuple[str, Endpoint], Mismatches] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.hellos = Bounded(limits.summary_rows, Mismatches)

    def feed(self, facts: Facts) -> None:
        """Count the exchange if the broker sent an alert instead of a response."""
        exchange = facts.exchange
        if exchange.kind != ANSWERED and any(anomaly.kind == TLS_ALERT for anomaly in exchange.anomalies):
            self.kept[facts.client, facts.connection.client.ip, facts.broker].add(facts)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its ClientHello was not answered."""
        if is_rejected_hello(row):
            self.hellos[row.client.ip, row.broker].note(row)

    def findings(self) -> Iterator[RulePart]:
        """Both kinds."""
        for key, each in self.kept.items():
            evidence = combined([each])
            evidence.alerts = each.count
            yield self.part(key, evidence)
        for (ip, end), each in self.hellos.items():
            if end in self.followed.plaintext:
                yield self.part(("", ip, end), each)

    def _level(self, _: Evidence) -> str:
        return ERROR

    def _message(self, _: Scope, each: Mismatches) -> str:
        hellos = each.count - each.alerts
        texts = []
        if each.alerts:
            requests = many(each.alerts, "plaintext request")
            texts.append(f"the listener expects TLS: {requests} rejected with a TLS alert")
        if hellos:
            handshakes = many(hellos, "TLS handshake")
            texts.append(
                f"the listener expects plaintext: {handshakes} ended by the broker without a response"
            )
        return "; ".join(texts)


def is_rejected_hello(row: ConnectionLogRow) -> bool:
    """Whether the client started TLS, and the broker ended the connection without sending a byte."""
    return (
        row.protocol == TLS
        and row.tcp is not None
        and row.ended_by == BROKER
        and bool(row.tcp.segments(row.client_side))
        and not row.tcp.segments(1 - row.client_side)
    )


@summed
class ClosedInHandshake(ConnectionRule):
    """The listener does not use TLS or does not trust the certificate, or a proxy has no target."""

    name = "connection-closed-in-handshake"
    severity = WARNING
    of = ("host", BROKER)
    cut = "count"
    title = "A broker ends connections during the TLS handshake."
    when = (
        "Any ClientHello after which the broker ends the connection without sending a byte, on a listener "
        "where no client uses plaintext and that is selected with -d or advertised in the capture; "
        f"error at {ERROR_AT} connections."
    )
    advice = (
        "Check that the listener uses TLS, and check its certificates. Behind a load balancer, check that it "
        "has a healthy target."
    )
    follows = Addresses

    listeners: Listeners = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.listeners = Listeners(limits)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its ClientHello was not answered."""
        if is_rejected_hello(row):
            if row.is_listener:
                self.listeners.add(row.broker)
            self.kept[row.client.ip, row.broker].note(row)

    def findings(self) -> Iterator[RulePart]:
        """Clients whose handshakes fail."""
        for (ip, end), each in self.kept.items():
            if self.is_listener(end) and end not in self.followed.plaintext:
                yield self.part((ip, end), each)

    def is_listener(self, end: Endpoint) -> bool:
        """Whether a broker responds there, -d names it, or it is advertised."""
        return any(end in ends for ends in (self.listeners, self.followed.known, self.followed.named))

    def _message(self, _: Scope, each: Evidence) -> str:
        return f"{many(each.count, 'TLS handshake')} ended by the broker without a response"
