"""Facts learned on one connection that others need: the only ones that cross connections. Names and batches
have the packet time at which they were learned. Holds at most ``Limits.topic_names`` names of topic IDs,
``listeners`` and clusters of these, ``produced_batches``, and ``tls_sessions``.

Connections are independent (docs/decisions/connections-are-islands.md). The parts of a capture can therefore
be dissected separately, if their facts are first collected and merged. The order of merging does not matter:
of two facts about the same thing, the earlier one wins.

An ID is resolved in one of two ways. ``whole``: by a name learned from any part of the capture. ``window``:
if its name was learned earlier in packet time, or at most ``Limits.naming_window_ns`` later, as when a
capture is read once, from beginning to end. Known listeners and clusters are used only with ``whole``.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.clusters import Clusters, advertised
from kdissect.limits import DEFAULT
from kdissect.model import Endpoint
from kdissect.names import entries, kept
from kdissect.options import WHOLE, WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import Exchange


class Listeners:
    """The endpoints of brokers: those that respond, and those that they advertise by address. Holds at most
    ``Limits.listeners``.
    """

    __slots__ = ("_entries", "_known", "_max_listeners")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._known: set[Endpoint] = set()
        self._entries = 0  # that they take
        self._max_listeners = limits.listeners

    def __contains__(self, end: Endpoint) -> bool:
        return end in self._known

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._known)

    def learn(self, exchange: Exchange, broker: Endpoint | None = None) -> None:
        """Note the broker of an exchange, and the brokers named in its response, if that is decoded.
        ``broker``: that sent it; None: that of its connection.
        """
        self.add(broker or exchange.connection.broker)
        if exchange.api_key in ADVERTISING:
            for host, port in advertised(exchange):
                self.add(Endpoint(host, port))

    def add(self, listener: Endpoint) -> None:
        """Note a listener."""
        if listener in self._known or self._entries >= self._max_listeners:
            return
        if (listener := kept(listener)) not in self._known:
            self._known.add(listener)
            self._entries += entries(listener)

    def merge(self, other: Listeners) -> None:
        """Add those of another."""
        for listener in other:
            self.add(listener)


METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
ADVERTISING = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER})
"""Keys of the APIs whose responses name brokers."""
NAMING = frozenset({METADATA, DESCRIBE_CLUSTER})
"""Keys of those whose responses name a cluster, too."""


ProducedBatch = tuple[str, int, int, int]
"""A batch in a partition: topic as in the message (name as it is kept, or ID), partition, base offset, base
timestamp (ms).
"""


class NumberedBatch(NamedTuple):
    """A copy of a batch that was fetched, or whose Produce failed, by the numbers that its producer gave it.
    The base timestamp tells clusters apart.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_timestamp_ms: int
    is_fetched: bool

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What copies have in common."""
        return self[:-1]


class BatchCopy(NamedTuple):
    """The exchange with a copy of a batch, as ``connection/number``, and where the log has it."""

    exchange: str
    base_offset: int | None


class LearnedFacts:
    """Facts learned from a capture or a part of it.

    Args:
        limits: to respect.
        names: how IDs are resolved: ``WHOLE`` or ``WINDOW``.

    Attributes:
        topics: topic ID -> name, and when it was learned: ``completed_ns`` of the exchange with both.
        clusters: of these endpoints of brokers.
        listeners: where brokers respond, and the addresses that they advertise.
        produced: batch -> when it was produced, and when its offset was learned. None if these were not
            gathered.
        failed: batch whose Produce failed -> the exchange, and when it was completed. Gathered with
            ``produced``.
        dropped_batches, dropped_names: how often one was not kept because of the limit.
        tls_sessions: hash of a session ID or ticket -> client random and principal of the TLS session, see
            tls/connection.py. It has no secrets.
        names: as given.
    """

    __slots__ = (
        "_batch_entries", "_limits", "_topic_entries", "clusters",
        "dropped_batches", "dropped_names", "failed", "listeners", "names", "produced", "tls_sessions",
        "topics",
    )  # fmt: skip

    def __init__(self, limits: Limits = DEFAULT, names: str = WINDOW) -> None:
        self._limits = limits
        self.names = names
        self._topic_entries = self._batch_entries = 0  # that ``topics`` and ``produced`` take
        self.topics: dict[str, tuple[str, int]] = {}
        self.listeners = Listeners(limits)
        self.clusters = Clusters(limits)
        self.produced: dict[ProducedBatch, tuple[int, int]] | None = None
        self.failed: dict[NumberedBatch, tuple[BatchCopy, int]] = {}
        self.dropped_batches = self.dropped_names = 0
        self.tls_sessions: dict[bytes, tuple[bytes, str | None]] = {}

    def learn_topic(self, topic_id: str, name: str, time_ns: int) -> None:
        before = self.topics.get(topic_id)
        if before is None and self._topic_entries >= self._limits.topic_names:
            self.dropped_names += 1
            return
        if before is None or time_ns < before[1]:
            self.topics[topic_id] = name, time_ns = kept(name), time_ns
            self._topic_entries += entries(name) - (0 if before is None else entries(before[0]))

    def learn_batch(self, batch: ProducedBatch, sent_ns: int, time_ns: int) -> None:
        self._keep(self.gathered_batches(), batch, sent_ns, time_ns)

    def learn_failed(self, batch: NumberedBatch, copy: BatchCopy, time_ns: int) -> None:
        self._keep(self.failed, batch, copy, time_ns)

    def _keep(self, known: dict[Any, tuple[Any, int]], batch: Any, fact: Any, time_ns: int) -> None:
        """Keep the earliest fact about a batch; of those of one time, the smallest."""
        before = known.get(batch)
        if before is None and self._batch_entries >= self._limits.produced_batches:
            self.dropped_batches += 1
            return
        if before is None:
            self._batch_entries += entries(batch)
        if before is None or (time_ns, fact) < before[::-1]:
            known[batch] = fact, time_ns

    def gathered_batches(self) -> dict[ProducedBatch, tuple[int, int]]:
        """``produced``, which is gathered from now on."""
        if self.produced is None:
            self.produced = {}
        return self.produced

    def merge(self, other: LearnedFacts) -> None:
        for topic_id, (name, time_ns) in other.topics.items():
            self.learn_topic(topic_id, name, time_ns)
        self.listeners.merge(other.listeners)
        self.clusters.merge(other.clusters)
        self.dropped_batches += other.dropped_batches
        self.dropped_names += other.dropped_names
        room = self._limits.tls_sessions - len(self.tls_sessions)
        self.tls_sessions.update(islice(other.tls_sessions.items(), max(0, room)))
        for failed, (copy, time_ns) in other.failed.items():
            self.learn_failed(failed, copy, time_ns)
        if other.produced is not None:
            self.gathered_batches()
            for batch, (sent_ns, time_ns) in other.produced.items():
                self.learn_batch(batch, sent_ns, time_ns)

    def topic_name(self, topic_id: str, completed_ns: int) -> str | None:
        """The name of a topic ID in an exchange that was completed at this time. None if it is not known."""
        name, time_ns = self.topics.get(topic_id, (None, 0))
        is_in_time = self.names == WHOLE or time_ns < completed_ns + max(1, self._limits.naming_window_ns)
        return name if is_in_time else None
