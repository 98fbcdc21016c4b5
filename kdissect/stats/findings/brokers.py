"""Facts about connections, leaders, logins, quotas and metadata -> findings, by one rule each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.exchanges.outcomes import exceeded_settings, outstanding_ns, overdue_ns
from kdissect.exchanges.pairing import OUT_OF_ORDER
from kdissect.kafka.codes import error_code
from kdissect.limits import MILLISECOND_NS
from kdissect.model import ANSWERED, UNANSWERED
from kdissect.phrases import client_label, duration, many, topic_label
from kdissect.stats.connection_log import BROKER, HANDSHAKE_APIS
from kdissect.stats.findings.rule import APIS, SECOND_NS, Bursts, Evidence, Minutes, Rule
from kdissect.stats.quantiles import Bounded, Distinct, Quantiles
from kdissect.stats.releases import removed_in
from kdissect.stats.rows import ranked
from kdissect.stats.sums import either, largest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Exchange
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.document import FindingRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.load import Aggregate


_MIN_CONNECTIONS = 10
_REQUESTS = 3  # of a connection that is too short
_SHARE = 0.8


@summed
class ShortConnection(Evidence):
    """A connection: its first exchange, requests after the handshake, and whether the broker ended it."""

    requests: int = total()
    ended_by_broker: bool = either(False)

    def begin(self, time_ns: int, exchange: str) -> None:
        """Note an exchange by time and ID; only the earliest counts."""
        if not self.count or time_ns < self.first_ns:
            self.count, self.first_ns, self.last_ns = 1, time_ns, time_ns
            self._examples = [(time_ns, exchange)]


@summed
class ConnectionChurn(Rule):
    """Each connection costs a TCP and often a TLS handshake, ApiVersions, a login, and memory on the
    broker.
    """

    name = "connection-per-request"
    severity = WARNING
    title = "A client opens a new connection to the same broker for nearly every request."
    when = (
        f"{_MIN_CONNECTIONS} connections from one address to one broker in a minute, {_SHARE:.0%} of them "
        f"with at most {_REQUESTS} requests besides ApiVersions and SASL; clients normally keep one or two "
        "per broker. Connections that the broker ended are not counted."
    )
    advice = "Keep one producer, consumer or admin client for the lifetime of the process."
    counts = ShortConnection

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """Count requests after the handshake. SASL tokens without a header have no client ID."""
        if aggregate.keys.api_key is None:
            return
        key = aggregate.client, aggregate.connection.client.ip, aggregate.broker, aggregate.connection.key
        kept = self.kept[key]
        kept.begin(*aggregate.first[0])
        if aggregate.keys.api not in HANDSHAKE_APIS:
            kept.requests += aggregate.exchanges

    def connect(self, row: ConnectionLogRow) -> None:
        """Note that the broker ended a connection."""
        key = row.client_id or row.client.ip, row.client.ip, str(row.broker), row.key
        if row.ended_by == BROKER and key in self.kept:
            self.kept[key].ended_by_broker = True

    def findings(self) -> Iterator[FindingRow]:
        """Clients with many short connections."""
        ends: dict[Any, list[ShortConnection]] = {}
        for (*end, _), each in self.kept.items():
            if not each.ended_by_broker:
                ends.setdefault(tuple(end), []).append(each)
        for (client, ip, broker), connected in ends.items():
            short = Minutes()
            for each in connected:
                if each.requests <= _REQUESTS:
                    short.add_evidence(each)
            if short.busiest >= _MIN_CONNECTIONS and short.count >= _SHARE * len(connected):
                yield self.finding(
                    f"client {client_label(client)} at {ip}, broker {broker}",
                    f"{short.count:,} of {len(connected):,} connections carried at most {_REQUESTS} "
                    f"requests, {short.peak}",
                    short,
                )


# ------------------------------------------------------------------------------------------------------------
# Metadata responses -> partitions whose leader changed.
# ------------------------------------------------------------------------------------------------------------


_WARNING_THRESHOLD = 3
_TERMS = 64
_MAX_PARTITIONS, _MAX_LEADERS = 3, 5  # shown in a message


class Leaders:
    """The leaders of a partition, by leader epoch; by broker before Metadata v7."""

    __slots__ = ("terms",)

    def __init__(self) -> None:
        self.terms: dict[
            tuple[int, int], tuple[int, str]
        ] = {}  # leader epoch, leader -> time and exchange of the first report

    def lead(self, leader: int, epoch: int, reported: tuple[int, str]) -> None:
        """Add a leader from a response."""
        term = epoch, leader
        if term in self.terms or len(self.terms) < _TERMS:
            self.terms[term] = min(reported, self.terms.get(term, reported))

    def merge(self, other: Leaders) -> None:
        """Add the leaders of other responses."""
        for (epoch, leader), reported in other.terms.items():
            self.lead(leader, epoch, reported)

    @property
    def in_order(self) -> list[tuple[int, int, str]]:
        """Successive leaders, with time and exchange of the first report; consecutive ones differ."""
        turns: list[tuple[int, int, str]] = []
        with_epoch = {term: reported for term, reported in self.terms.items() if term[0] >= 0}
        terms = with_epoch or self.terms  # those without an epoch cannot be ordered among those with one
        for (_, leader), reported in sorted(terms.items(), key=lambda item: (item[0][0], item[1])):
            if not turns or turns[-1][0] != leader:
                turns.append((leader, *reported))
        return turns


@summed
class LeadersMoving(Rule):
    """A restart or failure moves leaders once or twice. Leaders that keep moving make all clients wait."""

    name = "leaders-moving"
    severity = NOTE
    title = "Partition leaders change."
    when = (
        "Any leader change (a note, because it explains errors around that time); "
        f"{_WARNING_THRESHOLD} changes of one partition make it a warning."
    )
    advice = (
        "Check whether a broker was restarted or disconnected at that time; if not, check its load and disks."
    )
    apis = APIS
    counts = Leaders

    def feed(self, facts: Facts) -> None:
        """Note leaders; -1 means none."""
        for topic in (facts.exchange.response or {}).get("topics") or ():
            name = topic.get("name") or topic.get("topic_id")
            for partition in topic.get("partitions") or ():
                leader = partition.get("leader_id", -1)
                if name and leader >= 0:
                    kept = self.kept[name, partition.get("partition_index", -1)]
                    kept.lead(leader, partition.get("leader_epoch", -1), (facts.exchange.time_ns, facts.id))

    def findings(self) -> Iterator[FindingRow]:
        """Topics whose leaders moved."""
        topics: dict[str, dict[int, list[tuple[int, int, str]]]] = {}
        for (topic, partition), each in self.kept.items():
            if len(turns := each.in_order) > 1:
                topics.setdefault(topic, {})[partition] = turns
        for topic, partitions in topics.items():
            evidence = Evidence()
            for turns in partitions.values():
                for _, time_ns, exchange in turns[1:]:
                    evidence.take(time_ns, exchange)
            named = ", ".join(
                f"{partition} ({' -> '.join(str(term[0]) for term in partitions[partition][:_MAX_LEADERS])})"
                for partition in sorted(partitions)[:_MAX_PARTITIONS]
            )
            more = (
                f" and {len(partitions) - _MAX_PARTITIONS:,} more"
                if len(partitions) > _MAX_PARTITIONS
                else ""
            )
            yield self.finding(
                f"topic {topic_label(topic)}",
                f"{many(evidence.count, 'leader change')}: partition {named}{more}",
                evidence,
                WARNING if max(map(len, partitions.values())) > _WARNING_THRESHOLD else NOTE,
            )


# ------------------------------------------------------------------------------------------------------------
# Responses from brokers that do not lead the partition -> clients that cannot find the leader.
# ------------------------------------------------------------------------------------------------------------


_LEADERSHIP = frozenset(
    map(
        error_code,
        (
            *("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH"),
            *("UNKNOWN_LEADER_EPOCH", "REPLICA_NOT_AVAILABLE"),
        ),
    )
)
_STORM = 20


@summed
class NotLeader(Rule):
    """After one such response a client should look for the new leader. Many mean that it does not."""

    name = "not-leader-storm"
    needs_flaws = True
    severity = WARNING
    title = "A client keeps sending requests to brokers that do not lead the partition."
    when = (
        f"{_STORM} NOT_LEADER_OR_FOLLOWER errors for a topic within 10 seconds; a normal leader "
        "change causes a few per client."
    )
    advice = (
        "Check whether the partitions have a leader, then whether the client can reach it and refreshes "
        "its metadata."
    )
    counts = Bursts

    def feed(self, facts: Facts) -> None:
        """Count responses to clients; followers wait for their leader this way."""
        if facts.replica or not facts.errors:
            return
        for topic in dict.fromkeys(each.topic for each in facts.touched if each.error in _LEADERSHIP):
            self.kept[facts.client, topic].add(facts)

    def findings(self) -> Iterator[FindingRow]:
        """Clients with many such responses in a short time."""
        for (client, topic), each in self.kept.items():
            if each.busiest >= _STORM:
                yield self.finding(
                    f"client {client_label(client)}, topic {topic_label(topic)}",
                    f"{each.count:,} responses from brokers that do not lead the partition, {each.peak}",
                    each,
                )


# ------------------------------------------------------------------------------------------------------------
# Login responses -> clients that cannot log in.
# ------------------------------------------------------------------------------------------------------------


_LOOP = 10
_NO_HANDSHAKE = "the broker takes no token without SaslHandshake, and closed the connection"


@summed
class Sasl(Rule):
    """A client that cannot log in can do nothing else, and some retry forever."""

    name = "sasl-failures"
    needs_flaws = True
    severity = WARNING
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

    def feed(self, facts: Facts) -> None:
        """Count failed logins."""
        exchange = facts.exchange
        mechanism = (exchange.request or {}).get("mechanism") or exchange.sasl_mechanism
        for error in facts.errors:
            self.kept[facts.client, exchange.connection.client.ip, mechanism, error].add(facts)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if the broker closed it after a token without SaslHandshake."""
        if row.bare_tokens and row.ended_by == BROKER:
            key = row.client_id or row.client.ip, row.client.ip, row.sasl_mechanism, _NO_HANDSHAKE
            self.kept[key].take(row.first_ns or 0, row.id)

    def findings(self) -> Iterator[FindingRow]:
        """All clients with failed logins."""
        for (client, ip, mechanism, error), each in self.kept.items():
            times = "once" if each.count == 1 else f"{each.count:,} times"
            by = f" with {mechanism}" if mechanism else ""
            severity = ERROR if each.count >= _LOOP else WARNING
            yield self.finding(
                f"client {client_label(client)} at {ip}", f"login{by} failed {times}: {error}", each, severity
            )


