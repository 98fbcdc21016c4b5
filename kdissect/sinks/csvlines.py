"""Exchange, record -> one line of CSV, in UTF-8; holds what was not written yet: up to 64 Ki characters and a
line; of a line with a longer cell 64 Ki characters of that.

RFC 4180: a header line, commas, doubled quotes, CR LF. An absent value is empty, as is an empty text: who
must tell them apart reads JSON lines. Arrays of texts are joined by ``;``, objects and arrays of structs are
JSON. A text that a spreadsheet would take for a formula (``=...``) stays as it was on the wire, and so does
whatever a terminal would obey, unless that is where the lines go.
"""

from __future__ import annotations

import csv
from codecs import iterdecode
from io import StringIO
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from kdissect.sinks.columns import EXCHANGE, text_getter
from kdissect.sinks.printable import printable
from kdissect.sinks.types import OBJECT, STRING, Array
from kdissect.sinks.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.model import Exchange
    from kdissect.sinks.columns import Column
    from kdissect.sinks.types import Type

SEPARATOR = ";"

_BUFFERED_CHARACTERS = 64 * 1024
_LONG_CELL = 64 * 1024  # characters, or bytes of JSON; for these the csv module takes nine times their length


class CsvLines:
    """Writes exchanges, or rows of another table, columns in their order; the header line goes first, even if
    no row follows.

    Args:
        write: takes bytes; what it raises (a closed pipe) is the caller's.
        columns: which, in which order.
        flush_each: write every line at once, for somebody who watches.
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
        self._is_terminal = is_terminal
        self._cells = [_cell_of(column) for column in columns]
        self._most_characters = 0 if flush_each else _BUFFERED_CHARACTERS
        self._text = StringIO(newline="")
        self._csv = csv.writer(self._text)
        self._csv.writerow([column.name for column in columns])

    def feed(self, row: Exchange | CarriedRecord) -> None:
        """Write one: what the columns are of."""
        cells = [cell(row) for cell in self._cells]
        if max(map(getsizeof, cells)) > _LONG_CELL:
            self._feed_long(cells)
            return
        self._csv.writerow(printable_cells(cells) if self._is_terminal else cells)
        if self._text.tell() > self._most_characters:
            self.close()

    def _feed_long(self, cells: list[Any]) -> None:
        """The same for a row with long cells: these are written in pieces, past the csv module."""
        self.close()
        write = self._write
        separator = b""
        for cell in cells:
            write(separator)
            separator = b","
            if isinstance(cell, str | bytes) and len(cell) > _LONG_CELL:
                self._write_long(cell)
            else:
                self._csv.writerow((None, *(printable_cells((cell,)) if self._is_terminal else (cell,))))
                write(self._taken().removeprefix(b",").removesuffix(b"\r\n"))
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
        """Write what is still held; the file stays open, and more may follow."""
        if self._text.tell():
            self._write(self._taken())

    def _taken(self) -> bytes:
        held = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return held.encode()


def printable_cells(cells: Iterable[Any]) -> list[Any]:
    """Make a row safe for a terminal: its texts are escaped, line breaks too."""
    return [printable(cell) if isinstance(cell, str) else cell for cell in cells]


def _cell_of(column: Column) -> Callable[[Any], Any]:
    get = text_getter(column)
    to_text = _text_of(column.type)
    if to_text is None:
        return get

    def cell(row: Any) -> str | bytes | None:
        value = get(row)
        return None if value is None else to_text(value)

    return cell


def _text_of(kind: Type) -> Callable[[Any], str | bytes] | None:
    """How a value of this type becomes a text, a long one in UTF-8; None where the csv module knows."""
    if kind == Array(STRING):
        return SEPARATOR.join
    if kind == OBJECT or isinstance(kind, Array):
        return _json
    return None


def _json(value: Any) -> str | bytes:
    data = json_bytes(value)
    return data if len(data) > _LONG_CELL else data.decode()
