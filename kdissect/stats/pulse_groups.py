"""Facts -> current state of groups: members, lag, and their last rebalances.

Holds the members and last events of each group, the end of each partition, and each group's committed offset
there; see limits.py, ``top_...``. The least recently seen is evicted first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges.group_events import ALIVE, CLASSIC, COMMIT, HEARTBEAT, JOIN, LEAVE, SYNC
from kdissect.limits import SECOND_NS
from kdissect.names import Recent, entries
from kdissect.stats.groups import timeline
from kdissect.stats.lag import committed, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.exchanges.group_events import GroupEvent
    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts
    from kdissect.stats.rebalances import Rebalance

STABLE, REBALANCING, EMPTY, SILENT = "stable", "rebalancing", "empty", "silent"
STATES = (STABLE, REBALANCING, EMPTY, SILENT)

_SETTLED_NS = (
    3 * SECOND_NS
)  # a heartbeat answered without error this long after a join means the group is stable
_SILENT_NS = 60 * SECOND_NS  # longer than usual session timeouts and heartbeat intervals
_FORGET_AFTER_NS = 600 * SECOND_NS
_MAX_REBALANCES = 50  # rebalances, of all groups together
_REBALANCING_ERROR = "REBALANCE_IN_PROGRESS"


class GroupSnapshot(NamedTuple):
    """The current state of a group.

    Attributes:
        kind: classic, consumer, share or streams; None for a group that was only seen to commit.
        state: one of ``STATES``; None while unknown.
        lag: sum over partitions of records after the committed offset; None if no partition has both
            offsets.
        worst_partition: the partition with the largest lag, and that lag.
        rebalances: since counting began.
    """

    name: str
    kind: str | None
    state: str | None
    members: int
    generation: int | None
    lag: int | None
    worst_partition: tuple[str, int, int] | None
    rebalances: int
    last_seen_ns: int


class RebalanceSnapshot(NamedTuple):
    """A group's rebalance, as last known."""

    group: str
    rebalance: Rebalance


@dataclass(slots=True)
class _Group:
    """State of a group."""

    max_held: int
    kind: str | None = None
    state: str | None = None
    generation: int | None = None
    rebalances: int = 0
    changed_ns: int = 0
    last_seen_ns: int = 0
    events: deque[GroupEvent] = field(default_factory=deque)
    held: int = 0  # entries that they take
    is_cut: bool = False
    has_changed: bool = False

    def take(self, event: GroupEvent, now_ns: int) -> None:
        """Add an event."""
        self.last_seen_ns = now_ns
        self.kind = event.kind or self.kind
        if event.event == COMMIT:
            return
        state = self._next_state(event, now_ns)
        if state is not None and state != self.state:
            self.state, self.changed_ns = state, now_ns
        if self._is_newer(event):
            self.rebalances += self.generation is not None or event.event == JOIN
            self.generation, self.changed_ns = event.generation, now_ns
        if event.event != ALIVE:
            self.events.append(event)
            self.held += entries(event)
            while self.held > self.max_held:
                self.held -= entries(self.events.popleft())
                self.is_cut = True
            self.has_changed = True

    def _is_newer(self, event: GroupEvent) -> bool:
        """Whether it has a new generation; members receive it one after the other."""
        if event.error is not None or event.completed_ns is None or event.event == LEAVE:
            return False
        if event.generation is None or self.generation is None:
            return event.generation is not None
        # A coordinator that has forgotten a group starts again from 1.
        is_rejoin = event.event == JOIN and event.kind == CLASSIC and event.generation < self.generation
        return is_rejoin or event.generation > self.generation

    def _next_state(self, event: GroupEvent, now_ns: int) -> str | None:
        """The group's state after an event; None: unchanged."""
        if event.error is not None:
            is_rebalancing = event.error == _REBALANCING_ERROR and not event.is_refused
            return REBALANCING if is_rebalancing else None
        if event.completed_ns is None:
            return None
        if event.event == ALIVE:
            is_settled = event.kind != CLASSIC or now_ns - self.changed_ns > _SETTLED_NS
            return STABLE if self.state != REBALANCING or is_settled else None
        if event.event == SYNC:
            return STABLE
        return REBALANCING if event.event in (JOIN, HEARTBEAT, LEAVE) else None