# ------------------------------------------------------------------------------------------------------------
# Throttle times in responses -> clients that a quota slows down.
# ------------------------------------------------------------------------------------------------------------


_MIN_THROTTLED = 10
_MIN_THROTTLE_MS = 1000


@summed
class Throttles(Evidence):
    """Responses with a throttle time."""

    max_ms: int = largest()
    sum_ms: int = total()


@summed
class Throttled(Rule):
    """A client that waits because of a quota looks slow, although broker and network are fine."""

    name = "throttled"
    severity = WARNING
    title = "A quota throttles a client."
    when = (
        f"{_MIN_THROTTLED} responses with a throttle time, or {_MIN_THROTTLE_MS:,} ms in total; occasional "
        "short throttling is normal under a quota."
    )
    advice = (
        "Reduce or spread the load, or raise the quota of this client or user (kafka-configs --describe "
        "--entity-type clients, or users, shows it)."
    )
    needs_flaws = True
    counts = Throttles

    def feed(self, facts: Facts) -> None:
        """Count throttle times."""
        if facts.throttle_ms > 0:
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.sum_ms += facts.throttle_ms
            kept.max_ms = max(kept.max_ms, facts.throttle_ms)

    def findings(self) -> Iterator[FindingRow]:
        """Clients that were throttled often or for long."""
        for (client, broker), each in self.kept.items():
            if each.count >= _MIN_THROTTLED or each.sum_ms >= _MIN_THROTTLE_MS:
                yield self.finding(
                    f"client {client_label(client)}, broker {broker}",
                    f"{many(each.count, 'response')} with a throttle time, "
                    f"{duration(each.sum_ms * MILLISECOND_NS)} in total, "
                    f"longest {duration(each.max_ms * MILLISECOND_NS)}",
                    each,
                )


