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
        "number",
        "order",
        "output",
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
        self.output = rows.outputs[index]
        self.is_ready = not self.number
        self.anomalies: list[Anomaly] = []
        self.topic_names: dict[str, str] = {}


def _topic_refs(row: OrderedItem) -> TopicRefs:
    return row.topic_refs


class _WorkerBatches:
    """The batches of one worker that are not put together yet; the first may be begun."""

    def __init__(self) -> None:
        self.batches: deque[WorkerBatch] = deque()
        self.consumed = 0  # rows of the first that are
        self.until = 0
        self.is_done = False
        self.reported_until = 0  # up to where it knows to be waited for
        self.waiting_since_ns: int | None = None
        self.open: dict[int, OrderedItem] = {}
        self.resolved: list[ResolvedRow] = []

    def slices_until(self, until: int) -> list[tuple[WorkerBatch, int, int]]:
        """Its rows up to a place: batches, and from which to which index."""
        out = []
        while self.batches:
            batch = self.batches[0]
            end = bisect_right(batch.rows.places, until)
            out.append((batch, self.consumed, end))
            if batch.until > until:
                self.consumed = end
                break
            self.batches.popleft()
            self.consumed = 0
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
        part.is_done = batch.is_last
        until = min(part.until for part in self._parts)
        if until <= self.until:
            return []
        self.until = until
        slices = [part.slices_until(until) for part in self._parts]
        if self._is_sortable(slices):
            outputs, is_sorted = self._sorted(slices)
            if is_sorted:
                return outputs
        self._order_and_resolve(slices, until)
        if all(part.is_done for part in self._parts):
            self._release(self._resolver.close())  # nothing more will be taught
        return self._ready()

    def late(self, worker: int, late: LateRows) -> list[Any]:
        """Take what was made of open rows; get what was made of the rows that come next."""
        part = self._parts[worker]
        for number, output in late.outputs:
            row = part.open.pop(number)
            row.output = output
            row.is_ready = True
        return self._ready()

    def updates(self) -> list[tuple[int, ParentUpdate]]:
        """What is to be told to which workers."""
        out = []
        for worker, part in enumerate(self._parts):
            if part.reported_until < self.until or part.resolved or self._names:
                out.append((worker, ParentUpdate(self.until, self._names, part.resolved)))
                part.reported_until = self.until
                part.resolved = []
        self._names = {}
        return out

    def _is_sortable(self, slices: list[list[tuple[WorkerBatch, int, int]]]) -> bool:
        """Whether the places of the rows are all that counts."""
        if self._out or not (self._ordering.is_idle and self._resolver.is_idle):
            return False
        return all(part.waiting_since_ns is None for part in self._parts) and not any(
            batch.rows.waits or batch.rows.open for own in slices for batch, _, _ in own
        )

    def _sorted(self, slices: list[list[tuple[WorkerBatch, int, int]]]) -> tuple[list[Any], bool]:
        """Rows by their places; and whether no two workers have the same place."""
        places: list[int] = []
        outputs: list[Any] = []
        distinct = 0
        for own in slices:
            before = len(places)
            for batch, begin, end in own:
                places += batch.rows.places[begin:end]
                outputs += batch.rows.outputs[begin:end]
            distinct += len(set(places[before:]))
        if len(set(places)) < distinct:
            return [], False
        return [outputs[index] for index in sorted(range(len(places)), key=places.__getitem__)], True

    def _order_and_resolve(self, slices: list[list[tuple[WorkerBatch, int, int]]], until: int) -> None:
        """The way of one process: what each packet completes goes through order and names."""
        rows: dict[int, list[OrderedItem]] = {}
        waits: dict[int, list[tuple[int, int | None]]] = {}
        for worker, own in enumerate(slices):
            for batch, begin, end in own:
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
                self._release(self._resolver.feed(row))
                for topic_id, _ in row.topic_refs.learned:
                    if (name := self._resolver.name(topic_id)) is not None:
                        self._names[topic_id] = name

    def _release(self, rows: Sequence[OrderedItem]) -> None:
        """Rows whose turn it is: their workers may make those that are open."""
        for row in rows:
            if row.number:
                part = self._parts[row.worker]
                part.open[row.number] = row
                part.resolved.append(ResolvedRow(row.number, row.topic_names, row.anomalies))
            self._out.append(row)

    def _ready(self) -> list[Any]:
        out = self._out
        outputs = []
        while out and out[0].is_ready:
            outputs.append(out.popleft().output)
        return outputs


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
    outputs: list[Any] = field(default_factory=list)
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


class ResolvedRow(NamedTuple):
    """The answer to an open row: its number, names of its ids, and the resolver's anomalies."""

    number: int
    names: dict[str, str]
    anomalies: list[Anomaly]


class ParentUpdate(NamedTuple):
    """The parent's word: ``until`` this place rows of all workers are together; ids with their names."""

    until: int
    names: dict[str, str]
    resolved: list[ResolvedRow]


class LateRows(NamedTuple):
    """What the sink made of open rows, by their number."""

    outputs: list[tuple[int, Any]]


class Stop(NamedTuple):
    """Read no further, and end."""


class WorkerEnd(NamedTuple):
    """A worker has come to the end of the capture, or was stopped.

    Attributes:
        counts, skipped, noticed: of its ``Dissection``.
        warnings, sources: of its capture.
        fault: what was wrong where it could not be read beyond.
        passed_over: names in exchanges that were not asked for (``Filter.passed_over``).
        made: what the sink knows.
    """

    counts: Counter[str]
    skipped: Counter[str]
    noticed: list[tuple[int, str]]
    warnings: list[str]
    sources: tuple[Source, ...]
    fault: str | None
    passed_over: Sequence[set[str]]
    result: Any


class Failed(NamedTuple):
    """A worker could not go on."""

    error: KdissectError
