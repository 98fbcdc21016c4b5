"""Command lines that run one after another in one process, with limits on memory and processor time:

    python -m tests.attack.runs BYTES <runs.json     [[["read", "--json"], "a.pcap"], ...]

Writes a JSON line for each run: exit status, stdout and stderr, and its processor time.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.cli.config_file import CONFIG_VARIABLE
from kdissect.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    Command = Sequence[str]

DATA_BYTES = 1 << 30
"""The most that a process may allocate; one that reads a capture of some KB takes 60 MB, with pyarrow 130."""
RUN_S = 10
"""The most processor time that a run may take; usually a tenth of a second."""


class Result(NamedTuple):
    """Of one run."""

    arguments: list[str]
    status: int
    out: str
    err: str
    cpu_s: float


def run_all(commands: Sequence[Command], data_bytes: int = DATA_BYTES) -> list[Result]:
    """Run these in another process, which may allocate ``data_bytes``.

    Raises:
        AssertionError: it ended before its last run.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(data_bytes)],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    results = [Result(*json.loads(line)) for line in done.stdout.splitlines()]
    if done.returncode or len(results) < len(commands):
        raise AssertionError(f"status {done.returncode} after {results[-1:]}: {done.stderr[-2000:]}")
    return results


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"more than {RUN_S} s of processor time")


def _run(arguments: Command) -> Result:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, RUN_S)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    signal.setitimer(signal.ITIMER_PROF, 0)
    out.flush()
    buffer: Any = out.buffer
    text = buffer.getvalue().decode("utf-8", "surrogateescape")
    return Result(list(arguments), status, text, err.getvalue(), time.process_time() - began)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]),) * 2)
    signal.signal(signal.SIGPROF, _too_long)
    os.environ["COLUMNS"] = "120"
    os.environ[CONFIG_VARIABLE] = os.devnull
    for each in json.loads(Path("/dev/stdin").read_text(encoding="utf-8")):
        sys.stdout.write(f"{json.dumps(_run(each))}\n")
