"""Every exception that kdissect raises.

All but ``DecodeError`` are shown to the user as one line on stderr. ``DecodeError`` affects a single frame:
``kafka/bodies.py`` turns it into an anomaly (anomalies.py).
"""

from __future__ import annotations

import os
from pathlib import Path

DEBUG = "KDISSECT_DEBUG"
"""An environment variable: ``1`` shows the traceback of each ``UnexpectedError``. ``--debug`` sets it."""


class KdissectError(Exception):
    """Base class of all; never raised itself."""


class UsageError(KdissectError):
    """An invalid command or option. The message suggests the closest valid one, if there is any."""


class OutputError(KdissectError):
    """Output is refused, because of what is there already. The message says where and why."""


class WriteError(OutputError):
    """An I/O error while output was written: what is there is incomplete."""

    @classmethod
    def of(cls, target: object, error: OSError) -> WriteError:
        """Name what was written, and what the system says."""
        return cls(f"cannot write {target}: {error.strerror or error}")


class CaptureError(KdissectError):
    """The input is not a capture, or is damaged. The message says what is wrong and at which byte."""


class UnexpectedError(CaptureError):
    """A bug in kdissect: an exception that no code expects. Reading of the capture ends.

    Attributes:
        capture: the file that was being read; None if unknown.
    """

    def __init__(self, text: str, capture: str | None = None) -> None:
        super().__init__(text)
        self.capture = capture

    @classmethod
    def of(cls, error: Exception, capture: str | None = None) -> UnexpectedError:
        """Describe an exception in one line; its traceback goes to stderr if KDISSECT_DEBUG is set."""
        import traceback  # not needed before there is a bug

        if os.environ.get(DEBUG, "0") not in ("", "0"):
            traceback.print_exception(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        # Without the exception's message, which may contain payload or credentials.
        text = f"unexpected {type(error).__name__} at {where}: a bug in kdissect"
        named = f"{capture}: {text}" if capture is not None else text
        return cls(f"{named}; please report it with the output of --debug", capture)


class SchemaError(KdissectError):
    """A .kmsg file violates the notation. The message has file and line."""


class SparkError(KdissectError):
    """Spark cannot be started, or a job failed. The message says what to install or set."""


class WorkerError(KdissectError):
    """A worker process ended early. The message says what is known about the reason."""


class DecodeError(KdissectError):
    """Bytes contradict their layout.

    Attributes:
        path: dotted field path inside the message; ``""`` if unknown (compiled code does not track it, so the
            walker decodes the frame again to determine it).
        pos: position in the decoded buffer.
        reason: a short phrase without any payload.
    """

    def __init__(self, reason: str, *, path: str = "", pos: int = -1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.pos = pos

    def __str__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        at = f" at byte {self.pos}" if self.pos >= 0 else ""
        return f"{self.reason}{where}{at}"


class Truncated(DecodeError):
    """The buffer ends before the last field of the layout."""


class Malformed(DecodeError):
    """A length, count or marker is impossible."""


class Oversized(DecodeError):
    """A value exceeds a limit."""


class Unsupported(DecodeError):
    """An unknown API key, version or codec."""
