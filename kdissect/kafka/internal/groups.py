"""JoinGroup exchanges -> the protocol that each classic group uses: what its members' bytes are written in.

Holds a type and a name for each (connection, group) that joined last, ``limits.group_protocols`` of them;
beyond that the one that joined longest ago is forgotten. A member joins and synchronises on the connection
to its group's coordinator, so nothing is lost by keeping connections apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange

JOIN_GROUP = 11

_NAMES = ("protocol_name", "protocol_data", "protocol", "name")  # in different messages


class GroupProtocol(NamedTuple):
    """What a classic group speaks.

    Attributes:
        type: ``consumer``, ``connect`` or what else its members agreed on; None: not known.
        name: of the assignor, or of Connect's protocol; None: not known.
    """

    type: str | None = None
    name: str | None = None

    def within(self, struct: Body) -> GroupProtocol:
        """The same, corrected by what a struct says of itself."""
        name = next((struct[key] for key in _NAMES if struct.get(key)), None)
        return GroupProtocol(struct.get("protocol_type") or self.type, name or self.name)


UNKNOWN = GroupProtocol()


class GroupProtocols:
    """The protocols of groups that were seen to be joined."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._most = limits.group_protocols
        self._known: dict[tuple[str, str], GroupProtocol] = {}

    def learn(self, exchange: Exchange) -> GroupProtocol:
        """Remember what a decoded JoinGroup says; get what is known of the group that the exchange is
        about.
        """
        group = (exchange.request or {}).get("group_id")
        if exchange.api_key == JOIN_GROUP:
            protocol = joined(exchange.request or {}, exchange.response or {})
            if isinstance(group, str):
                self._remember((exchange.connection.id, group), protocol)
            return protocol
        return self.lookup(exchange.connection.id, group)

    def lookup(self, connection: str, group: str | None) -> GroupProtocol:
        """What is known of a group, by the id of the connection on which it was joined."""
        return UNKNOWN if group is None else self._known.get((connection, group), UNKNOWN)

    def _remember(self, group: tuple[str, str], protocol: GroupProtocol) -> None:
        self._known.pop(group, None)
        self._known[group] = protocol
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]


def joined(request: Body, response: Body) -> GroupProtocol:
    """The protocol of a JoinGroup: the response has its name, and its type from version 7 on."""
    offered = request.get("protocols") or []
    only = offered[0].get("name") if len(offered) == 1 else None
    return GroupProtocol(request.get("protocol_type"), only).within(response)
