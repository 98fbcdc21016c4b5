"""Facts -> which broker is which: its node id and rack, and the versions that it offers.

Node ids come from every struct of a response that has a broker's id beside a host and a port (Metadata,
FindCoordinator, DescribeCluster and others); the schema tells which those are. Where brokers call themselves
by host name, a port that only one of them has tells which it is.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges import content
from kdissect.kafka.bodies import response_layout

if TYPE_CHECKING:
    from kdissect.exchanges.content import Path
    from kdissect.kafka.bodies import BodyLayout
    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts

API_VERSIONS = 18
_BROKER = "broker"
_NODE_APIS = frozenset({"Metadata", "FindCoordinator", "DescribeCluster", "DescribeTopicPartitions"})


Offers = dict[int, tuple[int, int]]
"""Api key -> first and last version."""

Reported = tuple[int, str]
_NEVER: Reported = (-1, "")


class Node(NamedTuple):
    """A broker as the cluster knows it."""

    id: int
    host: str
    port: int
    rack: str | None


class Cluster:
    """What the brokers tell about themselves.

    Attributes:
        offers: broker, as its address and port -> api key -> first and last version.
        nodes: by id; of two cluster's nodes with the same id, the one told last.
    """

    def __init__(self, limits: Limits) -> None:
        self.offers: dict[str, Offers] = {}
        self.nodes: dict[int, Node] = {}
        self._max_rows = limits.summary_rows
        # When each was told, and in which exchange: what was told last counts, whoever is asked to merge.
        self._offers_reported: dict[str, Reported] = {}
        self._nodes_reported: dict[int, Reported] = {}

    def feed(self, facts: Facts) -> None:
        """Learn from a response."""
        exchange = facts.exchange
        if exchange.response is None:
            return
        if exchange.api_key == API_VERSIONS:
            offered = {
                each["api_key"]: (each["min_version"], each["max_version"])
                for each in exchange.response.get("api_keys") or ()
                if "max_version" in each
            }
            if offered:
                self._take_offers(facts.broker, offered, (exchange.completed_ns, facts.id))
        elif facts.api in _NODE_APIS and (layout := response_layout(exchange)) is not None:
            for path, id_field in _node_paths(layout):
                for struct in content.at(path, exchange.response):
                    node_id, host, port = (struct.get(name) for name in (id_field, "host", "port"))
                    if node_id is not None and node_id >= 0 and host and port is not None:
                        node = Node(node_id, host, port, struct.get("rack"))
                        self._take_node(node, (exchange.completed_ns, facts.id))

    def merge(self, other: Cluster) -> None:
        """Learn what another part of the same captures tells."""
        for broker, offered in other.offers.items():
            self._take_offers(broker, offered, other._offers_reported[broker])
        for node in other.nodes.values():
            self._take_node(node, other._nodes_reported[node.id])

    def node(self, broker: str) -> Node | None:
        """The node at an address and port; None where nobody told."""
        ip, _, port = broker.rpartition(":")
        ip = ip.strip("[]")
        at_port = [node for node in self.nodes.values() if node.port == int(port)]
        exact = [node for node in at_port if node.host == ip]
        return exact[0] if exact else at_port[0] if len(at_port) == 1 else None

    def _take_offers(self, broker: str, offered: Offers, reported: Reported) -> None:
        if broker not in self.offers and len(self.offers) >= self._max_rows:
            return
        if reported >= self._offers_reported.get(broker, _NEVER):
            self.offers[broker], self._offers_reported[broker] = offered, reported

    def _take_node(self, node: Node, reported: Reported) -> None:
        known = self.nodes.get(node.id)
        if known is None and len(self.nodes) >= self._max_rows:
            return
        is_later = reported >= self._nodes_reported.get(node.id, _NEVER)
        later, earlier = (node, known) if is_later or known is None else (known, node)
        # FindCoordinator tells no rack: it is as it was told before, while the broker is where it was.
        rack = later.rack
        if rack is None and earlier is not None and earlier.host == later.host:
            rack = earlier.rack
        self.nodes[node.id] = later._replace(rack=rack)
        self._nodes_reported[node.id] = max(reported, self._nodes_reported.get(node.id, _NEVER))


@cache
def _node_paths(layout: BodyLayout) -> list[tuple[Path, str]]:
    """The structs that tell of a node: the path to each, and the name of the field with its id."""
    fields = dict(content.paths(layout))
    return [
        (path[:-1], field.name)
        for path, field in fields.items()
        if field.role == _BROKER and not field.array
        if (*path[:-1], ("host", False)) in fields and (*path[:-1], ("port", False)) in fields
    ]
