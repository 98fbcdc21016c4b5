"""Connections and addresses -> clients at the wrong door: a port without Kafka, a port that expects something
else, an address that means another machine.

What is refused or unanswered has no Kafka in it. So these rules need only TCP and a port that nobody else
uses for Kafka in the capture; each message says how to name the port if it is Kafka's all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import NOTE, WARNING
from kdissect.exchanges.learned import Listeners
from kdissect.exchanges.nodes import nodes
from kdissect.model import Endpoint
from kdissect.net.analysis import UNOPENED
from kdissect.phrases import listed, many
from kdissect.stats.connection_log import BROKER
from kdissect.stats.contents import EACH, SUM
from kdissect.stats.findings.connections import ConnectionRule
from kdissect.stats.findings.handshakes import ClosedInHandshake
from kdissect.stats.findings.listeners import Addresses, Attempts, Unreachable, is_address
from kdissect.stats.findings.rule import Evidence, Rule, combined
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import join, largest, merged, summed, total
from kdissect.stats.survey import TLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally

_RETRIES = 3
_PORTS, _NODES = 5, 3  # named in messages
_USUAL_PORTS = range(9092, 9100)


def _if_kafka(brokers: Sequence[str]) -> str:
    """How to name the ports of these endpoints, if they are Kafka's."""
    ports = sorted({int(broker.rpartition(":")[2]) for broker in brokers})[:_PORTS]
    return "if it is Kafka's: " + " ".join(f"-d tcp.port=={port},kafka" for port in ports)


# ------------------------------------------------------------------------------------------------------------
# Attempts to connect where no broker was ever seen -> a wrong port or host, or a broker that is down.
# ------------------------------------------------------------------------------------------------------------


@summed
class ClosedPorts(Attempts):
    """Attempts to connect, and where brokers respond on the same hosts."""

    beside: Distinct = merged(Distinct)


@summed
class WrongPort(Unreachable):
    """A client with a wrong port, or whose broker never came up, connects again and again. There is no Kafka
    in that, so it would go unnoticed.
    """

    name = "no-listener"
    severity = WARNING
    title = "A client connects again and again to a port where no Kafka was seen, and is never let in."
    when = (
        f"{_RETRIES} attempts of an address to connect to an endpoint, all refused or unanswered. A note if "
        "there is Kafka traffic in the capture, none of it with that host or port number, and the port is "
        f"none of {_USUAL_PORTS.start} to {_USUAL_PORTS.stop - 1}: then it is probably another service. "
        "Scans and floods are not reported."
    )
    advice = (
        "If a broker should listen there, check that it runs and that bootstrap.servers has the right host "
        "and port. Refused: the host is up and nothing listens; unanswered: a firewall, or no such host."
    )
    openings = UNOPENED
    counts = ClosedPorts

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it did not open; note where one did, and listeners that -d names."""
        if row.opening in UNOPENED:
            self.attempt(row)
        if row.opening not in UNOPENED or row.is_listener:
            self.listeners.add(row.broker)

    def findings(self) -> Iterator[RulePart]:
        """Endpoints that let nobody in; advertised-listener-unreachable has those that are advertised."""
        places = {(end.ip, end.port) for end in self.followed.known if end.port}
        hosts, ports = {ip for ip, _ in places}, {port for _, port in places}
        for ip, end, each in self.tried(known=False):
            if each.count < _RETRIES or end in self.listeners or end in self.followed.named:
                continue
            if each.count == each.refused or each.repeated:
                evidence = ClosedPorts()
                join(evidence, each, Attempts)
                for host, port in places:
                    if host == end.ip:
                        evidence.beside.add(str(Endpoint(host, port)))
                near = end.ip in hosts or end.port in ports or end.port in _USUAL_PORTS
                yield self.part((ip, end), evidence, WARNING if near or not places else NOTE)

    def _message(self, scope: Scope, each: ClosedPorts) -> str:
        brokers = listed(each.beside.first(_PORTS))
        beside = f"; on the same host, Kafka responds at {brokers}" if brokers else ""
        return f"{each.failures}, none succeeded{beside}; {_if_kafka(scope[BROKER])}"


# ------------------------------------------------------------------------------------------------------------
# ClientHellos that the far end does not answer, where nothing shows that it is a Kafka listener.
# ------------------------------------------------------------------------------------------------------------


@summed
class HellosRejected(ClosedInHandshake):
    """A broker takes a ClientHello on a plaintext listener for a request of 369 MB, and closes the connection
    without a byte. No key log can decrypt that: there is nothing encrypted.
    """

    name = "tls-not-answered"
    title = "TLS handshakes are not answered, at a port where no Kafka was seen."
    when = (
        f"{_RETRIES} ClientHellos of an address after which the far end ended the connection without a "
        "byte, at an endpoint that is neither known nor named (-d) as a Kafka listener; those are "
        "tls-port-mismatch and connection-closed-in-handshake. A note if there is Kafka traffic in the "
        f"capture, and the port is none of {_USUAL_PORTS.start} to {_USUAL_PORTS.stop - 1}."
    )
    advice = (
        "If no handshake succeeds, the port probably expects plaintext: compare the client's "
        "security.protocol and port with the broker's listeners. If others succeed, check connection "
        "limits (max.connections.per.ip) and the proxy in front."
    )

    answering: Listeners = merged()

    def __init__(self, limits: Limits) -> None:
        ClosedInHandshake.__init__(self, limits)
        self.answering = Listeners(limits)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its ClientHello was not answered; note where others were."""
        ClosedInHandshake.connect(self, row)
        if _is_answered(row):
            self.answering.add(row.broker)

    def findings(self) -> Iterator[RulePart]:
        """Clients whose handshakes nobody answers."""
        known = self.listeners, self.followed.known, self.followed.named
        is_any_known = any(True for ends in known for _ in ends)
        for (ip, end), each in self.kept.items():
            if each.count >= _RETRIES and not self.is_listener(end):
                severity = WARNING if not is_any_known or end.port in _USUAL_PORTS else NOTE
                yield self.part((ip, str(end)), each, severity)

    def _message(self, scope: Scope, each: Evidence) -> str:
        answering = {str(end) for end in self.answering}
        some = (
            "others got an answer"
            if answering.issuperset(scope[BROKER])
            else "the port seems to expect plaintext"
        )
        handshakes = many(each.count, "TLS handshake")
        return f"{handshakes} ended by the server without an answer; {some}; {_if_kafka(scope[BROKER])}"