# ------------------------------------------------------------------------------------------------------------
# Requests in versions that a broker rejects -> clients that keep sending them.
# ------------------------------------------------------------------------------------------------------------


_API_VERSIONS = "ApiVersions"
_UNSUPPORTED = "UNSUPPORTED_VERSION"
_MIN_REJECTED = 5


@summed
class Requests(Evidence):
    """Requests and their connections."""

    connections: Distinct = merged(Distinct)


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
    title = "A client keeps using a version that the broker rejects."
    when = (
        f"{_MIN_REJECTED} rejected requests, or {_MIN_REJECTED} connections that end right after one "
        "of these: a rejected ApiVersions; a request in a version that newer Kafka releases removed, and "
        "that this broker never accepted."
    )
    advice = (
        "Upgrade the client library, or set the broker's release in the client if it has an option for that."
    )
    needs_flaws = True
    counts = Requests

    rejected: Bounded[tuple[str, ConnectionKey], RejectedApiVersions] = merged()
    accepted: Bounded[tuple[str, str, int | None], Evidence] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.rejected = Bounded(limits.summary_rows, RejectedApiVersions)
        self.accepted = Bounded(limits.summary_rows, Evidence)

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """Note accepted requests."""
        keys = aggregate.keys
        if keys.has_flaw:
            return
        self.accepted[aggregate.broker, keys.api, keys.api_version].add_aggregate(aggregate)
        rejected = self.rejected.get((aggregate.client, aggregate.connection.key))
        if rejected is not None and (aggregate.last_ns or 0) >= rejected.first_ns:
            rejected.works = True

    def feed(self, facts: Facts) -> None:
        """Count rejected requests, and accepted ones with a flaw."""
        exchange = facts.exchange
        version, connection = exchange.api_version, exchange.connection
        is_refused, is_silent = _UNSUPPORTED in facts.errors, _may_be_disconnected(exchange)
        key = facts.client, connection.key
        if facts.api == _API_VERSIONS and is_refused:
            self.rejected[key].add(facts)
        elif is_refused or is_silent:
            kept = self.kept[facts.client, facts.broker, facts.api, version, is_silent]
            kept.add(facts)
            kept.connections.add(connection.name)
        elif exchange.response is not None:
            self.accepted[facts.broker, facts.api, version].add(facts)
            if key in self.rejected:
                self.rejected[key].works = True

    def findings(self) -> Iterator[FindingRow]:
        """Clients whose requests were rejected often."""
        for (client, broker, api, version, is_silent), each in self.kept.items():
            about = f"client {client_label(client)}, {api} v{version}, broker {broker}"
            connections = len(each.connections)
            if is_silent:
                # If only one direction was captured, a connection can have any number of them.
                is_loop = connections >= _MIN_REJECTED and each.count <= 2 * connections
                if is_loop and (broker, api, version) not in self.accepted:
                    description = f"{connections:,} connections ended with such a request and no response"
                    yield self.finding(about, description, each)
            elif each.count >= _MIN_REJECTED:
                yield self.finding(about, f"{each.count:,} requests were rejected", each)
        clients: dict[str, tuple[int, Evidence]] = {}
        for (client, _), rejected in self.rejected.items():
            if not rejected.works:
                connections, evidence = clients.get(client, (0, Evidence()))
                evidence.merge(rejected)
                clients[client] = connections + 1, evidence
        for client, (connections, evidence) in clients.items():
            if connections >= _MIN_REJECTED:
                description = (
                    f"ApiVersions was rejected on {connections:,} connections, and no other request followed"
                )
                yield self.finding(f"client {client_label(client)}", description, evidence)


