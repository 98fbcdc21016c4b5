"""Facts about connections, leaders, logins, quotas and metadata -> findings, by one rule each."""

from __future__ import annotations

from collections import Counter
from operator import or_
from typing import TYPE_CHECKING, Any

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.exchanges.outcomes import exceeded_settings, outstanding_ns, overdue_ns
from kdissect.exchanges.pairing import OUT_OF_ORDER
from kdissect.kafka.codes import error_code
from kdissect.limits import MILLISECOND_NS, SECOND_NS
from kdissect.model import ANSWERED, UNACKNOWLEDGED, UNANSWERED
from kdissect.names import kept as kept_name
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import duration, listed, many, times, topic_label
from kdissect.stats.connection_log import BROKER, HANDSHAKE_APIS
from kdissect.stats.contents import EACH, ONE, SUM_OF_CONNECTION, SUMS
from kdissect.stats.findings.rule import (
    APIS,
    Bursts,
    Evidence,
    Minutes,
    Rule,
    combined,
)
from kdissect.stats.quantiles import Bounded, Distinct, Quantiles, bucket_of
from kdissect.stats.releases import removed_in
from kdissect.stats.rows import ranked
from kdissect.stats.sums import Summed, earliest, either, join, joined, largest, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Exchange
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Alike, Tally


_MIN_CONNECTIONS = 10
_REQUESTS = 3  # of a connection that is too short
_SHARE = 0.8


@summed
class ShortConnection(Evidence):
    """A connection: its first exchange, requests after the handshake, and whether something else than the
    client's habit explains that they are few: the broker ended it, a login failed, it was refused.
    """

    requests: int = total()
    explained_by_end: bool = either(False)

    def begin(self, time_ns: int, exchange: str) -> None:
        """Note an exchange by time and ID; only the earliest counts."""
        if not self.count or time_ns < self.first_ns:
            self.count, self.first_ns, self.last_ns = 1, time_ns, time_ns
            self._examples = [(time_ns, exchange)]


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
    takes = frozenset({SUM_OF_CONNECTION})
    counts = ShortConnection

    def feed(self, tally: Alike) -> None:
        """Count requests after the handshake. SASL tokens without a header have no client ID."""
        if tally.keys.api_key is None:
            return
        key = tally.client, tally.connection.client.ip, tally.broker, tally.connection.key
        kept = self.kept[key]
        kept.begin(*tally.first[0])
        if tally.api not in HANDSHAKE_APIS:
            kept.requests += tally.exchanges

    def connect(self, row: ConnectionLogRow) -> None:
        """Note that the broker ended a connection, or why the client could not use it."""
        key = row.client_id or row.client.ip, row.client.ip, str(row.broker), row.key
        if (row.ended_by == BROKER or row.is_refused) and key in self.kept:
            self.kept[key].explained_by_end = True

    def findings(self) -> Iterator[RulePart]:
        """Clients with many short connections."""
        ends: dict[Any, list[ShortConnection]] = {}
        for (*end, _), each in self.kept.items():
            if not each.explained_by_end:
                ends.setdefault(tuple(end), []).append(each)
        for (client, ip, broker), connected in ends.items():
            short = ShortConnections()
            for each in connected:
                if each.requests <= _REQUESTS:
                    short.add_evidence(each)
            if short.busiest >= _MIN_CONNECTIONS and short.count >= _SHARE * len(connected):
                short.all = len(connected)
                yield self.part((client, ip, broker), short)

    def _message(self, _: Scope, each: ShortConnections) -> str:
        return f"{each.count:,} of {each.all:,} connections carried at most {_REQUESTS} requests, {each.peak}"


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


def _topics(tally: Tally) -> Iterator[tuple[str, bytes, list[Any]]]:
    """Name, ID and partitions of the topics in a Metadata response: a name can get another ID, because the
    topic was deleted and created again. The ID is not text, which ``Bounded.rename`` would replace; it is
    empty in versions without IDs (KIP-516).
    """
    exemplar = tally.exemplar
    for topic in ((exemplar and exemplar.response) or {}).get("topics") or ():
        topic_id = topic.get("topic_id") or ""
        if name := topic.get("name") or topic_id:
            yield tally.kept(name), topic_id.encode(), topic.get("partitions") or []


