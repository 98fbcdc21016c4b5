"""Lines -> a terminal's other screen, and what is typed -> keys. Holds the lines that stand there.

Only lines that have changed are written, which is little even over a slow line. What the terminal was like
before is put back by ``leave``, whatever happened meanwhile.
"""

from __future__ import annotations

import os
import re
import select
import termios
import tty
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # other screen, no cursor, no wrapping, empty
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
_USUAL = (80, 24)
_ESCAPE_S = 0.05  # what an escape begins comes at once, or soon over ssh
_BLOCK = 256
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[Z": "backtab",
    "\x1b": "escape",
    "\t": "tab",
    "\x0c": "redraw",
}


def keys_in(typed: bytes) -> list[str]:
    """Characters, and names of keys that have none."""
    text = typed.decode("utf-8", "replace").replace("\x1bO", "\x1b[")
    return [_NAMES.get(key, key) for key in _KEY.findall(text)]


def open_keyboard() -> int | None:
    """Where keys come from: stdin may be what is captured, so the terminal itself; None: there is none."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None


class Screen:
    """A terminal.

    Args:
        out: its file descriptor.
        keyboard: that of its keys; None: there are none.
        colour: whether lines keep their colours.
        encoding: what it takes; what that lacks is a question mark.
    """

    def __init__(self, out: int, keyboard: int | None, *, colour: bool, encoding: str = "utf-8") -> None:
        from rich.console import Console

        self._out = out
        self._keyboard = keyboard
        self._encoding = encoding
        self._before = None if keyboard is None else termios.tcgetattr(keyboard)
        self._lines: list[str] = []
        self._size = (0, 0)
        self._page = StringIO()
        self._console = Console(
            file=self._page,
            force_terminal=True,
            color_system="standard",
            no_color=not colour,
            highlight=False,
            legacy_windows=False,
        )

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; what is usual where the terminal does not know."""
        columns, lines = os.get_terminal_size(self._out)
        return columns or _USUAL[0], lines or _USUAL[1]

    @property
    def has_changed(self) -> bool:
        """Whether its size has, since lines were shown."""
        return self.size != self._size

    def enter(self) -> None:
        """Begin."""
        if self._keyboard is not None:
            tty.setcbreak(self._keyboard, termios.TCSANOW)
            mode = termios.tcgetattr(self._keyboard)
            mode[0] &= ~termios.IXON  # or Ctrl-S would stop it
            termios.tcsetattr(self._keyboard, termios.TCSANOW, mode)
        self.forget()
        self._write(_ENTER)

    def leave(self) -> None:
        """Put back what was there."""
        with suppress(OSError):  # the terminal is gone
            self._write(_LEAVE)
        if self._keyboard is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSANOW, self._before)

    def forget(self) -> None:
        """Write every line the next time."""
        self._size = (0, 0)

    def show(self, lines: Sequence[Text], size: tuple[int, int]) -> None:
        """Make these the lines, drawn for a terminal of this size."""
        wanted = self._coloured(lines)
        changes = []
        if size != self._size:
            self._size, self._lines = size, []
            changes.append(_CLEAR)
        for number, line in enumerate(wanted):
            if number >= len(self._lines) or line != self._lines[number]:
                changes.append(f"\x1b[{number + 1};1H{line}")
        self._lines = wanted
        self._write("".join(changes))

    def keys(self, wait_s: float) -> list[str]:
        """What was typed, after waiting for it.

        Raises:
            OSError: the terminal is gone.
        """
        if self._keyboard is None:
            select.select([], [], [], wait_s)
            return []
        if not self._is_ready(wait_s):
            return []
        typed = os.read(self._keyboard, _BLOCK)
        if not typed:
            raise OSError("the terminal is gone")
        if typed.endswith(b"\x1b") and self._is_ready(_ESCAPE_S):
            typed += os.read(self._keyboard, _BLOCK)
        return keys_in(typed)

    def _is_ready(self, wait_s: float) -> bool:
        assert self._keyboard is not None
        return bool(select.select([self._keyboard], [], [], wait_s)[0])

    def _coloured(self, lines: Sequence[Text]) -> list[str]:
        self._page.seek(0)
        self._page.truncate()
        for line in lines:
            self._console.print(line, soft_wrap=True, end="\n")
        return self._page.getvalue().splitlines()

    def _write(self, text: str) -> None:
        rest = text.encode(self._encoding, "replace")
        while rest:
            rest = rest[os.write(self._out, rest) :]
