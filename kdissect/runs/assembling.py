"""The batches of all workers -> their rows, in the order in which one process would write them.

Holds the batches of workers that are ahead, the rows that Ordering and TopicNameResolver hold back, and the
rows that wait behind an open one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect import core
from kdissect.exchanges.end_to_end import EndToEnd
from kdissect.exchanges.ordering import Ordering
from kdissect.exchanges.resolver import NO_REFS
from kdissect.exchanges.topic_names import TopicNameResolver

if TYPE_CHECKING:
    from array import array
    from collections import Counter
    from collections.abc import Mapping, Sequence
    from pickle import PickleBuffer

    from kdissect.capture.source import Source
    from kdissect.errors import KdissectError
    from kdissect.exchanges.end_to_end import ProduceRefs
    from kdissect.exchanges.learned import BatchCopy, NumberedBatch, ProducedBatch
    from kdissect.exchanges.topic_names import TopicRefs
    from kdissect.limits import Limits
    from kdissect.model import Anomaly, ConnectionKey
    from kdissect.query.filters import FilterNotes
    from kdissect.stats.survey import Census


class OrderedItem:
    """A worker's row, a stand-in for the exchange in Ordering and TopicNameResolver.

    Attributes:
        worker: index of the worker that completed it.
        number: number of an open row; 0 if the row is not open.
        is_ready: whether ``output`` is there.
        output: the output of the worker's sink.
        connection_key, order, completed_ns, held_bytes, decoded_bytes, anomalies, topic_ids, produced_ns,
            copies: as in ``Exchange``.
    """

    __slots__ = (
        "anomalies",
        "completed_ns",
        "connection_key",
        "copies",
        "decoded_bytes",
        "held_bytes",
        "is_ready",
        "number",
        "order",
        "output",
        "produce_refs",
        "produced_ns",
        "topic_ids",
        "topic_refs",
        "worker",
    )  # fmt: skip

    def __init__(
        self,
        worker: int,
        order: tuple[int, int],
        connection_key: ConnectionKey,
        output: Any,
        held_bytes: int,
        decoded_bytes: int = 0,
        opened: OpenRow | None = None,
    ) -> None:
        self.worker = worker
        self.completed_ns, _ = self.order = order
        self.held_bytes = held_bytes
        self.decoded_bytes = decoded_bytes
        self.connection_key = connection_key
        self.number, self.topic_refs, self.produce_refs, topic_ids = opened or _NOT_OPEN
        self.output = output
        self.is_ready = not self.number
        self.anomalies: list[Anomaly] = []
        self.topic_ids = dict(topic_ids)
        self.produced_ns: dict[ProducedBatch, int] | None = None
        self.copies: dict[NumberedBatch, BatchCopy] | None = None

    @classmethod
    def of(cls, worker: int, rows: WorkerRows, index: int) -> OrderedItem:
        """A row of a batch."""
        return cls(
            worker,
            (rows.completed_ns[index], rows.packets[index]),
            rows.connections[index],
            rows.outputs[index],
            rows.held[index],
            rows.decoded[index],
            rows.open.get(index),
        )


def _topic_refs(row: OrderedItem) -> TopicRefs:
    return row.topic_refs


def _produce_refs(row: OrderedItem) -> ProduceRefs:
    return row.produce_refs


class _WorkerBatches:
    """The batches of one worker that are not merged yet; the first may be merged in part."""

    def __init__(self) -> None:
        self.batches: deque[WorkerBatch] = deque()
        self.consumed = 0  # rows of the first batch that are merged
        self.until = 0
        self.is_done = False
        self.unreported: deque[int] = deque()  # places of batches that the worker does not know to be merged
        self.waits_for_update = False
        self.waiting_since_ns: int | None = None
        self.open: dict[int, OrderedItem] = {}
        self.resolved: list[ResolvedRow] = []

    def slices_until(self, until: int) -> list[tuple[WorkerBatch, int, int]]:
        """Take its rows up to a place: batches, each with the first index and the one past the last."""
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
    """Merges the rows of all workers.

    Args:
        workers: number of workers.
        limits: limits of ordering and name resolution.
        topic_ids: see ``Options``.

    Attributes:
        until: the place up to which the rows of all workers are merged.
    """

    def __init__(self, workers: int, limits: Limits, topic_ids: Mapping[str, str] | None = None) -> None:
        self.until = 0
        self._limits = limits
        self._merge: core.native.Merge | None = None  # if the native core has written lines
        self._rows: dict[tuple[int, int], OrderedItem] = {}  # other rows that it merges, by worker and number
        self._added = [0] * workers  # number of these so far
        self._parts = [_WorkerBatches() for _ in range(workers)]
        self._ordering: Ordering[OrderedItem] = Ordering(limits)
        self._resolver: TopicNameResolver[OrderedItem] = TopicNameResolver(
            limits, _topic_refs, given=topic_ids
        )
        self._end_to_end: EndToEnd[OrderedItem] = EndToEnd(limits, _produce_refs)
        self._names: dict[str, str] = {}  # learned since the last update to the workers
        self._out: deque[OrderedItem] = deque()  # in order; those from the first open one on wait
        self._may_be_due = False  # whether an update may be

    @property
    def produced_evicted(self) -> int:
        """See ``EndToEnd.evicted``."""
        return self._end_to_end.evicted

    @property
    def names_forgotten(self) -> int:
        """See ``Resolver.evicted``."""
        return self._resolver.evicted

    def batch(self, worker: int, batch: WorkerBatch) -> list[Any]:
        """Take a batch; return the outputs of the rows that come next."""
        part = self._parts[worker]
        part.until = batch.until
        part.is_done = batch.is_last
        part.unreported.append(batch.until)
        part.waits_for_update = batch.is_far_ahead
        until = min([part.until for part in self._parts])
        self._may_be_due = self._may_be_due or batch.is_far_ahead or until > self.until
        if batch.lines is None:
            part.batches.append(batch)
        else:
            self._add(worker, batch.rows, batch.lines)
        if until <= self.until:
            return []
        self.until = until
        if self._merge is not None:
            return self._merged(until)
        slices = [part.slices_until(until) for part in self._parts]
        if self._is_sortable(slices):
            outputs, is_sorted = self._sorted(slices)
            if is_sorted:
                return outputs
        self._order_and_resolve(slices, until)
        self._close_if_done()
        return self._ready()

    def _close_if_done(self) -> None:
        if all(part.is_done for part in self._parts):
            self._release(self._resolver.close())  # no more names will be learned
            self._queue(self._end_to_end.close())

    def late(self, worker: int, late: LateRows) -> list[Any]:
        """Take the outputs of open rows; return the outputs of the rows that come next."""
        part = self._parts[worker]
        for number, output in late.outputs:
            row = part.open.pop(number)
            row.output = output
            row.is_ready = True
        return self._ready()

    def updates(self) -> list[tuple[int, ParentUpdate]]:
        """The updates that are due, each with the index of its worker."""
        out: list[tuple[int, ParentUpdate]] = []
        if not self._may_be_due:
            return out
        self._may_be_due = False
        for worker, part in enumerate(self._parts):
            merged = bisect_right(part.unreported, self.until)
            is_due = merged >= (1 if part.waits_for_update else _REPORTED)
            if is_due or part.resolved or self._names:
                out.append((worker, ParentUpdate(self.until, self._names, part.resolved)))
                for _ in range(merged):
                    part.unreported.popleft()
                part.resolved = []
        self._names = {}
        return out

    def _add(self, worker: int, rows: WorkerRows, lines: tuple[int, PickleBuffer]) -> None:
        """Add a batch with lines."""
        if self._merge is None:
            assert core.is_used
            limits = self._limits
            self._merge = core.native.Merge(len(self._parts), limits.order_rows, limits.order_bytes)
        for index in range(len(rows.places)):
            self._rows[worker, self._added[worker]] = OrderedItem.of(worker, rows, index)
            self._added[worker] += 1
        self._merge.add(worker, lines, rows.waits)

    @property
    def _is_idle(self) -> bool:
        """Whether no row waits for anything but the output of an earlier one."""
        return self._resolver.is_idle and self._end_to_end.is_idle

    def _merged(self, until: int) -> list[Any]:
        """The outputs that come next, with lines in as large pieces as possible."""
        assert self._merge is not None
        self._merge.advance(until)
        outputs = []
        while taken := self._merge.take(single := not self._is_idle):
            worker, number, count, (shown, text), completed_ns, held = taken
            if not count:
                self._resolve(self._rows.pop((worker, number)))
            else:
                output = (shown, text) if shown else None
                row = OrderedItem(worker, (completed_ns, 0), ("", 0), output, held)
                if single:
                    self._resolve(row)
                else:
                    self._out.append(row)
            outputs += self._ready()
        self._close_if_done()
        return outputs + self._ready()

    def _is_sortable(self, slices: list[list[tuple[WorkerBatch, int, int]]]) -> bool:
        """Whether sorting the rows by place is enough."""
        if self._out or not (self._ordering.is_idle and self._is_idle):
            return False
        return all(part.waiting_since_ns is None for part in self._parts) and not any(
            batch.rows.waits or batch.rows.open for own in slices for batch, _, _ in own
        )

    def _sorted(self, slices: list[list[tuple[WorkerBatch, int, int]]]) -> tuple[list[Any], bool]:
        """Outputs sorted by place, and True; nothing and False if two workers have rows at one place."""
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
        """As in one process: the rows of each place go through Ordering and TopicNameResolver."""
        rows: dict[int, list[OrderedItem]] = {}
        waits: dict[int, list[tuple[int, int | None]]] = {}
        for worker, own in enumerate(slices):
            for batch, begin, end in own:
                columns = batch.rows
                for index in range(begin, end):
                    rows.setdefault(columns.places[index], []).append(OrderedItem.of(worker, columns, index))
                while columns.waits and columns.waits[0][0] <= until:
                    place, since_ns = columns.waits.pop(0)
                    waits.setdefault(place, []).append((worker, since_ns))
        for place in sorted(rows.keys() | waits.keys()):
            for worker, since_ns in waits.get(place, ()):
                self._parts[worker].waiting_since_ns = since_ns
            since = [part.waiting_since_ns for part in self._parts if part.waiting_since_ns is not None]
            for row in self._ordering.feed(rows.get(place, []), min(since, default=None)):
                self._resolve(row)

    def _resolve(self, row: OrderedItem) -> None:
        """Take the next row in order of completion."""
        self._release(self._resolver.feed(row))
        for topic_id, _ in row.topic_refs.learned:
            if (name := self._resolver.known(topic_id, row.completed_ns)) is not None:
                self._names[topic_id] = name

    def _release(self, rows: Sequence[OrderedItem]) -> None:
        """Rows whose names are settled: those with fetched records may wait for a Produce."""
        for row in rows:
            self._queue(self._end_to_end.feed(row))

    def _queue(self, rows: Sequence[OrderedItem]) -> None:
        """Queue rows whose turn has come; their workers can now make the output of open ones."""
        for row in rows:
            if row.number:
                part = self._parts[row.worker]
                part.open[row.number] = row
                known = row.topic_ids, row.anomalies, row.produced_ns, row.copies
                part.resolved.append(ResolvedRow(row.number, *known))
            self._out.append(row)

    def _ready(self) -> list[Any]:
        out = self._out
        outputs = []
        while out and out[0].is_ready:
            outputs.append(out.popleft().output)
        return outputs


# ------------------------------------------------------------------------------------------------------------
# The messages between workers and their parent.
# ------------------------------------------------------------------------------------------------------------


AHEAD = 24
"""Batches that a worker may send beyond the merged place, while the slowest worker catches up. A batch
usually holds 100 KB of frames, and half a megabyte at most."""


_REPORTED = AHEAD // 4
"""Merged batches of a worker after which it gets a ``ParentUpdate``, unless it waits for one."""


class OpenRow(NamedTuple):
    """A row that may have to wait: its number, topic IDs, batches, and names that its worker knows."""

    number: int
    topic_refs: TopicRefs
    produce_refs: ProduceRefs
    topic_ids: dict[str, str]


_NOT_OPEN = OpenRow(0, NO_REFS, NO_REFS, {})


@dataclass(slots=True)
class WorkerRows:
    """Rows in the order in which a worker completed them.

    Attributes:
        places: ``Dissection.place`` at which each row was complete; never decreases.
        completed_ns, packets: ``Exchange.order`` of each.
        held: ``Exchange.held_bytes`` of each.
        decoded: ``Exchange.decoded_bytes`` of each.
        connections: ``connection_key`` of each.
        outputs: the sink's output for each; None: nothing, or the row is open.
        open: open rows, by index.
        waits: changes of the time since which a connection waits for missing bytes (None: none does), each
            with the place from which it applies.
    """

    places: array[int]
    completed_ns: array[int]
    packets: array[int]
    held: array[int]
    decoded: array[int]
    connections: list[ConnectionKey] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    open: dict[int, OpenRow] = field(default_factory=dict)
    waits: list[tuple[int, int | None]] = field(default_factory=list)


class WorkerBatch(NamedTuple):
    """All rows of a worker up to and including a place.

    Attributes:
        until: the place.
        is_last: whether no batch follows.
        lines: if the native core writes lines: bytes of the keys of all rows; and these, followed by the
            texts of the rows that are not in ``rows`` (core/src/runs/merge.rs).
        is_far_ahead: whether the worker waits for a ``ParentUpdate``.
    """

    until: int
    rows: WorkerRows
    is_last: bool = False
    lines: tuple[int, PickleBuffer] | None = None
    is_far_ahead: bool = False


class ResolvedRow(NamedTuple):
    """An open row whose turn has come: its number, the names of its topic IDs, the resolver's anomalies,
    ``Exchange.produced_ns`` and ``copies``.
    """

    number: int
    names: dict[str, str]
    anomalies: list[Anomaly]
    produced_ns: dict[ProducedBatch, int] | None
    copies: dict[NumberedBatch, BatchCopy] | None


class ParentUpdate(NamedTuple):
    """A message from the parent to a worker.

    Attributes:
        until: the place up to which the rows of all workers are merged.
        names: topic IDs with their names, learned since the last update.
        resolved: open rows of this worker whose turn has come.
    """

    until: int
    names: dict[str, str]
    resolved: list[ResolvedRow]


class LateRows(NamedTuple):
    """Outputs of open rows, each with the row's number."""

    outputs: list[tuple[int, Any]]


class Stop(NamedTuple):
    """The worker is to stop reading and end."""


class WorkerEnd(NamedTuple):
    """A worker has reached the end of the capture, or was stopped.

    Attributes:
        counts, skipped, noticed: of its ``Dissection``.
        notes: ``Filter.notes``.
        result: what ``Work.end`` returned.
    """

    counts: Counter[str]
    skipped: Counter[str]
    noticed: list[tuple[int, str]]
    notes: FilterNotes
    result: Any


class Progress(NamedTuple):
    """Bytes that have been read of the captures, in all passes together."""

    bytes_read: int


class ReaderEnd(NamedTuple):
    """The captures have been read, or that was stopped.

    Attributes:
        warnings, sources: of the ``Capture``.
        fault: why it could not be read to its end; None if it could.
        unreadable: whether one of them is missing or cannot be read.
        census: of its packets, if they were counted.
    """

    warnings: list[str]
    sources: tuple[Source, ...]
    fault: str | None
    unreadable: bool
    census: Census | None


class Failed(NamedTuple):
    """An error ended a worker."""

    error: KdissectError
