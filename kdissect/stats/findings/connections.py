"""Connections and their TCP analysis -> findings: failed connections, lost packets, ends that stop reading.

Evidence of a connection is its ID, for ``read --connection``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.anomalies import ERROR, WARNING
from kdissect.exchanges.clusters import advertised
from kdissect.exchanges.learned import Listeners
from kdissect.exchanges.outcomes import AT_ONCE_NS
from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.model import ANSWERED, ORPHAN, UNANSWERED, Endpoint
from kdissect.net.analysis import ONE_WAY, OPENED, REFUSED, STALL_NS, UNOPENED
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import duration, many
from kdissect.stats.connection_log import BROKER, CLIENT, HANDSHAKE_APIS, TLS_ALERT
from kdissect.stats.contents import EACH, ONE, SUM
from kdissect.stats.findings.rule import ADVERTISING, Bursts, Evidence, Minutes, Rule, combined
from kdissect.stats.quantiles import Bounded, Distinct
from kdissect.stats.sums import Summed, initialize, join, joined, largest, latest, merged, summed, total
from kdissect.stats.survey import KAFKA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey
    from kdissect.net.dns import Resolved
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally

_PROXY = "proxy"
TLS = "TLS"

_ERROR_AT = 3
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
        return ERROR if each.count >= _ERROR_AT else self.severity


def tcp_key(row: ConnectionLogRow) -> tuple[str, str, str, str]:
    """The key of a connection in a rule about TCP, which ends at a proxy if there is one."""
    if row.hop is not None:
        return "", "", row.hop.ip, str(row.broker)
    return row.client_id or row.client.ip, row.client.ip, "", str(row.broker)


TCP_ENDS = (CLIENT, "host", _PROXY, BROKER)


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
        f"Error at {_ERROR_AT} connections."
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
        f"{_ERROR_AT} "
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
        f"that API was answered on the connection. Error at {_ERROR_AT} connections."
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
        requests = ", ".join(each.requests.first(_ERROR_AT))
        login = "; ApiVersions was answered: the listener probably expects a login (SASL)"
        login = login if each.greeted == each.count else ""
        return f"{many(each.count, 'connection')} closed right after {requests}{size}{login}"


# ------------------------------------------------------------------------------------------------------------
# Connections that never opened -> listeners that cannot be reached.
#
# Only attempts of clients to reach Kafka listeners count. A scanner tries many endpoints that are not Kafka
# listeners; a flood opens more connections than any client would, or sends each SYN only once.
# ------------------------------------------------------------------------------------------------------------


_SCANNED = 20  # endpoints that are not listeners
_FLOOD = 1000  # attempts in ten seconds: clients wait at least 50 ms between two attempts


@summed
class Attempts(Bursts):
    """Failed attempts to connect, and their SYN retransmissions."""

    repeated: int = total()
    refused: int = total()
    one_way: int = total()
    reached: Counter[str] = total(Counter)

    @property
    def result(self) -> str:
        """Whether other attempts of the clients succeeded, if that is known and the same for all."""
        results = [*self.reached]
        return f"; {results[0]}" if len(results) == 1 and results != [_UNKNOWN] else ""

    @property
    def failures(self) -> str:
        """``3 connections refused and 2 without a SYN-ACK``."""
        counts = (
            (self.refused, "refused"),
            (self.count - self.refused - self.one_way, "without a SYN-ACK"),
            (self.one_way, "whose SYN-ACK was never acknowledged"),
        )
        kinds = [(count, text) for count, text in counts if count]
        texts = [f"{count:,} {text}" for count, text in kinds[1:]]
        return " and ".join([f"{many(kinds[0][0], 'connection attempt')} {kinds[0][1]}", *texts])


@summed
class Unreachable(ConnectionRule):
    """Base of rules about connections that never opened."""

    of = ("host", BROKER)
    cut = "count"
    lost = "length_ns"
    takes = EACH | {SUM}
    apis = ADVERTISING
    counts = Attempts
    openings: ClassVar[frozenset[str]] = frozenset()

    known: Listeners = merged()
    listeners: Listeners = merged()
    named: Listeners = merged()
    opened: Bounded[tuple[str, Endpoint], Evidence] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.known = Listeners(limits)  # where brokers respond; and the addresses of clients, with port 0
        self.listeners = Listeners(limits)  # forced, or known from a first pass
        self.named = Listeners(limits)  # advertised
        self.opened = Bounded(limits.summary_rows, Evidence)

    def feed(self, tally: Tally) -> None:
        """Note the addresses of brokers and clients, and those that are advertised."""
        if (exemplar := tally.exemplar) is None:
            self.known.add(tally.connection.broker)
            self.known.add(Endpoint(tally.connection.client_end.ip, 0))
        else:
            for host, port in advertised(exemplar):
                self.named.add(Endpoint(host, port))

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it did not open; note when one last did."""
        if row.opening in self.openings:
            if row.is_listener:
                self.listeners.add(row.broker)
            self.attempt(row)
        elif row.opening == OPENED:
            self.opened[row.client_end.ip, row.broker].note(row)

    def attempt(self, row: ConnectionLogRow) -> None:
        """Count a connection that did not open."""
        assert row.tcp is not None
        kept = self.kept[row.client.ip, row.broker]
        kept.note(row)
        kept.repeated += row.tcp.syn_retransmissions
        kept.refused += row.opening == REFUSED
        kept.one_way += row.opening == ONE_WAY

    def tried(self, *, known: bool = True) -> Iterator[tuple[str, Endpoint, Attempts]]:
        """Attempts of clients to reach listeners that are known, or all others."""
        others: dict[str, int] = {}
        for ip, broker in self.kept:
            others[ip] = others.get(ip, 0) + (not self.is_known(broker) and broker not in self.named)
        for (ip, broker), each in self.kept.items():
            is_client = Endpoint(ip, 0) in self.known or each.count >= _ERROR_AT
            if (
                self.is_known(broker) == known
                and others[ip] < _SCANNED
                and each.busiest <= _FLOOD
                and is_client
            ):
                yield ip, broker, each

    def is_known(self, broker: Endpoint) -> bool:
        """Whether a broker responds there, or -d names it; being advertised is not enough."""
        return broker in self.known or (broker in self.listeners and broker not in self.named)

    def settled(self, ip: str, broker: Endpoint, attempts: Attempts) -> Attempts:
        """The attempts, with whether others of the client succeeded."""
        attempts, opened = combined([attempts]), self.opened.get((ip, broker))
        if opened is None:  # or the table was full
            attempts.reached = Counter([_NONE if self.opened.other is None else _UNKNOWN])
        else:
            attempts.reached = Counter([_LATER if opened.last_ns > attempts.last_ns else _EARLIER])
        return attempts

    def _level(self, each: Any) -> str:
        never_later = not (each.reached[_LATER] or each.reached[_UNKNOWN])
        return ERROR if each.count >= _ERROR_AT and never_later else WARNING


