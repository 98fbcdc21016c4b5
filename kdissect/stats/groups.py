"""Facts -> groups: members, events of rebalances, committed offsets.

Members of a group use different connections, which may be counted by different workers. So nothing is
concluded while facts arrive. Only the latest values of each member and partition are kept, and a limited
number of events per group (limits.py, ``summary_group_...``). ``histories`` evaluates them at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from kdissect.exchanges.group_events import (
    ALIVE,
    CLASSIC,
    COMMIT,
    CONSUMER,
    JOIN,
    LEAVE,
    SHARE,
    STREAMS,
)
from kdissect.limits import DEFAULT, MILLISECOND_NS, SECOND_NS, Limits
from kdissect.names import entries
from kdissect.stats import rebalances
from kdissect.stats.contents import EACH
from kdissect.stats.document import CauseRow, CommittedRow, GroupHistory, MemberRow, RebalanceRow, StormRow
from kdissect.stats.quantiles import Bounded, other_counts
from kdissect.stats.rebalances import FIRST, JOINED, LEFT, SUBSCRIPTION, TIMEOUT, UNKNOWN, Cause, Rebalance
from kdissect.stats.rows import moment, row_of
from kdissect.stats.sums import Summed, earlier, earliest, joined, later, latest, merged, own, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kdissect.exchanges.group_events import GroupEvent
    from kdissect.exchanges.touched import Touched
    from kdissect.stats.contents import CommittedPartition
    from kdissect.stats.tallies import Alike, Tally


Stamp = tuple[int, str, int, str]
"""When a value was seen: the key of its event."""

_UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"
_LISTS = ("assignment", "subscribed")
"""Values of members that are lists."""


def _note(latest: dict[str, tuple[Stamp, Any]], name: str, stamp: Stamp, value: Any) -> None:
    if value is not None and (name not in latest or latest[name][0] < stamp):
        latest[name] = stamp, value


def _newest(one: dict[str, tuple[Stamp, Any]], other: dict[str, tuple[Stamp, Any]]) -> Any:
    for name, (stamp, value) in other.items():
        _note(one, name, stamp, value)
    return one


@summed
class Group(Summed):
    """A group. ``events`` are sorted when they are evaluated."""

    events: list[GroupEvent] = total(list)
    errors: Counter[str] = total(Counter)
    left_out: int = total()
    seen: int = total()
    first_ns: int | None = earliest()
    last_ns: int | None = latest()
    latest: dict[str, tuple[Stamp, Any]] = joined(_newest, dict)
    held: int = own(int)  # entries that the events take

    def see(self, event: GroupEvent, count: int = 1) -> None:
        """Count events without storing them; ``event``: the last."""
        key = event.key
        self.seen += count
        self.first_ns = earlier(self.first_ns, event.time_ns)
        self.last_ns = later(self.last_ns, event.time_ns)
        _note(self.latest, "kind", key, event.kind)
        _note(self.latest, "protocol_type", key, event.protocol_type)

    def latest_value(self, name: str) -> Any:
        """The latest value of an attribute that can change; None if never seen."""
        return self.latest.get(name, (None, None))[1]


@summed
class Member(Summed):
    """A member ID.

    Attributes:
        joined_ns: first join request that was not refused; ``rejoined_ns``: last that was accepted.
        left_ns: last LeaveGroup.
        alive_ns: when the broker last accepted it as a member; None if never.
        unknown_ns: when the broker last said that it knows no such member.
        latest: values that can change: client, address, instance, session timeout, generation, assignment,
            subscribed.
    """

    seen: int = total()
    heartbeats: int = total()
    first_ns: int | None = earliest()
    joined_ns: int | None = earliest()
    rejoined_ns: int | None = latest()
    left_ns: int | None = latest()
    alive_ns: int | None = latest()
    unknown_ns: int | None = latest()
    latest: dict[str, tuple[Stamp, Any]] = joined(_newest, dict)

    def see(self, event: GroupEvent, count: int = 1) -> None:
        """Add events of the member; ``event``: the last."""
        self.seen += count
        time_ns, key = event.time_ns, event.key
        self.first_ns = earlier(self.first_ns, time_ns)
        if event.event == JOIN and not event.is_refused:
            self.joined_ns = earlier(self.joined_ns, time_ns)
        if event.error == _UNKNOWN_MEMBER:
            self.unknown_ns = later(self.unknown_ns, time_ns)
        if event.event == LEAVE and event.error is None:
            self.left_ns = later(self.left_ns, time_ns)
            _note(self.latest, "instance", key, event.group_instance_id)
            _note(self.latest, "left_reason", key, event.reason or "")
            return  # an administrator may have sent it
        if event.error is not None or event.completed_ns is None:
            return
        if event.event == JOIN:
            self.rejoined_ns = later(self.rejoined_ns, time_ns)
            _note(self.latest, "session_timeout_ms", key, event.session_timeout_ms)
        self.heartbeats += count * (event.event == ALIVE)
        self.alive_ns = later(self.alive_ns, event.completed_ns)
        _note(self.latest, "client", key, event.client_id or event.client_ip)
        _note(self.latest, "address", key, event.client_ip)
        _note(self.latest, "instance", key, event.group_instance_id)
        _note(self.latest, "generation", key, event.generation)
        _note(self.latest, "assignment", key, event.assignment)
        _note(self.latest, "subscribed", key, event.subscribed)

    def latest_value(self, name: str) -> Any:
        """The latest value of an attribute that can change; None if never seen."""
        return self.latest.get(name, (None, None))[1]

    @property
    def listed(self) -> int:
        """Entries that the partitions and topics of the member take."""
        return sum(entries((self.latest_value(name),)) - 1 for name in _LISTS)

    def forget_lists(self) -> None:
        """Forget the partitions and topics of the member."""
        for name in _LISTS:
            self.latest.pop(name, None)


@summed
class Committed(Summed):
    """Offsets that a group commits for a partition."""

    commits: int = total()
    failed: int = total()
    first: tuple[Stamp, int] | None = earliest()
    last: tuple[Stamp, int] | None = latest()

    @property
    def seen(self) -> int:
        """Commits, including rejected ones."""
        return self.commits + self.failed

    def see(self, event: GroupEvent, touched: Touched) -> None:
        """Add a commit of the partition."""
        if event.completed_ns is None or touched.error != 0:
            self.failed += 1
            return
        self.commits += 1
        offset = touched.request.get("committed_offset")
        if offset is not None:
            self.first = earlier(self.first, (event.key, offset))
            self.last = later(self.last, (event.key, offset))

    def add(self, counted: CommittedPartition, event: GroupEvent) -> None:
        """Add accepted commits; ``event``: of one of them."""
        self.commits += counted.commits
        (time_ns, number), offset = counted.first
        self.first = earlier(self.first, (event._replace(time_ns=time_ns, number=number).key, offset))
        (time_ns, number), offset = counted.last
        self.last = later(self.last, (event._replace(time_ns=time_ns, number=number).key, offset))


@summed
class Groups(Summed):
    """All groups.

    Attributes:
        groups: by group ID.
        members: by group ID and member ID.
        committed: by group ID, topic and partition.
        last_ns: time of the last exchange, of a group or not.
    """

    groups: Bounded[str, Group] = merged()
    members: Bounded[tuple[str, str], Member] = merged()
    committed: Bounded[tuple[str, str, int], Committed] = merged()
    last_ns: int = latest(0)
    _limits: Limits = own()
    _events: int = own()  # entries of the events that groups keep
    _listed: int = own()  # entries of the lists of members

    takes = EACH

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self.groups = Bounded(limits.summary_rows, Group)
        self.members = Bounded(limits.summary_group_members, Member)
        self.committed = Bounded(limits.summary_group_partitions, Committed)
        self._limits = limits
        self._events = self._listed = self.last_ns = 0

    def feed(self, tally: Tally) -> None:
        """Add events of groups."""
        self.last_ns = max(self.last_ns, tally.last_ns or 0)
        if tally.exchange is None:
            self._add_alike(tally)
            return
        errors = dict.fromkeys(tally.serious)  # each once, although several members can have it
        for event in tally.group_events:
            if event.error in errors:
                del errors[event.error]
                self.groups[event.group_id].errors[event.error] += 1
            if self.see(event) and event.event == COMMIT:
                for touched in tally.touched:
                    self.committed[event.group_id, touched.topic, touched.partition].see(event, touched)

    def see(self, event: GroupEvent) -> bool:
        """Add an event, without the partitions that it commits; return whether its group has its own row."""
        group = self.groups[event.group_id]
        group.see(event)
        if group is self.groups.other:
            return False
        if event.event not in (ALIVE, COMMIT):
            self._keep(group, event)
        if event.member_id is not None:
            self._see_member(group, event)
        return True

    def see_alive(self, group_id: str, member_id: str, completed_ns: int) -> None:
        """Note that the broker accepted a request of a member, and nothing else."""
        if self.groups[group_id] is not self.groups.other:
            member = self.members[group_id, member_id]
            member.alive_ns = later(member.alive_ns, completed_ns)

    def _add_alike(self, tally: Alike) -> None:
        """Add heartbeats that change nothing, or commits."""
        for first, last in tally.events():
            group = self.groups[last.group_id]
            group.see(last, tally.exchanges)
            group.first_ns = earlier(group.first_ns, first.time_ns)
            if group is self.groups.other:
                continue
            if last.member_id is not None:
                member = self.members[last.group_id, last.member_id]
                member.see(last, tally.exchanges)
                member.first_ns = earlier(member.first_ns, first.time_ns)
            for topic in tally.beats.topics if tally.beats is not None else ():
                for each in topic.partitions:
                    self.committed[last.group_id, topic.topic.name, each.partition].add(each, last)

    def merge(self, other: Groups) -> None:
        """Add the groups counted on other connections."""
        Summed.merge(self, other)
        self._events = self._listed = 0
        for group in self.groups.values():
            events, group.events, group.held = sorted(group.events, key=_by_key), [], 0
            for event in events:
                self._keep(group, event)
        for (name, _), member in sorted(self.members.items(), key=_by_name):
            self._note_lists(self.groups[name], member, 0)

    def rows(self) -> list[GroupHistory]:
        """One row for each group."""
        return histories(self)

    @property
    def left_out(self) -> int:
        """Events that the rebalances do not count, because of limits."""
        other = 0 if self.groups.other is None else self.groups.other.seen
        return other + sum(group.left_out for group in self.groups.values())

    def other_counts(self) -> dict[str, int]:
        """Counts without their own row, by table: events of groups and members, and commits."""
        return other_counts(
            group_history=(self.groups, "seen"),
            group_members=(self.members, "seen"),
            group_commits=(self.committed, "seen"),
        )

    def _keep(self, group: Group, event: GroupEvent) -> None:
        limits, taken = self._limits, entries(event)
        if (
            self._events + taken <= limits.summary_total_group_events
            and group.held + taken <= limits.summary_group_events
        ):
            group.events.append(event)
            group.held += taken
            self._events += taken
        else:
            group.left_out += 1

    def _see_member(self, group: Group, event: GroupEvent) -> None:
        assert event.member_id is not None
        member = self.members[event.group_id, event.member_id]
        if event.assignment is None and event.subscribed is None:
            member.see(event)
            return
        before = member.listed
        member.see(event)
        self._note_lists(group, member, before)

    def _note_lists(self, group: Group, member: Member, before: int) -> None:
        """Count the lists of a member, which took ``before`` entries; forget them if there are too many."""
        self._listed += member.listed - before
        if self._listed > self._limits.summary_group_listed:
            self._listed -= member.listed
            member.forget_lists()
            group.left_out += 1


def _by_name(item: tuple[tuple[str, str], Member]) -> tuple[str, str]:
    return item[0]


def _by_key(event: GroupEvent) -> Stamp:
    return event.key


# ------------------------------------------------------------------------------------------------------------
# Groups -> ``GroupHistory`` rows: members, rebalances and their causes, storms, commits.
# ------------------------------------------------------------------------------------------------------------


STORM = 4
"""This many rebalances within ``STORM_NS`` are a storm."""
STORM_NS = 60 * SECOND_NS
_EXPECTED = frozenset({rebalances.FIRST, rebalances.REVOCATION})
"""Causes that do not count toward a storm: second halves of cooperative rebalances, and the first member
unless it returns."""


def histories(groups: Groups) -> list[GroupHistory]:
    """Every group, by name."""
    members = _members_by_group(groups)
    committed: dict[str, dict[tuple[str, int], Committed]] = {}
    for (name, topic, partition), each in groups.committed.items():
        committed.setdefault(name, {})[topic, partition] = each
    return [
        _story(name, group, members.get(name, {}), committed.get(name, {}), groups.last_ns)
        for name, group in sorted(groups.groups.items())
    ]


def timelines(groups: Groups) -> Iterator[tuple[str, list[Rebalance]]]:
    """Every group's name and its rebalances in order of time."""
    members = _members_by_group(groups)
    for name, group in sorted(groups.groups.items()):
        yield name, _timeline(group, members.get(name, {}))


