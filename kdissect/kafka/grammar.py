"""One version of a message -> its grammar, as printed in the protocol guide. Holds nothing.

::

    Fetch Request (Version: 13) => replica_id max_wait_ms ... [forgotten_topics_data] rack_id TAG_BUFFER
      replica_id => INT32
      ...
      topics => topic_id [partitions] TAG_BUFFER
        topic_id => UUID
      ...
      cluster_id<tag: 0> => COMPACT_NULLABLE_STRING

The guide omits tagged fields. Here they follow the other fields of their struct, in order of tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.kafka.schema import STRUCT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Draft, Field, Message

TAG_BUFFER = "TAG_BUFFER"

_NAMES = {
    "bool": "BOOLEAN",
    "string16": "STRING",
    "jutf": "MODIFIED_UTF8",
    "utf16": "UTF16",
}
_COMPACT = ("string", "bytes", "records")


def grammar(message: Message, version: int, draft: Draft | None = None) -> str:
    """The grammar of this version, or of a draft of it, without a newline at the end."""
    layout = draft or message
    if version not in layout.versions:
        raise ValueError(f"{message.name} has no version {version}")
    flexible = layout.is_flexible(version)
    head = f"{_title(message)} (Version: {version}{_releases(draft)})"
    return "\n".join(_production(head, layout.fields, version, flexible, indent=""))


def _title(message: Message) -> str:
    """Split names as the guide does: ``Fetch Request``, ``Request Header``. Others stay as they are."""
    for word in ("Request", "Response"):
        if message.kind == "header" and message.name.startswith(word):
            return f"{word} Header"
        if message.kind == word.lower():
            return f"{message.name.removesuffix(word)} {word}"
    return message.name


def _releases(draft: Draft | None) -> str:
    return "" if draft is None else f", draft of {draft.releases}"


def _production(
    head: str, fields: Sequence[Field], version: int, flexible: bool, indent: str
) -> Iterator[str]:
    """Yield the line of a struct, then those of its fields."""
    present = [field for field in fields if version in field.versions]
    positional = [field for field in present if field.tag is None]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    parts = [f"[{field.name}]" if field.array else field.name for field in positional]
    parts += [TAG_BUFFER] if flexible else []
    yield " ".join([f"{indent}{head} =>", *parts])
    for field in positional + tagged:
        tag = "" if field.tag is None else f"<tag: {field.tag}>"
        name = f"[{field.name}]" if field.array and tag else field.name
        if field.type == STRUCT:
            yield from _production(name + tag, field.fields, version, flexible, indent + "  ")
        else:
            yield f"{indent}  {name}{tag} => {_type(field, version, flexible)}"


def _type(field: Field, version: int, flexible: bool) -> str:
    name = _NAMES.get(field.type, field.type.upper())
    null = field.nullable is not None and version in field.nullable and not field.array
    if null and field.type in ("string", "string16", "bytes"):
        name = f"NULLABLE_{name}"
    return f"COMPACT_{name}" if flexible and field.type in _COMPACT else name
