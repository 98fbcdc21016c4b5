"""A layout and a role -> the text of a function that gathers all such values: ``collect(body) -> list``.

Values come in wire order, depth first; nulls are left out, and so is what a partial body lacks. Runs on every
exchange, for topics, errors, groups: only the structs that lead to such a field are looked into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.kafka.generated import Source
from kdissect.kafka.layout import split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Field


def generate(layout: Layout, role: str) -> Source | None:
    """The function's text, None when no field of the layout has the role."""
    if not _leading(layout.fields, layout.version, role):
        return None
    source = Source(f"{layout} {role} collector", {}, ("body", "found", "value"))
    source.line(f"# {role} fields of {layout}, generated from its .kmsg text.")
    with source.block(f"def collect_{role}_{layout.identifier}(body):"):
        source.line("found = []")
        _struct(source, layout.fields, layout.version, role, "body")
        source.line("return found")
    return source


def _struct(source: Source, fields: Sequence[Field], version: int, role: str, struct: str) -> None:
    for field in _leading(fields, version, role):
        value = f'{struct}.get("{field.name}")'
        if field.role == role and field.array:
            source.line(f"found += {value} or ()")
        elif field.role == role:
            with source.block(f"if (value := {value}) is not None:"):
                source.line("found.append(value)")
        elif field.array:
            item = source.name(f"{field.name}_item")
            with source.block(f"for {item} in {value} or ():"):
                _struct(source, field.fields, version, role, item)
        else:
            nested = source.name(field.name)
            with source.block(f"if {nested} := {value}:"):
                _struct(source, field.fields, version, role, nested)


def _leading(fields: Sequence[Field], version: int, role: str) -> list[Field]:
    """The fields that have the role or lead to one that has it, in wire order."""
    positional, tagged = split(fields, version)
    return [f for f in [*positional, *tagged] if f.role == role or _leading(f.fields, version, role)]
