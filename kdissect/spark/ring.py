"""Folders that captures are written into, one after another -> the captures, in order of time. Holds, of each
file that is there, when its first packet came.

A file is known by the time of its first packet and its name, whatever the file system says of it. So a ring
whose names come again (tcpdump -W) is told apart, and a file that is compressed when it is complete
(tcpdump -z) is still the same. What has no packet yet is not there yet.

Files of one folder whose names differ by a number or a time are a ring: one program writes them, one after
another. Of each ring one file may still be written to.
"""

from __future__ import annotations

import os
import re
import stat
from glob import escape, glob
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kdissect.spark.planning import first_time_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kdissect.limits import Limits

_COMPRESSED = (".gz", ".zst", ".lz4")

_COUNTED = re.compile(r"\d+$")
"""tcpdump -C: kafka.pcap7."""
_TIMED = re.compile(
    r"(?:_\d{5,})?_\d{14}(?:_\d{5,})?"  # dumpcap -b: kafka_00007_20261121090500.pcapng
    # tcpdump -G: kafka-2026-11-21_09:05:00.pcap
    r"|\d{4}-\d\d-\d\d(?:[-_T ]?\d\d[-_:.]?\d\d(?:[-_:.]?\d\d)?)?"
    r"|\d{8,}(?:[-_T]\d{4,6}(?!\d))?"
)
_NUMBERED = re.compile(r"\d+(?=\D*$)")
"""kafka-7.pcap."""


class RingFile(NamedTuple):
    """A capture of a ring.

    Attributes:
        first_ns: time of its first packet.
        name: without what compression adds to it.
        path: where it is now.
        ring: its folder, and what the names of all files of its ring have in common.
        changed_ns: when it was written to last, by the file system's clock.
        bytes: its size.
    """

    first_ns: int
    name: str
    path: str
    ring: str
    changed_ns: int
    bytes: int

    @property
    def id(self) -> str:
        """What it is known by."""
        return blake2b(b"%d " % self.first_ns + os.fsencode(self.name), digest_size=8).hexdigest()


class Ring:
    """Looks for the files.

    Args:
        places: folders, and files as names or patterns.
        limits: bounds.
        pattern: what it finds in a file's name (its first group, if it has one) names the ring; None: the
            name without its number or time.
    """

    def __init__(self, places: Sequence[str], limits: Limits, pattern: re.Pattern[str] | None = None) -> None:
        self._places = places
        self._limits = limits
        self._pattern = pattern
        self._known: dict[str, tuple[tuple[int, int, int], int | None]] = {}

    def files(self) -> list[RingFile]:
        """All captures that are there and have a packet, in order of time."""
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
            looked = before.get(path)
            if looked is None or looked[0] != state:
                looked = state, first_time_ns(path, self._limits)
            self._known[path] = looked
            if (first_ns := looked[1]) is not None:
                folder, name = os.path.split(_plain(path))
                ring = os.path.join(folder, ring_of(name, self._pattern))  # noqa: PTH118
                found.setdefault((first_ns, name), RingFile(first_ns, name, path, ring, *state[1:]))
        rings = {file.ring for file in found.values()}
        # tcpdump -C writes host1.pcap, then host1.pcap1
        return [
            file._replace(ring=first) if (first := _plain(file.path)) in rings else file
            for _, file in sorted(found.items())
        ]

    def _candidates(self) -> Iterator[str]:
        for place in self._places:
            pattern = os.path.join(escape(place), "*") if Path(place).is_dir() else place  # noqa: PTH118
            yield from glob(pattern)  # noqa: PTH207  (Path.glob takes no absolute pattern)


def ring_of(name: str, pattern: re.Pattern[str] | None = None) -> str:
    """What a file's name tells of its ring; see ``Ring``."""
    if pattern is not None:
        found = pattern.search(name)
        return "" if found is None else found[min(1, pattern.groups)] or ""
    counted = _COUNTED.sub("", name)
    timed = _TIMED.sub("", counted)
    return timed if timed != name else _NUMBERED.sub("", name)


def by_ring(files: Iterable[RingFile]) -> dict[str, list[RingFile]]:
    """The files of each ring, in their order."""
    rings: dict[str, list[RingFile]] = {}
    for file in files:
        rings.setdefault(file.ring, []).append(file)
    return rings


def being_written(files: Iterable[RingFile]) -> set[RingFile]:
    """Of each ring the file that began last, and the one that was written to last: another one where a clock
    was set back, or a file that comes late is still being copied.
    """
    rings = by_ring(files).values()
    return {max(each) for each in rings} | {max(each, key=_changed) for each in rings}


def _changed(file: RingFile) -> tuple[int, RingFile]:
    return file.changed_ns, file


def _plain(name: str) -> str:
    """A file's name before it was compressed."""
    return next((name.removesuffix(each) for each in _COMPRESSED if name.endswith(each)), name)
