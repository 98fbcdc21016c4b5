"""Exchanges in order -> the same exchanges in the same order; those that carry fetched records know when the
records were produced.

A produced batch gets its offset from the response. A consumer or replica can have the batch before the
producer has that response, usually by milliseconds. So an exchange with fetched batches waits for the Produce
that stored them, up to ``Limits.produce_window_ns`` of packet time, and later exchanges wait with it to keep
the order (docs/decisions/end-to-end-latency-waits-for-the-producer.md).

Holds when the last ``Limits.produced_batches`` were produced, and at most ``naming_rows`` exchanges of
``naming_bytes``. If the facts of all parts of the capture were learned beforehand, nothing waits.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kdissect.exchanges.content import PRODUCE
from kdissect.kafka.bodies import decode_exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.learned import LearnedFacts, ProducedBatch
    from kdissect.limits import Limits
    from kdissect.model import Exchange


class ProduceRefs(NamedTuple):
    """The batches of an exchange that are stored in a partition, by topic as in the message, partition and
    base offset. Only batches of magic 2: those before have no base offset that survives storing.

    Attributes:
        produced: batches in a Produce to which the broker gave an offset.
        fetched: batches in a response.
        sent_ns: time of the last byte of the request with ``produced``.
        topic_names: ``Exchange.topic_names``, as far as they are known.
    """

    produced: list[ProducedBatch]
    fetched: list[ProducedBatch]
    sent_ns: int
    topic_names: dict[str, str]


NO_BATCHES = ProduceRefs([], [], 0, {})


class FetchedItem(Protocol):
    """Anything that can wait for a Produce: an exchange, or a stand-in for one in another process."""

    produced_ns: dict[ProducedBatch, int] | None
    topic_names: dict[str, str]

    @property
    def completed_ns(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def decoded_bytes(self) -> int: ...


Item = TypeVar("Item", bound=FetchedItem)


class EndToEnd(Generic[Item]):
    """The batches produced so far, and the exchanges that wait for one.

    Args:
        limits: to respect.
        refs: returns the batches of an item.
        learned: facts from all parts of the capture. If produced batches are among them, nothing waits.

    Attributes:
        evicted: number of produced batches forgotten because of ``Limits.produced_batches``.
    """

    __slots__ = ("_bytes", "_held", "_learned", "_limits", "_refs", "_sent_ns", "_window_ns", "evicted")

    def __init__(
        self, limits: Limits, refs: Callable[[Item], ProduceRefs], learned: LearnedFacts | None = None
    ) -> None:
        self._limits = limits
        self._refs = refs
        self._learned = None if learned is None else _by_name(learned)
        self._window_ns = limits.produce_window_ns if self._learned is None else 0
        self._sent_ns: dict[ProducedBatch, int] = {}
        self._held: deque[tuple[Item, list[ProducedBatch], list[ProducedBatch]]] = deque()
        self._bytes = 0
        self.evicted = 0

    def feed(self, item: Item) -> list[Item]:
        """Add the next item in order of completion. Returns the items that are settled, in order."""
        held, refs = self._held, self._refs(item)
        if not (held or refs.produced or refs.fetched):
            return [item]
        settled = []
        now_ns = item.completed_ns
        # before learning from this exchange: it is too late for them
        while held and now_ns - held[0][0].completed_ns >= self._window_ns:
            settled.append(self._release())
        if self._learned is None:
            for topic, partition, offset in refs.produced:
                for name in _names(topic, item):
                    self._learn((name, partition, offset), refs.sent_ns)
        held.append((item, refs.fetched, refs.fetched[::-1]))
        self._bytes += item.held_bytes + item.decoded_bytes
        while held:
            first, _, missing = held[0]
            while missing and self._find(first, missing[-1]) is not None:
                missing.pop()
            if missing and self._window_ns > 0 and not self._is_full():
                break
            settled.append(self._release())
        return settled

    def close(self) -> list[Item]:
        """The items that still wait."""
        return [self._release() for _ in range(len(self._held))]

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._held

    def _is_full(self) -> bool:
        return len(self._held) > self._limits.naming_rows or self._bytes > self._limits.naming_bytes

    def _release(self) -> Item:
        item, fetched, _ = self._held.popleft()
        self._bytes -= item.held_bytes + item.decoded_bytes
        sent_by_batch = {
            batch: sent_ns for batch in fetched if (sent_ns := self._find(item, batch)) is not None
        }
        if sent_by_batch:
            item.produced_ns = sent_by_batch
        return item

    def _find(self, item: Item, batch: ProducedBatch) -> int | None:
        topic, partition, offset = batch
        for name in _names(topic, item):
            if self._learned is not None:
                sent_ns, learned_ns = self._learned.get((name, partition, offset), (None, 0))
                if sent_ns and learned_ns < item.completed_ns + max(1, self._limits.produce_window_ns):
                    return sent_ns
            elif (known_ns := self._sent_ns.get((name, partition, offset))) is not None:
                return known_ns
        return None

    def _learn(self, batch: ProducedBatch, sent_ns: int) -> None:
        known = self._sent_ns
        known[batch] = known.pop(batch, sent_ns)  # the first Produce of an offset is the one that stored it
        if len(known) > self._limits.produced_batches:
            del known[next(iter(known))]
            self.evicted += 1


def produce_refs(exchange: Exchange) -> ProduceRefs:
    """The batches of a decoded exchange."""
    from kdissect.exchanges.partition_records import partition_records  # loads the decompressors

    produced: list[ProducedBatch] = []
    fetched: list[ProducedBatch] = []
    for each in partition_records(exchange):
        topic = each.topic_id or each.topic
        if topic is None or each.partition is None or not each.in_log:
            continue
        if not each.produced:
            fetched += ((topic, each.partition, offset) for offset in each.records.base_offsets())
        elif each.base_offset is not None:
            produced.append((topic, each.partition, each.base_offset))
    if not (produced or fetched):
        return NO_BATCHES
    return ProduceRefs(produced, fetched, exchange.time_ns, exchange.topic_names)


def learn_produced(exchange: Exchange, facts: LearnedFacts) -> None:
    """Learn the produced batches in an exchange. It is decoded only if it can have any."""
    if exchange.api_key == PRODUCE:
        decode_exchange(exchange)
        refs = produce_refs(exchange)
        for batch in refs.produced:
            facts.learn_batch(batch, refs.sent_ns, exchange.completed_ns)


def _names(topic: str, item: FetchedItem) -> tuple[str, ...]:
    """The topic as in the message, and its name if that is an ID."""
    name = item.topic_names.get(topic)
    return (topic,) if name is None else (topic, name)


def _by_name(learned: LearnedFacts) -> dict[ProducedBatch, tuple[int, int]] | None:
    """The learned batches, those of a topic ID also by its name. None if they were not gathered."""
    if learned.produced is None:
        return None
    known = dict(learned.produced)
    for (topic, partition, offset), times in learned.produced.items():
        name = learned.topic_name(topic, times[1])
        if name is not None:
            batch = name, partition, offset
            known[batch] = min(known.get(batch, times), times, key=_learned_ns)
    return known


def _learned_ns(times: tuple[int, int]) -> int:
    return times[1]
