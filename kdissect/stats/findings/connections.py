"""Connections -> findings: brokers that are silent or end connections, clients that connect again and again.

Evidence of a connection is its ID, for ``read --connection``.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.anomalies import ERROR, WARNING
from kdissect.exchanges.outcomes import AT_ONCE_NS
from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.model import ANSWERED, ORPHAN, UNANSWERED
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import duration, many
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.findings.rule import Evidence, Minutes, Rule
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import joined, largest, merged, summed, total
from kdissect.stats.survey import KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import RulePart, Scope

ERROR_AT = 3
"""Connections from which a finding is an error: one or two may be a broker that restarts."""


class ConnectionRule(Rule):
    """A rule about connections. Its keys are client ID or address, client address and broker; in rules about
    TCP, those of a proxy if it opened the connection.
    """

    __slots__ = ()

    of: ClassVar[tuple[str, ...]] = (CLIENT, "host", BROKER)

    @abstractmethod
    def connect(self, row: ConnectionLogRow) -> None:
        """Add a connection that has ended."""

    def count(self, row: ConnectionLogRow, time_ns: int | None = None) -> Any:
        """Count a connection that the rule applies to, at a time; None: when it began. Returns its counts."""
        kept = self.kept[row.client_id or row.client.ip, row.client.ip, str(row.broker)]
        kept.note(row, time_ns)
        return kept

    def _level(self, each: Evidence) -> str:
        return ERROR if each.count >= ERROR_AT else self.severity


# ------------------------------------------------------------------------------------------------------------
# Connections with unanswered requests -> the cause: the broker process stalled, or it ended the connection.
# ------------------------------------------------------------------------------------------------------------


_LARGE_REQUEST = 10_000  # bytes: below that, the size is hardly the reason
_SILENT_NS, _UNSERVED_NS = 5 * SECOND_NS, SECOND_NS
_RIGHT_AFTER_NS = SECOND_NS


@summed
class Waits(Evidence):
    """Connections with unanswered requests, the longest wait, and the API of one of them."""

    longest_ns: int = largest()
    requests: int = total()


@summed
class BrokerSilent(ConnectionRule):
    """The broker's machine acknowledges, so the network is fine, but its process does not respond: it is
    paused, swapping, collecting garbage, or out of threads.
    """

    name = "broker-silent"
    severity = WARNING
    failed = "requests"
    lost = "longest_ns"
    title = "A broker acknowledges requests at the TCP level but does not respond."
    when = (
        "A request that was acknowledged at the TCP level still had no response when the client closed the "
        f"connection or the capture ended, {_SILENT_NS // SECOND_NS} s or more after it was sent "
        f"({_UNSERVED_NS // SECOND_NS} s if the connection never had a response), and nothing else came from "
        "the broker on the connection in that time. Requests that brokers hold (long polls, JoinGroup, "
        "SyncGroup), the throttle time of a quota, and connections that the broker ended are not counted. "
        f"Error at {ERROR_AT} connections."
    )
    advice = (
        "Check the broker process: garbage collection pauses, disk stalls, request handler idle ratio. "
        "The network path is probably fine, unless a proxy acknowledges for the broker."
    )
    counts = Waits

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its requests were acknowledged but not answered."""
        if row.ended_by == BROKER or not is_kafka(row) or row.gaps:
            return
        assert row.tcp is not None
        until_ns = (row.closed_ns if row.end is None else row.end.time_ns) or 0
        came_too_late = row.last_call is not None and row.last_call[0] < until_ns < row.last_call[1]
        since_ns = row.last_call[0] if came_too_late and row.last_call else row.outstanding_ns
        if since_ns is None:
            return
        # As long as it responds to earlier requests, it is not silent; while a quota mutes the client, it
        # does not read.
        since_ns = max(since_ns, row.tcp.sent_ns(1 - row.client_side), row.muted_ns)
        waited_ns = until_ns - since_ns
        ever = row.kinds[ANSWERED] + row.kinds[ORPHAN] > came_too_late or not row.from_start
        acknowledged = row.seen[1 - row.client_side] and not row.tcp.unacknowledged(row.client_side)
        if acknowledged and waited_ns >= (_SILENT_NS if ever else _UNSERVED_NS):
            kept = self.count(row, since_ns)
            kept.last_ns = max(kept.last_ns, until_ns)
            kept.requests += row.outstanding_calls + came_too_late
            kept.longest_ns = max(kept.longest_ns, waited_ns)

    def _message(self, _: Scope, each: Waits) -> str:
        return (
            f"{many(each.requests, 'request')} on {many(each.count, 'connection')} acknowledged at the TCP "
            f"level, but not answered before the connection ended, up to {duration(each.longest_ns)} later"
        )


def is_kafka(row: ConnectionLogRow) -> bool:
    """Whether it is a Kafka connection, on a plaintext listener, of which TCP was analyzed."""
    return row.protocol == KAFKA and row.tcp is not None and not row.tls_alerts


def is_greeted(row: ConnectionLogRow) -> bool:
    """Whether nothing was answered but ApiVersions."""
    return row.kinds[ANSWERED] > 0 and not row.served and row.sasl_mechanism is None


@summed
class Resets(Evidence):
    """Connections that were reset; those of them with outstanding requests, and these requests."""

    outstanding: int = total()
    requests: int = total()


