"""An exchange -> the brokers that it names: node ID, host, port, rack. Caches where each layout has them.

A struct names one if it has a broker ID, a host and a port (Metadata, FindCoordinator, DescribeCluster), or a
broker ID and a list of listeners (DescribeQuorum, BrokerRegistration, UpdateMetadata). The roles of the
schema say which fields are broker IDs.

Produce and Fetch responses are not read: they name the new leader of a partition, which Metadata does too.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges.content import at, paths
from kdissect.kafka.bodies import BodyLayout, request_layout, response_layout
from kdissect.kafka.schema import request, response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.exchanges.content import Path
    from kdissect.model import Exchange

_BROKER = "broker"
_INSIDE: tuple[Path, ...] = ((), (("listeners", True),), (("endpoints", True),))
"""Where host and port are, from the struct with the broker ID."""
_RACKS = "rack", "rack_id"
_NEW_LEADERS = frozenset({0, 1, 78, 79})  # Produce, Fetch, ShareFetch, ShareAcknowledge


class Node(NamedTuple):
    """A broker, as a message names it. Of several listeners each is a node."""

    id: int
    host: str
    port: int
    rack: str | None


class NodePlace(NamedTuple):
    """Structs that name brokers: the path to them, the field with the ID, the path to host and port."""

    structs: Path
    id_field: str
    inside: Path


def nodes(exchange: Exchange) -> Iterator[Node]:
    """The brokers that a decoded exchange names, in wire order; some may be there twice."""
    key, version = exchange.api_key, exchange.api_version
    if key is None or version is None or not names_nodes(key, version):
        return
    for layout, body in (
        (request_layout(exchange), exchange.request),
        (response_layout(exchange), exchange.response),
    ):
        if layout is None or body is None:
            continue
        for place in _places(layout):
            for struct in at(place.structs, body):
                node_id, rack = struct.get(place.id_field), next(filter(None, map(struct.get, _RACKS)), None)
                for listener in at(place.inside, struct):
                    host, port = listener.get("host"), listener.get("port")
                    if node_id is not None and node_id >= 0 and host and port is not None:
                        yield Node(node_id, host, port, rack)


@cache
def names_nodes(api_key: int, api_version: int) -> bool:
    """Whether an exchange of this API and version can name brokers."""
    return api_key not in _NEW_LEADERS and any(
        api_version in message.versions and _places(BodyLayout(message, api_version))
        for message in (request(api_key), response(api_key))
        if message is not None
    )


def places(
    api_key: int, request: BodyLayout, response: BodyLayout
) -> tuple[list[NodePlace], list[NodePlace]]:
    """Where both messages name brokers."""
    return ([], []) if api_key in _NEW_LEADERS else (_places(request), _places(response))


@cache
def _places(layout: BodyLayout) -> list[NodePlace]:
    fields = dict(paths(layout))
    return [
        NodePlace(path[:-1], field.name, inside)
        for path, field in fields.items()
        if field.role == _BROKER and not field.array
        for inside in _INSIDE
        if all((*path[:-1], *inside, (name, False)) in fields for name in ("host", "port"))
    ]
