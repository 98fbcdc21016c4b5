"""Exchanges in order -> the same exchanges in the same order, with names for the topic IDs in them.

Since Kafka 3.1 requests can name a topic by its ID (KIP-516), and only some messages contain both name and
ID: Metadata, CreateTopics, DescribeTopicPartitions, LeaderAndIsr and others. Names are learned from every
struct with both, which the schema identifies.

If a capture is read once, an ID is resolved if its name was learned earlier in packet time, or at most
``Limits.naming_window_ns`` later. So an exchange with an unknown ID waits that long, and later exchanges wait
with it to keep the order. At most ``naming_rows`` exchanges and ``naming_bytes`` bytes wait
(docs/decisions/naming-keeps-order.md). If the names were learned in a first pass (``pipeline.learned_from``),
nothing waits, and ``LearnedFacts`` has the names that apply. Names that the user has given always apply.
"""

from __future__ import annotations

import dataclasses
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kdissect.exchanges.clusters import names_cluster
from kdissect.exchanges.learned import ADVERTISING
from kdissect.exchanges.resolver import NO_REFS, Item, Refs, Resolver
from kdissect.kafka.bodies import decode_exchange
from kdissect.kafka.schema import request, response
from kdissect.model import Anomaly
from kdissect.net.duplex import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kdissect.exchanges.learned import BatchCopy, LearnedFacts, NumberedBatch, ProducedBatch
    from kdissect.kafka.bodies import BodyLayout
    from kdissect.kafka.primitives import DecodeBudget
    from kdissect.kafka.schema import Field, Message
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
RESERVED = {"AAAAAAAAAAAAAAAAAAAAAQ": "__cluster_metadata"}  # KIP-516: the one topic with a fixed ID


class _Struct(NamedTuple):
    """A struct that names topics: its path, and its ID and name fields."""

    path: tuple[tuple[str, bool], ...]
    id_field: str
    id_is_array: bool
    name_field: str | None


TopicRefs = Refs[str, str]
"""The topic IDs in an exchange, in wire order, and the (ID, name) pairs learned from it."""


@dataclasses.dataclass(slots=True)
class Waiting:
    """Stands for exchanges that wait undecoded: one, or some in a row that the native core has.

    Attributes:
        exchange: None: the core has them.
        exchanges: number of them.
        held_bytes: of their frames.
        completed_ns: when the last one was complete.
        refs: IDs in them, and names.
        parts: if several have IDs: of each its own, and of some in a row without any.
        topic_ids, anomalies: what the exchange gets.
    """

    exchange: Exchange | None
    exchanges: int
    held_bytes: int
    completed_ns: int
    refs: TopicRefs
    parts: Sequence[WaitingPart] = ()
    topic_ids: dict[str, str] = dataclasses.field(default_factory=dict)
    anomalies: list[Anomaly] = dataclasses.field(default_factory=list)
    produced_ns: dict[ProducedBatch, int] | None = None
    copies: dict[NumberedBatch, BatchCopy] | None = None

    @property
    def unnamed(self) -> frozenset[str]:
        """IDs that have no name."""
        return frozenset(self.refs.keys) - self.topic_ids.keys()

    def divided(self) -> list[Waiting]:
        """The parts, each for itself."""
        return [
            Waiting(None, exchanges, size, completed_ns, Refs(ids, []) if ids else NO_REFS)
            for exchanges, size, completed_ns, ids in self.parts
        ]

    def of(self, number: int) -> Waiting:
        """What stands for this one of the exchanges, with its names."""
        for exchanges, size, completed_ns, ids in self.parts:
            if number < exchanges:
                names = {each: self.topic_ids[each] for each in ids if each in self.topic_ids}
                return Waiting(None, 1, size, completed_ns, Refs(ids, []), topic_ids=names)
            number -= exchanges
        return self


class WaitingRoom(NamedTuple):
    """What can wait as one without changing what becomes of what waits already.

    Attributes:
        since_ns: exchanges that were completed before wait one by one.
        exchanges, bytes: how many, and of their frames.
    """

    since_ns: int
    exchanges: int
    bytes: int


class WaitingPart(NamedTuple):
    """Exchanges that wait, as ``Waiting``; several have no IDs."""

    exchanges: int
    held_bytes: int
    completed_ns: int
    ids: list[str]