def _members_by_group(groups: Groups) -> dict[str, dict[str, Member]]:
    members: dict[str, dict[str, Member]] = {}
    for (name, member_id), member in groups.members.items():
        members.setdefault(name, {})[member_id] = member
    return members


def timeline(events: Sequence[GroupEvent], alive_ns: Mapping[str, int]) -> list[Rebalance]:
    """The rebalances of one group in order of time; see ``rebalances.rebalances``."""
    # A group can change from one protocol to the other and back (KIP-848).
    result = rebalances.rebalances((event for event in events if event.kind == CLASSIC), alive_ns)
    for kind in (CONSUMER, SHARE, STREAMS):
        result += epoch_rebalances((event for event in events if event.kind == kind), alive_ns)
    return sorted(result, key=lambda each: each.start_ns)


def _timeline(group: Group, members: dict[str, Member]) -> list[Rebalance]:
    alive_ns = {
        member_id: member.alive_ns for member_id, member in members.items() if member.alive_ns is not None
    }
    return timeline(group.events, alive_ns)


def _story(
    name: str,
    group: Group,
    members: dict[str, Member],
    committed: dict[tuple[str, int], Committed],
    now_ns: int,
) -> GroupHistory:
    timeline = _timeline(group, members)
    state, present = _state(members, timeline, now_ns)
    return row_of(
        GroupHistory,
        group,
        group=name,
        state=state,
        present=present,
        kind=group.latest_value("kind"),
        protocol_type=group.latest_value("protocol_type"),
        protocols=sorted({each.protocol for each in timeline if each.protocol}),
        members=_members(members),
        rebalances=[_rebalance(each) for each in timeline],
        storms=[_storm(storm) for storm in storms(timeline)],
        committed=[
            _committed(topic, partition, each) for (topic, partition), each in sorted(committed.items())
        ],
        events_dropped=group.left_out,
    )


