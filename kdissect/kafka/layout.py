"""(message, version) -> what is on the wire. The only code that interprets a schema's version columns.

Holds nothing. Compiler and walker both use it, so they cannot disagree about which fields exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.kafka.schema import Draft, Field, Message


_SLOT_BYTES = 8
_LIST_BYTES = 72
_VALUE_BYTES = {"bool": 0, "float64": 24, "uuid": 72, "string": 80, "bytes": 40, "records": 128}
_INTEGER_BYTES = 32
_TEXT_TYPES = ("string", "string16", "jutf", "utf16")
_ESCAPED_BYTES = 32  # each byte escaped, and held as UTF-32, UTF-8, JSON and in a column
_TAG_BYTES = 384  # an entry in the dict of unknown tags, and that dict if it is the first


class Layout(NamedTuple):
    """One version of a message.

    Attributes:
        name: of the message.
        version: only fields whose versions contain it are present.
        flexible: lengths are compact and every struct ends in a tag buffer (KIP-482).
        fields: of the message in all versions.
        draft: releases that used this layout for the version; None for the final one.
    """

    name: str
    version: int
    flexible: bool
    fields: tuple[Field, ...]
    draft: str | None

    def __str__(self) -> str:
        draft = f" of {self.draft}" if self.draft else ""
        return f"{self.name} v{self.version}{draft}"

    @property
    def identifier(self) -> str:
        """The layout's name for use in a function name."""
        return f"{self.name}_v{self.version}"


def layout(message: Message, version: int, draft: Draft | None = None) -> Layout:
    """The layout of one version, or of a draft of it.

    Raises:
        Unsupported: neither the message nor the draft has such a version.
    """
    source = message if draft is None else draft
    if version not in source.versions:
        raise Unsupported(f"{message.name} has no version {version}")
    flexible = message.is_flexible(version) if draft is None else draft.is_flexible(version)
    return Layout(message.name, version, flexible, source.fields, None if draft is None else draft.releases)


def split(fields: Iterable[Field], version: int) -> tuple[list[Field], list[Field]]:
    """The positional fields of a struct in wire order, and its tagged fields by tag."""
    positional: list[Field] = []
    tagged: list[Field] = []
    for field in fields:
        if version in field.versions:
            (tagged if is_tagged(field, version) else positional).append(field)
    return positional, sorted(tagged, key=tag_of)


def present(fields: Iterable[Field], version: int) -> list[Field]:
    """All fields that a struct has in this version, the positional ones first."""
    positional, tagged = split(fields, version)
    return [*positional, *tagged]


def is_tagged(field: Field, version: int) -> bool:
    """Whether the field is in the tag buffer in this version."""
    return field.tagged is not None and version in field.tagged


def is_nullable(field: Field, version: int) -> bool:
    """Whether null is legal. Only for structs does this change the layout: a marker precedes them
    (KIP-893).
    """
    return field.nullable is not None and version in field.nullable


def tag_of(field: Field) -> int:
    assert field.tag is not None
    return field.tag


# The memory that values take once decoded and written: estimates of CPython's objects. They are the same on
# every machine, so that compiler and walker reach a limit at the same element.


def element_bytes(field: Field, layout: Layout) -> int:
    """Memory of one array element. Arrays inside it count as empty, tags as absent."""
    return _SLOT_BYTES + _value_bytes(field, layout)


def tag_bytes(fields: Iterable[Field], layout: Layout) -> int:
    """Maximum memory of one field in the tag buffer of a struct, on the same terms."""
    _, tagged = split(fields, layout.version)
    return _TAG_BYTES + max((_field_bytes(field, layout) for field in tagged), default=0)


def is_text(kind: str) -> bool:
    return kind in _TEXT_TYPES


def text_bytes(raw: bytes) -> int:
    """Maximum memory of a string of these bytes, in addition to the fixed cost of a string."""
    return len(raw) if raw.isascii() else _ESCAPED_BYTES * len(raw)


def _field_bytes(field: Field, layout: Layout) -> int:
    return _LIST_BYTES if field.array else _value_bytes(field, layout)


def _value_bytes(field: Field, layout: Layout) -> int:
    if field.type != "struct":
        return _VALUE_BYTES.get(field.type, _INTEGER_BYTES)
    positional, _ = split(field.fields, layout.version)
    return _dict_bytes(len(positional)) + sum(_field_bytes(each, layout) for each in positional)


def _dict_bytes(keys: int) -> int:
    slots = 8
    while slots * 2 < keys * 3:
        slots *= 2
    return 112 + 11 * slots
