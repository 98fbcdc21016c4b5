"""Requests in versions that a broker does not take -> clients that do not learn from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.analysis.releases import removed_in
from kdissect.analysis.summary.bounded import Bounded
from kdissect.analysis.summary.distinct import Distinct
from kdissect.analysis.summary.findings.evidence import Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.anomalies import ERROR
from kdissect.model import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow
    from kdissect.limits import Limits
    from kdissect.model import Exchange

_API_VERSIONS = "ApiVersions"
_UNSUPPORTED = "UNSUPPORTED_VERSION"
_MOST = 5


class Requests(Evidence):
    """Requests, and on which connections."""

    __slots__ = ("connections",)

    def __init__(self) -> None:
        super().__init__()
        self.connections = Distinct()

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Requests)
        self.connections.merge(other.connections)


class Greeting(Evidence):
    """Refused ApiVersions requests of a connection, and whether something else worked on it."""

    __slots__ = ("works",)

    def __init__(self) -> None:
        super().__init__()
        self.works = False

    def merge(self, other: Evidence) -> None:
        """Take in those of another part of the same captures."""
        super().merge(other)
        assert isinstance(other, Greeting)
        self.works = self.works or other.works


class Unsupported(Rule):
    """ApiVersions may be refused once a connection, and asked in version 0 then (KIP-511). All else is a
    loop: brokers answer with an error, or hang up on a version that they do not know.
    """

    name = "unsupported-version-loop"
    severity = ERROR
    title = "A client goes on with a version that the broker refuses."
    when = (
        f"{_MOST} requests that are refused; {_MOST} connections that end with a request in a version that "
        f"Kafka has removed, if the broker never took it; {_MOST} connections on which ApiVersions is "
        "refused and nothing follows."
    )
    advice = "Upgrade the client library, or tell it the broker's release where it takes such an option."
    counts = Requests

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.greetings: Bounded[tuple[str, str], Greeting] = Bounded(limits.summary_rows, Greeting)
        self.taken: Bounded[tuple[str, str, int | None], Evidence] = Bounded(limits.summary_rows, Evidence)

    def feed(self, facts: Facts) -> None:
        """Count what is refused, and what works."""
        exchange = facts.exchange
        version, connection = exchange.api_version, exchange.connection.id
        is_refused, is_silent = _UNSUPPORTED in facts.errors, _may_be_hung_up_on(exchange)
        greeting = facts.client, connection
        if facts.api == _API_VERSIONS and is_refused:
            self.greetings[greeting].add(facts)
        elif is_refused or is_silent:
            kept = self.kept[facts.client, facts.broker, facts.api, version, is_silent]
            kept.add(facts)
            kept.connections.add(connection)
        elif exchange.response is not None:
            self.taken[facts.broker, facts.api, version].add(facts)
            if greeting in self.greetings:
                self.greetings[greeting].works = True

    def merge(self, other: Any) -> None:
        """Take in what the same rule counted of other connections."""
        super().merge(other)
        self.greetings.merge(other.greetings)
        self.taken.merge(other.taken)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of those who were refused often."""
        for (client, broker, api, version, is_silent), each in self.kept.items():
            about, connections = f"client {client}, {api} v{version}, broker {broker}", len(each.connections)
            if is_silent:
                # Where only one direction was captured, a connection has any number of them.
                is_loop = connections >= _MOST and each.count <= 2 * connections
                if is_loop and (broker, api, version) not in self.taken:
                    sentence = f"{connections:,} connections end with such a request, and without an answer"
                    yield self.found(about, sentence, each)
            elif each.count >= _MOST:
                yield self.found(about, f"{each.count:,} requests were refused", each)
        clients: dict[str, tuple[int, Evidence]] = {}
        for (client, _), greeting in self.greetings.items():
            if not greeting.works:
                connections, evidence = clients.get(client, (0, Evidence()))
                evidence.merge(greeting)
                clients[client] = connections + 1, evidence
        for client, (connections, evidence) in clients.items():
            if connections >= _MOST:
                sentence = f"ApiVersions was refused on {connections:,} connections, and nothing followed"
                yield self.found(f"client {client}", sentence, evidence)


def _may_be_hung_up_on(exchange: Exchange) -> bool:
    """Whether it had no answer, in a version that some brokers do not answer."""
    if exchange.kind != UNANSWERED or exchange.api_key is None or exchange.api_version is None:
        return False
    return removed_in(exchange.api_key, exchange.api_version) is not None