def _may_be_disconnected(exchange: Exchange) -> bool:
    """Whether it has no response, in a version on which some brokers close the connection."""
    if exchange.kind != UNANSWERED or exchange.announced is not None:
        return False
    if exchange.api_key is None or exchange.api_version is None:
        return False
    return removed_in(exchange.api_key, exchange.api_version) is not None


# ------------------------------------------------------------------------------------------------------------
# Requests that are outstanding for too long -> clients whose broker does not respond.
# ------------------------------------------------------------------------------------------------------------


_OVERDUE_S = 5


@summed
class LongWaits(Evidence):
    """Requests of one client to one broker: by API, and how long the oldest was outstanding."""

    apis: Counter[str] = total(Counter)
    oldest_ns: int = largest()


@summed
class RequestTimeouts(Rule):
    """The client times out and retries: the broker may or may not have processed the request."""

    name = "request-timeouts"
    severity = ERROR
    title = "Requests time out: the broker does not respond."
    when = (
        f"An unanswered request was outstanding for {_OVERDUE_S} s longer than the time that it allows the "
        "broker to wait (max_wait_ms, timeout_ms; none for most APIs), its host had acknowledged the request "
        "at the TCP level, and no response had begun. "
        "Clients that close the connection with a request outstanding, as consumers do, are not reported."
    )
    advice = "Check the broker's log, garbage collection and disks at that time, and the network path to it."
    needs_flaws = True
    counts = LongWaits

    def feed(self, facts: Facts) -> None:
        """Count an unanswered request."""
        exchange = facts.exchange
        if (
            facts.outcome == UNANSWERED
            and not exchange.is_held_up
            and overdue_ns(exchange) > _OVERDUE_S * SECOND_NS
        ):
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.apis[facts.api] += 1
            kept.oldest_ns = max(kept.oldest_ns, outstanding_ns(exchange))

    def findings(self) -> Iterator[FindingRow]:
        """Clients with such requests."""
        for (client, broker), each in self.kept.items():
            apis = ", ".join(f"{count:,} {api}" for api, count in ranked(each.apis).items())
            waited = f"outstanding for up to {duration(each.oldest_ns)}"
            message = f"{many(each.count, 'unanswered request')} ({apis}), {waited}"
            yield self.finding(f"client {client_label(client)}, broker {broker}", message, each)


