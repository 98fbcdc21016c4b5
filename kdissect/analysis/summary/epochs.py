"""Events of a group that only knows heartbeats (KIP-848, share, streams) -> its rebalances. Holds nothing.

There is no barrier here: the coordinator raises the group's epoch when members or their topics change, and
hands it out with each member's next heartbeat. A rebalance is such an epoch: from the event that called for
it to the last member that was told the epoch, or given other partitions in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.groupevents import COMMIT, JOIN, LEAVE
from kdissect.analysis.summary.rebalances import (
    FIRST,
    JOINED,
    LEFT,
    SUBSCRIPTION,
    TIMEOUT,
    UNKNOWN,
    Cause,
    Rebalance,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.analysis.groupevents import GroupEvent

_AWAY = -2  # the member epoch of a static member that leaves for a while
_FENCED = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"})


class _Epochs:
    """What is known of the group at a moment."""

    __slots__ = (
        "away",
        "causes",
        "epoch",
        "first",
        "is_whole",
        "joins",
        "members",
        "rebalances",
        "subscribed",
    )

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.members: set[str] = set()
        self.away: set[str | None] = set()  # static members that will be back, by instance
        self.is_whole = True  # everybody in it was seen to join
        self.subscribed: dict[str, tuple[str, ...]] = {}
        self.causes: list[Cause] = []
        self.first: GroupEvent | None = None  # of the events that call for a rebalance
        self.joins = 0
        self.rebalances: list[Rebalance] = []

    def take(self, event: GroupEvent) -> None:
        member = event.member_id or ""
        if event.event == LEAVE:
            self._leave(event, member)
            return
        if event.error is not None:
            if event.error in _FENCED:
                self.members.discard(member)
                self._call(TIMEOUT, event)
            return
        if event.event == JOIN:
            self.joins += 1
            if event.group_instance_id in self.away:  # it gets back what it had: the group stays as it is
                self.away.discard(event.group_instance_id)
            elif member not in self.members:
                self._call(JOINED if self.members or not self.is_whole else FIRST, event)
        elif member not in self.members:
            self.is_whole = False
        if event.subscribed is not None:
            if self.subscribed.get(member, event.subscribed) != event.subscribed:
                self._call(SUBSCRIPTION, event)
            self.subscribed[member] = event.subscribed
        self.members.add(member)
        if event.completed_ns is not None and event.generation:
            self._told(event, event.generation)

    def _leave(self, event: GroupEvent, member: str) -> None:
        if event.error is None and member in self.members:
            self.members.discard(member)
            self.subscribed.pop(member, None)
            if event.generation == _AWAY:
                self.away.add(event.group_instance_id)
                return
            self._call(LEFT, event)
            if not self.members and self.is_whole:  # nobody is left to rebalance
                self.causes, self.first, self.joins = [], None, 0

    def _call(self, cause: str, event: GroupEvent) -> None:
        self.first = self.first or event
        self.causes.append(Cause(cause, event.time_ns, event.member_id, event.client_id))

    def _told(self, event: GroupEvent, epoch: int) -> None:
        if self.epoch is not None and epoch <= self.epoch:
            if epoch == self.epoch and self.rebalances and not self.causes:
                latest = self.rebalances[-1]
                latest.end_ns = max(latest.end_ns or 0, event.completed_ns or 0)
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
                    end_ns=event.completed_ns,
                    generation_before=self.epoch,
                    generation_after=epoch,
                    exchange=f"{start.connection}/{start.number}",
                    causes=self.causes or [Cause(UNKNOWN, event.time_ns)],
                    members_before=before if self.is_whole else None,
                    members_after=len(self.members),
                    joins=self.joins,
                    protocol=event.protocol,
                )
            )
        self.epoch = epoch
        self.causes, self.first, self.joins = [], None, 0


def rebalances(events: Iterable[GroupEvent]) -> list[Rebalance]:
    """The rebalances in order of time.

    Args:
        events: of one group.
    """
    epochs = _Epochs()
    for event in sorted(events, key=lambda event: (event.completed_ns or event.time_ns, event.key)):
        if event.event != COMMIT:
            epochs.take(event)
    return epochs.rebalances
