"""Bytes of an embedded message -> its body, by what stands in front of it. Holds nothing.

======  ========================================================================================
v16     int16 version, body
type16  int16 record type, body in version 0: keys of the coordinators' topics
frame   uvarint frame version, uvarint record type, uvarint version, body (KIP-631)
self    the body, whose first field is the version: int16 or int32
none    the body: who reads it has to know, or to try
======  ========================================================================================

A body that was read begins with two keys of ours: ``_message``, its name in the schema, and ``_version``,
as the prefix says. Layouts of pre-releases are tried where the final one does not end with the bytes; then
``_draft`` tells whose it is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import DecodeError, SchemaError
from kdissect.kafka import primitives, schema
from kdissect.kafka.compiler import decoder
from kdissect.kafka.primitives import DecodeBudget

if TYPE_CHECKING:
    from kdissect.kafka.schema import Draft, Message
    from kdissect.model import Body

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_FRAME_VERSIONS = (0, 1)  # 0 only in 2.8


class Opened(NamedTuple):
    """What bytes say.

    Attributes:
        message: that they are, with the fields of the layout that fitted.
        body: decoded, behind ``_message`` and ``_version``.
    """

    message: Message
    body: Body


def read(
    message: Message,
    version: int,
    data: bytes,
    pos: int = 0,
    *,
    told: int | None = None,
    exact: bool = False,
    budget: DecodeBudget | None = None,
) -> Opened | None:
    """Read a body, None where no layout of the version fits.

    Args:
        message: that it should be.
        version: of the layout.
        data: prefix and body.
        pos: where the body begins.
        told: the version that the prefix has, where the layout is an older one.
        exact: refuse bytes behind the body; else they become ``_left_over``.
        budget: what the body may take in memory; None: as much as the messages of an exchange.
    """
    budget = budget or DecodeBudget()
    if version not in message.versions:
        return None
    rest: tuple[Body, int] | None = None
    for draft in (None, *(draft for draft in message.drafts if version in draft.versions)):
        try:
            body, end = decoder(message, version, draft)(data, pos, budget)
        except DecodeError:
            continue
        if end == len(data):
            return _opened(message, version if told is None else told, draft, body)
        if draft is None:
            rest = body, end
    if rest is None or exact:
        return None
    body, end = rest
    body["_left_over"] = data[end:]
    return _opened(message, version if told is None else told, None, body)


def read_versioned(
    message: Message,
    data: bytes,
    *,
    newest: bool = False,
    exact: bool = False,
    budget: DecodeBudget | None = None,
) -> Opened | None:
    """Read v16; ``newest``: versions above the newest one that is known have its fields too, and more behind
    them.
    """
    if len(data) < _INT16.size:
        return None
    told: int = _INT16.unpack_from(data)[0]
    version = min(told, message.versions.last) if newest else told
    return read(message, version, data, _INT16.size, told=told, exact=exact, budget=budget)


def read_self_versioned(message: Message, data: bytes, budget: DecodeBudget | None = None) -> Opened | None:
    """Read a body that begins with its version."""
    prefix = _INT32 if message.fields[0].type == "int32" else _INT16
    if len(data) < prefix.size:
        return None
    return read(message, prefix.unpack_from(data)[0], data, budget=budget)


def read_key(family: str, data: bytes) -> Opened | None:
    """Read type16."""
    message = key_message(family, record_type(data))
    return None if message is None else read(message, 0, data, _INT16.size)


def record_type(key: bytes) -> int:
    """What a coordinator's key says that the record is; -1 where it is too short to say so."""
    return int(_INT16.unpack_from(key)[0]) if len(key) >= _INT16.size else -1


def read_frame(family: str, data: bytes) -> Opened | None:
    """Read frame, to its last byte."""
    try:
        frame_version, pos = _uvarint(data, 0)
        kind, pos = _uvarint(data, pos)
        version, pos = _uvarint(data, pos)
    except (IndexError, DecodeError):
        return None
    message = _by_type(family, "").get(kind)
    if message is None or frame_version not in _FRAME_VERSIONS:
        return None
    return read(message, version, data, pos, exact=True)


def key_message(family: str, kind: int) -> Message | None:
    """The layout of a coordinator's keys of a record type."""
    return _by_type(family, "Key").get(kind)


def value_message(family: str, kind: int) -> Message | None:
    """The layout of a coordinator's values of a record type."""
    return _by_type(family, "Value").get(kind)


def layout_of(body: Body) -> tuple[Message, int] | None:
    """The layout that a body read here says it is in, with its newest version where the prefix told a newer
    one; None for other bodies.
    """
    try:
        message = schema.embedded(body.get("_message", ""))
    except SchemaError:
        return None
    version = min(body["_version"], message.versions.last)
    drafts = (draft for draft in message.drafts if draft.releases == body.get("_draft"))
    return next((_as_drafted(message, draft) for draft in drafts), message), version


@cache
def _by_type(family: str, ending: str) -> dict[int, Message]:
    messages = (message for message in schema.family(family) if message.name.endswith(ending))
    return {message.api_key: message for message in messages if message.api_key is not None}


def _uvarint(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 0x80 else primitives.uvarint(data, pos + 1, first)


def _opened(message: Message, version: int, draft: Draft | None, body: Body) -> Opened:
    own: Body = {"_message": message.name, "_version": version}
    if draft is not None:
        own["_draft"] = draft.releases
        message = _as_drafted(message, draft)
    return Opened(message, own | body)


@cache
def _as_drafted(message: Message, draft: Draft) -> Message:
    """The message with a draft's fields: roles, such as those of credentials, are looked up there."""
    return replace(message, fields=draft.fields)
