"""What clients do -> those that connect or request metadata too often, use versions that brokers reject,
share an ID, or get nothing done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.model import ANSWERED, UNACKNOWLEDGED, UNANSWERED
from kdissect.stats.connection_log import BROKER, HANDSHAKE_APIS
from kdissect.stats.contents import EACH, ONE, SUM, SUMS
from kdissect.stats.findings.rule import Evidence, Minutes, Rule, combined
from kdissect.stats.quantiles import Bounded, Distinct
from kdissect.stats.releases import removed_in
from kdissect.stats.sums import either, join, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Exchange
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Alike, Tally

_MIN_CONNECTIONS = 10
_REQUESTS = 3  # of a connection that is too short
_SHARE = 0.8


@summed
class ShortConnections(Minutes):
    """Short connections, and the number of all."""

    all: int = total()


@summed
class ConnectionChurn(Rule):
    """Each connection costs a TCP and often a TLS handshake, ApiVersions, a login, and memory on the
    broker.
    """

    name = "connection-per-request"
    severity = WARNING
    of = ("client", "host", "broker")
    title = "A client opens a new connection to the same broker for nearly every request."
    when = (
        f"{_MIN_CONNECTIONS} connections from one address to one broker in a minute, {_SHARE:.0%} of them "
        f"with at most {_REQUESTS} requests besides ApiVersions and SASL; clients normally keep one or two "
        "per broker. Connections that the broker ended, and those with a failed login or on which a version "
        "or the client was refused, are not counted."
    )
    advice = "Keep one producer, consumer or admin client for the lifetime of the process."
    counts = ShortConnections

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection, unless its end, or what the broker said, explains that it is short."""
        if row.requests is None or row.ended_by == BROKER or row.is_refused:
            return
        kept = self.kept[row.client_id or row.client.ip, row.client.ip, str(row.broker)]
        kept.all += 1
        if row.requests <= _REQUESTS:
            kept.note(row)

    def _reports(self, each: ShortConnections) -> bool:
        return each.busiest >= _MIN_CONNECTIONS and each.count >= _SHARE * each.all

    def _message(self, _: Scope, each: ShortConnections) -> str:
        return f"{each.count:,} of {each.all:,} connections carried at most {_REQUESTS} requests, {each.peak}"


# ------------------------------------------------------------------------------------------------------------
# Requests in versions that a broker rejects -> clients that keep sending them.
# ------------------------------------------------------------------------------------------------------------


_API_VERSIONS = "ApiVersions"
_UNSUPPORTED = "UNSUPPORTED_VERSION"
_MIN_REJECTED = 5


@summed
class Requests(Evidence):
    """Requests and their connections. For the message: connections that ended, rejected requests, and
    connections on which nothing but ApiVersions came.
    """

    connections: Distinct = merged(Distinct)
    ended: int = total()
    rejected: int = total()
    handshakes: int = total()


@summed
class RejectedApiVersions(Evidence):
    """Rejected ApiVersions requests of a connection, and whether another request succeeded on it."""

    works: bool = either(False)


