"""Connections that never opened -> listeners that cannot be reached.

Only attempts of clients to reach Kafka listeners count. A scanner tries many endpoints that are not Kafka
listeners; a flood opens more connections than any client would, or sends each SYN only once.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, ClassVar

from kdissect.anomalies import ERROR, WARNING
from kdissect.exchanges.clusters import advertised
from kdissect.exchanges.learned import Listeners
from kdissect.limits import SECOND_NS
from kdissect.model import ANSWERED, Endpoint
from kdissect.net.analysis import ONE_WAY, OPENED, REFUSED, UNOPENED
from kdissect.phrases import many
from kdissect.stats.connection_log import BROKER, HANDSHAKE_APIS
from kdissect.stats.contents import EACH, SUM
from kdissect.stats.findings.connections import ERROR_AT, ConnectionRule
from kdissect.stats.findings.rule import ADVERTISING, Bursts, Evidence, Rule, combined
from kdissect.stats.quantiles import Bounded, Distinct
from kdissect.stats.sums import Summed, join, largest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.net.dns import Resolved
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally

_SCANNED = 20  # endpoints that are not listeners
_FLOOD = 1000  # attempts in ten seconds: clients wait at least 50 ms between two attempts


@summed
class Addresses(Summed):
    """Where brokers and clients are, of all connections, and the addresses that brokers advertise.

    Attributes:
        known: where brokers respond; and the addresses of clients, with port 0.
        plaintext: those of them whose responses can be read.
        named: advertised.
    """

    known: Listeners = merged()
    plaintext: Listeners = merged()
    named: Listeners = merged()

    takes = EACH | {SUM}
    needs_flaws = False
    apis = ADVERTISING

    def __init__(self, limits: Limits) -> None:
        self.known, self.plaintext, self.named = (Listeners(limits) for _ in range(3))

    def feed(self, tally: Tally) -> None:
        """Note the addresses of brokers and clients, and those that are advertised."""
        if (exemplar := tally.exemplar) is not None:
            for host, port in advertised(exemplar):
                self.named.add(Endpoint(host, port))
            return
        self.known.add(tally.connection.broker)
        self.known.add(Endpoint(tally.connection.client_end.ip, 0))
        if tally.kind == ANSWERED:
            self.plaintext.add(tally.connection.broker)


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
    follows = Addresses
    counts = Attempts
    openings: ClassVar[frozenset[str]] = frozenset()

    listeners: Listeners = merged()
    opened: Bounded[tuple[str, Endpoint], Evidence] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.listeners = Listeners(limits)  # forced, or known from a first pass
        self.opened = Bounded(limits.summary_rows, Evidence)

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
            others[ip] = others.get(ip, 0) + (not self.is_known(broker) and broker not in self.followed.named)
        for (ip, broker), each in self.kept.items():
            is_client = Endpoint(ip, 0) in self.followed.known or each.count >= ERROR_AT
            if (
                self.is_known(broker) == known
                and others[ip] < _SCANNED
                and each.busiest <= _FLOOD
                and is_client
            ):
                yield ip, broker, each

    def is_known(self, broker: Endpoint) -> bool:
        """Whether a broker responds there, or -d names it; being advertised is not enough."""
        of_all = self.followed
        return broker in of_all.known or (broker in self.listeners and broker not in of_all.named)

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
        return ERROR if each.count >= ERROR_AT and never_later else WARNING


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
        f"requests in the capture, and those selected with -d. Error at {ERROR_AT} attempts if no later one "
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
        f"connection-refused; error at {ERROR_AT} attempts if no later one succeeds."
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

    takes = EACH | {SUM}
    apis = ADVERTISING

    advertised: Bounded[tuple[str, int, str], Advertised] = merged()
    names: ResolvedNames = merged()
    lookers: Bounded[str, Looker] = merged()

    def __init__(self, limits: Limits) -> None:
        Unreachable.__init__(self, limits)
        self.lookers = Bounded(limits.summary_rows, Looker)
        self.advertised = Bounded(limits.summary_rows, Advertised)
        self.names = ResolvedNames(limits)

    def feed(self, tally: Tally) -> None:
        """Note what is advertised to which client, and what it does."""
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
            self.listeners.add(row.broker)
        if row.exchanges:
            looker = self.lookers[row.client.ip]
            looker.hidden += row.exchanges
            looker.is_beside = looker.is_beside or row.client.ip == row.broker.ip

    def is_known(self, broker: Endpoint) -> bool:
        """Whether something listens there."""
        return broker in self.followed.known or broker in self.listeners

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
        texts = each.how.first(ERROR_AT)
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
