"""Blocks of bytes of any size -> a window that slides over them, so that a parser sees units in one piece.

Holds the block that is being read plus, when a unit crosses blocks, the beginning of that unit: one unit and
one block at most. A unit that is announced but never arrives costs no more than what did arrive.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Window:
    """The bytes of a stream that were read and not yet used.

    Attributes:
        data: those bytes; replaced by ``more`` and ``skip``, never changed in place.
        start: place in the stream of the first of them.
    """

    __slots__ = ("_blocks", "_unit", "data", "start")

    def __init__(self, blocks: Iterator[bytes], unit: str = "byte") -> None:
        self._blocks = blocks
        self._unit = unit
        self.data = b""
        self.start = 0

    def more(self, pos: int, need: int) -> bool:
        """Forget what is before ``pos``, then read until ``need`` bytes are there.

        Returns:
            Whether they are. When not, the stream has ended, and ``data`` is what is left of it.
        """
        self.start += pos
        pieces = [self.data[pos:]]
        size = len(pieces[0])
        while size < need:
            block = next(self._blocks, b"")
            if not block:
                break
            pieces.append(block)
            size += len(block)
        self.data = b"".join(pieces)
        return size >= need

    def skip(self, count: int) -> bool:
        """Forget the next ``count`` bytes without holding them; False when the stream ends before."""
        while count > len(self.data):
            count -= len(self.data)
            self.start += len(self.data)
            self.data = next(self._blocks, b"")
            if not self.data:
                return False
        self.start += count
        self.data = self.data[count:]
        return True

    def rest(self) -> Iterator[bytes]:
        """All that is left, in blocks; the window is of no use afterwards."""
        return chain([self.data], self._blocks)

    def place(self, pos: int) -> str:
        """Where in the stream the byte at ``pos`` stands, in words."""
        return f"{self._unit} {self.start + pos}"
