"""Facts -> a part of a summary for each cluster, so that equal names in different clusters are not mixed.

Exchanges with a broker whose cluster is not known yet are counted by broker, until the end. Then the parts of
brokers are added to those of their clusters: parts merge, however a capture is divided. If no more than one
cluster is known, everything is counted with it. Holds at most ``Limits.summary_clusters`` parts, whose tables
of names have together as many rows as one may have.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from operator import add
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.clusters import Clusters
from kdissect.exchanges.learned import NAMING
from kdissect.kafka import apis
from kdissect.names import kept
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import Summed, fed, merged, own, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kdissect.limits import Limits
    from kdissect.model import ConnectionInfo, Endpoint, Exchange
    from kdissect.stats.facts import Facts
    from kdissect.stats.tallies import Tally


_NAMING_APIS = frozenset(api.name for api in map(apis.by_key, NAMING) if api is not None)


@summed
class ByCluster(Summed):
    """A part of a summary for each cluster.

    Args:
        make: makes an empty part.
        limits: to respect.
        order: sort key of rows that are in one list; None: rows are in order of clusters.

    Attributes:
        parts: by ID of the cluster, or by the endpoint of a broker whose cluster is not known. None: brokers
            beyond the limit.
    """

    parts: dict[Any, Any] = own(dict)
    _clusters: Clusters = merged()
    _make: Callable[[], Any] = fed()
    _order: Callable[[Any], Any] | None = fed()
    _max_parts: int = own()
    _joined: int = fed(int)  # endpoints whose cluster was known when parts were joined for want of room

    def __init__(
        self, make: Callable[[], Any], limits: Limits, order: Callable[[Any], Any] | None = None
    ) -> None:
        self.parts = {}
        self._clusters = Clusters(limits)
        self._make, self._order = make, order
        self._max_parts, self._joined = limits.summary_clusters, 0

    @property
    def takes(self) -> frozenset[str]:
        """What the parts take."""
        taken: frozenset[str] = self._make().takes
        return taken

    def of(self, connection: ConnectionInfo) -> Any:
        """The part of a connection's cluster."""
        key = connection.cluster_id or connection.broker
        part = self.parts.get(key)
        return self._part(key) if part is None else part

    def feed(self, tally: Tally) -> None:
        """Count a tally."""
        if tally.api in _NAMING_APIS and (exemplar := tally.exemplar) is not None:
            self._clusters.learn(exemplar, tally.connection.broker)
        self.of(tally.connection).feed(tally)

    def learn(self, exchange: Exchange) -> None:
        """Note the clusters that an exchange names."""
        if exchange.api_key in NAMING:
            self._clusters.learn(exchange)

    def learn_cluster(self, broker: Endpoint, cluster: str) -> None:
        """Note that a message has named the cluster of a broker."""
        self._clusters.add(broker, kept(cluster))

    def merge(self, other: ByCluster) -> None:
        """Add the counts of another part of the same captures."""
        Summed.merge(self, other)
        for key, part in other.parts.items():
            self._part(key).merge(part)

    def by_id(self) -> dict[str | None, Any]:
        """The parts by the IDs of clusters; None: the brokers of which none is known."""
        self._join(self._cluster)
        if len(self.parts) == 2 and None in self.parts:
            unknown = self.parts.pop(None)
            next(iter(self.parts.values())).merge(unknown)
        return self.parts

    def rows(self) -> Any:
        """The rows of all clusters, each with its cluster."""
        return self.rows_of(lambda part: part.rows())

    def rows_of(self, rows: Callable[[Any], Any], order: Callable[[Any], Any] | None = None) -> Any:
        """The same for a function that makes the rows of a part, and another sort key."""
        by_id = sorted(self.by_id().items(), key=_unknown_last)
        labeled = [_labeled(rows(part), cluster) for cluster, part in by_id]
        joined = labeled[0] if labeled else rows(self._make())
        for each in labeled[1:]:
            joined = _joined(joined, each)
        order = order or self._order
        if order is not None and len(labeled) > 1:
            joined.sort(key=order)
        return joined

    def other_counts(self) -> dict[str, int]:
        """The sums of those of the parts."""
        counts: dict[str, int] = {}
        for part in self.by_id().values():
            for name, count in part.other_counts().items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def cluster_of(self, brokers: Collection[str]) -> str | None:
        """The cluster of brokers, by address and port; None if it is not known, or they are of several."""
        known = {str(broker): cluster for broker, cluster in self._clusters.known.items()}
        clusters = {known.get(broker) for broker in brokers}
        return clusters.pop() if len(clusters) == 1 else None

    def _part(self, key: str | Endpoint | None) -> Any:
        """The part of a cluster or broker; new, if there is room. What is known of a broker by now does not
        count until there is none: it may have named a second cluster by the end.
        """
        if key not in self.parts and len(self.parts) >= self._max_parts:
            if self._joined != len(self._clusters.known):
                self._joined = len(self._clusters.known)
                self._join(lambda each: self._cluster(each) or each)
            key = self._cluster(key) or key
            if key not in self.parts and len(self.parts) >= self._max_parts:
                key = None
        if key not in self.parts:
            part = self._make()
            if self.parts:
                _share(part, next(iter(self.parts.values())))
            self.parts[key] = part
        return self.parts[key]

    def _join(self, name: Callable[[Any], Any]) -> None:
        """Give the parts other names; those of one name become one."""
        parts, self.parts = self.parts, {}
        for key, part in parts.items():
            if (cluster := name(key)) in self.parts:
                self.parts[cluster].merge(part)
            else:
                self.parts[cluster] = part

    def _cluster(self, key: str | Endpoint | None) -> str | None:
        return key if key is None or isinstance(key, str) else self._clusters.of(key)


