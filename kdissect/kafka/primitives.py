"""The types of the wire: how wide, behind which length, and the steps too long to repeat in generated code.

Fixed types have a ``struct`` code and are read several at a time. The others have a length in front: in old
versions an int16 or int32 with -1 for null, in flexible versions a uvarint of length + 1 with 0 for null
(KIP-482, protocol guide "Primitive Types"). Holds nothing.
"""

from __future__ import annotations

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
"""Type -> struct code. ``?`` takes any non-zero byte for true, as Kafka does."""

LENGTH = {
    "string": "h",
    "string16": "h",
    "bytes": "i",
    "records": "i",
    "array": "i",
    "jutf": "H",
    "utf16": "i",
}
"""Type -> struct code of the length in front of it in versions that are not flexible."""

ALWAYS_OLD = frozenset({"string16", "jutf", "utf16"})
"""Types whose length has the old form in flexible versions as well."""

LONGEST_STRING = 0x7FFF
"""Bytes of a string: Kafka reads none that is longer, though a compact length could say so."""

UVARINT_BYTES = 5
STRUCT_MARKERS = (b"\xff", b"\x01")
"""What is in front of a nullable struct: null, present (KIP-893)."""

TAGGED_MARKERS = (b"\x00", b"\x01")
"""The same inside a tag: uvarints."""


class DecodeBudget:
    """What decoded messages may still take in memory, in bytes; shared by the messages of an exchange.

    Attributes:
        left: so much.
        oversized: so much the first fields of a message that would take more.
    """

    __slots__ = ("left", "oversized")

    def __init__(self, left: int = DEFAULT.decoded_bytes, oversized: int = DEFAULT.oversized_bytes) -> None:
        self.left = left
        self.oversized = oversized


def size_of(codes: str) -> int:
    """Bytes of big-endian fields with these struct codes."""
    return calcsize(f">{codes}")


# Decoding. ``pos`` never goes back, and generated code compares it with the end of the buffer once, after the
# last field: a slice that came out short has left it behind the end.


def uvarint(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """The value of a uvarint whose first byte, just before ``pos``, says that more follow; its end."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise Malformed(f"a varint of more than {UVARINT_BYTES} bytes", pos=pos - UVARINT_BYTES)


def null(length: int, pos: int) -> None:
    """What a negative length means: -1 is null, anything below cannot be."""
    if length != -1:
        raise Malformed(f"a length of {length}", pos=pos)


def too_many(count: int, pos: int, end: int) -> Truncated | Oversized:
    """More elements are announced than there are bytes, or than the budget allows."""
    left = max(end - pos, 0)
    if count > left:
        return Truncated(f"{count} elements declared, {left} bytes left", pos=min(pos, end))
    return Oversized(f"{count} elements would exceed the limit decoded_bytes", pos=pos)


def too_long(length: int, pos: int, end: int) -> Truncated | Malformed:
    """A compact string is announced that is longer than the bytes left, or than Kafka reads."""
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
    """A tagged value does not end where its size says: this is not the layout the sender used."""
    return Malformed(
        f"tag {tag} ends {abs(stop - pos)} bytes {'after' if pos > stop else 'before'} its size", pos=pos
    )


def unknown_tags(data: bytes, pos: int, tags: int, body: Body) -> int:
    """Read so many unknown tags into ``body["_tags"]``: the position behind them."""
    unknown: dict[int, bytes] = {}
    for _ in range(tags):
        tag, stop, pos = tag_head(data, pos)
        unknown[tag] = data[pos:stop]
        pos = stop
    if unknown:
        body["_tags"] = unknown
    return pos


def utf8(raw: bytes) -> str:
    """Text of UTF-8; bytes that are none show as backslash escapes."""
    return str(raw, "utf-8", "backslashreplace")


def utf16(raw: bytes) -> str:
    """Text of UTF-16BE; units that are none show as backslash escapes."""
    return str(raw, "utf-16-be", "backslashreplace")


def modified_utf8(raw: bytes) -> str:
    """Text of Java's modified UTF-8: NUL in two bytes, past U+FFFF two surrogates in three each."""
    try:
        units = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return utf8(raw)
    return utf16(units.encode("utf-16-be", "surrogatepass"))


# ------------------------------------------------------------------------------------------------------------
# The checksum of record batches, CRC-32C (RFC 3720): the function of the ``crc32c`` package, without the
# rest of it.
#
# To tell its own version the package loads what reads the metadata of packages, and with that what reads
# mail and zip files: a tenth of all that ``records`` does before it opens a file. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


if TYPE_CHECKING:
    Checksum = Callable[[bytes | memoryview], int]


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    extension = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not extension or not extension.loader:  # it came in another form
        import crc32c as package_module

        return cast("Checksum", package_module.crc32c)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast("Checksum", module.crc32c)


crc32c = _load()
