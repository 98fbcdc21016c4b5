"""Every exception that kdissect raises, as one small tree.

``CaptureError``, ``UnexpectedError``, ``SchemaError``, ``OutputError``, ``SparkError``, ``WorkerError`` and
``UsageError`` reach a person as one line on stderr.
``DecodeError`` never leaves the frame it happened in: ``kafka/bodies.py`` turns it into an anomaly (see
anomalies.py).
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

DEBUG = "KDISSECT_DEBUG"
"""An environment variable: ``1`` shows the traceback of each ``UnexpectedError``. ``--debug`` sets it."""


class KdissectError(Exception):
    """Root of the tree; never raised itself."""


class UsageError(KdissectError):
    """The user asked for something that does not exist or cannot be: the text names the nearest thing that
    does.
    """


class OutputError(KdissectError):
    """What was asked for cannot be written; the text says where and why."""


class CaptureError(KdissectError):
    """The input cannot be read as a capture, or not any further; the text says what is wrong and where (byte
    offset).
    """


class UnexpectedError(CaptureError):
    """A bug of ours: something failed that no code was prepared for. It costs the capture that was read.

    Attributes:
        capture: the file that was being read, None where that is not known.
    """

    def __init__(self, text: str, capture: str | None = None) -> None:
        super().__init__(text)
        self.capture = capture

    @classmethod
    def of(cls, error: Exception, capture: str | None = None) -> UnexpectedError:
        """Describe an exception in one line; its traceback goes to stderr if KDISSECT_DEBUG is set."""
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            traceback.print_exception(error)
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        # Not what the exception says: that can be payload, or a credential.
        text = f"unexpected {type(error).__name__} at {where}: a bug in kdissect"
        named = f"{capture}: {text}" if capture is not None else text
        return cls(f"{named}; please report it with the output of --debug", capture)


class SchemaError(KdissectError):
    """A .kmsg text breaks the notation; the text names file and line."""


class SparkError(KdissectError):
    """Spark cannot be started, or failed at what it was asked to do; the text says what to install or set."""


class WorkerError(KdissectError):
    """One of the processes that share the work ended before that; the text says what is known of it."""


class DecodeError(KdissectError):
    """Bytes do not fit the layout they should have.

    Attributes:
        path: dotted field path inside the message, ``""`` where it is not known (compiled code does not track
            it; the walker re-reads the frame to find it).
        pos: offset in bytes from the start of the buffer that was decoded.
        reason: a short phrase without any payload bytes in it.
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
    """The buffer ends before the layout does."""


class Malformed(DecodeError):
    """A length, count or marker that cannot be true."""


class Oversized(DecodeError):
    """Well-formed perhaps, but larger than a bound."""


class Unsupported(DecodeError):
    """An api key, version or codec that this program does not know."""
