"""An exception of Spark -> one line for people: what is wrong, and a remedy if one is known.

Spark reports errors in several forms: a Python exception with an error condition and a query plan, a Java
exception with its stack trace and those of its causes, the traceback of a worker inside either. The reason
why a worker died is only in the log.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = "Caused by: "
_JAVA_CALL = re.compile(r"^An error occurred while calling .*?\n:? ?", re.DOTALL)
_CLASS = re.compile(r"^(?:[A-Za-z_]\w*[.$])+[A-Z]\w*(?:: |$)")
_OWN_CLASS = re.compile(r"^(?:kdissect\.errors\.)?(?:Usage|Output|Write|Capture|Spark)Error: ")
_OWN_ERROR = re.compile(r"kdissect\.errors\.(?:Usage|Output|Write|Capture|Spark)Error: (.+)")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*? \(TID \d+\) \(.*?\): ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5};?")
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w+(?:Error|Exception): .+")
_LOG_BYTES = 64 * 1024

_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SET_PYTHON = f"set PYSPARK_PYTHON to a Python {_PYTHON} with kdissect and its extra spark, on every machine"


def _hadoop() -> str:
    """The version of Hadoop in this Spark, which its connectors must have, too."""
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec is not None else None
    jars = (each for place in places or () for each in Path(place, "jars").glob("hadoop-client-api-*.jar"))
    return next((each.stem.removeprefix("hadoop-client-api-") for each in jars), "VERSION")


REMEDIES = {
    "PYTHON_VERSION_MISMATCH": _SET_PYTHON,
    "Cannot run program": _SET_PYTHON,
    "No module named": "missing in the workers' Python: install kdissect with its extra spark there, or "
    + _SET_PYTHON,
    "OutOfMemoryError": "increase memory: --conf spark.driver.memory=4g, on a cluster spark.executor.memory",
    "S3AFileSystem not found": f"--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{_hadoop()} adds it",
    "JAVA_GATEWAY_EXITED": "Java exited before Spark started; run kdissect spark doctor to find the reason",
    "Could not parse Master URL": "a master is local[*], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
}
"""Words of an error -> remedy."""


def explain(error: BaseException, log: Path | None = None) -> str:
    """Describe an error in one line.

    Args:
        error: the exception that Spark raised.
        log: stderr of Spark's processes, in case a worker died.
    """
    raised = str(error)
    text = _line(_JAVA_CALL.sub("", raised))
    if "Python worker" in text and log is not None:
        text = _last_words(log) or text
    for words, remedy in REMEDIES.items():
        if words in text or words in raised:
            return f"{text.rstrip('.')}; {remedy}"
    return text or type(error).__name__


def _line(text: str) -> str:
    """The most informative line of a message."""
    if _TRACEBACK not in text and (own := _OWN_ERROR.search(text)) is not None:
        return own[1]
    if _TRACEBACK in text:
        return _OWN_CLASS.sub("", _raised(text.rpartition(_TRACEBACK)[2]))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    causes = [_bare(line.removeprefix(_CAUSE)) for line in lines if line.startswith(_CAUSE)]
    messages = [_bare(lines[0]), *causes]
    # The root cause, or one that includes it: Cannot run program "x": error=2, No such file or directory.
    return next(each for each in messages if each.endswith(messages[-1]))


def _bare(line: str) -> str:
    """The message alone, without Java class, task and SQLSTATE."""
    line = _CLASS.sub("", line) or line
    return _STATE.sub("", _CLASS.sub("", _LOST_TASK.sub("", line))).strip()


def _raised(traceback: str) -> str:
    """The exception at the end of a worker's traceback: the first line that is not indented."""
    for line in traceback.splitlines():
        if line and not line.startswith((" ", "\t")):
            return line
    return traceback.strip()


def _last_words(log: Path) -> str | None:
    """The last Python exception in a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((line for line in reversed(lines) if _PYTHON_ERROR.match(line)), None)
