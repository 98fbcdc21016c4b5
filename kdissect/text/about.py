"""``Exchange`` -> a short description specific to its API: ``orders-0 from 7 -> 12 records, 3.4 KB``.

The request is described before the arrow, the response after it, with the broker's message about its first
error; errors are shown elsewhere. The texts are data: kafka/messages/about.txt. Bodies may be partial, so any
field may be missing. Holds nothing but the functions generated from the templates. At most ``phrases.NAMES``
names are shown, the rest are counted. The text is not yet safe for a terminal (phrases.py).
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.content import error_messages
from kdissect.exchanges.undecoded import undecoded
from kdissect.kafka import apis
from kdissect.kafka.codes import error_name
from kdissect.kafka.headers import API_VERSIONS, CORRELATION_ID_BYTES
from kdissect.kafka.records import RecordData
from kdissect.model import Redacted
from kdissect.phrases import NAMES, TopicId, duration, facts, listed, many, named, size, topic_label
from kdissect.text import about_template
from kdissect.text.about_template import native_line
from kdissect.text.style import iso_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kdissect.model import Body, Exchange
    from kdissect.sinks.plan import PlanContext
    from kdissect.text.about_template import Describe


_SUBJECTS = 3  # fields shown for an API without templates


def about(exchange: Exchange) -> str:
    """Describe an exchange; empty if nothing is known."""
    if exchange.text is not None:
        return exchange.text
    if exchange.api_key is None:
        return _sasl_or_orphan(exchange)
    request, response = exchange.request or {}, exchange.response or {}
    request_text, response_text = _described(exchange.api_key)(exchange, request, response)
    if exchange.request_frame is None:
        request_text = topics_text(exchange, _topics(response))
    elif not request_text and "_undecoded" in request:
        request_text = _subject(exchange, "_undecoded", request["_undecoded"])
    if exchange.announced is not None:
        if exchange.is_cut:
            response_text = _incomplete(exchange)
        else:
            request_text = f"{request_text}, {_incomplete(exchange)}".lstrip(", ")
    if exchange.errors != [] and (messages := error_messages(exchange)):  # [] is the usual case
        first, *others = messages.values()
        more = f" and {many(len(others), 'more message')}" if others else ""
        response_text = facts(response_text, f'"{first}"{more}')
    return f"{request_text} -> {response_text}".lstrip() if response_text else request_text


def _incomplete(exchange: Exchange) -> str:
    """How much came of a message that did not end."""
    frame = exchange.response_frame or exchange.first_frame
    return f"incomplete: {frame.wire_bytes:,} of {many(exchange.announced or 0, 'byte')}"


def describe_undecoded(exchange: Exchange, context: PlanContext) -> bool:
    """Let the native core set ``text`` and ``errors`` of an answered exchange. Returns whether it did. It
    does not if anything is unusual: then the bodies must be decoded.

    Args:
        exchange: whose bodies have not been decoded.
        context: learns from it.
    """
    key, version = exchange.api_key, exchange.api_version
    request, response, header = exchange.request_frame, exchange.response_frame, exchange.request_header
    if key is None or version is None or header is None or request is None or response is None:
        return False
    if exchange.announced is not None:
        return False
    known = undecoded_line(key, version)
    if known is None or not (request.complete and response.complete and header.body_pos >= 0):
        return False
    line, tags = known
    if not response.data.startswith(tags, CORRELATION_ID_BYTES):
        return False
    response_pos = CORRELATION_ID_BYTES + len(tags)
    names, limits, protocols = context.names, context.limits, context.decoding.protocols
    described = line.text(
        (request.data, header.body_pos),
        (response.data, response_pos),
        limits.decoded_bytes,
        lambda topic_id: names.name(topic_id, exchange.completed_ns),
        names.learn,
        partial(protocols.follow, exchange.connection.key, key),
    )
    if described is None:
        return False
    text, codes = described
    if codes and key == API_VERSIONS:  # perhaps in version 0 (KIP-511)
        return False
    exchange.text, exchange.errors = text, [error_name(code) for code in codes]
    return True


@cache
def undecoded_line(api_key: int, version: int) -> tuple[Any, bytes] | None:
    """The core's ``Line``, and the bytes expected after the correlation ID of a response. None if such
    exchanges must be decoded.
    """
    known, line = undecoded(api_key, version, shows_values=False), native_line(api_key, version)
    return None if known is None or line is None else (line, known.tags)


def _topics(body: Body) -> list[Body]:
    """The array of topics in a body."""
    keys = {*TOPIC_KEYS, "topic_id"}
    arrays = (value for value in body.values() if isinstance(value, list) and value)
    return next((array for array in arrays if isinstance(array[0], dict) and keys & array[0].keys()), [])


def _sasl_or_orphan(exchange: Exchange) -> str:
    frame = exchange.first_frame
    if exchange.request_frame is None:
        is_unexpected = any(anomaly.kind == "unexpected_response" for anomaly in exchange.anomalies)
        why = "no outstanding request" if is_unexpected else "request not captured"
        return f"response {exchange.correlation_id}, {size(frame.size + 4)}, {why}"
    return facts(exchange.sasl_mechanism, f"{size(frame.size)} token")


@cache
def _described(api_key: int) -> Describe:
    functions = {
        "amount": amount,
        "duration": duration,
        "listed": listed,
        "many": many,
        "no_records": no_records,
        "offset_time": offset_time,
        "partitions_with_records": partitions_with_records,
        "size_of": size_of,
        "topic_name": topic_name,
        "topics_text": topics_text,
    }
    source = about_template.generate(api_key, functions) if apis.by_key(api_key) else None
    return _first_fields if source is None else source.function()


def size_of(value: Any) -> str:
    """The size of bytes, of record data, or of a redacted value."""
    return size(value.length if isinstance(value, Redacted) else len(value))


def amount(all_records: list[RecordData]) -> str:
    """Number and size: ``12 records, 3.4 KB``."""
    counts = [records.count() for records in all_records]
    number = "compressed message sets" if None in counts else many(sum(filter(None, counts)), "record")
    return f"{number}, {size(sum(map(len, all_records)))}"


def offset_time(timestamps: Iterable[int], names: Mapping[int, str]) -> str:
    """What all partitions of a ListOffsets request look for: an instant, or by name (negative numbers)."""
    first, *others = {*timestamps} or [None]
    if first is None or others:
        return ""
    return names.get(first) or str(first) if first < 0 else f"at {iso_ms(first) or first}"


def _first_fields(exchange: Exchange, request: Body, response: Body) -> tuple[str, str]:
    """The first fields of a request whose API has no templates."""
    subjects = []
    for name, value in request.items():
        if name.endswith("_ms") or value is None or isinstance(value, bool):
            continue
        subjects.append(_subject(exchange, name, value))
    if not subjects and "_undecoded" in response:
        return "", _subject(exchange, "_undecoded", response["_undecoded"])
    return facts(*[text for text in subjects if text][:_SUBJECTS]), ""


def _subject(exchange: Exchange, name: str, value: Any) -> str:
    if name == "_undecoded":
        return f"{size_of(value)} not decoded"
    words = name.replace("_", " ")
    if isinstance(value, (int, str)):
        return named(words.removesuffix(" id"), value) if value != -1 else ""
    if not isinstance(value, list) or not value or name.startswith("_"):
        return ""
    if isinstance(value[0], dict):
        is_topics = any(key in value[0] for key in TOPIC_KEYS[1:]) or "topic" in name
        return topics_text(exchange, value) if is_topics else f"{words}: {len(value):,}"
    return f"{words.removesuffix(' ids')} {listed(value)}"


# ------------------------------------------------------------------------------------------------------------
# Bodies -> their topics and partitions as text: ``orders-0,1, payments (12 partitions)``.
#
# Bodies may be partial. At most ``phrases.NAMES`` names are shown, the rest are counted. Stateless.
# ------------------------------------------------------------------------------------------------------------


TOPIC_KEYS = ("name", "topic", "topic_name")
_PARTITION_KEYS = ("partition_index", "partition", "index", "partition_id")


def topic_name(exchange: Exchange, struct: Body) -> str:
    """The topic name of a struct; ``<id ...>`` if no name was learned for its topic ID."""
    for key in TOPIC_KEYS:
        if name := struct.get(key):
            return str(name)
    topic_id = struct.get("topic_id")
    return topic_label(exchange.topic_ids.get(topic_id) or TopicId(topic_id)) if topic_id else ""


def array_of(topic: Body) -> list[Any]:
    """The array of a topic's partitions: the only one besides its configs; empty if there is none."""
    for name, value in topic.items():
        if type(value) is list and name != "configs":
            return value
    return []


