"""Exchanges among brokers and controllers, and fetch sessions -> what keeps a cluster from settling:
elections that nobody wins, brokers that the controllers do not admit or do not hear, and fetch sessions for
which a broker has no room.

In a cluster that is well, each of these happens a few times when a broker or controller starts.
"""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kdissect.anomalies import NOTE, WARNING
from kdissect.limits import SECOND_NS
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import listed, many, span
from kdissect.stats.connection_log import BROKER, CLIENT
from kdissect.stats.contents import EACH, ONE
from kdissect.stats.findings.rule import Bursts, Evidence, Rule, combined, partitions_in
from kdissect.stats.quantiles import Bounded, Distinct
from kdissect.stats.sums import Summed, join, joined, largest, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally

_NAMED = 3
_LIFE = frozenset({"BrokerRegistration", "BrokerHeartbeat"})


# ------------------------------------------------------------------------------------------------------------
# Vote responses -> controllers that ask for votes and do not get them.
# ------------------------------------------------------------------------------------------------------------

_INTERVALS = 3


def _lasts(each: Bursts) -> bool:
    """Whether occurrences are in several intervals of 10 seconds within a minute."""
    pieces = sorted(each.pieces)
    within = 60 * SECOND_NS // each.piece_ns
    return any(end - start < within for start, end in zip(pieces, pieces[_INTERVALS - 1 :], strict=False))


@summed
class Votes(Bursts):
    """Votes that were refused, and the node IDs of the candidates."""

    candidates: Distinct = merged(Distinct)


@summed
class ElectionsLost(Rule):
    """Controllers elect a leader within seconds. One that does not hear the leader, or lacks part of its log,
    asks for votes again and again; before KIP-996 that also deposed a leader that was well.
    """

    name = "elections-lost"
    severity = WARNING
    of = ("topic",)
    is_event = True
    title = "Controllers ask each other for votes again and again, and do not get them."
    when = (
        f"Votes refused in {_INTERVALS} intervals of {Bursts.piece_ns // SECOND_NS} s within a minute. When "
        "controllers start or their leader stops, an election is over within seconds."
    )
    advice = (
        "Find out why the candidate does not hear the leader: its connections to the other controllers "
        "(summary --connections), controller.quorum.voters or controller.quorum.bootstrap.servers, pauses "
        "longer than controller.quorum.fetch.timeout.ms; story host:IP shows what it did."
    )
    apis = frozenset({"Vote"})
    counts = Votes

    def feed(self, facts: Facts) -> None:
        """Count the votes that a response does not grant."""
        candidates = {
            of: partition.get("replica_id") for of, partition in partitions_in(facts, facts.exchange.request)
        }
        for of, partition in partitions_in(facts, facts.exchange.response):
            if partition.get("vote_granted") is False:
                kept = self.kept[of[0]]
                kept.add(facts)
                candidate = candidates.get(of)
                kept.candidates.add("?" if candidate is None else str(candidate))

    def _reports(self, each: Votes) -> bool:
        return _lasts(each)

    def _message(self, _: Scope, each: Votes) -> str:
        nodes = listed(each.candidates.first(_NAMED), "node")
        return f"{many(each.count, 'vote')} refused to {nodes}"


# ------------------------------------------------------------------------------------------------------------
# BrokerRegistration and BrokerHeartbeat responses -> brokers that the controllers do not admit.
# ------------------------------------------------------------------------------------------------------------

_CLUSTER_ID = "INCONSISTENT_CLUSTER_ID"


@summed
class BrokerRejected(Rule):
    """A broker that cannot register, or whose heartbeats are refused, stays fenced: it leads nothing and
    serves nobody.
    """

    name = "broker-rejected"
    severity = WARNING
    of = (CLIENT, "host", "error")
    failed = "count"
    title = "The controllers do not let a broker join the cluster."
    when = (
        "BrokerRegistration or BrokerHeartbeat requests rejected in "
        f"{_INTERVALS} intervals of {Bursts.piece_ns // SECOND_NS} s within a minute. After a crash, "
        "registrations are rejected for as long as the session of the broker before lasts "
        "(broker.session.timeout.ms, 9 s by default). NOT_CONTROLLER does not count: brokers then ask "
        f"another controller. {_CLUSTER_ID} counts in Fetch, FetchSnapshot and Vote requests too."
    )
    advice = (
        "DUPLICATE_BROKER_REGISTRATION: another process with the same node.id is running; "
        "INCONSISTENT_CLUSTER_ID: the log directories are those of another cluster; otherwise the "
        "broker's log says why."
    )
    apis = _LIFE | {"Fetch", "FetchSnapshot", "Vote"}
    needs_flaws = True
    counts = Bursts

    def feed(self, facts: Facts) -> None:
        """Count the errors of a response."""
        for error in facts.errors:
            if error == _CLUSTER_ID or (facts.api in _LIFE and error != "NOT_CONTROLLER"):
                self.kept[facts.client, facts.connection.client.ip, error].add(facts, error=error)

    def _reports(self, each: Bursts) -> bool:
        return _lasts(each)

    def _message(self, scope: Scope, each: Bursts) -> str:
        return f"{many(each.count, 'request')} to join rejected: {listed(scope['error'])}"


