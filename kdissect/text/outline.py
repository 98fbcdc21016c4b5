"""Decoded body -> indented lines, one for each field: name, value, meaning. Stateless.

Arrays end after ``MAX_ELEMENTS`` elements unless the context is ``full``; the rest are counted.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from orjson import OPT_INDENT_2

from kdissect.exchanges.registered import RegisteredPayload
from kdissect.kafka import schema
from kdissect.kafka.internal.payloads import layout_of
from kdissect.kafka.records import RecordData
from kdissect.model import Embedded
from kdissect.phrases import ELLIPSIS, facts, many, printable
from kdissect.tables.values import json_bytes
from kdissect.text.style import BOLD, PLAIN, RED, Style, unpainted
from kdissect.text.value_labels import (
    batch_text,
    decoded_batch_text,
    described,
    offset_text,
    payload_text,
    records_text,
    schemas_and_trace,
    time_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.exchanges.partition_records import CarriedRecord, PartitionRecords
    from kdissect.kafka.internal.topics import Payload
    from kdissect.kafka.schema import Field, Message
    from kdissect.model import Body
    from kdissect.tables.record_bodies import DecodedRecords

MAX_ELEMENTS = 20
MAX_FLAT_FIELDS = 5  # fields of a struct that is written in one line
MAX_LINE_COLUMNS = 100  # of such a line
MAX_DUMPED = 512  # bytes of a key or value in a hex dump
INDENT = "  "

_DEFAULTS = (None, 0, -1, False, "", b"", "A" * 22)
"""Of types; -1 also stands for null, and the zero UUID for none."""
_FORWARDED_KEYS = {"header", "body"}  # of the request in an Envelope: no schema describes it as one message

_DISPLAY_NAMES = {
    "_trailing": "(trailing)",
    "_undecoded": "(not decoded)",
    "_message": "(message)",
    "_version": "(version)",
    "_draft": "(as in Kafka)",
    "sasl_token": "(SASL token)",
}


class BodyContext(NamedTuple):
    """Context of the lines besides the body.

    Attributes:
        message: the schema, for the meaning of values; None if there is none.
        version: of the body.
        topic_names: topic ID -> name.
        full: whether nothing is truncated.
        decoded_records: the message's record data, if its records are to be shown.
        forwarded: API key and version of the request in an Envelope.
        style: its colors show errors, and values that are not defaults.
        vendor: of the broker, for the names of APIs.
    """

    message: Message | None
    version: int
    topic_names: Mapping[str, str]
    full: bool = False
    decoded_records: DecodedRecords | None = None
    forwarded: tuple[int, int] | None = None
    style: Style = PLAIN
    vendor: str | None = None

    def text(self, path: str, field: Field | None, value: Any) -> str:
        """A value that is not a container, as text."""
        text = described(
            self.message, path, field, value, self.topic_names, full=self.full, vendor=self.vendor
        )
        if not self.style.is_colored or value in _DEFAULTS:
            return text
        is_error = field is not None and field.role == "error"
        return self.style.paint(text, f"{BOLD};{RED}" if is_error else BOLD)

    def max_shown(self, elements: Sequence[Any]) -> int:
        """How many elements of an array to show."""
        return len(elements) if self.full else min(len(elements), MAX_ELEMENTS)


def outline(
    view: BodyContext, body: Body, fields: tuple[Field, ...] = (), path: str = "", depth: int = 0
) -> Iterator[str]:
    """Write the fields of a struct.

    Args:
        view: see ``BodyContext``.
        body: the struct.
        fields: from the schema; without them values are shown by their types.
        path: of the struct in the message.
        depth: how far to indent.
    """
    known = _by_name(fields, view.version)
    for name, value in body.items():
        if name == "_tags":
            for tag, raw in value.items():
                yield f"{INDENT * depth}(unknown tag {tag}): {value_text(raw, full=view.full)}"
        else:
            inner = f"{path}.{name}" if path else name
            yield from _field(view, name, value, known.get(name), inner, depth)


@cache
def _by_name(fields: tuple[Field, ...], version: int) -> dict[str, Field]:
    return {field.name: field for field in fields if version in field.versions}


def _field(
    view: BodyContext, name: str, value: Any, field: Field | None, path: str, depth: int
) -> Iterator[str]:
    start = f"{INDENT * depth}{_DISPLAY_NAMES.get(name, name)}:"
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
            yield from batches(view, value, value.end, depth + 1)
        case Embedded(_, decoded):
            yield f"{start} {value_text(value, full=view.full)}"
            yield from embedded(view, decoded, depth + 1)
        case _:
            yield f"{start} {view.text(path, field, value)}"


def array_text(elements: Sequence[Any] | None) -> str:
    """The length of an array, as text."""
    return "null" if elements is None else f"[{len(elements):,}]"


def inline(view: BodyContext, elements: Sequence[Any], field: Field | None, path: str) -> str:
    """An array of values, as one line."""
    max_shown = view.max_shown(elements)
    shown = ", ".join(view.text(path, field, element) for element in elements[:max_shown])
    more = f", {ELLIPSIS} {len(elements) - max_shown:,} more" if max_shown < len(elements) else ""
    return f"[{shown}{more}]"


def more_text(depth: int, count: int) -> str:
    """How many elements of an array are left out, as text."""
    return f"{INDENT * depth}{ELLIPSIS} {count:,} more (--full shows all)"


def embedded(view: BodyContext, decoded: Body, depth: int) -> Iterator[str]:
    """Write a message that is embedded in bytes."""
    if decoded.keys() == _FORWARDED_KEYS:
        yield from _forwarded(view, decoded, depth)
        return
    message, version = layout_of(decoded) or (None, 0)
    inner = view._replace(message=message, version=version, decoded_records=None)
    yield from outline(inner, decoded, message.fields if message else (), "", depth)


def _forwarded(view: BodyContext, decoded: Body, depth: int) -> Iterator[str]:
    """Write header and body of the request or response in an Envelope."""
    api_key, version = view.forwarded or (-1, 0)
    is_request = "request_api_key" in decoded["header"]
    header = schema.header("RequestHeader" if is_request else "ResponseHeader")
    message = (schema.request if is_request else schema.response)(api_key)
    for name, part, known in (("header", header, 0), ("body", message, version)):
        inner = view._replace(message=part, version=known, decoded_records=None)
        yield f"{INDENT * depth}{name}:"
        yield from outline(inner, decoded[name], part.fields if part else (), "", depth + 1)


def batches(view: BodyContext, records: RecordData | None, end: int, depth: int) -> Iterator[str]:
    """Write a line for each batch of record data, and its records if they are to be shown.

    Args:
        view: see ``BodyContext``.
        records: None if the bytes must not be shown.
        end: where it ends in the frame.
        depth: how far to indent.
    """
    headers = [] if records is None else records.batches()
    if view.decoded_records is not None and (source := view.decoded_records.partitions.get(end)) is not None:
        yield from _decoded_batches(view, view.decoded_records, source, len(headers), depth)
        return
    max_shown = view.max_shown(headers)
    for index, batch in enumerate(headers[:max_shown]):
        yield f"{INDENT * depth}[{index}] {batch_text(batch)}"
    if max_shown < len(headers):
        yield more_text(depth, len(headers) - max_shown)


def _decoded_batches(
    view: BodyContext,
    decoded_records: DecodedRecords,
    source: PartitionRecords,
    header_count: int,
    depth: int,
) -> Iterator[str]:
    """Write each batch with its records; ``header_count``: number of batches, as far as known."""
    index = 0
    for records in decoded_records.open(source):
        batch = records.batch
        if not batch.first:
            if index >= MAX_ELEMENTS and not view.full:
                yield more_text(depth, max(1, header_count - index))
                return
            yield f"{INDENT * depth}[{index}] {decoded_batch_text(source, batch)}"
            index += 1
            for anomaly in batch.anomalies:
                yield f"{INDENT * (depth + 1)}! {anomaly.kind}: {printable(anomaly.detail)}"
        first = batch.first
        max_shown = batch.number if view.full else min(batch.number, MAX_ELEMENTS)
        for number, record in enumerate(islice(records, max(0, max_shown - first)), first):
            yield from record_lines(view, record, depth + 1, f"[{number}] ")
        if first <= max_shown < first + len(records):
            yield more_text(depth + 1, batch.number - max_shown)


def record_lines(view: BodyContext, record: CarriedRecord, depth: int, start: str) -> Iterator[str]:
    """Write a record, in one line if it fits."""
    indent = INDENT * depth
    head = facts(
        offset_text(record),
        time_text(record),
        f"control {record.control}" if record.control else None,
    )
    if not (record.headers or isinstance(record.key, Embedded) or isinstance(record.value, Embedded)):
        line = f"{indent}{start}{', '.join([head, *(text.lstrip() for text in _payloads(view, record, 0))])}"
        if len(line) <= MAX_LINE_COLUMNS:
            yield line
            return
    yield f"{indent}{start}{head}"
    yield from _payloads(view, record, depth + 1)


def record_details(view: BodyContext, record: CarriedRecord, depth: int, dump_row: int = 0) -> Iterator[str]:
    """Write the details of a record whose title is already written, one per line. ``dump_row``: bytes in a
    line of the hex dumps of key and value; 0: without these.
    """
    indent = INDENT * depth
    if (moment := time_text(record)) is not None:
        yield f"{indent}timestamp: {moment}"
    if (number := record.batch.sequence(record.record)) is not None:
        yield f"{indent}sequence: {number}"
    if record.control:
        yield f"{indent}control: {record.control}"
    yield from _payloads(view, record, depth, dump_row)


def _payloads(view: BodyContext, record: CarriedRecord, depth: int, dump_row: int = 0) -> Iterator[str]:
    indent = INDENT * depth
    yield f"{indent}key: {payload_text(record.key, full=view.full)}"
    if dump_row:
        yield from _dump(view, record.key, depth + 1, dump_row)
    yield from _inside(view, record.key, depth + 1)
    if record.headers:
        yield f"{indent}headers: {array_text(record.headers)}"
        max_shown = view.max_shown(record.headers)
        for name, value in record.headers[:max_shown]:
            yield f"{indent}{INDENT}{printable(name)}: {payload_text(value, full=view.full)}"
        if max_shown < len(record.headers):
            yield more_text(depth + 1, len(record.headers) - max_shown)
    yield from (f"{indent}{text}" for text in schemas_and_trace(record))
    yield f"{indent}value: {payload_text(record.value, full=view.full)}"
    if dump_row:
        yield from _dump(view, record.value, depth + 1, dump_row)
    yield from _inside(view, record.value, depth + 1)


def _dump(view: BodyContext, payload: Payload, depth: int, row: int) -> Iterator[str]:
    """Offset, bytes and ASCII characters of a key or value, as ``hexdump -C``; nothing of a credential."""
    data = payload.data if isinstance(payload, Embedded) else payload
    if not isinstance(data, bytes):
        return
    shown = data if view.full else data[:MAX_DUMPED]
    for start in range(0, len(shown), row):
        part = shown[start : start + row]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield f"{INDENT * depth}{start:06x}  {part.hex(' '):<{3 * row}} |{text}|"
    if more := len(data) - len(shown):
        yield f"{INDENT * depth}{ELLIPSIS} {many(more, 'more byte')}; --full shows all"


def _inside(view: BodyContext, payload: Payload, depth: int) -> Iterator[str]:
    if isinstance(payload, RegisteredPayload):
        for line in json_bytes(payload.decoded, OPT_INDENT_2).decode().splitlines():
            yield INDENT * depth + printable(line)
    elif isinstance(payload, Embedded):
        yield from embedded(view, payload.decoded, depth)


def _elements(
    view: BodyContext, elements: Sequence[Body], fields: tuple[Field, ...], path: str, depth: int
) -> Iterator[str]:
    max_shown = view.max_shown(elements)
    for index, element in enumerate(elements[:max_shown]):
        start = f"{INDENT * depth}[{index}]"
        lines = list(outline(view, element, fields, path)) if _is_flat(element) else []
        if lines and len(unpainted(line := f"{start} {', '.join(lines)}")) <= MAX_LINE_COLUMNS:
            yield line
        else:
            yield start
            yield from outline(view, element, fields, path, depth + 1)
    if max_shown < len(elements):
        yield more_text(depth, len(elements) - max_shown)


def _is_flat(struct: Body) -> bool:
    """Whether a struct may fit in one line."""
    return len(struct) <= MAX_FLAT_FIELDS and not any(
        isinstance(value, (dict, list, RecordData, Embedded)) for value in struct.values()
    )
