"""Events of a classic group -> its rebalances: how long each took, and what started it. Holds nothing.

A rebalance is told by its generation: all members' JoinGroups are answered with the same new one, when the
last has come; then SyncGroup brings each its part. Who is new, gone or back is told by comparing members with
those of the rebalance before, as the leader's answers list them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges.group_events import JOIN, LEAVE, SYNC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kdissect.exchanges.group_events import Assignment, GroupEvent

FIRST, JOINED, RETURN, LEFT, TIMEOUT = "first", "join", "return", "leave", "timeout"
SUBSCRIPTION, REVOCATION, PROTOCOL, METADATA = "subscription", "revocation", "protocol", "metadata"
REJOIN, UNKNOWN = "rejoin", "unknown"

_HANDSHAKE = "MEMBER_ID_REQUIRED"  # KIP-394: a new member is told its id, and asks again with it
_SILENT = 0.9  # of the session timeout: the broker's clock begins earlier than the capture's
_NEAR = 3  # rebalances back that a late answer may belong to


class Cause(NamedTuple):
    """What started a rebalance, as ``CauseRow`` tells it."""

    cause: str
    time_ns: int | None = None
    member_id: str | None = None
    client_id: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class Rebalance:
    """One rebalance, as ``RebalanceRow`` tells it."""

    start_ns: int
    end_ns: int | None
    generation_before: int | None
    generation_after: int
    exchange: str
    causes: list[Cause] = field(default_factory=list)
    members_before: int | None = None
    members_after: int | None = None
    joins: int = 0
    protocol: str | None = None
    leader: str | None = None


class _Round:
    """The JoinGroups that were answered with one generation, and the SyncGroups behind them."""

    __slots__ = ("assigned", "end_ns", "failed", "generation", "is_told", "joined_ns", "joins", "members")

    def __init__(self, first: GroupEvent) -> None:
        assert first.completed_ns is not None
        assert first.generation is not None
        self.generation = first.generation
        self.joined_ns = first.completed_ns
        self.joins: list[GroupEvent] = []
        self.failed: list[GroupEvent] = []
        self.members: dict[str, str | None] = {}  # member id -> group instance id
        self.is_told = False  # by the leader, so that nobody is missing
        self.assigned: dict[str, Assignment | None] = {}
        self.end_ns: int | None = None

    def add(self, join: GroupEvent) -> None:
        self.joins.append(join)
        if join.members is not None:
            self.members = dict(zip(join.members, join.instances or (), strict=False))
            self.is_told = True
        elif not self.is_told and join.member_id is not None:
            self.members[join.member_id] = join.group_instance_id

    def knows(self, join: GroupEvent) -> bool:
        """Whether it may be a member's already: a new one cannot get a generation that is there."""
        is_static = join.group_instance_id is not None and join.group_instance_id in self.members.values()
        return is_static or not self.is_told or join.member_id in self.members

    @property
    def first(self) -> GroupEvent:
        handshakes = [each for each in self.failed if each.member_id in self.members]
        return min((*self.joins, *handshakes), key=lambda join: join.key)


def rebalances(events: Iterable[GroupEvent], alive_ns: Mapping[str, int]) -> list[Rebalance]:
    """The rebalances in order of time.

    Args:
        events: of one classic group.
        alive_ns: member id -> when the broker last took it for a member.
    """
    ordered = sorted(events, key=lambda event: event.key)
    rounds = _rounds(ordered)
    _sync(ordered, rounds)
    handshakes = {event.member_id: event for event in ordered if event.error == _HANDSHAKE}
    leaves = [event for event in ordered if event.event == LEAVE and not event.error]
    told: list[Rebalance] = []
    for place, each in enumerate(rounds):
        since_ns = rounds[place - 1].joined_ns if place else 0
        left = [event for event in leaves if since_ns < event.time_ns <= each.joined_ns]
        fresh = [
            handshakes.get(join.member_id, join)
            for join in each.joins
            if join.is_new or join.member_id in handshakes
        ]
        rebalance = _outset(each)
        if place:
            _go_on(rebalance, each, rounds[:place], fresh, left, alive_ns)
        else:
            rebalance.generation_before = _generation_before(each.first, ordered)
            there: set[str | None] = {
                member for member, last_ns in alive_ns.items() if last_ns < rebalance.start_ns
            }
            _begin(rebalance, each, fresh, left, there - {event.member_id for event in left})
        told.append(rebalance)
    return told


