"""A layout -> the text of a flat function that encodes it: ``encode(body) -> bytes``; and what a body lacks.

The exact inverse of the decoder on every body it yields. Tests, samples and rewriting a capture need it, so
it is made for reading before speed. A body that does not fit makes the function stumble somewhere; ``fault``
then looks for the field.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from kdissect.errors import EncodeError
from kdissect.kafka import primitives
from kdissect.kafka.codes import uuid_bytes
from kdissect.kafka.decoder import Source
from kdissect.kafka.layout import is_nullable, is_tagged, split, tag_of
from kdissect.kafka.primitives import (
    ALWAYS_OLD,
    FIXED,
    PUT,
    STRUCT_MARKERS,
    TAGGED_MARKERS,
    UNWRITABLE,
    put,
    put_tags,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Field

_NAMESPACE = {
    "UNWRITABLE": UNWRITABLE,
    "put_compact_count": primitives.put_compact_count,
    "put_count": primitives.put_count,
    "put_numbers": primitives.put_numbers,
    "put_tags": primitives.put_tags,
    "uuid_bytes": uuid_bytes,
    **{function.__name__: function for pair in PUT.values() for function in pair},
}
_RESERVED = ("body", "bytearray", "bytes", "dict", "fault", "out")


def generate(layout: Layout) -> Source:
    """The function's text."""
    return _Generator(layout).generate()


class _Generator:
    """Walks the schema and writes one line per field, neighbouring fixed-size fields on one line together."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.source = Source(f"{layout} encoder", _NAMESPACE, _RESERVED)
        self.source.namespace["fault"] = lambda body: fault(layout, body)
        self.out = "out"
        self.run: list[tuple[str, str]] = []

    def generate(self) -> Source:
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
    found = _fault(layout, layout.fields, body, "")
    path, why = found or ("", "cannot be encoded")
    return EncodeError(f"{layout}: {path + ' ' if path else ''}{why}")


def _fault(layout: Layout, fields: Sequence[Field], struct: Any, prefix: str) -> tuple[str, str] | None:
    if not hasattr(struct, "get"):
        return prefix.rstrip("."), f"is {_kind(struct)} where a struct belongs"
    positional, tagged = split(fields, layout.version)
    for field in [*positional, *tagged]:
        path = prefix + field.name
        if field.name in struct:
            found = _fault_in(layout, field, struct[field.name], path)
            if found:
                return found
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
        found = (_fault_of(layout, field, item, f"{path}[{at}]") for at, item in enumerate(value or ()))
        return next(filter(None, found), None)
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
