"""``spark.readStream.format("kdissect")``: a folder that is written into -> micro-batches; each exchange is
in one.

How far a stream has come is the last file that was read whole: its first packet's time and name, and how many
files there were until then. From two such offsets the parts of a micro-batch follow, whichever process asks
for them and how often: that makes a stream exactly once. The newest file is left alone while somebody may be
writing it. Each file is read with the ones before it (``lookback``); what is unfinished at the end of the
newest file that is complete is told with the file that completes it.

Holds, on the driver, the time of the first packet of each file that is there, and where it is asked for the
names of topic ids that each teaches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow

from kdissect.errors import CaptureError, UsageError
from kdissect.spark.options import RING
from kdissect.spark.planning import by_files, first_time_ns
from kdissect.spark.reading import read
from kdissect.spark.ring import Ring
from kdissect.spark.teaching import taught_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

    from kdissect.analysis.naming import Taught
    from kdissect.spark.options import Asked
    from kdissect.spark.planning import Part
    from kdissect.spark.ring import RingFile

Offset = dict[str, Any]

_CURE = "make the ring larger, or set the option failOnDataLoss to false"
_BEGINNING: Offset = {"files": 0, "first_ns": -(1 << 63), "name": ""}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads captures as they are completed.

    Raises:
        UsageError: there is no path, or the table has no rows by file.
    """

    def __init__(self, asked: Asked, columns: Sequence[str]) -> None:
        if not asked.paths:
            raise UsageError('no path; write spark.readStream.format("kdissect").load("captures/")')
        by_files((), asked)
        self._asked = asked
        self._columns = columns
        self._ring = Ring(asked.paths, asked.limits)
        self._target: Offset | None = None
        self._seen: frozenset[tuple[int, str]] = frozenset()
        self._names: dict[tuple[int, str], Taught] = {}

    def initialOffset(self) -> Offset:  # noqa: N802
        """Before the first file."""
        return dict(_BEGINNING)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """As many files as the options allow."""
        most = self._asked.max_files
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The last file of the next micro-batch; ``start`` where there is none.

        Raises:
            CaptureError: a file is gone that was there, and was not read yet.
        """
        new = [file for file in self._complete() if _key(start) < file[:2]]
        before, self._seen = self._seen, frozenset(file[:2] for file in new)
        missing = sorted(key for key in before - self._seen if key > _key(start))
        if missing and self._asked.fail_on_data_loss:
            names = ", ".join(name for _, name in missing)
            raise CaptureError(f"gone before they were read: {names}; {_CURE}")
        if self._target is not None:
            new = [file for file in new if file[:2] <= _key(self._target)]
        if isinstance(limit, ReadMaxFiles):
            new = new[: limit.max_files]
        return _offset(start, new)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing new is looked at."""
        self._target = _offset(_BEGINNING, self._complete())

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """How far there are files, for who watches the stream."""
        return _offset(_BEGINNING, self._complete())

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """What each task of a micro-batch reads.

        Raises:
            CaptureError: a file is gone that was not read yet.
        """
        files = [file for file in self._ring.files() if file[:2] <= _key(end)]
        before = sum(file[:2] <= _key(start) for file in files)
        missing = end["files"] - start["files"] - (len(files) - before)
        if missing > 0 and self._asked.fail_on_data_loss:
            raise CaptureError(
                f"{missing} of {end['files'] - start['files']} captures up to {end['name']} were gone before "
                f"they were read; {_CURE}"
            )
        gone = max(0, end["files"] - len(files))
        return [InputPartition(part) for part in self._parts(files, before, gone)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of a task.

        Raises:
            CaptureError: the file is gone, or another one is in its place.
        """
        part: Part | None = partition.value
        if part is None:
            return
        for path, first_ns in zip(part.own, part.firsts_ns, strict=True):
            if first_time_ns(path, self._asked.limits) != first_ns:
                if self._asked.fail_on_data_loss:
                    raise CaptureError(f"{path}: gone, or written anew, before it was read; {_CURE}")
                part = replace(
                    part,
                    own=tuple(each for each in part.own if each != path),
                    paths=tuple(each for each in part.paths if each != path),
                )
        if part.own:
            yield from read(part, self._asked, self._columns)

    def _complete(self) -> list[RingFile]:
        files = self._ring.files()
        return files if self._asked.include_last else files[:-1]

    def _parts(self, files: Sequence[RingFile], before: int, gone: int) -> Iterator[Part]:
        firsts_ns = {file.path: file.first_ns for file in files}
        paths = [file.path for file in files]
        taught = self._taught(files) if len(files) > before else None
        for part in by_files(paths, self._asked, before=before, gone=gone, ends=False, taught=taught):
            own_ns = tuple(firsts_ns[path] for path in part.own)
            yield replace(part, first_ns=own_ns[0], firsts_ns=own_ns)

    def _taught(self, files: Sequence[RingFile]) -> Taught | None:
        """The names that all these files teach; None where each task is to find its own."""
        asked = self._asked
        if asked.names != RING or not asked.needs_names(self._columns):
            return None
        before, self._names = self._names, {}
        merged: dict[str, tuple[str, int]] = {}
        for file in files:
            key = file[:2]
            self._names[key] = before[key] if key in before else taught_by((file.path,), asked)
            merged = {**self._names[key], **merged}  # what was taught first
        return merged


def _key(offset: Offset) -> tuple[int, str]:
    return offset["first_ns"], offset["name"]


def _offset(start: Offset, new: Sequence[RingFile]) -> Offset:
    if not new:
        return start
    return {"files": start["files"] + len(new), "first_ns": new[-1].first_ns, "name": new[-1].name}
