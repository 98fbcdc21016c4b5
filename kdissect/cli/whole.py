"""Ctrl-C at any time -> between two rows, so that what belongs together is written together. Holds whether it
was pressed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kdissect.cli.terminal import ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import FrameType

Row = TypeVar("Row")


class Whole:
    """Wraps functions that are not to be interrupted.

    While one of them works Ctrl-C waits; while the capture is read, which may take for ever on a quiet
    interface, it does not.
    """

    def __init__(self) -> None:
        self._is_busy = self._was_pressed = False

    def __call__(self, feed: Callable[[Row], object]) -> Callable[[Row], None]:
        """The same function, done before it is interrupted."""

        def fed(row: Row) -> None:
            self._is_busy = True
            try:
                feed(row)
            finally:
                self._is_busy = False
            if self._was_pressed:
                raise KeyboardInterrupt

        return fed

    def listening(self) -> AbstractContextManager[None]:
        """Take Ctrl-C over meanwhile."""
        return ctrl_c(self.press)

    def press(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-C was pressed.

        Raises:
            KeyboardInterrupt: nothing is being done that has to be whole.
        """
        if not self._is_busy:
            raise KeyboardInterrupt
        self._was_pressed = True
