"""Captures of what people reported: every way to read them shows the same exchanges. What these have to be is
tested where each kind is decoded.
"""

from __future__ import annotations

from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kdissect import core
from kdissect.options import WHOLE, WINDOW
from tests.cli.commands import run, spawn
from tests.rings import packets_of, write

if TYPE_CHECKING:
    from collections.abc import Callable

Rows = list[dict[str, Any]]

CAPTURES = sorted(Path(__file__).parent.glob("*.pcap"))


def rows(text: str | bytes) -> Rows:
    """JSON lines, without the name of the capture."""
    return [
        {name: value for name, value in orjson.loads(line).items() if name != "capture"}
        for line in text.splitlines()
    ]


@pytest.fixture(params=CAPTURES, ids=lambda path: path.stem)
def capture(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def expected(
    capture: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Rows]:
    """What Python alone shows in one process."""

    def read(*options: str) -> Rows:
        with monkeypatch.context() as pure:
            pure.setattr(core, "is_used", False)
            return rows(run(capsys, "read", "--json", *options, str(capture)).out)

    return read


@pytest.mark.core
def test_with_the_core(
    capture: Path, expected: Callable[..., Rows], capsys: pytest.CaptureFixture[str]
) -> None:
    if not core.is_used:
        pytest.skip("kdissect has no native core here")
    assert rows(run(capsys, "read", "--json", str(capture)).out) == expected()


@pytest.mark.core
@pytest.mark.parametrize("command", ["read", "summary --json", "check --json", "records --json"])
def test_other_commands_with_the_core(
    capture: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not core.is_used:
        pytest.skip("kdissect has no native core here")
    by_core = run(capsys, *command.split(), str(capture))
    monkeypatch.setattr(core, "is_used", False)
    assert run(capsys, *command.split(), str(capture)) == by_core


def test_with_several_processes(
    capture: Path, expected: Callable[..., Rows], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rows(run(capsys, "read", "--json", "-j", "2", str(capture)).out) == expected()


def test_as_pcapng(
    capture: Path, expected: Callable[..., Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.pcapng", packets_of(capture))
    assert rows(run(capsys, "read", "--json", str(tmp_path / "a.pcapng")).out) == expected()


def test_live_from_a_pipe(capture: Path, expected: Callable[..., Rows]) -> None:
    live = spawn("live", "--json", "-", stdin=PIPE)
    out, _ = live.communicate(capture.read_bytes(), timeout=60)
    assert rows(out) == expected("--names", WINDOW)


def test_export(
    capture: Path, expected: Callable[..., Rows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "tables")
    run(capsys, "export", str(capture), "-o", out, "--format", "jsonl", "--tables", "exchanges")
    (exported,) = (path for path in (tmp_path / "tables" / "exchanges").iterdir() if path.is_file())
    shown = expected("--names", WHOLE)
    names = shown[0].keys() if shown else ()  # the table has other columns besides
    assert [{name: row[name] for name in names} for row in rows(exported.read_text())] == shown
