"""A walked message -> lines with the place and the bytes of each field in front of name and value.

Containers show their own bytes only: count, null marker, tag and size; what is in them follows. A withheld
field shows none, and of record data that may hold credentials only the first batch's header is shown. Holds
nothing but the line it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka.records import RecordData
from kdissect.model import Embedded, Withheld
from kdissect.sinks.meanings import MOST_BYTES
from kdissect.sinks.outline import INDENT, MOST_ELEMENTS, View, array_text, batches, embedded, more_text
from kdissect.sinks.printable import ELLIPSIS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.kafka.walker import Span, Walk
    from kdissect.model import Body

ROW = 8  # bytes of a line
BATCH_HEADER = 61
_MARGIN = " " * (8 + 3 * ROW + 1)


def offsets(
    view: View, walked: Walk, data: bytes, body: Body | None = None, *, hide_records: bool = True
) -> Iterator[str]:
    """Write every span.

    Args:
        view: what values mean, and whether anything is cut.
        walked: where the fields are in ``data``.
        data: the frame behind its size field, where offset 0 is.
        body: the same message with its payloads opened, which are shown below their bytes.
        hide_records: whether record data may hold credentials.
    """
    lengths: dict[int, int] = {}  # of the arrays that the walk is in, by the depth of their elements
    left_out_at: int | None = None
    spans = walked.spans
    payloads = {} if body is None else _payloads(spans, body)
    for index, span in enumerate(spans):
        number = int(span.name[1:-1]) if span.name.startswith("[") else None
        if left_out_at is not None and (span.depth > left_out_at or number is not None):
            continue
        left_out_at = None
        if number is not None and number >= MOST_ELEMENTS and not view.whole:
            left_out_at = span.depth
            yield _MARGIN + more_text(span.depth, lengths[span.depth] - number)
            continue
        if isinstance(span.value, list):
            lengths[span.depth + 1] = len(span.value)
        yield from _span(view, span, _own_bytes(spans, index, data), hide_records=hide_records)
        if index in payloads:
            lines = embedded(view, payloads[index].decoded, span.depth + 1)
            yield from (_MARGIN + line for line in lines)
    if walked.error is not None:
        yield f"{_MARGIN}(ends here: {walked.error})"


def _payloads(spans: list[Span], body: Body) -> dict[int, Embedded]:
    """Find the spans whose bytes are messages themselves, by going through body and spans side by side."""
    found: dict[int, Embedded] = {}
    containers: list[tuple[int, Body | list[Any]]] = [(-1, body)]
    for index, span in enumerate(spans):
        while containers[-1][0] >= span.depth:
            containers.pop()
        inside = containers[-1][1]
        if span.type == "tags":  # what is in a tag buffer stands beside it in the body
            containers.append((span.depth, inside))
            continue
        value = _value(inside, span.name)
        if isinstance(value, Embedded):
            found[index] = value
        elif isinstance(value, dict | list):
            containers.append((span.depth, value))
        elif span.value is not None and (span.type == "struct" or span.type.startswith("[]")):
            containers.append((span.depth, {}))  # not in the body: it broke, or was oversized
    return found


def _value(container: Body | list[Any], name: str) -> Any:
    """What a span says it is; None for what broke before it was complete."""
    if isinstance(container, dict):
        return container.get(name)
    number = int(name[1:-1])
    return container[number] if number < len(container) else None


def _own_bytes(spans: list[Span], index: int, data: bytes) -> bytes:
    """The bytes of a span that none of the spans inside it has."""
    span = spans[index]
    end = span.pos + span.length
    if index + 1 < len(spans) and spans[index + 1].depth > span.depth:
        end = spans[index + 1].pos
    return data[span.pos : end]


def _span(view: View, span: Span, own: bytes, *, hide_records: bool) -> Iterator[str]:
    most = len(own) if view.whole else MOST_BYTES
    rest: Iterator[str] = iter(())
    if span.type == "records" and span.value is not None:
        most = min(most, BATCH_HEADER) if hide_records else most
        records = span.value if isinstance(span.value, RecordData) else None
        rest = batches(view, records, span.pos + span.length, span.depth + 1)
    text = f"{INDENT * span.depth}{_text(view, span)}"
    if isinstance(span.value, Withheld):
        yield f"{span.pos:06x}  {'not shown':<{3 * ROW}} {text}"
        yield from (_MARGIN + line for line in rest)
        return
    shown = own[:most]
    yield f"{span.pos:06x}  {shown[:ROW].hex(' '):<{3 * ROW}} {text}"
    for row in range(ROW, len(shown), ROW):
        yield f"{span.pos + row:06x}  {shown[row : row + ROW].hex(' ')}"
    if len(own) > most:
        yield f"{'':8}{ELLIPSIS} {len(own) - most:,} more bytes"
    yield from (_MARGIN + line for line in rest)


def _text(view: View, span: Span) -> str:
    match span.type:
        case "tags":
            return f"{span.name}: {span.value}"
        case "tag":
            return f"(unknown tag {span.name}): {view.text(span.path, None, span.value)}"
        case "struct":
            name = span.name if span.name.startswith("[") else f"{span.name}:"
            return f"{name} null" if span.value is None else name
    if span.type.startswith("[]"):
        return f"{span.name}: {array_text(span.value)}"
    return f"{span.name}: {view.text(span.path, span.field, span.value)}"
