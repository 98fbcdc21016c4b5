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

from typing import TYPE_CHECKING

from kdissect.exchanges.content import PRODUCE
from kdissect.exchanges.learned import ProducedBatch
from kdissect.exchanges.resolver import NO_REFS, Item, Refs, Resolver
from kdissect.kafka.bodies import decode_exchange
from kdissect.names import kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.exchanges.resolver import Resolvable
    from kdissect.limits import Limits
    from kdissect.model import Exchange


ProduceRefs = Refs[ProducedBatch, int]
"""The fetched batches in an exchange, and those produced in it that were given an offset, with the time of
the last byte of the request. Only batches of magic 2: those before have no base offset that survives storing.
The base timestamp survives too. It tells batches apart that got the same offset: in several clusters, or in
a topic that was deleted and created again.
"""


class EndToEnd(Resolver[Item, ProducedBatch, int]):
    """When batches were produced, as far as known, and the exchanges that wait for it.

    Args:
        limits: to respect.
        refs: returns the batches of an item.
        learned: facts from all parts of the capture. If produced batches are among them, nothing waits.
    """

    __slots__ = ("_learned",)

    def __init__(
        self, limits: Limits, refs: Callable[[Item], ProduceRefs], learned: LearnedFacts | None = None
    ) -> None:
        self._learned = None if learned is None else _by_name(learned)
        window_ns, capacity = limits.produce_window_ns, limits.produced_batches
        super().__init__(limits, refs, window_ns, capacity, knows_all=self._learned is not None)

    def _learn(self, item: Item, key: ProducedBatch, value: int) -> None:
        for name in _names(key[0], item):
            super()._learn(item, (name, *key[1:]), value)

    def _find(self, item: Item, key: ProducedBatch) -> int | None:
        for name in _names(key[0], item):
            batch = (name, *key[1:])
            if self._learned is not None:
                sent_ns, learned_ns = self._learned.get(batch, (None, 0))
                if sent_ns and learned_ns < item.completed_ns + max(1, self._limits.produce_window_ns):
                    return sent_ns
            elif (known_ns := self._values.get(batch)) is not None:
                return known_ns
        return None

    def _write(self, item: Item, values: dict[ProducedBatch, int]) -> None:
        item.produced_ns = values


def produce_refs(exchange: Exchange) -> ProduceRefs:
    """The batches of a decoded exchange."""
    from kdissect.exchanges.partition_records import partition_records  # loads the decompressors

    produced: list[tuple[ProducedBatch, int]] = []
    fetched: list[ProducedBatch] = []
    for each in partition_records(exchange):
        topic = kept(each.topic_id or each.topic)
        if topic is None or each.partition is None or not each.in_log:
            continue
        if not each.produced:
            fetched += ((topic, each.partition, *origin) for origin in each.records.origins())
        elif each.base_offset is not None and (first := next(each.records.origins(), None)) is not None:
            produced.append(((topic, each.partition, each.base_offset, first[1]), exchange.time_ns))
    return Refs(fetched, produced) if fetched or produced else NO_REFS


def learn_produced(exchange: Exchange, facts: LearnedFacts) -> None:
    """Learn the produced batches in an exchange. It is decoded only if it can have any."""
    if exchange.api_key == PRODUCE:
        decode_exchange(exchange)
        for batch, sent_ns in produce_refs(exchange).learned:
            facts.learn_batch(batch, sent_ns, exchange.completed_ns)


def _names(topic: str, item: Resolvable) -> tuple[str, ...]:
    """The topic as in the message, and its name if that is an ID."""
    name = item.topic_names.get(topic)
    return (topic,) if name is None else (topic, name)


def _by_name(learned: LearnedFacts) -> dict[ProducedBatch, tuple[int, int]] | None:
    """The learned batches, those of a topic ID also by its name. None if they were not gathered."""
    if learned.produced is None:
        return None
    known = dict(learned.produced)
    for (topic, partition, offset, timestamp_ms), times in learned.produced.items():
        name = learned.topic_name(topic, times[1])
        if name is not None:
            batch = name, partition, offset, timestamp_ms
            known[batch] = min(known.get(batch, times), times, key=_learned_ns)
    return known


def _learned_ns(times: tuple[int, int]) -> int:
    return times[1]