def partitions_of(topic: Body) -> list[Any]:
    """The partition numbers of a topic, whose array has numbers or structs with a number each."""
    array = array_of(topic)
    if not array or type(array[0]) is not dict:
        return array
    for key in _PARTITION_KEYS:
        if key in array[0]:
            return [partition.get(key, "?") for partition in array]
    return ["?"] * len(array)


def topic_text(name: str, partitions: Sequence[Any]) -> str:
    """A topic with its partitions, as text."""
    count = len(partitions)
    if count == 1:
        return f"{name}-{partitions[0]}"
    if count > NAMES:
        return f"{name} ({many(count, 'partition')})"
    return f"{name}-{','.join(map(str, partitions))}" if partitions else name


def topics_text(exchange: Exchange, topics: Iterable[Body] | None) -> str:
    """Several topics: ``orders-0,1, payments (12 partitions) and 5 more topics``."""
    structs = list(topics or ())
    if not structs:
        return ""
    if "partition_index" in structs[0]:
        structs = _grouped(exchange, structs)
    if len(structs) == 1:
        return topic_text(topic_name(exchange, structs[0]), partitions_of(structs[0]))
    shown = ", ".join(
        [topic_text(topic_name(exchange, topic), partitions_of(topic)) for topic in structs[:NAMES]]
    )
    rest = len(structs) - NAMES
    return f"{shown} and {many(rest, 'more topic')}" if rest > 0 else shown


def _grouped(exchange: Exchange, flat: list[Body]) -> list[Body]:
    """Group partitions by topic: old controller requests repeat the topic for each partition."""
    topics: dict[str, list[Any]] = {}
    for each in flat:
        topics.setdefault(topic_name(exchange, each), []).append(each.get("partition_index", "?"))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def partitions_with_records(topics: Iterable[Body] | None) -> tuple[list[Body], list[RecordData]]:
    """Reduce topics to the partitions with record data that is not empty, and collect that data."""
    reduced: list[Body] = []
    records: list[RecordData] = []
    for topic in topics or ():
        partitions, with_data = array_of(topic), []
        for partition in partitions:
            data = partition.get("records")
            if isinstance(data, RecordData) and len(data):
                with_data.append(partition)
                records.append(data)
        if with_data and len(with_data) < len(partitions):
            names = {name: value for name, value in topic.items() if type(value) is not list}
            topic = {**names, "partitions": with_data}
        if with_data:
            reduced.append(topic)
    return reduced, records


def no_records(topics: Iterable[Body] | None) -> str:
    """``no records``, or empty if the body ends before that is known."""
    if topics is None:
        return ""
    is_complete = all("records" in partition for topic in topics for partition in array_of(topic))
    return "no records" if is_complete else ""
