"""Facts -> findings of all rules. Holds the rules.

    Facts -> rules for this API -> parts -> causes.py -> rows, the worst first

A new rule is a class in one of these files, an entry in ``RULES``, one in ``causes.EXPLAINS`` if it explains
others, and a test of when it reports something.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kdissect.stats.by_cluster import ByCluster
from kdissect.stats.findings.brokers import (
    ClientIds,
    ClientUnserved,
    ConnectionChurn,
    IncompleteMessages,
    LeadersMoving,
    MetadataPolling,
    NotLeader,
    Queueing,
    RequestTimeouts,
    ResponsesOutOfOrder,
    Sasl,
    SlowBroker,
    SlowRequests,
    Throttled,
    TopicRecreated,
    UnsupportedVersions,
)
from kdissect.stats.findings.causes import rows
from kdissect.stats.findings.connections import (
    AdvertisedUnreachable,
    BrokerCloses,
    BrokerResets,
    BrokerSilent,
    ClientVanished,
    ClosedInHandshake,
    ConnectionRefused,
    ConnectTimeout,
    NetworkLoss,
    ReconnectLoop,
    ResponseMismatch,
    StalledReader,
    TlsPortMismatch,
)
from kdissect.stats.findings.consumers import (
    BlockedReaders,
    ConsumerStuck,
    EmptyPolls,
    FallingBehind,
    InstanceIds,
    OutOfRange,
    PollTimeout,
    RebalanceStorm,
)
from kdissect.stats.findings.doors import HellosRejected, SharedAddress, WrongPort, WrongProtocol
from kdissect.stats.findings.errors import (
    AuthorizationDenied,
    CoordinatorUnavailable,
    NotEnoughReplicas,
    ProduceRefused,
    StorageError,
)
from kdissect.stats.findings.interrupted import PathInterrupted
from kdissect.stats.findings.logins import SessionExpired
from kdissect.stats.findings.members import MixedGroup, RevocationHeld
from kdissect.stats.findings.outages import BrokerUnreachable
from kdissect.stats.findings.paths import IdleDropped, LongPollsCut, MtuBlackHole
from kdissect.stats.findings.producers import (
    Acks,
    EpochDuplicates,
    FencedProducers,
    HotPartitions,
    RequestsTooLarge,
    TinyBatches,
    TransactionFailed,
)
from kdissect.stats.findings.replicas import ReplicaOutOfSync
from kdissect.stats.findings.rule import Rule, RulePart
from kdissect.stats.findings.share_groups import ShareRedelivery
from kdissect.stats.findings.timestamps import FarTimestamps
from kdissect.stats.sums import Summed, fed, merged, merged_by_name, summed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.limits import Limits
    from kdissect.net.dns import Resolved
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.document import FindingRow
    from kdissect.stats.facts import Facts
    from kdissect.stats.load import Aggregate
    from kdissect.stats.usual import Usual

RULES: tuple[type[Rule], ...] = (
    *(
        BrokerUnreachable,
        BrokerSilent,
        BrokerResets,
        BrokerCloses,
        ConnectionRefused,
        ConnectTimeout,
        AdvertisedUnreachable,
    ),
    *(TlsPortMismatch, ClosedInHandshake, ResponseMismatch, ResponsesOutOfOrder, ReconnectLoop),
    *(WrongPort, HellosRejected, WrongProtocol, SharedAddress),
    *(MtuBlackHole, IdleDropped, PathInterrupted, LongPollsCut),
    *(NetworkLoss, StalledReader, ClientVanished, SlowBroker, SlowRequests),
    *(ProduceRefused, AuthorizationDenied, NotEnoughReplicas, ReplicaOutOfSync, StorageError),
    CoordinatorUnavailable,
    *(RequestTimeouts, IncompleteMessages, NotLeader, LeadersMoving, TopicRecreated, UnsupportedVersions),
    *(Sasl, SessionExpired, Throttled, ClientUnserved),
    *(Acks, Queueing, TinyBatches, RequestsTooLarge, HotPartitions, FencedProducers, TransactionFailed),
    *(EpochDuplicates, RebalanceStorm, PollTimeout, FallingBehind, ConsumerStuck, BlockedReaders, EmptyPolls),
    *(FarTimestamps, MixedGroup, RevocationHeld, ShareRedelivery),
    *(OutOfRange, ClientIds, InstanceIds, ConnectionChurn, MetadataPolling),
)
"""In this order: connections, errors, brokers and logins, producers, consumers, and client habits."""


@summed
class RuleSet(Summed):
    """Some rules over the same facts, by name."""

    rules: dict[str, Rule] = merged_by_name()
    _by_api: dict[tuple[str, bool], list[Rule]] = fed()
    _of_any_api: dict[bool, list[Rule]] = fed()
    _of_aggregates: list[Rule] = fed()

    def __init__(self, limits: Limits, rules: Iterable[type[Rule]]) -> None:
        self.rules = {rule.name: rule(limits) for rule in rules}
        self._of_aggregates = [
            rule for rule in self.rules.values() if type(rule).feed_aggregate is not Rule.feed_aggregate
        ]
        feeding = [rule for rule in self.rules.values() if type(rule).feed is not Rule.feed]
        fed = (False, [rule for rule in feeding if not rule.needs_flaws]), (True, feeding)
        self._of_any_api = {flawed: [rule for rule in rules if not rule.apis] for flawed, rules in fed}
        self._by_api = {
            (api, flawed): [rule for rule in rules if not rule.apis or api in rule.apis]
            for api in frozenset().union(*(rule.apis for rule in feeding))
            for flawed, rules in fed
        }

    def feed(self, facts: Facts) -> None:
        """Pass an exchange to the rules for its API; in addition, count it for ``feed_aggregate``."""
        for rule in self.rules_for(facts.api, has_flaw=facts.has_flaw):
            rule.feed(facts)

    def rules_for(self, api: str, *, has_flaw: bool) -> list[Rule]:
        """The rules that are fed exchanges of an API, with a flaw or without."""
        return self._by_api.get((api, has_flaw), self._of_any_api[has_flaw])

    def feed_usual(self, usual: Usual) -> None:
        """Pass exchanges that the core has counted to the same rules; ``feed_aggregate`` counts them too."""
        for rule in self.rules_for(usual.api, has_flaw=False):
            rule.feed_usual(usual)

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """Pass exchanges that are alike to the rules that need no more of them."""
        for rule in self._of_aggregates:
            rule.feed_aggregate(aggregate)

    def connect(self, row: ConnectionLogRow) -> None:
        """Pass a connection that has ended to all rules."""
        for rule in self.rules.values():
            rule.connect(row)

    def resolved(self, response: Resolved) -> None:
        """Pass a DNS response to all rules."""
        for rule in self.rules.values():
            rule.resolved(response)

    def rows(self) -> list[RulePart]:
        """What all rules have found."""
        return [part for rule in self.rules.values() for part in rule.findings()]

    def other_counts(self) -> dict[str, int]:
        """Empty: keys beyond the limit of a rule are counted together and cannot give findings."""
        return {}


_OF_CONNECTIONS = tuple(
    rule for rule in RULES if (rule.connect, rule.resolved) != (Rule.connect, Rule.resolved)
)
"""These need connections and names of hosts: what they find is about addresses."""
_OF_CLUSTERS = tuple(rule for rule in RULES if rule not in _OF_CONNECTIONS)


@summed
class Findings(Summed):
    """All rules; those about names for each cluster."""

    of_connections: RuleSet = merged()
    of_clusters: ByCluster = merged()

    def __init__(self, limits: Limits) -> None:
        self.of_connections = RuleSet(limits, _OF_CONNECTIONS)
        self.of_clusters = ByCluster(partial(RuleSet, limits, _OF_CLUSTERS), limits)

    def feed(self, facts: Facts) -> None:
        """See ``RuleSet``."""
        self.of_connections.feed(facts)
        self.of_clusters.feed(facts)

    def feed_usual(self, usual: Usual) -> None:
        """See ``RuleSet``."""
        self.of_connections.feed_usual(usual)
        self.of_clusters.feed_usual(usual)

    def feed_aggregate(self, aggregate: Aggregate) -> None:
        """See ``RuleSet``."""
        self.of_connections.feed_aggregate(aggregate)
        self.of_clusters.of(aggregate.connection).feed_aggregate(aggregate)

    def connect(self, row: ConnectionLogRow) -> None:
        """See ``RuleSet``."""
        self.of_connections.connect(row)

    def resolved(self, response: Resolved) -> None:
        """See ``RuleSet``."""
        self.of_connections.resolved(response)

    def rows(self) -> list[FindingRow]:
        """The worst first, each followed by those that it explains."""
        of_clusters: list[RulePart] = self.of_clusters.rows()
        of_connections = self.of_connections.rows()
        if len({part.cluster_id for part in of_clusters}) > 1:
            for part in of_connections:
                part.cluster_id = self.of_clusters.cluster_of({broker for _, broker in part.evidence.ends})
        return rows([*of_connections, *of_clusters], _PLACES)

    def other_counts(self) -> dict[str, int]:
        """See ``RuleSet``."""
        return {}


_PLACES = {rule.name: place for place, rule in enumerate(RULES)}
