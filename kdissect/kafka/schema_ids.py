"""Key or value of a record -> which schema of a registry it is written in, where its serializer says so.

Confluent's serializers put a zero byte and the schema's id in front of what they write, or since 2025 a
header beside it: a one and the schema's GUID. A header tells for certain. Nothing marks the bytes in front as
theirs, so they are taken for an id when

* a zero byte, a number from 1 to 16,777,215 (registries count up from 1, Confluent's own from 100,001), and
  at least one byte of data stand there,
* and there are not 8 bytes in all, which is what an int64 and a double have: of ours an int64 in milliseconds
  or microseconds since 1970 would seem to have an id. Of an Avro record of 3 bytes the id is not told.

Other binary formats of one's own that begin with a zero byte can still be mistaken. Holds nothing.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from uuid import UUID

KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"

_ID = Struct(">bi")
_BY_ID, _BY_GUID = 0, 1
_GUID_BYTES = 16
_LARGEST_ID = 0xFFFFFF
_NUMBER_BYTES = 8


class SchemaId(NamedTuple):
    """A schema in a registry.

    Attributes:
        id: its number there; None where the GUID is told instead.
        guid: in lower-case hex with dashes.
        payload_pos: where in key or value the data begins (of Protobuf: the path to the message type).
    """

    id: int | None
    guid: str | None
    payload_pos: int

    def __str__(self) -> str:
        return str(self.guid or self.id)


def schema_id(data: bytes | None, header: bytes | None = None) -> SchemaId | None:
    """The schema that a key or value is written in, None where neither says so.

    Args:
        data: the key or value.
        header: value of the record's ``__key_schema_id`` or ``__value_schema_id``, which goes first.
    """
    if header is not None and (told := _in_header(header)) is not None:
        return told
    if data is None:
        return None
    if len(data) in (_ID.size, _NUMBER_BYTES):
        return None
    number = _number(data)
    return None if number is None else SchemaId(number, None, _ID.size)


def _in_header(header: bytes) -> SchemaId | None:
    # A GUID in front of a value is not looked for: no serializer puts it there, and any bytes would do.
    if len(header) > _GUID_BYTES and header[0] == _BY_GUID:
        return SchemaId(None, str(UUID(bytes=header[1 : 1 + _GUID_BYTES])), 0)
    number = _number(header)
    return None if number is None else SchemaId(number, None, 0)


def _number(data: bytes) -> int | None:
    if len(data) < _ID.size:
        return None
    magic, number = _ID.unpack_from(data)
    return number if magic == _BY_ID and 0 < number <= _LARGEST_ID else None