@summed
class BrokerResets(ConnectionRule):
    """An RST comes from a process that was killed or has crashed, from a proxy, or from a firewall."""

    name = "broker-resets"
    severity = WARNING
    failed = "requests"
    title = "A broker resets connections (RST) with requests outstanding."
    when = (
        "Any connection with a request outstanding; then all that this broker reset count. Error at "
        f"{ERROR_AT} "
        "connections. A broker that crashes or is killed can reset each open connection once."
    )
    advice = (
        "Look for broker restarts, connection limits (max.connections, max.connections.per.ip), proxies, and "
        "firewalls that drop idle connections."
    )
    counts = Resets

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if the broker reset it."""
        if is_kafka(row) and row.ending == f"{BROKER} RST":
            kept = self.count(row, row.end and row.end.time_ns)
            kept.requests += row.outstanding
            kept.outstanding += row.outstanding > 0

    def findings(self) -> Iterator[RulePart]:
        """Clients of brokers that reset connections with requests outstanding."""
        brokers = {broker for (*_, broker), each in self.kept.items() if each.requests}
        for key, each in self.kept.items():
            if key[-1] in brokers:
                yield self.part(key, each)

    def _message(self, _: Scope, each: Resets) -> str:
        some = "" if each.outstanding == each.count else f", {each.outstanding:,} of them"
        return (
            f"{many(each.count, 'connection')} reset{some} with {many(each.requests, 'outstanding request')}"
        )


def span_of(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The smallest and largest of two ranges."""
    return min(one[0], other[0]), max(one[1], other[1])


@summed
class Closes(Evidence):
    """Connections closed right after a request, the APIs of those requests, and the smallest and largest of
    their sizes; those of them closed at Metadata with nothing answered before but ApiVersions.
    """

    requests: Distinct = merged(Distinct)
    sizes: tuple[int, int] = joined(span_of, lambda: (NEVER_NS, 0))
    greeted: int = total()


@summed
class BrokerCloses(ConnectionRule):
    """A broker that cannot parse a request, or does not accept it, closes the connection."""

    name = "broker-closes"
    severity = WARNING
    cut = "count"
    title = "A broker closes connections (FIN) right after a request, without a response."
    when = (
        f"Within {_RIGHT_AFTER_NS // SECOND_NS} s of a request; of one that brokers hold on purpose (long "
        f"polls, JoinGroup, SyncGroup), within {AT_ONCE_NS // MILLISECOND_NS} ms, if no other request of "
        f"that API was answered on the connection. Error at {ERROR_AT} connections."
    )
    advice = (
        "See the broker's log for the reason: an unsupported version, a request larger than "
        "socket.request.max.bytes, a listener that expects SASL, or a restart."
    )
    counts = Closes

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if the broker closed it right after a request."""
        if not is_kafka(row) or row.ending != f"{BROKER} FIN" or row.bare_tokens:  # those are sasl-failures
            return
        if row.malformed:  # the client's fault
            return
        assert row.tcp is not None
        api, within_ns = row.outstanding_api, _RIGHT_AFTER_NS
        if not row.outstanding_calls:
            api, within_ns = row.held_api, AT_ONCE_NS + (row.tcp.connect_ns or 0)  # and a round trip
        if api is not None and row.idle_ns is not None and row.idle_ns <= within_ns:
            kept = self.count(row, row.end and row.end.time_ns)
            kept.requests.add(api)
            kept.greeted += is_greeted(row) and api.startswith("Metadata ")
            kept.sizes = span_of(kept.sizes, (row.outstanding_bytes, row.outstanding_bytes))

    def _message(self, _: Scope, each: Closes) -> str:
        smallest, largest = each.sizes
        size = f" of {smallest:,} bytes" if smallest >= _LARGE_REQUEST else ""
        size += " or more" if size and largest > smallest else ""
        requests = ", ".join(each.requests.first(ERROR_AT))
        login = "; ApiVersions was answered: the listener probably expects a login (SASL)"
        login = login if each.greeted == each.count else ""
        return f"{many(each.count, 'connection')} closed right after {requests}{size}{login}"


_LOOP = 10  # connections in a minute
_SHARE = 0.8


@summed
class Loops(Minutes):
    """Connections on which no request was served, and how they ended; the number of all connections; those of
    the former on which ApiVersions was answered.
    """

    all: int = total()
    greeted: int = total()
    ends_by: Distinct = merged(Distinct)


@summed
class ReconnectLoop(ConnectionRule):
    """A client that connects but gets nothing done: each attempt costs both sides a handshake."""

    name = "reconnect-loop"
    severity = ERROR
    cut = "count"
    title = "A client keeps reconnecting, and most of its connections end before a request is answered."
    when = (
        f"{_LOOP} connections from one address to one broker in a minute, {_SHARE:.0%} of which end without "
        "a response to anything except ApiVersions and SASL requests. Connections on which a login fails, or "
        "a version or the client is refused (REBOOTSTRAP_REQUIRED), are not counted: that is the reason."
    )
    advice = (
        "Check how the connections end, and the client's log. Raise reconnect.backoff.max.ms to reduce the "
        "load."
    )
    counts = Loops

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection, and whether a request was served on it."""
        if is_kafka(row) and row.from_start and not (row.is_refused or row.fails_login):
            kept = self.kept[row.client_id or row.client.ip, row.client.ip, str(row.broker)]
            kept.all += 1
            is_served = row.served or row.kinds[ORPHAN]  # what an orphan responds to is not known
            if not is_served and (row.outstanding or row.ended_by == BROKER or row.kinds[UNANSWERED]):
                kept.note(row)
                kept.greeted += is_greeted(row)
                kept.ends_by.add(row.ending)

    def _reports(self, each: Loops) -> bool:
        return each.busiest >= _LOOP and each.count >= _SHARE * each.all

    def _message(self, _: Scope, each: Loops) -> str:
        nothing = "nothing answered but ApiVersions" if each.greeted == each.count else "no request answered"
        return (
            f"{each.count:,} of {many(each.all, 'connection')} had {nothing}, {each.peak}; ended "
            f"by {', '.join(each.ends_by.first(ERROR_AT))}"
        )
