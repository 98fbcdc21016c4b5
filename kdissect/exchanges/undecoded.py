"""API and version -> what the native core must know to describe exchanges that are not decoded. Caches it.

The core has no Python objects of such bodies, so nothing else may need them: they must not contain
credentials or other messages, except those of consumers in JoinGroup and SyncGroup, and those in Envelope if
they are not shown.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kdissect import core
from kdissect.exchanges import content
from kdissect.exchanges.latency import FETCHES, is_recent
from kdissect.exchanges.topic_names import may_have_topic_ids, naming_structs, topic_structs
from kdissect.kafka import apis, schema
from kdissect.kafka.bodies import ENVELOPE, BodyLayout
from kdissect.kafka.compiler import core_struct, has_rare_types
from kdissect.kafka.headers import RequestHeader, response_header_version
from kdissect.kafka.internal.payloads import (
    JOIN_GROUP,
    PAYLOAD_MESSAGES,
    SYNC_GROUP,
    USER_DATA,
    carries_payloads,
)
from kdissect.kafka.layout import layout
from kdissect.kafka.secrets import carries_secrets
from kdissect.model import ANSWERED, UNACKNOWLEDGED, Exchange, Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.compiler import CoreStruct
    from kdissect.kafka.schema import Field, Message
    from kdissect.model import ConnectionInfo, Interface

    Naming = list[tuple[list[str], str, str]]
    TopicStructs = list[tuple[list[str], str, str | None]]
    FirstNames = tuple[list[list[str]], tuple[str, int, int] | None]
    CoreBodies = tuple[
        CoreStruct,
        CoreStruct,
        Naming,
        Naming,
        list[tuple[str, list[tuple[int, CoreStruct]]]],
        tuple[bool, bool],
    ]


class Undecoded(NamedTuple):
    """What the core must know.

    Attributes:
        request, response: the messages.
        core: the form for its classes: layouts, with names of fields and whether they are error codes; and
            the structs that name topic IDs; the layouts of messages in them; whether there are any; and
            whether bytes may follow a body, as there is no other layout that might fit.
        follows: whether it must know the protocols of groups.
        has_configs: whether there are values of configs, which can be credentials.
        tags: the bytes expected after the correlation ID of a response.
    """

    request: Message
    response: Message
    core: CoreBodies
    follows: bool
    has_configs: bool
    tags: bytes


@cache
def undecoded(api_key: int, version: int, *, shows_values: bool = True) -> Undecoded | None:
    """What the core must know of an API in one version. None: there is no core, or such exchanges are left to
    Python. ``shows_values``: whether forwarded messages would be shown.
    """
    request, response = schema.request(api_key), schema.response(api_key)
    if not core.is_used or request is None or response is None:
        return None
    if version not in request.versions or version not in response.versions:
        return None
    both = request, response
    follows = api_key in (JOIN_GROUP, SYNC_GROUP)
    forwards = api_key == ENVELOPE and not shows_values
    if not forwards:
        if any(carries_secrets(message, ignore_configs=True) for message in both):
            return None
        if any(map(carries_payloads, both)) and not follows:
            return None
    layouts = layout(request, version), layout(response, version)
    if any(map(has_rare_types, layouts)):
        return None
    has_drafts = any(version in draft.versions for message in both for draft in message.drafts)
    forms = (
        core_struct(layouts[0], _request_label),
        core_struct(layouts[1], _response_label),
        naming_structs(request, version),
        naming_structs(response, version),
        [_versions(schema.embedded(name)) for name in PAYLOAD_MESSAGES.values()] if follows else [],
        (follows or forwards, not has_drafts),
    )
    tags = b"\0" if response_header_version(api_key, version) else b""
    return Undecoded(request, response, forms, follows, any(map(carries_secrets, both)), tags)


WholeExchange: TypeAlias = (
    "tuple[tuple[ConnectionInfo, int], tuple[int, int, int, str | None, int], Sequence[str | None],"
    "tuple[tuple[bytes, int, int, Interface, int, int], tuple[bytes, int, int, Interface, int, int] | None]]"
)
"""Connection and number, request header, software name and version, principal and SASL mechanism of the
client, and both frames, or None for the response."""


def whole_exchange(whole: WholeExchange) -> Exchange:
    """An exchange of the core that is not decoded. Without a response, it expects none."""
    place, header, identity, frames = whole
    request, response = Frame(*frames[0]), None if frames[1] is None else Frame(*frames[1])
    api_key, version, correlation_id, client_id, _ = header
    api = apis.by_key(api_key)
    assert api is not None
    kind = UNACKNOWLEDGED if response is None else ANSWERED
    exchange = Exchange(*place, kind, request, response, api_key, version, correlation_id, client_id)
    exchange.api, exchange.completed_ns = api.name, (response or request).end_ns
    exchange.client_software_name, exchange.client_software_version = identity[:2]
    exchange.principal, exchange.sasl_mechanism = identity[2:]
    exchange.request_header = RequestHeader(*header)
    exchange.cluster_id = place[0].cluster_id
    return exchange


class TopicIdPlan(NamedTuple):
    """Where topic IDs are in both messages of an API in one version.

    Attributes:
        bodies: see ``Undecoded.core``. None: Python decodes them.
        structs: see ``topic_structs``.
        tags: see ``Undecoded``.
    """

    bodies: CoreBodies | None
    structs: tuple[TopicStructs, TopicStructs]
    tags: bytes


def topic_id_plan(api_key: int, version: int) -> TopicIdPlan | None:
    """None: there are none."""
    if not may_have_topic_ids(api_key, version):
        return None
    known = undecoded(api_key, version, shows_values=False)
    if known is None:
        return TopicIdPlan(None, ([], []), b"")
    structs = topic_structs(known.request, version), topic_structs(known.response, version)
    return TopicIdPlan(known.core, structs, known.tags)


FieldPath: TypeAlias = "tuple[bool, tuple[str, ...]]"
"""Whether a field is in the request, and the names of the fields from the outermost in."""


class MentionsPlan(NamedTuple):
    """Where both messages of an API in one version have what conditions need.

    Attributes:
        bodies: see ``Undecoded.core``.
        topics: see ``content.topic_plan``.
        groups: see ``first_names``; only in requests.
        fields: those whose values conditions need; None: it has none.
        pace: whether it is a Fetch of any kind, and ``is_recent``. None: its latency is not split.
        structs: with topic IDs, see ``topic_structs``.
        tags: see ``Undecoded``.
    """

    bodies: CoreBodies
    topics: tuple[Any, Any]
    groups: FirstNames
    fields: list[FieldPath | None]
    pace: tuple[bool, bool] | None
    structs: tuple[TopicStructs, TopicStructs]
    tags: bytes


@cache
def mentions_plan(
    kinds: frozenset[str], fields: tuple[FieldPath, ...], splits: bool, api_key: int, version: int
) -> MentionsPlan | None:
    """Where bodies mention these ``kinds`` of names: ``topic`` (also by its ID), ``topics`` as shown,
    ``partition``, ``group`` and ``group_id``; and where they have these ``fields``. None: that is left to
    Python. ``splits``: whether the latency is split.
    """
    known = undecoded(api_key, version, shows_values=False)
    if known is None:
        return None
    paths = [each if _has_field(known, each) else None for each in fields]
    if any(paths) and (undecoded(api_key, version) is None or known.has_configs):
        return None  # a condition must not reveal a credential either
    both = BodyLayout(known.request, version), BodyLayout(known.response, version)
    topics: tuple[Any, Any] = (None, None)
    groups: FirstNames = ([], None)
    structs: tuple[TopicStructs, TopicStructs] = ([], [])
    if not kinds.isdisjoint(("topic", "topics", "partition")):
        if any(map(content.resource_paths, both)):
            return None
        request, response = (content.topic_plan(each, "partition" in kinds) for each in both)
        topics = request, response
        structs = topic_structs(known.request, version), topic_structs(known.response, version)
    if not kinds.isdisjoint(("group", "group_id")):
        groups = first_names(both[0], api_key, content.GROUP, content.GROUP_KEY)
    pace = (api_key in FETCHES, is_recent(api_key, version)) if splits else None
    return MentionsPlan(known.core, topics, groups, paths, pace, structs, known.tags)


def _has_field(known: Undecoded, path: FieldPath) -> bool:
    """Whether any version has the outermost field."""
    of_request, (name, *_) = path
    message = known.request if of_request else known.response
    layouts = message.fields, *(draft.fields for draft in message.drafts)
    return any(field.name == name for fields in layouts for field in fields)


def first_names(layout: BodyLayout, api_key: int, role: str, key_type: int) -> FirstNames:
    """The paths of names of a role in a request, and on which other field they depend: name, value if it is
    absent, value wanted.
    """
    if api_key == content.FIND_COORDINATOR:
        return [["key"], ["coordinator_keys"]], ("key_type", content.GROUP_KEY, key_type)
    return [[name for name, _ in path] for path in content.role_paths(layout, role)], None


def _request_label(field: Field) -> tuple[str, bool, int | None]:
    """What stands for a field: its name, whether it is an error code, and which message is in it."""
    roles = list(PAYLOAD_MESSAGES)
    return field.name, False, roles.index(field.role) if field.role in roles else None


def _response_label(field: Field) -> tuple[str, bool, int | None]:
    name, _, payload = _request_label(field)
    return name, field.role == "error", payload


def _versions(message: Message) -> tuple[str, list[tuple[int, CoreStruct]]]:
    versions = range(message.versions.first, message.versions.last + 1)
    return message.name, [(version, _payload(message, version)) for version in versions]


def _payload(message: Message, version: int) -> CoreStruct:
    return core_struct(layout(message, version), _request_label)


@cache
def user_data() -> list[tuple[str, tuple[str, int, CoreStruct] | None]]:
    """The names of protocols whose assignors have data that can be decoded; the message that is tried
    first, its version and its form for the core. None: it is left to Python.
    """
    return [
        (protocol, first and (*first, _payload(schema.embedded(first[0]), first[1])))
        for protocol, first in USER_DATA.items()
    ]
