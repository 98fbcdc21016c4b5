"""The primitive types: their widths and length prefixes, and decoding steps too long to repeat in generated
code.

Fixed types have a ``struct`` code, and several are unpacked at a time. The others have a length prefix: an
int16 or int32 with -1 for null, or in flexible versions a uvarint of length + 1 with 0 for null (KIP-482,
protocol guide "Primitive Types"). Holds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from struct import calcsize
from typing import TYPE_CHECKING, cast

from kdissect.errors import Malformed, Oversized, Truncated
from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.model import Body


FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Type -> struct code. ``?`` treats any non-zero byte as true, as Kafka does."""

LENGTH = {
    "string": "h",
    "string16": "h",
    "bytes": "i",
    "records": "i",
    "array": "i",
    "jutf": "H",
    "utf16": "i",
}
"""Type -> struct code of its length prefix in versions that are not flexible."""

ALWAYS_OLD = frozenset({"string16", "jutf", "utf16"})
"""Types whose length has the old form even in flexible versions."""

LONGEST_STRING = 0x7FFF
"""The longest string in bytes. Kafka rejects longer ones, although a compact length could be larger."""

UVARINT_BYTES = 5
STRUCT_MARKERS = (b"\xff", b"\x01")
"""The marker of a nullable struct: null, present (KIP-893)."""

TAGGED_MARKERS = (b"\x00", b"\x01")
"""The same inside a tag: uvarints."""


@dataclass(slots=True, eq=False)
class DecodeBudget:
    """Memory left for decoded messages, in bytes. Shared by both messages of an exchange.

    Attributes:
        left: bytes left.
        oversized: bytes for the first fields of a message that would exceed the budget.
        met_null: whether a compiled function decoded a null in a field that is not nullable. Set only by
            compiled functions; reset by the code that reads it.
    """

    left: int = DEFAULT.decoded_bytes
    oversized: int = DEFAULT.oversized_bytes
    met_null: bool = False


def size_of(codes: str) -> int:
    """Bytes of big-endian fields with these struct codes."""
    return calcsize(f">{codes}")


# Decoding. ``pos`` never decreases, and generated code compares it with the end of the buffer only once,
# after the last field: a slice that is too short moves it past the end.


def uvarint(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Decode a uvarint with continuation, whose first byte is just before ``pos``. Returns its value and its
    end.
    """
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise Malformed(f"a varint of more than {UVARINT_BYTES} bytes", pos=pos - UVARINT_BYTES)


def null(length: int, pos: int) -> None:
    """Check a negative length: -1 is null, anything below is malformed."""
    if length != -1:
        raise Malformed(f"a length of {length}", pos=pos)


def unexpected_null(budget: DecodeBudget, pos: int, length: int = -1) -> None:
    """Note a null in a field that is not nullable. Checks the length like ``null``."""
    null(length, pos)
    budget.met_null = True


def too_many(count: int, pos: int, end: int) -> Truncated | Oversized:
    """The error for more elements than there are bytes left, or than the budget allows."""
    left = max(end - pos, 0)
    if count > left:
        return Truncated(f"{count} elements declared, {left} bytes left", pos=min(pos, end))
    return Oversized(f"{count} elements would exceed the limit decoded_bytes", pos=pos)


def too_long(length: int, pos: int, end: int) -> Truncated | Malformed:
    """The error for a compact string longer than the bytes left, or than Kafka allows."""
    left = max(end - pos, 0)
    if length > left:
        return Truncated(f"{length} bytes needed, {left} left", pos=min(pos, end))
    return Malformed(f"a string of {length} bytes; the longest in Kafka is {LONGEST_STRING}", pos=pos)


def tag_head(data: bytes, pos: int) -> tuple[int, int, int]:
    """A tagged field's tag, where its value ends, and where it begins."""
    tag = data[pos]
    pos += 1
    if tag > 127:
        tag, pos = uvarint(data, pos, tag)
    size = data[pos]
    pos += 1
    if size > 127:
        size, pos = uvarint(data, pos, size)
    return tag, pos + size, pos


def wrong_size(tag: int, pos: int, stop: int) -> Malformed:
    """The error for a tagged value whose end does not match its size: the sender used another layout."""
    return Malformed(
        f"tag {tag} ends {abs(stop - pos)} bytes {'after' if pos > stop else 'before'} its declared end",
        pos=pos,
    )


def unknown_tags(data: bytes, pos: int, tags: int, body: Body) -> int:
    """Read this many unknown tags into ``body["_tags"]``. Returns the position after them."""
    unknown: dict[int, bytes] = {}
    for _ in range(tags):
        tag, stop, pos = tag_head(data, pos)
        unknown[tag] = data[pos:stop]
        pos = stop
    if unknown:
        body["_tags"] = unknown
    return pos


def utf8(raw: bytes) -> str:
    """Decode UTF-8. Invalid bytes become backslash escapes."""
    return str(raw, "utf-8", "backslashreplace")


def utf16(raw: bytes) -> str:
    """Decode UTF-16BE. Invalid units become backslash escapes."""
    return str(raw, "utf-16-be", "backslashreplace")


def modified_utf8(raw: bytes) -> str:
    """Decode Java's modified UTF-8: NUL in two bytes, above U+FFFF two surrogates of three bytes each."""
    try:
        units = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return utf8(raw)
    return utf16(units.encode("utf-16-be", "surrogatepass"))


# ------------------------------------------------------------------------------------------------------------
# The checksum of record batches, CRC-32C (RFC 3720): the function of the ``crc32c`` package, without the rest
# of it.
#
# To determine its own version the package loads importlib.metadata, which loads modules for mail and zip
# files. That takes a tenth of the time that ``records`` needs before it opens a file. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Checksum = Callable[[bytes | memoryview], int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not extension or not extension.loader:  # installed in another form
        import crc32c as package_module

        return cast("Checksum", package_module.crc32c)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast("Checksum", module.crc32c)


crc32c = _load()