def _state(members: Mapping[str, Member], timeline: Sequence[Rebalance], now_ns: int) -> tuple[str, int]:
    """The state at the end, and the number of members: those that are not gone, and were seen since the
    members of the last rebalance were known.
    """
    last = timeline[-1] if timeline else None
    accepted = [member for member in members.values() if member.alive_ns is not None]
    present = sum(
        1
        for member in accepted
        if not _is_gone(member, now_ns) and (last is None or (member.alive_ns or 0) >= last.joined_ns)
    )
    if not present:
        return "empty" if accepted else "unknown", 0
    return "stable" if last is None or last.end_ns is not None else "rebalancing", present


def _is_only(each: Rebalance, cause: str) -> bool:
    return bool(each.causes) and all(one.cause == cause for one in each.causes)


def _unrest(timeline: Sequence[Rebalance]) -> list[Rebalance]:
    """The rebalances that may be part of a storm: not those for which members of an empty group join one
    after the other, or leave one after the other until the group is empty or the capture ends. A client that
    was the first before has returned, and does count.
    """
    lives: list[list[Rebalance]] = [[]]  # of the group, each from its first member on
    returns: dict[int, Rebalance] = {}  # by the number of the life
    known: set[str] = set()
    for each in timeline:
        if each.causes and each.causes[0].cause == rebalances.FIRST:
            client = each.causes[0].client_id
            if client in known:
                returns[len(lives)] = each
            elif client is not None:
                known.add(client)
            lives.append([])
        elif not each.causes or each.causes[0].cause not in _EXPECTED:
            lives[-1].append(each)
    result: list[Rebalance] = []
    for number, life in enumerate(lives):
        result += filter(None, (returns.get(number),))
        started = () if not number else takewhile(lambda each: _is_only(each, JOINED), life)
        rest = life[sum(1 for _ in started) :]
        ended = sum(1 for _ in takewhile(lambda each: _is_only(each, LEFT), reversed(rest)))
        result += rest[: len(rest) - ended]
    return result


