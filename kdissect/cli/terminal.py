"""Stdout and stderr: their width and colors, warnings, the progress bar, Ctrl-C; and the exit statuses."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from io import RawIOBase
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import click

from kdissect.cli.config_file import configuration
from kdissect.phrases import printable, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import TextIO

    from kdissect.capture.reader import Capture
    from kdissect.model import Packet, PacketBlock
    from kdissect.text.style import Style

Item = TypeVar("Item")

OK = 0
USAGE = 2  # usage error, or nothing could be read
FAILED = 3  # output is missing because of an I/O error or a bug in kdissect
INTERRUPTED = 130  # after Ctrl-C: 128 + SIGINT, as in shells

MIN_WIDTH = 60
BAR_FROM_BYTES = 4_000_000  # a smaller capture is read too fast for a progress bar
_BAR_BYTES = 1_000_000
_NO_TIME = 1e-3  # seconds, against division by zero


def width(stream: TextIO) -> int | None:
    """Return the columns of the terminal that a stream writes to; None: it is not a terminal."""
    if not stream.isatty():
        return None
    from shutil import get_terminal_size  # not needed for pipes, --help and --version

    return max(get_terminal_size().columns, MIN_WIDTH)


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

    On a terminal, the first line is wrapped; the others may point to columns.
    """
    if sys.stderr is not None:  # closed by the parent process
        lines = wrapped(printable(f"kdissect: {text}"), width(sys.stderr), "  ")
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
        click.ClickException: writing failed for another reason.
    """
    out = sys.stdout
    if out is None:
        raise click.ClickException("cannot write: stdout is closed")
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
        raise click.ClickException(f"cannot write: {error.strerror or error}") from None
    finally:
        if out is not sys.stdout:
            out.close()


def _abandon(out: TextIO) -> None:
    """Discard what is still buffered, so that the flush at interpreter exit does not fail again."""
    with suppress(OSError):  # a stream without a file descriptor cannot fail
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, out.fileno())
        os.close(devnull)


def reading(capture: Capture, *, enabled: bool) -> AbstractContextManager[Iterable[PacketBlock | Packet]]:
    """The packet blocks of a capture, with a progress bar."""
    return progress(capture.packet_blocks(), capture.bytes_total, lambda: capture.bytes_read, enabled=enabled)


@contextmanager
def progress(
    items: Iterable[Item],
    total: int | None,
    bytes_read: Callable[[], int],
    *,
    enabled: bool,
    label: str = "reading",
) -> Iterator[Iterable[Item]]:
    """Return items. If the input is large and stderr is a terminal, show a progress bar there.

    Args:
        items: what to return.
        total: size of the input in bytes; None: not known.
        bytes_read: returns how much of it is read.
        enabled: whether to show one.
        label: text in front of it.
    """
    if not enabled or total is None or total < BAR_FROM_BYTES or not sys.stderr.isatty():
        yield items
        return
    from kdissect.phrases import size  # needed only here

    began = monotonic()

    def rate(count: int | None) -> str:
        return f"{size(round((count or 0) / (monotonic() - began + _NO_TIME)))}/s"

    with click.progressbar(length=total, label=label, file=sys.stderr, item_show_func=rate) as bar:

        def watched() -> Iterator[Item]:
            for each in items:
                if (count := bytes_read()) - bar.pos >= _BAR_BYTES or not bar.pos:
                    bar.update(count - bar.pos, count)
                yield each
            bar.update(total - bar.pos, total)

        yield watched()
