"""API and version -> what the native core must know to describe exchanges that are not decoded. Caches it.

The core has no Python objects of such bodies, so nothing else may need them: they must not contain
credentials or other messages. Nor has it the requests from which a client is identified.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kdissect import native
from kdissect.exchanges.topic_names import naming_structs
from kdissect.kafka import schema
from kdissect.kafka.bodies import ENVELOPE
from kdissect.kafka.compiler import core_struct, has_rare_types
from kdissect.kafka.headers import response_header_version
from kdissect.kafka.internal.payloads import carries_payloads
from kdissect.kafka.layout import layout
from kdissect.kafka.secrets import carries_secrets

if TYPE_CHECKING:
    from kdissect.kafka.compiler import CoreStruct
    from kdissect.kafka.schema import Message

    Naming = list[tuple[list[str], str, str]]


class Undecoded(NamedTuple):
    """What the core must know.

    Attributes:
        request, response: the messages.
        core: the form for its classes: layouts, with names of fields and whether they are error codes; and
            the structs that name topic IDs.
        tags: the bytes expected after the correlation ID of a response.
    """

    request: Message
    response: Message
    core: tuple[CoreStruct, CoreStruct, Naming, Naming]
    tags: bytes


@cache
def undecoded(api_key: int, version: int) -> Undecoded | None:
    """What the core must know of an API in one version. None: there is no core, or such exchanges are left to
    Python.
    """
    request, response = schema.request(api_key), schema.response(api_key)
    if native.core is None or request is None or response is None or api_key == ENVELOPE:
        return None
    if version not in request.versions or version not in response.versions:
        return None
    if any(carries_secrets(message) or carries_payloads(message) for message in (request, response)):
        return None
    layouts = layout(request, version), layout(response, version)
    if any(map(has_rare_types, layouts)):
        return None
    core = (
        core_struct(layouts[0], lambda field: (field.name, False)),
        core_struct(layouts[1], lambda field: (field.name, field.role == "error")),
        naming_structs(request, version),
        naming_structs(response, version),
    )
    return Undecoded(request, response, core, b"\0" if response_header_version(api_key, version) else b"")