_NONE, _LATER, _EARLIER = "no attempt succeeded", "later ones succeeded", "earlier ones succeeded"
_UNKNOWN = ""


@summed
class ConnectionRefused(Unreachable):
    """An RST to a SYN comes from a machine that is up but does not listen on the port, or from a firewall."""

    name = "connection-refused"
    severity = WARNING
    title = "Connections to a Kafka listener are refused."
    when = (
        "A connection to a broker is refused, even once. Brokers are endpoints that respond to Kafka "
        f"requests in the capture, and those selected with -d. Error at {_ERROR_AT} attempts if no later one "
        "succeeds. Scans and floods are not reported."
    )
    advice = (
        "Check that the broker is running and listening there: its log, its listeners setting, ss -ltn on "
        "its host. If later connections succeeded, it was probably restarting."
    )
    openings = frozenset({REFUSED})

    def findings(self) -> Iterator[RulePart]:
        """Clients that were refused."""
        for ip, broker, each in self.tried():
            yield self.part((ip, broker), self.settled(ip, broker, each))

    def _message(self, _: Scope, each: Attempts) -> str:
        return f"{many(each.count, 'connection')} refused{each.result}"


@summed
class ConnectTimeout(Unreachable):
    """SYNs without an answer, or whose SYN-ACK is never acknowledged: packets are dropped on the way to the
    broker, or on the way back, or the machine is gone.
    """

    name = "connect-timeout"
    severity = WARNING
    title = "Attempts to connect to a Kafka listener get no answer, or the answer does not reach the client."
    when = (
        "Any attempt whose SYN was retransmitted without an answer, or whose SYN-ACK was "
        "retransmitted but never acknowledged, to the same endpoints as for "
        f"connection-refused; error at {_ERROR_AT} attempts if no later one succeeds."
    )
    advice = (
        "Check firewalls, security groups and routes between client and broker, and that the broker's host "
        "is up. If there are SYN-ACKs, check the way back: asymmetric routes, and stateful firewalls that "
        "see only one direction."
    )
    openings = UNOPENED - {REFUSED}

    def findings(self) -> Iterator[RulePart]:
        """Clients without an answer. Floods send each SYN only once."""
        for ip, broker, each in self.tried():
            if each.repeated or each.one_way:
                yield self.part((ip, broker), self.settled(ip, broker, each))

    def _message(self, _: Scope, each: Attempts) -> str:
        way = "; the path works in one direction only" if each.one_way else ""
        return f"{each.failures}, {many(each.repeated, 'SYN retransmission')}{way}{each.result}"