def storms(timeline: Sequence[Rebalance]) -> list[list[Rebalance]]:
    """Where ``STORM`` or more rebalances start within ``STORM_NS``; storms that overlap are one."""
    counted = _unrest(timeline)
    ranges: list[tuple[int, int]] = []  # indexes of the first and last of each
    for last in range(STORM - 1, len(counted)):
        first = last - STORM + 1
        if counted[last].start_ns - counted[first].start_ns > STORM_NS:
            continue
        if ranges and ranges[-1][1] >= first:
            first = ranges.pop()[0]
        ranges.append((first, last))
    return [counted[first : last + 1] for first, last in ranges]


def causes(storm: Sequence[Rebalance]) -> dict[str, int]:
    """What started these rebalances, the most frequent first."""
    named = (each.causes[0].cause if each.causes else rebalances.UNKNOWN for each in storm)
    return dict(Counter(named).most_common())


def _storm(storm: Sequence[Rebalance]) -> StormRow:
    return StormRow(
        start=moment(storm[0].start_ns),
        end=moment(storm[-1].start_ns),
        rebalances=len(storm),
        causes=causes(storm),
    )


def _members(members: dict[str, Member]) -> list[MemberRow]:
    accepted = [(each.first_ns, member_id, each) for member_id, each in members.items() if each.alive_ns]
    return [_member(member_id, each) for _, member_id, each in sorted(accepted, key=lambda item: item[:2])]