# ------------------------------------------------------------------------------------------------------------
# Messages that began but did not end -> clients and brokers between which they got stuck.
# ------------------------------------------------------------------------------------------------------------


_STUCK_S = 5


@summed
class CutMessages(Evidence):
    """Incomplete messages by API and which of the two they are; bytes that came and announced size of one."""

    messages: Counter[str] = total(Counter)
    largest: tuple[int, int] = largest((0, 0))
    exceeded: Counter[str] = total(Counter)


@summed
class IncompleteMessages(Rule):
    """The client has to send the request again, and if the cause is the size of the message, it gets no
    further.
    """

    name = "incomplete-messages"
    severity = WARNING
    title = "Connections end in the middle of a message."
    when = (
        f"The connection ended {_STUCK_S} s or more after the latest byte of an incomplete message came, or "
        "the message was larger than a usual limit. Clients that close a connection while a response is on "
        "its way, as consumers do, are not reported."
    )
    advice = (
        "Look for a side that does not read, and for packet loss. Compare the size with "
        "socket.request.max.bytes of the broker, and fetch.max.bytes or receive.message.max.bytes of the "
        "client."
    )
    needs_flaws = True
    counts = CutMessages

    def feed(self, facts: Facts) -> None:
        """Count an incomplete message."""
        exchange = facts.exchange
        if exchange.announced is None or not exchange.ended:
            return
        frame = exchange.response_frame or exchange.first_frame
        exceeded = exceeded_settings(exchange)
        if exceeded or exchange.completed_ns - frame.end_ns >= _STUCK_S * SECOND_NS:
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.messages[f"{facts.api} {'response' if exchange.is_cut else 'request'}"] += 1
            kept.largest = max(kept.largest, (exchange.announced, frame.wire_bytes))
            kept.exceeded.update(name for name, _ in exceeded)

    def findings(self) -> Iterator[FindingRow]:
        """Clients and brokers with such messages."""
        for (client, broker), each in self.kept.items():
            what = ", ".join(f"{count:,} {message}" for message, count in ranked(each.messages).items())
            announced, came = each.largest
            size = f"of {announced:,} bytes announced {came:,} came" + (
                " of the largest" if each.count > 1 else ""
            )
            limits = (
                f"; larger than {' and '.join(sorted(each.exceeded))} by default" if each.exceeded else ""
            )
            message = f"{many(each.count, 'incomplete message')} ({what}): {size}{limits}"
            yield self.finding(f"client {client_label(client)}, broker {broker}", message, each)


# ------------------------------------------------------------------------------------------------------------
# Responses in another order than their requests -> brokers and proxies that break the order.
# ------------------------------------------------------------------------------------------------------------


@summed
class OutOfOrder(Evidence):
    """Requests that were answered after later ones: by API."""

    apis: Counter[str] = total(Counter)