_ATTEMPT_NS = 5 * SECOND_NS
_LOOKING = HANDSHAKE_APIS | ADVERTISING
_MAX_ADDRESSES = 64  # of a name


class ResolvedNames:
    """The addresses of names, as DNS responses say; empty: there is no such name. Holds at most
    ``Limits.resolved_names``, those that were seen last.
    """

    __slots__ = ("_max_names", "addresses")

    def __init__(self, limits: Limits) -> None:
        self.addresses: dict[str, set[str]] = {}
        self._max_names = limits.resolved_names

    def add(self, response: Resolved) -> None:
        """Add a response."""
        self._add(response.name, set(response.addresses or ()), exists=response.addresses is not None)

    def by_host(self) -> dict[str, set[str]]:
        """The addresses of all names, also by what remains of a name without its last labels, which may be
        those of a search domain.
        """
        hosts: dict[str, set[str]] = {}
        for name, addresses in self.addresses.items():
            labels = name.split(".")
            for end in range(1, len(labels) + 1):
                host = ".".join(labels[:end])
                if addresses or end == len(labels):
                    hosts.setdefault(host, set()).update(addresses)
        return hosts

    def merge(self, other: ResolvedNames) -> None:
        """Add those of another."""
        for name, addresses in other.addresses.items():
            self._add(name, addresses, exists=False)

    def _add(self, name: str, addresses: set[str], *, exists: bool) -> None:
        if exists and not addresses:  # it has none of one family
            return
        before = self.addresses.pop(name, set())
        self.addresses[name] = before | addresses if len(before) < _MAX_ADDRESSES else before
        if len(self.addresses) > self._max_names:
            del self.addresses[next(iter(self.addresses))]


@summed
class Advertised(Evidence):
    """Responses that name a broker, and the times of the first ones."""

    def soon_before(self, attempts: Attempts) -> bool:
        """Whether one of the first attempts came soon after one of these responses."""
        return any(0 <= later - time <= _ATTEMPT_NS for time in self.times for later in attempts.times)


@summed
class Unreached(Evidence):
    """Attempts to connect to an advertised address, or responses that name one that does not exist; how it is
    known.
    """

    attempts: Attempts = merged(Attempts)
    how: Distinct = merged(Distinct)


_GOT = 3
_ADVERTISES = "advertises the"


