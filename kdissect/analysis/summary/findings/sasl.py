"""Answers to logins -> clients that cannot log in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import ERROR, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow

_LOOP = 10


class Sasl(Rule):
    """Who cannot log in does nothing else, and some clients try for ever."""

    name = "sasl-failures"
    severity = WARNING
    title = "A client does not get past its login."
    when = f"Always, because a login that works never fails; from {_LOOP} on it is an error."
    advice = "Compare the client's user, password and sasl.mechanism with what the broker's listener has."
    apis = frozenset({"SaslHandshake", "SaslAuthenticate"})

    def feed(self, facts: Facts) -> None:
        """Count refusals."""
        exchange = facts.exchange
        mechanism = (exchange.request or {}).get("mechanism") or exchange.sasl_mechanism
        for error in facts.errors:
            self.kept[facts.client, exchange.connection.client.ip, mechanism, error].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of all."""
        for (client, ip, mechanism, error), each in self.kept.items():
            times = "once" if each.count == 1 else f"{each.count:,} times"
            by = f" by {mechanism}" if mechanism else ""
            severity = ERROR if each.count >= _LOOP else WARNING
            yield self.found(f"client {client} at {ip}", f"login{by} failed {times}: {error}", each, severity)