def _member(member_id: str, member: Member) -> MemberRow:
    assert member.alive_ns is not None
    assignment, subscribed = member.latest_value("assignment"), member.latest_value("subscribed")
    return MemberRow(
        member_id=member_id,
        group_instance_id=member.latest_value("instance"),
        client=member.latest_value("client"),
        address=member.latest_value("address"),
        joined=None if member.joined_ns is None else moment(member.joined_ns),
        left=moment(member.left_ns) if _has_left(member) and member.left_ns is not None else None,
        left_reason=(member.latest_value("left_reason") or None) if _has_left(member) else None,
        last=moment(member.alive_ns),
        heartbeats=member.heartbeats,
        generation=member.latest_value("generation"),
        assignment=None
        if assignment is None
        else {topic: list(partitions) for topic, partitions in assignment},
        subscribed=None if subscribed is None else list(subscribed),
    )


def _has_left(member: Member) -> bool:
    return member.left_ns is not None and member.left_ns >= (member.rejoined_ns or 0)


def _is_gone(member: Member, now_ns: int) -> bool:
    """Whether it left, the broker no longer knows it, or it was silent for longer than its session timeout,
    which only classic members send.
    """
    if _has_left(member) or (member.unknown_ns or -1) >= (member.rejoined_ns or 0):
        return True
    timeout_ms = member.latest_value("session_timeout_ms")
    return timeout_ms is not None and now_ns - (member.alive_ns or 0) > timeout_ms * MILLISECOND_NS


def _rebalance(each: Rebalance) -> RebalanceRow:
    seconds = None if each.end_ns is None else (each.end_ns - each.start_ns) / SECOND_NS
    return row_of(RebalanceRow, each, seconds=seconds, causes=[cause_row(cause) for cause in each.causes])


def cause_row(cause: Cause) -> CauseRow:
    """What started a rebalance, as a row of the document."""
    return row_of(CauseRow, cause, client=cause.client_id)


def _committed(topic: str, partition: int, each: Committed) -> CommittedRow:
    per_second = None
    if each.first is not None and each.last is not None and each.first[0][0] < each.last[0][0]:
        seconds = (each.last[0][0] - each.first[0][0]) / SECOND_NS
        per_second = round((each.last[1] - each.first[1]) / seconds, 3)
    return CommittedRow(
        topic=topic,
        partition=partition,
        commits=each.commits,
        failed=each.failed,
        first_offset=None if each.first is None else each.first[1],
        first=None if each.first is None else moment(each.first[0][0]),
        last_offset=None if each.last is None else each.last[1],
        last=None if each.last is None else moment(each.last[0][0]),
        per_second=per_second,
    )


# ------------------------------------------------------------------------------------------------------------
# Events of a group with heartbeats only (KIP-848, share, streams) -> its rebalances.
#
# There is no barrier: the coordinator raises the group epoch when members or their topics change, and returns
# it in each member's next heartbeat. A rebalance is such an epoch: from the event that triggered it until the
# last member received the epoch, or new partitions in it. A member keeps its epoch as long as it has
# partitions to hand over: a rebalance that not all members reach has no end.
# ------------------------------------------------------------------------------------------------------------


_STATIC_LEAVE_EPOCH = -2  # member epoch of a static member that leaves temporarily
_FENCED = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"})


