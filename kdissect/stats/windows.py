"""Connections -> the largest receive window of each end, and which end did without window scaling.

A sender has at most a window of bytes under way: divided by the round trip, that is how fast a connection can
be. Without scaling (RFC 7323), no window exceeds 65,535 bytes. Holds four numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.sums import Summed, largest, later, summed, total

if TYPE_CHECKING:
    from kdissect.stats.connection_log import ConnectionLogRow


@summed
class Windows(Summed):
    """The windows of connections whose SYN and SYN-ACK were captured.

    Attributes:
        client_window_bytes, broker_window_bytes: the largest; None: there is no such connection.
        client_unscaled, broker_unscaled: how many connections had no window scaling because that end did not
            offer it. A broker can only offer it if the client did.
    """

    client_window_bytes: int | None = largest(None)
    broker_window_bytes: int | None = largest(None)
    client_unscaled: int = total()
    broker_unscaled: int = total()

    def add(self, row: ConnectionLogRow) -> None:
        """Add a connection."""
        tcp, side = row.tcp, row.client_side
        if tcp is None or tcp.window_bytes(side) is None:
            return
        self.client_window_bytes = later(self.client_window_bytes, tcp.window_bytes(side))
        self.broker_window_bytes = later(self.broker_window_bytes, tcp.window_bytes(1 - side))
        if not tcp.offers_scaling(side):
            self.client_unscaled += 1
        elif not tcp.offers_scaling(1 - side):
            self.broker_unscaled += 1
