"""Base sequences of batches -> which sequence numbers a producer skipped, and which it sent again.

A producer numbers the records that it writes to a partition (KIP-98), from 0 with each producer epoch. What
is kept are the runs of numbers that were seen: so it does not matter in which order batches are met, and what
is seen on several connections adds up. Holds ``_EPOCHS`` times ``_RUNS`` runs of a partition at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple

from kdissect.net.duplex import NEVER_NS
from kdissect.stats.sums import Summed, earliest, latest, own, summed, total

_EPOCHS = 8  # an older one is added up: transactions of version 2 begin a new one each (KIP-890)
_RUNS = 64  # past it the smallest hole is taken for one that stays
_WRAP = 2**31  # behind the last sequence number comes 0


class SequenceRun(NamedTuple):
    """Sequence numbers without a hole, ``end`` not included, and the exchange that begins it."""

    first: int
    end: int
    time_ns: int
    exchange: str


class Runs:
    """The numbers of one epoch."""

    __slots__ = ("_closed_holes", "_closed_missing", "runs")

    def __init__(self) -> None:
        self.runs: list[SequenceRun] = []
        self._closed_holes = 0
        self._closed_missing = 0

    @property
    def holes(self) -> int:
        """Places where numbers are missing."""
        return max(0, len(self.runs) - 1) + self._closed_holes

    @property
    def missing(self) -> int:
        """Numbers that are missing there."""
        return self._span() - sum(run.end - run.first for run in self.runs) + self._closed_missing

    @property
    def seen(self) -> int:
        """Different numbers that were seen."""
        return self._span() - self.missing

    @property
    def after_holes(self) -> list[SequenceRun]:
        """The runs that begin behind a hole."""
        return self.runs[1:]

    def add(self, run: SequenceRun) -> None:
        """Take numbers, seen before or not."""
        start = end = bisect_left(self.runs, run.first, key=lambda known: known.end)
        while end < len(self.runs) and self.runs[end].first <= run.end:
            end += 1
        joined = [run, *self.runs[start:end]]
        earliest = min(joined, key=lambda each: (each.first, each.time_ns, each.exchange))
        self.runs[start:end] = [earliest._replace(end=max(each.end for each in joined))]
        if len(self.runs) > _RUNS:
            self._close_smallest_hole()

    def merge(self, other: Runs) -> None:
        """Take in the numbers of another part of the same captures."""
        self._closed_holes += other._closed_holes
        self._closed_missing += other._closed_missing
        for run in other.runs:
            self.add(run)

    def _span(self) -> int:
        return self.runs[-1].end - self.runs[0].first if self.runs else 0

    def _close_smallest_hole(self) -> None:
        holes = [after.first - run.end for run, after in zip(self.runs, self.runs[1:], strict=False)]
        index = holes.index(min(holes))
        self._closed_holes += 1
        self._closed_missing += holes[index]
        self.runs[index : index + 2] = [self.runs[index]._replace(end=self.runs[index + 1].end)]


@summed
class Sequence(Summed):
    """What a producer id wrote to a partition.

    Attributes:
        batches: how many; ``records`` are those in them, sent again or not.
        errors: batches that were refused, by the error's name.
        first_ns, last_ns: of the requests.
    """

    batches: int = total()
    records: int = total()
    errors: Counter[str] = total(Counter)
    first_ns: int = earliest(NEVER_NS)
    last_ns: int = latest(0)
    _epochs: dict[int, Runs] = own(dict)  # of these merge keeps the latest
    _added: int = total()  # epochs that are added up, and what they had
    _holes: int = total()
    _missing: int = total()
    _seen: int = total()

    def add(
        self, epoch: int, base: int, records: int, time_ns: int, exchange: str, error: str | None = None
    ) -> None:
        """Take a batch."""
        self.first_ns = min(self.first_ns, time_ns)
        self.last_ns = max(self.last_ns, time_ns)
        self.batches += 1
        self.records += records
        if error is not None:
            self.errors[error] += 1
        runs = self._of(epoch)
        if base + records > _WRAP:  # from here on the numbers that were seen come again, and are others
            runs.add(SequenceRun(base, _WRAP, time_ns, exchange))
            self._add_up(runs)
            runs = self._epochs[epoch] = Runs()
            base, records = 0, base + records - _WRAP
        runs.add(SequenceRun(base, base + records, time_ns, exchange))

    def merge(self, other: Sequence) -> None:
        """Take in what was seen on other connections."""
        Summed.merge(self, other)
        for epoch, runs in other._epochs.items():
            self._of(epoch).merge(runs)

    @property
    def epochs(self) -> int:
        """Producer epochs in which it wrote."""
        return self._added + len(self._epochs)

    @property
    def holes(self) -> int:
        """Places where sequence numbers are missing."""
        return self._holes + sum(runs.holes for runs in self._epochs.values())

    @property
    def missing(self) -> int:
        """Records that, by their numbers, were never seen to be sent."""
        return self._missing + sum(runs.missing for runs in self._epochs.values())

    @property
    def repeated(self) -> int:
        """Records that were sent again."""
        return self.records - self._seen - sum(runs.seen for runs in self._epochs.values())

    @property
    def example(self) -> str | None:
        """The first exchange behind a hole that is remembered."""
        candidates = [run for runs in self._epochs.values() for run in runs.after_holes]
        return min((run.time_ns, run.exchange) for run in candidates)[1] if candidates else None

    def _of(self, epoch: int) -> Runs:
        if epoch not in self._epochs:
            self._epochs[epoch] = Runs()
            if len(self._epochs) > _EPOCHS:
                self._add_up(self._epochs.pop(min(each for each in self._epochs if each != epoch)))
                self._added += 1
        return self._epochs[epoch]

    def _add_up(self, runs: Runs) -> None:
        self._holes += runs.holes
        self._missing += runs.missing
        self._seen += runs.seen
