"""A capture file that grows, or a folder in which one capture follows another -> those files, in order.

As tcpdump writes them: one file (``-w``), a new file every so often (``-G``), or a ring in which the oldest
is written anew (``-C`` with ``-W``). A file is over when a later one is there, and is read to its end then.
Files are in order of the time of their last change, then of their names. Two programs that write into one
folder at once are not told apart.

Holds the name and the time of the last change of each file that was read and is still there.
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
_RESCAN_EVERY = 4  # polls; a folder may have many files
_FOR_EVER = 1 << 63
_COMPRESSED = (".gz", ".zst", ".lz4")  # what tcpdump -z makes of a file that was read already

_State = tuple[int, int]
"""Which file a name stands for, and when that was changed last."""


class Following:
    """The files behind a name, one after another; to be iterated over once.

    Args:
        path: a file or a folder.
        limits: bounds.

    Attributes:
        stopped: no other file is to be waited for.

    Raises:
        CaptureError: there is no such file or folder.
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self._path = Path(path)
        self._limits = limits
        self._read: dict[str, _State] = {}
        self._not_captures: dict[str, _State] = {}  # no captures
        self.stopped = False
        if not self._path.exists():
            raise CaptureError(f"{path}: no such file or directory")

    def __iter__(self) -> Iterator[Followed]:
        while True:
            path = self._next()
            if path is not None:
                followed = Followed(path, self._limits, self)
                yield followed
                if followed.state is not None:
                    self._read[path.name] = followed.state
            elif self.stopped:
                return
            else:
                time.sleep(_POLL_S)

    def stop(self) -> None:
        """Wait for no other file."""
        self.stopped = True

    def is_superseded(self, path: Path) -> bool:
        """Whether another file is there, behind this one."""
        return self._next(exclude=path) is not None

    def _next(self, exclude: Path | None = None) -> Path | None:
        """The first file that was not read yet."""
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
        """Whether it begins like one. An empty one may yet."""
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


class Followed(WaitingSource):
    """A file that may grow, up to where another one follows.

    Attributes:
        state: of the file that was read, None where it is to be read again.
    """

    def __init__(self, path: Path, limits: Limits, files: Following) -> None:
        super().__init__(str(path), limits)
        self.state: _State | None = None
        self._file = path
        self._files = files

    def blocks(self) -> Iterator[bytes]:
        """Blocks as they come; see ``WaitingSource``."""
        with self._file.open("rb", buffering=0) as file:
            is_last_read, until = False, None
            polls = 0
            self.state = os.fstat(file.fileno()).st_ino, _FOR_EVER  # what is damaged is not read again
            while True:
                if self.stopped and until is None:
                    until = os.fstat(file.fileno()).st_size  # whoever writes it need not stop when we do
                if (until is None or self.bytes_read < until) and (block := file.read(BLOCK_BYTES)):
                    yield self.note_block(block)
                    continue
                status = os.fstat(file.fileno())
                if status.st_size < self.bytes_read:
                    self.state = None
                    self.warn("was rewritten before it was read to the end; packets are missing")
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
        """Whether its name belongs to another file now."""
        try:
            return self._file.stat().st_ino != status.st_ino
        except OSError:
            return False  # it was removed: more may come all the same
