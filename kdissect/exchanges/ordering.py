"""Exchanges as connections complete them -> the same exchanges in order of completion across all connections.

A connection with a late or missing segment completes its exchanges later than others, with the times of the
original packets. While any connection waits like this, exchanges completed after it began to wait are held
and sorted. So are those that one packet completes on several connections. The order within a connection does
not change. Usually no connection waits, and everything passes through immediately. Holds at most
``Limits.order_rows`` exchanges and ``order_bytes`` of frames. Above that, the earliest exchange is released.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kdissect.limits import SECOND_NS
from kdissect.net.duplex import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.limits import Limits
    from kdissect.model import ConnectionKey, Exchange


class Completed(Protocol):
    """Anything with a place in the order: an exchange, or a stand-in for one in another process."""

    @property
    def connection_key(self) -> ConnectionKey: ...

    @property
    def order(self) -> tuple[int, int]: ...

    @property
    def held_bytes(self) -> int: ...


Item = TypeVar("Item", bound=Completed)


Queued = TypeVar("Queued")
Item_co = TypeVar("Item_co", covariant=True)


class CompletedQueue(Protocol[Item_co]):
    """Exchanges that are held elsewhere."""

    @property
    def queued(self) -> tuple[int, int]:
        """Number of exchanges, and bytes of their frames."""
        ...

    @property
    def first(self) -> tuple[int, int]:
        """Order of the first."""
        ...

    def taken(self, before: tuple[int, int], max_exchanges: int = ...) -> Iterator[Item_co]:
        """Take at most ``most`` items whose order is before this one."""
        ...


class Ordering(Generic[Item]):
    """Holds exchanges until their order is settled.

    Attributes:
        newest_ns: the latest time of any exchange held so far.
    """

    __slots__ = ("_arrivals", "_bytes", "_heap", "_latest", "_limits", "newest_ns")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._heap: list[
            tuple[tuple[int, int], ConnectionKey, int, Item]
        ] = []  # by order, connection and arrival
        self._latest: dict[ConnectionKey, tuple[int, int]] = {}  # by connection: order of the last one held
        self._bytes = 0
        self._arrivals = count()
        self.newest_ns = -NEVER_NS

    @property
    def is_idle(self) -> bool:
        return not self._heap

    def feed(self, items: list[Item], waiting_since_ns: int | None) -> list[Item]:
        """Add the exchanges that one packet completed, in order for each connection. Returns those whose
        order is settled.

        Args:
            items: may be empty.
            waiting_since_ns: the earliest time of anything that a waiting connection may still complete. None
                if no connection waits.
        """
        heap = self._heap
        if not heap and waiting_since_ns is None and (len(items) < 2 or _is_one_connection(items)):
            return items
        self._add(items)
        settled = []
        limits = self._limits
        while heap and (
            waiting_since_ns is None
            or heap[0][0][0] < waiting_since_ns
            or len(heap) > limits.order_rows
            or self._bytes > limits.order_bytes
        ):
            settled.append(self._pop())
        if not heap:
            self._latest.clear()
        return settled

    def merge(
        self, items: list[Item], waiting_since_ns: int | None, others: CompletedQueue[Queued]
    ) -> Iterator[Item | Queued]:
        """As ``feed``, with exchanges that are queued elsewhere: yields those of both in order."""
        heap, limits = self._heap, self._limits
        self._add(items)
        until = (NEVER_NS if waiting_since_ns is None else waiting_since_ns), 0
        while True:
            first = heap[0][0] if heap else (NEVER_NS, 0)
            # Exchanges of the same order are of one connection; those queued elsewhere are the earlier ones.
            up_to_first = first[0], first[1] + 1
            if others.first < (before := min(up_to_first, until)):
                yield from others.taken(before)
            if first < until:
                yield self._pop()
                continue
            rows, size = others.queued
            if len(heap) + rows <= limits.order_rows and self._bytes + size <= limits.order_bytes:
                break
            taken: list[Item | Queued] = list(others.taken(up_to_first, 1))
            if rows == others.queued[0]:
                taken.append(self._pop())
            yield from taken
        if not heap and not rows:
            self._latest.clear()

    def latest(self, connection: ConnectionKey) -> tuple[int, int] | None:
        """Order of the last exchange of a connection that is held."""
        return self._latest.get(connection)

    def note_latest(self, connection: ConnectionKey, order: tuple[int, int]) -> None:
        """The last exchange of a connection is queued elsewhere."""
        self._latest[connection] = order

    @property
    def room(self) -> tuple[int, int]:
        """Exchanges and bytes of frames that can be held in addition."""
        limits = self._limits
        return max(0, limits.order_rows - len(self._heap)), max(0, limits.order_bytes - self._bytes)

    def _add(self, items: Iterable[Item]) -> None:
        latest = self._latest
        for item in items:
            connection = item.connection_key
            order = latest[connection] = max(item.order, latest.get(connection, item.order))
            heappush(self._heap, (order, connection, next(self._arrivals), item))
            self._bytes += item.held_bytes
            self.newest_ns = max(self.newest_ns, order[0])

    def _pop(self) -> Item:
        item = heappop(self._heap)[3]
        self._bytes -= item.held_bytes
        return item


def _is_one_connection(items: list[Item]) -> bool:
    first = items[0].connection_key
    return all(item.connection_key == first for item in items)


# ------------------------------------------------------------------------------------------------------------
# Exchanges in order of completion -> the same exchanges in order of request, for people. Holds an exchange as
# long as an older request is outstanding, but no longer than a second of packet time: a request that took
# longer comes after later ones. Holds at most ``Limits.order_rows`` exchanges and ``order_bytes`` of frames,
# and the times of outstanding requests.
# ------------------------------------------------------------------------------------------------------------


LONGEST_NS = SECOND_NS
_STALE = 64  # times of requests that were fed since, besides three for each other one


class ByRequest:
    """Holds each exchange until no older request is outstanding, or it has waited as long as it may."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._heap: list[tuple[int, int, Exchange]] = []  # by time and arrival
        self._arrivals = count()
        self._waiting: deque[tuple[int, int]] = deque()  # time of completion, and arrival; earliest first
        self._released: set[int] = set()  # arrivals of those still in ``_waiting``
        self._bytes = 0
        self._outstanding: set[Exchange] = set()  # requests that were noted and not fed yet
        self._times: list[tuple[int, int, Exchange]] = []  # of those, and of some that were fed; a heap

    def note(self, kafka: KafkaConnection) -> None:
        """Note the new outstanding requests of a connection."""
        for exchange in reversed(kafka.outstanding):
            if exchange in self._outstanding:
                break
            self._outstanding.add(exchange)
            heappush(self._times, (exchange.time_ns, next(self._arrivals), exchange))

    def forget(self, kafka: KafkaConnection) -> None:
        """Do nothing when a connection ends: its requests are fed."""

    def tick(self, time_ns: int) -> None:
        """Do nothing as time goes on without exchanges."""

    def skip(self, exchange: Exchange) -> None:
        """Note that a request is no longer outstanding, without adding it."""
        self._outstanding.discard(exchange)

    def rest(self) -> Iterator[Exchange]:
        """Yield all that are held."""
        while self._heap:
            yield self._release()

    def feed(self, exchange: Exchange) -> Iterator[Exchange]:
        """Add the next exchange, and yield those that have waited long enough."""
        self.skip(exchange)
        oldest_ns = self._oldest_ns()
        now_ns, arrival = exchange.order[0], next(self._arrivals)
        heappush(self._heap, (exchange.time_ns, arrival, exchange))
        self._waiting.append((now_ns, arrival))
        self._bytes += exchange.held_bytes
        waiting, limits = self._waiting, self._limits
        while waiting and (
            waiting[0][1] in self._released
            or self._heap[0][0] <= oldest_ns
            or waiting[0][0] + LONGEST_NS <= now_ns
            or len(self._heap) > limits.order_rows
            or self._bytes > limits.order_bytes
        ):
            if waiting[0][1] in self._released:
                self._released.discard(waiting.popleft()[1])
            else:
                yield self._release()

    def _oldest_ns(self) -> int:
        """Time of the oldest outstanding request."""
        times, outstanding = self._times, self._outstanding
        if len(times) > _STALE + 4 * len(outstanding):
            times[:] = [each for each in times if each[2] in outstanding]
            heapify(times)
        while times and times[0][2] not in outstanding:
            heappop(times)
        return times[0][0] if times else NEVER_NS

    def _release(self) -> Exchange:
        """The earliest request."""
        _, arrival, exchange = heappop(self._heap)
        self._released.add(arrival)
        self._bytes -= exchange.held_bytes
        return exchange
