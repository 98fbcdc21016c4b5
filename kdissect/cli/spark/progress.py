"""What Spark's tasks are at -> a line on the terminal, twice a second. Holds that line."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

EVERY_S = 0.5
_CLEAR = "\r\x1b[K"
_MOST_WAIT_S = 5


@contextmanager
def progress(spark: SparkSession, verb: str, *, wanted: bool) -> Iterator[None]:
    """Tell on stderr what is done meanwhile, if that is a terminal.

    Args:
        spark: not one of Spark Connect, which does not know.
        verb: what is done.
        wanted: whether somebody wants to know.
    """
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    end = threading.Event()

    def watch() -> None:
        with suppress(Exception):  # Java has ended, or the terminal: whoever waits for the tasks will tell
            while not end.wait(EVERY_S):
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
                sys.stderr.write(f"{_CLEAR}{told(verb, stages)}")
                sys.stderr.flush()

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join(_MOST_WAIT_S)
        with suppress(OSError):
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def told(verb: str, stages: Iterable[Any]) -> str:
    """The line: how many tasks are done, of those that Spark knows now."""
    known = [stage for stage in stages if stage is not None]
    if not known:
        return f"{verb} ..."
    done, running, tasks = (
        sum(getattr(stage, name) for stage in known)
        for name in ("numCompletedTasks", "numActiveTasks", "numTasks")
    )
    return f"{verb}: {done:,} of {tasks:,} tasks, {running:,} running"
