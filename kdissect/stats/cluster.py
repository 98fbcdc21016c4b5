"""Facts -> the brokers: node ID, rack, and the API versions each supports.

Node IDs come from Metadata, FindCoordinator and DescribeCluster (exchanges/nodes.py). If brokers advertise
host names, a broker is identified by its port, provided that no other node of its cluster has it.

Clusters use the same IDs, so nodes are kept by cluster. Responses without a cluster ID (FindCoordinator,
early versions of Metadata) count as a separate cluster, which is used where nothing else is known.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.exchanges.nodes import Node, nodes
from kdissect.kafka.headers import API_VERSIONS
from kdissect.names import entries, kept
from kdissect.stats.contents import EACH

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.stats.tallies import Tally

NODE_APIS = frozenset({"Metadata", "FindCoordinator", "DescribeCluster", "DescribeTopicPartitions"})
"""APIs whose responses name nodes."""


Offers = dict[int, tuple[int, int]]
"""API key -> first and last version."""

Reported = tuple[int, str]
"""Time and exchange of a report: the latest wins, regardless of the order in which parts are merged."""

_NEVER: Reported = (-1, "")


class Cluster:
    """Brokers and the versions they support.

    Attributes:
        offers: broker, as its address and port -> api key -> first and last version.
        nodes: by cluster ID, "" if it was not reported, and id; each as it was reported last.
        clusters: broker, as its address and port -> id of its cluster, as it reported it last.
    """

    takes = EACH

    def __init__(self, limits: Limits) -> None:
        self.offers: dict[str, Offers] = {}
        self.nodes: dict[tuple[str, int], Node] = {}
        self.clusters: dict[str, str] = {}
        self._max_rows = limits.summary_rows
        self._entries: Counter[str] = Counter()  # that nodes and clusters take
        self._offers_reported: dict[str, Reported] = {}
        self._nodes_reported: dict[tuple[str, int], Reported] = {}
        self._clusters_reported: dict[str, Reported] = {}

    def feed(self, tally: Tally) -> None:
        """Take nodes and versions from responses."""
        if tally.exchange is None:
            if (versions := tally.versions) is not None and versions.apis:
                offered = {key: (first, last) for key, first, last in versions.apis}
                completed_ns, number = versions.completed
                self._take_offers(tally.broker, offered, (completed_ns, tally.id_of(number)))
            elif (content := tally.content) is not None:
                completed_ns, number = content.last
                self._take_nodes(tally, content.exemplar, (completed_ns, tally.id_of(number)))
            return
        exchange = tally.exchange
        if exchange.response is None:
            return
        if exchange.api_key == API_VERSIONS:
            offered = {
                each["api_key"]: (each["min_version"], each["max_version"])
                for each in exchange.response.get("api_keys") or ()
                if "max_version" in each
            }
            if offered:
                self._take_offers(tally.broker, offered, (exchange.completed_ns, tally.id))
        elif tally.api in NODE_APIS:
            self._take_nodes(tally, exchange, (exchange.completed_ns, tally.id))

    def merge(self, other: Cluster) -> None:
        """Add what another part of the same captures reported."""
        for broker, offered in other.offers.items():
            self._take_offers(broker, offered, other._offers_reported[broker])
        for broker, cluster_id in other.clusters.items():
            self._take_cluster(broker, cluster_id, other._clusters_reported[broker])
        for key, node in other.nodes.items():
            self._take_node(key[0], node, other._nodes_reported[key])

    def node(self, broker: str) -> Node | None:
        """The node at an address and port, as it was reported last; None if unknown."""
        keys = self._at(broker)
        if not keys:
            return None
        latest = self.nodes[keys[0]]
        racks = (self.nodes[key].rack for key in keys if key[1] == latest.id)
        return latest._replace(rack=next(filter(None, racks), None))

    def earlier_ids(self, broker: str) -> list[int]:
        """IDs that an address and port had before, according to reports; the first one first."""
        ids = dict.fromkeys(node_id for _, node_id in self._at(broker))
        return list(ids)[:0:-1]

    def _at(self, broker: str) -> list[tuple[str, int]]:
        """Keys of the nodes at an address and port, the one reported last first."""
        ip, _, port = broker.rpartition(":")
        at_port = [key for key, node in self.nodes.items() if node.port == int(port)]
        keys = [key for key in at_port if self.nodes[key].host == ip.strip("[]")]
        if not keys:
            cluster_id = self.clusters.get(broker)
            keys = [key for key in at_port if cluster_id in (None, key[0])] or at_port
            hosts, clusters = {self.nodes[key].host for key in keys}, {key[0] for key in keys if key[0]}
            if len(hosts) > 1 or len(clusters) > 1:
                return []
        return sorted(keys, key=lambda key: (self._nodes_reported[key], key), reverse=True)

    def _take_nodes(self, tally: Tally, exchange: Exchange, reported: Reported) -> None:
        """Take those that an exchange names."""
        cluster_id = (exchange.response or {}).get("cluster_id") or ""
        if cluster_id:
            self._take_cluster(tally.broker, cluster_id, reported)
        for node in nodes(exchange):
            self._take_node(cluster_id, node, reported)

    def _take_cluster(self, broker: str, cluster_id: str, reported: Reported) -> None:
        if broker not in self.clusters and self._entries["clusters"] >= self._max_rows:
            return
        if reported >= self._clusters_reported.get(broker, _NEVER):
            known = self.clusters.get(broker)
            self.clusters[broker], self._clusters_reported[broker] = kept(cluster_id), reported
            self._count("clusters", known, self.clusters[broker])

    def _take_offers(self, broker: str, offered: Offers, reported: Reported) -> None:
        if broker not in self.offers and len(self.offers) >= self._max_rows:
            return
        if reported >= self._offers_reported.get(broker, _NEVER):
            self.offers[broker], self._offers_reported[broker] = offered, reported

    def _take_node(self, cluster_id: str, node: Node, reported: Reported) -> None:
        key, node = kept((cluster_id, node.id)), kept(node)
        known = self.nodes.get(key)
        if known is None and self._entries["nodes"] >= self._max_rows:
            return
        if known == node:  # as most responses say
            self._nodes_reported[key] = max(reported, self._nodes_reported[key])
            return
        is_later = reported >= self._nodes_reported.get(key, _NEVER)
        later, earlier = (node, known) if is_later or known is None else (known, node)
        # FindCoordinator has no rack field: keep the known rack as long as the host is the same.
        rack = later.rack
        if rack is None and earlier is not None and earlier.host == later.host:
            rack = earlier.rack
        self.nodes[key] = later._replace(rack=rack)
        self._nodes_reported[key] = max(reported, self._nodes_reported.get(key, _NEVER))
        self._count("nodes", known, self.nodes[key])

    def _count(self, table: str, before: str | Node | None, after: str | Node) -> None:
        self._entries[table] += entries(after) - (0 if before is None else entries(before))
