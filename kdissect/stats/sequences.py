"""Base sequences of batches -> sequence numbers that are missing or used twice.

A producer numbers the records it writes to a partition (KIP-98), from 0 with each producer epoch. The runs of
numbers that were seen are kept, so the order of batches does not matter, and counts of several connections
can be merged. Holds at most ``2 * _EPOCHS`` times ``_RUNS`` runs per partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kdissect.net.duplex import NEVER_NS
from kdissect.stats.sums import Summed, earliest, latest, own, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

_EPOCHS = 8  # older ones become totals: in transactions version 2 each begins a new epoch (KIP-890)
_RUNS = 64  # past this number, the smallest hole becomes a gap
_WRITTEN_ALREADY, _AFTER_GAP = "DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER"
_WRAP = 2**31  # the last sequence number is followed by 0


class SequenceRun(NamedTuple):
    """Consecutive sequence numbers up to but not including ``end``, and the first exchange."""

    first: int
    end: int
    time_ns: int
    exchange: str


class Runs:
    """The numbers of one epoch."""

    __slots__ = ("_closed_gaps", "_closed_missing", "runs")

    def __init__(self) -> None:
        self.runs: list[SequenceRun] = []
        self._closed_gaps = 0
        self._closed_missing = 0

    @property
    def gaps(self) -> int:
        """Number of gaps in the sequence."""
        return max(0, len(self.runs) - 1) + self._closed_gaps

    @property
    def missing(self) -> int:
        """Missing numbers."""
        return self._span() - sum(run.end - run.first for run in self.runs) + self._closed_missing

    @property
    def seen(self) -> int:
        """Distinct numbers seen."""
        return self._span() - self.missing

    @property
    def after_gaps(self) -> list[SequenceRun]:
        """The runs that follow a hole."""
        return self.runs[1:]

    def add(self, run: SequenceRun) -> None:
        """Add numbers, seen before or not."""
        start = end = bisect_left(self.runs, run.first, key=lambda known: known.end)
        while end < len(self.runs) and self.runs[end].first <= run.end:
            end += 1
        joined = [run, *self.runs[start:end]]
        earliest = min(joined, key=lambda each: (each.first, each.time_ns, each.exchange))
        self.runs[start:end] = [earliest._replace(end=max(each.end for each in joined))]
        if len(self.runs) > _RUNS:
            self._close_smallest_hole()

    def merge(self, other: Runs) -> None:
        """Add the numbers of another part of the same captures."""
        self._closed_gaps += other._closed_gaps
        self._closed_missing += other._closed_missing
        for run in other.runs:
            self.add(run)

    def _span(self) -> int:
        return self.runs[-1].end - self.runs[0].first if self.runs else 0

    def _close_smallest_hole(self) -> None:
        gaps = [after.first - run.end for run, after in zip(self.runs, self.runs[1:], strict=False)]
        index = gaps.index(min(gaps))
        self._closed_gaps += 1
        self._closed_missing += gaps[index]
        self.runs[index : index + 2] = [self.runs[index]._replace(end=self.runs[index + 1].end)]


@summed
class Sequence(Summed):
    """Batches of a producer ID for a partition.

    Attributes:
        batches: number of batches that were not rejected; ``records``: records in them, with duplicates.
        errors: rejected batches, by error name.
        first_ns, last_ns: times of the requests.
    """

    batches: int = total()
    records: int = total()
    errors: Counter[str] = total(Counter)
    first_ns: int = earliest(NEVER_NS)
    last_ns: int = latest(0)
    _epochs: dict[int, Runs] = own(dict)  # merge keeps the latest
    _refused: dict[int, Runs] = own(dict)  # rejected batches behind a gap
    _added: int = total()  # older epochs, and their totals
    _gaps: int = total()
    _missing: int = total()
    _seen: int = total()

    def add(
        self, epoch: int, base: int, records: int, time_ns: int, exchange: str, error: str | None = None
    ) -> None:
        """Add a batch. The numbers of a rejected one are used again, unless they had been written already; or
        the broker found others missing before them, and then they show which.
        """
        self.first_ns = min(self.first_ns, time_ns)
        self.last_ns = max(self.last_ns, time_ns)
        if error is not None:
            self.errors[error] += 1
            if error == _AFTER_GAP and base + records <= _WRAP:
                self._refuse(epoch, SequenceRun(base, base + records, time_ns, exchange))
            if error != _WRITTEN_ALREADY:
                return
        self.batches += 1
        self.records += records
        runs = self._of(epoch)
        if base + records > _WRAP:  # numbers start again from 0
            runs.add(SequenceRun(base, _WRAP, time_ns, exchange))
            self._add_up(runs)
            runs = self._epochs[epoch] = Runs()
            base, records = 0, base + records - _WRAP
        runs.add(SequenceRun(base, base + records, time_ns, exchange))

    def add_run(self, run: SequenceRun, epoch: int, batches: int, times_ns: tuple[int, int]) -> None:
        """Add batches with consecutive numbers, which do not start again from 0; times of the first and last
        request.
        """
        self.first_ns = min(self.first_ns, times_ns[0])
        self.last_ns = max(self.last_ns, times_ns[1])
        self.batches += batches
        self.records += run.end - run.first
        self._of(epoch).add(run)

    def merge(self, other: Sequence) -> None:
        """Add the batches seen on other connections."""
        Summed.merge(self, other)
        for epoch, runs in other._epochs.items():
            self._of(epoch).merge(runs)
        for epoch, runs in other._refused.items():
            for run in runs.runs:
                self._refuse(epoch, run)

    @property
    def epochs(self) -> int:
        """Number of producer epochs."""
        return self._added + len(self._epochs)

    @property
    def gaps(self) -> int:
        """Number of gaps in the sequence numbers."""
        return self._gaps + sum(runs.gaps for runs in self._all())

    @property
    def missing(self) -> int:
        """Records missing according to their sequence numbers."""
        return self._missing + sum(runs.missing for runs in self._all())

    @property
    def duplicates(self) -> int:
        """Records sent more than once."""
        return self.records - self._seen - sum(runs.seen for runs in self._epochs.values())

    @property
    def example(self) -> str | None:
        """The first exchange after one of the kept gaps."""
        candidates = [run for runs in self._all() for run in runs.after_gaps]
        return min((run.time_ns, run.exchange) for run in candidates)[1] if candidates else None

    def _refuse(self, epoch: int, run: SequenceRun) -> None:
        """Note the numbers of a batch that was rejected because others are missing before it."""
        if epoch in self._refused or len(self._refused) < _EPOCHS:
            self._refused.setdefault(epoch, Runs()).add(run)

    def _all(self) -> Iterator[Runs]:
        """The numbers of each epoch, with those that show a gap only because their batch was rejected."""
        for epoch in self._epochs.keys() | self._refused.keys():
            runs = self._epochs.get(epoch)
            if epoch in self._refused:
                both = Runs()
                for each in filter(None, (runs, self._refused[epoch])):
                    both.merge(each)
                runs = both
            assert runs is not None
            yield runs

    def _of(self, epoch: int) -> Runs:
        if epoch not in self._epochs:
            self._epochs[epoch] = Runs()
            if len(self._epochs) > _EPOCHS:
                self._add_up(self._epochs.pop(min(each for each in self._epochs if each != epoch)))
                self._added += 1
        return self._epochs[epoch]

    def _add_up(self, runs: Runs) -> None:
        self._gaps += runs.gaps
        self._missing += runs.missing
        self._seen += runs.seen
