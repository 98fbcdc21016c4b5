"""The bytes of one direction with unknown frame boundaries -> the next boundary, found by content.

``Search`` holds the bytes in runs without gaps. Above ``Limits.resync_bytes``, including overhead for each
packet, it drops the older half. A ``Locate`` function searches it for a boundary: one for requests, one for
responses to outstanding requests (recognition.py). A position is accepted only after confirmation: a frame
that decodes to its last byte, or lengths that chain.

``Scan`` makes sure that a ``Locate`` checks each byte once, and a position again only after the bytes that it
needs have arrived. So a stream without a boundary takes a constant amount of work per byte, however long it
is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka.other_protocols import can_be_size
from kdissect.model import Data, Gap

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from kdissect.limits import Limits

ITEM_COST = 256
"""Approximate overhead in bytes of holding an item, so that tiny packets are limited too."""

_CORRELATION_ID_BYTES = 4
_MAX_WAITING = 256  # positions that wait for more bytes
_RESCAN_BYTES = 64 * 1024  # bytes to search again
_MAX_EFFORT = 64  # bytes read to confirm positions, per byte of the stream


class Lost(NamedTuple):
    """Bytes of a stream outside of frames.

    Attributes:
        missing: bytes that were not captured.
        skipped: captured bytes before the next frame boundary.
        end: True if the stream ended before one was found.
    """

    missing: int
    skipped: int
    end: bool = False


@dataclass(slots=True, eq=False)
class ByteRun:
    """Bytes without a gap.

    Attributes:
        start: position of the first byte in the stream, relative to the start of the search.
        data: the bytes.
    """

    start: int
    data: bytearray = field(default_factory=bytearray)

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.start + len(self.data)


class Search:
    """The part of a stream that is held while its frame boundaries are unknown.

    Args:
        limits: to respect.
        at_start: whether the next byte is the first of the stream, and so of a frame.
        skipped: bytes skipped before the search, reported together with those skipped by it.

    Attributes:
        runs: the bytes held, in order.
        end: position after the last byte, relative to the start of the search.
        held: bytes held, and overhead for each item.
        effort: bytes that were read to confirm positions.
        undecided: fewer bytes of a first frame decide nothing, unless they are the last.
        work: bytes fed, ``ITEM_COST`` for each item, and what ``Locate`` functions add.
    """

    __slots__ = (
        "_at_start", "_fed", "_items", "_limits", "_lost_missing", "_lost_skipped", "_scans",
        "effort", "end", "held", "runs", "undecided", "work",
    )  # fmt: skip

    def __init__(self, limits: Limits, *, at_start: bool = False, skipped: int = 0) -> None:
        self._limits = limits
        self._at_start = at_start
        self._items: list[tuple[int, Data | Gap]] = []
        self._fed = 0
        self._scans: dict[str, Scan] = {}
        self._lost_missing = 0
        self._lost_skipped = skipped
        self.runs: list[ByteRun] = []
        self.end = 0
        self.held = 0
        self.effort = 0
        self.undecided = 0
        self.work = 0

    @property
    def first_run(self) -> ByteRun | None:
        """The beginning of the stream, if this search has it."""
        return self.runs[0] if self._at_start and self.runs and self.runs[0].start == 0 else None

    @property
    def cost(self) -> int:
        """Approximate memory in bytes: everything is held twice, as items and as runs."""
        return 2 * self.held - ITEM_COST * len(self._items)

    @property
    def largest_held(self) -> int:
        """Size of the largest frame that certainly can be held completely."""
        return self._limits.resync_bytes // 4

    @property
    def largest(self) -> int:
        """Anything larger is not a frame."""
        return self._limits.frame_max_bytes

    def can_be_size(self, size: int) -> bool:
        """Whether a response with this size prefix is possible."""
        return size >= _CORRELATION_ID_BYTES and can_be_size(size, self.largest)

    @property
    def effort_exhausted(self) -> bool:
        """Whether so much was searched without success that from now on only the starts of packets are
        checked.
        """
        fed, limits = self._fed, self._limits
        return fed > limits.search_bytes or self.effort > _MAX_EFFORT * fed + limits.resync_bytes

    def scan(self, target: str) -> Scan:
        """The state of the search for ``target``."""
        scan = self._scans.get(target)
        if scan is None:
            scan = self._scans[target] = Scan()
        return scan

    def rescan(self) -> None:
        """More is known about what to search for: search the last bytes again."""
        for scan in self._scans.values():
            scan.scanned = min(scan.scanned, max(0, self.end - _RESCAN_BYTES))

    def is_item_start(self, pos: int) -> bool:
        """Whether a packet's bytes begin at ``pos``: where most writers begin their frames."""
        index = bisect_left(self._items, pos, key=_start)
        return index < len(self._items) and self._items[index][0] == pos

    def item_starts(self, since: int) -> Iterator[int]:
        """Positions from ``since`` on where a packet's bytes begin."""
        for start, item in self._items[bisect_left(self._items, since, key=_start) :]:
            if isinstance(item, Data):
                yield start

    def feed(self, item: Data | Gap) -> None:
        """Append the next bytes of the stream. Above the limit, the oldest are dropped."""
        self.work += ITEM_COST
        if isinstance(item, Gap):
            if self._items and isinstance(before := self._items[-1][1], Gap):
                self._items[-1] = self._items[-1][0], before._replace(length=before.length + item.length)
            else:
                self._append(item)
            self.end += item.length
            return
        if not self.runs or self.runs[-1].end != self.end:
            self.runs.append(ByteRun(self.end))
        self.runs[-1].data += item.payload
        self._append(item)
        size = len(item.payload)
        self.end += size
        self.held += size
        self._fed += size
        self.work += size
        if self.held > self._limits.resync_bytes:
            self.drop_oldest(self.held - self._limits.resync_bytes // 2)

    def pass_over(self, length: int, *, missing: bool = False) -> None:
        """Skip the next bytes of the stream, while none are held. ``missing``: they were not captured."""
        self.end += length
        if missing:
            self._lost_missing += length
        else:
            self._lost_skipped += length

    def read(self, pos: int, length: int) -> bytes:
        """Bytes from ``pos`` on, up to ``length``, the next gap, or the end of what has arrived."""
        index = bisect_right(self.runs, pos, key=_run_start) - 1
        if index < 0:
            return b""
        run = self.runs[index]
        data = bytes(run.data[pos - run.start : pos - run.start + length])
        self.effort += len(data)
        return data

    def peek(self, pos: int, length: int) -> bytes | None:
        """``length`` bytes from ``pos`` in the stream. None unless all of them were captured and have
        arrived.
        """
        data = self.read(pos, length)
        return data if len(data) == length else None

    def cut(self, pos: int) -> tuple[Lost, list[Data | Gap]]:
        """End the search: everything before ``pos`` is lost, the rest is returned to be read as frames."""
        rest: list[Data | Gap] = []
        for start, item in self._items:
            if isinstance(item, Gap):
                if start < pos:
                    self._lost_missing += item.length
                else:
                    rest.append(item)
                continue
            before = min(max(pos - start, 0), len(item.payload))
            self._lost_skipped += before
            if before < len(item.payload):
                rest.append(item._replace(payload=item.payload[before:]) if before else item)
        return Lost(self._lost_missing, self._lost_skipped), rest

    def drop_oldest(self, excess: int) -> None:
        """Drop the oldest items, at least ``excess`` bytes of them."""
        enough = self.held - excess
        count = 0
        for _, item in self._items:
            if self.held <= enough:
                break
            count += 1
            self.held -= ITEM_COST
            if isinstance(item, Gap):
                self._lost_missing += item.length
            else:
                self._lost_skipped += len(item.payload)
                self.held -= len(item.payload)
        del self._items[:count]
        pos = self._items[0][0] if self._items else self.end
        del self.runs[: bisect_right(self.runs, pos, key=_run_end)]
        if self.runs and self.runs[0].start < pos:
            run = self.runs[0]
            del run.data[: pos - run.start]
            run.start = pos

    def _append(self, item: Data | Gap) -> None:
        self._items.append((self.end, item))
        self.held += ITEM_COST


class Scan:
    """The progress of a ``Locate``, and the positions that wait for more bytes.

    Attributes:
        scanned: position up to which it has searched.
    """

    __slots__ = ("_waiting", "scanned")

    def __init__(self) -> None:
        self.scanned = 0
        self._waiting: list[tuple[int, int]] = []  # a heap of (needed stream end, position)

    def matches(self, search: Search, pattern: re.Pattern[bytes], width: int) -> Iterator[int]:
        """New positions where ``pattern`` matches and ``width`` bytes have arrived."""
        if search.effort_exhausted:
            for pos in self.item_starts(search):
                if pattern.match(search.read(pos, width)):
                    yield pos
            return
        for run in search.runs[bisect_right(search.runs, self.scanned, key=_run_end) :]:
            last = len(run.data) - width
            for match in pattern.finditer(run.data, max(0, self.scanned - run.start)):
                if match.start() > last:
                    break
                yield run.start + match.start()
            self.scanned = max(self.scanned, run.start + last + 1)

    def item_starts(self, search: Search) -> Iterator[int]:
        """New positions where a packet's bytes begin."""
        yield from search.item_starts(self.scanned)
        self.scanned = search.end

    def first(self, search: Search, fresh: Iterable[int], check: Check) -> int | None:
        """The first confirmed position among those that waited and the ``fresh`` ones."""
        waiting, due = self._waiting, []
        while waiting and waiting[0][0] <= search.end:
            due.append(heappop(waiting)[1])
        for positions in (sorted(due), fresh):
            for pos in positions:
                if search.effort_exhausted and not search.is_item_start(pos):
                    continue
                result = check(search, pos)
                if result is True:
                    return pos
                if result is not False and result > search.end:
                    heappush(waiting, (result, pos))
        if len(waiting) > 2 * _MAX_WAITING:
            self._waiting = sorted(waiting)[:_MAX_WAITING]  # those that can be decided soonest
        return None


def _start(item: tuple[int, Data | Gap]) -> int:
    return item[0]


def _run_start(run: ByteRun) -> int:
    return run.start


def _run_end(run: ByteRun) -> int:
    return run.end


Check = Callable[[Search, int], bool | int]
"""(search, position) -> whether a frame begins there, or the stream end needed to decide."""

Locate = Callable[[Search, bool], int | None]
"""(search, final) -> position of a frame in the stream, or None. ``final``: whether no more bytes will
come.
"""