@summed
class UnsupportedVersions(Rule):
    """ApiVersions may be rejected once per connection and retried in version 0 (KIP-511). Anything else is a
    loop: brokers return an error, or close the connection on an unknown version.
    """

    name = "unsupported-version-loop"
    severity = ERROR
    of = ("client", "API", "broker")
    failed = "count"
    title = "A client keeps using a version that the broker rejects."
    when = (
        f"{_MIN_REJECTED} rejected requests, or {_MIN_REJECTED} connections that end right after one "
        "of these: a rejected ApiVersions; a request in a version that newer Kafka releases removed, and "
        "that this broker never accepted."
    )
    advice = (
        "Upgrade the client library, or set the broker's release in the client if it has an option for that."
    )
    takes = frozenset({ONE, SUM})
    needs_flaws = True
    counts = Requests

    rejected: Bounded[tuple[str, ConnectionKey], RejectedApiVersions] = merged()
    accepted: Bounded[tuple[str, str, int | None], Evidence] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.rejected = Bounded(limits.summary_rows, RejectedApiVersions)
        self.accepted = Bounded(limits.summary_rows, Evidence)

    def feed(self, tally: Tally) -> None:
        """Count rejected requests, and accepted ones: those with a flaw, and sums of those without."""
        if tally.exchange is None:
            if not tally.has_flaw:
                self.accepted[tally.broker, tally.api, tally.keys.api_version].add(tally)
            return
        exchange, connection = tally.exchange, tally.connection
        version = exchange.api_version
        is_refused, is_silent = _UNSUPPORTED in tally.errors, _may_be_disconnected(exchange)
        if tally.api == _API_VERSIONS and is_refused:
            self.rejected[tally.client, connection.key].add(tally)
        elif is_refused or is_silent:
            kept = self.kept[tally.client, tally.broker, tally.api, version, is_silent]
            kept.add(tally)
            kept.connections.add(connection.name)
        elif exchange.response is not None:
            self.accepted[tally.broker, tally.api, version].add(tally)

    def connect(self, row: ConnectionLogRow) -> None:
        """Note that more than rejected ApiVersions requests was answered."""
        rejected = self.rejected.get((row.client_id or row.client.ip, row.key))
        if rejected is not None:
            rejected.works = row.kinds[ANSWERED] > rejected.count

    def findings(self) -> Iterator[RulePart]:
        """Clients whose requests were rejected often."""
        for (client, broker, api, version, is_silent), each in self.kept.items():
            connections = len(each.connections)
            if is_silent:
                # If only one direction was captured, a connection can have any number of them.
                is_loop = connections >= _MIN_REJECTED and each.count <= 2 * connections
                if is_loop and (broker, api, version) not in self.accepted:
                    evidence = combined([each])
                    evidence.ended = connections
                    yield self.part((client, f"{api} v{version}", broker), evidence)
            elif each.count >= _MIN_REJECTED:
                evidence = combined([each])
                evidence.rejected = each.count
                yield self.part((client, f"{api} v{version}", broker), evidence)
        clients: dict[str, Requests] = {}
        for (client, _), rejected in self.rejected.items():
            if not rejected.works:
                evidence = clients.setdefault(client, Requests())
                join(evidence, rejected, Evidence)
                evidence.handshakes += 1
        for client, evidence in clients.items():
            if evidence.handshakes >= _MIN_REJECTED:
                yield self.part((client, None, None), evidence)

    def _message(self, _: Scope, each: Requests) -> str:
        counts = (
            (each.ended, "{:,} connections ended with such a request and no response"),
            (each.rejected, "{:,} requests were rejected"),
            (each.handshakes, "ApiVersions was rejected on {:,} connections, and no other request followed"),
        )
        return "; ".join(text.format(number) for number, text in counts if number)


def _may_be_disconnected(exchange: Exchange) -> bool:
    """Whether it has no response, in a version on which some brokers close the connection."""
    if exchange.kind != UNANSWERED or exchange.announced is not None:
        return False
    if exchange.api_key is None or exchange.api_version is None:
        return False
    return removed_in(exchange.api_key, exchange.api_version) is not None


# ------------------------------------------------------------------------------------------------------------
# Connections -> client IDs that two applications use at the same time.
# ------------------------------------------------------------------------------------------------------------


@summed
class Users(Evidence):
    """Exchanges of a client ID, and the libraries or principals that use it."""

    names: Distinct = merged(Distinct)


@summed
class ClientIds(Rule):
    """Quotas, request logs and metrics use the client ID, so they cannot distinguish applications that share
    one. Replicas of one application share theirs on purpose.
    """

    name = "duplicate-client-ids"
    severity = NOTE
    of = ("client",)
    title = "Two applications use the same client ID."
    when = "Clients with the same ID but different libraries or principals, active at the same time."
    advice = "Give each application a separate client.id; its instances can share it."
    takes = SUMS

    def feed(self, tally: Alike) -> None:
        """Note when an application was active."""
        keys = tally.keys
        if keys.client_id and keys.kind == ANSWERED and keys.api not in HANDSHAKE_APIS:
            self.kept[keys.client_id, keys.software, keys.principal].add(tally)

    def findings(self) -> Iterator[RulePart]:
        """Client IDs of applications that were active at the same time."""
        by_id: dict[str, list[tuple[tuple[str | None, str | None], Evidence]]] = {}
        for (client, *application), each in self.kept.items():
            by_id.setdefault(client, []).append(((application[0], application[1]), each))
        for client, applications in by_id.items():
            for known in (
                [(library, each) for (library, _), each in applications if library is not None],
                [(principal, each) for (_, principal), each in applications if principal is not None],
            ):
                names = {name for name, _ in known}
                if len(names) > 1 and _max_concurrent([each for _, each in known]) > 1:
                    evidence = Users()
                    for name, each in known:
                        join(evidence, each, Evidence)
                        evidence.names.add(name)
                    yield self.part(client, evidence)
                    break

    def _message(self, _: Scope, each: Users) -> str:
        return f"used by {' and '.join(each.names.first(len(each.names)))}"


