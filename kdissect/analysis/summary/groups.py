"""Facts -> groups: their members, the events of their rebalances, the offsets they commit.

Members of a group talk over different connections, and these may be counted in different places. So nothing
is concluded while facts come in: what is kept is the latest of each member and partition, and the events, so
many of each group (limits.py, ``summary_group_...``); groupstories.py tells the story from them.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kdissect.analysis.groupevents import ALIVE, COMMIT, JOIN, LEAVE, group_events
from kdissect.analysis.summary.bounded import Bounded
from kdissect.analysis.summary.groupstories import stories
from kdissect.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from kdissect.analysis.groupevents import GroupEvent
    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.groupsdocument import GroupStory
    from kdissect.analysis.touched import Touched

Stamp = tuple[int, str, int, str]
"""When something was so: the key of its event."""

MANNERS = frozenset({"MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS"})
"""Errors that a group needs to work: who has no member id is told it, who is to join again is told so."""


class Group:
    """A group. ``events`` are sorted only when they are told."""

    __slots__ = ("errors", "events", "first_ns", "last_ns", "latest", "left_out", "seen")

    def __init__(self) -> None:
        self.events: list[GroupEvent] = []
        self.errors: Counter[str] = Counter()
        self.left_out = 0
        self.seen = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.latest: dict[str, tuple[Stamp, Any]] = {}

    def see(self, event: GroupEvent) -> None:
        """Count an event, without keeping it."""
        self.seen += 1
        self.first_ns = _least(self.first_ns, event.time_ns)
        self.last_ns = _most(self.last_ns, event.time_ns)
        if event.error and event.error not in MANNERS:
            self.errors[event.error] += 1
        _note(self.latest, "kind", event.key, event.kind)
        _note(self.latest, "protocol_type", event.key, event.protocol_type)

    def merge(self, other: Group) -> None:
        """Take in what another one saw of the group."""
        self.events += other.events
        self.errors += other.errors
        self.left_out += other.left_out
        self.seen += other.seen
        self.first_ns = _least(self.first_ns, other.first_ns)
        self.last_ns = _most(self.last_ns, other.last_ns)
        _merge(self.latest, other.latest)

    def told(self, name: str) -> Any:
        """The latest of what may change."""
        return self.latest.get(name, (None, None))[1]


class Member:
    """A member id.

    Attributes:
        joined_ns: when it first asked to join, ``rejoined_ns`` last.
        left_ns: when it last left.
        alive_ns: when the broker last took it for a member, None if never.
        latest: what changes: client, address, instance, generation, assignment, subscribed.
    """

    __slots__ = (
        "alive_ns",
        "first_ns",
        "heartbeats",
        "joined_ns",
        "latest",
        "left_ns",
        "rejoined_ns",
        "seen",
    )

    def __init__(self) -> None:
        self.seen = 0
        self.heartbeats = 0
        self.first_ns: int | None = None
        self.joined_ns: int | None = None
        self.rejoined_ns: int | None = None
        self.left_ns: int | None = None
        self.alive_ns: int | None = None
        self.latest: dict[str, tuple[Stamp, Any]] = {}

    def see(self, event: GroupEvent) -> None:
        """Take in what an event says of the member."""
        self.seen += 1
        time_ns = event.time_ns
        self.first_ns = _least(self.first_ns, time_ns)
        if event.event == JOIN:
            self.joined_ns = _least(self.joined_ns, time_ns)
            self.rejoined_ns = _most(self.rejoined_ns, time_ns)
        if event.event == LEAVE and event.error is None:
            self.left_ns = _most(self.left_ns, time_ns)
            _note(self.latest, "instance", event.key, event.group_instance_id)
            return  # an administrator may have sent it
        if event.error is not None or event.completed_ns is None:
            return
        self.heartbeats += event.event == ALIVE
        self.alive_ns = _most(self.alive_ns, event.completed_ns)
        _note(self.latest, "client", event.key, event.client_id or event.client_ip)
        _note(self.latest, "address", event.key, event.client_ip)
        _note(self.latest, "instance", event.key, event.group_instance_id)
        _note(self.latest, "generation", event.key, event.generation)
        _note(self.latest, "assignment", event.key, event.assignment)
        _note(self.latest, "subscribed", event.key, event.subscribed)

    def merge(self, other: Member) -> None:
        """Take in what another one saw of the member."""
        self.seen += other.seen
        self.heartbeats += other.heartbeats
        self.first_ns = _least(self.first_ns, other.first_ns)
        self.joined_ns = _least(self.joined_ns, other.joined_ns)
        self.rejoined_ns = _most(self.rejoined_ns, other.rejoined_ns)
        self.left_ns = _most(self.left_ns, other.left_ns)
        self.alive_ns = _most(self.alive_ns, other.alive_ns)
        _merge(self.latest, other.latest)

    def told(self, name: str) -> Any:
        """The latest of what may change; None where it was never told."""
        return self.latest.get(name, (None, None))[1]


class Committed:
    """Offsets that a group commits for a partition."""

    __slots__ = ("commits", "failed", "first", "last")

    def __init__(self) -> None:
        self.commits = 0
        self.failed = 0
        self.first: tuple[Stamp, int] | None = None
        self.last: tuple[Stamp, int] | None = None

    def see(self, event: GroupEvent, touched: Touched) -> None:
        """Take in a commit of the partition."""
        if event.completed_ns is None or touched.error != 0:
            self.failed += 1
            return
        self.commits += 1
        offset = touched.request.get("committed_offset")
        if offset is not None:
            self._take((event.key, offset), (event.key, offset))

    def merge(self, other: Committed) -> None:
        """Take in what another one saw."""
        self.commits += other.commits
        self.failed += other.failed
        self._take(other.first, other.last)

    def _take(self, first: tuple[Stamp, int] | None, last: tuple[Stamp, int] | None) -> None:
        self.first = min((each for each in (self.first, first) if each is not None), default=None)
        self.last = max((each for each in (self.last, last) if each is not None), default=None)


class Groups:
    """All groups.

    Attributes:
        groups: by group id.
        members: by group id and member id.
        committed: by group id, topic and partition.
    """

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.groups: Bounded[str, Group] = Bounded(limits.summary_rows, Group)
        self.members: Bounded[tuple[str, str], Member] = Bounded(limits.summary_group_members, Member)
        self.committed: Bounded[tuple[str, str, int], Committed] = Bounded(
            limits.summary_group_partitions, Committed
        )
        self._limits = limits
        self._events = 0

    def feed(self, facts: Facts) -> None:
        """Take in an exchange."""
        for event in group_events(facts.exchange, alive_too=True):
            group = self.groups[event.group_id]
            group.see(event)
            if group is self.groups.other:
                continue
            if event.event not in (ALIVE, COMMIT):
                self._keep(group, event)
            if event.member_id is not None:
                self.members[event.group_id, event.member_id].see(event)
            if event.event == COMMIT:
                for touched in facts.touched:
                    self.committed[event.group_id, touched.topic, touched.partition].see(event, touched)

    def merge(self, other: Groups) -> None:
        """Take in what another one saw of other connections."""
        self.groups.merge(other.groups)
        self.members.merge(other.members)
        self.committed.merge(other.committed)
        self._events = 0
        for group in self.groups.values():
            gathered, group.events = sorted(group.events, key=_by_key), []
            for event in gathered:
                self._keep(group, event)

    def rows(self) -> list[GroupStory]:
        """The story of each group."""
        return stories(self)

    def folded(self) -> dict[str, int]:
        """What no row was left for, by table: events of groups, events of members, commits of partitions."""
        groups, members, committed = self.groups.other, self.members.other, self.committed.other
        counts = {
            "group_stories": groups.seen if groups else 0,
            "group_members": members.seen if members else 0,
            "group_commits": committed.commits + committed.failed if committed else 0,
        }
        return {name: count for name, count in counts.items() if count}

    def _keep(self, group: Group, event: GroupEvent) -> None:
        limits = self._limits
        if (
            self._events < limits.summary_group_events_in_all
            and len(group.events) < limits.summary_group_events
        ):
            group.events.append(event)
            self._events += 1
        else:
            group.left_out += 1


def _by_key(event: GroupEvent) -> Stamp:
    return event.key


def _note(latest: dict[str, tuple[Stamp, Any]], name: str, stamp: Stamp, value: Any) -> None:
    if value is not None and (name not in latest or latest[name][0] < stamp):
        latest[name] = stamp, value


def _merge(latest: dict[str, tuple[Stamp, Any]], other: dict[str, tuple[Stamp, Any]]) -> None:
    for name, (stamp, value) in other.items():
        _note(latest, name, stamp, value)


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _most(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
