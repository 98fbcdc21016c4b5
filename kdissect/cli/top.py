"""``live --top``: current rates and counts -> a dashboard on the terminal, redrawn by a thread.

    with Top(now, ...) as top:
        ...             packets are dissected here

The thread draws and reads the keyboard, so that keys work without traffic, and a slow terminal does not delay
packets. The last lines written to stderr are kept until the terminal is restored.
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

    from kdissect.stats.pulse import PulseSnapshot
    from kdissect.text.style import Style


REFRESH_S = 0.5
MAX_DRAWING = 0.05  # fraction of the time spent on drawing: slow drawing is done less often
_POLL_S = 0.1  # interval of checks for keys and a new terminal size
_MAX_LINES = 20
_MESSAGE_S = 15.0  # how long a message is shown; all are on stderr at the end


class StderrBuffer(TextIOBase):
    """Replaces stderr, and keeps the last lines written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._line = ""
        self.lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._written_s = 0.0  # when the last line was complete

    def write(self, text: str, /) -> int:
        """Keep some text."""
        *lines, self._line = (self._line + text).split("\n")
        self.lines.extend(lines)
        if lines:
            self._written_s = monotonic()
        return len(text)

    @property
    def message(self) -> str:
        """The last line, if it is new."""
        is_new = self.lines and monotonic() - self._written_s < _MESSAGE_S
        return self.lines[-1].removeprefix("kdissect: ") if is_new else ""


class Top:
    """The dashboard.

    Args:
        now: returns current rates and counts; called by another thread.
        drops: returns the packets dropped by the kernel and by kdissect.
        name: of the interface or input.
        out: the terminal.
        style: colors, and names of hosts.

    Attributes:
        is_closed: whether the user quit it, or the terminal was closed.
    """

    def __init__(
        self,
        now: Callable[[], PulseSnapshot],
        drops: Callable[[], tuple[int, int]],
        name: str,
        out: TextIO,
        style: Style,
    ) -> None:
        self.is_closed = False
        self._style = style
        self._now = now
        self._drops = drops
        self._name = name
        self._keyboard = open_keyboard()
        self._screen = Screen(out.fileno(), self._keyboard, color=style.is_colored, encoding=out.encoding)
        self._ui = UiState()
        self._snapshot: PulseSnapshot | None = None
        self._capture_ended = False
        self._closing = Event()
        self._drawing = RLock()
        self._thread = Thread(target=self._run, name="top", daemon=True)
        self._fault: BaseException | None = None
        self._stderr = sys.stderr
        self._stderr_buffer = StderrBuffer()
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Self:
        self._handlers = {
            signal.SIGHUP: signal.signal(signal.SIGHUP, lambda *_: self._quit()),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._suspend),
        }
        if self._stderr is not None and self._stderr.isatty():
            sys.stderr = self._stderr_buffer
        self._screen.enter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.set()
        try:
            self._thread.join(1)  # do not wait for a terminal that blocks
        finally:
            self._screen.leave()
        if self._keyboard is not None:
            os.close(self._keyboard)
        sys.stderr = self._stderr
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._stderr_buffer.lines:
            with suppress(OSError):  # stderr was closed too
                self._stderr.write("".join(f"{line}\n" for line in self._stderr_buffer.lines))
        if self._fault is not None and error is None:
            raise self._fault

    def linger(self, keep_open: Callable[[], bool]) -> None:
        """Show the dashboard after the last packet, until the user quits or ``keep_open`` is false."""
        self._capture_ended = True
        while keep_open() and not self.is_closed:
            self._closing.wait(_POLL_S)

    def _run(self) -> None:
        due = 0.0
        try:
            while not self._closing.is_set():
                keys = self._screen.keys(_POLL_S)
                for key in keys:
                    self._ui.press(key)
                if "redraw" in keys:
                    self._screen.forget()
                if self._ui.is_quitting:
                    self._ui.is_quitting = False
                    self._quit(again=True)
                began = monotonic()
                if keys or began >= due or self._screen.has_changed:
                    self._draw()
                    took = monotonic() - began
                    due = began + max(REFRESH_S, took / MAX_DRAWING)
        except OSError:
            pass  # the terminal was closed
        except BaseException as error:  # noqa: BLE001  (raised again by __exit__, after the terminal is restored)
            self._fault = error
        if not self._closing.is_set():
            self._quit()

    def _draw(self) -> None:
        if self._snapshot is None or not self._ui.is_paused:
            self._snapshot = self._now()
        by_kernel, by_us = self._drops()
        status_bar = StatusBar(
            self._name,
            by_kernel,
            by_us,
            memory_bytes(),
            self._stderr_buffer.message,
            has_ended=self._capture_ended,
            has_keys=self._keyboard is not None,
        )
        with self._drawing:
            size = self._screen.size
            self._screen.show(draw(self._snapshot, self._ui, status_bar, *size, self._style), size)

    def _quit(self, *, again: bool = False) -> None:
        """Stop the capture as SIGTERM does; with ``again``, end the command immediately."""
        if self.is_closed and not again:
            return
        self.is_closed = True
        if callable(signal.getsignal(signal.SIGTERM)):  # otherwise no run has started yet
            os.kill(os.getpid(), signal.SIGTERM)

    def _suspend(self, *_: object) -> None:
        """Handle Ctrl-Z: restore the terminal, and draw again after ``fg``."""
        with self._drawing:
            self._screen.leave()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._screen.enter()


