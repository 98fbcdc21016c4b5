"""Events of a classic group -> its rebalances: duration and causes. Holds no state.

A rebalance is identified by its generation: the JoinGroup responses to all members carry the same new one,
sent when the last member has joined; then SyncGroup gives each its assignment. New, departed and returned
members are determined by comparing the JoinGroup responses to the leaders of consecutive rebalances.

It starts at its first sign: the JoinGroup of a member, the LeaveGroup of one, or, after a session timeout,
the first Heartbeat of the previous generation that is answered with REBALANCE_IN_PROGRESS.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kdissect.exchanges.group_events import HANDSHAKE, HEARTBEAT, JOIN, LEAVE, SYNC
from kdissect.phrases import many

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kdissect.exchanges.group_events import Assignment, GroupEvent

FIRST, JOINED, RETURN, LEFT, TIMEOUT = "first", "join", "return", "leave", "timeout"
SUBSCRIPTION, REVOCATION, PROTOCOL, METADATA = "subscription", "revocation", "protocol", "metadata"
REJOIN, UNKNOWN = "rejoin", "unknown"
_COUNTED = {
    FIRST: "first join",
    SUBSCRIPTION: "changed subscription",
    PROTOCOL: "changed assignor",
    METADATA: "topic change",
    UNKNOWN: "unknown cause",
}
"""What to call several rebalances of a cause, unless its name is a noun."""

_REJECTED = "REBALANCE_IN_PROGRESS"
_SILENT = 0.9  # of the session timeout: the broker starts its timer before the response is captured
_LATEST_ROUNDS = 3  # a late response may belong to one of this many latest rebalances


class Cause(NamedTuple):
    """What started a rebalance, see ``CauseRow``."""

    cause: str
    time_ns: int | None = None
    member_id: str | None = None
    client_id: str | None = None
    reason: str | None = None


def counted(causes: Mapping[str, int]) -> str:
    """``5 joins, 4 leaves, 1 timeout``: the most frequent first."""
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    return ", ".join(many(count, _COUNTED.get(cause, cause)) for cause, count in ordered)


@dataclass(slots=True)
class Rebalance:
    """One rebalance, see ``RebalanceRow``; ``joined_ns``: since when its members are known."""

    start_ns: int
    joined_ns: int
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


class _Sign(NamedTuple):
    """An event that may be the first trace of a rebalance: when it was on the wire, and when the rebalance
    starts if it is the first.
    """

    seen_ns: int
    start_ns: int
    event: GroupEvent


class _Round:
    """JoinGroups answered with one generation, and the SyncGroups after them."""

    __slots__ = (
        "assigned",
        "end_ns",
        "failed",
        "generation",
        "joined_ns",
        "joins",
        "members",
        "members_known",
        "stable_ns",
    )

    def __init__(self, first: GroupEvent) -> None:
        assert first.completed_ns is not None
        assert first.generation is not None
        self.generation = first.generation
        self.joined_ns = first.completed_ns
        self.joins: list[GroupEvent] = []
        self.failed: list[GroupEvent] = []
        self.members: dict[str, str | None] = {}  # member ID -> group instance ID
        self.members_known = False  # from the response to the leader, and so complete
        self.assigned: dict[str, Assignment | None] = {}
        self.stable_ns: int | None = None  # first assignment
        self.end_ns: int | None = None  # last assignment

    def add(self, join: GroupEvent) -> None:
        self.joins.append(join)
        if join.members is not None:
            self.members = dict(zip(join.members, join.instances or (), strict=False))
            self.members_known = True
        elif not self.members_known and join.member_id is not None:
            self.members[join.member_id] = join.group_instance_id

    def knows(self, join: GroupEvent) -> bool:
        """Whether the sender may already be a member: a new member cannot join an existing generation."""
        is_static = join.group_instance_id is not None and join.group_instance_id in self.members.values()
        return is_static or not self.members_known or join.member_id in self.members

    @property
    def is_complete(self) -> bool:
        """Whether all members whose JoinGroup was captured got their assignment."""
        return all(join.member_id in self.assigned for join in self.joins)

    @property
    def first(self) -> GroupEvent:
        handshakes = [each for each in self.failed if each.member_id in self.members]
        return min((*self.joins, *handshakes), key=lambda join: join.key)


def rebalances(events: Iterable[GroupEvent], alive_ns: Mapping[str, int]) -> list[Rebalance]:
    """The rebalances in order of time.

    Args:
        events: of one classic group.
        alive_ns: member ID -> when the broker last accepted it as a member.
    """
    ordered = sorted(events, key=lambda event: event.key)
    rounds = _rounds(ordered)
    _sync(ordered, rounds)
    handshakes = {event.member_id: event for event in ordered if event.error == HANDSHAKE}
    leaves = [event for event in ordered if event.event == LEAVE and not event.error]
    left_ns = [event.time_ns for event in leaves]
    rejected: dict[int | None, list[GroupEvent]] = {}
    for event in ordered:
        if event.event == HEARTBEAT and event.error == _REJECTED:
            rejected.setdefault(event.generation, []).append(event)
    results: list[Rebalance] = []
    for index, each in enumerate(rounds):
        before = rounds[index - 1] if index else None
        since = 0 if before is None else bisect_right(left_ns, before.joined_ns)
        left = leaves[since : bisect_right(left_ns, each.joined_ns)]
        fresh = [
            handshakes.get(join.member_id, join)
            for join in each.joins
            if join.is_new or join.member_id in handshakes
        ]
        rebalance = _new_rebalance(each)
        signs = _signs(each, before, left, rejected.get(each.generation - 1, ()))
        if index:
            _compare(rebalance, each, rounds[:index], fresh, left, signs, alive_ns)
        else:
            rebalance.generation_before = _generation_before(each.first, ordered)
            present: set[str | None] = {
                member for member, last_ns in alive_ns.items() if last_ns < rebalance.start_ns
            }
            present -= {event.member_id for event in left}
            _first_in_capture(rebalance, each, fresh, left, signs, present)
        results.append(rebalance)
    return results


def _rounds(events: Sequence[GroupEvent]) -> list[_Round]:
    joins = [event for event in events if event.event == JOIN]
    rounds: list[_Round] = []
    for join in sorted(filter(_is_accepted, joins), key=lambda join: (join.completed_ns or 0, join.key)):
        same = next(
            (each for each in reversed(rounds[-_LATEST_ROUNDS:]) if each.generation == join.generation), None
        )
        if same is not None and join.time_ns <= same.joined_ns:
            same.add(join)
        elif same is None or same is not rounds[-1] or not same.knows(join):
            rounds.append(_Round(join))
            rounds[-1].add(join)
        # Otherwise it joined an existing generation, without a rebalance: a static member that is back
        # (KIP-345), or a repeated request.
    ends_ns = [each.joined_ns for each in rounds]
    for join in joins:
        index = bisect_left(ends_ns, join.time_ns)
        if index < len(rounds) and not _is_accepted(join):
            rounds[index].failed.append(join)
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
        target = next((each for each in reversed(same) if each.joined_ns <= event.completed_ns), None)
        if target is None or event.member_id not in target.members or event.member_id in target.assigned:
            continue
        target.assigned[event.member_id] = event.assignment
        target.stable_ns = min(target.stable_ns or event.completed_ns, event.completed_ns)
        target.end_ns = max(target.end_ns or 0, event.completed_ns)


def _new_rebalance(each: _Round) -> Rebalance:
    first = each.first
    return Rebalance(
        start_ns=first.time_ns,
        joined_ns=each.joined_ns,
        end_ns=each.end_ns if each.is_complete else None,
        generation_before=None,
        generation_after=each.generation,
        exchange=f"{first.connection}/{first.number}",
        members_after=len(each.members),
        joins=len(each.joins) + len(each.failed),
        protocol=next((join.protocol for join in each.joins if join.protocol), None),
        leader=next((join.member_id for join in each.joins if join.leads), None),
    )


def _signs(
    each: _Round, before: _Round | None, left: Sequence[GroupEvent], rejected: Sequence[GroupEvent]
) -> list[_Sign]:
    """What was captured of a rebalance before its first JoinGroup.

    A Heartbeat can wait behind a SyncGroup on its connection, so its response decides whether it is a sign.
    Older brokers also reject heartbeats of a generation whose members still wait for their assignments.
    """
    first = each.first
    since_ns = 0 if before is None else before.stable_ns or before.joined_ns
    return [
        *(
            _Sign(event.time_ns, event.time_ns, event)
            for event in left
            if event.time_ns <= first.time_ns and (before is None or event.member_id in before.members)
        ),
        *(
            _Sign(seen_ns, event.time_ns if event.time_ns > since_ns else seen_ns, event)
            for event in rejected
            if since_ns < (seen_ns := event.completed_ns or 0) <= first.time_ns
        ),
    ]


def _start(rebalance: Rebalance, signs: Sequence[_Sign]) -> None:
    """Start at the first sign. After a generation that was not captured, it may be a sign of that one."""
    if signs and rebalance.generation_before == rebalance.generation_after - 1:
        _, rebalance.start_ns, first = min(signs, key=lambda sign: (sign.seen_ns, sign.event.key))
        rebalance.exchange = f"{first.connection}/{first.number}"


def _first_in_capture(
    rebalance: Rebalance,
    each: _Round,
    fresh: Sequence[GroupEvent],
    left: Sequence[GroupEvent],
    signs: Sequence[_Sign],
    present: set[str | None],
) -> None:
    """The first rebalance in a capture: earlier members are known only if they sent a request."""
    new = {join.member_id for join in fresh}
    if rebalance.generation_before is None and new >= each.members.keys() and not present:
        rebalance.members_before = 0
        rebalance.causes = [_cause(FIRST, each.first)]
        return
    _start(rebalance, signs)
    rebalance.causes = [*(_cause(JOINED, join) for join in fresh), *(_cause(LEFT, event) for event in left)]
    rebalance.causes.sort(key=lambda cause: cause.time_ns or 0)
    if not rebalance.causes:
        reason = next((join for join in each.joins if join.reason), None)
        rebalance.causes = [_cause(UNKNOWN, reason) if reason else Cause(UNKNOWN)]


def _compare(
    rebalance: Rebalance,
    each: _Round,
    earlier: Sequence[_Round],
    fresh: Sequence[GroupEvent],
    left: Sequence[GroupEvent],
    signs: Sequence[_Sign],
    alive_ns: Mapping[str, int],
) -> None:
    """A later rebalance: its members are compared with those of the one before."""
    before = earlier[-1]
    rebalance.generation_before = before.generation
    gone = {event.member_id for event in left}
    if before.members_known and before.members.keys() <= gone:
        rebalance.members_before = 0
        rebalance.causes = [_cause(FIRST, each.first)]
        return
    _start(rebalance, signs)
    rebalance.members_before = len(before.members)
    named = {join.member_id for join in fresh}
    others = [join for join in each.joins if before.members_known and join.member_id not in named]
    new = [join for join in (*fresh, *others) if join.member_id not in before.members]
    static = {instance for instance in before.members.values() if instance}
    back = [join for join in new if join.group_instance_id in static]
    instances = {join.group_instance_id for join in back}
    gone |= {member for member, instance in before.members.items() if instance in instances and instance}
    rebalance.causes = [
        *(_cause(RETURN if join in back else JOINED, join) for join in new),
        *(_cause(LEFT, event) for event in left if event.member_id in before.members),
        *_timeouts(rebalance, each, before, gone, alive_ns),
    ]
    if all(cause.time_ns is not None and cause.time_ns > rebalance.start_ns for cause in rebalance.causes):
        is_later = rebalance.start_ns < each.first.time_ns  # so the first JoinGroup did not start it
        rebalance.causes += (
            [Cause(UNKNOWN, rebalance.start_ns)] if is_later else _rejoin_causes(rebalance, each, earlier)
        )
    rebalance.causes.sort(key=lambda cause: (cause.time_ns or rebalance.start_ns, cause.member_id or ""))


def _rejoin_causes(rebalance: Rebalance, each: _Round, earlier: Sequence[_Round]) -> list[Cause]:
    """Why the same members join again, judging by the first one."""
    before = earlier[-1]
    first = each.first
    previous = next((join for join in reversed(before.joins) if join.member_id == first.member_id), None)
    subscribed_before = None if previous is None else previous.subscribed
    if None not in (subscribed_before, first.subscribed) and subscribed_before != first.subscribed:
        return [_cause(SUBSCRIPTION, first)]
    if _is_cooperative(rebalance.protocol) and _was_revoked(first.member_id, earlier):
        return [_cause(REVOCATION, first)]
    protocol_before = next((join.protocol for join in before.joins if join.protocol), None)
    if (
        protocol_before is not None
        and rebalance.protocol is not None
        and protocol_before != rebalance.protocol
    ):
        return [_cause(PROTOCOL, first)]
    if any(join.leads and join.member_id == first.member_id for join in before.joins):
        return [_cause(METADATA, first)]
    if "metadata" in (first.reason or ""):
        return [_cause(METADATA, first)]
    return [_cause(REJOIN if first.member_id in before.members else UNKNOWN, first)]


def _timeouts(
    rebalance: Rebalance,
    each: _Round,
    before: _Round,
    explained: set[str | None],
    alive_ns: Mapping[str, int],
) -> list[Cause]:
    """Members that disappeared without a LeaveGroup.

    A member that was idle for a session timeout before the rebalance may have started it; otherwise the
    broker waited for its JoinGroup until it answered the others.
    """
    causes: list[Cause] = []
    for member in sorted(before.members.keys() - each.members.keys() if each.members_known else ()):
        if member in explained:
            continue
        joined = next((join for join in before.joins if join.member_id == member), None)
        last_ns = alive_ns.get(member)
        time_ns = None
        if joined is not None and joined.session_timeout_ms and last_ns is not None:
            timeout_ns = joined.session_timeout_ms * 1_000_000
            has_timed_out = last_ns + _SILENT * timeout_ns <= rebalance.start_ns
            time_ns = min(last_ns + timeout_ns, rebalance.start_ns) if has_timed_out else each.joined_ns
        causes.append(Cause(TIMEOUT, time_ns, member, None if joined is None else joined.client_id))
    return causes


def _generation_before(first: GroupEvent, events: Sequence[GroupEvent]) -> int | None:
    seen = [event.generation for event in events if event.time_ns < first.time_ns and event.event != JOIN]
    return max((generation for generation in seen if generation is not None), default=None)


def _was_revoked(member: str | None, earlier: Sequence[_Round]) -> bool:
    """Whether its last assignment lacks a partition of the one before."""
    assignments = [each.assigned[member] for each in earlier if member in each.assigned] if member else []
    if len(assignments) < 2 or assignments[-1] is None or assignments[-2] is None:
        return False
    return not _pairs(assignments[-2]) <= _pairs(assignments[-1])


def _pairs(assignment: Assignment) -> set[tuple[str, int]]:
    return {(topic, partition) for topic, partitions in assignment for partition in partitions}


def _is_cooperative(protocol: str | None) -> bool:
    """The assignor of Kafka Streams is cooperative too (KIP-429)."""
    return protocol is not None and ("cooperative" in protocol or protocol == "stream")


def _cause(cause: str, event: GroupEvent) -> Cause:
    return Cause(cause, event.time_ns, event.member_id, event.client_id, event.reason)
