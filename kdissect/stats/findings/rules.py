"""Tallies -> findings of all rules. Holds the rules.

    Tallies -> rules for this API -> parts -> causes.py -> rows, the worst first

A new rule is a class in one of these files, an entry in ``RULES``, one in ``causes.EXPLAINS`` if it explains
others, and a test of when it reports something.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kdissect.stats.by_cluster import ByCluster
from kdissect.stats.contents import EACH, FORMS
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
from kdissect.stats.findings.cluster import BrokerRejected, ElectionsLost, SessionsEvicted
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
from kdissect.stats.findings.logins import SessionExpired
from kdissect.stats.findings.members import MixedGroup, RevocationHeld
from kdissect.stats.findings.outages import BrokerUnreachable
from kdissect.stats.findings.paths import (
    IdleDropped,
    LongPollsCut,
    MtuBlackHole,
    PathInterrupted,
    SlowTransfer,
)
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
    from kdissect.stats.tallies import Tally

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
    *(MtuBlackHole, IdleDropped, PathInterrupted, LongPollsCut, SlowTransfer),
    *(NetworkLoss, StalledReader, ClientVanished, SlowBroker, SlowRequests),
    *(ProduceRefused, AuthorizationDenied, NotEnoughReplicas, ReplicaOutOfSync, StorageError),
    CoordinatorUnavailable,
    *(RequestTimeouts, IncompleteMessages, NotLeader, LeadersMoving, TopicRecreated, UnsupportedVersions),
    *(ElectionsLost, BrokerRejected, SessionsEvicted),
    *(Sasl, SessionExpired, Throttled, ClientUnserved),
    *(Acks, Queueing, TinyBatches, RequestsTooLarge, HotPartitions, FencedProducers, TransactionFailed),
    *(EpochDuplicates, RebalanceStorm, PollTimeout, FallingBehind, ConsumerStuck, BlockedReaders, EmptyPolls),
    *(FarTimestamps, MixedGroup, RevocationHeld, ShareRedelivery),
    *(OutOfRange, ClientIds, InstanceIds, ConnectionChurn, MetadataPolling),
)
"""In this order: connections, errors, brokers and logins, producers, consumers, and client habits."""


_MAX_CACHED = 1024  # APIs have names that a capture makes up: ``api 99``


@summed
class RuleSet(Summed):
    """Some rules over the same tallies, by name."""

    rules: dict[str, Rule] = merged_by_name()
    _by_api: dict[tuple[str, str, bool], list[Rule]] = fed(dict)

    takes = frozenset(FORMS)

    def __init__(self, limits: Limits, rules: Iterable[type[Rule]]) -> None:
        self.rules = {rule.name: rule(limits) for rule in rules}
        self._by_api = {}

    def feed(self, tally: Tally) -> None:
        """Pass a tally to the rules that take it."""
        key = tally.form, tally.api, tally.has_flaw
        rules = self._by_api.get(key)
        if rules is None:
            rules = self.rules_for(tally.form, tally.api, has_flaw=tally.has_flaw)
            if len(self._by_api) < _MAX_CACHED:
                self._by_api[key] = rules
        for rule in rules:
            rule.feed(tally)

    def rules_for(self, form: str, api: str, *, has_flaw: bool) -> list[Rule]:
        """The rules that take tallies of a form, of an API, with a flaw or without."""
        return [
            rule
            for rule in self.rules.values()
            if form in rule.takes
            and type(rule).feed is not Rule.feed
            and (
                form not in EACH
                or ((not rule.apis or api in rule.apis) and (has_flaw or not rule.needs_flaws))
            )
        ]

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

    takes = frozenset(FORMS)

    def __init__(self, limits: Limits) -> None:
        self.of_connections = RuleSet(limits, _OF_CONNECTIONS)
        self.of_clusters = ByCluster(partial(RuleSet, limits, _OF_CLUSTERS), limits)

    def feed(self, tally: Tally) -> None:
        """See ``RuleSet``."""
        self.of_connections.feed(tally)
        self.of_clusters.feed(tally)

    def connect(self, row: ConnectionLogRow) -> None:
        """See ``RuleSet``."""
        self.of_connections.connect(row)

    def resolved(self, response: Resolved) -> None:
        """See ``RuleSet``."""
        self.of_connections.resolved(response)

    def rows(self, more: Iterable[RulePart] = ()) -> list[FindingRow]:
        """The worst first, each followed by those that it explains. ``more``: what others have found."""
        of_clusters: list[RulePart] = [*self.of_clusters.rows(), *more]
        of_connections = self.of_connections.rows()
        if len({part.cluster_id for part in of_clusters}) > 1:
            for part in of_connections:
                part.cluster_id = self.of_clusters.cluster_of({broker for _, broker in part.evidence.ends})
        return rows([*of_connections, *of_clusters], _PLACES)

    def other_counts(self) -> dict[str, int]:
        """See ``RuleSet``."""
        return {}


_PLACES = {rule.name: place for place, rule in enumerate(RULES)}