class TopicNameResolver(Resolver[Item, str, str]):
    """The names learned so far, and the exchanges that wait for one.

    When exchanges are released makes no difference as long as no name is learned. So some in a row are one
    item (``Waiting.parts``), until a new name comes or there are too many.

    Args:
        limits: to respect.
        topic_refs: returns the IDs in an item, and the names learned from it.
        learned: facts from all parts of the capture. With these, nothing waits.
        given: names from the user, by ID.

    Attributes:
        learns: whether ``learn`` does: not from exchanges that have waited, because ``feed`` has.
        unnamed: IDs in the current exchange, which has waited, that got no name.
    """

    __slots__ = ("_given", "_has_parts", "_latest_ns", "_learned", "learns", "unnamed")

    def __init__(
        self,
        limits: Limits,
        topic_refs: Callable[[Item], TopicRefs],
        learned: LearnedFacts | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        window_ns, capacity = limits.naming_window_ns, limits.topic_names
        super().__init__(limits, topic_refs, window_ns, capacity, knows_all=learned is not None)
        self._learned = learned
        self._given = {**(given or {}), **RESERVED}
        self.learns = not self._knows_all
        self.unnamed: frozenset[str] = frozenset()
        self._has_parts = False  # whether an item may be held that can be divided
        # completion of the latest item; ``NEVER_NS`` once that has gone back, while any waits
        self._latest_ns = 0

    def _prepare(self, item: Item) -> list[Item]:
        if not self._held:
            self._has_parts, self._latest_ns = False, item.completed_ns
        settled = self._divide() if self._has_parts and self._must_divide(item) else []
        if isinstance(item, Waiting) and item.parts:
            self._has_parts = True
        self._latest_ns = item.completed_ns if item.completed_ns >= self._latest_ns else NEVER_NS
        return settled

    @property
    def room(self) -> WaitingRoom | None:
        """How many can wait as one behind what waits. None: nothing waits."""
        if not self._held:
            return None
        limits = self._limits
        return WaitingRoom(
            self._latest_ns, limits.naming_rows - self._rows, limits.naming_bytes - self._bytes
        )

    def _must_divide(self, item: Item) -> bool:
        """Whether it matters from now on which of the exchanges have been released."""
        rows, size = self._size(item)
        limits = self._limits
        return (
            self._rows + rows > limits.naming_rows
            or self._bytes + size > limits.naming_bytes
            or item.completed_ns < self._latest_ns
            or any(topic_id not in self._values for topic_id, _ in self._refs(item).learned)
        )

    def _divide(self) -> list[Item]:
        """Hold each exchange by itself. Returns those that would have been released by now."""
        self._has_parts = False
        for item in self._take_held():
            parts = item.divided() if isinstance(item, Waiting) and item.parts else [item]
            for part in cast("list[Item]", parts):
                self._hold(part, self._refs(part))
        return [*self._expired(self._latest_ns), *self._settled()]

    def _since_ns(self, item: Item) -> int:
        if isinstance(item, Waiting):
            for part in reversed(item.parts):
                if any(self._find(item, topic_id) is None for topic_id in part.ids):
                    return part.completed_ns
        return item.completed_ns

    def name(self, topic_id: str, completed_ns: int) -> str | None:
        """What stands for a topic ID in an exchange that was completed then: its name; the ID itself if a
        name would come too late; None if one may still come.
        """
        if topic_id in self.unnamed:
            return topic_id
        name = self._given.get(topic_id) or self._values.get(topic_id)
        if name or not self._knows_all:
            return name or None
        return self.known(topic_id, completed_ns) or topic_id

    def known(self, topic_id: str, completed_ns: int | None = None) -> str | None:
        """The name of a topic ID; for an exchange that was completed then, also from a first pass. None if it
        has not been learned.
        """
        name = self._given.get(topic_id) or self._values.get(topic_id)
        if name is None and self._learned is not None and completed_ns is not None:
            name = self._learned.topic_name(topic_id, completed_ns)
        return name

    def learn(self, topic_id: str, name: str) -> None:
        """Keep a name from an exchange that is not fed, because nothing about it waits."""
        if self.learns:
            self._keep(topic_id, name)

    def _size(self, item: Item) -> tuple[int, int]:
        return (item.exchanges if isinstance(item, Waiting) else 1), item.held_bytes

    def _find(self, item: Item, key: str) -> str | None:
        return self.known(key, item.completed_ns)

    def _write(self, item: Item, values: dict[str, str]) -> None:
        item.topic_ids |= values

    def _note_full(self, item: Item, detail: str) -> None:
        item.anomalies.append(Anomaly("name_not_waited_for", "connection", detail))


def learn(exchange: Exchange, facts: LearnedFacts) -> None:
    """Learn the topic names, listeners and cluster in an exchange. It is decoded only if it can have any."""
    key, version = exchange.api_key, exchange.api_version
    if key is None or version is None:
        return
    if key in ADVERTISING or may_name_topic_ids(key, version) or names_cluster(key, version):
        decode_exchange(exchange)
        for topic_id, name in topic_refs(exchange).learned:
            facts.learn_topic(topic_id, name, exchange.completed_ns)
        facts.listeners.learn(exchange)
        facts.clusters.learn(exchange)


@cache
def may_name_topic_ids(api_key: int, version: int) -> bool:
    """Whether a request or response of this version can contain topic ID and name side by side. If not, it
    need not be decoded to learn names.
    """
    return any(struct.name_field for struct in _all_structs(api_key, version))


@cache
def may_have_topic_ids(api_key: int, version: int) -> bool:
    """Whether a request or response of this version can contain a topic ID."""
    return any(True for _ in _all_structs(api_key, version))


def _all_structs(api_key: int, version: int) -> Iterator[_Struct]:
    """The structs that name topics in any layout of request and response."""
    for message in (request(api_key), response(api_key)):
        if message is not None:
            known = min(max(version, message.versions.first), message.versions.last)
            for fields in (message.fields, *(draft.fields for draft in message.drafts)):
                yield from _find(fields, known, ())


def naming_structs(message: Message, version: int) -> list[tuple[list[str], str, str]]:
    """The structs of a message that have the ID and the name of a topic: the fields that lead to each, and
    both fields.
    """
    return [(path, id_field, name) for path, id_field, name in topic_structs(message, version) if name]


def topic_structs(message: Message, version: int) -> list[tuple[list[str], str, str | None]]:
    """The structs of a message that have IDs of topics: the fields that lead to each, the field with the ID
    or an array of them, and the one with its name.
    """
    return [
        ([field for field, _ in path], id_field, None if is_array else name_field)
        for path, id_field, is_array, name_field in _find(message.fields, version, ())
    ]


def undecoded_topic_refs(exchange: Exchange, budget: DecodeBudget) -> TopicRefs:
    """As ``topic_refs``, of an exchange that stays undecoded."""
    key, version = exchange.api_key, exchange.api_version
    if key is None or version is None or not may_have_topic_ids(key, version):
        return NO_REFS
    decoded = copy(exchange)
    decoded.anomalies = []
    decode_exchange(decoded, budget=budget)
    return topic_refs(decoded)


def topic_refs(exchange: Exchange) -> TopicRefs:
    """The topic IDs in a decoded exchange, and the names learned from it."""
    of_request, of_response = exchange.request_layout, exchange.response_layout
    in_request = _naming_structs(of_request) if of_request else ()
    in_response = _naming_structs(of_response) if of_response else ()
    if not (in_request or in_response):
        return NO_REFS  # most APIs and versions
    structs = [(exchange.request, struct) for struct in in_request]
    structs += [(exchange.response, struct) for struct in in_response]
    ids: dict[str, None] = {}
    learned = []
    for body, struct in structs:
        for value in _walk(body, struct.path) if body is not None else ():
            topic_id = value.get(struct.id_field)
            if topic_id is None:
                continue
            if struct.id_is_array:
                ids |= dict.fromkeys(topic_id)
                continue
            ids[topic_id] = None
            name = value.get(struct.name_field) if struct.name_field else None
            if name and topic_id != NO_ID:
                learned.append((topic_id, name))
    ids.pop(NO_ID, None)
    return Refs(list(ids), learned)


@cache
def _naming_structs(layout: BodyLayout) -> tuple[_Struct, ...]:
    fields = layout.draft.fields if layout.draft else layout.message.fields
    return tuple(_find(fields, layout.version, ()))


def _find(fields: tuple[Field, ...], version: int, path: tuple[tuple[str, bool], ...]) -> Iterator[_Struct]:
    present = [field for field in fields if version in field.versions]
    topics = [field for field in present if field.role == "topic"]
    name = next((field.name for field in topics if field.type == "string" and not field.array), None)
    for field in topics:
        if field.type == "uuid":
            yield _Struct(path, field.name, field.array, name)
    for field in present:
        if field.fields:
            yield from _find(field.fields, version, (*path, (field.name, field.array)))


def _walk(body: Body, path: tuple[tuple[str, bool], ...]) -> Iterator[Body]:
    if not path:
        yield body
        return
    (name, is_array), rest = path[0], path[1:]
    value: Any = body.get(name)
    if value is None:
        return
    for struct in value if is_array else (value,):
        yield from _walk(struct, rest)