def _is_answered(row: ConnectionLogRow) -> bool:
    """Whether the client started TLS, and the far end sent something."""
    return row.protocol == TLS and row.tcp is not None and row.tcp.segments(1 - row.client_side) > 0


# ------------------------------------------------------------------------------------------------------------
# Other protocols on a Kafka listener.
# ------------------------------------------------------------------------------------------------------------

_STRANGE = {
    "HTTP": "1195725856 for GET, 1347375956 for POST, 1212498244 for HEAD",
    "HTTP/2": "1347569952",
    "SSH": "1397966893",
    "AMQP": "1095586128",
}
"""What a broker takes for the size of a request: the first four bytes. Those of HTTP are the method."""


@summed
class Strangers(Evidence):
    """Connections with another protocol than Kafka's, by its name; whether the listener uses TLS."""

    protocols: Distinct = merged(Distinct)
    is_tls: bool = largest(start=False)


@summed
class WrongProtocol(ConnectionRule):
    """Health checks, scanners and lost clients fill the broker's log with sizes that no request has."""

    name = "wrong-protocol"
    severity = WARNING
    of = ("host", BROKER)
    cut = "count"
    title = "Something that is not a Kafka client talks to a Kafka listener."
    when = (
        "Any connection that begins with HTTP, SSH or AMQP, to an endpoint where a broker responds in the "
        "capture. For TLS, see tls-port-mismatch."
    )
    advice = (
        "Find out what runs at that address: a health check (let it only open a connection), a scanner, or "
        "an application with the wrong port. Brokers log each as Invalid receive; kdissect explain NUMBER "
        "says what a size stands for."
    )
    follows = Addresses
    counts = Strangers

    encrypted: Listeners = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.encrypted = Listeners(limits)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if it is not Kafka's; note where TLS is answered."""
        if row.tls.version is not None or _is_answered(row):
            self.encrypted.add(row.broker)
        if row.tcp is not None and row.from_start and row.protocol in _STRANGE:
            kept = self.kept[row.client.ip, row.broker]
            kept.note(row)
            kept.protocols.add(row.protocol)

    def findings(self) -> Iterator[RulePart]:
        """What talks to brokers."""
        for (ip, end), each in self.kept.items():
            if end in self.followed.known:
                evidence = combined([each])
                evidence.is_tls = end in self.encrypted
                yield self.part((ip, str(end)), evidence)

    def _level(self, _: Evidence) -> str:
        return WARNING

    def _message(self, _: Scope, each: Strangers) -> str:
        names = each.protocols.first(len(_STRANGE))
        logged = f"; a broker logs Invalid receive (size = {', '.join(_STRANGE[name] for name in names)})"
        return f"{many(each.count, 'connection')} with {' and '.join(names)}{'' if each.is_tls else logged}"


