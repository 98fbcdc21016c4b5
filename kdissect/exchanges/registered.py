"""Records -> the same records, with keys and values decoded by their registered schemas. Caches the decoders
of at most ``limits.schemas`` schemas.

In front of the data, or in a header beside it, is the schema's ID (kafka/traces.py). For Protobuf, whose
schemas can have several message types, the path to one follows: zigzag varints, first how many, then the
index of the type on each level. A single 0 is the first type.

What is decoded becomes JSON: a struct as ``Embedded``, anything else as its text. A key or value that cannot
be decoded stays as it is, and is counted with the reason.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kdissect.exchanges.partition_records import CarriedRecord
from kdissect.kafka.traces import KEY_HEADER, VALUE_HEADER, SchemaId
from kdissect.limits import DEFAULT
from kdissect.model import Embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.kafka.internal.topics import Payload
    from kdissect.limits import Limits

MAX_DEPTH = 100
"""Levels of nesting; orjson writes up to 254."""
_MAX_PATH = 64
_FIRST: Sequence[int] = (0,)


class Decoder(NamedTuple):
    """Decodes data.

    Attributes:
        decode: of the message type at a path; takes data and path.
        has_path: whether the data has such a path; otherwise it is ``_FIRST``.
    """

    decode: Callable[[bytes, Sequence[int]], Any]
    has_path: bool = False


class SchemaFault(Exception):
    """A schema is missing or unusable, or data does not match it. The message is for the user."""


class RegisteredPayload(Embedded):
    """A key or value that was decoded by a registered schema."""

    __slots__ = ()


class RegisteredRecord(CarriedRecord):
    """A record whose key or value was decoded; the schemas are those of its bytes."""

    __slots__ = ()

    @property
    def schema(self) -> SchemaId | None:
        """The registered schema of its value, if any."""
        return self._schema(self.record.value, VALUE_HEADER)

    @property
    def key_schema(self) -> SchemaId | None:
        """The registered schema of its key, if any."""
        return self._schema(self.record.key, KEY_HEADER)


class RegisteredSchemas:
    """Decodes keys and values.

    Args:
        find: returns the decoder of a schema; raises ``SchemaFault`` if there is none.
        limits: how many decoders and reasons are kept.

    Attributes:
        undecoded: keys and values that were not decoded, by reason.
    """

    def __init__(self, find: Callable[[SchemaId], Decoder], limits: Limits = DEFAULT) -> None:
        self.undecoded: Counter[str] = Counter()
        self._find = find
        self._limits = limits
        self._decoders: dict[str, Decoder | SchemaFault] = {}

    def decoded(self, record: CarriedRecord) -> CarriedRecord:
        """The record with key and value decoded as far as possible."""
        key = self._decoded(record.key, record.key_schema)
        value = self._decoded(record.value, record.schema)
        if key is record.key and value is record.value:
            return record
        return RegisteredRecord._make(record)._replace(key=key, value=value)

    def _decoded(self, payload: Payload, schema: SchemaId | None) -> Payload:
        if schema is None or not isinstance(payload, bytes):
            return payload
        try:
            return self._json(payload, self._decoder(schema), schema)
        except SchemaFault as fault:
            reason = f"schema {schema}: {fault}"
        except Exception as error:  # noqa: BLE001  (libraries raise anything for data that does not match)
            reason = f"schema {schema}: data does not match ({type(error).__name__})"
        if reason in self.undecoded or len(self.undecoded) < self._limits.notices:
            self.undecoded[reason] += 1
        return payload

    def _decoder(self, schema: SchemaId) -> Decoder:
        name = str(schema)
        if name not in self._decoders:
            if len(self._decoders) >= self._limits.schemas:
                raise SchemaFault("too many schemas (--limits schemas)")
            try:
                self._decoders[name] = self._find(schema)
            except SchemaFault as fault:
                self._decoders[name] = fault
        decoder = self._decoders[name]
        if isinstance(decoder, SchemaFault):
            raise decoder
        return decoder

    def _json(self, payload: bytes, decoder: Decoder, schema: SchemaId) -> Payload:
        data, path = payload[schema.payload_pos :], _FIRST
        if decoder.has_path and schema.payload_pos:
            path, data = message_path(data)
        elif decoder.has_path:
            path, _ = message_path(schema.rest)
        value = plain(decoder.decode(data, path))
        if isinstance(value, dict):
            return RegisteredPayload(payload, value)
        if isinstance(value, bytes):
            return value
        return value.encode() if isinstance(value, str) else orjson.dumps(value, default=_base64)


def message_path(data: bytes) -> tuple[Sequence[int], bytes]:
    """The path to a Protobuf message type, and what follows it. Without any data: the first type.

    Raises:
        SchemaFault: there is no valid path.
    """
    count, pos = _varint(data, 0) if data else (0, 0)
    if count == 0:
        return _FIRST, data[pos:]
    if not 0 < count <= _MAX_PATH:
        raise SchemaFault("invalid path of a Protobuf message")
    path = []
    for _ in range(count):
        index, pos = _varint(data, pos)
        path.append(index)
    return path, data[pos:]


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    number = shift = 0
    while pos < len(data) and shift < 35:
        byte = data[pos]
        pos += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), pos
        shift += 7
    raise SchemaFault("invalid path of a Protobuf message")


def plain(value: Any, depth: int = 0) -> Any:
    """A decoded value with the types of JSON, and bytes.

    Raises:
        SchemaFault: it is nested too deeply.
    """
    if depth > MAX_DEPTH:
        raise SchemaFault(f"more than {MAX_DEPTH} levels of nesting")
    if isinstance(value, dict):
        return {str(name): plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, depth + 1) for inner in value]
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)  # times; decimals and UUIDs


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": b64encode(data).decode()}