# ------------------------------------------------------------------------------------------------------------
# BrokerHeartbeat exchanges -> brokers that controllers do not hear for longer than a session.
# ------------------------------------------------------------------------------------------------------------

_SESSION_NS = 9 * SECOND_NS
_TOGETHER_NS = _SESSION_NS // 2
_KEPT = 64
_SESSION = f"broker.session.timeout.ms, {_SESSION_NS // SECOND_NS} s by default"


class Answered(NamedTuple):
    """From when to when heartbeats were answered, each within half a session of another; ID of the first."""

    first_ns: int
    last_ns: int
    exchange: str


class SentRequests(NamedTuple):
    """When the first and the last of some requests were sent, the ID of the first, and their number."""

    first_ns: int
    last_ns: int
    exchange: str
    number: int

    def is_in(self, begin_ns: int, end_ns: int) -> bool:
        """Whether the first or the last was sent in that time."""
        return begin_ns <= self.first_ns <= end_ns or begin_ns <= self.last_ns <= end_ns


class RequestLog(NamedTuple):
    """Requests in intervals of ``2 ** shift`` ns: these grow so that there are at most 64."""

    shift: int = 30
    sent: tuple[SentRequests, ...] = ()


class Missed(NamedTuple):
    """A time in which a broker got no answer: what it tried, and the heartbeat that ended it, if one did.

    Attributes:
        is_certain: whether no answer can have come that was not captured.
    """

    begin_ns: int
    end_ns: int
    tries: list[SentRequests]
    ended: list[SentRequests]
    is_certain: bool


def _spans(one: list[Answered], other: list[Answered]) -> list[Answered]:
    spans: list[Answered] = []
    for each in sorted((*one, *other)):
        if spans and each.first_ns - spans[-1].last_ns < _TOGETHER_NS:
            spans[-1] = spans[-1]._replace(last_ns=max(spans[-1].last_ns, each.last_ns))
        else:
            spans.append(each)
    return spans[:_KEPT]


def _logged(one: RequestLog, other: RequestLog) -> RequestLog:
    shift = max(one.shift, other.shift)
    while True:
        pieces: dict[int, SentRequests] = {}
        for each in sorted((*one.sent, *other.sent)):
            same = pieces.setdefault(each.first_ns >> shift, each)
            if same is not each:
                last_ns, number = max(same.last_ns, each.last_ns), same.number + each.number
                pieces[each.first_ns >> shift] = same._replace(last_ns=last_ns, number=number)
        if len(pieces) <= _KEPT:
            return RequestLog(shift, tuple(pieces.values()))
        shift += 1


