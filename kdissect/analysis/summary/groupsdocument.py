"""What ``summary --groups`` says, as typed values: one ``GroupStory`` for each group.

Times are UTC. In a classic group a generation is what JoinGroup hands out; in the others (KIP-848, share,
streams) the member epoch stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  (the JSON Schema is made from the annotations)

from kdissect.analysis.summary.fields import told


@dataclass(slots=True, kw_only=True)
class MemberRow:
    """A member of a group, under one member id."""

    member_id: str = told("As the broker or the member itself made it.")
    group_instance_id: str | None = told("Of a static member.")
    client: str = told("Its client id, or its address where it told none.")
    address: str = told("Where it was last seen from.")
    joined: datetime | None = told("When it first asked to join; null where that was not captured.")
    left: datetime | None = told("When it left of its own; null where it did not.")
    last: datetime = told("When it was last seen, and accepted.")
    heartbeats: int = told("Heartbeats that brought nothing new.")
    generation: int | None = told("The last one that it was seen in.")
    assignment: dict[str, list[int]] | None = told(
        "Topic to partitions, the last that it was given; subtopology to tasks in streams groups; null where "
        "none was captured or readable."
    )
    subscribed: list[str] | None = told("Topics that it wants.")


@dataclass(slots=True, kw_only=True)
class CauseRow:
    """What started a rebalance, or happened while it went on."""

    cause: str = told(
        "first (the group had no member), join, return (a static member under a new member id), leave, "
        "timeout (gone without leaving, or refused as unknown), subscription (a member wants other topics), "
        "revocation (second half of a cooperative rebalance), protocol (another assignor), metadata (the "
        "leader joins again: topics changed), rejoin (another member does, for no such cause), unknown."
    )
    time: datetime | None = told("When; null where it cannot be told.")
    member_id: str | None = told("Whose doing.")
    client: str | None = told("Its client id.")
    reason: str | None = told("What the client gave as the reason (KIP-800).")


@dataclass(slots=True, kw_only=True)
class RebalanceRow:
    """A rebalance: from the first JoinGroup to the last SyncGroup of one generation.

    In groups without these: from what started it to the last member that was told its new epoch.
    """

    start: datetime = told("When the first member asked to join.")
    end: datetime | None = told("When the last one had its assignment; null where none was seen to get one.")
    seconds: float | None = told("How long that took.")
    causes: list[CauseRow] = told("What started it, then what happened meanwhile.")
    generation_before: int | None = told("Null where it was not captured.")
    generation_after: int = told("The one that it led to.")
    members_before: int | None = told("Null where it was not captured.")
    members_after: int | None = told("As the leader was told; where that was not captured, who was seen.")
    joins: int = told("JoinGroup requests that it took, failed ones included.")
    protocol: str | None = told("The assignor that was chosen.")
    leader: str | None = told("Member id of the leader.")
    exchange: str = told("The first of these: `read --exchange` shows it.")


@dataclass(slots=True, kw_only=True)
class StormRow:
    """Rebalances that follow each other closely, again and again."""

    start: datetime = told("When the first of them started.")
    end: datetime = told("When the last one started.")
    rebalances: int = told("How many.")
    causes: dict[str, int] = told("What started them.")


@dataclass(slots=True, kw_only=True)
class CommittedRow:
    """Offsets that a group committed for a partition."""

    topic: str = told("Its name, or its id where no name was seen.")
    partition: int = told("Its number.")
    commits: int = told("How many were accepted.")
    failed: int = told("How many were refused, or never answered.")
    first_offset: int | None = told("The first that was accepted; null where none was, here and below.")
    first: datetime | None = told("When.")
    last_offset: int | None = told("The last.")
    last: datetime | None = told("When.")
    per_second: float | None = told("How fast the committed offset moved between these two.")


@dataclass(slots=True, kw_only=True)
class GroupStory:
    """A group, and what happened to it."""

    group: str = told("Its group id.")
    kind: str | None = told("classic, consumer (KIP-848), share or streams; null where only commits show it.")
    protocol_type: str | None = told("Of a classic group: consumer, connect.")
    protocols: list[str] = told("Assignors that were chosen.")
    members: list[MemberRow] = told("Everybody who was a member, in order of appearance.")
    rebalances: list[RebalanceRow] = told("In order of time.")
    storms: list[StormRow] = told(
        "Where 4 or more rebalances start within a minute, first members and the second halves of "
        "cooperative ones not counted."
    )
    committed: list[CommittedRow] = told("By topic and partition.")
    errors: dict[str, int] = told("Error codes in answers to its members, by name.")
    first: datetime = told("When it was first seen.")
    last: datetime = told("When it was last seen.")
    events_left_out: int = told("Events that no room was left for: the timeline ends before them.")