@summed
class Moves(Evidence):
    """Changes of leaders; topic and partition -> its leaders in order."""

    partitions: dict[tuple[str, int], list[int]] = joined(or_, dict)


@summed
class LeadersMoving(Rule):
    """A restart or failure moves leaders once or twice. Leaders that keep moving make all clients wait."""

    name = "leaders-moving"
    severity = NOTE
    of = ("topic",)
    title = "Partition leaders change."
    when = (
        "Any leader change (a note, because it explains errors around that time); "
        f"{_WARNING_THRESHOLD} changes of one partition make it a warning."
    )
    advice = (
        "Check whether a broker was restarted or disconnected at that time; if not, check its load and disks."
    )
    takes = EACH
    apis = APIS
    counts = Leaders

    def feed(self, tally: Tally) -> None:
        """Note leaders; -1 means none."""
        reported = tally.first[0]
        for name, topic_id, partitions in _topics(tally):
            for partition in partitions:
                leader = partition.get("leader_id", -1)
                if leader >= 0:
                    kept = self.kept[name, topic_id, partition.get("partition_index", -1)]
                    kept.lead(leader, partition.get("leader_epoch", -1), reported)

    def findings(self) -> Iterator[RulePart]:
        """Topics whose leaders moved."""
        ids: dict[str, set[bytes]] = {}
        for name, topic_id, _ in self.kept:
            ids.setdefault(name, set()).update({topic_id} - {b""})
        leaders: dict[tuple[str, bytes, int], Leaders] = {}
        for (name, topic_id, partition), each in self.kept.items():
            # Early versions of Metadata have no IDs. Of a name with several, theirs is unknown.
            if topic_id or len(ids[name]) <= 1:
                key = name, topic_id or next(iter(ids[name]), b""), partition
                leaders.setdefault(key, Leaders()).merge(each)
        topics: dict[tuple[str, bytes], Moves] = {}
        for (name, topic_id, partition), each in leaders.items():
            if len(turns := each.in_order) > 1:
                moves = topics.setdefault((name, topic_id), Moves())
                moves.partitions[name, partition] = [leader for leader, *_ in turns]
                for _, time_ns, exchange in turns[1:]:
                    moves.take(time_ns, exchange)
        for (name, _), moves in topics.items():
            left = sorted({str(leader) for turns in moves.partitions.values() for leader in turns[:-1]})
            part = self.part(name, moves)
            part.scope = {**part.scope, "node": left}
            yield part

    def _level(self, each: Moves) -> str:
        return WARNING if max(map(len, each.partitions.values())) > _WARNING_THRESHOLD else NOTE

    def _message(self, scope: Scope, each: Moves) -> str:
        several = len(scope["topic"]) > 1
        named = ", ".join(
            f"{topic_label(topic) + '-' if several else ''}{partition} "
            f"({' -> '.join(map(str, each.partitions[topic, partition][:_MAX_LEADERS]))})"
            for topic, partition in sorted(each.partitions)[:_MAX_PARTITIONS]
        )
        left_out = len(each.partitions) - _MAX_PARTITIONS
        more = f" and {left_out:,} more" if left_out > 0 else ""
        return f"{many(each.count, 'leader change')}: partition {named}{more}"


