"""Stdout and stderr: their width and colors, warnings, the progress bar, Ctrl-C; and the exit statuses."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress
from io import RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.config_file import configuration
from kdissect.errors import WriteError
from kdissect.phrases import printable, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType
    from typing import TextIO

    from kdissect.text.style import Style

    Watch = Callable[[Iterable[Any], Callable[[], int]], Iterable[Any]]

OK = 0
USAGE = 2  # usage error, or nothing could be read
FAILED = 3  # output is missing because of an I/O error or a bug in kdissect
INTERRUPTED = 130  # after Ctrl-C: 128 + SIGINT, as in shells
SIGNALLED = 128  # the exit status after another signal is this plus its number

MIN_WIDTH = 60
BAR_FROM_BYTES = 4_000_000  # a smaller capture is read too fast for a progress bar
_BAR_BYTES = 1_000_000
_READING_COST = 8
"""How much longer reading takes for rows than for names of topics, for an estimate of the time that remains;
see docs/names.md.
"""
_NO_TIME = 1e-3  # seconds, against division by zero


_WIDE = "kdissect.wide"


def _note_wide(context: click.Context, _: click.Parameter, is_wide: bool) -> None:
    context.meta[_WIDE] = is_wide


wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_note_wide,
    help="Show all columns and do not cut them, even if lines get longer than the terminal.",
)


def width(stream: TextIO) -> int | None:
    """Return how many columns text for people may have: those of the terminal that a stream writes to, or
    of COLUMNS if it is a file or pipe. None: any number.
    """
    context = click.get_current_context(silent=True)
    if (context is not None and context.meta.get(_WIDE)) or not (stream.isatty() or _columns()):
        return None
    from shutil import get_terminal_size  # not needed for pipes, --help and --version

    return max(get_terminal_size().columns, MIN_WIDTH)


def _columns() -> bool:
    """Whether COLUMNS is a number of columns."""
    text = os.environ.get("COLUMNS", "")
    return text.isdecimal() and int(text) > 0


def use_color(stream: TextIO, choice: str) -> bool:
    """Whether to use colors. ``auto``: on a terminal, unless NO_COLOR (no-color.org) or TERM=dumb is set."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style_of(stream: TextIO, choice: str) -> Style:
    """Return how text for people looks on a stream, by ``--color`` and the configuration file."""
    from kdissect.text.style import Style

    context = click.get_current_context(silent=True)
    config = None if context is None else configuration(context)
    if config is None or config.path is None:
        return Style(use_color(stream, choice))
    return Style(use_color(stream, choice), config.colors(), config.hosts())


def warn(text: str, *below: str) -> None:
    """Write a line to stderr, followed by others. Line breaks inside a line (in a name) are escaped.

    On a terminal, the first line is wrapped; the others may point to columns. In a log, each is one line.
    """
    if sys.stderr is not None:  # closed by the parent process
        columns = width(sys.stderr) if sys.stderr.isatty() else None
        lines = wrapped(printable(f"kdissect: {text}"), columns, "  ")
        with suppress(OSError):  # it cannot be reported anywhere
            sys.stderr.writelines(f"{line}\n" for line in (*lines, *map(printable, below)))


def check_stdin() -> None:
    """Check that a capture can be read from stdin.

    Raises:
        click.UsageError: stdin is closed or a terminal.
    """
    if sys.stdin is None:
        raise click.UsageError("stdin is closed")
    if sys.stdin.isatty():
        raise click.UsageError(
            "stdin is a terminal; specify a FILE, or: tcpdump -U -w - | kdissect read -l -"
        )


@contextmanager
def output() -> Iterator[TextIO]:
    """Stdout for data. Characters that it cannot encode are escaped. A closed pipe ends the command quietly.

    Raises:
        WriteError: writing failed for another reason.
    """
    out = sys.stdout
    if out is None:
        raise WriteError("cannot write stdout: it is closed")
    if isinstance(getattr(out, "buffer", None), RawIOBase):  # python -u: a signal may cut writes short
        out = open(out.fileno(), "w", encoding=out.encoding, closefd=False)  # noqa: SIM115
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
        raise WriteError.of("stdout", error) from None
    finally:
        if out is not sys.stdout:
            out.close()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an exception does, so that no temporary file is left behind."""

    def stop(number: int, _: FrameType | None) -> None:
        sys.exit(SIGNALLED + number)

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _abandon(out: TextIO) -> None:
    """Discard what is still buffered, so that the flush at interpreter exit does not fail again."""
    with suppress(OSError):  # a stream without a file descriptor cannot fail
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, out.fileno())
        os.close(devnull)


@contextmanager
def progress(total: int | None, passes: int = 1, *, enabled: bool = True) -> Iterator[Watch]:
    """Show a progress bar if the input is large, and both stdout and stderr are terminals. In a pipe such as
    ``kdissect read FILE | head``, the bar would be drawn over what the other program writes.

    Args:
        total: size of the input in bytes; None: not known.
        passes: how often it is read: 2 if once for names of topics.
        enabled: whether to show one at all.

    Yields:
        A function that passes items on, of one pass or several. Its second argument returns the bytes read so
        far, in all passes.
    """
    has_terminal = sys.stdout is not None and sys.stdout.isatty() and sys.stderr.isatty()
    if not (enabled and has_terminal) or total is None or total < BAR_FROM_BYTES:
        yield lambda items, _: items
        return
    from kdissect.phrases import size  # needed only here

    began, names_bytes = monotonic(), total * (passes - 1)
    bytes_read = 0

    def rate(_: object) -> str:
        return f"{size(round(bytes_read / (monotonic() - began + _NO_TIME)))}/s"

    length = names_bytes + _READING_COST * total if names_bytes else total
    with click.progressbar(length=length, label="reading", file=sys.stderr, item_show_func=rate) as bar:

        def advance(count: int) -> None:
            nonlocal bytes_read
            bytes_read = count
            if names_bytes:
                bar.label = "1/2 topic names" if count <= names_bytes else "2/2 reading"
                count = min(count, names_bytes) + _READING_COST * max(0, count - names_bytes)
            bar.update(count - bar.pos, count)

        def watch(items: Iterable[Any], count: Callable[[], int]) -> Iterator[Any]:
            for each in items:
                if (now := count()) - bytes_read >= _BAR_BYTES or not bytes_read:
                    advance(now)
                yield each
            advance(max(1, -(-count() // total)) * total)  # the end of a pass

        yield watch
