"""(message, version) -> a Python function that encodes it, the exact inverse of the decoder; and short bodies
completed with natural values.

The encoder is written from the layout like the decoder, for reading before speed. A body that does not fit
makes it stumble somewhere; ``fault`` then looks for the field.
"""

from __future__ import annotations

from base64 import b64decode
from functools import cache
from struct import Struct, error, pack
from typing import TYPE_CHECKING, Any

from kdissect.errors import KdissectError
from kdissect.kafka.decoder import FunctionSource
from kdissect.kafka.layout import is_nullable, is_tagged, layout, split, tag_of
from kdissect.kafka.primitives import ALWAYS_OLD, FIXED, STRUCT_MARKERS, TAGGED_MARKERS
from kdissect.kafka.records import RecordData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.model import Body

    Encoder = Callable[[Mapping[str, Any]], bytes]

ZERO = "A" * 22
"""The uuid of no topic at all: sixteen zero bytes."""

_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")


class EncodeError(KdissectError):
    """A body that cannot be written in this layout; the text names message, version and field."""


@cache
def encoder(message: Message, version: int, draft: Draft | None = None) -> Encoder:
    """A function body -> bytes.

    A tagged field without a key is not written, keys that this version does not have are ignored. The
    function raises EncodeError, which names message, version and field, for a body that does not fit.

    Raises:
        Unsupported: there is no such version.
    """
    return _Generator(layout(message, version, draft)).generate().function()


# One function a type.


