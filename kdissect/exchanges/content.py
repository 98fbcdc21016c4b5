"""An exchange -> its topics, partitions, groups, transactional IDs, errors and record counts.

The schema's roles say which fields are topics or errors; no message is handled by name except
FindCoordinator. The fields to visit are computed once per layout and cached: a few small tuples for each of
about 1,400 layouts. Partial bodies are accepted everywhere.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka.bodies import request_layout, response_layout
from kdissect.kafka.codes import error_name
from kdissect.kafka.compiler import collector
from kdissect.kafka.layout import layout as layout_of
from kdissect.kafka.layout import present
from kdissect.kafka.secrets import FETCH_SNAPSHOT, MESSAGE, SASL_AUTHENTICATE, quotes_secrets
from kdissect.phrases import ELLIPSIS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.kafka.bodies import BodyLayout
    from kdissect.kafka.compiler import Collector
    from kdissect.kafka.records import RecordData
    from kdissect.kafka.schema import Field
    from kdissect.model import Body, Exchange

TOPIC = "topic"
PARTITION = "partition"
ERROR = "error"
GROUP = "group"
TRANSACTION = "transaction"
RECORDS = "records"  # a type, not a role

MAX_MESSAGE = 160
"""Characters of a broker's message that are shown outside of its body."""

PRODUCE, FETCH, FIND_COORDINATOR = 0, 1, 10
_FETCHES = frozenset({FETCH, FETCH_SNAPSHOT})

# FindCoordinator has a second field for the type of its keys (KIP-98). Version 0 has none: its key is a
# group.
GROUP_KEY = 0
TRANSACTION_KEY = 1

# A resource is described by two fields, with other names in filters. Topics have type 2, in ACLs and in
# configs.
_RESOURCES = (("resource_type", "resource_name"), ("resource_type_filter", "resource_name_filter"))
_TOPIC_RESOURCE = 2


def topics(exchange: Exchange) -> list[str]:
    """The distinct topics in wire order, those of the request first: names, or IDs if the name is unknown."""
    return list(dict.fromkeys(topic for topic, _ in _topic_refs(exchange, partitions_too=False)))


def partitions(exchange: Exchange) -> list[tuple[str, int]]:
    """The distinct partitions in wire order, each with its topic as in ``topics``."""
    topic_refs = dict.fromkeys(_topic_refs(exchange, partitions_too=True))
    return [(topic, partition) for topic, partition in topic_refs if partition is not None]


def resource_topics(exchange: Exchange) -> list[str]:
    """The topics whose configs or ACLs the messages describe. For an ACL this can be a prefix or ``*``."""
    names: list[str] = []
    for layout, body in _messages(exchange):
        for path, kind, name in resource_paths(layout):
            structs = at(path, body)
            names += (each[name] for each in structs if each.get(kind) == _TOPIC_RESOURCE and each.get(name))
    return list(dict.fromkeys(names))


def errors(exchange: Exchange) -> list[str]:
    """The distinct error codes in the response by name, in wire order, without NONE."""
    if exchange.errors is not None:
        return exchange.errors
    codes = _collect(response_layout(exchange), ERROR, exchange.response)
    return [error_name(code) for code in dict.fromkeys(codes) if code] if any(codes) else []


def error_messages(exchange: Exchange) -> dict[str, str]:
    """What the broker says about the errors in the response: error name -> its first message, cut after
    ``MAX_MESSAGE`` characters. Nothing about SASL, and nothing that was redacted.
    """
    messages: dict[str, str] = {}
    if errors(exchange):
        layout, response = response_layout(exchange), exchange.response
        if layout is not None and response is not None and explains_errors(layout):
            _collect_messages(layout_of(*layout).fields, layout.version, response, 0, messages)
    return messages


@cache
def explains_errors(layout: BodyLayout) -> bool:
    """Whether a response has fields for messages about its errors. Those of SASL do not count."""
    return layout.message.api_key != SASL_AUTHENTICATE and bool(role_paths(layout, MESSAGE))


def message_plan(layout: BodyLayout) -> list[tuple[str, Any]] | None:
    """For the native core: the fields of a response that lead to messages about errors, each with ``error``,
    ``message``, or those in it. None: what the messages say may have to be redacted.
    """
    if not explains_errors(layout):
        return []
    if quotes_secrets(layout.message.api_key):
        return None
    return _message_steps(layout_of(*layout).fields, layout.version)


def _message_steps(fields: Sequence[Field], version: int) -> list[tuple[str, Any]]:
    steps: list[tuple[str, Any]] = []
    for field in present(fields, version):
        if field.role == ERROR and not field.array:
            steps.append((field.name, ERROR))
        elif field.role == MESSAGE:
            steps.append((field.name, MESSAGE))
        elif field.fields and (inner := _message_steps(field.fields, version)):
            steps.append((field.name, inner))
    return steps