@dataclass(slots=True)
class _Epochs:
    """State of the group while its events are replayed."""

    alive_ns: Mapping[str, int]
    reached: dict[str, int] = field(default_factory=dict)  # member -> its epoch
    epoch: int | None = None
    members: set[str] = field(default_factory=set)
    away: set[str | None] = field(default_factory=set)  # static members expected to return, by instance
    all_known: bool = True  # every member was seen to join
    subscribed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    first: GroupEvent | None = None  # first event that triggers the next rebalance
    joins: int = 0
    rebalances: list[Rebalance] = field(default_factory=list)

    def take(self, event: GroupEvent) -> None:
        member = event.member_id or ""
        if event.event == LEAVE:
            self._leave(event, member)
            return
        if event.error is not None:
            if event.error in _FENCED and (member in self.members or not event.is_refused):
                self.members.discard(member)
                self._add_cause(TIMEOUT, event)
            return
        if event.event == JOIN:
            self.joins += 1
            if event.group_instance_id in self.away:  # it gets its partitions back: no rebalance
                self.away.discard(event.group_instance_id)
            elif member not in self.members:
                self._add_cause(JOINED if self.members or not self.all_known else FIRST, event)
        elif member not in self.members:
            self.all_known = False
        if event.subscribed is not None:
            if self.subscribed.get(member, event.subscribed) != event.subscribed:
                self._add_cause(SUBSCRIPTION, event)
            self.subscribed[member] = event.subscribed
        self.members.add(member)
        if event.completed_ns is not None and event.generation:
            self.reached[member] = event.generation
            self._see_epoch(event, event.generation)
            self._see_end(event.completed_ns, event.generation)

    def _leave(self, event: GroupEvent, member: str) -> None:
        if event.error is None and member in self.members:
            self.members.discard(member)
            self.subscribed.pop(member, None)
            if event.generation == _STATIC_LEAVE_EPOCH:
                self.away.add(event.group_instance_id)
                return
            self._add_cause(LEFT, event)
            if not self.members and self.all_known:  # no member is left to rebalance
                self.causes, self.first, self.joins = [], None, 0

    def _add_cause(self, cause: str, event: GroupEvent) -> None:
        self.first = self.first or event
        self.causes.append(Cause(cause, event.time_ns, event.member_id, event.client_id))

    def _see_epoch(self, event: GroupEvent, epoch: int) -> None:
        if self.epoch is not None and epoch <= self.epoch:
            if epoch == self.epoch and self.rebalances and not self.causes:
                latest = self.rebalances[-1]
                latest.members_after = max(latest.members_after or 0, len(self.members))
            return
        if self.epoch is not None or self.causes:
            start = self.first or event
            joined = sum(cause.cause in (FIRST, JOINED) for cause in self.causes)
            gone = sum(cause.cause in (LEFT, TIMEOUT) for cause in self.causes)
            before = len(self.members) - joined + gone
            self.rebalances.append(
                Rebalance(
                    start_ns=start.time_ns,
                    joined_ns=start.time_ns,
                    end_ns=None,
                    generation_before=self.epoch,
                    generation_after=epoch,
                    exchange=f"{start.connection}/{start.number}",
                    causes=self.causes or [Cause(UNKNOWN, event.time_ns)],
                    members_before=before if self.all_known else None,
                    members_after=len(self.members),
                    joins=self.joins,
                    protocol=event.protocol,
                )
            )
        self.epoch = epoch
        self.causes, self.first, self.joins = [], None, 0

    def _see_end(self, time_ns: int, epoch: int) -> None:
        """Note that all members have the epoch: all that are heard of since the rebalance started."""
        if not self.rebalances or epoch != self.epoch or self.causes:
            return
        latest = self.rebalances[-1]
        present = [each for each in self.members if self.alive_ns.get(each, time_ns) >= latest.start_ns]
        if all(self.reached.get(each, 0) >= epoch for each in present):
            latest.end_ns = max(latest.end_ns or 0, time_ns)


def epoch_rebalances(events: Iterable[GroupEvent], alive_ns: Mapping[str, int]) -> list[Rebalance]:
    """The rebalances in order of time.

    Args:
        events: of one group.
        alive_ns: as for ``rebalances.rebalances``.
    """
    epochs = _Epochs(alive_ns)
    for event in sorted(events, key=lambda event: (event.completed_ns or event.time_ns, event.key)):
        if event.event != COMMIT:
            epochs.take(event)
    return epochs.rebalances