@summed
class Looker(Summed):
    """What a client at an address does: exchanges that do more than look for brokers; those that filters
    hide; whether it is on the machine of a broker.
    """

    others: int = total()
    hidden: int = total()
    is_beside: bool = largest(start=False)

    @property
    def is_stuck(self) -> bool:
        """Whether it does nothing but look for brokers that are elsewhere."""
        return not (self.others or self.hidden or self.is_beside)


@summed
class AdvertisedUnreachable(Unreachable):
    """Clients use their first connection to learn the addresses that brokers advertise. A client that cannot
    reach those addresses seems to connect, then hangs.
    """

    name = "advertised-listener-unreachable"
    severity = ERROR
    cut = "count"
    title = "A broker advertises an address that clients cannot connect to."
    when = (
        "All attempts to connect to an advertised address failed, or DNS says that its host name does not "
        "exist, or it is a loopback, unspecified or link-local address (localhost, 0.0.0.0) and the client, "
        f"which is not on the broker's machine, got it in {_GOT} responses and does nothing but look for "
        "brokers; not if filters hide some of its exchanges. A warning if the capture has no DNS response "
        f"for the host name and, within {_ATTEMPT_NS // SECOND_NS} s of the response that advertised it, a "
        "connection attempt to that port failed, at an address not known to be a broker's."
    )
    advice = (
        "Set the broker's advertised.listeners to an address that its clients can resolve and reach, with a "
        "listener for each network that has clients."
    )

    advertised: Bounded[tuple[str, int, str], Advertised] = merged()
    names: ResolvedNames = merged()
    lookers: Bounded[str, Looker] = merged()

    def __init__(self, limits: Limits) -> None:
        Unreachable.__init__(self, limits)
        self.lookers = Bounded(limits.summary_rows, Looker)
        self.advertised = Bounded(limits.summary_rows, Advertised)
        self.names = ResolvedNames(limits)

    def feed(self, tally: Tally) -> None:
        """Note the addresses of brokers and clients, what is advertised to which client, and what it does."""
        Unreachable.feed(self, tally)
        client_ip = tally.connection.client.ip
        if (exemplar := tally.exemplar) is None:
            looker = self.lookers[client_ip]
            looker.hidden -= tally.exchanges
            if tally.api not in _LOOKING:
                looker.others += tally.exchanges
        else:
            for host, port in advertised(exemplar):
                self.advertised[host, port, client_ip].take_noted(tally, tally.completed)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it did not open; note what its client does."""
        if row.opening in UNOPENED:
            self.attempt(row)
        elif row.opening == OPENED:
            self.known.add(row.broker)
        if row.exchanges:
            looker = self.lookers[row.client.ip]
            looker.hidden += row.exchanges
            looker.is_beside = looker.is_beside or row.client.ip == row.broker.ip

    def resolved(self, response: Resolved) -> None:
        """Note the addresses of a name."""
        self.names.add(response)

    def findings(self) -> Iterator[RulePart]:
        """Advertised addresses that clients could not connect to, and names that do not exist."""
        named: dict[tuple[str, int], list[tuple[str, Advertised]]] = {}
        by_host = self.names.by_host()
        for (host, port, ip), each in self.advertised.items():
            named.setdefault((ip, port), []).append((host, each))
            if by_host.get(_normalized(host)) == set():
                yield self._part(ip, f"{host}:{port}", "DNS has no such name (NXDOMAIN)", each)
            looker = self.lookers.get(ip)
            if looker is not None and looker.is_stuck and each.count >= _GOT and (what := _astray(host, ip)):
                yield self._part(ip, f"{host}:{port}", what, each)
        for ip, broker, attempts in self.tried(known=False):
            for host, reported in named.get((ip, broker.port), ()):
                name = f"{host}:{broker.port}"
                addresses = by_host.get(_normalized(host))
                if host == broker.ip:
                    yield self._part(ip, str(broker), "", attempts)
                elif addresses and broker.ip in addresses:
                    yield self._part(ip, name, f"{broker.ip} according to DNS", attempts)
                elif addresses is None and not is_address(host) and reported.soon_before(attempts):
                    yield self._part(ip, name, f"probably at {broker.ip}", attempts, WARNING)

    def _part(
        self, ip: str, broker: str, how: str, seen: Advertised | Attempts, severity: str = ERROR
    ) -> RulePart:
        evidence = Unreached()
        join(evidence, seen, Evidence)
        if isinstance(seen, Attempts):
            evidence.attempts.merge(seen)
        if how:
            evidence.how.add(how)
        return self.part((ip, broker), evidence, severity)

    def _message(self, _: Scope, each: Unreached) -> str:
        texts = each.how.first(_ERROR_AT)
        if each.attempts.count:
            texts.append(f"{each.attempts.failures}, none succeeded")
        says_so = texts and texts[0].startswith(_ADVERTISES)
        return "; ".join(texts if says_so else ["advertised in Metadata", *texts])

    def _level(self, _: Evidence) -> str:
        return ERROR


def _normalized(host: str) -> str:
    return host.rstrip(".").lower()


def _astray(host: str, client: str) -> str:
    """What an advertised address means that leads a client to its own machine, or nowhere: loopback,
    unspecified or link-local, for a client that is not on loopback itself. Empty: it does not.
    """
    address, own = _address("127.0.0.1" if _normalized(host) == "localhost" else host), _address(client)
    if address is None or own is None or own.is_loopback:
        return ""
    if address.is_loopback or address.is_unspecified:
        kind = "loopback" if address.is_loopback else "unspecified"
        return f"{_ADVERTISES} {kind} address {host}: clients elsewhere connect to themselves"
    is_far = address.is_link_local and not own.is_link_local
    return f"{_ADVERTISES} link-local address {host}: clients elsewhere cannot reach it" if is_far else ""


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """An address, as IPv4 if it is a mapped one (RFC 4291, 2.5.5.2)."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_address(host: str) -> bool:
    """Whether a host is named by its address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------------
# Connections on which only one end uses TLS, or whose TLS handshake fails.
# ------------------------------------------------------------------------------------------------------------


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

    takes = frozenset({ONE, SUM})
    needs_flaws = True

    plaintext: Listeners = merged()
    hellos: Bounded[tuple[str, Endpoint], Mismatches] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.plaintext = Listeners(limits)
        self.hellos = Bounded(limits.summary_rows, Mismatches)

    def feed(self, tally: Tally) -> None:
        """Note listeners that respond in plaintext, and alerts."""
        exchange = tally.exchange
        if tally.kind == ANSWERED:
            self.plaintext.add(tally.connection.broker)
        elif exchange is not None and any(anomaly.kind == TLS_ALERT for anomaly in exchange.anomalies):
            self.kept[tally.client, tally.connection.client.ip, tally.broker].add(tally)

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
            if end in self.plaintext:
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
        f"error at {_ERROR_AT} connections."
    )
    advice = (
        "Check that the listener uses TLS, and check its certificates. Behind a load balancer, check that it "
        "has a healthy target."
    )
    takes = EACH | {SUM}
    apis = ADVERTISING

    plaintext: Listeners = merged()
    listeners: Listeners = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.plaintext = Listeners(limits)
        self.listeners = Listeners(limits)

    def feed(self, tally: Tally) -> None:
        """Note listeners, those that are advertised, and those that respond in plaintext."""
        self.listeners.add(tally.connection.broker)
        if tally.kind == ANSWERED:
            self.plaintext.add(tally.connection.broker)
        if (exemplar := tally.exemplar) is not None:
            self.listeners.learn(exemplar)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its ClientHello was not answered."""
        if is_rejected_hello(row):
            if row.is_listener:
                self.listeners.add(row.broker)
            self.kept[row.client.ip, row.broker].note(row)

    def findings(self) -> Iterator[RulePart]:
        """Clients whose handshakes fail."""
        for (ip, end), each in self.kept.items():
            if end in self.listeners and end not in self.plaintext:
                yield self.part((ip, end), each)

    def _message(self, _: Scope, each: Evidence) -> str:
        return f"{many(each.count, 'TLS handshake')} ended by the broker without a response"


