"""Blocks of bytes of any size -> a window that slides over them, so that a parser sees units in one piece.

Holds the block that is being read plus, when a unit crosses blocks, the beginning of that unit: one unit and
one block at most. A unit that is announced but never arrives costs no more than what did arrive. To join the
two, all of the block would have to be copied: of a file on disk, what is left of a block is read again
together with the next, which takes half the time.

An empty block says that nothing more has come yet: only live captures have such (source.py).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kdissect.capture.source import Again


class Window:
    """The bytes of a stream that were read and not yet used.

    Args:
        blocks: of the stream.
        unit: what places are counted in.
        again: whether ``blocks`` gives again what it is asked for, see ``Source.blocks``.

    Attributes:
        data: those bytes; replaced by ``more`` and ``skip``, never changed in place.
        start: place in the stream of the first of them.
        waits: whether the last call of ``more`` failed only because nothing more has come yet.
    """

    __slots__ = ("_again", "_blocks", "_unit", "data", "start", "waits")

    def __init__(self, blocks: Iterator[bytes], unit: str = "byte", *, again: bool = False) -> None:
        self._blocks = blocks
        self._unit = unit
        self._again = again
        self.data = b""
        self.start = 0
        self.waits = False

    def more(self, pos: int, need: int) -> bool:
        """Forget what is before ``pos``, then read until ``need`` bytes are there.

        Returns:
            Whether they are. When not, ``data`` is what is left: the stream has ended, or it ``waits``.
        """
        self.start += pos
        self.waits = False
        left = len(self.data) - pos
        if self._again and self.data and left < need:
            try:
                self.data = cast("Generator[bytes, Again, None]", self._blocks).send((left, need))
            except StopIteration:
                self.data = self.data[pos:]
            return len(self.data) >= need
        pieces = [self.data[pos:]]
        size = left
        while size < need:
            block = next(self._blocks, None)
            if not block:
                self.waits = block is not None
                break
            pieces.append(block)
            size += len(block)
        self.data = b"".join(pieces)
        return size >= need

    def wait_for(self, need: int) -> bool:
        """Read until ``need`` bytes are there, however long that takes; False when the stream ends before."""
        while not self.more(0, need):
            if not self.waits:
                return False
        return True

    def skip(self, count: int) -> bool:
        """Forget the next ``count`` bytes without holding them; False when the stream ends before."""
        while count > len(self.data):
            count -= len(self.data)
            self.start += len(self.data)
            block = next(self._blocks, None)
            self.data = block or b""
            if block is None:
                return False
        self.start += count
        self.data = self.data[count:]
        return True

    def rest(self) -> Iterator[bytes]:
        """All that is left, in blocks; the window is of no use afterwards."""
        return filter(None, chain([self.data], self._blocks))

    def place(self, pos: int) -> str:
        """Where in the stream the byte at ``pos`` stands, in words."""
        return f"{self._unit} {self.start + pos}"
