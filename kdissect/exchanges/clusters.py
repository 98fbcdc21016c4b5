"""Responses of brokers -> the cluster that each broker belongs to.

Metadata and DescribeCluster responses name the cluster of the broker that sends them, and of all brokers
that they list. Brokers and controllers name it in requests among themselves (BrokerRegistration, Vote ...),
and clients in ApiVersions 5: the endpoint that accepts one belongs to that cluster. An endpoint that has
named several (a proxy, or an address that was used again) belongs to none.

A connection belongs to the cluster that a message on it names, from then on: that does not depend on other
connections. Facts from a first pass, if names are ``whole``, name it from the beginning, and also that of
connections on which no message does. What the user says comes first. Holds at most ``Limits.listeners``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kdissect.kafka.schema import request, response
from kdissect.limits import DEFAULT
from kdissect.model import Endpoint
from kdissect.names import entries, kept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import Exchange

_FIELD = "cluster_id"
_FETCH = 1


class Clusters:
    """The clusters of brokers' endpoints.

    Args:
        limits: to respect.

    Attributes:
        known: endpoint -> ID of its cluster, None if it named several.
        given: endpoint -> its cluster as given by the user.
    """

    __slots__ = ("_entries", "_max_endpoints", "given", "known")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.known: dict[Endpoint, str | None] = {}
        self.given: dict[Endpoint, str | None] = {}
        self._entries = 0  # that they take
        self._max_endpoints = limits.listeners

    def of(self, broker: Endpoint) -> str | None:
        """The cluster of a broker; None if it is not known."""
        return self.given.get(broker) or self.known.get(broker)

    def learn(self, exchange: Exchange, broker: Endpoint | None = None) -> None:
        """Learn from a decoded exchange. ``broker``: that sent it; None: that of its connection."""
        cluster = named_cluster(exchange)
        if cluster is None:
            return
        self.add(broker or exchange.connection.broker, cluster)
        for host, port in advertised(exchange):
            self.add(Endpoint(host, port), cluster)

    def add(self, broker: Endpoint, cluster: str | None, *, is_given: bool = False) -> None:
        """Note that a broker belongs to a cluster; None: to several."""
        known = self.given if is_given else self.known
        if cluster is not None and known.get(broker) == cluster:  # as most messages say
            return
        broker = kept(broker)
        if broker in known:
            if known[broker] != cluster:
                known[broker] = None
        elif self._entries < self._max_endpoints:
            known[broker] = cluster
            self._entries += entries((*broker, cluster))

    def merge(self, other: Clusters) -> None:
        """Add those of another part of the same captures."""
        for broker, cluster in other.known.items():
            self.add(broker, cluster)
        for broker, cluster in other.given.items():
            self.add(broker, cluster, is_given=True)


def named_cluster(exchange: Exchange) -> str | None:
    """The cluster that a decoded exchange names, as it is kept: that of its broker. None if it names none."""
    key, version = exchange.api_key, exchange.api_version
    if exchange.response is None or key is None or version is None or not names_cluster(key, version):
        return None
    if exchange.response.get("error_code"):
        return None
    cluster = exchange.response.get(_FIELD) or (exchange.request or {}).get(_FIELD)
    return kept(cluster) if cluster and isinstance(cluster, str) else None


@cache
def names_cluster(api_key: int, api_version: int) -> bool:
    """Whether an exchange of this API and version can name a cluster. Fetch does not count: it names one only
    between controllers, which also vote.
    """
    return api_key != _FETCH and any(
        field.name == _FIELD and api_version in field.versions
        for message in (request(api_key), response(api_key))
        if message is not None
        for field in message.fields
    )


def advertised(exchange: Exchange) -> Iterator[tuple[str, int]]:
    """Host and port of each broker named in a response."""
    response = exchange.response or {}
    for each in (*(response.get("brokers") or ()), *(response.get("coordinators") or ()), response):
        host, port = each.get("host"), each.get("port")
        if host and port and port > 0:
            yield host, port