def _collect_messages(
    fields: Sequence[Field], version: int, struct: Body, code: int, messages: dict[str, str]
) -> None:
    """Collect the messages in a struct. Each is about the last error code before it; the first may be about
    ``code``, which is around it.
    """
    for field in present(fields, version):
        value = struct.get(field.name)
        if field.role == ERROR and not field.array:
            code = value or 0
        elif not value:
            continue
        elif field.role == MESSAGE and code and isinstance(value, str):
            cut = value if len(value) <= MAX_MESSAGE else f"{value[: MAX_MESSAGE - 1]}{ELLIPSIS}"
            messages.setdefault(error_name(code), cut)
        elif field.fields:
            for each in value if field.array else (value,):
                _collect_messages(field.fields, version, each, code, messages)


def groups(exchange: Exchange) -> list[str]:
    """The groups named in the request, including those whose coordinator it looks up."""
    if exchange.api_key == FIND_COORDINATOR:
        return _coordinator_keys(exchange.request, GROUP_KEY)
    return [group for group in _collect(request_layout(exchange), GROUP, exchange.request) if group]


def group_id(exchange: Exchange) -> str | None:
    """The first of ``groups``."""
    return next(iter(groups(exchange)), None)


def transactional_ids(exchange: Exchange) -> list[str]:
    """The transactional IDs named in the request, including those whose coordinator it looks up."""
    if exchange.api_key == FIND_COORDINATOR:
        return _coordinator_keys(exchange.request, TRANSACTION_KEY)
    return [name for name in _collect(request_layout(exchange), TRANSACTION, exchange.request) if name]


def transactional_id(exchange: Exchange) -> str | None:
    """The first of ``transactional_ids``."""
    return next(iter(transactional_ids(exchange)), None)


def record_time_ns(exchange: Exchange) -> int:
    """Time of the records of an exchange: with the request of a Produce, with the response of any
    other.
    """
    frame = None if exchange.api_key == PRODUCE else exchange.response_frame
    return exchange.time_ns if frame is None else frame.end_ns


def replica_id(exchange: Exchange) -> int | None:
    """The broker that fetches to replicate, with Fetch or FetchSnapshot. None for consumers, which send -1.

    In a separate struct since version 15 of Fetch (KIP-903).
    """
    request = exchange.request
    return None if request is None or exchange.api_key not in _FETCHES else fetching_broker(request)


def fetching_broker(request: Body) -> int | None:
    """The same for the request of one of them."""
    broker_id: int = (request.get("replica_state") or request).get("replica_id", -1)
    return broker_id if broker_id >= 0 else None


def throttle_time_ms(exchange: Exchange) -> int | None:
    """How long a quota throttles the client."""
    return None if exchange.response is None else exchange.response.get("throttle_time_ms")


def records(exchange: Exchange) -> int | None:
    """The number of records in both messages.

    None if no decoded message can carry records, or if a compressed message set (magic 0 and 1) hides their
    number.
    """
    fields = _record_data(exchange)
    counts = [data.count() for data in fields or ()]
    return None if fields is None or None in counts else sum(filter(None, counts))


def records_bytes(exchange: Exchange) -> int | None:
    """The size of these records on the wire, including batch headers. None if no message can carry any."""
    fields = _record_data(exchange)
    return None if fields is None else sum(map(len, fields))


def _messages(exchange: Exchange) -> list[tuple[BodyLayout, Body]]:
    """The decoded messages, each with its layout."""
    messages: list[tuple[BodyLayout, Body]] = []
    if (layout := request_layout(exchange)) is not None and exchange.request is not None:
        messages.append((layout, exchange.request))
    if (layout := response_layout(exchange)) is not None and exchange.response is not None:
        messages.append((layout, exchange.response))
    return messages


def _collect(layout: BodyLayout | None, role: str, body: Body | None) -> list[Any]:
    if layout is None or body is None:
        return []
    collect = _collector(layout, role)
    return [] if collect is None else collect(body)


@cache
def _collector(layout: BodyLayout, role: str) -> Collector | None:
    return collector(layout.message, layout.version, role, layout.draft)


def _coordinator_keys(request: Body | None, key_type: int) -> list[str]:
    if request is None or request.get("key_type", GROUP_KEY) != key_type:
        return []
    return [key for key in (request.get("key"), *(request.get("coordinator_keys") or ())) if key]


# A partition belongs to the topic of its struct, so collecting the values of one role is not enough.


Path = tuple[tuple[str, bool], ...]
"""The path to a field: names from the outside in, each with whether it is an array."""


class _TopicPlan(NamedTuple):
    """Which fields of a struct name topics and partitions, and which contain structs that do.

    Attributes:
        name, topic_id: of the struct's topic. It can have both.
        topics: arrays of names or IDs.
        partition, partitions: a partition number, and arrays of them.
        inner: (name, is an array, plan) of fields that are structs.
    """

    name: str | None
    topic_id: str | None
    topics: tuple[str, ...]
    partition: str | None
    partitions: tuple[str, ...]
    inner: tuple[tuple[str, bool, _TopicPlan], ...]