def _rounds(events: Sequence[GroupEvent]) -> list[_Round]:
    joins = [event for event in events if event.event == JOIN]
    rounds: list[_Round] = []
    for join in sorted(filter(_is_accepted, joins), key=lambda join: (join.completed_ns or 0, join.key)):
        same = next((each for each in reversed(rounds[-_NEAR:]) if each.generation == join.generation), None)
        if same is not None and join.time_ns <= same.joined_ns:
            same.add(join)
        elif same is None or same is not rounds[-1] or not same.knows(join):
            rounds.append(_Round(join))
            rounds[-1].add(join)
        # Else it asked when the generation was there already, and got it, which disturbs nobody: a static
        # member that is back (KIP-345), or one that asks again for what it has.
    ends_ns = [each.joined_ns for each in rounds]
    for join in joins:
        place = bisect_left(ends_ns, join.time_ns)
        if place < len(rounds) and not _is_accepted(join):
            rounds[place].failed.append(join)
    return rounds


def _is_accepted(join: GroupEvent) -> bool:
    return join.error is None and join.generation is not None and join.completed_ns is not None


def _sync(events: Sequence[GroupEvent], rounds: Sequence[_Round]) -> None:
    """Find the first assignment of each member in each round."""
    by_generation: dict[int | None, list[_Round]] = {}
    for each in rounds:
        by_generation.setdefault(each.generation, []).append(each)
    for event in events:
        if event.event != SYNC or event.error or event.completed_ns is None or event.member_id is None:
            continue
        same = by_generation.get(event.generation, [])
        of = next((each for each in reversed(same) if each.joined_ns <= event.completed_ns), None)
        if of is None or event.member_id not in of.members or event.member_id in of.assigned:
            continue
        of.assigned[event.member_id] = event.assignment
        of.end_ns = max(of.end_ns or 0, event.completed_ns)


def _outset(each: _Round) -> Rebalance:
    first = each.first
    return Rebalance(
        start_ns=first.time_ns,
        end_ns=each.end_ns,
        generation_before=None,
        generation_after=each.generation,
        exchange=f"{first.connection}/{first.number}",
        members_after=len(each.members),
        joins=len(each.joins) + len(each.failed),
        protocol=next((join.protocol for join in each.joins if join.protocol), None),
        leader=next((join.member_id for join in each.joins if join.leads), None),
    )


def _begin(
    told: Rebalance,
    each: _Round,
    fresh: Sequence[GroupEvent],
    left: Sequence[GroupEvent],
    there: set[str | None],
) -> None:
    """The first rebalance in a capture: of who was there before, only those are known that were heard."""
    new = {join.member_id for join in fresh}
    if told.generation_before is None and new >= each.members.keys() and not there:
        told.members_before = 0
        told.causes = [_cause(FIRST, each.first)]
        return
    told.causes = [*(_cause(JOINED, join) for join in fresh), *(_cause(LEFT, event) for event in left)]
    told.causes.sort(key=lambda cause: cause.time_ns or 0)
    if not told.causes:
        reason = next((join for join in each.joins if join.reason), None)
        told.causes = [_cause(UNKNOWN, reason) if reason else Cause(UNKNOWN)]


