from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import core
from kdissect.cli.live_run import StopSignals
from kdissect.cli.terminal import INTERRUPTED
from kdissect.kafka.compression import Budget
from tests.cli.commands import run
from tests.core import HAS_CORE

if TYPE_CHECKING:
    from pathlib import Path


class LiveSources:
    """Records whether it was stopped. ``defers``: how often ``interrupt`` returns True."""

    def __init__(self, defers: int = 0) -> None:
        self.stopped = threading.Event()
        self._defers = defers

    def stop(self) -> None:
        self.stopped.set()

    def interrupt(self) -> bool:
        self._defers -= 1
        return self._defers >= 0


def stop_signals() -> tuple[StopSignals, LiveSources]:
    ongoing: Any = LiveSources()
    return StopSignals(ongoing), ongoing


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_end_and_the_second_one_ends_it(number: signal.Signals) -> None:
    signals, ongoing = stop_signals()
    before = signal.getsignal(number)
    with signals.installed(None):
        signal.raise_signal(number)
        assert ongoing.stopped.is_set()
        assert signals.signal == number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_it_ends_after_some_time() -> None:
    signals, ongoing = stop_signals()
    with signals.installed(1_000_000):
        assert ongoing.stopped.wait(60)
    assert signals.signal is None


def test_the_second_signal_can_have_a_handler() -> None:
    ongoing: Any = LiveSources()
    pressed: list[int] = []
    signals = StopSignals(ongoing, lambda number, _: pressed.append(number))
    with signals.installed(None):
        signal.raise_signal(signal.SIGINT)
        assert pressed == []
        signal.raise_signal(signal.SIGTERM)
    assert (pressed, signals.signal) == ([signal.SIGTERM], signal.SIGINT)


def test_a_source_that_is_read_defers_the_second_signal_but_not_the_third() -> None:
    ongoing: Any = LiveSources(defers=1)
    signals = StopSignals(ongoing)
    with signals.installed(None):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_during_its_imports_it_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, "-c", "from kdissect.__main__ import main; main()"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_an_exit_status_stays_that_of_ctrl_c(tmp_path: Path) -> None:
    """CPython notes an interrupt of code that it got as text, even if that is handled, and ends by SIGINT."""
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import kdissect.cli.main
def main():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return {INTERRUPTED}
kdissect.cli.main.main = main
"""
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "kdissect"]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False)
    assert ended.returncode == INTERRUPTED


@pytest.mark.parametrize("is_used", [False, pytest.param(True, marks=pytest.mark.core)])
@pytest.mark.parametrize("command", ["records", "export"])
def test_ctrl_c_in_what_the_core_calls(
    command: str,
    is_used: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    if is_used and not HAS_CORE:
        pytest.skip("installed without the native core, or KDISSECT_PURE is set")
    inflate = Budget.inflate
    calls = []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return inflate(*arguments)

    monkeypatch.setattr(core, "is_used", is_used)
    monkeypatch.setattr(Budget, "inflate", interrupted)
    options = ["--records", "-o", str(tmp_path / "tables"), "-j", "1"] if command == "export" else ["-j", "1"]
    result = run(capsys, command, "samples/kafka-1.1.pcap.gz", *options)
    assert (result.status, len(calls)) == (INTERRUPTED, 3)
    assert "kdissect: interrupted after " in result.err
