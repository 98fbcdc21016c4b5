"""``CarriedRecord`` -> one line: when, in which api, where in the log, key, value, marks. Holds widths.

On a terminal a line is cut to its width, the value first; elsewhere nothing is cut. ``-`` stands for what is
absent or null, two blanks end a column. Bytes that are no text are shown by backslash escapes. Marks are the
schema and the trace that the record names, ``aborted``, and ``!`` before what was wrong with its batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.model import Embedded, Withheld
from kdissect.sinks.colours import BOLD, CYAN, FAINT, YELLOW, of_anomaly, paint
from kdissect.sinks.printable import ELLIPSIS, columns_of, cut, printable
from kdissect.sinks.values import json_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.kafka.internal.topics import Payload
    from kdissect.sinks.times import Times

ABSENT = "-"

_GAP = "  "
_HEADINGS = ("API", "PARTITION", "OFFSET", "KEY")
_LEAST = (7, 10, 6, 4)
_MOST = (13, 30, 20, 24)
_LEAST_VALUE = 8
_LEAST_MARK = 4
_WIDE = 120  # a terminal this wide shows a trace's id whole
_TRACE_CHARACTERS = 8

Mark = tuple[str, str]
"""A word behind the value, and its colour."""

_NAME = CYAN  # of marks that do not warn
_BYTES_PER_COLUMN = 4  # a character has no more in UTF-8: what is behind would be cut


class RecordTable:
    """Writes the lines.

    Args:
        out: where to; the caller owns and flushes it.
        times: writes the first column: the exchange's time.
        width: columns of the terminal, None where it is no terminal.
        colour: whether to colour.
        gap: stands between columns, for who replaces it; None: blanks.
    """

    def __init__(
        self,
        out: TextIO,
        times: Times,
        *,
        width: int | None = None,
        colour: bool = False,
        gap: str | None = None,
    ) -> None:
        self._write = out.write
        self._times = times
        self._width = width
        self._colour = colour
        self._most_bytes = None if width is None else width * _BYTES_PER_COLUMN
        self._widths = list(_LEAST)
        self._gap = gap or _GAP
        self._headed = width is None

    def feed(self, record: CarriedRecord) -> None:
        """Write one line."""
        carried = record.carried
        cells = [
            carried.exchange.api or ABSENT,
            carried.place or ABSENT,
            ABSENT if record.offset is None else str(record.offset),
            ABSENT if record.control else self._text(record.key),
        ]
        time = self._times.text(carried.exchange.time_ns)
        if not self._headed:
            self._headed = True
            head = self._line("TIME".ljust(len(time)), list(_HEADINGS), "VALUE", ())
            self._write((paint(head, FAINT) if self._colour else head) + "\n")
        value = f"control {record.control}" if record.control else self._text(record.value)
        self._write(self._line(time, cells, value, self._marks(record)) + "\n")

    def close(self) -> None:
        """Nothing is left to write: every line was complete."""

    @property
    def widths(self) -> list[int]:
        """Of the columns behind the time, as far as they have grown."""
        return self._widths

    def widen(self, widths: Sequence[int]) -> None:
        """Let the columns be at least as wide."""
        self._widths = [max(pair) for pair in zip(self._widths, widths, strict=True)]

    def _line(self, time: str, cells: list[str], value: str, marks: Sequence[Mark]) -> str:
        shown = [time, *(self._cell(index, printable(text)) for index, text in enumerate(cells))]
        value = printable(value)
        if self._width is not None:
            room = self._width - sum(map(columns_of, shown)) - len(_GAP) * len(shown)
            marks = _fitted(marks, room, min(_LEAST_VALUE, columns_of(value)))
            room -= sum(columns_of(mark) + len(_GAP) for mark, _ in marks)
            value = cut(value, room) if room >= min(_LEAST_VALUE, columns_of(value)) else ""
        if not (self._colour and marks):
            line = self._gap.join([*shown, *filter(None, (value, *(mark for mark, _ in marks)))]).rstrip()
            return line if self._width is None else cut(line, self._width)
        return self._gap.join([*shown, *filter(None, (value, *(paint(*mark) for mark in marks)))])

    def _marks(self, record: CarriedRecord) -> list[Mark]:
        marks: list[Mark] = []
        if (schema := record.key_schema) is not None:
            marks.append((f"key schema {schema}", _NAME))
        if (schema := record.schema) is not None:
            marks.append((f"schema {schema}", _NAME))
        if (trace := record.trace) is not None:
            marks.append((f"trace {printable(self._trace(trace.id))}", _NAME))
        batch = record.batch
        if batch.aborted:
            marks.append(("aborted", YELLOW))
        if batch.anomalies:
            kinds = dict.fromkeys(anomaly.kind for anomaly in batch.anomalies)
            marks += ((f"! {kind}", f"{BOLD};{of_anomaly(kind)}") for kind in kinds)
        return marks

    def _trace(self, trace_id: str) -> str:
        if self._width is None or self._width >= _WIDE or len(trace_id) <= _TRACE_CHARACTERS:
            return trace_id
        return trace_id[:_TRACE_CHARACTERS] + ELLIPSIS

    def _cell(self, index: int, text: str) -> str:
        """A text in its column, which grows up to its bound."""
        taken = columns_of(text)
        if taken > self._widths[index]:
            self._widths[index] = min(taken, _MOST[index])
            if self._width is not None and taken > _MOST[index]:
                text = cut(text, _MOST[index])
                taken = columns_of(text)
        return text + " " * (self._widths[index] - taken)

    def _text(self, payload: Payload) -> str:
        if isinstance(payload, bytes):
            return payload[: self._most_bytes].decode("utf-8", "backslashreplace") or '""'
        if isinstance(payload, Embedded):
            return json_bytes(payload.decoded).decode()
        return f"withheld ({payload.length} bytes)" if isinstance(payload, Withheld) else ABSENT


def _fitted(marks: Sequence[Mark], room: int, value: int) -> Sequence[Mark]:
    """Leave out the first ones, which say the least, until so much of the value fits, too; one that warns
    stays, if need be cut.
    """
    kept = list(marks)
    while kept and sum(columns_of(mark) + len(_GAP) for mark, _ in kept) > room - value:
        text, colour = kept.pop(0)
        if not kept and colour != _NAME:
            return [(cut(text, room), colour)] if room >= _LEAST_MARK else []
    return kept