@summed
class TopicRecreated(Rule):
    """The records of the old topic are gone, offsets begin at 0 again, and groups keep their old offsets."""

    name = "topic-recreated"
    severity = WARNING
    of = ("topic",)
    is_event = True
    title = "A topic is deleted and created again under the same name."
    when = (
        "Any topic name for which Metadata responses (version 10 and later) of a cluster have two topic IDs."
    )
    advice = (
        "Check who deleted the topic. Reset the offsets of its groups (kafka-consumer-groups "
        "--reset-offsets), and restart clients that still use the old topic."
    )
    takes = EACH
    apis = frozenset({"Metadata"})

    def feed(self, tally: Tally) -> None:
        """Note the IDs of topics that exist."""
        exemplar = tally.exemplar
        cluster_id = ((exemplar and exemplar.response) or {}).get("cluster_id") or ""
        for name, topic_id, partitions in _topics(tally):
            if topic_id and partitions:
                self.kept[cluster_id, name, topic_id].take(*tally.first[0])

    def findings(self) -> Iterator[RulePart]:
        """Names with several IDs, each of which replaces the one before."""
        topics: dict[tuple[str, str], list[Evidence]] = {}
        for (cluster_id, name, _), each in self.kept.items():
            topics.setdefault((cluster_id, name), []).append(each)
        for (_, name), ids in topics.items():
            evidence = Evidence()
            for each in sorted(ids, key=lambda each: each.first_ns)[1:]:
                evidence.take(each.first_ns, each.examples[0])
            if evidence.count:
                yield self.part(name, evidence)

    def _message(self, _: Scope, each: Evidence) -> str:
        return f"deleted and created again {times(each.count)}: its topic ID changed"


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
    of = ("client", "topic")
    failed = "count"
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

    def _reports(self, each: Bursts) -> bool:
        return each.busiest >= _STORM

    def _message(self, _: Scope, each: Bursts) -> str:
        return f"{each.count:,} responses from brokers that do not lead the partition, {each.peak}"


