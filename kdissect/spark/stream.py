"""``spark.readStream.format("kdissect")``: directories to which captures are added -> micro-batches, with
each exchange in exactly one.

The offset of a stream is the set of files that it has read: their hashes, unless they are older than
``maxFileAge``. Two offsets determine the parts of a micro-batch, in any process, however often they are
computed. So a stream is exactly-once, and files can arrive late. The newest file of each ring (below) is not
read while something may be writing it. Each file is read with those before it in its ring (``lookback``). An
exchange that is unfinished at the end of the newest complete file is reported with the file that completes
it, or at the end of the ring (``includeLast``).

Holds, on the driver, a row for each file.
"""

from __future__ import annotations

import os
import re
import warnings
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow

from kdissect.capture import stores
from kdissect.capture.inputs import candidates
from kdissect.errors import CaptureError, UsageError
from kdissect.phrases import duration, many
from kdissect.spark.planning import by_files, first_times_ns, key_log_of
from kdissect.spark.reading import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

    from kdissect.capture.stores import Status
    from kdissect.limits import Limits
    from kdissect.spark.options import SourceOptions
    from kdissect.spark.planning import Part


Offset = dict[str, Any]
"""The offset of a stream, as in its checkpoint:

files       number of captures read so far
name        name of the latest of them
seen        files that are remembered: ``RingFile.id`` -> time of the first packet
since       a file whose first packet is before this time is too late, unless it is remembered
forgotten   number of existing files that are not remembered because there are too many
late        number of existing files that arrived too late
ended       ring -> time of the first packet of its last file
"""