@summed
class ResponsesOutOfOrder(Rule):
    """Kafka's brokers answer the requests of a connection in order, and clients rely on it: the Java client
    fails when a response is not the one to its oldest request.
    """

    name = "responses-out-of-order"
    severity = WARNING
    title = "Responses come in another order than their requests."
    when = "Any request that was answered after a later one of its connection."
    advice = (
        "Find out what answers at this address: a proxy, or a broker that is not Apache Kafka. Its "
        "documentation may say how to keep the order, or which clients can do without it."
    )
    needs_flaws = True
    counts = OutOfOrder

    def feed(self, facts: Facts) -> None:
        """Count a request that later ones overtook."""
        exchange = facts.exchange
        if exchange.kind == ANSWERED and any(each.kind == OUT_OF_ORDER for each in exchange.anomalies):
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.apis[facts.api] += 1

    def findings(self) -> Iterator[FindingRow]:
        """Brokers that break the order, by client."""
        for (client, broker), each in self.kept.items():
            apis = ", ".join(f"{count:,} {api}" for api, count in ranked(each.apis).items())
            message = (
                f"{many(each.count, 'request')} ({apis}) answered after a later one of the same connection"
            )
            yield self.finding(f"client {client_label(client)}, broker {broker}", message, each)


# ------------------------------------------------------------------------------------------------------------
# Connections -> client IDs that two applications use at the same time.
# ------------------------------------------------------------------------------------------------------------


@summed
class ClientIds(Rule):
    """Quotas, request logs and metrics use the client ID, so they cannot distinguish applications that share
    one. Replicas of one application share theirs on purpose.
    """

    name = "duplicate-client-ids"
    severity = NOTE
    title = "Two applications use the same client ID."
    when = "Clients with the same ID but different libraries or principals, active at the same time."
    advice = "Give each application a separate client.id; its instances can share it."

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """Note when an application was active."""
        keys = aggregate.keys
        if keys.client_id and keys.kind == ANSWERED and keys.api not in HANDSHAKE_APIS:
            self.kept[keys.client_id, keys.software, keys.principal].add_aggregate(aggregate)

    def findings(self) -> Iterator[FindingRow]:
        """Client IDs of applications that were active at the same time."""
        by_id: dict[str, list[tuple[tuple[str | None, str | None], Evidence]]] = {}
        for (client, *application), each in self.kept.items():
            by_id.setdefault(client, []).append(((application[0], application[1]), each))
        for client, applications in by_id.items():
            for known in (
                [(library, each) for (library, _), each in applications if library is not None],
                [(principal, each) for (_, principal), each in applications if principal is not None],
            ):
                names = sorted({name for name, _ in known})
                if len(names) > 1 and _max_concurrent([each for _, each in known]) > 1:
                    evidence = Evidence()
                    for _, each in known:
                        evidence.merge(each)
                    yield self.finding(
                        f"client {client_label(client)}", f"used by {' and '.join(names)}", evidence
                    )
                    break


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
_MIN_LARGE, _MIN_SMALL = 30, 120


@summed
class MetadataRequests(Minutes):
    """Metadata requests of a client."""

    bytes: int = total()
    for_all_topics: int = total()


@summed
class MetadataPolling(Rule):
    """Clients refresh metadata every five minutes and after failures. Each response lists every requested
    partition.
    """

    name = "metadata-polling"
    severity = WARNING
    title = "A client requests metadata too often."
    when = (
        f"{_MIN_LARGE} requests in a minute if responses average {_LARGE_BYTES:,} bytes or more, "
        f"{_MIN_SMALL} if they are smaller; a client sends a few when it starts."
    )
    advice = (
        "Request metadata only for the topics that are needed, and keep metadata.max.age.ms at "
        "several minutes (default: 300000)."
    )
    apis = frozenset({"Metadata"})
    counts = MetadataRequests

    def feed(self, facts: Facts) -> None:
        """Count requests and bytes of responses."""
        exchange = facts.exchange
        if exchange.request is None:
            return
        kept = self.kept[facts.client]
        kept.add(facts)
        kept.bytes += 0 if exchange.response_frame is None else exchange.response_frame.size
        topics = exchange.request.get("topics")
        kept.for_all_topics += topics is None or (exchange.api_version == 0 and not topics)

    def findings(self) -> Iterator[FindingRow]:
        """Clients that send too many."""
        for client, each in self.kept.items():
            mean = each.bytes // max(1, each.count)
            if each.busiest >= (_MIN_LARGE if mean >= _LARGE_BYTES else _MIN_SMALL):
                yield self.finding(
                    f"client {client_label(client)}",
                    f"{each.count:,} Metadata requests, {each.peak}, {each.for_all_topics:,} for all topics; "
                    f"responses average {mean:,} bytes",
                    each,
                )