def check_terminal() -> None:
    """Check that stdout is a terminal that can be drawn on.

    Raises:
        ClickException: it is not.
    """
    has_terminal = sys.stdout is not None and sys.stdout.isatty()
    if not has_terminal or os.environ.get("TERM", "dumb") == "dumb":
        raise click.ClickException("--top needs a terminal; without one: --json, or -q --prometheus :9464")


def memory_bytes() -> int | None:
    """Return the resident memory of this process; None: unknown."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------------------------------------------------
# Lines -> the alternate screen of a terminal; typed bytes -> keys.
#
# Only lines that have changed are written, for slow connections. ``leave`` restores the terminal.
# ------------------------------------------------------------------------------------------------------------


_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # alternate screen, no cursor, no line wrapping, clear
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
_DEFAULT_SIZE = (80, 24)
_ESCAPE_S = 0.05  # the rest of an escape sequence arrives by then, even over ssh
_BLOCK = 256
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
_KEY_NAMES = {
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
    """Typed bytes -> characters, and names of keys such as "up"."""
    text = typed.decode("utf-8", "replace").replace("\x1bO", "\x1b[")
    return [_KEY_NAMES.get(key, key) for key in _KEY.findall(text)]


def open_keyboard() -> int | None:
    """Open the controlling terminal, because stdin may be the capture. None: there is no terminal."""
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None


class Screen:
    """A terminal.

    Args:
        out: file descriptor to write to.
        keyboard: file descriptor to read keys from; None: no keys.
        color: whether to use colors.
        encoding: of the terminal; other characters become question marks.
    """

    def __init__(self, out: int, keyboard: int | None, *, color: bool, encoding: str = "utf-8") -> None:
        from rich.console import Console

        self._out = out
        self._keyboard = keyboard
        self._encoding = encoding
        self._saved_mode = None if keyboard is None else termios.tcgetattr(keyboard)
        self._lines: list[str] = []
        self._size = (0, 0)
        self._page = StringIO()
        self._console = Console(
            file=self._page,
            force_terminal=True,
            color_system="standard",
            no_color=not color,
            highlight=False,
            legacy_windows=False,
        )

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 x 24 if the terminal does not report them."""
        columns, lines = os.get_terminal_size(self._out)
        return columns or _DEFAULT_SIZE[0], lines or _DEFAULT_SIZE[1]

    @property
    def has_changed(self) -> bool:
        """Whether the terminal was resized since lines were last shown."""
        return self.size != self._size

    def enter(self) -> None:
        """Switch to the alternate screen and read single keys."""
        if self._keyboard is not None:
            tty.setcbreak(self._keyboard, termios.TCSANOW)
            mode = termios.tcgetattr(self._keyboard)
            mode[0] &= ~termios.IXON  # otherwise Ctrl-S would stop the output
            termios.tcsetattr(self._keyboard, termios.TCSANOW, mode)
        self.forget()
        self._write(_ENTER)

    def leave(self) -> None:
        """Restore the terminal."""
        with suppress(OSError):  # the terminal was closed
            self._write(_LEAVE)
        if self._keyboard is not None and self._saved_mode is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSANOW, self._saved_mode)

    def forget(self) -> None:
        """Write every line the next time, not only those that changed."""
        self._size = (0, 0)

    def show(self, lines: Sequence[Text], size: tuple[int, int]) -> None:
        """Show these lines, which were drawn for a terminal of this size."""
        rendered = self._colored(lines)
        changes = []
        if size != self._size:
            self._size, self._lines = size, []
            changes.append(_CLEAR)
        for number, line in enumerate(rendered):
            if number >= len(self._lines) or line != self._lines[number]:
                changes.append(f"\x1b[{number + 1};1H{line}")
        self._lines = rendered
        self._write("".join(changes))

    def keys(self, wait_s: float) -> list[str]:
        """Return the keys that were typed, waiting up to ``wait_s`` seconds for one.

        Raises:
            OSError: the terminal was closed.
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

    def _colored(self, lines: Sequence[Text]) -> list[str]:
        self._page.seek(0)
        self._page.truncate()
        for line in lines:
            self._console.print(line, soft_wrap=True, end="\n")
        return self._page.getvalue().splitlines()

    def _write(self, text: str) -> None:
        rest = text.encode(self._encoding, "replace")
        while rest:
            rest = rest[os.write(self._out, rest) :]
