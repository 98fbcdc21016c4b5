"""Exchanges in order -> the same exchanges in the same order, with the names of the topic ids in them.

Since Kafka 3.1 requests name a topic by its id (KIP-516), and only some messages carry name and id side by
side: Metadata, CreateTopics, DescribeTopicPartitions, LeaderAndIsr and others. Any struct with both teaches;
    the schema tells which those are.

An id is named if its name was taught earlier in packet time, or at most ``Limits.naming_window_ns`` later. So
an exchange with an unknown id waits that long, and those behind it wait with it, because order is worth more
than haste; at most ``naming_rows`` exchanges and ``naming_bytes`` bytes wait
(docs/decisions/naming-keeps-order.md).
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka.bodies import request_layout, response_layout
from kdissect.model import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.kafka.bodies import Layout
    from kdissect.kafka.schema import Field
    from kdissect.limits import Limits
    from kdissect.model import Body, Exchange

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
RESERVED = {
    "AAAAAAAAAAAAAAAAAAAAAQ": "__cluster_metadata"
}  # KIP-516: the one topic whose id never needs teaching


class _Struct(NamedTuple):
    """Where a message names topics: path of the structs that do, and which of their fields are id and
    name.
    """

    path: tuple[tuple[str, bool], ...]
    id_field: str
    id_is_array: bool
    name_field: str | None


class Naming:
    """The names learnt so far, and the exchanges that wait for one."""

    __slots__ = ("_bytes", "_held", "_limits", "_names", "_window_ns")

    def __init__(self, limits: Limits, window_ns: int | None = None) -> None:
        self._limits = limits
        self._window_ns = limits.naming_window_ns if window_ns is None else window_ns
        self._names: dict[str, str] = dict(RESERVED)
        self._held: deque[tuple[Exchange, set[str]]] = deque()
        self._bytes = 0

    def feed(self, exchange: Exchange) -> list[Exchange]:
        """Take the next exchange in order of completion; get those whose names are settled, in
        order.
        """
        held = self._held
        structs = _structs_of(exchange)
        if not (held or structs):
            return [exchange]
        settled = []
        now_ns = exchange.completed_ns
        # before this exchange teaches: it comes too late for them
        while held and now_ns - held[0][0].completed_ns >= self._window_ns:
            settled.append(self._release())
        unknown = self._look(structs)
        if not held and (not unknown or self._window_ns <= 0):
            self._write(exchange)
            settled.append(exchange)
            return settled
        held.append((exchange, unknown))
        self._bytes += exchange.held_bytes
        while held:
            waiting, unknown = held[0]
            if not unknown <= self._names.keys():
                if len(held) <= self._limits.naming_rows and self._bytes <= self._limits.naming_bytes:
                    break
                detail = f"{len(held)} exchanges of {self._bytes} bytes waited"
                waiting.anomalies.append(Anomaly("name_not_waited_for", "connection", detail))
            settled.append(self._release())
        return settled

    def close(self) -> list[Exchange]:
        """Nothing more will be taught."""
        return [self._release() for _ in range(len(self._held))]

    def name(self, topic_id: str) -> str | None:
        """The name of a topic id, None where it has not been taught."""
        return self._names.get(topic_id)

    def _release(self) -> Exchange:
        exchange = self._held.popleft()[0]
        self._bytes -= exchange.held_bytes
        self._write(exchange)
        return exchange

    def _look(self, structs: list[tuple[Body, _Struct]]) -> set[str]:
        """Learn what an exchange teaches; return the ids in it that nobody has taught so far."""
        unknown: set[str] = set()
        for body, struct in structs:
            for value in _walk(body, struct.path):
                topic_id = value.get(struct.id_field)
                if topic_id is None:
                    continue
                name = value.get(struct.name_field) if struct.name_field else None
                if name and topic_id != NO_ID and not struct.id_is_array:
                    self._learn(topic_id, name)
                    unknown.discard(topic_id)
                    continue
                for one in topic_id if struct.id_is_array else (topic_id,):
                    if one != NO_ID and one not in self._names:
                        unknown.add(one)
        return unknown

    def _write(self, exchange: Exchange) -> None:
        names = exchange.topic_names
        for body, struct in _structs_of(exchange):
            for value in _walk(body, struct.path):
                topic_id = value.get(struct.id_field)
                for one in topic_id or () if struct.id_is_array else (topic_id,):
                    if one in self._names:
                        names[one] = self._names[one]

    def _learn(self, topic_id: str, name: str) -> None:
        self._names.pop(topic_id, None)
        self._names[topic_id] = name
        if len(self._names) > self._limits.topic_names:
            del self._names[next(iter(self._names))]


def _structs_of(exchange: Exchange) -> list[tuple[Body, _Struct]]:
    """Where an exchange names topics by id; for most apis and versions nowhere."""
    found: list[tuple[Body, _Struct]] = []
    for layout, body in (
        (request_layout(exchange), exchange.request),
        (response_layout(exchange), exchange.response),
    ):
        if layout is not None and body is not None:
            found += [(body, struct) for struct in _naming_structs(layout)]
    return found


@cache
def _naming_structs(layout: Layout) -> tuple[_Struct, ...]:
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
