"""A few fields of a message -> a complete body: what tests and samples need not write by hand.

Kafka's own defaults are not in the schema, a dissector has no use for them; natural are 0, "", [] and, where
it is legal, null. Absent tagged fields stay absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.errors import EncodeError
from kdissect.kafka.codes import ZERO
from kdissect.kafka.layout import is_nullable, layout, split
from kdissect.kafka.primitives import FIXED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.model import Body

_NATURAL = {
    **dict.fromkeys(FIXED, 0),
    "bool": False,
    "float64": 0.0,
    "uuid": ZERO,
    "bytes": b"",
    "records": None,
}


def fill(message: Message, version: int, partial: Mapping[str, Any], draft: Draft | None = None) -> Body:
    """The body that ``partial`` begins, ready for the encoder.

    Raises:
        EncodeError: ``partial`` has a field that the version does not have.
        Unsupported: there is no such version.
    """
    shape = layout(message, version, draft)
    return _struct(shape, shape.fields, partial, "")


def _struct(shape: Layout, fields: Sequence[Field], partial: Mapping[str, Any], prefix: str) -> Body:
    positional, tagged = split(fields, shape.version)
    known = {field.name for field in (*positional, *tagged)} | {"_tags"}
    for name in partial:
        if name not in known:
            raise EncodeError(f"{shape}: {prefix}{name} is no field; there are {', '.join(sorted(known))}")
    body = {field.name: _value(shape, field, partial, prefix) for field in positional}
    body |= {field.name: _value(shape, field, partial, prefix) for field in tagged if field.name in partial}
    if "_tags" in partial:
        body["_tags"] = partial["_tags"]
    return body


def _value(shape: Layout, field: Field, partial: Mapping[str, Any], prefix: str) -> Any:
    path = f"{prefix}{field.name}."
    if field.name in partial:
        value = partial[field.name]
        if field.type != "struct" or value is None:
            return value
        if field.array:
            return [_struct(shape, field.fields, element, path) for element in value]
        return _struct(shape, field.fields, value, path)
    if is_nullable(field, shape.version):
        return None
    if field.array:
        return []
    if field.type == "struct":
        return _struct(shape, field.fields, {}, path)
    return _NATURAL.get(field.type, "")
