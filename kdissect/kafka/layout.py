"""(message, version) -> what is on the wire: the one place where a schema's version columns are read.

Holds nothing. Compiler and walker both go through here, so they cannot disagree about which fields there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.kafka.schema import Draft, Field, Message


class Layout(NamedTuple):
    """One version of a message.

    Attributes:
        name: of the message.
        version: of its fields, only those whose versions contain it are there.
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
        """The layout's name as a part of a function's name."""
        return f"{self.name}_v{self.version}"


def layout(message: Message, version: int, draft: Draft | None = None) -> Layout:
    """The layout of one version, or what a draft had in its place.

    Raises:
        Unsupported: neither the message nor the draft has such a version.
    """
    told = message if draft is None else draft
    if version not in told.versions:
        raise Unsupported(f"{message.name} has no version {version}")
    flexible = message.is_flexible(version) if draft is None else draft.is_flexible(version)
    return Layout(message.name, version, flexible, told.fields, None if draft is None else draft.releases)


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
    """Whether the field lives in the tag buffer in this version."""
    return field.tagged is not None and version in field.tagged


def is_nullable(field: Field, version: int) -> bool:
    """Whether null is legal; only for a struct it changes the layout: a marker stands in front (KIP-893)."""
    return field.nullable is not None and version in field.nullable


def tag_of(field: Field) -> int:
    """The tag of a tagged field."""
    assert field.tag is not None
    return field.tag
