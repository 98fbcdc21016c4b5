from __future__ import annotations

import io
import sys
from collections import deque
from typing import TYPE_CHECKING

import click
import pytest

from kdissect.capture.reader import open_capture
from kdissect.capture.source import one_by_one
from kdissect.cli import terminal
from kdissect.cli.main import main
from kdissect.errors import WriteError
from tests.cli.commands import talk, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Tty(io.StringIO):
    """A stream that looks like a terminal and keeps what is written."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "choice", "environment", "enabled"),
    [
        (Tty(), "auto", {}, True),
        (Tty(), "auto", {"NO_COLOR": "1"}, False),
        (Tty(), "auto", {"NO_COLOR": ""}, True),
        (Tty(), "auto", {"TERM": "dumb"}, False),
        (Tty(), "never", {}, False),
        (io.StringIO(), "auto", {}, False),
        (io.StringIO(), "always", {"NO_COLOR": "1"}, True),
    ],
)
def test_color(
    stream: io.StringIO,
    choice: str,
    environment: dict[str, str],
    enabled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert terminal.use_color(stream, choice) is enabled


def test_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "93")
    assert terminal.width(Tty()) == 93
    assert terminal.width(io.StringIO()) == 93
    monkeypatch.setenv("COLUMNS", "7")
    assert terminal.width(Tty()) == terminal.MIN_WIDTH
    for columns in ("", "0", "wide"):
        monkeypatch.setenv("COLUMNS", columns)
        assert terminal.width(io.StringIO()) is None


def test_a_pipe_and_a_terminal_show_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = write(tmp_path / "capture.pcap", talk())
    for command in ("read", "records", "summary", "check", "read -V"):
        for columns in ("80", "130", None):
            if columns is None:
                monkeypatch.delenv("COLUMNS")
            else:
                monkeypatch.setenv("COLUMNS", columns)
            screen = Tty()
            options = ["--color", "never"] if columns is not None else ["--color", "never", "--wide"]
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", screen)
                main([*command.split(), *options, capture])
            capsys.readouterr()
            main([*command.split(), capture])
            piped = capsys.readouterr().out
            has_heading = command in ("read", "records")
            assert screen.getvalue().splitlines()[has_heading:] == piped.splitlines()


def test_hidden_columns_of_lines_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = write(tmp_path / "capture.pcap", talk())
    for columns, hidden in (("80", "2 columns"), ("130", "1 column"), ("160", None)):
        monkeypatch.setenv("COLUMNS", columns)
        main(["read", capture])
        text = f"kdissect: {hidden} hidden; --wide shows all\n"
        assert capsys.readouterr().err == (text if hidden else "")
    monkeypatch.setenv("COLUMNS", "80")
    for options in (["--wide"], ["--json"], ["-q"], ["--client", "nobody"]):
        main(["read", *options, capture])
        assert "hidden" not in capsys.readouterr().err


def test_warnings_are_safe_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.warn("\x1b[31m\nforged", "below\x9b")
    assert capsys.readouterr().err == "kdissect: \\x1b[31m\\nforged\nbelow\\x9b\n"


def test_warnings_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def writelines(self, _: object) -> None:
            raise OSError(28, "No space left on device")

    for stream in (Full(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        terminal.warn("lost")


@pytest.mark.parametrize(
    ("stdin", "text"), [(None, "stdin is closed"), (Tty(), "stdin is a terminal; specify a")]
)
def test_stdin_that_is_not_a_capture(
    stdin: io.StringIO | None, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["read", "-"]) == terminal.USAGE
    assert capsys.readouterr().err.startswith(f"kdissect: {text}")


def test_the_bar_has_its_line_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Tty()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, screen)
    monkeypatch.setattr(terminal, "BAR_FROM_BYTES", 0)
    assert main(["read", "-q", write(tmp_path / "capture.pcap", talk())]) == terminal.OK
    assert "100%" in screen.getvalue()
    assert screen.getvalue().splitlines()[-1].startswith("4 exchanges, 3 answered")


class Failing(io.StringIO):
    """A stream that cannot be written to."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


def test_a_closed_pipe_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Failing(BrokenPipeError()))
    with pytest.raises(click.exceptions.Exit) as end, terminal.output():
        pass
    assert end.value.exit_code == 0


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Failing(OSError(28, "No space left on device")))
    with (
        pytest.raises(WriteError, match="cannot write stdout: No space left on device"),
        terminal.output(),
    ):
        pass


def test_what_an_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    with terminal.output() as out:
        out.write("1 … 2")
    assert raw.getvalue() == b"1 \\u2026 2"


@pytest.mark.parametrize(
    ("out", "stream", "least", "enabled", "is_shown"),
    [
        (Tty(), Tty(), 0, True, True),
        (Tty(), Tty(), 0, False, False),
        (Tty(), io.StringIO(), 0, True, False),
        (io.StringIO(), Tty(), 0, True, False),
        (Tty(), Tty(), 10**9, True, False),
    ],
)
def test_a_progress_bar_only_on_a_terminal(
    out: io.StringIO,
    stream: io.StringIO,
    least: int,
    enabled: bool,
    is_shown: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "BAR_FROM_BYTES", least)
    conversation = talk()
    path = write(tmp_path / "capture.pcap", conversation)
    with (
        open_capture(path) as capture,
        terminal.progress(capture.bytes_total, enabled=enabled) as watch,
    ):
        packets = watch(capture.packet_blocks(), lambda: capture.bytes_read)
        assert len(list(one_by_one(packets))) == len(conversation.packets)
    assert ("reading" in stream.getvalue() and "100%" in stream.getvalue()) is is_shown
    assert ("B/s" in stream.getvalue()) is is_shown


def test_one_bar_for_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Tty()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, screen)
    total, read = 9_000_000, [0]

    def items(before: int) -> Iterator[None]:
        for count in (3_000_000, 6_000_000, total):
            read[0] = before + count
            yield

    with terminal.progress(total, passes=2) as watch:
        for before, label, share in ((0, "1/2 topic names", 11), (total, "2/2 reading", 100)):
            deque(watch(items(before), lambda: read[0]), maxlen=0)
            line = screen.getvalue().replace("\r", "\n").splitlines()[-1]
            assert label in line
            assert f" {share}%" in line
    assert screen.getvalue().count("\n") == 1
