"""Events of a producer -> the producer: who it is, what it wrote in all, and its story.

Holds so many events; past that number the older half becomes part of the story at once.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from operator import itemgetter
from typing import TYPE_CHECKING

from kdissect.analysis.summary.distinct import Distinct
from kdissect.analysis.summary.transactionstories import Event, Story

if TYPE_CHECKING:
    from kdissect.analysis.summary.facts import Facts

IDS = 20
"""Producer ids that are remembered of one transactional id; it has more if its coordinator runs out of
epochs."""

_IN_ORDER = itemgetter(0, 1, 2)  # time, exchange, kind


class Producer:
    """A transactional id, or a producer id without one."""

    __slots__ = (
        *("addresses", "batches", "clients", "control_batches", "epochs", "events", "fenced", "first_ns"),
        *("_most", "inits", "last_ns", "markers", "records", "story"),
    )

    def __init__(self, most: int) -> None:
        self.events: list[Event] = []
        self.story = Story()
        self.clients = Distinct()
        self.addresses = Distinct()
        self.epochs: dict[int, int] = {}  # producer id -> highest epoch
        self.inits = self.fenced = self.batches = self.records = self.control_batches = 0
        self.markers: Counter[bool] = Counter()
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self._most = most

    def see(self, facts: Facts) -> None:
        """Note who it is, and when."""
        self.clients.add(facts.client)
        self.addresses.add(facts.exchange.connection.client.ip)
        self._span(facts.exchange.time_ns, facts.exchange.time_ns)

    def has(self, producer_id: int, epoch: int) -> None:
        """Note an id and epoch of it."""
        if producer_id >= 0 and (producer_id in self.epochs or len(self.epochs) < IDS):
            self.epochs[producer_id] = max(epoch, self.epochs.get(producer_id, -1))

    def add(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        if len(self.events) > self._most:
            self.events.sort(key=_IN_ORDER)
            older = len(self.events) // 2
            for each in self.events[:older]:
                self.story.take(each)
            del self.events[:older]

    def merge(self, other: Producer) -> None:
        """Take in what was seen on other connections."""
        self.story.merge(other.story)
        for event in other.events:
            self.add(event)
        self.clients.merge(other.clients)
        self.addresses.merge(other.addresses)
        for producer_id, epoch in other.epochs.items():
            self.has(producer_id, epoch)
        self.inits += other.inits
        self.fenced += other.fenced
        self.batches += other.batches
        self.records += other.records
        self.control_batches += other.control_batches
        self.markers += other.markers
        if other.first_ns is not None and other.last_ns is not None:
            self._span(other.first_ns, other.last_ns)

    def told(self) -> Story:
        """The whole story, up to now."""
        story = deepcopy(self.story)
        for event in sorted(self.events, key=_IN_ORDER):
            story.take(event)
        return story

    def _span(self, first_ns: int, last_ns: int) -> None:
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)