TopicRef = tuple[str, int | None]
"""A topic, and one of its partitions or None."""


def _topic_refs(exchange: Exchange, *, partitions_too: bool) -> list[TopicRef]:
    """Every reference to a topic, with partition None, each followed by those to its partitions."""
    refs: list[TopicRef] = []
    for layout, body in _messages(exchange):
        plan = topic_plan(layout, partitions_too)
        if plan is not None:
            _collect_refs(plan, body, exchange.topic_ids, None, refs)
    return refs


def _collect_refs(
    plan: _TopicPlan, struct: Body, names: Mapping[str, str], topic: str | None, refs: list[TopicRef]
) -> None:
    """Collect the references in a struct and those inside it. Generators would take 50% longer."""
    if own_topic := _topic_of(plan, struct, names):
        topic = own_topic
        refs.append((topic, None))
    for key in plan.topics:
        refs += ((names.get(each, each), None) for each in struct.get(key) or () if each)
    if topic is not None:
        if plan.partition is not None and plan.partition in struct:
            refs.append((topic, struct[plan.partition]))
        for key in plan.partitions:
            refs += ((topic, number) for number in struct.get(key) or ())
    for key, array, inner in plan.inner:
        value = struct.get(key)
        if value is not None:
            for deeper in value if array else (value,):
                _collect_refs(inner, deeper, names, topic, refs)


def _topic_of(plan: _TopicPlan, struct: Body, names: Mapping[str, str]) -> str | None:
    name = struct.get(plan.name) if plan.name else None
    if name or plan.topic_id is None:
        return name
    topic_id = struct.get(plan.topic_id)
    return None if topic_id is None else names.get(topic_id, topic_id)


@cache
def topic_plan(layout: BodyLayout, partitions_too: bool) -> _TopicPlan | None:
    """Where topics are in a body; None if there are none."""
    roles = (TOPIC, PARTITION) if partitions_too else (TOPIC,)
    return _plan(layout_of(*layout).fields, layout.version, roles)


def _plan(fields: Sequence[Field], version: int, roles: Sequence[str]) -> _TopicPlan | None:
    """The plan of a struct. None if neither it nor any struct inside it has one of the roles."""
    fields_present = present(fields, version)
    with_role = [field for field in fields_present if field.role in roles]
    single = {(field.role, field.type): field.name for field in with_role if not field.array}
    inner = [(field.name, field.array, _plan(field.fields, version, roles)) for field in fields_present]
    plan = _TopicPlan(
        name=single.get((TOPIC, "string")),
        topic_id=single.get((TOPIC, "uuid")),
        topics=tuple(field.name for field in with_role if field.array and field.role == TOPIC),
        partition=single.get((PARTITION, "int32")),
        partitions=tuple(field.name for field in with_role if field.array and field.role == PARTITION),
        inner=tuple((name, array, deeper) for name, array, deeper in inner if deeper is not None),
    )
    return plan if any(plan) else None


# Record data is recognized by its type. Three APIs carry it, each in one field.


def _record_data(exchange: Exchange) -> list[RecordData] | None:
    """All record data, without nulls. None if no decoded message has a field for it."""
    data: list[RecordData] | None = None
    for layout, body in _messages(exchange):
        for path in record_paths(layout):
            data = (data or []) + at(path, body)
    return data


def at(path: Path, body: Body) -> list[Any]:
    """The values at the end of a path, without nulls."""
    values: list[Any] = [body]
    for name, array in path:
        if array:
            values = [value for struct in values for value in struct.get(name) or ()]
        else:
            values = [value for struct in values if (value := struct.get(name)) is not None]
    return values


@cache
def record_paths(layout: BodyLayout) -> list[Path]:
    """The paths of record data."""
    return [path for path, field in paths(layout) if field.type == RECORDS]


def role_paths(layout: BodyLayout, role: str) -> list[Path]:
    """The paths of fields with a role."""
    return [path for path, field in paths(layout) if field.role == role]


@cache
def resource_paths(layout: BodyLayout) -> list[tuple[Path, str, str]]:
    """Each struct that describes a resource: its path, and the names of its type and name fields."""
    names = {path: field.name for path, field in paths(layout)}
    return [
        (path[:-1], kind, name)
        for path, field_name in names.items()
        for kind, name in _RESOURCES
        if field_name == kind and (*path[:-1], (name, False)) in names
    ]


def paths(layout: BodyLayout) -> Iterator[tuple[Path, Field]]:
    """Each field of a layout with its path."""
    return _paths(layout_of(*layout).fields, layout.version)


def _paths(fields: Sequence[Field], version: int, outer: Path = ()) -> Iterator[tuple[Path, Field]]:
    for field in present(fields, version):
        path = (*outer, (field.name, field.array))
        yield path, field
        yield from _paths(field.fields, version, path)
