"""Bodies -> the topics and partitions that they are about, as text: ``orders-0,1, payments (12 partitions)``.

Bodies may be partial. Names are looked at up to a bound, and the rest is counted. Holds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka.records import RecordData
from kdissect.sinks.phrases import NAMES, many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kdissect.model import Body, Exchange

TOPIC_KEYS = ("name", "topic", "topic_name")
_PARTITION_KEYS = ("partition_index", "partition", "index", "partition_id")


def topic_name(exchange: Exchange, struct: Body) -> str:
    """Name the topic of a struct; by its id where this capture has not taught the name."""
    for key in TOPIC_KEYS:
        if name := struct.get(key):
            return str(name)
    topic_id = struct.get("topic_id")
    return str(exchange.topic_names.get(topic_id, topic_id)) if topic_id else ""


def array_of(topic: Body) -> list[Any]:
    """Find the array of a topic's partitions, the only one besides its configs; empty where there is none."""
    for name, value in topic.items():
        if type(value) is list and name != "configs":
            return value
    return []


def partitions_of(topic: Body) -> list[Any]:
    """List the partitions of a topic: its array is one of numbers, or of structs with a number each."""
    found = array_of(topic)
    if not found or type(found[0]) is not dict:
        return found
    for key in _PARTITION_KEYS:
        if key in found[0]:
            return [partition.get(key, "?") for partition in found]
    return ["?"] * len(found)


def place(name: str, partitions: Sequence[Any]) -> str:
    """Write one topic with its partitions."""
    count = len(partitions)
    if count == 1:
        return f"{name}-{partitions[0]}"
    if count > NAMES:
        return f"{name} ({many(count, 'partition')})"
    return f"{name}-{','.join(map(str, partitions))}" if partitions else name


def places(exchange: Exchange, topics: Iterable[Body] | None) -> str:
    """Write several: ``orders-0,1, payments (12 partitions) and 5 more topics``."""
    found = list(topics or ())
    if not found:
        return ""
    if "partition_index" in found[0]:
        found = _grouped(exchange, found)
    if len(found) == 1:
        return place(topic_name(exchange, found[0]), partitions_of(found[0]))
    shown = ", ".join([place(topic_name(exchange, topic), partitions_of(topic)) for topic in found[:NAMES]])
    rest = len(found) - NAMES
    return f"{shown} and {many(rest, 'more topic')}" if rest > 0 else shown


def _grouped(exchange: Exchange, flat: list[Body]) -> list[Body]:
    """Old controller requests name the topic again for each partition."""
    topics: dict[str, list[Any]] = {}
    for each in flat:
        topics.setdefault(topic_name(exchange, each), []).append(each.get("partition_index", "?"))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def only_partition(topics: list[Body] | None) -> Body | None:
    """Find the struct of the one partition that a message is about, None where there are more."""
    partitions = array_of(topics[0]) if topics and len(topics) == 1 else ()
    return partitions[0] if len(partitions) == 1 and type(partitions[0]) is dict else None


def only_number(topics: list[Body] | None, name: str) -> int | None:
    """Find a field of the one partition that a message is about; a negative number is none."""
    only = only_partition(topics)
    value = only.get(name) if only else None
    return value if value is not None and value >= 0 else None


def carried(topics: Iterable[Body] | None) -> tuple[list[Body], list[RecordData]]:
    """Reduce topics to their partitions that carry records, and gather these; none is null or empty."""
    carrying: list[Body] = []
    records: list[RecordData] = []
    for topic in topics or ():
        partitions, found = array_of(topic), []
        for partition in partitions:
            data = partition.get("records")
            if isinstance(data, RecordData) and len(data):
                found.append(partition)
                records.append(data)
        if found and len(found) < len(partitions):
            names = {name: value for name, value in topic.items() if type(value) is not list}
            topic = {**names, "partitions": found}
        if found:
            carrying.append(topic)
    return carrying, records


def no_records(topics: Iterable[Body] | None) -> str:
    """Say that there are none; empty where the body ends before it tells."""
    if topics is None:
        return ""
    is_told = all("records" in partition for topic in topics for partition in array_of(topic))
    return "no records" if is_told else ""
