"""A folder that captures are written into, one after another -> the captures, in order of time. Holds, of
each file that is there, when its first packet came.

A file is known by the time of its first packet and its name, whatever the file system says of it. So a ring
whose names come again (tcpdump -W) is told apart, and a file that is compressed when it is complete
(tcpdump -z) is still the same. What has no packet yet is not there yet.
"""

from __future__ import annotations

import os
import stat
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kdissect.errors import UsageError
from kdissect.spark.planning import first_time_ns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.limits import Limits

_COMPRESSED = (".gz", ".zst", ".lz4")

_State = tuple[int, int, int]
"""Which file a name stands for, when it was changed last, and its size."""


class RingFile(NamedTuple):
    """A capture of a ring; ``name`` is without what compression adds to it."""

    first_ns: int
    name: str
    path: str


class Ring:
    """Looks for the files.

    Args:
        places: a folder, or files in one as names or patterns.
        limits: bounds.
    """

    def __init__(self, places: Sequence[str], limits: Limits) -> None:
        self._places = places
        self._limits = limits
        self._known: dict[str, tuple[_State, int | None]] = {}

    def files(self) -> list[RingFile]:
        """All captures that are there and have a packet, in order of time.

        Raises:
            UsageError: they are in several folders, so that not each follows the one before.
        """
        found: dict[tuple[int, str], RingFile] = {}
        before, self._known = self._known, {}
        for path in sorted(set(self._candidates())):
            try:
                status = os.stat(path)  # noqa: PTH116  (of a thousand names)
            except OSError:  # it is gone
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            state = status.st_ino, status.st_mtime_ns, status.st_size
            told = before.get(path)
            if told is None or told[0] != state:
                told = state, first_time_ns(path, self._limits)
            self._known[path] = told
            if (first_ns := told[1]) is not None:
                name = _plain(os.path.basename(path))  # noqa: PTH119
                found.setdefault((first_ns, name), RingFile(first_ns, name, path))
        folders = {
            str(Path(path).parent) for path, (_, first_ns) in self._known.items() if first_ns is not None
        }
        if len(folders) > 1:
            raise UsageError(
                f"a stream is of one folder, not of {', '.join(sorted(folders))}; start one for each"
            )
        return [found[key] for key in sorted(found)]

    def _candidates(self) -> Iterator[str]:
        for place in self._places:
            pattern = os.path.join(escape(place), "*") if Path(place).is_dir() else place  # noqa: PTH118
            yield from glob(pattern)  # noqa: PTH207  (Path.glob takes no absolute pattern)


def _plain(name: str) -> str:
    """A file's name before it was compressed."""
    return next((name.removesuffix(each) for each in _COMPRESSED if name.endswith(each)), name)
