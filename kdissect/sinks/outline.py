"""A decoded body -> indented lines, a field each: name, value, meaning. Holds nothing but the line it writes.

Arrays stop after a few elements unless the view wants the whole; what is left out is counted.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.kafka.internal.prefix import layout_of
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded
from kdissect.sinks.meanings import batch_text, described, records_text, value_text
from kdissect.sinks.printable import ELLIPSIS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.kafka.schema import Field, Message
    from kdissect.model import Body

MOST_ELEMENTS = 20
MOST_FLAT = 5  # fields of a struct that is written in one line,
MOST_COLUMNS = 100  # if they fit
INDENT = "  "

_OWN_NAMES = {
    "_left_over": "(left over)",
    "_undecoded": "(not decoded)",
    "_message": "(message)",
    "_version": "(version)",
    "_draft": "(as in Kafka)",
    "sasl_token": "(SASL token)",
}


class View(NamedTuple):
    """What the lines need to know besides the body.

    Attributes:
        message: whose schema says what values mean; None where none does.
        version: of the body.
        topic_names: topic id -> name.
        whole: whether nothing is cut.
    """

    message: Message | None
    version: int
    topic_names: Mapping[str, str]
    whole: bool = False

    def text(self, path: str, field: Field | None, value: Any) -> str:
        """Write a value that is no container."""
        return described(self.message, path, field, value, self.topic_names, whole=self.whole)

    def most(self, elements: Sequence[Any]) -> int:
        """How many elements of an array are shown."""
        return len(elements) if self.whole else min(len(elements), MOST_ELEMENTS)


def outline(
    view: View, body: Body, fields: tuple[Field, ...] = (), path: str = "", depth: int = 0
) -> Iterator[str]:
    """Write the fields of a struct.

    Args:
        view: see ``View``.
        body: the struct.
        fields: what the schema says about them; a body without is shown by its values' types.
        path: of the struct inside the message.
        depth: how far to indent.
    """
    known = _by_name(fields, view.version)
    for name, value in body.items():
        if name == "_tags":
            for tag, raw in value.items():
                yield f"{INDENT * depth}(unknown tag {tag}): {value_text(raw, whole=view.whole)}"
        else:
            inner = f"{path}.{name}" if path else name
            yield from _field(view, name, value, known.get(name), inner, depth)


@cache
def _by_name(fields: tuple[Field, ...], version: int) -> dict[str, Field]:
    return {field.name: field for field in fields if version in field.versions}


def _field(view: View, name: str, value: Any, field: Field | None, path: str, depth: int) -> Iterator[str]:
    start = f"{INDENT * depth}{_OWN_NAMES.get(name, name)}:"
    fields = field.fields if field is not None else ()
    match value:
        case dict():
            yield start
            yield from outline(view, value, fields, path, depth + 1)
        case [dict(), *_]:
            yield f"{start} {array_text(value)}"
            yield from _elements(view, value, fields, path, depth + 1)
        case list():
            yield f"{start} {inline(view, value, field, path)}"
        case RecordData():
            yield f"{start} {records_text(value)}"
            yield from batches(view, value, depth + 1)
        case Embedded(_, decoded):
            yield f"{start} {value_text(value, whole=view.whole)}"
            message, version = layout_of(decoded) or (None, 0)
            inner = view._replace(message=message, version=version)
            yield from outline(inner, decoded, message.fields if message else (), "", depth + 1)
        case _:
            yield f"{start} {view.text(path, field, value)}"


def array_text(elements: Sequence[Any] | None) -> str:
    """Write how long an array is."""
    return "null" if elements is None else f"[{len(elements):,}]"


def inline(view: View, elements: Sequence[Any], field: Field | None, path: str) -> str:
    """Write an array of values in one line."""
    most = view.most(elements)
    shown = ", ".join(view.text(path, field, element) for element in elements[:most])
    more = f", {ELLIPSIS} {len(elements) - most:,} more" if most < len(elements) else ""
    return f"[{shown}{more}]"


def more_text(depth: int, count: int) -> str:
    """Write how many elements of an array are left out."""
    return f"{INDENT * depth}{ELLIPSIS} {count:,} more (--full shows all)"


def batches(view: View, records: RecordData, depth: int) -> Iterator[str]:
    """Write a line for each batch of record data."""
    found = records.batches()
    most = view.most(found)
    for index, batch in enumerate(found[:most]):
        yield f"{INDENT * depth}[{index}] {batch_text(batch)}"
    if most < len(found):
        yield more_text(depth, len(found) - most)


def _elements(
    view: View, elements: Sequence[Body], fields: tuple[Field, ...], path: str, depth: int
) -> Iterator[str]:
    most = view.most(elements)
    for index, element in enumerate(elements[:most]):
        start = f"{INDENT * depth}[{index}]"
        lines = list(outline(view, element, fields, path)) if _is_flat(element) else []
        if lines and len(line := f"{start} {', '.join(lines)}") <= MOST_COLUMNS:
            yield line
        else:
            yield start
            yield from outline(view, element, fields, path, depth + 1)
    if most < len(elements):
        yield more_text(depth, len(elements) - most)


def _is_flat(struct: Body) -> bool:
    """Whether a struct may fit in one line."""
    return len(struct) <= MOST_FLAT and not any(
        isinstance(value, (dict, list, RecordData, Embedded)) for value in struct.values()
    )