# ------------------------------------------------------------------------------------------------------------
# Brokers that advertise one address -> requests that reach the wrong one.
# ------------------------------------------------------------------------------------------------------------


_MISLED_SHARE = 0.1
_ROUTED = frozenset({"Produce", "Fetch"})


@summed
class Shared(Evidence):
    """Responses that name several brokers at one address, and their IDs; Produce and Fetch requests to a
    broker, and those of them that reached the wrong one.
    """

    node_ids: Distinct = merged(Distinct)
    requests: int = total()
    misled: int = total()

    @property
    def is_misleading(self) -> bool:
        """Whether more requests reached the wrong broker than when leaders move now and then."""
        return self.misled >= max(_RETRIES, _MISLED_SHARE * self.requests)


@summed
class SharedAddress(Rule):
    """A client opens a connection for each broker. If two have one address, both connections end at the same
    broker, which does not lead the partitions of the other one.
    """

    name = "shared-address"
    severity = WARNING
    of = (BROKER,)
    failed = "misled"
    title = "Several brokers advertise the same address."
    when = (
        "Any response that names two node IDs with the same host and port. A note as long as a broker there "
        f"does not respond to {_RETRIES} Produce and Fetch requests, and {_MISLED_SHARE:.0%} of them, that "
        "it does not lead the partition: a proxy can forward each request to the right broker. If a host "
        "name is advertised, all brokers with that port count."
    )
    advice = (
        "Give each broker another address or port in advertised.listeners, also behind a proxy or "
        "load balancer."
    )
    takes = EACH | {SUM}
    apis = _ROUTED | {"Metadata", "DescribeCluster"}
    counts = Shared

    def feed(self, tally: Tally) -> None:
        """Note brokers with the same address, requests to brokers, and those that reached the wrong one."""
        if tally.api in _ROUTED:
            if tally.form == SUM:
                self.kept[tally.broker].requests += tally.exchanges
            elif tally.exchange is not None:
                is_misled = "NOT_LEADER_OR_FOLLOWER" in tally.errors and not tally.replica
                if is_misled:
                    self.kept[tally.broker].misled += 1
            return
        if (exemplar := tally.exemplar) is None:
            return
        ids: dict[str, set[int]] = {}
        for node in nodes(exemplar):
            host = f"[{node.host}]" if ":" in node.host else node.host
            ids.setdefault(f"{host}:{node.port}", set()).add(node.id)
        for end, numbers in ids.items():
            if len(numbers) > 1:
                kept = self.kept[tally.kept(end)]
                kept.add(tally)
                for number in numbers:
                    kept.node_ids.add(str(number))

    def findings(self) -> Iterator[RulePart]:
        """Addresses that several brokers share, each with the requests that went there."""
        for end, each in self.kept.items():
            if each.count:
                evidence = combined([each])
                host, _, port = end.rpartition(":")
                if not is_address(host.strip("[]")):
                    there = [other for key, other in self.kept.items() if key.rpartition(":")[2] == port]
                    evidence.requests = sum(other.requests for other in there)
                    evidence.misled = sum(other.misled for other in there)
                yield self.part(end, evidence)

    def _level(self, each: Shared) -> str:
        return WARNING if each.is_misleading else NOTE

    def _message(self, _: Scope, each: Shared) -> str:
        ids = listed(each.node_ids.first(_NODES))
        misled = (
            f"; {many(each.misled, 'request')} reached a broker that does not lead" if each.misled else ""
        )
        return f"{len(each.node_ids)} brokers (nodes {ids}) advertise it{misled}"
