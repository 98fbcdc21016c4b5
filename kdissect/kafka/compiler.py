"""(message, version) -> Python functions that decode and search it, compiled on first use and cached.

decoder.py generates them, ``source`` shows the text. One function of each kind is cached for every layout
that occurs: about 10 KB each, and the schema has about a thousand layouts. With the native core, its decoder
takes the place of the generated one, which then decodes only what the core leaves to it.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect import core
from kdissect.kafka import decoder as decoders
from kdissect.kafka.layout import element_bytes, is_nullable, is_tagged, layout, split, tag_bytes
from kdissect.kafka.records import RecordData
from kdissect.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.primitives import DecodeBudget
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.model import Body

    Decoder = Callable[[bytes, int, DecodeBudget], tuple[Body, int]]
    Collector = Callable[[Mapping[str, Any]], list[Any]]

    # Layouts as the core takes them. Field: what stands for its name, type, memory of an array's element,
    # nullable, tag. Struct: positional fields in wire order, tagged fields, in flexible versions the memory
    # of a tag.
    CoreField = tuple[object, "str | CoreStruct", int | None, bool, int | None]
    CoreStruct = tuple[tuple[CoreField, ...], tuple[CoreField, ...], int | None]


LARGE_BYTES = MIB
"""Messages above this size are decoded with text charged to the budget. It is not a setting: in smaller
messages text takes too little memory, compared with the estimate ``decoded_bytes``, to be worth counting.
"""


@cache
def decoder(message: Message, version: int, draft: Draft | None = None, *, large: bool = False) -> Decoder:
    """A function (data, pos, budget) -> (body, end position).

    It decodes the layout and stops; the caller handles the bytes after it. A known tag whose value does not
    end where its size says is Malformed: the sender used another layout, perhaps a draft. If a tag occurs
    twice, the last one wins. The function raises only Truncated, Malformed or Oversized, with an approximate
    position and no path. The walker finds the exact place. The budget is charged only on success.

    Text is charged to it only by the function for ``large`` messages. In others text takes 28 MiB at most.

    Raises:
        Unsupported: there is no such version.
    """
    shape = layout(message, version, draft)

    def generated(data: bytes, pos: int, budget: DecodeBudget) -> tuple[Body, int]:
        return generated_decoder(message, version, draft, large=large)(data, pos, budget)

    return native_decoder(shape, generated, large=large) or generated_decoder(
        message, version, draft, large=large
    )


@cache
def generated_decoder(
    message: Message, version: int, draft: Draft | None = None, *, large: bool = False
) -> Decoder:
    """The same in Python alone.

    Raises:
        Unsupported: there is no such version.
    """
    return decoders.generate(layout(message, version, draft), charges_text=large).function()


def native_decoder(shape: Layout, generated: Decoder, *, large: bool = False) -> Decoder | None:
    """The same by the native core, which leaves bodies that are in any way unusual to ``generated``. None if
    there is no core, or if the layout has a type that it leaves to Python.
    """
    if not core.is_used or has_rare_types(shape):
        return None
    decode: Decoder = core.native.Decoder(core_struct(shape), large, RecordData, generated).decode
    return decode


def has_rare_types(shape: Layout) -> bool:
    """Whether any field has a type that the core leaves to Python."""
    return _has_rare_types(shape.fields, shape.version)


def _has_rare_types(fields: Iterable[Field], version: int) -> bool:
    return any(
        field.type in ("jutf", "utf16") or _has_rare_types(field.fields, version)
        for field in fields
        if version in field.versions
    )


def core_struct(shape: Layout, name: Callable[[Field], object] = attrgetter("name")) -> CoreStruct:
    """The layout as the core takes it; ``name`` returns what stands for the name of a field."""
    return _core_struct(shape.fields, shape, name)


def _core_struct(fields: tuple[Field, ...], shape: Layout, name: Callable[[Field], object]) -> CoreStruct:
    positional, tagged = split(fields, shape.version)
    return (
        tuple(_core_field(field, shape, name) for field in positional),
        tuple(_core_field(field, shape, name) for field in tagged),
        tag_bytes(fields, shape) if shape.flexible else None,
    )


def _core_field(field: Field, shape: Layout, name: Callable[[Field], object]) -> CoreField:
    return (
        name(field),
        _core_struct(field.fields, shape, name) if field.type == "struct" else field.type,
        element_bytes(field, shape) if field.array else None,
        is_nullable(field, shape.version),
        field.tag if is_tagged(field, shape.version) else None,
    )


@cache
def collector(message: Message, version: int, role: str, draft: Draft | None = None) -> Collector | None:
    """A function body -> the values of all fields with that role. None if the layout has no such field.

    Values are in wire order, depth first, without nulls and fields missing from a partial body.

    Raises:
        Unsupported: there is no such version.
    """
    generated = decoders.generate_collector(layout(message, version, draft), role)
    return None if generated is None else generated.function()


def source(message: Message, version: int, draft: Draft | None = None) -> str:
    return str(decoders.generate(layout(message, version, draft)))
