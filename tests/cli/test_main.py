from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click
import pytest

from kdissect import __version__, core
from kdissect.cli.main import COMMANDS, kdissect, main
from kdissect.cli.terminal import FAILED, INTERRUPTED, OK, USAGE
from kdissect.errors import CaptureError
from tests.cli.commands import run, spawn

if TYPE_CHECKING:
    from pathlib import Path


def commands() -> dict[str, click.Command]:
    return {name: getattr(import_module(f"kdissect.cli.{name}"), name) for name in COMMANDS}


def test_the_short_helps_are_those_of_the_commands() -> None:
    assert {name: command.get_short_help_str(limit=200) for name, command in commands().items()} == COMMANDS


@pytest.mark.parametrize(
    "arguments", [["-h"], ["--help"], *([name, "-h"] for name in COMMANDS)], ids=" ".join
)
def test_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, *arguments)
    assert (done.status, done.err) == (OK, "")
    assert "Examples:\n    kdissect " in done.out
    for name in COMMANDS if len(arguments) == 1 else ():
        assert f"  {name}  " in done.out


def test_without_a_command_there_is_help_too(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys)
    assert done.status == USAGE
    assert "Usage: kdissect" in done.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "--version")
    assert done.status == OK
    assert done.out == f"kdissect {__version__} ({'core' if core.is_used else 'pure'})\n"


def test_a_command_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "reed")
    assert (done.status, done.out) == (USAGE, "")
    assert done.err == 'kdissect: unknown command "reed"; did you mean "read"? (see kdissect --help)\n'
    known = ", ".join(COMMANDS)
    assert run(capsys, "foo").err.startswith(f'kdissect: unknown command "foo"; known: {known}')


def test_a_file_in_the_place_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "capture.pcap"
    path.touch()
    done = run(capsys, str(path))
    assert done.status == USAGE
    assert f"try: kdissect read {path}" in done.err


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (CaptureError("x.pcap: is \x1b[31mred"), USAGE, "kdissect: x.pcap: is \\x1b[31mred\n"),
        (click.ClickException("cannot write"), USAGE, "kdissect: cannot write\n"),
        (KeyboardInterrupt(), INTERRUPTED, ""),
    ],
    ids=["error", "click", "Ctrl-C"],
)
def test_every_end_is_a_line_and_a_status(
    error: BaseException,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(kdissect, "invoke", fail)
    assert main(["apis"]) == status
    captured = capsys.readouterr()
    assert (captured.out, captured.err.lstrip("\n")) == ("", text)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/full is Linux")
@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["read", "-h"], ["apis"]], ids=lambda value: " ".join(value)
)
def test_a_full_disk_is_one_line_whatever_was_to_be_written(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123  (a device)
        process = spawn(*arguments, stdout=full)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (FAILED, b"kdissect: cannot write stdout: No space left on device\n")


@pytest.mark.parametrize("arguments", [["--version"], ["apis"]], ids=lambda value: " ".join(value))
def test_without_stdout_nothing_is_done(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(arguments) == FAILED
    assert capsys.readouterr().err == "kdissect: cannot write stdout: it is closed\n"


def test_without_stderr_there_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["reed"]) == USAGE


def test_modules_in_the_current_directory_are_not_imported(tmp_path: Path) -> None:
    """``python -m`` would import them first. ``spawn`` uses it."""
    for name in ("click", "json", "orjson", "kafka"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    process = spawn("fields", "--json", cwd=tmp_path)
    out, err = process.communicate()
    assert (process.returncode, err) == (OK, b"")
    assert out
    assert not (tmp_path / "ran").exists()


READERS = {
    "read": [],
    "read -j 2": [],
    "read --json": [],
    "records": [],
    "summary": [],
    "check": [],
    "story client:web-shop": [],
    "export": ["-o", "{tmp}/tables"],
    "read -w": ["{tmp}/some.pcapng"],
}


@pytest.mark.parametrize("command", READERS)
def test_a_capture_that_cannot_be_read_is_an_error_after_the_others(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (text := tmp_path / "notes.txt").write_text("hello")
    for number, bad in enumerate((str(text), str(tmp_path / "missing.pcap"))):
        own = tmp_path / str(number)
        own.mkdir()
        target = [option.format(tmp=own) for option in READERS[command]]
        mixed = run(capsys, *command.split(), *target, "samples/quickstart.pcap", bad)
        assert mixed.status == USAGE
        assert bad in mixed.out + mixed.err
        assert mixed.out or any(own.iterdir())
