"""Decoded values -> values of machine formats. Caches the text of the last 64 seconds.

======================  ================================================================================
in a body               in JSON
======================  ================================================================================
bytes                   ``{"base64": "..."}``, RFC 4648 with padding
Embedded                as its bytes, with ``"decoded": {...}`` beside them
Redacted                ``{"withheld": 16}``: its length in bytes
RecordData              an array of batch headers
unknown tags            ``{"7": {"base64": "..."}}``
NaN, infinity           ``null``: JSON has no such numbers (RFC 8259)
uuid, error code, enum  as on the wire: Kafka's text form, and the plain number
======================  ================================================================================
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

import orjson

from kdissect.kafka.records import RecordData
from kdissect.limits import SECOND_NS
from kdissect.model import Embedded, Redacted

if TYPE_CHECKING:
    from collections.abc import Iterable

_CYCLE_SECONDS = 12_622_780_800  # 400 years: the calendar repeats after that


def json_bytes(value: Any, option: int = 0) -> bytes:
    """Write one value as JSON, without a line break; ``option``: see orjson."""
    try:
        return orjson.dumps(value, default=plain, option=option)
    except orjson.JSONEncodeError:
        # The keys of _tags are numbers. They are rare, and allowing them always takes twice the time.
        return orjson.dumps(value, default=plain, option=option | orjson.OPT_NON_STR_KEYS)


def json_line(value: Any) -> bytes:
    """Write one value as a line of JSON; adding the line break afterwards would copy a long line."""
    return json_bytes(value, orjson.OPT_APPEND_NEWLINE)


def json_document(value: Any) -> bytes:
    """Write a document of dataclasses: indented, times as ISO 8601 ending in Z."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        # File names are bytes; those that are not UTF-8 became surrogates, which JSON cannot hold.
        return orjson.dumps(_as_text(value), option=option)


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_text(key): _as_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    if is_dataclass(value):
        return {field.name: _as_text(getattr(value, field.name)) for field in fields(value)}
    return value


def json_array(values: Iterable[Any]) -> orjson.Fragment:
    """Write values one by one: JSON takes less memory than Python objects."""
    text = BytesIO()
    text.write(b"[")
    for value in values:
        text.write(b"," if text.tell() > 1 else b"")
        text.write(json_bytes(value))
    text.write(b"]")
    return orjson.Fragment(text.getvalue())


def plain(value: Any) -> Any:
    """Convert a value that JSON does not have: the ``default`` of orjson."""
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode("ascii")}
    if isinstance(value, RecordData):
        return json_array(value.headers())
    if isinstance(value, Redacted):
        return {"withheld": value.length}
    if isinstance(value, Embedded):
        return {**plain(value.data), "decoded": value.decoded}
    raise TypeError(f"{type(value).__name__} cannot be in a body")


def text_and_encoding(payload: bytes | Embedded | Redacted | None) -> tuple[str | None, str | None]:
    """A record's key or value as text, and its encoding: ``utf-8``, ``base64``, ``json`` if it was decoded,
    or ``withheld``, without a text. None and None for null.
    """
    if isinstance(payload, bytes):
        try:
            return payload.decode(), "utf-8"
        except UnicodeDecodeError:
            return b64encode(payload).decode("ascii"), "base64"
    if isinstance(payload, Embedded):
        return json_bytes(payload.decoded).decode(), "json"
    return None, None if payload is None else "withheld"


def timestamp(time_ns: int) -> str:
    """Write a time as ISO 8601 in UTC with microseconds: ``2026-11-21T09:05:00.123456Z``."""
    second, rest_ns = divmod(time_ns, SECOND_NS)
    return f"{second_text(second)}.{rest_ns // 1000:06d}Z"


def date(time_ns: int) -> str:
    """Write the day in UTC: ``2026-11-21``."""
    return second_text(time_ns // SECOND_NS).partition("T")[0]


@lru_cache(64)
def second_text(second: int) -> str:
    """Write a second since 1970 as ISO 8601 in UTC, without ``Z``."""
    # A damaged capture can claim any time. Python's calendar ends in 9999; ISO 8601 requires a sign before
    # later years.
    cycle, of_cycle = divmod(second, _CYCLE_SECONDS)
    moment = datetime.fromtimestamp(of_cycle, UTC)
    year = moment.year + 400 * cycle
    return (
        f"{year:04d}{moment:-%m-%dT%H:%M:%S}" if 0 <= year <= 9999 else f"{year:+07d}{moment:-%m-%dT%H:%M:%S}"
    )
