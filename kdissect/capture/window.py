"""Blocks of bytes of any size -> a sliding window, in which a parser sees each unit in one piece.

Memory: the current block, and the beginning of a unit that crosses blocks: one unit and one block at most. A
length field alone allocates nothing. Joining the two copies the block. In a file on disk, the rest of a block
is instead read again together with the next block, which takes half the time.

An empty block means that nothing more has arrived yet; only live sources yield them (ongoing.py).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kdissect.capture.source import Rewind


class Window:
    """The bytes of a stream that were read and not yet consumed.

    Args:
        blocks: of the stream.
        unit: name of the unit of positions in error messages.
        again: whether ``blocks`` can read bytes again, see ``Source.blocks``.

    Attributes:
        data: the bytes; replaced by ``more`` and ``skip``, never changed in place.
        start: position of the first of them in the stream.
        waits: whether the last call of ``more`` failed only because nothing more has arrived yet.
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
        """Drop the bytes before ``pos``, then read until there are ``need`` bytes.

        Returns:
            Whether there are. If not, ``data`` is the rest: the stream has ended, or it ``waits``.
        """
        self.start += pos
        self.waits = False
        left = len(self.data) - pos
        if self._again and self.data and left < need:
            try:
                self.data = cast("Generator[bytes, Rewind, None]", self._blocks).send((left, need))
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
        """Read until there are ``need`` bytes, however long that takes; False if the stream ends before."""
        while not self.more(0, need):
            if not self.waits:
                return False
        return True

    def skip(self, count: int) -> bool:
        """Skip the next ``count`` bytes without keeping them; False if the stream ends before."""
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
        """The rest of the stream in blocks. The window must not be used afterwards."""
        return filter(None, chain([self.data], self._blocks))

    def place(self, pos: int) -> str:
        """Position in the stream of the byte at ``pos``, for messages."""
        return f"{self._unit} {self.start + pos}"
