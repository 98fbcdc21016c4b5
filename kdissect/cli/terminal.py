"""Streams and what is behind them: is it a terminal, how wide, does it want colour; and how commands end."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

import click

from kdissect.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType
    from typing import TextIO

    from kdissect.capture.reader import Capture
    from kdissect.model import Packet, PacketBlock

OK = 0
USAGE = 2  # usage error, or nothing could be read
FAILED = 3  # a bug of ours cost some of the output, or all of it
INTERRUPTED = 130  # after Ctrl-C: 128 + SIGINT, as shells have it

LEAST_WIDTH = 60
BAR_FROM_BYTES = 4_000_000  # a smaller capture is read before a bar could be looked at
_BAR_BYTES = 1_000_000
_NO_TIME = 1e-3  # seconds: a rate needs some


def width(stream: TextIO) -> int | None:
    """Columns of the terminal behind a stream; None where there is none."""
    if not stream.isatty():
        return None
    from shutil import get_terminal_size  # which a pipe, --help and --version do not need

    return max(get_terminal_size().columns, LEAST_WIDTH)


def wants_colour(stream: TextIO, choice: str) -> bool:
    """Decide on colour: ``auto`` is on a terminal, unless NO_COLOR (no-color.org) or TERM say no."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def warn(text: str, *below: str) -> None:
    """Write a line to stderr, and others below it. A line break inside one is escaped: it may be a name's."""
    lines = [f"{printable(line)}\n" for line in (f"kdissect: {text}", *below)]
    if sys.stderr is not None:  # closed by whoever started us
        with suppress(OSError):  # there is nowhere left to complain
            sys.stderr.writelines(lines)


def check_stdin() -> None:
    """Make sure that a capture can come from stdin.

    Raises:
        click.UsageError: nothing can, or only what somebody types.
    """
    if sys.stdin is None:
        raise click.UsageError("stdin is closed")
    if sys.stdin.isatty():
        raise click.UsageError("stdin is a terminal; give a FILE, or: tcpdump -U -w - | kdissect read -l -")


@contextmanager
def ctrl_c(press: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Take Ctrl-C over meanwhile, where Python would raise KeyboardInterrupt for it."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def output() -> Iterator[TextIO]:
    """Stdout for data. What its encoding lacks is escaped, a closed pipe ends the command quietly.

    Raises:
        click.ClickException: writing failed for another reason.
    """
    out = sys.stdout
    if out is None:
        raise click.ClickException("cannot write: stdout is closed")
    if hasattr(out, "reconfigure"):
        out.reconfigure(errors="backslashreplace")
    try:
        yield out
        out.flush()
    except BrokenPipeError:
        _abandon(out)
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        _abandon(out)
        raise click.ClickException(f"cannot write: {error.strerror or error}") from None


def _abandon(out: TextIO) -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail again."""
    with suppress(OSError):  # a stream without file descriptor has nothing behind it that could fail
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)


@contextmanager
def progress(capture: Capture, *, wanted: bool) -> Iterator[Iterable[PacketBlock | Packet]]:
    """The stretches of a capture, and where that helps a bar on stderr while they are taken."""
    total = capture.bytes_total
    if not wanted or total is None or total < BAR_FROM_BYTES or not sys.stderr.isatty():
        yield capture.packet_blocks()
        return
    from kdissect.phrases import size  # which only somebody who waits needs

    began = monotonic()

    def rate(count: int | None) -> str:
        return f"{size(round((count or 0) / (monotonic() - began + _NO_TIME)))}/s"

    with click.progressbar(length=total, label="reading", file=sys.stderr, item_show_func=rate) as bar:

        def watched() -> Iterator[PacketBlock | Packet]:
            for each in capture.packet_blocks():
                if capture.bytes_read - bar.pos >= _BAR_BYTES or not bar.pos:
                    bar.update(capture.bytes_read - bar.pos, capture.bytes_read)
                yield each
            bar.update(total - bar.pos, total)

        yield watched()