@cache
def uuid_bytes(text: str) -> bytes:
    """The 16 bytes behind Kafka's text form.

    Raises:
        ValueError: the text is not a uuid in that form.
    """
    try:
        raw = b64decode(f"{text}==", altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is no uuid in Kafka's form: 22 characters of url-safe base64")
    return raw


def put_uvarint(value: int) -> bytes:
    """A uvarint in as few bytes as it takes."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def put_string(text: str | None) -> bytes:
    """A string with an int16 length."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def put_compact_string(text: str | None) -> bytes:
    """A string with a compact length."""
    return put_compact_bytes(None if text is None else text.encode())


def put_bytes(value: bytes | RecordData | None) -> bytes:
    """Bytes, or record data, with an int32 length."""
    if value is None:
        return b"\xff\xff\xff\xff"
    raw = value.payload if isinstance(value, RecordData) else value
    return _INT32.pack(len(raw)) + raw


def put_compact_bytes(value: bytes | RecordData | None) -> bytes:
    """Bytes, or record data, with a compact length."""
    if value is None:
        return b"\x00"
    raw = value.payload if isinstance(value, RecordData) else value
    return put_uvarint(len(raw) + 1) + raw


def put_jutf(text: str) -> bytes:
    """Java's modified UTF-8 with a uint16 length."""
    units = text.encode("utf-16-be", "surrogatepass")
    raw = b"".join(
        chr(int.from_bytes(units[at : at + 2])).encode("utf-8", "surrogatepass")
        for at in range(0, len(units), 2)
    ).replace(b"\0", b"\xc0\x80")
    return _UINT16.pack(len(raw)) + raw


def put_utf16(text: str | None) -> bytes:
    """UTF-16BE behind an int32 count of its units."""
    if text is None:
        return b"\xff\xff\xff\xff"
    raw = text.encode("utf-16-be")
    return _INT32.pack(len(raw) // 2) + raw


def put_count(values: Sequence[Any] | None) -> bytes:
    """An array's int32 count."""
    return _INT32.pack(-1 if values is None else len(values))


def put_compact_count(values: Sequence[Any] | None) -> bytes:
    """An array's compact count."""
    return put_uvarint(0 if values is None else len(values) + 1)


def put_numbers(code: str, values: Sequence[Any] | None) -> bytes:
    """The elements of an array of numbers."""
    return pack(f">{len(values)}{code}", *values) if values else b""


def put_tags(tags: Mapping[int, bytes] | None) -> bytes:
    """A tag buffer, tags ascending as KIP-482 demands."""
    if not tags:
        return b"\x00"
    parts = [put_uvarint(len(tags))]
    for tag in sorted(tags):
        parts += put_uvarint(tag), put_uvarint(len(tags[tag])), tags[tag]
    return b"".join(parts)


def put(kind: str, flexible: bool, value: Any) -> bytes:
    """One value of any type that is not a struct."""
    if kind in FIXED:
        return pack(f">{FIXED[kind]}", uuid_bytes(value) if kind == "uuid" else value)
    return PUT[kind][flexible](value)


PUT: dict[str, tuple[Callable[[Any], bytes], Callable[[Any], bytes]]] = {
    "string": (put_string, put_compact_string),
    "string16": (put_string, put_string),
    "bytes": (put_bytes, put_compact_bytes),
    "records": (put_bytes, put_compact_bytes),
    "jutf": (put_jutf, put_jutf),
    "utf16": (put_utf16, put_utf16),
}
"""Type -> how it is written in old and in flexible versions."""

UNWRITABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, error)
"""What the functions above raise for a value that does not fit its type."""

_NAMESPACE = {
    "UNWRITABLE": UNWRITABLE,
    "put_compact_count": put_compact_count,
    "put_count": put_count,
    "put_numbers": put_numbers,
    "put_tags": put_tags,
    "uuid_bytes": uuid_bytes,
    **{function.__name__: function for pair in PUT.values() for function in pair},
}
_RESERVED = ("body", "bytearray", "bytes", "dict", "fault", "out")


class _Generator:
    """Walks the schema and writes one line per field, neighboring fixed-size fields on one line together."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.source = FunctionSource(f"{layout} encoder", _NAMESPACE, _RESERVED)
        self.source.namespace["fault"] = lambda body: fault(layout, body)
        self.out = "out"
        self.run: list[tuple[str, str]] = []

    def generate(self) -> FunctionSource:
        source = self.source
        source.line(f"# {self.layout}, generated from its .kmsg text.")
        with source.block(f"def encode_{self.layout.identifier}(body):"):
            source.line("out = bytearray()")
            with source.block("try:"):
                self.struct(self.layout.fields, "body")
            with source.block("except UNWRITABLE as error:"):
                source.line("raise fault(body) from error")
            source.line("return bytes(out)")
        return source

    def struct(self, fields: Sequence[Field], struct: str) -> None:
        positional, tagged = split(fields, self.layout.version)
        for field in positional:
            self.value(field, f'{struct}["{field.name}"]')
        self.flush()
        if not self.layout.flexible:
            if not positional:
                self.source.line("pass")
            return
        if not tagged:
            self.write(f'put_tags({struct}.get("_tags"))')
            return
        tags = self.source.name("tags")
        self.source.line(f'{tags} = dict({struct}.get("_tags", ()))')
        for field in tagged:
            with self.source.block(f'if "{field.name}" in {struct}:'):
                self.tagged(field, tags, f'{struct}["{field.name}"]')
        self.write(f"put_tags({tags})")

    def tagged(self, field: Field, tags: str, value: str) -> None:
        outer, self.out = self.out, self.source.name(f"{field.name}_out")
        self.source.line(f"{self.out} = {tags}[{tag_of(field)}] = bytearray()")
        self.value(field, value)
        self.flush()
        self.out = outer

    def value(self, field: Field, value: str) -> None:
        """Write the value of an expression."""
        if field.array:
            self.array(field, value)
        elif field.type != "struct":
            self.scalar(field.type, value)
        else:
            self.flush()
            variable = self.source.name(field.name)
            self.source.line(f"{variable} = {value}")
            if not is_nullable(field, self.layout.version):
                self.struct(field.fields, variable)
                return
            null, present = TAGGED_MARKERS if is_tagged(field, self.layout.version) else STRUCT_MARKERS
            with self.source.block(f"if {variable} is None:"):
                self.write(repr(null))
            with self.source.block("else:"):
                self.write(repr(present))
                self.struct(field.fields, variable)

    def array(self, field: Field, value: str) -> None:
        self.flush()
        variable = self.source.name(field.name)
        self.source.line(f"{variable} = {value}")
        self.write(f"put_{'compact_' if self.layout.flexible else ''}count({variable})")
        if field.type in FIXED and field.type != "uuid":
            self.write(f'put_numbers("{FIXED[field.type]}", {variable})')
            return
        item = self.source.name(f"{field.name}_item")
        with self.source.block(f"for {item} in {variable} or ():"):
            if field.type == "struct":
                self.struct(field.fields, item)
            else:
                self.scalar(field.type, item)
                self.flush()

    def scalar(self, kind: str, value: str) -> None:
        if kind in FIXED:
            self.run.append((FIXED[kind], f"uuid_bytes({value})" if kind == "uuid" else value))
            return
        self.flush()
        self.write(f"{PUT[kind][self.layout.flexible and kind not in ALWAYS_OLD].__name__}({value})")

    def flush(self) -> None:
        """Pack the fixed-size fields gathered so far."""
        if self.run:
            codes = "".join(code for code, _ in self.run)
            pack = "pack_" + codes.replace("?", "t")
            self.source.namespace[pack] = Struct(f">{codes}").pack
            values = ", ".join(value for _, value in self.run)
            self.run.clear()
            self.write(f"{pack}({values})")

    def write(self, expression: str) -> None:
        self.source.line(f"{self.out} += {expression}")


def fault(layout: Layout, body: Any) -> EncodeError:
    """The first field of a body that cannot be written, by name."""
    result = _fault(layout, layout.fields, body, "")
    path, why = result or ("", "cannot be encoded")
    return EncodeError(f"{layout}: {path + ' ' if path else ''}{why}")


def _fault(layout: Layout, fields: Sequence[Field], struct: Any, prefix: str) -> tuple[str, str] | None:
    if not hasattr(struct, "get"):
        return prefix.rstrip("."), f"is {_kind(struct)} where a struct belongs"
    positional, tagged = split(fields, layout.version)
    for field in [*positional, *tagged]:
        path = prefix + field.name
        if field.name in struct:
            result = _fault_in(layout, field, struct[field.name], path)
            if result:
                return result
        elif field in positional:
            return path, "is missing"
    try:
        put_tags(struct.get("_tags"))
    except UNWRITABLE as error:
        return f"{prefix}_tags", f"is no dict of numbers and bytes: {error}"
    return None


def _fault_in(layout: Layout, field: Field, value: Any, path: str) -> tuple[str, str] | None:
    if field.array:
        if value is not None and not isinstance(value, list | tuple):
            return path, f"is {_kind(value)} where a list belongs"
        result = (_fault_of(layout, field, item, f"{path}[{at}]") for at, item in enumerate(value or ()))
        return next(filter(None, result), None)
    if value is None and field.type == "struct" and is_nullable(field, layout.version):
        return None
    return _fault_of(layout, field, value, path)


def _fault_of(layout: Layout, field: Field, value: Any, path: str) -> tuple[str, str] | None:
    if field.type == "struct":
        return _fault(layout, field.fields, value, f"{path}.")
    try:
        put(field.type, layout.flexible, value)
    except UNWRITABLE as error:
        return path, f"is {_kind(value)}, which is no {field.type}: {error}"
    return None


def _kind(value: Any) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


# A few fields of a message -> a complete body. Natural values are 0, "", [] and, where it is legal, null.
# Absent tagged fields stay absent.

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
