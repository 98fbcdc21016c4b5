"""Bytes of a direction whose frame boundaries are unknown -> the next boundary, found by content.

``Search`` keeps what has come, in runs without gaps; past ``Limits.resync_bytes``, a cost for each packet
included, the older half is given up. A ``Locate`` function looks for a boundary in it: one for requests, one
for responses to requests that wait (recognition.py). Nothing is believed until it is confirmed: a frame that
decodes to its last byte, or lengths that chain.

``Hunt`` sees to it that a ``Locate`` looks at each byte once, and at a place again only when the bytes have
come that it asked for: a stream in which nothing is found costs so much per byte, however long it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from kdissect.model import Data, Gap

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

    from kdissect.limits import Limits

ITEM_COST = 256
"""What holding an item costs besides its bytes, about: so that tiny packets are bounded too."""

_MAX_WAITING = 256  # places that wait for more bytes
_RESCAN_BYTES = 64 * 1024  # bytes worth a second look
_MAX_EFFORT = 64  # bytes read again to confirm places, for each byte that has come


class Lost(NamedTuple):
    """Bytes of a stream that no frame has.

    Attributes:
        missing: bytes that were not captured.
        skipped: captured bytes that were passed over until a frame boundary was found.
        end: True where the stream ended before one was.
    """

    missing: int
    skipped: int
    end: bool = False


class ByteRun:
    """Bytes without a gap.

    Attributes:
        start: place of the first byte in the stream, counted from where the search began.
        data: the bytes.
    """

    __slots__ = ("data", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()

    @property
    def end(self) -> int:
        """Place behind the last byte."""
        return self.start + len(self.data)


class Search:
    """What is held of a stream while its frame boundaries are unknown.

    Args:
        limits: bounds.
        at_start: whether the first byte to come is the first of the stream, and so of a frame.
        skipped: bytes passed over before, to be told as lost with those of this search.

    Attributes:
        runs: what is held, in order.
        end: place behind the last byte, counted from where the search began.
        held: bytes held, and a cost for each item.
        effort: bytes that were read to confirm places.
    """

    __slots__ = (
        "_at_start", "_fed", "_hunts", "_items", "_limits", "_lost_missing", "_lost_skipped",
        "effort", "end", "held", "runs",
    )  # fmt: skip

    def __init__(self, limits: Limits, *, at_start: bool = False, skipped: int = 0) -> None:
        self._limits = limits
        self._at_start = at_start
        self._items: list[tuple[int, Data | Gap]] = []
        self._fed = 0
        self._hunts: dict[str, Hunt] = {}
        self._lost_missing = 0
        self._lost_skipped = skipped
        self.runs: list[ByteRun] = []
        self.end = 0
        self.held = 0
        self.effort = 0

    @property
    def first_run(self) -> ByteRun | None:
        """The beginning of the stream, where this search has it."""
        return self.runs[0] if self._at_start and self.runs and self.runs[0].start == 0 else None

    @property
    def cost(self) -> int:
        """Bytes of memory that it takes, about: what is held is there twice, as items and as runs."""
        return 2 * self.held - ITEM_COST * len(self._items)

    @property
    def largest_held(self) -> int:
        """Size of the largest frame that surely can be held as a whole."""
        return self._limits.resync_bytes // 4

    @property
    def largest(self) -> int:
        """What is larger than this is no frame."""
        return self._limits.frame_max_bytes

    @property
    def effort_exhausted(self) -> bool:
        """Whether so much was searched in vain that only packets' first bytes are worth a look."""
        fed, limits = self._fed, self._limits
        return fed > limits.search_bytes or self.effort > _MAX_EFFORT * fed + limits.resync_bytes

    def hunt(self, target: str) -> Hunt:
        """What has been seen by those who look for ``target``."""
        hunt = self._hunts.get(target)
        if hunt is None:
            hunt = self._hunts[target] = Hunt()
        return hunt

    def rescan(self) -> None:
        """What is looked for is better known now: the last bytes are worth a second look."""
        for hunt in self._hunts.values():
            hunt.scanned = min(hunt.scanned, max(0, self.end - _RESCAN_BYTES))

    def is_item_start(self, pos: int) -> bool:
        """Whether a packet's bytes begin at ``pos``: where writers begin their frames, as a rule."""
        index = bisect_left(self._items, pos, key=_start)
        return index < len(self._items) and self._items[index][0] == pos

    def item_starts(self, since: int) -> Iterator[int]:
        """Places from ``since`` on where a packet's bytes begin."""
        for start, item in self._items[bisect_left(self._items, since, key=_start) :]:
            if isinstance(item, Data):
                yield start

    def feed(self, item: Data | Gap) -> None:
        """Append the next bytes of the stream; past the bound the oldest are given up."""
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
        if self.held > self._limits.resync_bytes:
            self.drop_oldest(self.held - self._limits.resync_bytes // 2)

    def read(self, pos: int, length: int) -> bytes:
        """Bytes from ``pos`` on, up to ``length`` or the next gap, as far as they have come."""
        index = bisect_right(self.runs, pos, key=_run_start) - 1
        if index < 0:
            return b""
        run = self.runs[index]
        data = bytes(run.data[pos - run.start : pos - run.start + length])
        self.effort += len(data)
        return data

    def peek(self, pos: int, length: int) -> bytes | None:
        """``length`` bytes from ``pos`` in the stream; None where not all of them were captured, or have
        come yet.
        """
        data = self.read(pos, length)
        return data if len(data) == length else None

    def cut(self, pos: int) -> tuple[Lost, list[Data | Gap]]:
        """End the search: what lies before ``pos`` is lost, the rest is returned to be read as frames."""
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
        """Let go of the oldest items, so many bytes of them at least."""
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


class Hunt:
    """How far a ``Locate`` has looked, and the places that wait for more bytes.

    Attributes:
        scanned: place up to which it has looked.
    """

    __slots__ = ("_waiting", "scanned")

    def __init__(self) -> None:
        self.scanned = 0
        self._waiting: list[tuple[int, int]] = []  # a heap of (until, place)

    def matches(self, search: Search, pattern: re.Pattern[bytes], width: int) -> Iterator[int]:
        """Places not looked at so far where ``pattern`` matches and ``width`` bytes have come."""
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
        """Places not looked at so far where a packet's bytes begin."""
        yield from search.item_starts(self.scanned)
        self.scanned = search.end

    def first(self, search: Search, fresh: Iterable[int], check: Check) -> int | None:
        """The first place that is confirmed, of those that waited and of ``fresh`` ones."""
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
            self._waiting = sorted(waiting)[:_MAX_WAITING]  # those that can be told soonest
        return None


def _start(item: tuple[int, Data | Gap]) -> int:
    return item[0]


def _run_start(run: ByteRun) -> int:
    return run.start


def _run_end(run: ByteRun) -> int:
    return run.end


Check = Callable[[Search, int], bool | int]
"""(search, place) -> whether a frame begins there, or the end of the stream at which that can be told."""

Locate = Callable[[Search, bool], int | None]
"""(search, final) -> place in the stream where a frame begins, or None. ``final``: nothing more will come."""
