"""Events of a transactional id, in order of time -> its transactions, and who was fenced.

    InitProducerId                          a producer id and epoch; what was open is aborted
    AddPartitionsToTxn, AddOffsetsToTxn     the first one begins a transaction,
    Produce, TxnOffsetCommit                    in version 2 of transactions (KIP-890) one of these does
    EndTxn                                  commit or abort
    WriteTxnMarkers                         the coordinator's: an abort that nobody asked for is a timeout

Holds the open transaction, and ``_LISTED`` of those that are over.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

INIT, ADD, WRITE, OFFSETS, END, MARKER = range(6)

OPEN, TIMED_OUT, SUPERSEDED, ABORTED, COMMITTED = "open", "timed_out", "superseded", "aborted", "committed"
OUTCOMES = (OPEN, TIMED_OUT, SUPERSEDED, ABORTED, COMMITTED)

FENCED = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_TIMEOUT_MS = 60_000  # transaction.timeout.ms by default, where no InitProducerId was captured
_MS_NS = 1_000_000
_LISTED = 100
_PARTITIONS = 1000  # of a transaction, told apart
_FENCED_ROWS = 50


class Event(NamedTuple):
    """What a producer asked for, or its coordinator, as they stand in order.

    Attributes:
        time_ns: last byte of the request; ``done_ns`` first byte of the answer.
        kind: INIT ... MARKER.
        commits: of END and MARKER.
        timeout_ms: of INIT.
    """

    time_ns: int
    exchange: str
    kind: int
    api: str
    client: str
    address: str
    producer_id: int
    epoch: int
    error: str | None
    done_ns: int
    partitions: tuple[tuple[str, int], ...] = ()
    records: int = 0
    commits: bool = False
    timeout_ms: int = 0


@dataclass(slots=True)
class Transaction:
    """A transaction; open while ``end_ns`` is None."""

    producer_id: int
    epoch: int
    begin_ns: int
    exchange: str
    is_whole: bool
    outcome: str = OPEN
    end_ns: int | None = None
    marked_ns: int | None = None
    partitions: set[tuple[str, int]] = field(default_factory=set)
    records: int = 0
    offsets: int = 0

    def open_ns(self, last_ns: int) -> int:
        """For how long it was open, if the capture ends then."""
        return max(0, (last_ns if self.end_ns is None else self.end_ns) - self.begin_ns)


class Fence(NamedTuple):
    """Whom the broker told that its epoch is over."""

    producer_id: int
    epoch: int
    error: str
    api: str
    client: str
    address: str


@dataclass(slots=True)
class Fenced:
    """How often, and because of whom."""

    count: int
    first_ns: int
    last_ns: int
    exchange: str
    by: Event | None


class Story:
    """What became of a transactional id so far. Events are taken in order of time."""

    __slots__ = ("_holder", "_is_known", "_last", "fenced", "open", "outcomes", "over", "unlisted")

    def __init__(self) -> None:
        self.open: Transaction | None = None
        self.over: list[Transaction] = []
        self.outcomes: Counter[str] = Counter()
        self.unlisted = 0
        self.fenced: dict[Fence, Fenced] = {}
        self._holder: Event | None = None  # the last InitProducerId that succeeded
        self._last: Transaction | None = None
        self._is_known = False  # whether the id had no open transaction before the next event

    def take(self, event: Event) -> None:
        """Go on with the next event."""
        if event.kind == MARKER:
            self._mark(event)
        elif event.error in FENCED:
            self._fence(event, event.error or "")
        elif event.error is not None:
            return
        elif event.kind == INIT:
            self._close(SUPERSEDED, event.time_ns)
            self._holder, self._is_known = event, True
        elif event.kind == END:
            if self.open is None and not self._is_known:
                self._begin(event)
            self._close(COMMITTED if event.commits else ABORTED, event.done_ns)
        else:
            self._go_on(event)

    def merge(self, other: Story) -> None:
        """Take in a story of other connections: as good as that can be, once events were added up."""
        self.over += other.over
        self.outcomes += other.outcomes
        self.unlisted += other.unlisted
        self.open = self.open or other.open
        self._holder = self._holder or other._holder
        self._is_known = self._is_known or other._is_known
        for fence, fenced in other.fenced.items():
            self._count(fence, fenced)
        self._trim()

    def _begin(self, event: Event) -> None:
        self.open = Transaction(
            event.producer_id, event.epoch, event.time_ns, event.exchange, is_whole=self._is_known
        )

    def _go_on(self, event: Event) -> None:
        if self.open is None:
            self._begin(event)
        transaction = self.open
        assert transaction is not None
        if event.kind == OFFSETS:
            transaction.offsets += len(event.partitions)
        elif len(transaction.partitions) < _PARTITIONS:
            transaction.partitions.update(event.partitions)
        transaction.records += event.records

    def _close(self, outcome: str, end_ns: int) -> None:
        self._is_known = True
        transaction, self.open = self.open, None
        if transaction is None:
            return
        transaction.outcome, transaction.end_ns = outcome, end_ns
        self.outcomes[outcome] += 1
        self._last = transaction
        self.over.append(transaction)
        if len(self.over) > 2 * _LISTED:
            self._trim()

    def _mark(self, event: Event) -> None:
        """Markers belong to the last transaction that ended, unless the open one is past its time."""
        timeout_ms = self._holder.timeout_ms if self._holder is not None else _TIMEOUT_MS
        if (
            self.open is not None
            and not event.commits
            and event.time_ns - self.open.begin_ns >= timeout_ms * _MS_NS
        ):
            self._close(TIMED_OUT, event.time_ns)
        last = self._last
        if last is not None and last.marked_ns is None and event.commits == (last.outcome == COMMITTED):
            last.marked_ns = event.time_ns

    def _fence(self, event: Event, error: str) -> None:
        holder = self._holder
        is_other = holder is not None and (
            (holder.client, holder.address) != (event.client, event.address) or holder.epoch > event.epoch
        )
        fence = Fence(event.producer_id, event.epoch, error, event.api, event.client, event.address)
        self._count(
            fence, Fenced(1, event.time_ns, event.time_ns, event.exchange, holder if is_other else None)
        )

    def _count(self, fence: Fence, more: Fenced) -> None:
        known = self.fenced.get(fence)
        if known is None:
            if len(self.fenced) < _FENCED_ROWS:
                self.fenced[fence] = more
            return
        if more.first_ns < known.first_ns:
            known.first_ns, known.exchange = more.first_ns, more.exchange
        known.last_ns = max(known.last_ns, more.last_ns)
        known.count += more.count
        known.by = known.by or more.by

    def _trim(self) -> None:
        self.over.sort(key=lambda each: (OUTCOMES.index(each.outcome), -each.open_ns(0), each.begin_ns))
        self.unlisted += len(self.over[_LISTED:])
        del self.over[_LISTED:]
