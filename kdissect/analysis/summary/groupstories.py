"""Groups -> ``GroupStory`` rows: members, rebalances and their causes, storms, commits. Holds nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.analysis.groupevents import CLASSIC, CONSUMER, SHARE, STREAMS
from kdissect.analysis.summary import epochs, rebalances
from kdissect.analysis.summary.groupsdocument import (
    CauseRow,
    CommittedRow,
    GroupStory,
    MemberRow,
    RebalanceRow,
    StormRow,
)
from kdissect.analysis.summary.rows import moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kdissect.analysis.groupevents import GroupEvent
    from kdissect.analysis.summary.groups import Committed, Group, Groups, Member
    from kdissect.analysis.summary.rebalances import Cause, Rebalance

SECOND_NS = 1_000_000_000
STORM = 4
"""Rebalances within ``STORM_NS`` that are a storm."""
STORM_NS = 60 * SECOND_NS
_EXPECTED = frozenset({rebalances.FIRST, rebalances.REVOCATION})
"""Causes that do not count in a storm: a group has to begin, and a cooperative rebalance has two halves."""


def stories(groups: Groups) -> list[GroupStory]:
    """Every group, by name."""
    members = _members_by_group(groups)
    committed: dict[str, dict[tuple[str, int], Committed]] = {}
    for (name, topic, partition), each in groups.committed.items():
        committed.setdefault(name, {})[topic, partition] = each
    return [
        _story(name, group, members.get(name, {}), committed.get(name, {}))
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
    # A group may change from one protocol to the other (KIP-848), and back.
    told = rebalances.rebalances((event for event in events if event.kind == CLASSIC), alive_ns)
    for kind in (CONSUMER, SHARE, STREAMS):
        told += epochs.rebalances(event for event in events if event.kind == kind)
    return sorted(told, key=lambda each: each.start_ns)


def _timeline(group: Group, members: dict[str, Member]) -> list[Rebalance]:
    alive_ns = {
        member_id: member.alive_ns for member_id, member in members.items() if member.alive_ns is not None
    }
    return timeline(group.events, alive_ns)


def _story(
    name: str, group: Group, members: dict[str, Member], committed: dict[tuple[str, int], Committed]
) -> GroupStory:
    told = _timeline(group, members)
    assert group.first_ns is not None
    assert group.last_ns is not None
    return GroupStory(
        group=name,
        kind=group.told("kind"),
        protocol_type=group.told("protocol_type"),
        protocols=sorted({each.protocol for each in told if each.protocol}),
        members=_members(members),
        rebalances=[_rebalance(each) for each in told],
        storms=[_storm(storm) for storm in storms(told)],
        committed=[
            _committed(topic, partition, each) for (topic, partition), each in sorted(committed.items())
        ],
        errors=dict(sorted(group.errors.items(), key=lambda item: (-item[1], item[0]))),
        first=moment(group.first_ns),
        last=moment(group.last_ns),
        events_left_out=group.left_out,
    )


def storms(timeline: Sequence[Rebalance]) -> list[list[Rebalance]]:
    """Where ``STORM`` or more rebalances start within ``STORM_NS``; storms that overlap are one."""
    told = [each for each in timeline if not each.causes or each.causes[0].cause not in _EXPECTED]
    found: list[tuple[int, int]] = []  # places of the first and the last of each
    for last in range(STORM - 1, len(told)):
        first = last - STORM + 1
        if told[last].start_ns - told[first].start_ns > STORM_NS:
            continue
        if found and found[-1][1] >= first:
            first = found.pop()[0]
        found.append((first, last))
    return [told[first : last + 1] for first, last in found]


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
    assignment, subscribed = member.told("assignment"), member.told("subscribed")
    has_left = member.left_ns is not None and member.left_ns >= (member.rejoined_ns or 0)
    return MemberRow(
        member_id=member_id,
        group_instance_id=member.told("instance"),
        client=member.told("client"),
        address=member.told("address"),
        joined=None if member.joined_ns is None else moment(member.joined_ns),
        left=moment(member.left_ns) if has_left and member.left_ns is not None else None,
        last=moment(member.alive_ns),
        heartbeats=member.heartbeats,
        generation=member.told("generation"),
        assignment=None
        if assignment is None
        else {topic: list(partitions) for topic, partitions in assignment},
        subscribed=None if subscribed is None else list(subscribed),
    )


def _rebalance(each: Rebalance) -> RebalanceRow:
    return RebalanceRow(
        start=moment(each.start_ns),
        end=None if each.end_ns is None else moment(each.end_ns),
        seconds=None if each.end_ns is None else (each.end_ns - each.start_ns) / SECOND_NS,
        causes=[cause_row(cause) for cause in each.causes],
        generation_before=each.generation_before,
        generation_after=each.generation_after,
        members_before=each.members_before,
        members_after=each.members_after,
        joins=each.joins,
        protocol=each.protocol,
        leader=each.leader,
        exchange=each.exchange,
    )


def cause_row(cause: Cause) -> CauseRow:
    """What started a rebalance, as the document tells it."""
    return CauseRow(
        cause=cause.cause,
        time=None if cause.time_ns is None else moment(cause.time_ns),
        member_id=cause.member_id,
        client=cause.client_id,
        reason=cause.reason,
    )


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
