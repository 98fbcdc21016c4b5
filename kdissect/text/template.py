r"""``%t %p %o %k %s\n`` -> records as bytes, in kcat's notation. Holds the parsed template.

Without a terminal keys, values and headers are written as they are, whatever their bytes. On one, what is not
printable in them is escaped. An unknown number is ``-``; null is empty, and its length -1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdissect.errors import UsageError
from kdissect.model import Embedded, Redacted
from kdissect.phrases import ABSENT, printable
from kdissect.tables.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.kafka.internal.topics import Payload

    Field = Callable[[CarriedRecord], bytes]

_PART = re.compile(r"%(?P<field>.?)|\\(?:x(?P<byte>[0-9a-fA-F]{2})|(?P<escape>.?))|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def _payload(payload: Payload) -> bytes:
    if isinstance(payload, Embedded):
        return json_bytes(payload.decoded)
    return f"redacted ({payload.length} bytes)".encode() if isinstance(payload, Redacted) else payload or b""


def _length(payload: bytes | None) -> bytes:
    return b"%d" % (-1 if payload is None else len(payload))


def _headers(record: CarriedRecord) -> bytes:
    texts = (name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)
    return b",".join(texts)


def _number(number: int | None) -> bytes:
    return ABSENT.encode() if number is None else b"%d" % number


FIELDS: dict[str, tuple[str, Field]] = {
    "t": ("topic", lambda record: (next(iter(record.source.names), ABSENT)).encode()),
    "p": ("partition", lambda record: _number(record.source.partition)),
    "o": ("offset", lambda record: _number(record.offset)),
    "k": ("key", lambda record: _payload(record.key)),
    "s": ("value", lambda record: _payload(record.value)),
    "K": ("length of the key", lambda record: _length(record.record.key)),
    "S": ("length of the value", lambda record: _length(record.record.value)),
    "T": ("timestamp in milliseconds", lambda record: _number(record.timestamp_ms)),
    "h": ("headers: name=value,...", _headers),
}
"""Meaning of each letter, and how to write it."""


class Template:
    """Writes records.

    Args:
        text: the template.
        write: takes bytes.
        is_terminal: escape what is not printable in records.

    Raises:
        UsageError: the template is invalid.
    """

    def __init__(self, text: str, write: Callable[[bytes], object], *, is_terminal: bool = False) -> None:
        self._write = write
        self._parts = [_part(match, is_terminal=is_terminal) for match in _PART.finditer(text)]

    def feed(self, record: CarriedRecord) -> None:
        """Write one."""
        self._write(b"".join([part if isinstance(part, bytes) else part(record) for part in self._parts]))

    def close(self) -> None:
        """Nothing is held."""


def _part(match: re.Match[str], *, is_terminal: bool) -> bytes | Field:
    letter, byte, escape = match["field"], match["byte"], match["escape"]
    if letter == "%":
        return b"%"
    if letter is not None:
        if letter not in FIELDS:
            known = ", ".join(f"%{letter} {meaning}" for letter, (meaning, _) in FIELDS.items())
            raise UsageError(f'--template: no field "{printable(match[0])}"; known: {known}, %% percent sign')
        get = FIELDS[letter][1]
        return (lambda record: _printable(get(record))) if is_terminal else get
    if byte is not None:
        return bytes.fromhex(byte)
    if escape is not None:
        if escape not in _ESCAPES:
            raise UsageError(
                rf'--template: no escape "{printable(match[0])}"; known: \n, \r, \t, \0, \xHH, \\'
            )
        return _ESCAPES[escape]
    return match[0].encode("utf-8", "surrogateescape")


def _printable(data: bytes) -> bytes:
    return printable(data.decode("utf-8", "backslashreplace")).encode()
