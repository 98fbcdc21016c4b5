"""Connections whose requests the broker never acknowledges, while new ones work -> an interrupted path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import WARNING
from kdissect.net.analysis import OPENED
from kdissect.phrases import many
from kdissect.stats.connection_log import CLIENT
from kdissect.stats.findings.connections import TCP_ENDS, is_kafka, tcp_key
from kdissect.stats.findings.rule import Evidence, Rule
from kdissect.stats.sums import latest, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.findings.rule import RulePart, Scope

_COPIES = 3


@summed
class Interruptions(Evidence):
    """Such connections, their bytes and requests, and when another connection last opened."""

    bytes: int = total()
    requests: int = total()
    opened_ns: int = latest(0)


@summed
class PathInterrupted(Rule):
    """Neither end knows that its connection is dead: the client waits for its timeout, and what it wrote may
    be lost or, after a retry, stored twice.
    """

    name = "path-interrupted"
    severity = WARNING
    of = TCP_ENDS
    cut = "count"
    failed = "requests"
    title = "A broker no longer acknowledges the requests of a connection, and new connections work."
    when = (
        f"A client retransmitted {_COPIES} times or more without an acknowledgment, the broker did not end "
        "the connection, and the client later opened another one. After a long silence, it is "
        "idle-connection-dropped, with large segments only, mtu-black-hole."
    )
    advice = (
        "Look for what lost the state of the connection at that time: NAT, a firewall, a load balancer, a "
        "route that changed, or a broker's host that was paused. If the requests are Produce with acks=0, "
        "their records are lost."
    )
    counts = Interruptions

    def connect(self, row: ConnectionLogRow) -> None:
        """Count the connection if its requests are not acknowledged, and when it opened."""
        tcp = row.tcp
        if tcp is None or not is_kafka(row):
            return
        kept = self.kept[tcp_key(row)]
        if tcp.opening == OPENED:
            kept.opened_ns = max(kept.opened_ns, row.first_ns or 0)
        unread = tcp.unacknowledged(row.client_side)
        is_ended = row.end is not None and row.ended_by != CLIENT
        if unread and tcp.retransmitted(row.client_side) >= _COPIES and not is_ended and all(row.seen):
            kept.note(row, row.last_ns)
            kept.bytes += unread
            kept.requests += row.outstanding

    def findings(self) -> Iterator[RulePart]:
        """Clients that came back."""
        for key, each in self.kept.items():
            if each.count and each.opened_ns > each.first_ns:
                yield self.part(key, each)

    def _message(self, _: Scope, each: Interruptions) -> str:
        return (
            f"{each.bytes:,} bytes of {many(each.requests, 'request')} on "
            f"{many(each.count, 'connection')} never acknowledged, despite retransmissions; new ones work"
        )