def _share(new: Any, known: Any) -> None:
    """Have the tables of a new part be full when those of all parts together are."""
    if isinstance(new, Bounded):
        new.share(known)
    elif isinstance(new, Summed):
        for name, *_ in new.declared:
            _share(getattr(new, name), getattr(known, name))
    elif type(new) is dict:
        for name in new.keys() & known.keys():
            _share(new[name], known[name])


def _unknown_last(item: tuple[str | None, Any]) -> tuple[bool, str]:
    return item[0] is None, item[0] or ""


def _labeled(rows: Any, cluster: str | None) -> Any:
    """Set the cluster of rows, or of those in the lists of a document."""
    if isinstance(rows, list):
        for row in rows:
            row.cluster_id = cluster
    else:
        for each in fields(rows):
            if isinstance(listed := getattr(rows, each.name), list):
                _labeled(listed, cluster)
    return rows


def _joined(one: Any, two: Any) -> Any:
    """The sum of lists, or of the attributes of documents."""
    if not is_dataclass(one):
        return add(one, two)
    for each in fields(one):
        setattr(one, each.name, _joined(getattr(one, each.name), getattr(two, each.name)))
    return one


# ------------------------------------------------------------------------------------------------------------
# Facts -> the same, with names of topics and groups that no two clusters share. For counts of what happens
# now, which cannot wait for the end. Holds the clusters of brokers.
# ------------------------------------------------------------------------------------------------------------


class ClusterNames:
    """Names of the first cluster that is known stay as they are, and so do those of brokers whose cluster is
    not known. In another cluster, ``orders`` becomes ``orders in CLUSTER``.
    """

    def __init__(self, limits: Limits) -> None:
        self._clusters = Clusters(limits)
        self._first: str | None = None

    def apply(self, facts: Facts) -> None:
        """Change the names in facts of an exchange, before anything counts them."""
        connection = facts.exchange.connection
        if facts.exchange.api_key in NAMING:
            self._clusters.learn(facts.exchange)
        cluster = connection.cluster_id or self._clusters.of(connection.broker)
        if self._first is None:
            self._first = cluster
        if cluster in (None, self._first):
            return

        def named(name: str) -> str:
            return type(name)(f"{name} in {cluster}")  # also a TopicId

        group = facts.group
        facts.touched = [
            each._replace(
                topic=named(each.topic), group=None if (of := each.group or group) is None else named(of)
            )
            for each in facts.touched
        ]
        facts.group_events = [each._replace(group_id=named(each.group_id)) for each in facts.group_events]
