"""Exchanges in order -> the same exchanges in the same order, with names for the topic IDs in them.

Since Kafka 3.1 requests can name a topic by its ID (KIP-516), and only some messages contain both name and
ID: Metadata, CreateTopics, DescribeTopicPartitions, LeaderAndIsr and others. Names are learned from every
struct with both, which the schema identifies.

If a capture is read once, an ID is resolved if its name was learned earlier in packet time, or at most
``Limits.naming_window_ns`` later. So an exchange with an unknown ID waits that long, and later exchanges wait
with it to keep the order. At most ``naming_rows`` exchanges and ``naming_bytes`` bytes wait
(docs/decisions/naming-keeps-order.md). If the names were learned in a first pass (``pipeline.learned_from``),
nothing waits, and ``LearnedFacts`` says which names apply.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from kdissect.exchanges.learned import ADVERTISING
from kdissect.kafka.bodies import decode_exchange, request_layout, response_layout
from kdissect.kafka.schema import request, response
from kdissect.model import Anomaly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.exchanges.learned import LearnedFacts
    from kdissect.kafka.bodies import BodyLayout
    from kdissect.kafka.schema import Field
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
RESERVED = {
    "AAAAAAAAAAAAAAAAAAAAAQ": "__cluster_metadata"
}  # KIP-516: the one topic whose id never needs teaching


class _Struct(NamedTuple):
    """A struct that names topics: its path, and its ID and name fields."""

    path: tuple[tuple[str, bool], ...]
    id_field: str
    id_is_array: bool
    name_field: str | None


class TopicRefs(NamedTuple):
    """The topic IDs in an exchange, in wire order, and the (ID, name) pairs learned from it."""

    ids: list[str]
    learned: list[tuple[str, str]]


NONE = TopicRefs([], [])


class Waiting(Protocol):
    """Anything that can wait for a name: an exchange, or a stand-in for one in another process."""

    anomalies: list[Anomaly]
    topic_names: dict[str, str]

    @property
    def completed_ns(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def decoded_bytes(self) -> int: ...


Item = TypeVar("Item", bound=Waiting)


class TopicNameResolver(Generic[Item]):
    """The names learned so far, and the exchanges that wait for one.

    Args:
        limits: to respect.
        topic_refs: returns the IDs in an item, and the names learned from it.
        learned: facts from all parts of the capture. With these, nothing waits.
    """

    __slots__ = ("_bytes", "_held", "_learned", "_limits", "_names", "_topic_refs", "_window_ns")

    def __init__(
        self, limits: Limits, topic_refs: Callable[[Item], TopicRefs], learned: LearnedFacts | None = None
    ) -> None:
        self._limits = limits
        self._topic_refs = topic_refs
        self._learned = learned
        self._window_ns = limits.naming_window_ns if learned is None else 0
        self._names: dict[str, str] = dict(RESERVED)
        self._held: deque[tuple[Item, list[str], set[str]]] = deque()
        self._bytes = 0

    def feed(self, item: Item) -> list[Item]:
        """Add the next item in order of completion. Returns the items whose names are settled, in order."""
        held, names = self._held, self._names
        ids, learned = self._topic_refs(item)
        if not (held or ids):
            return [item]
        settled = []
        now_ns = item.completed_ns
        # before learning from this exchange: it is too late for them
        while held and now_ns - held[0][0].completed_ns >= self._window_ns:
            settled.append(self._release())
        if self._learned is None:
            for topic_id, name in learned:
                self._learn(topic_id, name)
        unknown = {topic_id for topic_id in ids if topic_id not in names}
        if not held and (not unknown or self._window_ns <= 0):
            self._write(item, ids)
            settled.append(item)
            return settled
        held.append((item, ids, unknown))
        self._bytes += item.held_bytes + item.decoded_bytes
        while held:
            waiting, _, unknown = held[0]
            if not unknown <= names.keys():
                if len(held) <= self._limits.naming_rows and self._bytes <= self._limits.naming_bytes:
                    break
                detail = f"{len(held)} exchanges of {self._bytes} bytes were waiting"
                waiting.anomalies.append(Anomaly("name_not_waited_for", "connection", detail))
            settled.append(self._release())
        return settled

    def close(self) -> list[Item]:
        return [self._release() for _ in range(len(self._held))]

    @property
    def is_idle(self) -> bool:
        return not self._held

    def name(self, topic_id: str) -> str | None:
        """The name of a topic ID. None if it has not been learned."""
        return self._names.get(topic_id)

    def _release(self) -> Item:
        item, ids, _ = self._held.popleft()
        self._bytes -= item.held_bytes + item.decoded_bytes
        self._write(item, ids)
        return item

    def _write(self, item: Item, ids: list[str]) -> None:
        for topic_id in ids:
            name = self._names.get(topic_id)
            if name is None and self._learned is not None:
                name = self._learned.topic_name(topic_id, item.completed_ns)
            if name is not None:
                item.topic_names[topic_id] = name

    def _learn(self, topic_id: str, name: str) -> None:
        self._names[topic_id] = self._names.pop(topic_id, name)  # the first name of an ID is final
        if len(self._names) > self._limits.topic_names:
            del self._names[next(iter(self._names))]


def learned_names(exchange: Exchange) -> list[tuple[str, str]]:
    """(ID, name) pairs of topics in a decoded exchange."""
    return topic_refs(exchange).learned


def learn(exchange: Exchange, facts: LearnedFacts) -> None:
    """Learn the topic names and listeners in an exchange. It is decoded only if it can have any."""
    key, version = exchange.api_key, exchange.api_version
    if key is not None and version is not None and (key in ADVERTISING or may_name_topic_ids(key, version)):
        decode_exchange(exchange)
        for topic_id, name in learned_names(exchange):
            facts.learn_topic(topic_id, name, exchange.completed_ns)
        facts.listeners.learn(exchange)


@cache
def may_name_topic_ids(api_key: int, version: int) -> bool:
    """Whether a request or response of this version can contain topic ID and name side by side. If not, it
    need not be decoded to learn names.
    """
    for message in (request(api_key), response(api_key)):
        if message is not None:
            layouts = (message.fields, *(draft.fields for draft in message.drafts))
            known = min(max(version, message.versions.first), message.versions.last)
            if any(struct.name_field for fields in layouts for struct in _find(fields, known, ())):
                return True
    return False


def topic_refs(exchange: Exchange) -> TopicRefs:
    """The topic IDs in a decoded exchange, and the names learned from it."""
    of_request, of_response = exchange.request_layout, exchange.response_layout
    if not ((of_request and _naming_structs(of_request)) or (of_response and _naming_structs(of_response))):
        return NONE  # most APIs and versions
    structs = _structs_of(exchange)
    ids: dict[str, None] = {}
    learned = []
    for body, struct in structs:
        for value in _walk(body, struct.path):
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
    return TopicRefs(list(ids), learned)


def _structs_of(exchange: Exchange) -> list[tuple[Body, _Struct]]:
    """The structs of an exchange that name topics by ID, each with its body."""
    structs: list[tuple[Body, _Struct]] = []
    for layout, body in (
        (request_layout(exchange), exchange.request),
        (response_layout(exchange), exchange.response),
    ):
        if layout is not None and body is not None:
            structs += [(body, struct) for struct in _naming_structs(layout)]
    return structs


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
