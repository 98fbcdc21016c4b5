"""Messages as values -> ``.kmsg`` text in the one form that all our files have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.kafka import schema
from kdissect.kafka.schema import ALL, STRUCT, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.kafka.schema import Draft, Field, File, Message, Versions


@pytest.mark.parametrize("name", schema.file_names())
def test_every_file_is_in_the_one_form(name: str) -> None:
    text = schema.file_text(name)
    assert emit(parse(text, name)) == text


def test_alignment_is_free_and_becomes_uniform() -> None:
    loose = "A 0-3 =>\n  a: int16 1+ # x\n  [b]: int8 2 tag 1\n  c: string?2-3 topic\n  d: int8   # y\n"
    assert emit(parse(loose)) == (
        "A 0-3 =>\n"
        "  a: int16                                  1+         # x\n"
        "  [b]: int8                                 2 tag 1\n"
        "  c: string?2+ topic\n"
        "  d: int8                                   # y\n"
    )


def test_long_left_side_pushes_the_columns_away() -> None:
    text = "A 0-3 =>\n  a_name_that_is_longer_than_the_column_is_wide: int16  1+  # x\n"
    assert emit(parse(text)) == text


def test_drafts_and_record_types_stand_in_the_head() -> None:
    text = "ARecord 1-2, type 0, flexible 2+ =>\n  id: int32\n\ndraft 2.8 ARecord 1 =>\n  id: int16\n"
    assert emit(parse(text)) == text


# Columns of the right-hand side. A longer left side pushes them away by two spaces.
_VERSIONS_COLUMN = 44
_COMMENT_COLUMN = 55


def emit(file: File) -> str:
    """Write the text that ``parse`` turns into ``file``."""
    parts = [_comment(file.comment)] if file.comment else []
    if file.api_key is not None:
        message = file.messages[0]
        parts.append(
            f"api {file.api_key} {file.api_name}, versions {message.versions}{_flexible(message.flexible)}\n"
        )
    for message in file.messages:
        head = _head(file, message)
        parts.append(_block(head, message.comment, message.fields, message.versions))
        for draft in message.drafts:
            head = _draft_head(file, message, draft)
            parts.append(_block(head, draft.comment, draft.fields, draft.versions))
    parts += [_block(struct.name, struct.comment, struct.fields, ALL) for struct in file.structs]
    return "\n".join(parts)


def _head(file: File, message: Message) -> str:
    if file.api_key is not None:
        return message.kind
    record_type = "" if message.api_key is None else f", type {message.api_key}"
    return f"{message.name} {message.versions}{record_type}{_flexible(message.flexible)}"


def _draft_head(file: File, message: Message, draft: Draft) -> str:
    if file.api_key is not None:
        return f"draft {draft.releases} {message.kind} {draft.versions}"
    return f"draft {draft.releases} {message.name} {draft.versions}{_flexible(draft.flexible)}"


def _block(head: str, comment: str, fields: Sequence[Field], versions: Versions) -> str:
    above = _comment(comment) if comment else ""
    return above + "".join(f"{line}\n" for line in [f"{head} =>", *_field_lines(fields, versions, "  ")])


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.split("\n"))


def _flexible(first: int | None) -> str:
    return "" if first is None else f", flexible {first}+"


def _field_lines(fields: Sequence[Field], parent: Versions, indent: str) -> Iterator[str]:
    for field in fields:
        null = "" if field.nullable is None else "?" + _range(field.nullable, field.versions)
        if field.array or field.type == STRUCT:
            left = indent + (f"[{field.name}]" if field.array else field.name) + null
            left += " =>" if field.type == STRUCT and not field.struct else f": {field.struct or field.type}"
        else:
            left = f"{indent}{field.name}: {field.type}{null}"
        left += f" {field.role}" if field.role else ""
        tag = "" if field.tag is None else f"tag {field.tag}"
        right = " ".join(filter(None, (_range(field.versions, parent), tag)))
        line = _at_column(left, _VERSIONS_COLUMN, right) if right else left
        if field.comment:
            column = _COMMENT_COLUMN if right else _VERSIONS_COLUMN
            line = _at_column(line, column, f"# {field.comment}")
        yield line
        if not field.struct:
            yield from _field_lines(field.fields, field.versions, indent + "  ")


def _range(versions: Versions, parent: Versions) -> str:
    if versions == parent:
        return ""
    return f"{versions.first}+" if versions.last == parent.last else str(versions)


def _at_column(left: str, column: int, right: str) -> str:
    return left.ljust(column - 2) + "  " + right
