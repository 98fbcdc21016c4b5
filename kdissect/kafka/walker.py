"""Bytes and schema -> every field with its name and position, and the exact position of a fault in a
malformed message.

Slow. Used for the detail view, to locate errors, and as an oracle for the compiled decoder: both must return
the same values. Holds one message's values and spans, and stops at its budget and ``Limits.walk_spans``.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from struct import calcsize, unpack
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import limits
from kdissect.errors import DecodeError, Malformed, Oversized, Truncated
from kdissect.kafka.codes import uuid_text
from kdissect.kafka.layout import (
    element_bytes,
    is_nullable,
    is_tagged,
    is_text,
    layout,
    split,
    tag_bytes,
    tag_of,
    text_bytes,
)
from kdissect.kafka.primitives import (
    ALWAYS_OLD,
    FIXED,
    LENGTH,
    LONGEST_STRING,
    UVARINT_BYTES,
    DecodeBudget,
    modified_utf8,
    utf8,
    utf16,
)
from kdissect.kafka.records import RecordData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kdissect.kafka.layout import Layout
    from kdissect.kafka.schema import Draft, Field, Message
    from kdissect.model import Body

    Keep = Callable[[Any], None]

TAGS = "_tags"


class Span(NamedTuple):
    """The bytes of one field. Containers come before their content.

    Attributes:
        path: dotted field names, without array indices: ``topics.partitions.error_code``.
        name: the field's name, ``[3]`` for an array's element, ``_tags`` for a tag buffer, the tag for an
            unknown tag.
        type: as in the schema, ``[]int32`` for arrays. ``tags`` and ``tag`` for a tag buffer and an unknown
            tag.
        pos, length: its bytes, including those before the value: length, count, null marker, and for tagged
            fields tag and size.
        value: as in the body. For a tag buffer the number of its fields.
        field: None for a tag buffer and an unknown tag.
        depth: the number of containers around it.
    """

    path: str
    name: str
    type: str
    pos: int
    length: int
    value: Any
    field: Field | None
    depth: int


@dataclass(slots=True)
class Walk:
    """The result of a walk.

    Attributes:
        value: the body. After an error, the part before it.
        spans: in byte order.
        end: position after the last field that was read.
        nulls: paths of fields that are null and not nullable, each with the position of the first.
        error: why reading stopped early, with path and position. None if it did not.
    """

    value: Body = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    end: int = 0
    error: DecodeError | None = None
    nulls: dict[str, int] = field(default_factory=dict)


def walk(
    message: Message,
    version: int,
    data: bytes,
    pos: int = 0,
    draft: Draft | None = None,
    budget: DecodeBudget | None = None,
    max_spans: int | None = limits.DEFAULT.walk_spans,
) -> Walk:
    """Walk through one message. Never raises: errors are part of the result.

    Args:
        message: its schema.
        version: of its layout.
        data: contains it.
        pos: of its first byte.
        draft: the layout of a pre-release instead.
        budget: memory for its values. None: the default for an exchange.
        max_spans: how many spans to keep. None: keep none, and read to the end.
    """
    result = Walk(end=pos)
    try:
        _Walker(layout(message, version, draft), data, result, budget or DecodeBudget(), max_spans).read()
    except DecodeError as error:
        error.__context__ = None
        result.error = error.with_traceback(None)  # whose frames hold the message, and this result
    return result


class _Walker:
    """Reads at ``pos``, which advances after each complete field or container count."""

    def __init__(
        self, layout: Layout, data: bytes, result: Walk, budget: DecodeBudget, max_spans: int | None
    ) -> None:
        self.layout = layout
        self.data = data
        self.result = result
        self.budget = budget
        self.max_spans = max_spans
        self.pos = result.end
        self.path: list[str] = []
        self.depth = 0

    def read(self) -> None:
        try:
            self.struct(self.layout.fields, self.result.value)
        finally:
            self.result.end = self.pos

    # Every value is passed to a ``keep`` function, containers before they are filled, so that everything read
    # before an error is kept. ``start`` is where a span begins: for tagged fields that is before the tag.

    def struct(self, fields: Sequence[Field], body: Body) -> None:
        positional, tagged = split(fields, self.layout.version)
        for inner in positional:
            self.named_field(inner, body, self.pos)
        if self.layout.flexible:
            each = tag_bytes(fields, self.layout)
            self.tag_buffer({tag_of(inner): inner for inner in tagged}, body, each)

    def named_field(self, inner: Field, body: Body, start: int) -> None:
        self.path.append(inner.name)

        def keep(value: Any) -> None:
            body[inner.name] = value

        if inner.array:
            self.array(inner, start, keep)
        else:
            self.value(inner, inner.name, start, keep)
        self.path.pop()

    def value(self, inner: Field, name: str, start: int, keep: Keep) -> None:
        if inner.type != "struct":
            value = self.scalar(inner.type)
            if value is None and (inner.array or not is_nullable(inner, self.layout.version)):
                self.note_null(start)
            keep(value)
            self.span(name, inner.type, start, value, inner)
            return
        present = inner.array or not is_nullable(inner, self.layout.version) or self.marker(inner)
        struct: Body | None = {} if present else None
        keep(struct)
        with self.container(name, "struct", start, struct, inner):
            if struct is not None:
                self.struct(inner.fields, struct)

    def array(self, inner: Field, start: int, keep: Keep) -> None:
        count = self.rewind_on_error(self.length, "array")
        values: list[Any] | None = [] if count >= 0 else None
        if values is None and not is_nullable(inner, self.layout.version):
            self.note_null(start)
        keep(values)
        with self.container(inner.name, f"[]{inner.type}", start, values, inner):
            if values is None:
                return
            # An impossible count stops at the last byte: the elements before it are shown.
            left = len(self.data) - self.pos
            each = element_bytes(inner, self.layout)
            for index in range(min(count, left)):
                self.spend(each)
                self.element(inner, index, values)
            if count > left:
                raise self.fault(Truncated, f"{count} elements declared, {left} bytes left")

    def element(self, inner: Field, index: int, values: list[Any]) -> None:
        try:
            self.value(inner, f"[{index}]", self.pos, values.append)
        except DecodeError:
            if len(values) > index and values[index] == {}:
                values.pop()
            raise

    def tag_buffer(self, known: dict[int, Field], body: Body, each: int) -> None:
        self.path.append(TAGS)
        start = self.pos
        count = self.rewind_on_error(self.uvarint)
        unknown: dict[int, bytes] = {}
        try:
            with self.container(TAGS, "tags", start, count, None):
                for _ in range(count):
                    self.spend(each)
                    self.tagged(known, body, unknown)
        finally:
            if unknown:
                body[TAGS] = unknown
        self.path.pop()

    def tagged(self, known: dict[int, Field], body: Body, unknown: dict[int, bytes]) -> None:
        start = self.pos
        tag, size = self.rewind_on_error(self.tag_head)
        stop = self.pos + size
        if tag not in known:
            raw = unknown[tag] = self.rewind_on_error(self.take, size)
            self.span(str(tag), "tag", start, raw, None)
            return
        self.path.pop()  # tagged fields have the same path as others
        self.named_field(known[tag], body, start)
        self.path.append(known[tag].name)
        if self.pos != stop:
            raise self.fault(Malformed, f"tag {tag} ends at byte {self.pos}, by its size at byte {stop}")
        self.path[-1] = TAGS

    def note_null(self, pos: int) -> None:
        self.result.nulls.setdefault(".".join(self.path), pos)

    # Spans

    def span(self, name: str, kind: str, start: int, value: Any, inner: Field | None) -> None:
        """Record the span from ``start`` to ``pos``."""
        if self.max_spans is None:
            return
        if len(self.result.spans) >= self.max_spans:
            self.pos = start  # bytes outside all spans might have to be redacted
            raise self.fault(Oversized, f"more than {self.max_spans:,} fields")
        path = ".".join(self.path)
        self.result.spans.append(Span(path, name, kind, start, self.pos - start, value, inner, self.depth))

    @contextmanager
    def container(self, name: str, kind: str, start: int, value: Any, inner: Field | None) -> Iterator[None]:
        """Record a span before those inside the ``with``, and set its length afterwards."""
        spans = self.result.spans
        index = len(spans)
        self.span(name, kind, start, value, inner)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            if self.max_spans is not None:
                spans[index] = spans[index]._replace(length=self.pos - start)

    # Bytes

    def rewind_on_error(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``read``. If it fails, ``pos`` returns to where it began."""
        start = self.pos
        try:
            return read(*arguments)
        except DecodeError:
            self.pos = start
            raise

    def spend(self, size: int) -> None:
        """Subtract the memory of the next element from the budget."""
        self.budget.left -= size
        if self.budget.left < 0:
            raise self.fault(Oversized, "the rest would exceed the limit decoded_bytes")

    def fault(self, sort: type[DecodeError], reason: str) -> DecodeError:
        return sort(reason, path=".".join(self.path), pos=self.pos)

    def take(self, size: int) -> bytes:
        left = len(self.data) - self.pos
        if size > left:
            raise self.fault(Truncated, f"{size} bytes needed, {max(left, 0)} left")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def fixed(self, code: str) -> Any:
        return unpack(f">{code}", self.take(calcsize(f">{code}")))[0]

    def uvarint(self) -> int:
        value = 0
        for index in range(UVARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise self.fault(Malformed, f"a varint of more than {UVARINT_BYTES} bytes")

    def tag_head(self) -> tuple[int, int]:
        return self.uvarint(), self.uvarint()

    def length(self, kind: str) -> int:
        """A length or count. -1 for null."""
        if self.layout.flexible and kind not in ALWAYS_OLD:
            return self.uvarint() - 1
        length: int = self.fixed(LENGTH[kind])
        if length < -1:
            raise self.fault(Malformed, f"a length of {length}")
        return length

    def marker(self, inner: Field) -> bool:
        """Whether a nullable struct is present (KIP-893)."""
        if is_tagged(inner, self.layout.version):
            return bool(self.rewind_on_error(self.uvarint))
        return bool(self.fixed("b") >= 0)

    def scalar(self, kind: str) -> Any:
        if kind in FIXED:
            value = self.fixed(FIXED[kind])
            return uuid_text(value) if kind == "uuid" else value
        return self.rewind_on_error(self.sized, kind)

    def sized(self, kind: str) -> Any:
        """A value with a length prefix."""
        length = self.length(kind)
        if length < 0:
            return None
        raw = self.take(2 * length if kind == "utf16" else length)
        if kind == "string" and length > LONGEST_STRING:
            raise self.fault(
                Malformed, f"a string of {length} bytes; the longest in Kafka is {LONGEST_STRING}"
            )
        if is_text(kind):
            self.spend(text_bytes(raw))
        if kind == "records":
            return RecordData(self.data, self.pos - length, self.pos)
        return raw if kind == "bytes" else _TEXT[kind](raw)


_TEXT = {"string": utf8, "string16": utf8, "jutf": modified_utf8, "utf16": utf16}
