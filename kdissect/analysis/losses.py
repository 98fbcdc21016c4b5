"""The gaps of one connection -> what they cost: which exchanges were told by half, and which not at all.

Brokers answer in order, and most clients count their requests by one. So of a gap that hides a frame boundary
it can be told whose messages were in it:

* a request that waited when the gap came, or while the next response was looked for, and is passed over by a
  later response or never answered: its response was in the gap;
* a response that comes after a gap in the requests, to a request that was never seen: that request was;
* correlation ids that are missing between the requests before the gap and behind it, on a connection that
  counted by one until then: exchanges that nobody saw, where their responses were lost too.

Such an exchange is counted once, as ``exchanges_lost``, and one that was told has an anomaly that says so. A
gap inside a frame hides no boundary: its exchange is counted as ``exchanges_incomplete``. Holds the requests
that waited, as long as they wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.model import ORPHAN, UNANSWERED, Anomaly

if TYPE_CHECKING:
    from collections import Counter

    from kdissect.analysis.pairing import Pairing
    from kdissect.model import Exchange, Frame

LOST = "exchanges_lost"
INCOMPLETE = "exchanges_incomplete"

_MOST_MISSING = 100_000  # correlation ids: more is a client that began to count anew


class Losses:
    """What the gaps of a connection cost.

    Args:
        pairing: of the connection.
        counts: where to count.
    """

    __slots__ = ("_before", "_counts", "_found", "_hidden", "_pairing", "_requests_lost", "_waited")

    def __init__(self, pairing: Pairing, counts: Counter[str]) -> None:
        self._pairing = pairing
        self._counts = counts
        self._waited: set[Exchange] = set()
        self._requests_lost = False
        self._before: int | None = None  # correlation id of the last request before a gap
        self._found = 0  # orphans since, while the first request behind it has not come
        self._hidden = range(0)  # correlation ids that were lost, and are counted

    def in_requests(self) -> None:
        """A gap hides where a request begins."""
        self._requests_lost = True
        before = self._pairing.forget_last_id()
        if before is not None:
            self._before, self._found = before, 0

    def in_responses(self) -> None:
        """A gap hides where a response begins, or bytes were passed over until the next one was found."""
        self._waited.update(self._pairing.waiting)
        self._pairing.mistrust()

    def request(self, correlation_id: int) -> None:
        """The first request behind a gap in them."""
        if self._before is None:
            return
        hidden = range(self._before + 1, correlation_id)
        self._before = None
        if len(hidden) <= _MOST_MISSING:
            self._hidden = hidden
            self._counts[LOST] += max(0, len(hidden) - self._found)

    @property
    def awaits_request(self) -> bool:
        """Whether ``request`` wants to be told the next one."""
        return self._before is not None

    def judge(self, exchange: Exchange) -> None:
        """Write on an exchange that is complete now what it lost."""
        if exchange in self._waited:
            self._waited.discard(exchange)
            if exchange.kind == UNANSWERED:
                self._counts[LOST] += 1
                exchange.anomalies.append(
                    Anomaly("gap", "response", "may be in bytes that were not captured")
                )
        elif exchange.kind == ORPHAN and self._requests_lost and not exchange.anomalies:
            if self._before is not None:
                self._found += 1
            if exchange.correlation_id not in self._hidden:
                self._counts[LOST] += 1
            exchange.anomalies.append(Anomaly("gap", "request", "was in bytes that were not captured"))
        if not (_is_whole(exchange.request_frame) and _is_whole(exchange.response_frame)):
            self._counts[INCOMPLETE] += 1


def _is_whole(frame: Frame | None) -> bool:
    return frame is None or frame.complete