@summed
class Heartbeats(Evidence):
    """The heartbeats of a broker, and, as evidence, the times when it was not answered.

    Attributes:
        answered: when they were answered by the active controller, also with an error.
        failed: those that were not, or too late.
        unclear: those whose response may not have been captured.
        restarts: when the broker said that it stops, or registered.
        unheard_ns: how long it was not answered; ``longest_ns``: at a time.
    """

    answered: list[Answered] = joined(_spans, list)
    failed: RequestLog = joined(_logged, RequestLog)
    unclear: RequestLog = joined(_logged, RequestLog)
    restarts: RequestLog = joined(_logged, RequestLog)
    unheard_ns: int = total()
    longest_ns: int = largest()

    def gaps(self, now_ns: int) -> Iterator[Missed]:
        """When it was not answered for a session, although it did not restart."""
        answered, failed = self.answered, sorted((*self.failed.sent, *self.unclear.sent))
        if failed and not (answered and answered[0].first_ns <= failed[0].first_ns):  # from the start
            answered = [Answered(failed[0].first_ns, failed[0].first_ns, failed[0].exchange), *answered]
        begins = [each.last_ns for each in answered]
        after = [
            *([SentRequests(each.first_ns, each.first_ns, each.exchange, 1)] for each in answered[1:]),
            [],
        ]
        for begin_ns, ended in list(zip(begins, after, strict=False))[: _KEPT - 1]:
            end_ns = ended[0].first_ns if ended else now_ns
            if end_ns - begin_ns >= _SESSION_NS and not any(
                each.is_in(begin_ns - _SESSION_NS, end_ns) for each in self.restarts.sent
            ):
                tries = [each for each in failed if each.is_in(begin_ns, end_ns)]
                yield Missed(begin_ns, end_ns, tries, ended, is_certain=not {*tries} <= {*self.unclear.sent})

    def covers(self, gap: Missed) -> bool:
        """Whether it was answered again and again in the middle of such a time of another broker: if all are
        silent, it is the capture that pauses.
        """
        third_ns = (gap.end_ns - gap.begin_ns) // 3
        return any(
            each.first_ns <= gap.begin_ns + third_ns and each.last_ns >= gap.end_ns - third_ns
            for each in self.answered
        )

    def miss(self, gap: Missed, shown: list[SentRequests]) -> None:
        """Add such a time, and the exchanges that show it."""
        for each in shown:
            self.take(max(each.first_ns, gap.begin_ns), each.exchange, each.number)
        self.first_ns = min(self.first_ns, gap.begin_ns)
        self.last_ns = max(self.last_ns, gap.end_ns)
        self.unheard_ns += gap.end_ns - gap.begin_ns
        self.longest_ns = max(self.longest_ns, gap.end_ns - gap.begin_ns)


@summed
class HeartbeatLog(Summed):
    """The heartbeats of all brokers, by client, its address and node ID."""

    brokers: Bounded[tuple[str, str, str], Heartbeats] = merged()
    latest_ns: int = latest(0)

    takes = frozenset({ONE})
    needs_flaws = False
    apis = _LIFE

    def __init__(self, limits: Limits) -> None:
        Summed.__init__(self)
        self.brokers = Bounded(limits.summary_rows, Heartbeats)

    def feed(self, facts: Facts) -> None:
        """Note a heartbeat or a registration."""
        request, host = facts.exchange.request or {}, facts.connection.client.ip
        kept = self.brokers[facts.client, host, str(request.get("broker_id", "?"))]
        kept.touch(host, facts.broker)
        log = RequestLog(sent=(SentRequests(facts.time_ns, facts.time_ns, facts.id, 1),))
        self.latest_ns = max(self.latest_ns, facts.time_ns)
        if facts.outcome is None:
            kept.unclear = _logged(kept.unclear, log)
        elif facts.latency_us is None or "NOT_CONTROLLER" in facts.errors:
            kept.failed = _logged(kept.failed, log)
        elif facts.api != "BrokerHeartbeat" or request.get("want_shut_down"):
            kept.restarts = _logged(kept.restarts, log)
        else:
            answered_ns = facts.time_ns + 1000 * facts.latency_us
            kept.answered = _spans(kept.answered, [Answered(answered_ns, answered_ns, facts.id)])
            if answered_ns - facts.time_ns >= _SESSION_NS:
                kept.failed = _logged(kept.failed, log)


@summed
class Unheard(Rule):
    """Base of rules about brokers whose heartbeats controllers do not answer for a session."""

    severity = WARNING
    of = (CLIENT, "host", "node")
    lost = "unheard_ns"
    follows = HeartbeatLog

    is_tried: ClassVar[bool]

    def findings(self) -> Iterator[RulePart]:
        """Brokers that were not answered for a session."""
        brokers = self.followed.brokers
        for key, each in brokers.items():
            missing = combined([each])
            for gap in each.gaps(self.followed.latest_ns):
                shown = gap.tries if self.is_tried else [] if gap.tries else gap.ended
                others = (other for other in brokers.values() if other is not each)
                if shown and (gap.is_certain or any(other.covers(gap) for other in others)):
                    missing.miss(gap, shown)
            if missing.count:
                yield self.part(key, missing)


