"""The headers of a record -> the trace that it belongs to, with the parts that each format names.

Supported are W3C Trace Context (``traceparent``, ``tracestate``), B3 in one header and in several (Zipkin),
and ``sw8`` of SkyWalking's cross process protocol 3. A header that violates its format is ignored. Caches the
last 64 traces, because several columns need the same one.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Body


_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED = 0x01
_RANDOM = 0x02  # Trace Context level 2
_MAX_MEMBERS = 32
_MEMBER = re.compile(r"\s*([a-z0-9][a-z0-9_\-*/@]{0,255})=([ -+\--<>-~]{0,255}[!-+\--<>-~])\s*", re.ASCII)

_B3 = re.compile(
    r"([0-9a-f]{32}|[0-9a-f]{16})-([0-9a-f]{16})(?:-([01d])(?:-([0-9a-f]{16}))?)?", re.ASCII | re.IGNORECASE
)
_B3_STATES = {"0": "denied", "1": "accepted", "d": "debug"}
_B3_HEADERS = {
    "x-b3-traceid": ("trace_id", re.compile(r"[0-9a-f]{32}|[0-9a-f]{16}", re.IGNORECASE)),
    "x-b3-spanid": ("span_id", re.compile(r"[0-9a-f]{16}", re.IGNORECASE)),
    "x-b3-parentspanid": ("parent_span_id", re.compile(r"[0-9a-f]{16}", re.IGNORECASE)),
}
_B3_SAMPLED = {"0": "denied", "false": "denied", "1": "accepted", "true": "accepted"}

_SW8 = ("sample", "trace_id", "parent_segment_id", "parent_span_id",
        "parent_service", "parent_service_instance", "parent_endpoint", "target_address")  # fmt: skip
_SW8_NUMBERS = ("sample", "parent_span_id")

_NAMES = frozenset({"traceparent", "tracestate", "b3", "sw8", "x-b3-flags", "x-b3-sampled", *_B3_HEADERS})


class Trace(NamedTuple):
    """The trace that a record belongs to, in terms common to all formats.

    Attributes:
        format: ``w3c``, ``b3`` or ``sw8``.
        id: of the trace.
        span_id: of the span that wrote the record. For sw8, the segment and the number of the span in it.
    """

    format: str
    id: str
    span_id: str | None


def trace_of(headers: tuple[tuple[str, bytes | None], ...]) -> Trace | None:
    """The trace named in a record's headers: ``traceparent``, otherwise B3, otherwise sw8. None if there is
    none.
    """
    return _trace_of(headers) if headers else None


@lru_cache(4)  # headers can have megabytes
def _trace_of(headers: tuple[tuple[str, bytes | None], ...]) -> Trace | None:
    if _NAMES.isdisjoint(name.lower() for name, _ in headers):
        return None
    parsed = traces(headers)
    if (w3c := parsed.get("traceparent")) is not None:
        return Trace("w3c", w3c["trace_id"], w3c["parent_id"])
    if (b3_parts := parsed.get("b3")) is not None and "trace_id" in b3_parts:
        return Trace("b3", b3_parts["trace_id"], b3_parts.get("span_id"))
    if (sw8_parts := parsed.get("sw8")) is not None:
        return Trace(
            "sw8", sw8_parts["trace_id"], f"{sw8_parts['parent_segment_id']}/{sw8_parts['parent_span_id']}"
        )
    return None


def traces(headers: Iterable[tuple[str, bytes | None]]) -> Body:
    """Parse a record's headers: ``traceparent``, ``tracestate``, ``b3``, ``sw8``, as far as they exist.

    If a header is repeated, the last one wins, as in Kafka's ``Headers.lastHeader``. B3 in several headers is
    also returned as ``b3``, unless that header exists.
    """
    texts = {name.lower(): _text(value) for name, value in headers if value is not None}
    parsed = {
        "traceparent": traceparent(texts.get("traceparent", "")),
        "tracestate": tracestate(texts.get("tracestate", "")),
        "b3": b3(texts.get("b3", "")) or b3_headers(texts),
        "sw8": sw8(texts.get("sw8", "")),
    }
    return {name: parts for name, parts in parsed.items() if parts is not None}


def traceparent(text: str) -> Body | None:
    """``00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`` -> version, ids, flags."""
    match = _TRACEPARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    bits = int(flags, 16)
    return {
        "version": version,
        "trace_id": trace_id,
        "parent_id": parent_id,
        "trace_flags": flags,
        "sampled": bool(bits & _SAMPLED),
        "random": bool(bits & _RANDOM),
    }


def tracestate(text: str) -> list[Body] | None:
    """``rojo=00f067aa0ba902b7,congo=t61rcWkgMzE`` -> keys and values, in this order."""
    members = [member for member in text.split(",") if member.strip(" \t")]
    matches = [_MEMBER.fullmatch(member) for member in members[: _MAX_MEMBERS + 1]]
    if not 0 < len(matches) <= _MAX_MEMBERS:
        return None
    entries = [{"key": match[1], "value": match[2]} for match in matches if match is not None]
    return entries if len(entries) == len(matches) else None


def b3(text: str) -> Body | None:
    """``{trace id}-{span id}-{sampling state}-{parent span id}``, the last two optional, or only
    the state.
    """
    if text in _B3_STATES:
        return {"sampling": _B3_STATES[text]}
    match = _B3.fullmatch(text)
    if match is None:
        return None
    trace_id, span_id, state, parent = match.groups()
    parts = {"trace_id": trace_id, "span_id": span_id}
    if state is not None:
        parts["sampling"] = _B3_STATES[state.lower()]
    if parent is not None:
        parts["parent_span_id"] = parent
    return parts


def b3_headers(texts: dict[str, str]) -> Body | None:
    """``X-B3-TraceId`` and the others, by lower-case name, with the keys of the single header."""
    parts = {
        part: texts[name]
        for name, (part, form) in _B3_HEADERS.items()
        if name in texts and form.fullmatch(texts[name])
    }
    sampling = "debug" if texts.get("x-b3-flags") == "1" else _B3_SAMPLED.get(texts.get("x-b3-sampled", ""))
    if sampling is not None:
        parts["sampling"] = sampling
    return parts or None


def sw8(text: str) -> Body | None:
    """Eight fields separated by dashes, strings in base64."""
    fields = text.split("-")
    if len(fields) != len(_SW8) or fields[0] not in ("0", "1"):
        return None
    try:
        return {
            name: _decimal(field) if name in _SW8_NUMBERS else b64decode(field, validate=True).decode()
            for name, field in zip(_SW8, fields, strict=True)
        }
    except (binascii.Error, ValueError):
        return None


def _decimal(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(text)
    return int(text)


def _text(value: bytes) -> str:
    return value.decode("ascii", "replace")


# ------------------------------------------------------------------------------------------------------------
# Key or value of a record -> its schema in a registry, if its serializer left an ID.
#
# Confluent's serializers put a zero byte and the schema's ID before the data, or since 2025 a header beside
# it: a one and the schema's GUID. A header is unambiguous. A prefix is not marked, so it is treated as an ID
# only if
#
# * it is a zero byte, a number from 1 to 16,777,215 (registries count up from 1, Confluent's own from
#   100,001), and at least one byte of data follows,
# * and the total length is not 8 bytes, the size of an int64 or a double: an int64 of milliseconds or
#   microseconds since 1970 would seem to have an ID. So no ID is shown for an Avro record of 3 bytes.
#
# Other binary formats that begin with a zero byte can still be mistaken for it. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"

_ID = Struct(">bi")
_BY_ID, _BY_GUID = 0, 1
_GUID_BYTES = 16
_MAX_ID = 0xFFFFFF
_NUMBER_BYTES = 8


class SchemaId(NamedTuple):
    """A schema in a registry.

    Attributes:
        id: its number there. None if the GUID is used instead.
        guid: in lower-case hex with dashes.
        payload_pos: where in key or value the data begins (for Protobuf: the path to the message type).
        rest: what follows the ID in a header; for Protobuf, that path.
    """

    id: int | None
    guid: str | None
    payload_pos: int
    rest: bytes = b""

    def __str__(self) -> str:
        return str(self.guid or self.id)


def schema_id(data: bytes | None, header: bytes | None = None) -> SchemaId | None:
    """The schema of a key or value. None if neither it nor the header names one.

    Args:
        data: the key or value.
        header: value of the record's ``__key_schema_id`` or ``__value_schema_id``, which has precedence.
    """
    if header is not None and (result := _in_header(header)) is not None:
        return result
    if data is None:
        return None
    if len(data) in (_ID.size, _NUMBER_BYTES):
        return None
    number = _number(data)
    return None if number is None else SchemaId(number, None, _ID.size)


def _in_header(header: bytes) -> SchemaId | None:
    # A GUID before a value is not supported: no serializer writes one, and any bytes would match.
    if len(header) > _GUID_BYTES and header[0] == _BY_GUID:
        return SchemaId(None, str(UUID(bytes=header[1 : 1 + _GUID_BYTES])), 0, header[1 + _GUID_BYTES :])
    number = _number(header)
    return None if number is None else SchemaId(number, None, 0, header[_ID.size :])


def _number(data: bytes) -> int | None:
    if len(data) < _ID.size:
        return None
    magic, number = _ID.unpack_from(data)
    return number if magic == _BY_ID and 0 < number <= _MAX_ID else None