def _go_on(
    told: Rebalance,
    each: _Round,
    earlier: Sequence[_Round],
    fresh: Sequence[GroupEvent],
    left: Sequence[GroupEvent],
    alive_ns: Mapping[str, int],
) -> None:
    """Any other rebalance: its members are compared with those before."""
    before = earlier[-1]
    told.generation_before = before.generation
    gone = {event.member_id for event in left}
    if before.is_told and before.members.keys() <= gone:
        told.members_before = 0
        told.causes = [_cause(FIRST, each.first)]
        return
    told.members_before = len(before.members)
    named = {join.member_id for join in fresh}
    others = [join for join in each.joins if before.is_told and join.member_id not in named]
    new = [join for join in (*fresh, *others) if join.member_id not in before.members]
    static = {instance for instance in before.members.values() if instance}
    back = [join for join in new if join.group_instance_id in static]
    instances = {join.group_instance_id for join in back}
    gone |= {member for member, instance in before.members.items() if instance in instances and instance}
    told.causes = [
        *(_cause(RETURN if join in back else JOINED, join) for join in new),
        *(_cause(LEFT, event) for event in left if event.member_id in before.members),
        *_timeouts(each, before, gone, alive_ns),
    ]
    if all(cause.time_ns is not None and cause.time_ns > told.start_ns for cause in told.causes):
        told.causes += _again(told, each, earlier)
    told.causes.sort(key=lambda cause: (cause.time_ns or told.start_ns, cause.member_id or ""))


def _again(told: Rebalance, each: _Round, earlier: Sequence[_Round]) -> list[Cause]:
    """Why members that stay the same join again: told by the one that asked first."""
    before = earlier[-1]
    asked = each.first
    previous = next((join for join in reversed(before.joins) if join.member_id == asked.member_id), None)
    wanted = None if previous is None else previous.subscribed
    if None not in (wanted, asked.subscribed) and wanted != asked.subscribed:
        return [_cause(SUBSCRIPTION, asked)]
    if _is_cooperative(told.protocol) and _gave_up(asked.member_id, earlier):
        return [_cause(REVOCATION, asked)]
    chosen = next((join.protocol for join in before.joins if join.protocol), None)
    if chosen is not None and told.protocol is not None and chosen != told.protocol:
        return [_cause(PROTOCOL, asked)]
    if any(join.leads and join.member_id == asked.member_id for join in before.joins):
        return [_cause(METADATA, asked)]
    if "metadata" in (asked.reason or ""):
        return [_cause(METADATA, asked)]
    return [_cause(REJOIN if asked.member_id in before.members else UNKNOWN, asked)]


def _timeouts(
    each: _Round, before: _Round, accounted: set[str | None], alive_ns: Mapping[str, int]
) -> list[Cause]:
    """Members that are gone and did not say so.

    Silent for a whole session timeout before anybody joined again, one may be what started the rebalance;
    otherwise the broker waited for its JoinGroup in vain, until the others were answered.
    """
    found: list[Cause] = []
    for member in sorted(before.members.keys() - each.members.keys() if each.is_told else ()):
        if member in accounted:
            continue
        joined = next((join for join in before.joins if join.member_id == member), None)
        last_ns = alive_ns.get(member)
        time_ns = None
        if joined is not None and joined.session_timeout_ms and last_ns is not None:
            timeout_ns = joined.session_timeout_ms * 1_000_000
            is_over = last_ns + _SILENT * timeout_ns <= each.first.time_ns
            time_ns = min(last_ns + timeout_ns, each.first.time_ns) if is_over else each.joined_ns
        found.append(Cause(TIMEOUT, time_ns, member, None if joined is None else joined.client_id))
    return found


def _generation_before(first: GroupEvent, events: Sequence[GroupEvent]) -> int | None:
    seen = [event.generation for event in events if event.time_ns < first.time_ns and event.event != JOIN]
    return max((generation for generation in seen if generation is not None), default=None)


def _gave_up(member: str | None, earlier: Sequence[_Round]) -> bool:
    """Whether its last assignment lacks something that the one before had."""
    given = [each.assigned[member] for each in earlier if member in each.assigned] if member else []
    if len(given) < 2 or given[-1] is None or given[-2] is None:
        return False
    return not _pairs(given[-2]) <= _pairs(given[-1])


def _pairs(assignment: Assignment) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, partitions in assignment for partition in partitions}


def _is_cooperative(protocol: str | None) -> bool:
    """Kafka Streams' own assignor is one too (KIP-429)."""
    return protocol is not None and ("cooperative" in protocol or protocol == "stream")


def _cause(cause: str, event: GroupEvent) -> Cause:
    return Cause(cause, event.time_ns, event.member_id, event.client_id, event.reason)
