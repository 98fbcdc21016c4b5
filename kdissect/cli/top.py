"""``live --top``: what happens now, drawn some times a second by a thread of its own, until a key ends it.

    with Top(now, ...) as top:
        ...             packets are dissected here

The thread draws and listens to the keyboard, so that a key is answered while nothing comes, and a slow
terminal holds up no packet. Holds the picture; what is said on stderr meanwhile waits, the last lines of it,
until the terminal is as it was.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import tty
from collections import deque
from contextlib import suppress
from io import StringIO, TextIOBase
from pathlib import Path
from threading import Event, RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Self

import click

from kdissect.text.dashboard import StatusBar, UiState, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType
    from typing import TextIO

    from rich.text import Text

    from kdissect.stats.pulse import Now


REFRESH_S = 0.5
SHARE = 0.05  # of the time, at most: a picture that takes long to draw is drawn less often
_LOOK_S = 0.1  # how often keys and the terminal's size are looked at
_SAID = 20


class Said(TextIOBase):
    """Takes what is written to stderr, and keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = ""
        self.lines: deque[str] = deque(maxlen=_SAID)

    def write(self, text: str, /) -> int:
        """Take some text."""
        *lines, self._begun = (self._begun + text).split("\n")
        self.lines.extend(lines)
        return len(text)


class Top:
    """The dashboard.

    Args:
        now: tells what happens; called by another thread.
        drops: tells how many packets the kernel dropped, and we did.
        name: of what is listened to.
        out: the terminal.
        colour: whether it is coloured.

    Attributes:
        is_over: whether a key, or the terminal's end, has ended it.
    """

    def __init__(
        self,
        now: Callable[[], Now],
        drops: Callable[[], tuple[int, int]],
        name: str,
        out: TextIO,
        *,
        colour: bool,
    ) -> None:
        self.is_over = False
        self._now = now
        self._drops = drops
        self._name = name
        self._keyboard = open_keyboard()
        self._screen = Screen(out.fileno(), self._keyboard, colour=colour, encoding=out.encoding)
        self._choices = UiState()
        self._still: Now | None = None
        self._has_ended = False
        self._closing = Event()
        self._drawing = RLock()
        self._thread = Thread(target=self._run, name="top", daemon=True)
        self._fault: BaseException | None = None
        self._stderr = sys.stderr
        self._said = Said()
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Self:
        self._handlers = {
            signal.SIGHUP: signal.signal(signal.SIGHUP, lambda *_: self._leave()),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._suspend),
        }
        if self._stderr is not None and self._stderr.isatty():
            sys.stderr = self._said
        self._screen.enter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        try:
            self._thread.join(1)  # a terminal that takes nothing more cannot keep us
        finally:
            self._screen.leave()
        if self._keyboard is not None:
            os.close(self._keyboard)
        sys.stderr = self._stderr
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._said.lines:
            with suppress(OSError):  # there is nowhere left to complain
                self._stderr.write("".join(f"{line}\n" for line in self._said.lines))
        if self._fault is not None and error is None:
            raise self._fault

    def linger(self, is_wanted: Callable[[], bool]) -> None:
        """Packets have ended: leave the picture there until somebody ends it."""
        self._has_ended = True
        while is_wanted() and not self.is_over:
            self._closing.wait(_LOOK_S)

    def _run(self) -> None:
        due = 0.0
        try:
            while not self._closing.is_set():
                keys = self._screen.keys(_LOOK_S)
                for key in keys:
                    self._choices.press(key)
                if "redraw" in keys:
                    self._screen.forget()
                if self._choices.is_over:
                    self._choices.is_over = False
                    self._leave(again=True)
                began = monotonic()
                if keys or began >= due or self._screen.has_changed:
                    self._draw()
                    took = monotonic() - began
                    due = began + max(REFRESH_S, took / SHARE)
        except OSError:
            pass  # the terminal is gone
        except BaseException as error:  # noqa: BLE001  (raised again by __exit__, when the terminal is as it was)
            self._fault = error
        if not self._closing.is_set():
            self._leave()

    def _draw(self) -> None:
        if self._still is None or not self._choices.is_paused:
            self._still = self._now()
        by_kernel, by_us = self._drops()
        said = self._said.lines[-1].removeprefix("kdissect: ") if self._said.lines else ""
        around = StatusBar(
            self._name,
            by_kernel,
            by_us,
            memory_bytes(),
            said,
            is_over=self._has_ended,
            has_keys=self._keyboard is not None,
        )
        with self._drawing:
            size = self._screen.size
            self._screen.show(draw(self._still, self._choices, around, *size), size)

    def _leave(self, *, again: bool = False) -> None:
        """End the command, as a signal would that asks it to; a second one ends it at once."""
        if self.is_over and not again:
            return
        self.is_over = True
        if callable(signal.getsignal(signal.SIGTERM)):  # else it does not listen yet, and will see it
            os.kill(os.getpid(), signal.SIGTERM)

    def _suspend(self, *_: object) -> None:
        """Ctrl-Z: leave the terminal to the shell until we are called back."""
        with self._drawing:
            self._screen.leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._screen.enter()


def check_terminal() -> None:
    """Make sure that there is something to draw on.

    Raises:
        ClickException: there is not.
    """
    has_terminal = sys.stdout is not None and sys.stdout.isatty()
    if not has_terminal or os.environ.get("TERM", "dumb") == "dumb":
        raise click.ClickException("--top needs a terminal; without one: --json, or -q --prometheus :9464")


def memory_bytes() -> int | None:
    """Resident memory of this process, where the system tells."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------------------------------------------------
# Lines -> a terminal's other screen, and what is typed -> keys. Holds the lines that stand there.
#
# Only lines that have changed are written, which is little even over a slow line. What the terminal was
# like before is put back by ``leave``, whatever happened meanwhile.
# ------------------------------------------------------------------------------------------------------------


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
            raise OSError("the terminal was closed")
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
