"""Tallies -> findings of all rules. Holds the rules.

    Tallies -> rules for this API -> parts -> causes.py -> rows, the worst first

A new rule is a class in one of these files, an entry in ``RULES``, one in ``causes.EXPLAINS`` if it explains
others, and a test of when it reports something.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

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
from kdissect.stats.findings.capture import CAPTURE_RULES
from kdissect.stats.findings.causes import rows
from kdissect.stats.findings.cluster import (
    BrokerFenced,
    BrokerRejected,
    ElectionsLost,
    QuorumUnreachable,
    SessionChurn,
    SessionsEvicted,
)
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
    SlowPoll,
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
from kdissect.stats.findings.rule import Declared, Rule, RulePart
from kdissect.stats.findings.share_groups import ShareRedelivery
from kdissect.stats.findings.timestamps import FarTimestamps
from kdissect.stats.sums import Summed, fed, merged, merged_by_name, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    *(ElectionsLost, BrokerRejected, QuorumUnreachable, BrokerFenced, SessionsEvicted, SessionChurn),
    *(Sasl, SessionExpired, Throttled, ClientUnserved),
    *(Acks, Queueing, TinyBatches, RequestsTooLarge, HotPartitions, FencedProducers, TransactionFailed),
    *(
        EpochDuplicates,
        RebalanceStorm,
        PollTimeout,
        SlowPoll,
        FallingBehind,
        ConsumerStuck,
        BlockedReaders,
        EmptyPolls,
    ),
    *(FarTimestamps, MixedGroup, RevocationHeld, ShareRedelivery),
    *(OutOfRange, ClientIds, InstanceIds, ConnectionChurn, MetadataPolling),
)
"""About the traffic, in this order: connections, errors, brokers and logins, producers, consumers, and client
habits.
"""

ALL_RULES: tuple[type[Declared], ...] = (*RULES, *CAPTURE_RULES)


_MAX_CACHED = 1024  # APIs have names that a capture makes up: ``api 99``


@summed
class RuleSet(Summed):
    """Some rules over the same tallies, and what they follow, by name."""

    rules: dict[str, Rule] = merged_by_name()
    followed: dict[str, Any] = merged_by_name()
    _feeds: dict[tuple[str, str, bool], list[Callable[[Any], None]]] = fed(dict)

    takes = frozenset(FORMS)

    def __init__(self, limits: Limits, rules: Iterable[type[Rule]]) -> None:
        self.rules = {rule.name: rule(limits) for rule in rules}
        self.followed = {}
        for rule in self.rules.values():
            if (follows := rule.follows) is not None:
                if follows.__name__ not in self.followed:
                    self.followed[follows.__name__] = follows(limits)
                rule.followed = self.followed[follows.__name__]
        self._feeds = {}

    def feed(self, tally: Tally) -> None:
        """Pass a tally to the rules that take it."""
        key = tally.form, tally.api, tally.has_flaw
        feeds = self._feeds.get(key)
        if feeds is None:
            feeds = [each.feed for each in self.followed.values() if _sees(each, tally.form, tally.api)]
            feeds += [rule.feed for rule in self.rules_for(tally.form, tally.api, has_flaw=tally.has_flaw)]
            if len(self._feeds) < _MAX_CACHED:
                self._feeds[key] = feeds
        for feed in feeds:
            feed(tally)

    def rules_for(self, form: str, api: str, *, has_flaw: bool) -> list[Rule]:
        """The rules that take tallies of a form, of an API, with a flaw or without."""
        return [
            rule
            for rule in self.rules.values()
            if type(rule).feed is not Rule.feed
            and _sees(rule, form, api)
            and (form not in EACH or has_flaw or not rule.needs_flaws)
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


def _sees(counter: Any, form: str, api: str) -> bool:
    """Whether a rule, or what rules follow, takes tallies of a form, of an API."""
    return form in counter.takes and (form not in EACH or not counter.apis or api in counter.apis)


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