@summed
class QuorumUnreachable(Unheard):
    """A broker that the active controller does not hear is fenced: others lead its partitions. It also learns
    nothing new of topics and leaders, but answers clients as before.
    """

    name = "quorum-unreachable"
    failed = "count"
    is_tried = True
    title = "A broker does not reach the active controller."
    when = (
        f"Heartbeats of a broker, or its registration, fail for {_SESSION_NS // SECOND_NS} s or more without "
        "one that is answered: they get no response, or NOT_CONTROLLER. Registrations and shutdowns in "
        "between are restarts and do not count; other errors are broker-rejected. If responses may be "
        "missing from the capture, another broker must be answered in the middle of that time."
    )
    advice = (
        "Look at the network between this broker and the controllers (summary --connections), at the "
        "controllers' logs, and at controller.quorum.bootstrap.servers or controller.quorum.voters."
    )

    def _message(self, _: Scope, each: Heartbeats) -> str:
        controllers = listed(sorted({controller for _, controller in each.ends}))
        return (
            f"no heartbeat answered by {controllers} for {span(each.longest_ns)}, "
            f"{many(each.count, 'request')} failed; fenced after {_SESSION}"
        )


@summed
class BrokerFenced(Unheard):
    """A broker that does not send heartbeats is fenced: others lead its partitions until it is back."""

    name = "broker-fenced"
    is_tried = False
    title = "A broker sends no heartbeat for longer than its session lasts, and then goes on."
    when = (
        f"No BrokerHeartbeat of a broker for {_SESSION_NS // SECOND_NS} s or more, then another one, without "
        "a registration or shutdown in between, while another broker is answered in the middle of that time; "
        "if none is, the capture may have paused."
    )
    advice = (
        "Look for what stopped the broker at that time: garbage collection, a paused machine, a disk that "
        "does not respond."
    )

    def _message(self, _: Scope, each: Heartbeats) -> str:
        return f"no heartbeat sent for {span(each.longest_ns)}; fenced after {_SESSION}"


# ------------------------------------------------------------------------------------------------------------
# Fetch requests for a new session -> who opens one after the other, and who gets none.
# ------------------------------------------------------------------------------------------------------------

_EVICTED, _STARTED = 5, 20
_CHURN_NS = 10 * SECOND_NS


class Use(NamedTuple):
    """When a connection first requested a session, and when it sent its last Fetch."""

    begin_ns: int
    last_ns: int


def _uses(one: dict[str, Use], other: dict[str, Use]) -> dict[str, Use]:
    for name, use in other.items():
        known = one.get(name, use)
        one[name] = Use(min(known.begin_ns, use.begin_ns), max(known.last_ns, use.last_ns))
    while len(one) > _KEPT:
        del one[max(one)]
    return one


