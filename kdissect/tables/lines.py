"""Exchanges and records -> JSON lines and CSV, in UTF-8. Holds what was not written yet: 64 KiB and a line.

JSON lines: one object per line. Only U+000A ends a line: U+2028 and the like can occur in strings, control
characters are escaped.
"""

from __future__ import annotations

import csv
from codecs import iterdecode
from functools import lru_cache
from io import StringIO
from itertools import chain, repeat
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from orjson import Fragment, dumps, loads

from kdissect.kafka.recordbatch import native_records
from kdissect.phrases import printable
from kdissect.tables.columns import (
    EXCHANGE,
    FIELD,
    NO_TIMESTAMP,
    OBJECT,
    RECORD,
    STRING,
    Array,
    Struct,
    converted,
    text_getter,
)
from kdissect.tables.native_rows import (
    RecordText,
    are_known,
    are_of_records,
    json_cell,
    record_plan,
    row_plan,
)
from kdissect.tables.values import json_bytes, json_line, second_text, text_and_encoding, timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from kdissect.exchanges.partition_records import CarriedRecord, DecodedBatch
    from kdissect.kafka.recordbatch import Record
    from kdissect.model import Exchange
    from kdissect.sinks.plan import PlanContext, RecordPlan, RowPlan
    from kdissect.tables.columns import Column, Getter


_BUFFERED_BYTES = 64 * 1024


def json_row(exchange: Exchange) -> dict[str, Any]:
    """What the line of an exchange says."""
    row: dict[str, Any] = loads(
        json_line({column.name: text_getter(column)(exchange) for column in EXCHANGE})
    )
    return row


class JsonLines:
    """Writes exchanges, or rows of another table, keys in the order of the columns.

    Args:
        write: takes bytes; its exceptions (a closed pipe) pass to the caller.
        columns: which, in which order.
        flush_each: write every line immediately.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        columns: Sequence[Column] = EXCHANGE,
        flush_each: bool = False,
    ) -> None:
        self._write = write
        self._columns = columns
        self.getters = [(column.name, text_getter(column)) for column in columns]
        self._max_bytes = 0 if flush_each else _BUFFERED_BYTES
        self._held = bytearray()  # joining a list of lines takes 50% longer per line

    def feed(self, row: Exchange | CarriedRecord) -> None:
        """Write one row."""
        self.add(json_line({name: get(row) for name, get in self.getters}))

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """What the native core must know to write the same lines; None: it does not know all columns."""
        return self._core_plan if are_known(self._columns) else None

    @property
    def heads(self) -> list[str]:
        """What stands before each column."""
        return [f'{"," if place else "{"}"{column.name}":' for place, column in enumerate(self._columns)]

    @property
    def record_text(self) -> RecordText:
        """How the native core writes the columns of records."""
        return RecordText(
            self._columns,
            self.heads,
            "}\n",
            "json",
            json_cell,
            lambda value: json_bytes(value).decode(),
            OPTIONAL,
            {},
        )

    @property
    def room(self) -> int:
        """Bytes that can be added before lines are written."""
        return self._max_bytes - len(self._held)

    def _core_plan(self, context: PlanContext) -> RowPlan:
        return row_plan(context, self._columns, json_cell, self.heads, "}\n", "json")

    def add(self, lines: bytes) -> None:
        """Write complete lines."""
        if len(lines) > self._max_bytes:
            self.close()
            self._write(lines)
            return
        held = self._held
        held += lines
        if len(held) > self._max_bytes:
            self.close()

    def close(self) -> None:
        """Write what is held; the file stays open, and more rows may follow."""
        if self._held:
            held = bytes(self._held)
            self._held.clear()
            self._write(held)


# ------------------------------------------------------------------------------------------------------------
# Records -> JSON lines. Holds a template and the lines of 64 records.
#
# Most columns have the same value in all records of a batch. So the text between the columns that differ is
# written once per batch, as a template; the columns that differ are written for many records at once, column
# by column, and joined with it. Columns from headers and schemas are read only for records that have any.
# ------------------------------------------------------------------------------------------------------------


PER_RECORD = ("offset", "timestamp", "key", "key_encoding", "value", "value_encoding")
"""The columns that differ between the records of a batch."""

OPTIONAL = (
    "key_schema_id",
    "key_schema_guid",
    "schema_id",
    "schema_guid",
    "headers",
    "trace_id",
    "span_id",
    "trace_format",
)
"""The columns after them, which are null unless a record has headers, or a key or value that begins with a
zero byte."""

_WORTH_A_TEMPLATE = 3
"""Records; a template takes nearly as long as writing two of them column by column."""

_CHUNK = 64
"""Records whose lines are made together; twice as many do not fit the processor's cache."""

