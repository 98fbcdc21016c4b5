"""Rebalances of groups -> groups that have too many. Holds what ``--groups`` holds, but for commits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kdissect.analysis.summary.findings.evidence import SECOND_NS, Evidence
from kdissect.analysis.summary.findings.rule import Rule
from kdissect.analysis.summary.groups import Groups
from kdissect.analysis.summary.groupstories import STORM, STORM_NS, causes, storms, timelines
from kdissect.anomalies import WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.analysis.summary.facts import Facts
    from kdissect.analysis.summary.findingsdocument import FindingRow
    from kdissect.analysis.summary.rebalances import Rebalance
    from kdissect.limits import Limits

_CLIENTS = 3  # named in a sentence


class RebalanceStorm(Rule):
    """While a group rebalances its members read nothing, or less; and what was read and not committed is
    read again.
    """

    name = "rebalance-storm"
    severity = WARNING
    title = "A group rebalances again and again."
    when = (
        f"{STORM} rebalances that start within {STORM_NS // SECOND_NS} seconds; first members and the second "
        "halves of cooperative rebalances do not count."
    )
    advice = (
        "See whether members are restarted, or take longer than max.poll.interval.ms for what they read; a "
        "group.instance.id lets one return without a rebalance. --groups tells what started each."
    )
    apis = frozenset(
        {
            *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
            *("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"),
        }
    )

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.groups = Groups(limits)

    def feed(self, facts: Facts) -> None:
        """Take what it says of a group."""
        self.groups.feed(facts)

    def merge(self, other: Any) -> None:
        """Take in what the same rule saw on other connections."""
        self.groups.merge(other.groups)

    def findings(self) -> Iterator[FindingRow]:
        """Tell of each storm."""
        for group, timeline in timelines(self.groups):
            for storm in storms(timeline):
                evidence = Evidence()
                for each in storm:
                    evidence.take(each.start_ns, each.exchange)
                seconds = (storm[-1].start_ns - storm[0].start_ns) / SECOND_NS
                started = ", ".join(f"{count:,} {cause}" for cause, count in causes(storm).items())
                yield self.found(
                    f"group {group}",
                    f"{len(storm):,} rebalances within {seconds:.0f} s, started by {started}{_by(storm)}",
                    evidence,
                )


def _by(storm: Sequence[Rebalance]) -> str:
    """Who started most of them."""
    clients = Counter(each.causes[0].client_id for each in storm if each.causes)
    named = [f"{client} ({count:,})" for client, count in clients.most_common() if client]
    more = f" and {len(named) - _CLIENTS:,} more" if len(named) > _CLIENTS else ""
    return f"; by {', '.join(named[:_CLIENTS])}{more}" if named else ""