# ------------------------------------------------------------------------------------------------------------
# Login responses -> clients that cannot log in.
# ------------------------------------------------------------------------------------------------------------


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
    of = ("client", "broker")
    lost = "sum_ms"
    title = "A quota throttles a client."
    when = (
        f"{_MIN_THROTTLED} responses with a throttle time, or {_MIN_THROTTLE_MS:,} ms in total; occasional "
        "short throttling is normal under a quota."
    )
    advice = (
        "Reduce or spread the load, or raise producer_byte_rate, consumer_byte_rate or request_percentage of "
        "this client or user (kafka-configs --describe --entity-type clients, or users, shows them)."
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

    def _reports(self, each: Throttles) -> bool:
        return each.count >= _MIN_THROTTLED or each.sum_ms >= _MIN_THROTTLE_MS

    def _message(self, _: Scope, each: Throttles) -> str:
        return (
            f"{many(each.count, 'response')} with a throttle time, "
            f"{duration(each.sum_ms * MILLISECOND_NS)} in total, "
            f"longest {duration(each.max_ms * MILLISECOND_NS)}"
        )


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
    takes = frozenset({ONE, SUM_OF_CONNECTION})
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
        connection = tally.connection
        key = tally.client, connection.key
        if tally.exchange is None:
            if not tally.has_flaw:
                self.accepted[tally.broker, tally.api, tally.keys.api_version].add(tally)
                rejected = self.rejected.get(key)
                if rejected is not None and (tally.last_ns or 0) >= rejected.first_ns:
                    rejected.works = True
            return
        exchange = tally.exchange
        version = exchange.api_version
        is_refused, is_silent = _UNSUPPORTED in tally.errors, _may_be_disconnected(exchange)
        if tally.api == _API_VERSIONS and is_refused:
            self.rejected[key].add(tally)
        elif is_refused or is_silent:
            kept = self.kept[tally.client, tally.broker, tally.api, version, is_silent]
            kept.add(tally)
            kept.connections.add(connection.name)
        elif exchange.response is not None:
            self.accepted[tally.broker, tally.api, version].add(tally)
            if key in self.rejected:
                self.rejected[key].works = True

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
# Requests that are outstanding for too long -> clients whose broker does not respond.
# ------------------------------------------------------------------------------------------------------------


_OVERDUE_S = 5


@summed
class LongWaits(Evidence):
    """Requests of one client to one broker: by API, and how long the oldest was outstanding.

    Attributes:
        until_ns: until when one was outstanding, less the time that it allows the broker to wait.
        muted_ns: until when the broker did not read because of a quota.
    """

    apis: Counter[str] = total(Counter)
    oldest_ns: int = largest()
    until_ns: int = largest()
    muted_ns: int = largest()

    def are_silence(self, sent_ns: int) -> bool:
        """Whether so long nothing came from the broker, which last sent something at ``sent_ns``."""
        return self.until_ns - max(sent_ns, self.muted_ns) > _OVERDUE_S * SECOND_NS


@summed
class RequestTimeouts(Rule):
    """The client times out and retries: the broker may or may not have processed the request."""

    name = "request-timeouts"
    severity = ERROR
    of = ("client", "broker")
    failed = "count"
    lost = "oldest_ns"
    title = "Requests time out: the broker does not respond."
    when = (
        f"An unanswered request was outstanding for {_OVERDUE_S} s longer than the time that it allows the "
        "broker to wait (max_wait_ms, timeout_ms; none for most APIs), its host had acknowledged the request "
        "at the TCP level, no response had begun, and the broker sent nothing else on the connection for so "
        "long. Clients that close the connection with a request outstanding, as consumers do, and the "
        "throttle time of a quota are not reported."
    )
    advice = "Check the broker's log, garbage collection and disks at that time, and the network path to it."
    needs_flaws = True
    counts = LongWaits

    open: Bounded[tuple[str, str, ConnectionKey], LongWaits] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.open = Bounded(limits.connections, LongWaits)  # by client, broker and connection, until it ends

    def feed(self, facts: Facts) -> None:
        """Count an unanswered request; note a throttle time."""
        exchange, response = facts.exchange, facts.exchange.response_frame
        key = facts.client, facts.broker, exchange.connection.key
        if facts.throttle_ms and response is not None:
            waits = self.open[key]
            waits.muted_ns = max(waits.muted_ns, response.end_ns + facts.throttle_ms * MILLISECOND_NS)
        if facts.outcome != UNANSWERED or exchange.is_held_up:
            return
        if (overdue := overdue_ns(exchange)) > _OVERDUE_S * SECOND_NS:
            waits = self.open[key]
            waits.add(facts)
            waits.apis[facts.api] += 1
            waits.oldest_ns = max(waits.oldest_ns, outstanding_ns(exchange))
            waits.until_ns = max(waits.until_ns, exchange.time_ns + overdue)
            waits.last_ns = max(waits.last_ns, waits.until_ns)

    def connect(self, row: ConnectionLogRow) -> None:
        """Judge by when the broker last sent something."""
        client, broker = row.client_id or row.client.ip, str(row.broker)
        waits = self.open.pop((client, broker, row.key), None)
        if waits is None or not waits.count:
            return
        if row.tcp is None or waits.are_silence(row.tcp.sent_ns(1 - row.client_side)):
            self.kept[client, broker].merge(waits)

    def findings(self) -> Iterator[RulePart]:
        """Clients with such requests."""
        ends: dict[tuple[str, str], LongWaits] = {}
        for (client, broker), each in self.kept.items():
            ends.setdefault((client, broker), LongWaits()).merge(each)
        for (client, broker, _), each in self.open.items():  # of which TCP was not analyzed
            if each.count and each.are_silence(0):
                ends.setdefault((client, broker), LongWaits()).merge(each)
        for key, each in ends.items():
            yield self.part(key, each)

    def _message(self, _: Scope, each: LongWaits) -> str:
        apis = ", ".join(f"{count:,} {api}" for api, count in ranked(each.apis).items())
        waited = f"outstanding for up to {duration(each.oldest_ns)}"
        return f"{many(each.count, 'unanswered request')} ({apis}), {waited}"


# ------------------------------------------------------------------------------------------------------------
# Messages that began but did not end -> clients and brokers between which they got stuck.
# ------------------------------------------------------------------------------------------------------------


_STUCK_S = 5


@summed
class CutMessages(Evidence):
    """Incomplete messages by API and which of the two they are; of the largest its announced size, the bytes
    that came, and for how long they came.
    """

    messages: Counter[str] = total(Counter)
    largest: tuple[int, int, int] = largest((0, 0, 0))
    exceeded: Counter[str] = total(Counter)


@summed
class IncompleteMessages(Rule):
    """The client has to send the request again, and if the cause is the size of the message, it gets no
    further.
    """

    name = "incomplete-messages"
    severity = WARNING
    of = ("client", "broker")
    failed = "count"
    title = "Connections end in the middle of a message."
    when = (
        f"The connection ended {_STUCK_S} s or more after the first or the latest byte of an incomplete "
        "message came, or the message was larger than a usual limit. Clients that close a connection while a "
        "response is on its way, as consumers do, are not reported."
    )
    advice = (
        "If the bytes came slowly, the receive window limits them (receive.buffer.bytes of a consumer, "
        "socket.receive.buffer.bytes of a broker), or the path does; otherwise look for a side that does not "
        "read, and for packet loss. Compare the size with socket.request.max.bytes of the broker, and "
        "fetch.max.bytes or receive.message.max.bytes of the client."
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
        if exceeded or exchange.completed_ns - frame.start_ns >= _STUCK_S * SECOND_NS:
            kept = self.kept[facts.client, facts.broker]
            kept.add(facts)
            kept.messages[f"{facts.api} {'response' if exchange.is_cut else 'request'}"] += 1
            came_ns = frame.end_ns - frame.start_ns
            kept.largest = max(kept.largest, (exchange.announced, frame.wire_bytes, came_ns))
            kept.exceeded.update(name for name, _ in exceeded)

    def _message(self, _: Scope, each: CutMessages) -> str:
        what = ", ".join(f"{count:,} {message}" for message, count in ranked(each.messages).items())
        announced, came, came_ns = each.largest
        size = f"of {announced:,} bytes announced {came:,} came"
        size += " of the largest" if each.count > 1 else ""
        size += f", in {duration(came_ns)}" if came_ns >= SECOND_NS else ""
        limits = f"; larger than {' and '.join(sorted(each.exceeded))} by default" if each.exceeded else ""
        return f"{many(each.count, 'incomplete message')} ({what}): {size}{limits}"


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
    of = ("client", "broker")
    failed = "count"
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

    def _message(self, _: Scope, each: OutOfOrder) -> str:
        apis = ", ".join(f"{count:,} {api}" for api, count in ranked(each.apis).items())
        return f"{many(each.count, 'request')} ({apis}) answered after a later one of the same connection"


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
# Service times by API and broker -> brokers that are slower than the others.
# ------------------------------------------------------------------------------------------------------------


_MEASURED = 20  # exchanges of a broker
_TIMES_SLOWER = 5
_SLOWER_US = 10_000


@summed
class Speed(Evidence):
    """Exchanges of an API at a broker, in microseconds: service times, and what clients waited in all.

    Attributes:
        slowest: for the message: median, the same without the round trip, median of the next slowest broker,
            API, broker, exchanges.
    """

    service_us: Quantiles = merged(Quantiles)
    total_us: Quantiles = merged(Quantiles)
    slowest: tuple[int, int, int, str, str, int] = largest((0, 0, 0, "", "", 0))

    def add_times(self, tally: Alike) -> None:
        """Add measured exchanges."""
        self.service_us.merge(tally.service_us)
        self.total_us.merge(tally.total_us)
        self.add(tally)


def _both_times(total_us: int | None, service_us: int) -> str:
    """``300.0ms, of which the broker 66.0ms``; only the latter if the former is not known."""
    broker = duration(service_us * 1000)
    if total_us is None or total_us < service_us:
        return broker
    return f"{duration(total_us * 1000)}, of which the broker {broker}"


@summed
class SlowBroker(Rule):
    """If all brokers are slow, the load may be too high; if only one is, the problem is on that broker."""

    name = "slow-broker"
    severity = WARNING
    of = ("broker", "API")
    apart = "broker"
    title = "One broker responds much more slowly than its peers."
    when = (
        f"The median service time of an API, without the round trip to the broker, is {_TIMES_SLOWER} times "
        f"that of the next slowest broker and {_SLOWER_US // 1000} ms longer, with {_MEASURED} requests or "
        "more on each."
    )
    advice = "Compare its disks, garbage collection, network and number of leaders with those of its peers."
    takes = SUMS
    counts = Speed

    round_trips: Bounded[str, Quantiles] = merged()  # the shortest of each connection to a broker

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.round_trips = Bounded(limits.summary_rows, Quantiles)

    def feed(self, tally: Alike) -> None:
        """Note how long a broker took."""
        if tally.keys.is_measured:
            self.kept[tally.api, tally.broker].add_times(tally)

    def connect(self, row: ConnectionLogRow) -> None:
        """Note how far away the broker is: seen from a client, service times include a round trip."""
        round_trip_ns = None if row.tcp is None else row.tcp.shortest_round_trip_ns(row.client_side)
        if round_trip_ns is not None and row.kinds[ANSWERED]:
            self.round_trips[str(row.broker)].add(round_trip_ns // 1000)

    def findings(self) -> Iterator[RulePart]:
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
                min_us, max_us = self._at_least_us(slowest), self._at_most_us(peer)
                if min_us >= _TIMES_SLOWER * max_us and min_us - max_us >= _SLOWER_US:
                    slow_us, broker, each = slowest
                    evidence = combined([each])
                    evidence.slowest = slow_us, min_us, peer[0], api, broker, each.count
                    yield self.part((broker, api), evidence)

    def _message(self, scope: Scope, each: Speed) -> str:
        slow_us, min_us, peer_us, api, broker, count = each.slowest
        (total_us,) = each.total_us.at((0.5,)) if len(scope["API"]) == 1 else (None,)
        times = _both_times(slow_us if total_us is None else total_us, min_us)
        round_trip = (
            f", the round trip {duration((slow_us - min_us) * 1000)}"
            if broker in self.round_trips
            else " (round trip not captured)"
        )
        of = many(count, "exchange" if len(scope["API"]) == 1 else f"{api} exchange")
        return f"median of {of} {times}{round_trip}; next slowest broker: {duration(peer_us * 1000)}"

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


_SLOW_US = 2_000_000  # more than usual


@summed
class SlowConnections(Evidence):
    """Connections with such requests; longest service time, median and total time of one, in microseconds."""

    longest: tuple[int, int, int] = largest((0, 0, -1))

    @property
    def lost_us(self) -> int:
        """How much longer the slowest took."""
        return self.longest[0] - self.longest[1]


@summed
class SlowRequests(Rule):
    """A disk that stalls, a replica that acks=all waits for, or a long pause delays few requests, but so long
    that a client notices. Percentiles do not show it.
    """

    name = "slow-requests"
    severity = WARNING
    of = ("client", "broker", "API")
    lost = "lost_us"
    title = "Some requests take seconds longer than is usual on their connection."
    when = (
        f"A service time {_SLOW_US // 1_000_000} s above the median of the same API on the same connection, "
        f"with {_MEASURED} requests or more. Times that brokers wait on purpose, throttle times, "
        "retransmissions and the wait for earlier responses are not service time."
    )
    advice = (
        "Look at the broker's log at that time: disk stalls, garbage collection, replicas that left the ISR "
        "(replica.lag.time.max.ms bounds how long acks=all waits for one), leaders that moved."
    )
    takes = frozenset({SUM_OF_CONNECTION})
    counts = Speed

    def feed(self, tally: Alike) -> None:
        """Note how long a broker took."""
        keys = tally.keys
        if keys.is_measured and keys.api_key is not None:
            key = tally.client, tally.broker, keys.api, tally.connection.key
            self.kept[key].add_times(tally)

    def findings(self) -> Iterator[RulePart]:
        """Clients with such requests, by broker and API."""
        slow: dict[tuple[str, str, str], SlowConnections] = {}
        for (client, broker, api, connection), each in self.kept.items():
            (median_us,) = each.service_us.at((0.5,))
            longest_us = each.service_us.max
            if median_us is None or longest_us is None or each.count < _MEASURED:
                continue
            if longest_us - median_us >= _SLOW_US:
                evidence = slow.setdefault((client, broker, api), SlowConnections())
                evidence.take(each.first_ns, connection[0])
                evidence.last_ns = max(evidence.last_ns, each.last_ns)
                evidence.ends |= each.ends
                total_us = -1 if each.total_us.max is None else each.total_us.max
                evidence.longest = max(evidence.longest, (longest_us, median_us, total_us))
        for key, evidence in slow.items():
            yield self.part(key, evidence)

    def _message(self, _: Scope, each: SlowConnections) -> str:
        longest_us, median_us, total_us = each.longest
        return (
            f"up to {_both_times(None if total_us < 0 else total_us, longest_us)}, median "
            f"{duration(median_us * 1000)}, on {many(each.count, 'connection')}"
        )


# ------------------------------------------------------------------------------------------------------------
# Requests that wait for the responses to earlier ones -> producers that outrun a connection.
# ------------------------------------------------------------------------------------------------------------


_QUEUED_US = 1_000_000
_QUEUED = bucket_of(_QUEUED_US)  # the core counts waits by bucket
_MIN_QUEUED = 10


@summed
class Queued(Summed):
    """Produce requests of a connection: their number, those that waited long, the longest wait, how long they
    took in all, and the broker for them, and when the first and the last was sent.
    """

    count: int = total()
    waited: int = total()
    longest_us: int = largest()
    total_us: Quantiles = merged(Quantiles)
    service_us: Quantiles = merged(Quantiles)
    first_ns: int = earliest(NEVER_NS)
    last_ns: int = latest(0)
    ends: set[tuple[str, str]] = joined(or_, set)

    def add(self, waits: Mapping[int, int], longest_us: int, count: int, times: tuple[int, int]) -> None:
        """Add requests: the number of waits by bucket, the longest wait, and when the first and the last was
        sent.
        """
        self.count += count
        self.waited += sum(number for bucket, number in waits.items() if bucket >= _QUEUED)
        self.longest_us = max(self.longest_us, longest_us)
        self.first_ns, self.last_ns = min(self.first_ns, times[0]), max(self.last_ns, times[1])


@summed
class QueuedConnections(Evidence):
    """Connections on which requests wait, and these requests."""

    requests: Queued = merged(Queued)


@summed
class Queueing(Rule):
    """A broker processes the requests of a connection one by one. A producer that sends faster fills a queue:
    each record waits for all before it, however fast the broker is.
    """

    name = "queueing"
    severity = WARNING
    of = ("client",)
    lost = "requests.longest_us"
    title = "A producer sends faster than its connection is served: requests wait for earlier ones."
    when = (
        f"{_MIN_QUEUED} Produce requests of a connection that waited {_QUEUED_US // 1_000_000} s or more for "
        "the responses to earlier requests. The broker is not silent: it responds in order, all the time."
    )
    advice = (
        "Let the producer send fewer and larger requests: raise linger.ms and batch.size, or lower "
        "max.in.flight.requests.per.connection (librdkafka: 1,000,000 by default). If each request takes "
        "long, see what it waits for: acks=all waits for all replicas in sync."
    )
    takes = EACH
    apis = frozenset({"Produce"})
    counts = Queued

    def feed(self, tally: Tally) -> None:
        """Add how long requests waited for the responses to earlier ones."""
        kept = self.kept[tally.client, tally.connection.key]
        kept.ends.add((tally.connection.client.ip, tally.broker))
        if tally.exchange is None:
            queued, noted = tally.queued_us, tally.noted
            kept.add(queued.buckets(), queued.max or 0, tally.exchanges, (noted.first_ns, noted.last_ns))
            kept.total_us.merge(tally.total_us)
            kept.service_us.merge(tally.service_us)
            return
        parts = tally.parts
        queued_us = (parts.queued_us or 0) if parts is not None else 0
        kept.add({bucket_of(queued_us): 1}, queued_us, 1, (tally.time_ns, tally.time_ns))
        if (total_us := tally.total_us) is not None and tally.service_us is not None:
            kept.total_us.add(total_us)
            kept.service_us.add(tally.service_us)

    def findings(self) -> Iterator[RulePart]:
        """Producers with such connections."""
        clients: dict[str, QueuedConnections] = {}
        for (client, connection), each in self.kept.items():
            if each.waited >= _MIN_QUEUED:
                queued = clients.setdefault(client, QueuedConnections())
                queued.requests.merge(each)
                queued.take(each.first_ns, connection[0])
                queued.last_ns = max(queued.last_ns, each.last_ns)
                queued.ends |= each.ends
        for client, queued in clients.items():
            yield self.part(client, queued)

    def _message(self, _: Scope, each: QueuedConnections) -> str:
        queued = each.requests
        (total_us,), (service_us,) = queued.total_us.at((0.5,)), queued.service_us.at((0.5,))
        times = "" if service_us is None else f"; median of all {_both_times(total_us, service_us)}"
        return (
            f"{queued.waited:,} of {many(queued.count, 'Produce request')} on "
            f"{many(each.count, 'connection')} waited {_QUEUED_US // 1_000_000} s or more for the "
            f"responses to earlier ones, up to {duration(queued.longest_us * 1000)}{times}"
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
