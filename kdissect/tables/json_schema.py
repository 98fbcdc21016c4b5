"""A dataclass -> the JSON Schema (draft 2020-12) of what ``values.json_document`` writes of it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema(document: type) -> dict[str, Any]:
    """The schema of a document, each dataclass inside it once under ``$defs``."""
    definitions: dict[str, Any] = {}
    return {
        "$schema": DIALECT,
        "title": document.__name__,
        **_object(document, definitions),
        "$defs": definitions,
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    told = {each.name: each.metadata.get("sentence", "") for each in fields(kind)}
    return {
        "description": " ".join((kind.__doc__ or "").split()),
        "type": "object",
        "properties": {
            name: {**_type(hints[name], definitions), "description": sentence}
            for name, sentence in told.items()
        },
        "required": list(told),
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if hint is datetime:
        return {"type": "string", "format": "date-time"}
    if isinstance(hint, type) and is_dataclass(hint):
        name = hint.__name__
        if name not in definitions:
            definitions[name] = {}  # its place, should it contain itself
            definitions[name] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return {"anyOf": [_type(part, definitions) for part in parts]}
    if origin is list:
        return {"type": "array", "items": _type(parts[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(parts[1], definitions)}
    raise TypeError(f"{hint} has no form in JSON")
