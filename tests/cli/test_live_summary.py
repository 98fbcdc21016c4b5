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


def stderr_of_pipe(*options: str) -> str:
    with live("-", *options, stdin=subprocess.PIPE) as running:
        running.process.stdin.write(capture_bytes(talk()))  # type: ignore[union-attr]
        status, _, stderr = running.rest_of_pipe()
    assert status == OK
    return stderr


@pytest.mark.parametrize("options", [["--summary"], ["-q", "--summary"], ["--json", "--summary"]])
def test_a_page_at_the_end(options: list[str]) -> None:
    stderr = stderr_of_pipe(*options)
    assert "kdissect: 7 packets, 0 dropped" in stderr
    assert stderr.startswith(
        "capture     good: all 4 exchanges fully captured, 1 still pending; packets span 6.00ms\n"
    )
    assert "\ntraffic     good: 4 requests, 0 unanswered, 1 pending, 0 with errors\n" in stderr
    assert "\nCapture\n7 packets from stdin; connections: 1 Kafka\n4 exchanges (" in stderr
    assert re.search(
        r"^API +VERSIONS +EXCHANGES +SHARE .* P50 .*ERRORS +UNANSWERED +THROTTLED$", stderr, re.MULTILINE
    )
    assert re.search(r"^Heartbeat +4 +3 +75\.0% .* 2 +0us +0us +1\.00ms .* - +- +-$", stderr, re.MULTILINE)
    assert re.search(r"^Metadata +12 +1 +25\.0% .* 1 +1\.00ms +1\.00ms .* - +- +-$", stderr, re.MULTILINE)
    assert "Expected errors\n" in stderr
    assert "LEADER_NOT_AVAILABLE" in stderr


def test_connections_that_are_still_open_are_counted() -> None:
    """Reading stops after a row: another connection of the block was open before it, and this one is."""
    with live("-", "-c", "2", "--summary", stdin=subprocess.PIPE) as running:
        running.process.stdin.write(capture_bytes(talk()))  # type: ignore[union-attr]
        status, _, stderr = running.rest_of_pipe()
    assert status == OK
    assert "connections: 1 Kafka\n2 exchanges (" in stderr
    assert "1 client-broker pair" in stderr


def test_no_summary_without_a_terminal_unless_requested() -> None:
    assert "API " not in stderr_of_pipe()


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
    master, slave = pty.openpty()
    path = tmp_path / "talk.pcap"
    path.write_bytes(capture_bytes(talk()))
    with path.open("rb") as capture:
        done = subprocess.run(
            [sys.executable, "-m", "kdissect", "live", "-", "--json"],
            stdin=capture,
            stdout=subprocess.DEVNULL,
            stderr=slave,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
            check=False,
        )
    os.close(slave)
    stderr = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.returncode == OK
    assert "Heartbeat" in stderr
    assert max(len(line) for line in stderr.splitlines() if not line.startswith("kdissect: ")) <= 80
