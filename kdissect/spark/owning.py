"""Files that follow each other -> what belongs to the task that owns some of them, and reads others to know
what these are about. Holds which of the exchanges on their way are its own, and which connections are known.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdissect.analysis.over import Over
from kdissect.capture.reader import open_capture
from kdissect.errors import CaptureError
from kdissect.model import UNACKNOWLEDGED, UNANSWERED, Anomaly
from kdissect.pipeline import Dissection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.limits import Limits
    from kdissect.model import Frame, Lull, Packet, Stretch
    from kdissect.pipeline import Item
    from kdissect.spark.planning import Part


class Own:
    """What belongs to a task that reads more than its own files: what is completed while their packets are
    read. Behind the last of these nothing is completed, but goes on in the next file.

    A task that does not begin where the captures do may understand a connection later than one that has read
    more of it. So what it says of a connection first belongs to the file that has the last byte of the
    response; later that is so unless it stood behind a hole.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._capture: str | None = None
        self._items: set[Item] = set()
        self._understood: set[str] = set()  # connections

    def packets(self, limits: Limits) -> Iterator[Stretch | Packet | Lull]:
        """Read the files one behind another, and know which it is. What is damaged of one costs no other."""
        for path in self._part.paths:
            self._capture = path
            with suppress(CaptureError), open_capture(path, limits=limits) as capture:
                yield from capture.stretches()
        if not self._part.is_last:
            self._capture = None

    def note(self, items: Sequence[Item], waited_since_ns: int | None) -> None:
        """These are made now; until now some connection waited for what is missing, or none did."""
        for item, frame in zip(items, _answers(items), strict=True):
            capture = self._capture
            if frame is not None and not self._part.begins and (capture is not None or frame.complete):
                was_understood = item.connection_id in self._understood
                was_held = waited_since_ns is not None and item.completed_ns >= waited_since_ns
                capture = capture if was_understood and was_held else frame.interface.capture
            if capture in self._part.own or (self._capture is None and self._is_given_up(item)):
                self._items.add(item)
        for item in items:
            if isinstance(item, Over):
                self._understood.discard(item.connection_id)
            else:
                self._understood.add(item.connection_id)

    def has(self, item: Item) -> bool:
        """Whether this is the task's; to be asked once."""
        is_own = item in self._items
        self._items.discard(item)
        return is_own

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
        item.request_frame
        if not isinstance(item, Over) and item.kind == UNACKNOWLEDGED
        else answers.get((item.connection_id, item.completed_ns))
        for item in items
    ]


class OwnDissection(Dissection):
    """A dissection that tells what packets complete, and whose log knows what is odd at ends of connections
    only where the end is its own.
    """

    def __init__(self, own: Own, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._own = own

    def steps(self) -> Iterator[tuple[list[Item], int | None]]:
        """See ``Dissection``."""
        waited_since_ns: int | None = None
        for items, waiting_since_ns in super().steps():
            self._own.note(items, waited_since_ns)
            waited_since_ns = waiting_since_ns
            for item in items:
                if isinstance(item, Over) and not self._own.has(item):
                    item.dialogue.unattached.clear()
            yield items, waiting_since_ns
