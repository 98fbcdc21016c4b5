"""``kdissect live`` in a child process, for tests that read its output line by line."""

from __future__ import annotations

import os
import re
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.cli.commands import spawn
from tests.loopback import WAIT_S

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

COUNTED = re.compile(
    r"kdissect: ([\d,]+) packets?, ([\d,]+) dropped by the kernel, ([\d,]+) by kdissect; "
    r"(\d+) exchange"
)
STAYS_ROOT = ("-Z", "root") if os.geteuid() == 0 else ()
"""Then there is no warning about root."""


class Live:
    """A running command."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float = WAIT_S) -> None:
        self.process = process
        self._guard = threading.Timer(timeout_s, process.kill)
        self._guard.start()

    def line(self) -> str:
        """Wait for the next line of stdout."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line, "it has ended, or nothing came"
        return line

    def error_line(self) -> str:
        """Wait for the next line of stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def end(self, number: int = signal.SIGINT) -> tuple[int, list[str], str]:
        """Send a signal; return the exit status, the remaining lines of stdout, and stderr."""
        self.process.send_signal(number)
        return self.rest()

    def rest_of_pipe(self) -> tuple[int, list[str], str]:
        """Close its stdin and wait for its end."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it may have ended before
            self.process.stdin.close()
        return self.rest()

    def rest(self) -> tuple[int, list[str], str]:
        """Wait for its end."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        stderr: list[bytes] = []
        thread = threading.Thread(target=lambda: stderr.append(self.process.stderr.read()))  # type: ignore[union-attr]
        thread.start()
        lines = self.process.stdout.read().decode().splitlines()
        thread.join()
        status = self.process.wait()
        self._guard.cancel()
        return status, lines, stderr[0].decode()

    def close(self) -> None:
        """Kill it if it is still running."""
        self._guard.cancel()
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()


@contextmanager
def live(*arguments: str, timeout_s: float = WAIT_S, **options: int) -> Iterator[Live]:
    """Run the command, without the warning that it runs as root; it is killed after ``timeout_s`` seconds."""
    if "-i" in arguments:
        arguments = (*arguments, *STAYS_ROOT)
    process = Live(spawn("live", *arguments, **options), timeout_s)
    try:
        yield process
    finally:
        process.close()


@contextmanager
def on_loopback(port: int, *arguments: str, name: str = "lo") -> Iterator[Live]:
    """Run the command on the interface and port of a broker."""
    with live("-i", name, "-f", f"tcp port {port}", *arguments) as process:
        assert process.error_line() == f'kdissect: listening on {name}, filter "tcp port {port}"\n'
        yield process
