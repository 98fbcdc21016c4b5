"""A command in a pseudo-terminal, and what stands on its screen."""

from __future__ import annotations

import os
import sys
import termios
import time
from typing import TYPE_CHECKING, Any

import pexpect
import pyte

from tests.loopback import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

Size = tuple[int, int]
"""Columns and lines."""


class Terminal:
    """A terminal and the command in it.

    Args:
        arguments: of kdissect.
        size: of the terminal.
        stdin: a file that the command reads; None: the terminal.
    """

    def __init__(self, *arguments: str, size: Size, stdin: str | None = None) -> None:
        columns, lines = size
        self.output = b""
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        command = [sys.executable, "-m", "kdissect", *arguments]
        if stdin is not None:
            command = ["sh", "-c", 'from=$1; shift; exec "$@" <"$from"', "sh", stdin, *command]
        self.child = pexpect.spawn(
            command[0],
            command[1:],
            dimensions=(lines, columns),
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": ""},
            timeout=WAIT_S,
        )
        self.before = self.settings()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def has_cursor(self) -> bool:
        return not self._screen.cursor.hidden

    def settings(self) -> list[Any]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self.child.child_fd)

    def until(self, is_there: Callable[[], bool]) -> None:
        """Read until something is so."""
        last = time.monotonic() + WAIT_S
        while not is_there():
            assert time.monotonic() < last, f"it did not come:\n{self.text}"
            try:
                self._take(self.child.read_nonblocking(4096, timeout=1))
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                assert is_there(), f"it has ended:\n{self.text}"

    def shows(self, *texts: str) -> None:
        """Read until all of these stand on the screen."""
        self.until(lambda: all(text in self.text for text in texts))

    def press(self, keys: str) -> None:
        self.child.send(keys)

    def resize(self, size: Size) -> None:
        columns, lines = size
        self._screen.resize(lines, columns)
        self.child.setwinsize(lines, columns)

    def ends(self) -> int | None:
        """Wait for the end of the command: its exit status."""
        while True:
            try:
                self._take(self.child.read_nonblocking(4096, timeout=WAIT_S))
            except pexpect.EOF:
                break
        self.child.wait()
        return self.child.exitstatus  # type: ignore[no-any-return]

    def is_as_before(self) -> bool:
        """Whether the other screen was left, the cursor is back, and keys are treated as before."""
        return b"\x1b[?1049l" in self.output and self.has_cursor and self.settings() == self.before

    def is_stopped(self) -> bool:
        """Whether the command is stopped, as by SIGSTOP: a SIGCONT before that would be lost."""
        how = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.child.pid, how) is not None

    def _take(self, some: bytes) -> None:
        self.output += some
        self._stream.feed(some)
