"""A growing capture file, or a directory to which captures are added -> sources to read, in order.

The files are written as by tcpdump: one file (``-w``), a new file at intervals (``-G``), or a ring that
overwrites its oldest file (``-C`` with ``-W``). A file is complete when a later one exists, and is then read
to its end. Files are ordered by modification time, then by name. Files of two programs that write to the same
directory at the same time are not distinguished.

Memory: name and modification time of each file that was read and still exists.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kdissect.capture.ongoing import IDLE_TICK_NS, WaitingSource
from kdissect.capture.reader import is_capture
from kdissect.capture.source import BLOCK_BYTES
from kdissect.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits

_POLL_S = IDLE_TICK_NS / 1_000_000_000
_RESCAN_EVERY = 4  # polls; a directory may have many files
_FOREVER = 1 << 63
_COMPRESSED = (".gz", ".zst", ".lz4")  # files that tcpdump -z makes from one that was already read

_State = tuple[int, int]
"""Inode and modification time of a file."""


class FollowedPath:
    """The files of a path, one after another: iterate over it once.

    Args:
        path: a file or a directory.
        limits: of reading each file.

    Attributes:
        stopped: whether to stop waiting for other files.

    Raises:
        CaptureError: there is no such file or directory.
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = Path(path)
        self._limits = limits
        self._read: dict[str, _State] = {}
        self._not_captures: dict[str, _State] = {}
        self.stopped = False
        if not self._path.exists():
            raise CaptureError(f"{path}: no such file or directory")

    def __iter__(self) -> Iterator[FollowedFile]:
        while True:
            path = self._next()
            if path is not None:
                followed = FollowedFile(path, self._limits, self)
                yield followed
                if followed.state is not None:
                    self._read[path.name] = followed.state
            elif self.stopped:
                return
            else:
                time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop waiting for other files."""
        self.stopped = True

    def is_superseded(self, path: Path) -> bool:
        """Whether there is an unread file besides this one."""
        return self._next(exclude=path) is not None

    def _next(self, exclude: Path | None = None) -> Path | None:
        """The first unread file."""
        unread: list[tuple[int, str, Path]] = []
        names = set()
        for path in self._candidates():
            names.add(path.name)
            try:
                status = path.stat()
            except OSError:  # it is gone
                continue
            state = status.st_ino, status.st_mtime_ns
            if (
                path != exclude
                and not self._was_read(path.name, state)
                and self._is_capture(path, status, state)
            ):
                unread.append((status.st_mtime_ns, path.name, path))
        for known in (self._read, self._not_captures):
            for name in known.keys() - names:
                if not any(name + suffix in names for suffix in _COMPRESSED):
                    del known[name]
        return min(unread)[2] if unread else None

    def _was_read(self, name: str, state: _State) -> bool:
        earlier = self._read.get(name)
        if earlier is not None:
            return earlier == state or (earlier[0] == state[0] and state[1] <= earlier[1])
        return name.endswith(_COMPRESSED) and Path(name).stem in self._read

    def _is_capture(self, path: Path, status: os.stat_result, state: _State) -> bool:
        """Whether a file begins as a capture does, or may do so later because it is empty."""
        if self._not_captures.get(path.name) == state:
            return False
        try:
            if path == self._path or not status.st_size or is_capture(path, self._limits):
                return True
        except OSError:
            return False
        self._not_captures[path.name] = state
        return False

    def _candidates(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        return [path for path in self._path.iterdir() if path.is_file() and not path.name.startswith(".")]


class FollowedFile(WaitingSource):
    """A file that may grow until another one follows it.

    Attributes:
        state: of the file when it was read; None if it must be read again.
    """

    def __init__(self, path: Path, limits: Limits, files: FollowedPath) -> None:
        super().__init__(str(path), limits)
        self.state: _State | None = None
        self._file = path
        self._files = files

    def blocks(self) -> Iterator[bytes]:
        """Blocks as they come; see ``WaitingSource``."""
        with self._file.open("rb", buffering=0) as file:
            is_last_read, until = False, None
            polls = 0
            self.state = os.fstat(file.fileno()).st_ino, _FOREVER  # a damaged file is not read again
            while True:
                if self.stopped and until is None:
                    until = os.fstat(file.fileno()).st_size  # its writer may continue after this
                if (until is None or self.bytes_read < until) and (block := file.read(BLOCK_BYTES)):
                    yield self.note_block(block)
                    continue
                status = os.fstat(file.fileno())
                if status.st_size < self.bytes_read:
                    self.state = None
                    self.warn("was rewritten before it was fully read; packets are missing")
                    return
                if is_last_read or self.stopped:
                    self.state = status.st_ino, status.st_mtime_ns
                    return
                polls += 1
                if polls % _RESCAN_EVERY == 1 and (
                    self._replaced(status) or self._files.is_superseded(self._file)
                ):
                    is_last_read = True  # it may have grown since
                    continue
                if self.idle_tick_due():
                    yield b""
                time.sleep(_POLL_S)

    def _replaced(self, status: os.stat_result) -> bool:
        """Whether another file has its name now."""
        try:
            return self._file.stat().st_ino != status.st_ino
        except OSError:
            return False  # it was removed, but may still be written to
