"""Exchanges in order -> the same exchanges in the same order; those that carry fetched records know when the
records were produced, and which Produce of them failed; a failed Produce knows where they were fetched.

A produced batch gets its offset from the response. A consumer or replica can have the batch before the
producer has that response, usually by milliseconds. So an exchange with fetched batches waits for the Produce
that stored them, up to ``Limits.produce_window_ns`` of packet time, and later exchanges wait with it to keep
the order (docs/decisions/end-to-end-latency-waits-for-the-producer.md).

If a Produce fails, with an error or without an answer, its batches may be stored nevertheless. A batch that
is fetched with the same producer ID, epoch and sequence is one of them. So an exchange with a failed Produce
waits for the Fetch in the same way.

Holds when the last ``Limits.produced_batches`` were produced, or failed, the last ``fetched_batches``, and at
most ``naming_rows`` exchanges of ``naming_bytes``. If the facts of all parts of the capture were learned
beforehand, nothing waits, and a failed Produce does not know the Fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kdissect.exchanges.content import PRODUCE
from kdissect.exchanges.learned import BatchCopy, NumberedBatch
from kdissect.exchanges.outcomes import outcome
from kdissect.exchanges.resolver import NO_REFS, Refs, Resolvable, Resolver
from kdissect.exchanges.written import WrittenText
from kdissect.kafka.bodies import decode_exchange
from kdissect.model import ABANDONED, INCOMPLETE, UNANSWERED
from kdissect.names import Recent, kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.limits import Limits
    from kdissect.model import Exchange


ProduceRefs = Refs[Any, Any]
"""The fetched batches in an exchange, and those produced in it that were given an offset, with the time of
the last byte of the request. Only batches of magic 2: those before have no base offset that survives storing.
The base timestamp survives too. It tells batches apart that got the same offset: in several clusters, or in
a topic that was deleted and created again.

And each ``NumberedBatch`` with its ``BatchCopy``: a failed Produce waits for those that are fetched; a Fetch
has those whose Produce failed, if that is known.
"""


class Decoded(Resolvable, Protocol):
    """It waits decoded."""

    @property
    def decoded_bytes(self) -> int: ...


Item = TypeVar("Item", bound=Decoded)


class EndToEnd(Resolver[Item, Any, Any]):
    """When batches were produced, as far as known, and the exchanges that wait for it.

    Args:
        limits: to respect.
        refs: returns the batches of an item.
        learned: facts from all parts of the capture. If produced batches are among them, nothing waits.
    """

    __slots__ = ("_failed", "_fetched", "_learned")

    def __init__(
        self, limits: Limits, refs: Callable[[Item], ProduceRefs], learned: LearnedFacts | None = None
    ) -> None:
        self._learned: dict[Any, Any] | None = None
        self._failed: dict[Any, Any] = {}
        if learned is not None and learned.produced is not None:
            self._learned = _by_name(learned, learned.produced)
            failed = _by_name(learned, learned.failed)
            self._failed = {batch.numbers: fact for batch, fact in failed.items()}
        self._fetched: Recent[tuple[Any, ...], BatchCopy] = Recent(limits.fetched_batches)
        window_ns, capacity = limits.produce_window_ns, limits.produced_batches
        super().__init__(limits, refs, window_ns, capacity, knows_all=self._learned is not None)

    def _size(self, item: Item) -> tuple[int, int]:
        exchanges = item.exchanges if isinstance(item, WrittenText) else 1
        return exchanges, item.held_bytes + item.decoded_bytes

    def _learn(self, item: Item, key: Any, value: Any) -> None:
        for batch in _names(key, item):
            if type(batch) is not NumberedBatch:
                super()._learn(item, batch, value)
            elif batch.is_fetched:
                if batch.numbers not in self._fetched:
                    self._fetched.keep(batch.numbers, value)
            else:
                super()._learn(item, batch.numbers, value)

    def _find(self, item: Item, key: Any) -> Any:
        for batch in _names(key, item):
            is_numbered = type(batch) is NumberedBatch
            if is_numbered and not batch.is_fetched:
                known = self._fetched.get(batch.numbers)
            elif self._learned is None:
                known = self._values.get(batch.numbers if is_numbered else batch)
            else:
                facts = self._failed if is_numbered else self._learned
                known, learned_ns = facts.get(batch.numbers if is_numbered else batch, (None, 0))
                if learned_ns >= item.completed_ns + max(1, self._limits.produce_window_ns):
                    known = None
            if known is not None:
                return known
        return None

    def _write(self, item: Item, values: dict[Any, Any]) -> None:
        copies = {key: value for key, value in values.items() if isinstance(key, NumberedBatch)}
        if copies:
            item.copies = copies
        if len(copies) < len(values):
            item.produced_ns = {key: value for key, value in values.items() if key not in copies}


def produce_refs(exchange: Exchange | WrittenText) -> ProduceRefs:
    """The batches of a decoded exchange, or of what the core has written."""
    if isinstance(exchange, WrittenText):
        return exchange.refs
    from kdissect.exchanges.partition_records import partition_records  # loads the decompressors

    keys: list[Any] = []
    learned: list[tuple[Any, Any]] = []
    optional: list[NumberedBatch] = []
    exchange_id = exchange.id
    for each in partition_records(exchange):
        topic = kept(each.topic_id or each.topic)
        if topic is None or each.partition is None or not each.in_log:
            continue
        here = topic, each.partition
        has_no_response = each.produced and outcome(exchange) in (ABANDONED, UNANSWERED, INCOMPLETE)
        is_failed = each.produced and (has_no_response or bool(each.error_code))
        for origin in each.records.origins():
            base_offset, base_timestamp_ms, producer_id, epoch, sequence = origin
            if not each.produced:
                keys.append((*here, base_offset, base_timestamp_ms))
            elif not is_failed:
                if each.base_offset is not None:
                    learned.append(((*here, each.base_offset, base_timestamp_ms), exchange.time_ns))
                break
            if producer_id >= 0:
                batch = NumberedBatch(*here, producer_id, epoch, sequence, base_timestamp_ms, not is_failed)
                (keys if is_failed else optional).append(batch)
                learned.append((batch, BatchCopy(exchange_id, None if is_failed else base_offset)))
    return Refs(keys, learned, optional) if keys or learned else NO_REFS


def learn_produced(exchange: Exchange, facts: LearnedFacts) -> None:
    """Learn the produced batches in an exchange. It is decoded only if it can have any."""
    if exchange.api_key == PRODUCE:
        decode_exchange(exchange)
        for batch, value in produce_refs(exchange).learned:
            if isinstance(batch, NumberedBatch):
                facts.learn_failed(batch, value, exchange.completed_ns)
            else:
                facts.learn_batch(batch, value, exchange.completed_ns)


def _names(key: Any, item: Resolvable) -> tuple[Any, ...]:
    """The key with the topic as in the message, and with its name if that is an ID."""
    name = item.topic_ids.get(key[0])
    return (key,) if name is None else (key, _named(key, name))


def _named(key: Any, name: str) -> Any:
    return key._replace(topic=name) if isinstance(key, NumberedBatch) else (name, *key[1:])


def _by_name(learned: LearnedFacts, facts: dict[Any, Any]) -> dict[Any, Any]:
    """Learned facts about batches, those of a topic ID also by its name."""
    known = dict(facts)
    for key, fact in facts.items():
        name = learned.topic_name(key[0], fact[1])
        if name is not None:
            batch = _named(key, name)
            known[batch] = min(known.get(batch, fact), fact, key=_learned_ns)
    return known


def _learned_ns(fact: tuple[Any, int]) -> int:
    return fact[1]