# ------------------------------------------------------------------------------------------------------------
# Service times by API and broker -> brokers that are slower than the others.
# ------------------------------------------------------------------------------------------------------------


_MEASURED = 20  # exchanges of a broker
_TIMES_SLOWER = 5
_SLOWER_US = 10_000


@summed
class Speed(Evidence):
    """Service times of an API at a broker, in microseconds."""

    service_us: Quantiles = merged(Quantiles)


@summed
class SlowBroker(Rule):
    """If all brokers are slow, the load may be too high; if only one is, the problem is on that broker."""

    name = "slow-broker"
    severity = WARNING
    title = "One broker responds much more slowly than its peers."
    when = (
        f"The median service time of an API, without the round trip to the broker, is {_TIMES_SLOWER} times "
        f"that of the next slowest broker and {_SLOWER_US // 1000} ms longer, with {_MEASURED} requests or "
        "more on each."
    )
    advice = "Compare its disks, garbage collection, network and number of leaders with those of its peers."
    counts = Speed

    round_trips: Bounded[str, Quantiles] = merged()  # the shortest of each connection to a broker

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.round_trips = Bounded(limits.summary_rows, Quantiles)

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """Note how long a broker took."""
        if aggregate.keys.is_measured:
            kept = self.kept[aggregate.keys.api, aggregate.broker]
            kept.service_us.merge(aggregate.service_us)
            kept.add_aggregate(aggregate)

    def connect(self, row: ConnectionLogRow) -> None:
        """Note how far away the broker is: seen from a client, service times include a round trip."""
        round_trip_ns = None if row.tcp is None else row.tcp.shortest_round_trip_ns(row.client_side)
        if round_trip_ns is not None and row.kinds[ANSWERED]:
            self.round_trips[str(row.broker)].add(round_trip_ns // 1000)

    def findings(self) -> Iterator[FindingRow]:
        """Brokers that are slower than all others, by API."""
        apis: dict[str, list[tuple[int, str, Speed]]] = {}
        for (api, broker), each in sorted(self.kept.items()):
            (median_us,) = each.service_us.at((0.5,))
            if median_us is not None and each.count >= _MEASURED:
                apis.setdefault(api, []).append((median_us, broker, each))
        for api, speeds in apis.items():
            if len(speeds) > 1:
                slowest = max(speeds, key=self._at_least_us)
                peer = max((each for each in speeds if each is not slowest), key=self._at_most_us)
                yield from self._slow(api, slowest, peer)

    def _slow(
        self, api: str, slowest: tuple[int, str, Speed], peer: tuple[int, str, Speed]
    ) -> Iterator[FindingRow]:
        slow_us, broker, each = slowest
        min_us, max_us = self._at_least_us(slowest), self._at_most_us(peer)
        if min_us >= _TIMES_SLOWER * max_us and min_us - max_us >= _SLOWER_US:
            round_trip = (
                f", {duration((slow_us - min_us) * 1000)} of it round trip"
                if broker in self.round_trips
                else " (round trip not captured)"
            )
            yield self.finding(
                f"broker {broker}, {api}",
                f"median {duration(slow_us * 1000)} in {many(each.count, 'exchange')}{round_trip}; next "
                f"slowest broker: {duration(peer[0] * 1000)}",
                each,
            )

    def _at_least_us(self, speed: tuple[int, str, Speed]) -> int:
        """A broker's median service time without the longest round trip of its connections."""
        median_us, broker, _ = speed
        return max(0, median_us - (self._round_trips(broker).max or 0))

    def _at_most_us(self, speed: tuple[int, str, Speed]) -> int:
        """The same without the shortest."""
        median_us, broker, _ = speed
        return max(0, median_us - (self._round_trips(broker).min or 0))

    def _round_trips(self, broker: str) -> Quantiles:
        return self.round_trips.get(broker, Quantiles())
