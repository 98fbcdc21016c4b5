"""The bytes of one direction -> size-prefixed frames.

    +--------------+-----------------+--------------+----
    | size (int32) |  size bytes     | size (int32) | ...
    +--------------+-----------------+--------------+----

After a gap inside a frame only the end of that frame is lost: its length is known, so the next boundary is
too. The boundary is lost after a gap across a boundary, an impossible size, or if the capture starts
mid-stream. Then ``Search`` (resync.py) collects bytes until the next boundary is found by content.

Holds one partial frame: its first ``Limits.frame_bytes`` bytes at most, and its latest piece.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from kdissect.kafka.other_protocols import SMALLEST_OTHER_SIZE, can_be_size
from kdissect.kafka.resync import Lost, Search
from kdissect.model import Data, Frame, Gap

if TYPE_CHECKING:
    from kdissect.kafka.resync import Locate
    from kdissect.limits import Limits
    from kdissect.model import Interface

_new = tuple.__new__

_SIZE = Struct(">i")
SIZE_BYTES = _SIZE.size

_LARGE_PIECE_BYTES = 256  # smaller ones are joined: as objects they would cost more than their bytes

SHED_BYTES = 512
"""Bytes kept of a frame that is dropped: enough for its header, and usually for its topic or group."""


class Place(NamedTuple):
    """Where bytes of a stream came from, see ``Data``."""

    packet: int
    time_ns: int
    interface: Interface


class PartialFrame(NamedTuple):
    """The bytes of a direction after its last complete frame, none of them lost.

    Attributes:
        prefix: the first bytes of a size field.
        data: the first bytes of a frame.
        size: of that frame; 0 if none has begun.
        start_ns: time of the first byte of its size field.
        skipped: bytes after ``data`` that were captured but not kept.
        latest: where the latest bytes came from; None: from where it is known already.
    """

    prefix: bytes
    data: bytes
    size: int
    start_ns: int
    skipped: int = 0
    latest: Place | None = None


class CutFrame(NamedTuple):
    """A frame that began but did not end.

    Attributes:
        frame: what came of it, as if that were all. ``data`` is shorter if bytes were not captured.
        announced: the size in its size field.
    """

    frame: Frame
    announced: int


class Framing:
    """One direction of a connection.

    Args:
        limits: to respect.
        locate: finds a boundary by content, see resync.py.
        at_start: whether the next byte is the first of the stream.
    """

    __slots__ = (
        "_has_gap", "_kept", "_latest", "_limits", "_locate", "_need",
        "_pieces", "_prefix", "_search", "_size", "_small", "_start_ns",
    )  # fmt: skip

    def __init__(self, limits: Limits, locate: Locate, *, at_start: bool = False) -> None:
        self._limits = limits
        self._locate = locate
        self._search: Search | None = Search(limits, at_start=at_start)
        self._prefix = b""  # of a size field
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._kept = 0
        self._size = 0
        self._small = min(limits.frame_max_bytes, SMALLEST_OTHER_SIZE - 1)  # larger sizes are checked
        self._need = 0  # bytes missing until the frame is complete; 0: at a boundary
        self._has_gap = False
        self._start_ns = 0
        self._latest: Data | Gap | Place | None = None  # piece of the partial frame

    @property
    def synchronized(self) -> bool:
        return self._search is None

    @property
    def is_at_boundary(self) -> bool:
        """Whether the next byte is known to be the first of a frame."""
        return self._search is None and not (self._need or self._prefix)

    @property
    def bytes_expected(self) -> int:
        """Bytes missing until a frame can be complete."""
        return self._need

    @property
    def search(self) -> Search | None:
        """The search for a frame boundary. None while the boundaries are known."""
        return self._search

    @property
    def partial_bytes(self) -> int:
        """Bytes after the last complete frame, without a complete size field."""
        return len(self._prefix) + (self._size - self._need if self._need else 0)

    @property
    def held(self) -> int:
        """Bytes held, including overhead."""
        return self._kept if self._search is None else self._search.cost

    def feed(self, item: Data | Gap) -> list[Frame | Lost]:
        """Process the next bytes of the stream, or a gap."""
        if isinstance(item, Data) and self._search is None and not (self._need or self._prefix):
            packet, time_ns, interface, payload = item
            if len(payload) > SIZE_BYTES and _SIZE.unpack_from(payload)[0] == len(payload) - SIZE_BYTES:
                # A packet that is exactly one frame, as nearly all small ones are.
                values = payload[SIZE_BYTES:], len(payload) - SIZE_BYTES, packet, interface, time_ns, time_ns
                return [_new(Frame, values)]  # half the price of calling the class
        out: list[Frame | Lost] = []
        rest: Data | Gap | None = item
        if self._search is None:
            rest = self._feed_data(item, out) if isinstance(item, Data) else self._feed_gap(item, out)
        if rest is not None:
            if self._search is None:
                self.lose()
            self._search_and_read(deque((rest,)), out)
        return out

    def retry(self, *, final: bool = False) -> list[Frame | Lost]:
        """Search again, because more is known now (a request determines the layout of its response), or
        because the stream has ended.
        """
        out: list[Frame | Lost] = []
        if self._search is not None:
            self._search_and_read(deque(), out, final=final)
        return out

    def close(self) -> list[Frame | Lost]:
        out = self.retry(final=True)
        if self._search is not None:
            lost = self._search.cut(self._search.end)[0]
            if lost.missing or lost.skipped:
                out.append(lost._replace(end=True))
        elif partial := self.partial_bytes:
            out.append(Lost(0, partial, end=True))
        return out

    def cut(self) -> CutFrame | None:
        """End the stream inside a frame. None if it does not end inside one whose size is known."""
        if self._search is not None or not self._need:
            return None
        assert self._latest is not None
        packet, time_ns, interface = self._latest[:3]
        came = self._size - self._need
        frame = Frame(b"".join(self._pieces), came, packet, interface, self._start_ns, time_ns)
        return CutFrame(frame, self._size)

    def lose(self, skipped: int = 0) -> None:
        """The boundaries have been wrong for ``skipped`` bytes: search from the next byte on."""
        self._search = Search(self._limits, skipped=skipped)
        self._reset()

    def rescan(self) -> None:
        """A search may have skipped a boundary that it can now recognize."""
        if self._search is not None:
            self._search.rescan()

    def shed(self) -> None:
        """Free memory: keep only the first bytes of a partial frame, and nothing of a search."""
        if self._search is not None:
            self._search.drop_oldest(self._search.held)
        elif self._kept > SHED_BYTES:
            self._pieces = [b"".join(self._pieces)[:SHED_BYTES]]
            self._kept = SHED_BYTES
            self._has_gap = True

    def lend(self) -> PartialFrame | None:
        """The partial frame, for the native core to continue. None if there is anything else to know."""
        if self._search is not None or self._has_gap or self._size > self._limits.frame_bytes:
            return None
        return PartialFrame(self._prefix, b"".join(self._pieces), self._size, self._start_ns)

    def restore(self, partial: PartialFrame) -> None:
        """Continue from a partial frame."""
        self._search = None
        self._prefix, data, self._size, self._start_ns, skipped, latest = partial
        self._latest = latest or self._latest
        self._pieces = [data] if data else []
        self._kept = len(data)
        self._need = self._size - len(data) - skipped
        self._has_gap = skipped > 0

    def _search_and_read(
        self, todo: deque[Data | Gap], out: list[Frame | Lost], *, final: bool = False
    ) -> None:
        """Alternate between searching and reading frames after a boundary that was found: it can be lost
        again.
        """
        after_search = False
        while todo or self._search is not None:
            if self._search is None:
                item = todo.popleft()
                rest = self._read(item, out)
                if rest is not None and after_search and rest == item and isinstance(rest, Data):
                    # The frame is too large. Its boundary would be found again: search behind it.
                    self.lose(skipped=1)
                    rest = rest._replace(payload=rest.payload[1:])
                elif rest is not None:
                    self.lose()
                after_search = False
                if rest is not None:
                    todo.appendleft(rest)
                continue
            if todo:
                self._search.feed(todo.popleft())
            boundary = self._locate(self._search, final and not todo)
            if boundary is not None:
                lost, items = self._search.cut(boundary)
                self._search, after_search = None, True
                if lost.missing or lost.skipped:
                    out.append(lost)
                todo.extendleft(reversed(items))
            elif not todo:
                break

    def _read(self, item: Data | Gap, out: list[Frame | Lost]) -> Data | Gap | None:
        """Read frames at a known boundary. Returns the rest of the item, from where no frame can begin."""
        return self._feed_data(item, out) if isinstance(item, Data) else self._feed_gap(item, out)

    def _reset(self) -> None:
        self._prefix = b""
        self._pieces = []
        self._kept = self._size = self._need = 0
        self._has_gap = False
        self._latest = None

    def _feed_data(self, item: Data, out: list[Frame | Lost]) -> Data | None:
        """Read frames. Returns the bytes from where no frame can begin."""
        packet, time_ns, interface, payload = item
        pos, end = 0, len(payload)
        while pos < end:
            if not self._need:
                if self._prefix or end - pos < SIZE_BYTES:
                    if not self._prefix:
                        self._start_ns = time_ns
                    taken = SIZE_BYTES - len(self._prefix)
                    self._prefix += payload[pos : pos + taken]
                    pos += taken
                    if len(self._prefix) < SIZE_BYTES:
                        return None
                    (size,) = _SIZE.unpack(self._prefix)
                    self._prefix = b""
                else:
                    (size,) = _SIZE.unpack_from(payload, pos)
                    self._start_ns = time_ns
                    pos += SIZE_BYTES
                if not 0 <= size <= self._small and not can_be_size(size, self._limits.frame_max_bytes):
                    return item._replace(payload=payload[max(0, pos - SIZE_BYTES) :])
                if end - pos >= size:
                    data = payload[pos : pos + size]
                    values = data, size, packet, interface, self._start_ns, time_ns
                    out.append(_new(Frame, values))  # half the price of calling the class
                    pos += size
                    continue
                self._size = self._need = size
            taken = min(self._need, end - pos)
            # A view: all pieces are joined once the last one arrived.
            self._keep(memoryview(payload)[pos : pos + taken] if taken < end else payload)
            self._need -= taken
            pos += taken
            if self._need:
                self._latest = item
            else:
                out.append(self._complete(packet, time_ns, interface))
        return None

    def _feed_gap(self, item: Gap, out: list[Frame | Lost]) -> Gap | None:
        """Skip the end of a frame. Returns the part of the gap after that frame."""
        missing = item.length
        if self._need:
            self._has_gap = True
            if missing < self._need:
                self._need -= missing
                self._latest = item
                return None
            missing -= self._need
            out.append(self._complete(item.packet, item.time_ns, item.interface))
        return item._replace(length=missing) if missing else None

    def _keep(self, piece: bytes | memoryview) -> None:
        room = self._limits.frame_bytes - self._kept
        if self._has_gap or room <= 0:
            return
        if len(piece) > room:
            piece = piece[:room]
        if len(piece) >= _LARGE_PIECE_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))
        self._kept += len(piece)

    def _complete(self, packet: int, time_ns: int, interface: Interface) -> Frame:
        frame = Frame(b"".join(self._pieces), self._size, packet, interface, self._start_ns, time_ns)
        self._reset()
        return frame
