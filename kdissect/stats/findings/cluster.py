"""Exchanges among brokers and controllers, and fetch sessions -> what keeps a cluster from settling:
elections that nobody wins, brokers that the controllers do not admit, fetch sessions that are evicted.

In a cluster that is well, each of these happens a few times when a broker or controller starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import WARNING
from kdissect.limits import SECOND_NS
from kdissect.phrases import listed, many
from kdissect.stats.findings.rule import Bursts, Minutes, Rule, partitions_in
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import merged, summed

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import Scope

_NAMED = 3


# ------------------------------------------------------------------------------------------------------------
# Vote responses -> controllers that ask for votes and do not get them.
# ------------------------------------------------------------------------------------------------------------

_REFUSED = 30


@summed
class Votes(Minutes):
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
        f"{_REFUSED} votes refused within a minute. When three controllers start or one of them stops, "
        "fewer than ten are."
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
        return each.busiest >= _REFUSED

    def _message(self, _: Scope, each: Votes) -> str:
        nodes = listed(each.candidates.first(_NAMED), "node")
        return f"{many(each.count, 'vote')} refused to {nodes}, {each.peak}"


# ------------------------------------------------------------------------------------------------------------
# BrokerRegistration and BrokerHeartbeat responses -> brokers that the controllers do not admit.
# ------------------------------------------------------------------------------------------------------------

_INTERVALS = 3
_WITHIN = 60 * SECOND_NS // Bursts.piece_ns


@summed
class BrokerRejected(Rule):
    """A broker that cannot register, or whose heartbeats are refused, stays fenced: it leads nothing and
    serves nobody.
    """

    name = "broker-rejected"
    severity = WARNING
    of = ("client", "error")
    failed = "count"
    title = "The controllers do not let a broker join the cluster."
    when = (
        "BrokerRegistration or BrokerHeartbeat requests rejected in "
        f"{_INTERVALS} intervals of {Bursts.piece_ns // SECOND_NS} s within a minute. After a crash, "
        "registrations are rejected for as long as the session of the broker before lasts "
        "(broker.session.timeout.ms, 9 s by default). NOT_CONTROLLER does not count: brokers then ask "
        "another controller."
    )
    advice = (
        "DUPLICATE_BROKER_REGISTRATION: another process with the same node.id is running; "
        "INCONSISTENT_CLUSTER_ID: the log directories are those of another cluster; otherwise the "
        "broker's log says why."
    )
    apis = frozenset({"BrokerRegistration", "BrokerHeartbeat"})
    needs_flaws = True
    counts = Bursts

    def feed(self, facts: Facts) -> None:
        """Count the errors of a response."""
        for error in facts.errors:
            if error != "NOT_CONTROLLER":
                self.kept[facts.client, error].add(facts, error=error)

    def _reports(self, each: Bursts) -> bool:
        pieces = sorted(each.pieces)
        return any(
            end - start < _WITHIN for start, end in zip(pieces, pieces[_INTERVALS - 1 :], strict=False)
        )

    def _message(self, scope: Scope, each: Bursts) -> str:
        return f"{many(each.count, 'request')} to join rejected: {listed(scope['error'])}"


# ------------------------------------------------------------------------------------------------------------
# Fetch responses -> fetch sessions that a broker forgets again and again.
# ------------------------------------------------------------------------------------------------------------

_EVICTED = 5


@summed
class SessionsEvicted(Rule):
    """A broker keeps a limited number of fetch sessions. If more clients want one, they evict each other's,
    and then send all their partitions again with each Fetch.
    """

    name = "fetch-sessions-evicted"
    severity = WARNING
    of = ("client", "broker")
    title = "A broker forgets the fetch sessions of a client again and again."
    when = (
        f"{_EVICTED} responses of a broker to a client with FETCH_SESSION_ID_NOT_FOUND within 10 s, or "
        f"{2 * _EVICTED} in all. After a restart of the broker, each client gets one."
    )
    advice = (
        "Raise max.incremental.fetch.session.cache.slots of the broker above the number of consumers and "
        "followers that fetch from it; find clients that open one session after the other, as those do that "
        "connect for each poll: summary --connections."
    )
    apis = frozenset({"Fetch"})
    needs_flaws = True
    counts = Bursts

    def feed(self, facts: Facts) -> None:
        """Count the response if the session is gone."""
        if "FETCH_SESSION_ID_NOT_FOUND" in facts.errors:
            self.kept[facts.client, facts.broker].add(facts)

    def _reports(self, each: Bursts) -> bool:
        return each.busiest >= _EVICTED or each.count >= 2 * _EVICTED

    def _message(self, _: Scope, each: Bursts) -> str:
        return f"{many(each.count, 'fetch session')} evicted while in use, {each.peak}"
