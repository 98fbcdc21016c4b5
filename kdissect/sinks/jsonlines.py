"""Exchange, record -> one JSON object a line, in UTF-8; holds what was not written yet: 64 KiB and a line.

A line ends at U+000A and nowhere else: U+2028 and the like can stand inside a string, control characters are
escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.sinks.columns import EXCHANGE, text_getter
from kdissect.sinks.values import json_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.analysis.carried import CarriedRecord
    from kdissect.model import Exchange
    from kdissect.sinks.columns import Column

_BUFFERED_BYTES = 64 * 1024


class JsonLines:
    """Writes exchanges, or rows of another table, keys in the order of the columns.

    Args:
        write: takes bytes; what it raises (a closed pipe) is the caller's.
        columns: which, in which order.
        flush_each: write every line at once, for somebody who watches.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        columns: Sequence[Column] = EXCHANGE,
        flush_each: bool = False,
    ) -> None:
        self._write = write
        self.getters = [(column.name, text_getter(column)) for column in columns]
        self._most_bytes = 0 if flush_each else _BUFFERED_BYTES
        self._held = bytearray()  # a list of lines to join takes half as long again for each of them

    def feed(self, row: Exchange | CarriedRecord) -> None:
        """Write one: what the columns are of."""
        self.add(json_line({name: get(row) for name, get in self.getters}))

    def add(self, lines: bytes) -> None:
        """Write what is a line already, or several."""
        if len(lines) > self._most_bytes:
            self.close()
            self._write(lines)
            return
        held = self._held
        held += lines
        if len(held) > self._most_bytes:
            self.close()

    def close(self) -> None:
        """Write what is still held; the file stays open, and more may follow."""
        if self._held:
            held = bytes(self._held)
            self._held.clear()
            self._write(held)
