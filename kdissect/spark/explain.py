"""What Spark raises -> one line for a person: what is wrong, and what to do about it where that is known.

Spark tells the same in many ways: an exception of Python with a condition and a plan below it, one of Java
with its stack and those of its causes, the traceback of a worker inside either. A worker that died says why
only in the log.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = "Caused by: "
_JAVA_CALL = re.compile(r"^An error occurred while calling .*?\n:? ?", re.DOTALL)
_CLASS = re.compile(r"^(?:[A-Za-z_]\w*[.$])+[A-Z]\w*(?:: |$)")
_OWN_CLASS = re.compile(r"^(?:kdissect\.errors\.)?(?:Usage|Output|Capture|Spark)Error: ")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*? \(TID \d+\) \(.*?\): ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5};?")
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception): .+")
_LOG_BYTES = 64 * 1024

_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SET_PYTHON = f"set PYSPARK_PYTHON to a Python {_PYTHON} that has kdissect[spark], on every machine"
REMEDIES = {
    "PYTHON_VERSION_MISMATCH": _SET_PYTHON,
    "Cannot run program": _SET_PYTHON,
    "No module named": "the Python of the workers lacks it: pip install 'kdissect[spark]' there, or "
    + _SET_PYTHON,
    "OutOfMemoryError": "give Spark more: --conf spark.driver.memory=4g, on a cluster spark.executor.memory",
    "JAVA_GATEWAY_EXITED": "Java ended before Spark began; kdissect spark doctor looks for the reason",
    "Could not parse Master URL": "a master is local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
}
"""Words of an error, and what to do about it."""


def explain(error: BaseException, log: Path | None = None) -> str:
    """Tell what went wrong.

    Args:
        error: what Spark raised.
        log: what its processes wrote to stderr, for what workers said as they died.
    """
    said = str(error)
    text = _line(_JAVA_CALL.sub("", said))
    if "Python worker" in text and log is not None:
        text = _last_words(log) or text
    for words, remedy in REMEDIES.items():
        if words in text or words in said:
            return f"{text.rstrip('.')}; {remedy}"
    return text or type(error).__name__


def _line(text: str) -> str:
    """The one line that tells most."""
    if _TRACEBACK in text:
        return _OWN_CLASS.sub("", _raised(text.rpartition(_TRACEBACK)[2]))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    causes = [_bare(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    told = [_bare(lines[0]), *causes]
    # The root, or what says the same and more: Cannot run program "x": error=2, No such file or directory.
    return next(each for each in told if each.endswith(told[-1]))


def _bare(line: str) -> str:
    """The text alone, without what Java calls it, and whom it happened to."""
    line = _CLASS.sub("", line) or line
    return _STATE.sub("", _CLASS.sub("", _LOST_TASK.sub("", line))).strip()


def _raised(traceback: str) -> str:
    """The exception at the end of a worker's traceback: the first line that stands at the margin."""
    for line in traceback.splitlines():
        if line and not line.startswith((" ", "\t")):
            return line
    return traceback.strip()


def _last_words(log: Path) -> str | None:
    """The last exception of Python in a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), None)
