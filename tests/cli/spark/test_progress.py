from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kdissect.cli.spark import decode as progressing
from kdissect.cli.spark.decode import progress, progress_line

if TYPE_CHECKING:
    import pytest

MAX_WAIT_S = 60


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def stage(done: int, running: int, tasks: int) -> Any:
    return SimpleNamespace(numCompletedTasks=done, numActiveTasks=running, numTasks=tasks)


def session(*stages: Any) -> Any:
    """A Spark session with these stages."""
    tracker = SimpleNamespace(
        getActiveStageIds=lambda: range(len(stages)), getStageInfo=lambda number: stages[number]
    )
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_the_line() -> None:
    assert progress_line("decoding", [stage(1200, 2, 3000), None, stage(0, 0, 7)]) == (
        "decoding: 1,200 of 3,007 tasks, 2 running"
    )
    assert progress_line("decoding", [None]) == "decoding ..."


def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal as stderr. Not a fixture, because pytest replaces stderr in each phase."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progressing, "EVERY_S", 0.001)
    return screen


def test_it_is_written_over_and_away(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = screen(monkeypatch)
    with progress(session(stage(1, 1, 4)), "decoding", enabled=True):
        deadline = time.monotonic() + MAX_WAIT_S
        while seen.getvalue().count("\r") < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
    lines = seen.getvalue().split("\r\x1b[K")
    assert set(lines[1:-1]) == {"decoding: 1 of 4 tasks, 1 running"}
    assert lines[-1] == ""


def test_a_spark_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = screen(monkeypatch)
    with progress(session(SimpleNamespace()), "decoding", enabled=True):
        time.sleep(0.01)
    assert seen.getvalue() == "\r\x1b[K"


def test_no_progress_if_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = screen(monkeypatch)
    with progress(session(), "decoding", enabled=False):
        time.sleep(0.01)
    assert seen.getvalue() == ""
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    with progress(session(), "decoding", enabled=True):
        pass
    assert file.getvalue() == ""