@summed
class Sessions(Evidence):
    """The fetch sessions of a client at a broker; as evidence, what a rule looks for.

    Attributes:
        evicted: sessions that it lost; ``opened``: those that it got; ``denied``: those that it did not get.
        connections: on which it requested one.
        uses: of a sample of all its connections, by their IDs.
        totals: how many all clients began at each broker, see ``started``.
    """

    evicted: Bursts = merged(Bursts)
    opened: Evidence = merged(Evidence)
    denied: Evidence = merged(Evidence)
    connections: Distinct = merged(Distinct)
    uses: dict[str, Use] = joined(_uses, dict)
    totals: dict[str, int] = joined(or_, dict)

    @property
    def started(self) -> int:
        """How often it began: without a session, each Fetch requests one, which counts once."""
        return max(self.opened.count, len(self.connections))

    @property
    def needed(self) -> int:
        """One for each connection that it used at a time, at most; estimated if it had many."""
        uses = [use for use in self.uses.values() if use.begin_ns < NEVER_NS]
        if not uses:
            return len(self.connections)
        peak = max(sum(one.begin_ns <= use.begin_ns <= one.last_ns for one in uses) for use in uses)
        return len(self.connections) * peak // len(uses)

    @property
    def is_victim(self) -> bool:
        """Whether it lost sessions, or got none, again and again."""
        return self.evicted.busiest >= _EVICTED or max(self.evicted.count // 2, self.denied.count) >= _EVICTED

    def of(self, *some: Evidence) -> Sessions:
        """The same with other evidence."""
        one = combined([self])
        for each in some:
            join(one, each, Evidence)
        return one


@summed
class SessionLog(Summed):
    """The fetch sessions of all clients, by client, its address and broker."""

    clients: Bounded[tuple[str, str, str], Sessions] = merged()

    takes = EACH
    needs_flaws = False
    apis = frozenset({"Fetch"})

    def __init__(self, limits: Limits) -> None:
        self.clients = Bounded(limits.summary_rows, Sessions)

    def feed(self, tally: Tally) -> None:
        """Note how long connections are used, requests for a new session, and sessions that are gone."""
        kept = self.clients[tally.client, tally.connection.client.ip, tally.broker]
        if tally.exchange is not None:
            use = self._add(kept, tally)
        else:
            use = Use(NEVER_NS, tally.noted.last_ns)
            if (reads := tally.reads) is not None:
                for noted, evidence in ((reads.opened, kept.opened), (reads.denied, kept.denied)):
                    if noted.number:
                        evidence.add_noted(tally, noted)
                        kept.connections.add(str(tally.connection.key))
                        use = Use(min(use.begin_ns, noted.first_ns), use.last_ns)
        kept.uses = _uses(kept.uses, {tally.connection.id: use})

    def _add(self, kept: Sessions, facts: Facts) -> Use:
        request, response = facts.exchange.request or {}, facts.exchange.response
        begins = request.get("session_epoch") == 0
        if facts.errors and "FETCH_SESSION_ID_NOT_FOUND" in facts.errors:
            kept.evicted.add(facts)
        elif begins and response is not None and not response.get("error_code"):
            (kept.opened if response.get("session_id") else kept.denied).add(facts)
            kept.connections.add(str(facts.connection.key))
        return Use(facts.time_ns if begins else NEVER_NS, facts.time_ns)


@summed
class SessionsEvicted(Rule):
    """A broker keeps a limited number of fetch sessions. When it is full, it evicts those that nobody used
    for two minutes, and older ones for larger ones; otherwise, a client gets none, and sends all its
    partitions with each Fetch.
    """

    name = "fetch-sessions-evicted"
    severity = WARNING
    of = (CLIENT, "host", BROKER)
    title = "A broker has no room for the fetch sessions of a client: it evicts them, or opens none."
    when = (
        f"{_EVICTED} responses of a broker to a client with FETCH_SESSION_ID_NOT_FOUND within 10 s, or "
        f"{2 * _EVICTED} in all: after a restart of the broker, each client gets one. Or {_EVICTED} requests "
        "for a session to which a broker that has sessions responds without one."
    )
    advice = (
        "Raise max.incremental.fetch.session.cache.slots of the broker above the number of consumers and "
        "followers that fetch from it; find clients that open one session after the other "
        "(fetch-session-churn)."
    )
    follows = SessionLog

    def findings(self) -> Iterator[RulePart]:
        """Clients without room, where the broker has any."""
        clients = self.followed.clients
        serving = {key[2] for key, each in clients.items() if each.opened.count or each.evicted.count}
        for key, each in clients.items():
            if each.is_victim and key[2] in serving:
                yield self.part(key, each.of(each.evicted, each.denied))

    def _message(self, _: Scope, each: Sessions) -> str:
        evicted = f"{many(each.evicted.count, 'fetch session')} evicted while in use"
        denied = f"{many(each.denied.count, 'request')} for a fetch session got none"
        return " and ".join([evicted] * bool(each.evicted.count) + [denied] * bool(each.denied.count))


@summed
class SessionChurn(Rule):
    """A client that opens one fetch session after the other fills the broker's cache with sessions that
    nobody uses, until others get none.
    """

    name = "fetch-session-churn"
    severity = NOTE
    of = (CLIENT, "host", BROKER)
    title = "A client opens fetch sessions again and again."
    when = (
        f"{_STARTED} fetch sessions started by a client at a broker, not counting one for each connection "
        f"that it uses at the same time, in {_CHURN_NS // SECOND_NS} s or more and at a rate of {_STARTED} "
        "a minute or more. A warning if the broker has no room for others."
    )
    advice = (
        "Let the client keep its consumer open between polls; a library that requests a new session with "
        "each Fetch should send session epoch -1, or use the session that it got (KIP-227)."
    )
    follows = SessionLog

    def findings(self) -> Iterator[RulePart]:
        """Such clients."""
        clients = self.followed.clients
        full = {key[2] for key, each in clients.items() if each.is_victim and each.started < _STARTED}
        for key, each in clients.items():
            churn, spare = each.of(each.opened, each.denied), each.started - each.needed
            if spare >= _STARTED and _CHURN_NS <= churn.length_ns <= spare * 60 * SECOND_NS // _STARTED:
                some = (other.started for name, other in clients.items() if name[2] == key[2])
                churn.totals = {key[2]: sum(some)}
                yield self.part(key, churn, WARNING if key[2] in full else NOTE)

    def _message(self, _: Scope, each: Sessions) -> str:
        return (
            f"{many(each.started, 'fetch session')} started on {many(len(each.connections), 'connection')}, "
            f"{each.started / sum(each.totals.values()):.0%} of all there"
        )