def _max_concurrent(active: list[Evidence]) -> int:
    """The maximum number active at the same time."""
    spans = [(each.first_ns, each.last_ns) for each in active if each.last_ns > each.first_ns]
    changes = sorted([(first_ns, 1) for first_ns, _ in spans] + [(last_ns, -1) for _, last_ns in spans])
    now = peak = 0
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak


# ------------------------------------------------------------------------------------------------------------
# Metadata requests -> clients that send too many, or for too many topics.
# ------------------------------------------------------------------------------------------------------------


_LARGE_BYTES = 10_000
_SIZE_BYTES = 4  # of the size before a response
_MIN_LARGE, _MIN_SMALL = 30, 120


@summed
class MetadataRequests(Minutes):
    """Metadata requests of a client."""

    bytes: int = total()
    for_all_topics: int = total()

    @property
    def mean(self) -> int:
        """The average size of a response in bytes."""
        return self.bytes // max(1, self.count)


@summed
class MetadataPolling(Rule):
    """Clients refresh metadata every five minutes and after failures. Each response lists every requested
    partition.
    """

    name = "metadata-polling"
    severity = WARNING
    of = ("client",)
    title = "A client requests metadata too often."
    when = (
        f"{_MIN_LARGE} requests in a minute if responses average {_LARGE_BYTES:,} bytes or more, "
        f"{_MIN_SMALL} if they are smaller; a client sends a few when it starts."
    )
    advice = (
        "Request metadata only for the topics that are needed, and keep metadata.max.age.ms at "
        "several minutes (default: 300000)."
    )
    takes = EACH
    apis = frozenset({"Metadata"})
    counts = MetadataRequests

    def feed(self, tally: Tally) -> None:
        """Count requests and bytes of responses."""
        exemplar = tally.exemplar
        if exemplar is None or exemplar.request is None:
            return
        kept = self.kept[tally.client]
        if tally.exchange is None:
            kept.add_noted(tally, tally.noted)
        else:
            kept.add(tally)
        kept.bytes += max(0, tally.response_bytes - _SIZE_BYTES * tally.exchanges)
        topics = exemplar.request.get("topics")
        if topics is None or (exemplar.api_version == 0 and not topics):
            kept.for_all_topics += tally.exchanges

    def _reports(self, each: MetadataRequests) -> bool:
        return each.busiest >= (_MIN_LARGE if each.mean >= _LARGE_BYTES else _MIN_SMALL)

    def _message(self, _: Scope, each: MetadataRequests) -> str:
        return (
            f"{each.count:,} Metadata requests, {each.peak}, {each.for_all_topics:,} for all topics; "
            f"responses average {each.mean:,} bytes"
        )


# ------------------------------------------------------------------------------------------------------------
# Clients none of whose requests succeeds.
# ------------------------------------------------------------------------------------------------------------


_MIN_UNSERVED = 3


@summed
class Served(Evidence):
    """Requests of a client that failed: with an error, or without a whole response; and how many others were
    answered, not counting those of the handshake.
    """

    served: int = total()


@summed
class ClientUnserved(Rule):
    """A client that gets nothing but errors, or no answers, does no work, however few requests it sends among
    those of others.
    """

    name = "client-unserved"
    severity = WARNING
    of = ("client", "host")
    failed = "count"
    title = "All requests of a client fail or stay unanswered."
    when = (
        f"{_MIN_UNSERVED} requests or more of a client ID from one address with an error that is not "
        "expected, or without a whole response, and none, besides ApiVersions and SASL, that succeeded. Left "
        "out where another finding about the client, or about clients at its address, says why."
    )
    advice = "See the other findings and the errors of this client: summary --where 'client_id == \"NAME\"'."
    takes = SUMS
    counts = Served

    def feed(self, tally: Alike) -> None:
        """Count requests."""
        keys = tally.keys
        if not keys.has_request:
            return
        kept = self.kept[tally.client, tally.connection.client.ip]
        failed = tally.no_answer + tally.broken_off + tally.failed
        if failed:
            kept.add(tally, failed)
        if keys.kind in (ANSWERED, UNACKNOWLEDGED) and keys.api not in HANDSHAKE_APIS:
            kept.served += tally.exchanges - failed - tally.abandoned

    def _reports(self, each: Served) -> bool:
        return each.count >= _MIN_UNSERVED and not each.served

    def _message(self, scope: Scope, each: Served) -> str:
        whose = "its" if len(scope["client"]) == 1 else "their"
        return f"none of {whose} requests succeeded; {each.count:,} failed or stayed unanswered"