class PulseGroups:
    """All groups."""

    def __init__(self, limits: Limits) -> None:
        self._max_events = limits.top_group_events
        self._groups: Recent[str, _Group] = Recent(limits.top_rows)
        self._members: Recent[tuple[str, str], int] = Recent(limits.top_partitions)
        self._ends: Recent[tuple[str, int], int] = Recent(limits.top_partitions)
        self._commits: Recent[tuple[str, str, int], int] = Recent(limits.top_partitions)
        self._recent: Recent[tuple[str, int], RebalanceSnapshot] = Recent(_MAX_REBALANCES)

    def feed(self, facts: Facts, now_ns: int) -> None:
        """Add an exchange."""
        for each in facts.touched:
            if (commit := committed(facts, each)) is not None:
                group, offset = commit
                self._commits.keep((group, each.topic, each.partition), offset)
            elif (end := end_of(facts, each)) is not None:
                self._ends.keep((each.topic, each.partition), end)
        for event in facts.group_events:
            self._take(event, now_ns)

    def rows(self, now_ns: int) -> list[GroupSnapshot]:
        """The groups seen in the last minutes."""
        for name, each in list(self._groups.items()):
            if now_ns - each.last_seen_ns >= _FORGET_AFTER_NS:
                self._groups.pop(name)
        members: dict[str, int] = {}
        for (group, _), last_seen_ns in self._members.items():
            if now_ns - last_seen_ns < _SILENT_NS:
                members[group] = members.get(group, 0) + 1
        lags: dict[str, tuple[int, tuple[str, int, int]]] = {}
        for (group, topic, partition), offset in self._commits.items():
            if group in self._groups and (end := self._ends.get((topic, partition))) is not None:
                lag = max(0, end - offset)
                together, worst_partition = lags.get(group, (0, ("", 0, -1)))
                lags[group] = together + lag, max(worst_partition, (topic, partition, lag), key=_lag)
        return [
            self._row(name, group, members.get(name, 0), lags.get(name), now_ns)
            for name, group in self._groups.items()
        ]

    def rebalances(self) -> list[RebalanceSnapshot]:
        """The last rebalances, the latest first."""
        changed = {name: group for name, group in self._groups.items() if group.has_changed}
        alive_ns: dict[str, dict[str, int]] = {name: {} for name in changed}
        for (name, member), last_seen_ns in self._members.items():
            if name in alive_ns:
                alive_ns[name][member] = last_seen_ns
        for name, group in changed.items():
            group.has_changed = False
            rebalances = timeline(group.events, alive_ns[name])
            if group.is_cut:
                rebalances = rebalances[1:] or rebalances  # the oldest may lack its first events
            for each in rebalances:
                self._recent.keep((name, each.generation_after), RebalanceSnapshot(name, each))
        return sorted(self._recent.values(), key=lambda recent: -recent.rebalance.start_ns)

    def _take(self, event: GroupEvent, now_ns: int) -> None:
        group = self._groups.find(event.group_id) or _Group(self._max_events)
        self._groups.keep(event.group_id, group)
        group.take(event, now_ns)
        if event.member_id is None or event.completed_ns is None or event.error is not None:
            return
        if event.event == LEAVE:
            self._members.pop((event.group_id, event.member_id))
            if not any(self._members_of(event.group_id)):
                group.state, group.changed_ns = EMPTY, now_ns
        elif event.event != COMMIT:
            self._members.keep((event.group_id, event.member_id), event.completed_ns)

    def _members_of(self, group: str) -> Iterator[str]:
        return (member for of, member in self._members if of == group)

    @staticmethod
    def _row(
        name: str,
        group: _Group,
        members: int,
        lag: tuple[int, tuple[str, int, int]] | None,
        now_ns: int,
    ) -> GroupSnapshot:
        is_silent = now_ns - group.last_seen_ns > _SILENT_NS and group.state != EMPTY
        return GroupSnapshot(
            name=name,
            kind=group.kind,
            state=SILENT if is_silent else group.state,
            members=members,
            generation=group.generation,
            lag=None if lag is None else lag[0],
            worst_partition=None if lag is None else lag[1],
            rebalances=group.rebalances,
            last_seen_ns=group.last_seen_ns,
        )


def _lag(worst_partition: tuple[str, int, int]) -> int:
    return worst_partition[2]