# ------------------------------------------------------------------------------------------------------------
# Connections whose responses do not match; clients that connect again and again.
# ------------------------------------------------------------------------------------------------------------


@summed
class ResponseMismatch(ConnectionRule):
    """A response without a request means that a proxy mixes up connections or that a library has a bug.
    Clients close such a connection.
    """

    name = "response-mismatch"
    severity = ERROR
    failed = "requests"
    title = "A response has a correlation ID that matches no outstanding request."
    when = (
        "Any occurrence on a connection that was captured from its start, has no gaps, and has requests "
        "without a response."
    )
    advice = "Look for a proxy between client and broker, and for known bugs in the client library."
    counts = Waits

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it has responses without requests, and requests without responses."""
        is_whole = row.from_start and not row.gaps and not row.resyncs
        if is_kafka(row) and is_whole and row.kinds[ORPHAN] and row.kinds[UNANSWERED]:
            self.count(row).requests += row.kinds[ORPHAN]

    def _level(self, _: Evidence) -> str:
        return ERROR

    def _message(self, _: Scope, each: Waits) -> str:
        return (
            f"{many(each.requests, 'response')} without a matching request on "
            f"{many(each.count, 'connection')}"
        )


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
            f"by {', '.join(each.ends_by.first(_ERROR_AT))}"
        )


# ------------------------------------------------------------------------------------------------------------
# TCP analysis -> lost packets, ends that stop reading, clients that vanish.
# ------------------------------------------------------------------------------------------------------------


_LOST = 10  # segments
_LOST_SHARE = 0.01
_REPEATED_SYNS = 3
_DELAY_US = 100_000  # TCP waits at least 200 ms before it retransmits: shorter delays have other causes
_DELAYED = 3  # requests
_DELAYED_SHARE = 0.001


@summed
class Delays(Evidence):
    """Requests whose latency is mostly the wait for a retransmission: for how long, and the longest one."""

    network_us: int = total()
    longest: tuple[int, str] = largest((0, ""))


@summed
class Losses(Evidence):
    """Connections that lost some, segments, necessary retransmissions, repeated SYNs; holes that were never
    filled, their bytes, and the connections that have some; answered requests, and those delayed.
    """

    lossy: int = total()
    segments: int = total()
    lost: int = total()
    syns: int = total()
    holes: int = total()
    hole_bytes: int = total()
    stuck: int = total()
    answered: int = total()
    delays: Delays = merged(Delays)

    @property
    def explains_latencies(self) -> bool:
        """Whether so many requests were delayed that a percentile shows it."""
        return self.delays.count >= max(_DELAYED, _DELAYED_SHARE * self.answered)

    @property
    def is_unusual(self) -> bool:
        """Whether more was lost than usual."""
        is_much = self.lost >= max(_LOST, _LOST_SHARE * self.segments)
        return is_much or self.syns >= _REPEATED_SYNS or self.holes > 0


@summed
class NetworkLoss(ConnectionRule):
    """A lost packet delays everything behind it on the connection; if nothing follows, by 200 ms or more."""

    name = "network-loss"
    severity = WARNING
    of = TCP_ENDS
    failed = "stuck"
    lost = "delays.network_us"
    title = "Packets between a client and a broker are lost."
    when = (
        "Any of these: bytes that never arrived (the receiver acknowledged only what came before them, "
        f"though later ones were captured); {_LOST} retransmissions, making up {_LOST_SHARE:.0%} of the "
        f"segments; {_REPEATED_SYNS} connections that opened only after a repeated SYN; {_DELAYED} requests, "
        f"making up {_DELAYED_SHARE:.1%} of those answered, that spent {_DELAY_US // 1000} ms or more, and "
        "most of their latency, waiting for a retransmission. Unnecessary retransmissions (D-SACK) do not "
        "count."
    )
    advice = (
        "Look for drops on interfaces, switches and virtual NICs between the two (ethtool -S, nstat), and "
        "for MTU problems."
    )
    needs_flaws = True
    counts = Losses

    open: Bounded[ConnectionKey, Delays] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.open = Bounded(limits.connections, Delays)  # by connection, until it ends

    def feed(self, facts: Facts) -> None:
        """Count the exchange if most of its latency is the wait for a retransmission."""
        network_us, latency_us = facts.parts and facts.parts.network_us, facts.latency_us
        if network_us and latency_us and network_us >= max(_DELAY_US, latency_us / 2):
            delays = self.open[facts.exchange.connection.key]
            delays.add(facts)
            delays.network_us += network_us
            delays.longest = max(delays.longest, (network_us, facts.id))

    def connect(self, row: ConnectionLogRow) -> None:
        """Count segments and retransmissions."""
        delays = self.open.pop(row.key, None)
        tcp = row.tcp
        if tcp is None or not is_kafka(row) or tcp.opening not in (OPENED, None):
            return
        lost = [tcp.lost(side) for side in (0, 1)]
        kept = self.kept[tcp_key(row)]
        kept.segments += tcp.segments(0) + tcp.segments(1)
        kept.syns += tcp.syn_retransmissions > 0
        kept.answered += row.kinds[ANSWERED]
        if delays is not None and lost[row.client_side]:
            kept.delays.merge(delays)
        holes = row.gaps.get("kafka_undelivered_gaps", 0)
        kept.holes += holes
        kept.stuck += holes > 0
        kept.hole_bytes += row.gaps.get("kafka_undelivered_bytes", 0)
        if any(lost) or tcp.syn_retransmissions or holes:
            kept.note(row)
            kept.last_ns = max(kept.last_ns, row.last_ns or 0)
            kept.lossy += 1
            kept.lost += sum(lost)

    def findings(self) -> Iterator[RulePart]:
        """Pairs that lose too many, or whose requests wait for retransmissions."""
        for key, each in self.kept.items():
            if each.is_unusual or each.explains_latencies:
                evidence = combined([each])
                if each.explains_latencies:  # then these requests are the evidence
                    initialize(evidence, Evidence)
                    join(evidence, each.delays, Evidence)
                yield self.part(key, evidence)

    def _level(self, _: Evidence) -> str:
        return WARNING

    def _message(self, _: Scope, each: Losses) -> str:
        share, delays = each.lost / max(1, each.segments), each.delays
        parts: list[str] = []
        if each.holes:
            parts.append(
                f"{many(each.hole_bytes, 'byte')} on {many(each.stuck, 'connection')} never arrived: "
                "later segments did, but the receiver still waits for them"
            )
        if each.lost or not each.holes:
            parts.append(
                f"{many(each.lost, 'retransmission')} in {each.segments:,} segments ({share:.1%}) on "
                f"{many(each.lossy, 'connection')}"
            )
        message = "; ".join(parts)
        if each.syns:
            message += f", {each.syns:,} opened only after a repeated SYN"
        if delays.count:
            longest_us, exchange = delays.longest
            message += (
                f"; they delayed {many(delays.count, 'request')} by "
                f"{duration(delays.network_us * 1000)} in total, longest {duration(longest_us * 1000)} "
                f"({exchange})"
            )
        return message


@summed
class Stalls(Evidence):
    """How long windows were zero, and what was unacknowledged when the connections ended."""

    stalled_ns: int = total()
    longest_ns: int = largest()
    waiting_bytes: int = total()


@summed
class StalledReader(ConnectionRule):
    """An end whose receive buffer is full is not reading: its process is busy, paused or stuck. Everything
    that the other end sends has to wait, which looks like a slow network or broker.
    """

    name = "stalled-reader"
    severity = WARNING
    of = (*TCP_ENDS, "end")
    lost = "stalled_ns"
    title = "A client or a broker stops reading from a connection (zero window)."
    when = (
        f"The receive window of one end was zero for {STALL_NS // SECOND_NS} s or more in which it sent "
        "nothing either. A broker that has many requests of a connection waiting reads them one by one, so "
        "its window closes, but it responds; and a quota makes it stop reading for the throttle time. "
        "Neither counts."
    )
    advice = (
        "Check the process that stopped reading: pauses, blocked threads, in a consumer slow work between "
        "two calls of poll()."
    )
    counts = Stalls

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the ends that stopped reading."""
        if row.tcp is None or not is_kafka(row):
            return
        for end, side in ((CLIENT, row.client_side), (BROKER, 1 - row.client_side)):
            stalled_ns = row.tcp.stalled_ns(side, row.closed_ns or 0)
            stalled_ns -= row.throttle_ns if end == BROKER else 0
            if stalled_ns >= STALL_NS:
                reader = _PROXY if end == CLIENT and row.hop is not None else end
                kept = self.kept[*tcp_key(row), reader]
                kept.note(row)
                kept.last_ns = max(kept.last_ns, (row.last_ns if row.end is None else row.end.time_ns) or 0)
                kept.stalled_ns += stalled_ns
                kept.longest_ns = max(kept.longest_ns, stalled_ns)
                kept.waiting_bytes += row.tcp.unacknowledged(1 - side)

    def _level(self, _: Evidence) -> str:
        return WARNING

    def _message(self, scope: Scope, each: Stalls) -> str:
        readers = " and the ".join(scope["end"])
        whats = " and ".join("responses" if end != BROKER else "requests" for end in scope["end"])
        waiting = f"; {each.waiting_bytes:,} bytes not acknowledged at the end" if each.waiting_bytes else ""
        return (
            f"the {readers} did not read for {duration(each.stalled_ns)} in total on "
            f"{many(each.count, 'connection')}, while {whats} waited{waiting}"
        )