_MAX_LONE_RINGS = 2
"""Rings with a single file: usual when writers start. With more, ``ring_of`` probably misreads the names."""
_KEEP = "use a larger ring"
_READ_APART = "read them in a batch job and remove them"
_NAME_APART = "set the option ring so that each writer has its own ring"
_BEGINNING: Offset = {
    "files": 0, "name": "", "seen": {}, "since": -(1 << 63), "forgotten": 0, "late": 0, "ended": {},
}  # fmt: skip


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads captures as they are completed.

    Raises:
        UsageError: there is no path, or the table cannot be read file by file.
    """

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        if not options.paths:
            raise UsageError('no path given; use spark.readStream.format("kdissect").load("captures/")')
        if (options.modified_after_ns, options.modified_before_ns) != (None, None):
            raise UsageError("modifiedAfter and modifiedBefore are not for streams")
        by_files((), options)
        self._options = options
        self._columns = columns
        self._ring = Ring(
            options.paths, options.limits, options.ring, options.selects, is_recursive=options.recursive
        )
        self._target: set[str] | None = None
        self._before: Sequence[RingFile] = ()  # the files at the last call of latestOffset

    def initialOffset(self) -> Offset:  # noqa: N802
        """The offset before the first file."""
        return dict(_BEGINNING)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As many files as the options allow."""
        max_files = self._options.max_files
        return ReadAllAvailable() if max_files is None else ReadMaxFiles(max_files)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The offset after the next micro-batch; ``start`` if there are no new files.

        Raises:
            CaptureError: a file, or part of it, will never be read.
        """
        files = self._ring.files()
        unread = [file for file in files if file.id not in start["seen"]]
        pending = [file for file in unread if file.first_ns >= start["since"]]
        old = len(unread) - len(pending)
        late = max(0, old - start["forgotten"])
        self._report(start, files, late)
        new = self._complete(pending, files)
        if self._target is not None:
            new = [file for file in new if file.id in self._target]
        max_files = self._options.limits.seen_files
        new = new[: min(max_files, limit.max_files) if isinstance(limit, ReadMaxFiles) else max_files]
        if not new:
            if len(by_ring(files)) == len(files) > _MAX_LONE_RINGS:
                message = f"{len(files)} captures are waiting, each alone in its ring"
                warnings.warn(f"{message}; see the options ring and includeLast", stacklevel=1)
            return start
        return self._next_offset(new, {**start, "late": late, "forgotten": old - late}, files)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Ignore files that appear from now on."""
        files = self._ring.files()
        self._target = {file.id for file in self._complete(files, files)}

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """The number of complete files and the newest one, for the stream's progress reports."""
        files = self._ring.files()
        complete = self._complete(files, files)
        return {"files": len(complete), "name": complete[-1].name if complete else ""}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """A partition per task of a micro-batch, with the ``Part`` that it reads.

        Raises:
            CaptureError: a file is gone before it was read.
        """
        files = self._ring.files()
        files = [file for file in files if file.id in end["seen"]]
        new = {file.id for file in files if file.id not in start["seen"]}
        count = end["files"] - start["files"]
        if len(new) < count:
            self._lose(
                f"{count - len(new)} of {count} captures up to {end['name']} were gone before they were read",
                _KEEP,
            )
        gone = max(0, end["files"] - len(files))
        parts: list[Part] = []
        for ring, own in by_ring(files).items():
            ended_ns = start["ended"].get(ring)
            if ended_ns is not None:
                own = [file for file in own if file.id in new or file.first_ns > ended_ns]
            ends = end["ended"].get(ring) != ended_ns
            parts += self._parts(own, new, gone, ends=ends)
        key_log = key_log_of(self._options, ())
        return [InputPartition(replace(part, key_log=key_log)) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task.

        Raises:
            CaptureError: the file is gone, or has been replaced.
        """
        part: Part | None = partition.value
        if part is None:
            return
        for path, first_ns in zip(part.own, part.firsts_ns, strict=True):
            if [*first_times_ns([path], self._options.limits)] != [first_ns]:
                self._lose(f"{path}: removed or rewritten before it was read", _KEEP)
                part = replace(
                    part,
                    own=tuple(each for each in part.own if each != path),
                    paths=tuple(each for each in part.paths if each != path),
                )
        if part.own:
            yield from read(part, self._options, self._columns)

    def _complete(self, files: Sequence[RingFile], among: Sequence[RingFile]) -> list[RingFile]:
        """The files that nothing writes to anymore."""
        waiting = set() if self._options.include_last else being_written(among)
        return [file for file in files if file not in waiting]

    def _report(self, known: Offset, files: Sequence[RingFile], late: int) -> None:
        """Report the data that was lost since the last call.

        Raises:
            CaptureError: data was lost.
        """
        before, self._before = self._before, files
        now = {file.id: file for file in files}
        gone = [
            file.name
            for file in self._complete(before, before)
            if file.id not in now and file.id not in known["seen"] and file.first_ns >= known["since"]
        ]
        if gone:
            self._lose(f"removed before they were read: {', '.join(gone)}", _KEEP)
        grown = [
            file.name
            for file in before
            if file.id in known["seen"]
            and file.id in now
            and now[file.id].path == file.path
            and now[file.id].bytes > file.bytes
        ]
        if grown:
            self._lose(f"modified after they were read: {', '.join(grown)}", _NAME_APART)
        if late > known["late"]:
            reason = (
                f"more than maxFileAge before {known['name']}"
                if self._is_bound_by_age(known)
                else f"before the {len(known['seen']):,} files that the stream remembers (limit seen_files)"
            )
            self._lose(f"{many(late, 'capture')} arrived too late: {reason}", _READ_APART)

    def _is_bound_by_age(self, known: Offset) -> bool:
        """Whether ``maxFileAge`` says which files are too late, and not the number of remembered files."""
        latest_ns = max(known["seen"].values(), default=0)
        return bool(known["since"] <= latest_ns - self._options.max_file_age_ns)

    def _lose(self, what: str, remedy: str) -> None:
        if self._options.fail_on_data_loss:
            raise CaptureError(f"{what}; {remedy}, or set the option failOnDataLoss to false")
        warnings.warn(what, stacklevel=2)

    def _next_offset(self, new: Sequence[RingFile], known: Offset, files: Sequence[RingFile]) -> Offset:
        """The offset after a micro-batch of new files."""
        options, max_files = self._options, self._options.limits.seen_files
        own, present = {file.id for file in new}, {file.id for file in files}
        seen = {**known["seen"], **{file.id: file.first_ns for file in new}}
        # The newest file of a ring with little traffic may wait for a long time, and must not become too
        # late.
        waiting = [file.first_ns for file in files if file.id not in seen and file.first_ns >= known["since"]]
        since = max(known["since"], min([max(seen.values()) - options.max_file_age_ns, *waiting]))
        seen = {each: first_ns for each, first_ns in seen.items() if first_ns >= since or each in present}
        surplus = sorted((first_ns, each) for each, first_ns in seen.items() if each not in own)
        surplus = surplus[: max(0, len(seen) - max_files)]
        for first_ns, each in surplus:
            del seen[each]
            since = max(since, first_ns + 1)
        if surplus and self._is_bound_by_age(known):  # that is, once
            late_by = duration(max(0, max(seen.values()) - since))
            message = (
                f"limit seen_files ({max_files:,}) binds before maxFileAge: a file may be late by {late_by}"
            )
            warnings.warn(message, stacklevel=1)
        ended = known["ended"]
        if options.include_last and self._target is not None:
            last = {file.ring: file for file in files}
            ended = {ring: ended_ns for ring, ended_ns in ended.items() if ring in last}
            ended |= {ring: file.first_ns for ring, file in last.items() if file.id in own}
            ended = dict(sorted(ended.items(), key=itemgetter(1))[-max_files:])
        return {
            "files": known["files"] + len(new),
            "name": new[-1].name,
            "seen": seen,
            "since": since,
            "forgotten": known["forgotten"] + sum(each in present for _, each in surplus),
            "late": known["late"],
            "ended": ended,
        }

    def _parts(self, files: Sequence[RingFile], new: set[str], gone: int, *, ends: bool) -> Iterator[Part]:
        """Parts for the new files of a ring; the others were read before, and serve as look-back."""
        firsts_ns = {file.path: file.first_ns for file in files}
        sizes = {file.path: file.bytes for file in files}
        paths = list(firsts_ns)
        runs = [(is_new, len(list(run))) for is_new, run in groupby(files, lambda file: file.id in new)]
        done = 0
        for (is_new, length), (_, after) in pairwise([*runs, (False, 0)]):
            before, done = done, done + length
            if not is_new:
                continue
            for part in by_files(
                paths[:done],
                self._options,
                sizes=sizes,
                before=before,
                gone=gone,
                after=after,
                ends=ends and not after,
            ):
                own_ns = tuple(firsts_ns[path] for path in part.own)
                yield replace(part, first_ns=own_ns[0], firsts_ns=own_ns)


# ------------------------------------------------------------------------------------------------------------
# Directories to which captures are added one after the other -> the captures, in order of time. Holds the
# time of each file's first packet.
#
# The time of its first packet and its name identify a file, not the file system's data. So files of a ring
# that reuses names (tcpdump -W) are distinct, and a file stays the same when it is compressed on completion
# (tcpdump -z). A file without packets is ignored.
#
# Files of one directory whose names differ only in a number or a time are a ring: one program writes them one
# after the other. One file of each ring may still be being written.
# ------------------------------------------------------------------------------------------------------------


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
        name: file name without the suffix of compression.
        path: current path.
        ring: directory and the common part of the names in the ring.
        changed_ns: time of the last modification, by the file system's clock.
        bytes: size of the file.
    """

    first_ns: int
    name: str
    path: str
    ring: str
    changed_ns: int
    bytes: int

    @property
    def id(self) -> str:
        """Hash that identifies the file in offsets."""
        return blake2b(b"%d " % self.first_ns + os.fsencode(self.name), digest_size=8).hexdigest()


class Ring:
    """Lists the files of all rings.

    Args:
        paths: directories, and files as names or globs; those in stores as URLs.
        limits: limits of the dissection.
        pattern: its match in a file's name, or its first group, is the name of the ring; None: the file's
            name without number or time.
        selects: whether a file belongs to a ring; None: all do.
        is_recursive: whether files in subdirectories belong to rings.
    """

    def __init__(
        self,
        paths: Sequence[str],
        limits: Limits,
        pattern: re.Pattern[str] | None = None,
        selects: Callable[[str, Status], bool] | None = None,
        *,
        is_recursive: bool = False,
    ) -> None:
        self._paths = paths
        self._selects = selects
        self._is_recursive = is_recursive
        self._limits = limits
        self._pattern = pattern
        self._known: dict[str, tuple[Status, int | None]] = {}

    def files(self) -> list[RingFile]:
        """All captures that have a packet, in order of time.

        Raises:
            CaptureError: a directory cannot be read, or a store cannot be reached.
        """
        by_start: dict[tuple[int, str], RingFile] = {}
        listed: dict[str, Status] = {}
        candidate_files = candidates(self._paths, is_recursive=self._is_recursive, must_match=False)
        for path, candidate in sorted(candidate_files.items()):
            with suppress(OSError):  # the file is gone
                status = candidate.status or stores.status(path)
                if status.size is not None and (self._selects is None or self._selects(path, status)):
                    listed[path] = status
        self._known = {path: each for path, each in self._known.items() if each[0] == listed.get(path)}
        new = [path for path in listed if path not in self._known]
        for path, first_ns in zip(new, first_times_ns(new, self._limits), strict=True):
            self._known[path] = listed[path], first_ns
        for path, status in listed.items():
            if (first_ns := self._known[path][1]) is not None:
                directory, name = os.path.split(_plain(path))
                ring = os.path.join(directory, ring_of(name, self._pattern))  # noqa: PTH118
                file = RingFile(first_ns, name, path, ring, status.modified_ns, status.size or 0)
                by_start.setdefault((first_ns, name), file)
        rings = {file.ring for file in by_start.values()}
        # tcpdump -C writes host1.pcap, then host1.pcap1
        return [
            file._replace(ring=first) if (first := _plain(file.path)) in rings else file
            for _, file in sorted(by_start.items())
        ]


def ring_of(name: str, pattern: re.Pattern[str] | None = None) -> str:
    """The ring that a file's name indicates, see ``Ring``."""
    if pattern is not None:
        match = pattern.search(name)
        return "" if match is None else match[min(1, pattern.groups)] or ""
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
    """For each ring, the file with the latest first packet and the one modified last. They differ if a clock
    was set back, or while a file that arrives late is still being copied.
    """
    rings = by_ring(files).values()
    return {max(each) for each in rings} | {max(each, key=_changed) for each in rings}


def _changed(file: RingFile) -> tuple[int, RingFile]:
    return file.changed_ns, file


def _plain(name: str) -> str:
    """A file's name without the suffix of compression."""
    return next((name.removesuffix(each) for each in _COMPRESSED if name.endswith(each)), name)