_NOT_JOINED = b'"e2e_latency_us":null,"also_in":null'
"""Occurs nowhere else in a line: quotes are escaped in strings."""

_SEAM = b"\n"
"""Never occurs in a line: it is escaped in strings."""


def joined_lines(lines: bytes, e2e_latency_us: int | None, also_in: str | None) -> bytes:
    """Lines of records with these values."""
    values = json_bytes({"e2e_latency_us": e2e_latency_us, "also_in": also_in})[1:-1]
    return lines.replace(_NOT_JOINED, values)


class RecordLines(JsonLines):
    """Writes records, one by one or in batches.

    Args:
        write: takes bytes; its exceptions (a closed pipe) pass to the caller.
        flush_each: write every line immediately.
        columns: which; those of a table are more.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        flush_each: bool = False,
        columns: Sequence[Column] = RECORD,
    ) -> None:
        super().__init__(write, columns=columns, flush_each=flush_each)
        self.row_mark = b"\n"
        self._optional_getters = [(name, get) for name, get in self.getters if name in OPTIONAL]

    def plan_of_core(self, context: PlanContext) -> RecordPlan:
        """What the native core must know to write the same lines."""
        return record_plan(context, self.record_text, is_table=self._columns is not RECORD)

    def fill(self, lines: bytes, e2e_latency_us: int | None, also_in: str | None) -> bytes:
        """Lines of the core with these values."""
        return joined_lines(lines, e2e_latency_us, also_in)

    def feed_batch(self, records: DecodedBatch) -> None:
        """Write all records of a batch."""
        if not records.are_plain or len(records) < _WORTH_A_TEMPLATE:
            for record in records:
                self.feed(record)
            return
        plain_record = records.plain(0)._replace(key=None, value=None, headers=())
        between = self._template(plain_record)
        empty_optional = self._optional(plain_record)
        for start in range(0, len(records), _CHUNK):
            self.add(self._lines(records, start, between, empty_optional))

    def _template(self, record: CarriedRecord) -> list[bytes]:
        """The text before, between and after the columns ``PER_RECORD``."""
        seam = Fragment(_SEAM)
        line = {name: seam if name in PER_RECORD else get(record) for name, get in self.getters}
        return (json_bytes(line) + b"\n").split(_SEAM, len(PER_RECORD))

    def _optional(self, record: CarriedRecord) -> bytes:
        return b"," + json_bytes({name: get(record) for name, get in self._optional_getters})[1:-1]

    def _lines(
        self, records: DecodedBatch, start: int, between: Sequence[bytes], empty_optional: bytes
    ) -> bytes:
        """The lines of a chunk of records from ``start`` on; ``empty_optional``: the text of null
        ``OPTIONAL`` columns.
        """
        rest = between[6].removeprefix(empty_optional)
        append_ms = records.source.log_append_time_ms
        if (native := native_records(records.batch.records)) is not None:
            lines = native.json_lines(
                start,
                start + _CHUNK,
                between,
                records.source.offsets_known,
                None if append_ms is None else _time(append_ms),
                second_text,
                lambda index: self._optional(records.plain(index)) + rest,
            )
            if lines is not None:
                return lines
        rows = records.batch.records[start : start + _CHUNK]
        offsets, times_ms, keys, values, _ = zip(*rows, strict=True)
        have_more = have_optional(rows)
        tails: Iterable[bytes] = repeat(between[6])
        if any(have_more):
            tails = [
                (self._optional(records.plain(index)) if more else empty_optional) + rest
                for index, more in enumerate(have_more, start)
            ]
        pieces = zip(
            repeat(between[0]),
            dumps(offsets)[1:-1].split(b",") if records.source.offsets_known else repeat(b"null"),
            repeat(between[1]),
            map(_time, times_ms) if append_ms is None else repeat(_time(append_ms)),
            repeat(between[2]),
            *_texts_and_encodings(keys, between[3]),
            repeat(between[4]),
            *_texts_and_encodings(values, between[5]),
            tails,
        )  # fmt: skip
        return b"".join(chain.from_iterable(pieces))


def have_optional(records: Sequence[Record]) -> list[bool]:
    """For each record: whether its ``OPTIONAL`` columns may have values."""
    return [
        bool(headers or (key and not key[0]) or (value and not value[0]))
        for _, _, key, value, headers in records
    ]


def _texts_and_encodings(
    payloads: Sequence[bytes | None], between: bytes
) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """The texts, and what follows each: ``between`` and the encoding, see ``values.text_and_encoding``."""
    try:
        return list(map(dumps, map(bytes.decode, payloads))), repeat(between + b'"utf-8"')  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):  # one is null, or not UTF-8
        texts, encodings = zip(*map(text_and_encoding, payloads), strict=True)
        return map(dumps, texts), [between + dumps(encoding) for encoding in encodings]


@lru_cache(1000)  # the milliseconds of a second
def _time(time_ms: int | None) -> bytes:
    if time_ms is None or time_ms == NO_TIMESTAMP:
        return b"null"
    return b'"%b"' % timestamp(time_ms * 1_000_000).encode()


# ------------------------------------------------------------------------------------------------------------
# Batch of records -> the values of a table's columns, column by column. Stateless; the result is as large as
# the batch. Columns that are the same in the whole batch are read once.
# ------------------------------------------------------------------------------------------------------------


_PER_RECORD = frozenset((*PER_RECORD, "timestamp_ms"))  # which only exports have


class RecordValues:
    """Reads the columns of records, batch by batch.

    Args:
        getters: name of each column, and how to read it.
    """

    def __init__(self, getters: Iterable[tuple[str, Getter]]) -> None:
        self._getters = list(getters)

    def of(self, records: DecodedBatch) -> list[list[Any]]:
        """The values of each column in a batch of plain records; a single one if all records have the
        same.
        """
        each = list(records)
        plain_record = each[0]._replace(key=None, value=None, headers=())
        have_more = have_optional(records.batch.records)
        columns = []
        for name, get in self._getters:
            if name in _PER_RECORD:
                values = list(map(get, each))
            else:
                values = [get(plain_record)]
                if name in OPTIONAL and any(have_more):
                    empty_optional = values[0]
                    values = [
                        get(record) if more else empty_optional
                        for record, more in zip(each, have_more, strict=True)
                    ]
            columns.append(values)
        return columns

    def rows(self, records: DecodedBatch) -> Iterable[tuple[Any, ...]]:
        """The same values row by row."""
        count = len(records)
        return zip(
            *(values if len(values) == count else values * count for values in self.of(records)), strict=True
        )


# ------------------------------------------------------------------------------------------------------------
# Exchanges and records -> CSV, in UTF-8. Holds what was not written yet: up to 64 Ki characters and a line;
# 64 Ki characters of a cell that is longer.
#
# RFC 4180: a header line, commas, doubled quotes, CR LF. An absent value is empty, and so is an empty string;
# only JSON lines distinguish them. Arrays of strings are joined by ``;``, objects, structs and arrays of
# structs are JSON. Text that a spreadsheet would treat as a formula (``=...``) is unchanged, and so are
# terminal control sequences, unless the output is a terminal.
# ------------------------------------------------------------------------------------------------------------


SEPARATOR = ";"

_BUFFERED_CHARACTERS = 64 * 1024
_LONG_CELL = 64 * 1024  # characters, or bytes of JSON; the csv module takes nine times the length of these


class CsvLines:
    """Writes exchanges, or rows of another table, columns in order. The header line is written even if no row
    follows.

    Args:
        write: takes bytes; its exceptions (a closed pipe) pass to the caller.
        columns: which, in which order.
        flush_each: write every line immediately.
        is_terminal: escape what is not printable.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        columns: Sequence[Column] = EXCHANGE,
        flush_each: bool = False,
        is_terminal: bool = False,
    ) -> None:
        self._write = write
        self._columns = columns
        self._is_terminal = is_terminal
        self._cells = [_cell_of(column) for column in columns]
        self._max_characters = 0 if flush_each else _BUFFERED_CHARACTERS
        self._text = StringIO(newline="")
        self._csv = csv.writer(self._text)
        self._csv.writerow([column.name for column in columns])

    def feed(self, row: Exchange | CarriedRecord) -> None:
        """Write one row."""
        cells = [cell(row) for cell in self._cells]
        if max(map(getsizeof, cells)) > _LONG_CELL:
            self._feed_long(cells)
            return
        self._csv.writerow(printable_cells(cells) if self._is_terminal else cells)
        if self._text.tell() > self._max_characters:
            self.close()

    @property
    def _heads(self) -> list[str]:
        """What stands before each column."""
        return ["," if place else "" for place in range(len(self._columns))]

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """What the native core must know to write the same lines; None: it does not know all columns, or
        quotes a row differently.
        """
        return self._core_plan if are_known(self._columns) and not self._is_terminal else None

    def _core_plan(self, context: PlanContext) -> RowPlan:

        def cell(column: Column, row: Exchange) -> str:
            return self._cell(_cell_of(column)(row)).decode()

        return row_plan(context, self._columns, cell, self._heads, "\r\n", "csv")

    @property
    def record_text(self) -> RecordText | None:
        """How the native core writes the columns of records; None: it quotes a row differently."""
        if self._is_terminal:
            return None

        def cell(column: Column, row: Any) -> str:
            return self._cell(_cell_of(column)(row)).decode()

        def value(value: Any) -> str:
            return self._cell(_json(value) if isinstance(value, list) else value).decode()

        marks = {"": _ROW}
        return RecordText(self._columns, self._heads, "\r\n", "csv", cell, value, OPTIONAL, marks)

    def add(self, lines: bytes) -> None:
        """Write complete lines."""
        self.close()
        self._write(lines)

    def _cell(self, cell: Any) -> bytes:
        """A cell; alone in its row, it has quotes if it is empty."""
        self.close()
        before = (None,) if len(self._columns) > 1 else ()
        self._csv.writerow((*before, *(printable_cells((cell,)) if self._is_terminal else (cell,))))
        return self._take().removeprefix(b",").removesuffix(b"\r\n")

    def _feed_long(self, cells: list[Any]) -> None:
        """Write a row with long cells; these are written in pieces, without the csv module."""
        self.close()
        write = self._write
        separator = b""
        for cell in cells:
            write(separator)
            separator = b","
            if isinstance(cell, str | bytes) and len(cell) > _LONG_CELL:
                self._write_long(cell)
            else:
                write(self._cell(cell))
        write(b"\r\n")

    def _write_long(self, cell: str | bytes) -> None:
        pieces: Any = (cell[start : start + _LONG_CELL] for start in range(0, len(cell), _LONG_CELL))
        if isinstance(cell, bytes):
            quote = b'"'  # JSON of this length has quotes or commas
            pieces = iterdecode(pieces, "utf-8")
        else:
            special = ',"' if self._is_terminal else ',"\r\n'  # line breaks become escapes there
            quote = b'"' if any(character in cell for character in special) else b""
        self._write(quote)
        for piece in pieces:
            shown = printable(piece) if self._is_terminal else piece
            self._write(shown.replace('"', '""').encode())
        self._write(quote)

    def close(self) -> None:
        """Write what is held; the file stays open, and more rows may follow."""
        if self._text.tell():
            self._write(self._take())

    def _take(self) -> bytes:
        held = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return held.encode()


