"""Files that follow each other -> what belongs to the task that owns some of them, and reads others to know
what these are about. Holds which of the exchanges on their way are its own, and of each connection whether it
is known, which file its latest bytes are from, and whether they came late.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.exchanges.ordering import Over
from kdissect.model import UNACKNOWLEDGED, UNANSWERED, Anomaly, Closed, Data, Lull
from kdissect.pipeline import Dissection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.model import Frame, Gap, Packet, Stretch
    from kdissect.net.connection import Connection
    from kdissect.pipeline import Item
    from kdissect.spark.planning import Part


class _Late(NamedTuple):
    """Bytes that came when later ones of their stream, in a file before, were there already.

    Attributes:
        capture: the file that has them.
        later_ns: the times of these later ones.
    """

    capture: str
    later_ns: set[int]


class Own:
    """What belongs to a task that reads more than its own files: the exchanges whose answer has its last byte
    in them, or whose last byte to come is in them. So nothing has to be known of other tasks, and it does not
    matter how long an exchange was held back because a segment before it is missing: where a file ends that
    other files follow, it is not waited for any longer.

    What is incomplete, and what nobody answers, is of the file that is read when that is known; and so is
    everything where all tasks read the captures from their beginning, and thus know the same at each packet.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._capture: str | None = None
        self._items: set[Item] = set()
        self._understood: set[str] = set()  # connections
        self._ranks = {path: rank for rank, path in enumerate(part.paths)}
        self._latest: dict[tuple[Connection, int], str] = {}  # the file of the latest bytes of a stream
        self._late: dict[tuple[Connection, int], _Late] = {}

    def packets(self, limits: Limits) -> Iterator[Stretch | Packet | Lull]:
        """Read the files one behind another, and know which it is. What is damaged of one costs no other."""
        for path in self._part.paths:
            self._capture, latest_ns = path, 0
            with suppress(CaptureError), open_capture(path, limits=limits) as capture:
                for stretch in cast("Iterator[Stretch]", capture.stretches()):  # it is one file
                    latest_ns = max(latest_ns, max(stretch.places)[0])
                    yield stretch
            # Deadlines that have passed by then are noticed in this file by each task that reads it.
            yield Lull(latest_ns - limits.patience_ns)
        if not self._part.is_last:
            self._capture = None

    def come(self, connection: Connection, side: int, data: Data) -> None:
        """These bytes of a stream are next."""
        stream, capture = (connection, side), data.interface.capture
        before = self._latest.get(stream, capture)
        self._latest[stream] = capture
        if before == capture:
            if stream in self._late:
                self._late[stream].later_ns.add(data.time_ns)
        elif self._ranks[before] > self._ranks[capture]:
            self._late[stream] = _Late(before, {data.time_ns})
        else:
            self._late.pop(stream, None)

    def note(self, connection: Connection, side: int, items: Sequence[Item]) -> None:
        """These are made now, of bytes of this side."""
        late = self._late.get((connection, side))
        for item, frame in zip(items, _answers(items), strict=True):
            capture = self._capture
            if frame is not None and self._is_of_its_bytes(connection, frame):
                capture = frame.interface.capture
                if late is not None and frame.start_ns not in late.later_ns:  # it is theirs too
                    capture = late.capture
            if capture in self._part.own or (self._capture is None and self._is_given_up(item)):
                self._items.add(item)
        for item in items:
            if isinstance(item, Over):
                self._understood.discard(connection.id)
                for each in (0, 1):
                    self._latest.pop((connection, each), None)
                    self._late.pop((connection, each), None)
            else:
                self._understood.add(connection.id)

    def has(self, item: Item) -> bool:
        """Whether this is the task's; to be asked once."""
        is_own = item in self._items
        self._items.discard(item)
        return is_own

    def _is_of_its_bytes(self, connection: Connection, frame: Frame) -> bool:
        """Whether the file counts that has the last byte, whenever this is known."""
        if self._part.all_begin:
            return False
        if frame.complete:
            return True
        # a task that has read more may have understood the connection sooner
        is_told_now = self._capture is not None and not self._part.begins
        return is_told_now and connection.id not in self._understood

    def _is_given_up(self, item: Item) -> bool:
        """Whether it is a request that waits, and that no task behind this one will know."""
        if isinstance(item, Over) or item.kind != UNANSWERED or item.request_frame is None:
            return False
        if item.request_frame.interface.capture not in self._part.lost:
            return False
        detail = "the files that a task reads together end here"
        item.anomalies.append(Anomaly("given_up", "request", detail))
        return True


def _answers(items: Sequence[Item]) -> list[Frame | None]:
    """The frame that completes each: its response, or the one that shows that there will be none."""
    answers = {
        (item.connection_id, item.completed_ns): item.response_frame
        for item in items
        if not isinstance(item, Over) and item.response_frame is not None
    }
    return [
        None
        if isinstance(item, Over)
        else item.request_frame
        if item.kind == UNACKNOWLEDGED
        else item.response_frame or answers.get((item.connection_id, item.completed_ns))
        for item in items
    ]


class OwnDissection(Dissection):
    """A dissection that tells what packets complete, and whose log knows what is odd at ends of connections
    only where the end is its own.
    """

    def __init__(self, own: Own, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._own = own

    def _dissect(self, connection: Connection, side: int, item: Data | Gap | Closed) -> list[Item]:
        if isinstance(item, Data):
            self._own.come(connection, side, item)
        items = super()._dissect(connection, side, item)
        if items:
            self._own.note(connection, side, items)
        for each in items:
            if isinstance(each, Over) and not self._own.has(each):
                each.dialogue.unattached.clear()
        return items
