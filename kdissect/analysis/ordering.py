"""Exchanges as their connections complete them -> in order of completion over all connections.

A connection in which a segment is late or missing tells what it held with the times of the packets that
carried it; meanwhile others have gone on. So while any connection waits, exchanges completed after it began
to wait are held back, and sorted. As a rule nobody waits, and everything passes through. Holds at most
``Limits.order_rows`` exchanges and ``order_bytes`` of frames; past the bound the earliest goes on.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Exchange

Entry = tuple[tuple[int, int], int, "Exchange"]
"""``Exchange.order``, place of arrival, and what it is about."""


class Ordering:
    """What is held back until its order is settled.

    Attributes:
        held: that, as a heap.
    """

    __slots__ = ("_bytes", "_limits", "_places", "held")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.held: list[Entry] = []
        self._bytes = 0
        self._places = count()

    def feed(self, exchanges: list[Exchange], waiting_since_ns: int | None) -> list[Exchange]:
        """Take exchanges that one connection completed, in its order; get those whose place is settled.

        Args:
            exchanges: may be empty.
            waiting_since_ns: time of the earliest packet that any connection holds; None while none does.
        """
        heap = self.held
        if not heap and waiting_since_ns is None:
            return exchanges
        for exchange in exchanges:
            heappush(heap, (exchange.order, next(self._places), exchange))
            self._bytes += exchange.held_bytes
        settled = []
        limits = self._limits
        while heap and (
            waiting_since_ns is None
            or heap[0][0][0] < waiting_since_ns
            or len(heap) > limits.order_rows
            or self._bytes > limits.order_bytes
        ):
            exchange = heappop(heap)[2]
            self._bytes -= exchange.held_bytes
            settled.append(exchange)
        return settled