def printable_cells(cells: Iterable[Any]) -> list[Any]:
    """Make a row safe for a terminal: strings are escaped, including line breaks."""
    return [printable(cell) if isinstance(cell, str) else cell for cell in cells]


def _cell_of(column: Column) -> Callable[[Any], Any]:
    """How to read a column as a string, as bytes of UTF-8 if it is long, or as a type of the csv module."""
    if column.type == Array(STRING):
        return converted(column, SEPARATOR.join)
    if column.type == OBJECT or isinstance(column.type, Array | Struct):
        return converted(column, _json)
    return converted(column, _field) if column.type == FIELD else text_getter(column)


def _field(value: Any) -> Any:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, list) and not any(isinstance(element, dict | list) for element in value):
        return SEPARATOR.join("" if element is None else str(_field(element)) for element in value)
    return _json(value)


# ------------------------------------------------------------------------------------------------------------
# Exchanges and records -> values separated by tabs, as tshark's ``-T fields``. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


class FieldLines:
    """Writes some columns of exchanges or records, as in CSV but without a heading or quotes: unprintable
    characters are escaped, so that a tab always separates two values.

    Args:
        out: takes text.
        columns: which, in which order.
        time_text: how to write ``time``; None: ISO 8601.
        heading: write the names first.
    """

    def __init__(
        self,
        out: TextIO,
        columns: Sequence[Column],
        time_text: Callable[[int], str] | None = None,
        *,
        heading: bool = False,
    ) -> None:
        self._write = out.write
        if heading:
            self._write("\t".join(column.name for column in columns) + "\n")
        self._columns = columns
        self._has_other_times = time_text is not None and any(column.name == "time" for column in columns)
        self._cells = [
            converted(column, time_text) if time_text and column.name == "time" else _cell_of(column)
            for column in columns
        ]

    def feed(self, row: Exchange | CarriedRecord) -> None:
        """Write one row."""
        self._write("\t".join(_field_text(cell(row)) for cell in self._cells) + "\n")

    @property
    def core_plan(self) -> Callable[[PlanContext], RowPlan] | None:
        """What the native core must know to write the same lines; None: it does not know all columns."""
        return self._core_plan if are_known(self._columns) and not self._has_other_times else None

    def _core_plan(self, context: PlanContext) -> RowPlan:
        def cell(column: Column, row: Exchange) -> str:
            return _field_text(_cell_of(column)(row))

        return row_plan(context, self._columns, cell, self._heads, "\n", "fields")

    @property
    def record_text(self) -> RecordText | None:
        """How the native core writes the columns of records; None: it writes other times."""
        if self._has_other_times:
            return None

        def cell(column: Column, row: Any) -> str:
            return _field_text(_cell_of(column)(row))

        def value(value: Any) -> str:
            return _field_text(_json(value) if isinstance(value, list) else value)

        return RecordText(self._columns, self._heads, "\n", "fields", cell, value, OPTIONAL, {})

    @property
    def _heads(self) -> list[str]:
        """What stands before each column."""
        return ["\t" if place else "" for place in range(len(self._columns))]

    def add(self, lines: bytes) -> None:
        """Write complete lines."""
        self._write(lines.decode())

    def close(self) -> None:
        """Nothing is held."""


