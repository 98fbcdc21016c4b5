"""Facts -> lag by partition: of clients by what they fetch, of groups by what they commit.

The high watermark comes from Fetch responses, ListOffsets of the latest offset, and acknowledged Produce
requests. Committed offsets are compared with it at the end, over samples of both, because the two arrive on
different connections.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import nsmallest
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.fetch_sessions import FETCH
from kdissect.net.duplex import NEVER_NS
from kdissect.stats.contents import EACH
from kdissect.stats.document import LagOverTimeRow, LagPoint, LagRow
from kdissect.stats.quantiles import Bounded, Distinct, other_counts
from kdissect.stats.rows import moment
from kdissect.stats.sums import Summed, earliest, largest, later, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.exchanges.fetch_sessions import Position
    from kdissect.exchanges.touched import Touched
    from kdissect.limits import Limits
    from kdissect.stats.contents import Counted, Lags
    from kdissect.stats.facts import Facts
    from kdissect.stats.tallies import Alike, Tally

_LIST_OFFSETS = 2
_LATEST = -1  # ListOffsets timestamp of the end
_OFFSET_FETCH = "OffsetFetch"  # of members, and of tools that commit nothing
_COMMITS = frozenset({"OffsetCommit", "TxnOffsetCommit", _OFFSET_FETCH})
_SAMPLES = 64
_OVER_TIME = 20  # groups
_MIN_BITS = 20  # of nanoseconds: a millisecond
_MS_NS = 1_000_000
PAUSE_US = 500_000
"""From this think time on, a consumer pauses. The core has it, too."""

MEMBERS = 100
"""Clients of a group whose think times are added up: the first in alphabetical order."""

Reader = tuple[str, str, int]  # client or group, topic, partition


class Samples:
    """A quantity over time: its first value, and the last one in each of at most ``_SAMPLES`` time slots.

    Slots are as short as that number allows, and start at multiples of their length, so the samples of the
    parts of a capture merge into those of the capture.

    Attributes:
        count: of all values.
        before: the last time and value of an earlier part, which is none of these; None: not known.
    """

    __slots__ = ("_bits", "_first", "_slots", "before", "count")

    def __init__(self) -> None:
        self.count = 0
        self.before: tuple[int, int] | None = None
        self._bits = _MIN_BITS  # a slot has 2 ** bits nanoseconds
        self._first: tuple[int, int] | None = None  # time, value
        self._slots: dict[int, tuple[int, int]] = {}

    @property
    def last(self) -> tuple[int, int] | None:
        """The last time and value, or that of an earlier part; None if there is none."""
        return max(self._slots.values(), default=self.before)

    def add(self, time_ns: int, value: int) -> None:
        """Add a value."""
        self.count += 1
        self._take((time_ns, value))

    def merge(self, other: Samples) -> None:
        """Add the samples of another part of the same captures."""
        self.add_counted((other.count, other._bits, [*filter(None, (other._first,)), *other._slots.values()]))

    def add_counted(self, counted: Counted) -> None:
        """Add number, bits of a slot, and kept samples of others."""
        count, bits, samples = counted
        self.count += count
        self._widen(bits)
        for sample in samples:
            self._take(sample)

    def in_order(self) -> list[tuple[int, int]]:
        """Times and values, in order of time."""
        return sorted({*filter(None, (self._first,)), *self._slots.values()})

    def _take(self, sample: tuple[int, int]) -> None:
        if self._first is None or sample < self._first:
            self._first = sample
        slot = sample[0] >> self._bits
        self._slots[slot] = max(self._slots.get(slot, sample), sample)
        while len(self._slots) > _SAMPLES:
            self._widen(self._bits + 1)

    def _widen(self, bits: int) -> None:
        if bits <= self._bits:
            return
        samples, self._slots, self._bits = sorted(self._slots.values()), {}, bits
        for sample in samples:
            self._slots[sample[0] >> bits] = sample


@summed
class PartitionEnd(Summed):
    """Offsets at the end and start of a partition, as reported over time."""

    high_watermark: Samples = merged(Samples)
    last_stable: Samples = merged(Samples)
    log_start: Samples = merged(Samples)


@summed
class ClientLag(Summed):
    """A client's lag in a partition. Times are those of the responses.

    Attributes:
        first, last: time and lag.
        position: time and offset.
        worst: lag and negative time, so that of equal lags the earliest wins.
    """

    count: int = total()
    first: tuple[int, int] = earliest((NEVER_NS, 0))
    last: tuple[int, int] = latest((0, 0))
    position: tuple[int, int] = latest((0, 0))
    worst: tuple[int, int] = largest((-1, 0))
    last_seconds: tuple[int, float] | None = latest()
    worst_seconds: float | None = largest(None)

    def add(self, time_ns: int, position: Position) -> None:
        """Add a position of the client."""
        lag = position.lag
        if lag is None or position.next_offset is None:
            return
        self.first = min(self.first, (time_ns, lag))
        self.last = max(self.last, (time_ns, lag))
        self.worst = max(self.worst, (lag, -time_ns))
        self.position = max(self.position, (time_ns, position.next_offset))
        self.count += 1
        seconds = _seconds(time_ns, lag, position.newest_ms)
        if seconds is not None:
            self.last_seconds = later(self.last_seconds, (time_ns, seconds))
            self.worst_seconds = later(self.worst_seconds, seconds)

    @property
    def seconds(self) -> float | None:
        """Time lag at the last response. It grows if records are left that later responses did not bring."""
        if self.last_seconds is None:
            return None
        (last_ns, lag), (time_ns, seconds) = self.last, self.last_seconds
        return round(seconds + (last_ns - time_ns) / 1e9, 3) if lag else seconds

    def add_counted(self, lags: Lags) -> None:
        """Add what the core has counted."""
        if not lags.number:
            return
        counted = ClientLag()
        counted.count, counted.first, counted.last, counted.worst = lags[:4]
        counted.position = lags.position
        if lags.last_age is not None and lags.worst_age_ns is not None:
            counted.last_seconds = lags.last_age[0], _rounded(lags.last_age[1])
            counted.worst_seconds = _rounded(lags.worst_age_ns)
        self.merge(counted)


@summed
class Polling(Summed):
    """Fetches of consumers whose think time is known.

    Attributes:
        think_us: sum of their think times; ``paused_us``: of those that are at least ``PAUSE_US``.
        waited_us: what the consumer waited for them.
    """

    fetches: int = total()
    think_us: int = total()
    waited_us: int = total()
    paused_us: int = total()

    def add(self, tally: Tally) -> None:
        """Add a tally of Fetch exchanges."""
        if tally.exchange is None:
            if (reads := tally.reads) is not None:
                self.fetches += reads.polls.number
                self.think_us += reads.polls.think_us
                self.waited_us += reads.polls.waited_us
                self.paused_us += reads.polls.paused_us
        elif (think_us := tally.exchange.think_us) is not None:
            self.fetches += 1
            self.think_us += think_us
            self.waited_us += (tally.latency_us or 0) if tally.total_us is None else tally.total_us
            self.paused_us += think_us if think_us >= PAUSE_US else 0

    @property
    def times(self) -> dict[str, Any]:
        """``think_us`` and ``waited_us`` of a row."""
        both = {"think_us": self.think_us, "waited_us": self.waited_us}
        return both if self.fetches else dict.fromkeys(both)


@summed
class Lag(Summed):
    """Positions, commits and high watermarks.

    Attributes:
        polling: by client; ``committers``: clients by group.
    """

    ends: Bounded[tuple[str, int], PartitionEnd] = merged()
    clients: Bounded[Reader, ClientLag] = merged()
    commits: Bounded[Reader, Samples] = merged()
    polling: Bounded[str, Polling] = merged()
    committers: Bounded[str, Distinct] = merged()

    takes = EACH

    def __init__(self, limits: Limits) -> None:
        rows = limits.summary_rows
        self.ends = Bounded(rows, PartitionEnd)
        self.clients = Bounded(rows, ClientLag)
        self.commits = Bounded(rows, Samples)
        self.polling = Bounded(rows, Polling)
        self.committers = Bounded(rows, Distinct)

    def feed(self, tally: Tally) -> None:
        """Add positions, commits, and ends of partitions."""
        if tally.exchange is None:
            self._add_alike(tally)
            return
        exchange = tally.exchange
        response = exchange.response_frame
        time_ns = exchange.time_ns if response is None else response.start_ns
        if exchange.api_key == FETCH:
            self._fetched(tally, time_ns)
            return
        for each in tally.touched:
            if (commit := committed(tally, each)) is not None:
                group, offset = commit
                self.commits[group, each.topic, each.partition].add(time_ns, offset)
                if tally.api != _OFFSET_FETCH:
                    self.committers[group].add(tally.client)
            elif (end := end_of(tally, each)) is not None:
                self.ends[each.topic, each.partition].high_watermark.add(time_ns, end)

    def _add_alike(self, tally: Alike) -> None:
        for written in tally.writes.topics if tally.writes is not None else ():
            for each in written.partitions:
                if each.ends[0]:
                    self.ends[written.topic.name, each.partition].high_watermark.add_counted(each.ends)
        if (reads := tally.reads) is not None:
            for topic, partitions in reads.topics:
                for read in partitions:
                    end = self.ends[topic.name, read.partition]
                    known = end.high_watermark, end.last_stable, end.log_start
                    for samples, counted in zip(known, read.ends, strict=True):
                        samples.add_counted(counted)
                    if not reads.are_replicated:
                        self.clients[tally.client, topic.name, read.partition].add_counted(read.lags)
            if not reads.are_replicated:
                self.polling[tally.client].add(tally)
        if (beats := tally.beats) is not None:
            if beats.topics:
                self.committers[beats.member[0]].add(tally.client)
            for committed_topic in beats.topics:
                for commit in committed_topic.partitions:
                    reader = beats.member[0], committed_topic.topic.name, commit.partition
                    self.commits[reader].add_counted(commit.offsets)

        for reported in tally.offsets:
            for partition, group, offsets in reported.partitions:
                if group is None:
                    self.ends[reported.topic.name, partition].high_watermark.add_counted(offsets)
                else:
                    self.commits[group, reported.topic.name, partition].add_counted(offsets)

    def add_position(self, time_ns: int, position: Position, client: str | None) -> None:
        """Add a position without an error, of a client; None: of a replica."""
        end = self.ends[position.topic, position.partition]
        for samples, offset in (
            (end.high_watermark, position.high_watermark),
            (end.last_stable, position.last_stable_offset),
            (end.log_start, position.log_start_offset),
        ):
            if offset is not None:
                samples.add(time_ns, offset)
        if client is not None:
            self.clients[client, position.topic, position.partition].add(time_ns, position)

    def follow(self, earlier: Lag) -> None:
        """Know the last commits and ends of an earlier part of the same captures, without counting them: a
        group that commits nothing here still lags.
        """
        for partition, end in earlier.ends.items():
            own = self.ends[partition]
            own.high_watermark.before = end.high_watermark.last
            own.last_stable.before = end.last_stable.last
            own.log_start.before = end.log_start.last
        for reader, commits in earlier.commits.items():
            self.commits[reader].before = commits.last

    def rows(self) -> list[LagRow]:
        """The largest lag first."""
        rows = [self._client(*item) for item in self.clients.items() if item[1].count]
        rows += [row for item in self.commits.items() if (row := self._group(*item)) is not None]
        rows.sort(key=largest_lag_first)
        return rows

    def over_time(self) -> list[LagOverTimeRow]:
        """The lag of the groups with the largest, in all their partitions."""
        by_group = groupby(sorted(self.commits), key=itemgetter(0))
        rows = (_over_time(group, self._changes(readers)) for group, readers in by_group)
        return nsmallest(_OVER_TIME, (row for row in rows if row.points), key=worst_first)

    def other_counts(self) -> dict[str, int]:
        """Fetch responses and commits without their own row."""
        return other_counts(lag_clients=(self.clients, "count"), lag_groups=(self.commits, "count"))

    def _fetched(self, facts: Facts, time_ns: int) -> None:
        if not facts.replica:
            self.polling[facts.client].add(facts)
        for position in facts.positions:
            if not position.error:
                self.add_position(time_ns, position, None if facts.replica else facts.client)

    def _client(self, reader: Reader, client_lag: ClientLag) -> LagRow:
        client, topic, partition = reader
        return LagRow(
            kind="client",
            name=client,
            topic=topic,
            partition=partition,
            position=client_lag.position[1],
            committed_offset=None,
            **self._end_of(topic, partition),
            lag=client_lag.last[1],
            lag_first=client_lag.first[1],
            lag_worst=client_lag.worst[0],
            worst=moment(-client_lag.worst[1]),
            seconds=client_lag.seconds,
            seconds_worst=later(client_lag.worst_seconds, client_lag.seconds),
            **self._polling_of([client]).times,
            first=moment(client_lag.first[0]),
            last=moment(client_lag.last[0]),
            count=client_lag.count,
        )

    def _group(self, reader: Reader, commits: Samples) -> LagRow | None:
        """The row of a group; None if it commits nothing, and its lag does not change."""
        group, topic, partition = reader
        lags = self._lags(topic, partition, commits)
        if commits.last is None or not (commits.count or lags):
            return None
        samples = commits.in_order() or [commits.last]
        worst = max(lags, key=lambda item: (item[1], -item[0]), default=None)
        end, committed = self._end_of(topic, partition), samples[-1][1]
        high_watermark = end["high_watermark"]
        return LagRow(
            kind="group",
            name=group,
            topic=topic,
            partition=partition,
            position=None,
            committed_offset=committed,
            **end,
            lag=None if high_watermark is None else max(0, high_watermark - committed),
            lag_first=lags[0][1] if lags else None,
            lag_worst=None if worst is None else worst[1],
            worst=None if worst is None else moment(worst[0]),
            seconds=None,
            seconds_worst=None,
            **self._polling_of(self.committers[group].first(MEMBERS)).times,
            first=moment(samples[0][0]),
            last=moment(samples[-1][0]),
            count=commits.count,
        )

    def _polling_of(self, clients: Iterable[str]) -> Polling:
        polling = Polling()
        for client in clients:
            if client in self.polling:
                polling.merge(self.polling[client])
        return polling

    def _lags(self, topic: str, partition: int, commits: Samples) -> list[tuple[int, int]]:
        """The lag each time a commit or the high watermark changed, once both are known."""
        ends = self.ends.get((topic, partition))
        changes = [Samples() if ends is None else ends.high_watermark, commits]
        times = sorted({time_ns for each in changes for time_ns, _ in each.in_order()})
        known, committed = ([*filter(None, (each.before,)), *each.in_order()] for each in changes)
        known_times, commit_times = ([time_ns for time_ns, _ in each] for each in (known, committed))
        lags: list[tuple[int, int]] = []
        for time_ns in times:
            commit, end = bisect_right(commit_times, time_ns), bisect_right(known_times, time_ns)
            if commit and end:
                lags.append((time_ns, max(0, known[end - 1][1] - committed[commit - 1][1])))
        return lags

    def _changes(self, readers: Iterable[Reader]) -> list[tuple[int, int]]:
        """By how much the lag of readers changed, in order of time."""
        changes = []
        for reader in readers:
            lags = self._lags(reader[1], reader[2], self.commits[reader])
            befores = (0, *(lag for _, lag in lags))
            changes += [
                (time_ns, lag - before) for (time_ns, lag), before in zip(lags, befores, strict=False)
            ]
        return sorted(changes)

    def _end_of(self, topic: str, partition: int) -> dict[str, Any]:
        end = self.ends.get((topic, partition))
        if end is None:
            return {"high_watermark": None, "last_stable_offset": None, "log_start_offset": None}
        last = {
            "high_watermark": end.high_watermark.last,
            "last_stable_offset": end.last_stable.last,
            "log_start_offset": end.log_start.last,
        }
        return {name: None if sample is None else sample[1] for name, sample in last.items()}


def committed(facts: Facts, each: Touched) -> tuple[str, int] | None:
    """The group, and the offset it commits or gets from OffsetFetch; None for other exchanges."""
    if each.error or facts.api not in _COMMITS:
        return None
    offset = each.value("committed_offset")
    offset = each.value("offset") if offset is None else offset
    group = each.group or facts.group
    return None if group is None or offset is None or offset < 0 else (group, offset)


def end_of(facts: Facts, each: Touched) -> int | None:
    """End of a partition, from Produce, Fetch or ListOffsets of the latest offset; None if not reported."""
    if each.error != 0:
        return None
    produced, offset = each.produced, each.response.get("high_watermark")
    if produced is not None:
        base, records = each.response.get("base_offset", -1), produced.count()
        offset = None if base < 0 or records is None else base + records
    elif facts.exchange.api_key == _LIST_OFFSETS and each.request.get("timestamp") == _LATEST:
        offset = each.response.get("offset")
    return None if offset is None or offset < 0 else offset


def largest_lag_first(row: LagRow) -> Any:
    """Sort key of rows."""
    return -(row.lag or 0), -(row.lag_worst or 0), row.kind, row.name, row.topic, row.partition


def worst_first(row: LagOverTimeRow) -> Any:
    """Sort key of rows of groups."""
    return -row.lag_worst, row.group


def _over_time(group: str, changes: list[tuple[int, int]]) -> LagOverTimeRow:
    """A row from changes of the lag in order of time."""
    samples, lag = Samples(), 0
    for time_ns, same in groupby(changes, key=itemgetter(0)):
        lag += sum(change for _, change in same)
        samples.add(time_ns, lag)
    points = [LagPoint(time=moment(time_ns), lag=lag) for time_ns, lag in samples.in_order()]
    return LagOverTimeRow(
        group=group, lag_worst=max((point.lag for point in points), default=0), points=points
    )


def _seconds(time_ns: int, lag: int, newest_ms: int | None) -> float | None:
    """Age of the newest record received, as long as there are more to read; None if unknown."""
    if not lag:
        return 0.0
    return None if newest_ms is None else _rounded(max(0, time_ns - newest_ms * _MS_NS))


def _rounded(age_ns: int) -> float:
    return round(age_ns / 1e9, 3)