_UNANSWERED_COPIES = 3


@summed
class Vanished(Evidence):
    """Connections whose client stopped acknowledging, the bytes lost, and when it last opened another one."""

    bytes: int = total()
    returned_ns: int = latest(0)


@summed
class ClientVanished(ConnectionRule):
    """A client that is paused, or loses power or network, does not close its connections. Until the broker
    notices, partitions stay assigned to a member that is gone.
    """

    name = "client-vanished"
    severity = WARNING
    of = TCP_ENDS
    is_event = True
    title = "A client stops acknowledging and comes back on a new connection."
    when = (
        f"The broker retransmitted {_UNANSWERED_COPIES} times or more without an acknowledgment. The client "
        "did not end the connection, or only with an RST, and later opened another one."
    )
    advice = (
        "Look for pauses, restarts and network changes on the client's host or container, and for lost NAT "
        "or firewall state."
    )
    counts = Vanished

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its client vanished, and when it began otherwise."""
        if row.tcp is None or not is_kafka(row):
            return
        broker_side = 1 - row.client_side
        unread = row.tcp.unacknowledged(broker_side)
        kept = self.kept[tcp_key(row)]
        is_closed = row.ended_by == CLIENT and row.end is not None and not row.end.reset
        if not is_closed and unread and row.tcp.retransmitted(broker_side) >= _UNANSWERED_COPIES:
            kept.note(row, row.last_ns)
            kept.bytes += unread
        else:
            kept.returned_ns = max(kept.returned_ns, row.first_ns or 0)

    def findings(self) -> Iterator[RulePart]:
        """Clients that came back."""
        for key, each in self.kept.items():
            if each.count and each.returned_ns > each.first_ns:
                yield self.part(key, each)

    def _message(self, scope: Scope, each: Vanished) -> str:
        who = CLIENT if scope.get(CLIENT) else _PROXY
        return (
            f"the {who} stopped acknowledging on {many(each.count, 'connection')}, with "
            f"{each.bytes:,} bytes in flight, and came back on a new one"
        )