# ------------------------------------------------------------------------------------------------------------
# Records -> rows of their columns, by one of the writers above. Holds what it does.
#
# Values that come from other exchanges are filled in later: bytes that never occur in UTF-8 mark their places
# in what the native core writes.
# ------------------------------------------------------------------------------------------------------------


_ROW = b"\xff"
_EMPTY_ROW = _ROW + b"\r\n"
"""Of CSV, without any cell that is not empty, nor a comma."""
_JOINED_LATER = {"e2e_latency_us": b"\xfe", "also_in": b"\xfd"}


class RecordColumns:
    """What the native core writes in the place of a writer of columns of records.

    Args:
        writer: writes them.
    """

    def __init__(self, writer: JsonLines | CsvLines | FieldLines) -> None:
        text = writer.record_text
        self._text = text if text is not None and are_of_records(text.columns, OPTIONAL) else None
        self._add = writer.add
        names = () if text is None else [column.name for column in text.columns]
        self._marks = {name: mark for name, mark in _JOINED_LATER.items() if name in names}
        self.row_mark = b"\n" if text is None else text.marks.get("", b"\n")

    @property
    def plan_of_core(self) -> Callable[[PlanContext], RecordPlan] | None:
        """What the native core must know to write the same rows; None: it does not."""
        return None if self._text is None else self._plan

    def _plan(self, context: PlanContext) -> RecordPlan:
        assert self._text is not None
        return record_plan(context, self._text._replace(marks={**self._text.marks, **self._marks}))

    def fill(self, lines: bytes, e2e_latency_us: int | None, also_in: str | None) -> bytes:
        """Rows of the core with these values."""
        assert self._text is not None
        values: dict[str, Any] = {"e2e_latency_us": e2e_latency_us, "also_in": also_in}
        for name, mark in self._marks.items():
            lines = lines.replace(mark, self._text.value(values[name]).encode())
        return lines

    def add(self, lines: bytes) -> None:
        """Write rows of the core."""
        lines = self.fill(lines, None, None)
        if self.row_mark == _ROW:
            lines = lines.replace(_EMPTY_ROW, b'""\r\n').replace(_ROW, b"")
        self._add(lines)


def _field_text(value: Any) -> str:
    if value is None:
        return ""
    text = value.decode() if isinstance(value, bytes) else str(value)
    return printable(text.lower() if isinstance(value, bool) else text)


def _json(value: Any) -> str | bytes:
    data = json_bytes(value)
    return data if len(data) > _LONG_CELL else data.decode()
