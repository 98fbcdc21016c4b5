"""``CarriedRecord`` -> one line: when, in which api, where in the log, key, value. Holds column widths.

On a terminal a line is cut to its width; elsewhere nothing is cut. ``-`` stands for what is absent or null,
two blanks end a column. Bytes that are no text are shown by backslash escapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.model import Embedded, Withheld
from kdissect.sinks.printable import columns_of, cut, printable
from kdissect.sinks.values import json_bytes

if TYPE_CHECKING:
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
_BYTES_PER_COLUMN = 4  # a character has no more in UTF-8: what is behind would be cut


class RecordTable:
    """Writes the lines.

    Args:
        out: where to; the caller owns and flushes it.
        times: writes the first column: the exchange's time.
        width: columns of the terminal, None where it is no terminal.
    """

    def __init__(self, out: TextIO, times: Times, *, width: int | None = None) -> None:
        self._write = out.write
        self._times = times
        self._width = width
        self._most_bytes = None if width is None else width * _BYTES_PER_COLUMN
        self._widths = list(_LEAST)
        self._headed = width is None

    def feed(self, record: CarriedRecord) -> None:
        """Write one line."""
        carried = record.carried
        cells = [
            carried.exchange.api or ABSENT,
            _place(record),
            ABSENT if record.offset is None else str(record.offset),
            ABSENT if record.control else self._text(record.key),
        ]
        time = self._times.text(carried.exchange.time_ns)
        if not self._headed:
            self._headed = True
            self._line("TIME".ljust(len(time)), list(_HEADINGS), "VALUE")
        value = f"control {record.control}" if record.control else self._text(record.value)
        self._line(time, cells, value, "aborted" if record.batch.aborted else "")

    def close(self) -> None:
        """Nothing is left to write: every line was complete."""

    def _line(self, time: str, cells: list[str], value: str, mark: str = "") -> None:
        shown = [time, *(self._cell(index, printable(text)) for index, text in enumerate(cells))]
        value = printable(value)
        if self._width is not None:
            room = self._width - sum(map(columns_of, shown)) - len(_GAP) * len(shown)
            room -= len(mark) + len(_GAP) if mark else 0
            value = cut(value, room) if room >= _LEAST_VALUE else ""
        line = _GAP.join([*shown, *filter(None, (value, mark))]).rstrip()
        self._write((line if self._width is None else cut(line, self._width)) + "\n")

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


def _place(record: CarriedRecord) -> str:
    """Topic and partition as Kafka's own tools write them: ``orders-1``."""
    carried = record.carried
    topic = next(iter(carried.names), ABSENT)
    return topic if carried.partition is None else f"{topic}-{carried.partition}"
