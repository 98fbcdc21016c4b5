"""Batches of all workers -> their rows in the order of one process. Holds the batches of workers that
are ahead, the rows held back by Ordering and TopicNameResolver, and the rows behind one that its worker has
not made yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.exchanges.ordering import Ordering
from kdissect.exchanges.topic_names import NONE, TopicNameResolver, TopicRefs

if TYPE_CHECKING:
    from array import array
    from collections import Counter
    from collections.abc import Sequence

    from kdissect.capture.source import Source
    from kdissect.errors import KdissectError
    from kdissect.limits import Limits
    from kdissect.model import Anomaly


class OrderedItem:
    """A row on its way through order and names: it stands for an exchange of a worker.

    Attributes:
        worker: whose it is.
        number: of an open row; 0: it is made.
        is_ready: whether it is made.
        connection_id, order, completed_ns, held_bytes, decoded_bytes, anomalies, topic_names: as exchanges
            have them.
    """

    __slots__ = (
        "anomalies",
        "completed_ns",
        "connection_id",
        "decoded_bytes",
        "held_bytes",
        "is_ready",
        "made",
        "number",
        "order",
        "topic_names",
        "topic_refs",
        "worker",
    )  # fmt: skip

    def __init__(self, worker: int, rows: Columns, index: int) -> None:
        self.worker = worker
        self.completed_ns = rows.completed_ns[index]
        self.order = self.completed_ns, rows.packets[index]
        self.held_bytes = rows.held[index]
        self.decoded_bytes = rows.decoded[index]
        self.connection_id = rows.connections[index]
        self.number, self.topic_refs = rows.open.get(index, (0, NONE))
        self.made = rows.made[index]
        self.is_ready = not self.number
        self.anomalies: list[Anomaly] = []
        self.topic_names: dict[str, str] = {}


def _topic_refs(row: OrderedItem) -> TopicRefs:
    return row.topic_refs


class _WorkerBatches:
    """The batches of one worker that are not put together yet; the first may be begun."""

    def __init__(self) -> None:
        self.batches: deque[WorkerBatch] = deque()
        self.begun = 0  # rows of the first that are
        self.until = 0
        self.is_over = False
        self.told = 0  # up to where it knows to be waited for
        self.waiting_since_ns: int | None = None
        self.open: dict[int, OrderedItem] = {}
        self.verdicts: list[Verdict] = []

    def cut(self, until: int) -> list[tuple[WorkerBatch, int, int]]:
        """Its rows up to a place: batches, and from which to which index."""
        out = []
        while self.batches:
            batch = self.batches[0]
            end = bisect_right(batch.rows.places, until)
            out.append((batch, self.begun, end))
            if batch.until > until:
                self.begun = end
                break
            self.batches.popleft()
            self.begun = 0
        return out


class Assembly:
    """Puts the rows together.

    Args:
        workers: how many there are.
        limits: bounds of order and names.

    Attributes:
        until: the place up to which all rows are together.
    """

    def __init__(self, workers: int, limits: Limits) -> None:
        self.until = 0
        self._parts = [_WorkerBatches() for _ in range(workers)]
        self._ordering: Ordering[OrderedItem] = Ordering(limits)
        self._resolver: TopicNameResolver[OrderedItem] = TopicNameResolver(limits, _topic_refs)
        self._names: dict[str, str] = {}  # learnt since the workers were told last
        self._out: deque[OrderedItem] = deque()  # those behind one that is not made yet

    def batch(self, worker: int, batch: WorkerBatch) -> list[Any]:
        """Take a batch; get what was made of the rows that come next."""
        part = self._parts[worker]
        part.batches.append(batch)
        part.until = batch.until
        part.is_over = batch.is_last
        until = min(part.until for part in self._parts)
        if until <= self.until:
            return []
        self.until = until
        cuts = [part.cut(until) for part in self._parts]
        if self._is_plain(cuts):
            made, is_plain = self._sorted(cuts)
            if is_plain:
                return made
        self._one_by_one(cuts, until)
        if all(part.is_over for part in self._parts):
            self._settle(self._resolver.close())  # nothing more will be taught
        return self._ready()

    def late(self, worker: int, late: LateRows) -> list[Any]:
        """Take what was made of open rows; get what was made of the rows that come next."""
        part = self._parts[worker]
        for number, made in late.made:
            row = part.open.pop(number)
            row.made = made
            row.is_ready = True
        return self._ready()

    def told(self) -> list[tuple[int, ParentUpdate]]:
        """What is to be told to which workers."""
        out = []
        for worker, part in enumerate(self._parts):
            if part.told < self.until or part.verdicts or self._names:
                out.append((worker, ParentUpdate(self.until, self._names, part.verdicts)))
                part.told = self.until
                part.verdicts = []
        self._names = {}
        return out

    def _is_plain(self, cuts: list[list[tuple[WorkerBatch, int, int]]]) -> bool:
        """Whether the places of the rows are all that counts."""
        if self._out or not (self._ordering.is_idle and self._resolver.is_idle):
            return False
        return all(part.waiting_since_ns is None for part in self._parts) and not any(
            batch.rows.waits or batch.rows.open for cut in cuts for batch, _, _ in cut
        )

    def _sorted(self, cuts: list[list[tuple[WorkerBatch, int, int]]]) -> tuple[list[Any], bool]:
        """Rows by their places; and whether no two workers have the same place."""
        places: list[int] = []
        made: list[Any] = []
        distinct = 0
        for cut in cuts:
            before = len(places)
            for batch, begin, end in cut:
                places += batch.rows.places[begin:end]
                made += batch.rows.made[begin:end]
            distinct += len(set(places[before:]))
        if len(set(places)) < distinct:
            return [], False
        return [made[index] for index in sorted(range(len(places)), key=places.__getitem__)], True

    def _one_by_one(self, cuts: list[list[tuple[WorkerBatch, int, int]]], until: int) -> None:
        """The way of one process: what each packet completes goes through order and names."""
        rows: dict[int, list[OrderedItem]] = {}
        waits: dict[int, list[tuple[int, int | None]]] = {}
        for worker, cut in enumerate(cuts):
            for batch, begin, end in cut:
                columns = batch.rows
                for index in range(begin, end):
                    rows.setdefault(columns.places[index], []).append(OrderedItem(worker, columns, index))
                while columns.waits and columns.waits[0][0] <= until:
                    place, since_ns = columns.waits.pop(0)
                    waits.setdefault(place, []).append((worker, since_ns))
        for place in sorted(rows.keys() | waits.keys()):
            for worker, since_ns in waits.get(place, ()):
                self._parts[worker].waiting_since_ns = since_ns
            since = [part.waiting_since_ns for part in self._parts if part.waiting_since_ns is not None]
            for row in self._ordering.feed(rows.get(place, []), min(since, default=None)):
                self._settle(self._resolver.feed(row))
                for topic_id, _ in row.topic_refs.learned:
                    if (name := self._resolver.name(topic_id)) is not None:
                        self._names[topic_id] = name

    def _settle(self, rows: Sequence[OrderedItem]) -> None:
        """Rows whose turn it is: their workers may make those that are open."""
        for row in rows:
            if row.number:
                part = self._parts[row.worker]
                part.open[row.number] = row
                part.verdicts.append(Verdict(row.number, row.topic_names, row.anomalies))
            self._out.append(row)

    def _ready(self) -> list[Any]:
        out = self._out
        made = []
        while out and out[0].is_ready:
            made.append(out.popleft().made)
        return made


# ------------------------------------------------------------------------------------------------------------
# What workers and their parent say to one another. Holds nothing.
# ------------------------------------------------------------------------------------------------------------


AHEAD = 24
"""Batches that a worker may be ahead of what was put together: of 100 KB as a rule, half a megabyte of frames
at most, while the slowest catches up."""


@dataclass(slots=True)
class Columns:
    """Rows in the order in which a worker completed them.

    Attributes:
        places: ``Dissection.place`` at which each row was complete; never falls.
        completed_ns, packets: their ``Exchange.order``.
        held: bytes of their frames.
        decoded: what these decode to, see ``Exchange``.
        connections: ids of their connections.
        made: what the sink made of each; None: nothing.
        open: number and mentions of rows that are not made yet, by their index.
        waits: since when a connection waits, None: none does; and from which place on.
    """

    places: array[int]
    completed_ns: array[int]
    packets: array[int]
    held: array[int]
    decoded: array[int]
    connections: list[str] = field(default_factory=list)
    made: list[Any] = field(default_factory=list)
    open: dict[int, tuple[int, TopicRefs]] = field(default_factory=dict)
    waits: list[tuple[int, int | None]] = field(default_factory=list)


class WorkerBatch(NamedTuple):
    """Rows up to and at a place, all of them.

    Attributes:
        packets, bytes_read: of the files.
        is_last: whether none follows.
    """

    until: int
    rows: Columns
    packets: int
    bytes_read: int
    is_last: bool = False


class Verdict(NamedTuple):
    """The answer to an open row: its number, names of its ids, and the resolver's anomalies."""

    number: int
    names: dict[str, str]
    anomalies: list[Anomaly]


class ParentUpdate(NamedTuple):
    """The parent's word: ``until`` this place rows of all workers are together; ids with their names."""

    until: int
    names: dict[str, str]
    verdicts: list[Verdict]


class LateRows(NamedTuple):
    """What the sink made of open rows, by their number."""

    made: list[tuple[int, Any]]


class Stop(NamedTuple):
    """Read no further, and end."""


class WorkerEnd(NamedTuple):
    """A worker has come to the end of the capture, or was stopped.

    Attributes:
        counts, skipped, noticed: of its ``Dissection``.
        warnings, sources: of its capture.
        fault: what was wrong where it could not be read beyond.
        passed_over: names in exchanges that were not asked for (``Filter.unmatched_names``).
        made: what the sink knows.
    """

    counts: Counter[str]
    skipped: Counter[str]
    noticed: list[tuple[int, str]]
    warnings: list[str]
    sources: tuple[Source, ...]
    fault: str | None
    passed_over: Sequence[set[str]]
    made: Any


class Failed(NamedTuple):
    """A worker could not go on."""

    error: KdissectError
