"""Connections, as they are fed -> requests that are overdue while they are still outstanding.

    Overdue.note(connection) after each of its items -> tick(time) -> take(request, as it would be unanswered)

A broker that does not answer leaves nothing to see until the connection ends, and a live view must not wait
for that. The rule is that of outcomes.py. Of each connection with outstanding requests only the earliest
deadline is kept, and looked at again when it has passed: the work does not depend on the number of packets.

Holds an entry for each connection with outstanding requests, and the requests that were passed on.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from kdissect.exchanges.outcomes import PATIENCE_NS, allowed_ns
from kdissect.limits import SECOND_NS
from kdissect.model import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.model import Exchange

_MIN_INTERVAL_NS = SECOND_NS  # between two looks at a connection, however many requests are outstanding
_STALE = 64  # entries of connections that have ended, besides four for each other one


class Overdue:
    """Watches connections.

    Args:
        decode: decodes a request.
        take: is called once with each overdue request, and with a decoded copy of it that is unanswered as of
            now. The request itself gets its ``kind`` when it is complete, perhaps by a late response.
    """

    def __init__(
        self, decode: Callable[[Exchange], object], take: Callable[[Exchange, Exchange], object]
    ) -> None:
        self._decode = decode
        self._take = take
        self._passed_on: dict[KafkaConnection, set[Exchange]] = {}  # of the connections that are watched
        self._due: list[
            tuple[int, int, KafkaConnection]
        ] = []  # a heap; the number decides between equal times
        self._number = 0

    def note(self, kafka: KafkaConnection) -> None:
        """Watch a connection as soon as it has outstanding requests."""
        if kafka not in self._passed_on and (outstanding := kafka.outstanding):
            self._passed_on[kafka] = set()
            self._push(outstanding[0].time_ns + PATIENCE_NS, kafka)

    def forget(self, kafka: KafkaConnection) -> None:
        """A connection has ended."""
        self._passed_on.pop(kafka, None)
        if len(self._due) > _STALE + 4 * len(self._passed_on):
            self._due = [entry for entry in self._due if entry[2] in self._passed_on]
            heapify(self._due)

    def tick(self, time_ns: int) -> None:
        """Everything up to this time has been fed."""
        due = self._due
        while due and due[0][0] < time_ns:
            kafka = heappop(due)[2]
            if kafka in self._passed_on:
                next_ns = self._look_at(kafka, time_ns)
                if next_ns is None:
                    del self._passed_on[kafka]
                else:
                    self._push(max(next_ns, time_ns + _MIN_INTERVAL_NS), kafka)

    def _push(self, time_ns: int, kafka: KafkaConnection) -> None:
        self._number += 1
        heappush(self._due, (time_ns, self._number, kafka))

    def _look_at(self, kafka: KafkaConnection, now_ns: int) -> int | None:
        """Pass on the overdue requests of a connection. Returns when to look again; None: nothing to wait for
        before its next request.
        """
        outstanding = kafka.outstanding
        before = self._passed_on[kafka]
        passed_on = self._passed_on[kafka] = {each for each in outstanding if each in before}
        next_ns: int | None = now_ns + PATIENCE_NS if passed_on else None
        for exchange in outstanding:
            due_ns = exchange.time_ns + PATIENCE_NS
            if due_ns < now_ns and exchange not in passed_on:
                unanswered = replace(
                    exchange, kind=UNANSWERED, completed_ns=now_ns, anomalies=[], topic_ids={}
                )
                self._decode(unanswered)
                due_ns += allowed_ns(unanswered)
                if due_ns < now_ns:
                    passed_on.add(exchange)
                    self._take(exchange, unanswered)
            if due_ns >= now_ns:
                next_ns = due_ns if next_ns is None else min(next_ns, due_ns)
                if due_ns == exchange.time_ns + PATIENCE_NS:
                    break  # all others were sent later
        return next_ns
