from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kdissect.cli.live import shows_summary
from kdissect.cli.terminal import OK
from tests.cli.commands import capture_bytes, talk
from tests.cli.live_process import live

if TYPE_CHECKING:
    from pathlib import Path


def said_of_a_pipe(*options: str) -> str:
    with live("-", *options, stdin=subprocess.PIPE) as running:
        running.process.stdin.write(capture_bytes(talk()))  # type: ignore[union-attr]
        status, _, said = running.rest_of_pipe()
    assert status == OK
    return said


@pytest.mark.parametrize("options", [["--summary"], ["-q", "--summary"], ["--json", "--summary"]])
def test_a_page_at_the_end(options: list[str]) -> None:
    said = said_of_a_pipe(*options)
    assert "kdissect: 7 packets, 0 dropped" in said
    assert said.startswith("Capture\n7 packets of -; connections: 1 Kafka\n4 exchanges (")
    assert re.search(r"^API +COUNT +P50 +P99 +ERRORS\s*$", said, re.MULTILINE)
    assert re.search(r"^Heartbeat +3 +1\.00ms +1\.00ms +-\s*$", said, re.MULTILINE)
    assert re.search(r"^Metadata +1 +1\.00ms +1\.00ms +1\s*$", said, re.MULTILINE)
    assert "Errors\n" in said
    assert "LEADER_NOT_AVAILABLE" in said


def test_without_a_terminal_there_is_none_unless_asked_for() -> None:
    assert "API " not in said_of_a_pipe()


def test_on_a_terminal_there_is_one_unless_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", open(os.devnull, "w"))  # noqa: SIM115, PTH123
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    try:
        assert shows_summary(None, quiet=False)
        assert not shows_summary(None, quiet=True)
        assert shows_summary(True, quiet=True)
        assert not shows_summary(False, quiet=False)
    finally:
        sys.stderr.close()


def test_it_fits_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture_bytes(talk()))
    with path.open("rb") as capture:
        done = subprocess.run(
            [sys.executable, "-m", "kdissect", "live", "-", "--json"],
            stdin=capture,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
            check=False,
        )
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == OK
    assert "Heartbeat" in said
    assert max(len(line) for line in said.splitlines() if not line.startswith("kdissect: ")) <= 80
