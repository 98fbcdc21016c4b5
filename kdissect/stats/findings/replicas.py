"""AlterPartition and Metadata exchanges -> followers that leaders remove from the in-sync replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kdissect.anomalies import WARNING
from kdissect.net.duplex import NEVER_NS
from kdissect.phrases import duration, times
from kdissect.stats.findings.rule import Evidence, Rule
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import Summed, earliest, joined, largest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope

_CHANGES = 64  # kept per partition: the first


class Change(NamedTuple):
    """In-sync replicas as the leader set them."""

    time_ns: int
    exchange: str
    leader: int
    replicas: tuple[int, ...]


def _first(one: list[Change], other: list[Change]) -> list[Change]:
    return sorted({*one, *other})[:_CHANGES]


@summed
class InSync(Summed):
    """In-sync replicas of a partition: the first that Metadata reports, with its time; the changes."""

    reported: tuple[int, tuple[int, ...]] = earliest((NEVER_NS, ()))
    changes: list[Change] = joined(_first, list)


@summed
class Removals(Evidence):
    """Changes after which a replica was not in sync.

    Attributes:
        leader: that removed it.
        longest_ns: until it was back; ``missing``: how often it was not, in the capture.
    """

    leader: int = largest(-1)
    longest_ns: int = largest(0)
    missing: int = total()


@summed
class ReplicaOutOfSync(Rule):
    """Until the leader removes a slow or stopped follower, producers with acks=all wait for it, up to
    replica.lag.time.max.ms. Afterward there is one copy less.
    """

    name = "replica-out-of-sync"
    severity = WARNING
    of = ("replica", "topic", "partition")
    apart = "replica"
    lost = "longest_ns"
    title = "A leader removes a follower that no longer keeps up from the in-sync replicas."
    when = (
        "Any AlterPartition without a replica that was in sync, according to the AlterPartition or the first "
        "Metadata before it. Brokers send it to the controller, so its port must be captured. A broker that "
        "is shut down is removed by the controller, without one."
    )
    advice = (
        "See what stops the follower: its log at that time, garbage collection, its disk, and the path to "
        "the leader (--connections). acks=all waits for it."
    )
    apis = frozenset({"AlterPartition", "Metadata"})

    partitions: Bounded[tuple[str, int], InSync] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.partitions = Bounded(limits.summary_rows, InSync)

    def feed(self, facts: Facts) -> None:
        """Add in-sync replicas."""
        names, request = facts.exchange.topic_ids, facts.exchange.request or {}
        if facts.api == "Metadata":
            for topic in (facts.exchange.response or {}).get("topics") or ():
                name = topic.get("name") or names.get(topic.get("topic_id", ""), "")
                for each in (topic.get("partitions") or ()) if name else ():
                    if len(in_sync := each.get("isr_nodes") or ()) > 1:
                        kept = self.partitions[facts.kept(name), each["partition_index"]]
                        kept.reported = min(kept.reported, (facts.time_ns, tuple(in_sync)))
            return
        if facts.errors:
            return
        for topic in request.get("topics") or ():
            topic_id = topic.get("topic_id", "")
            name = str(topic.get("topic_name") or names.get(topic_id, topic_id))
            for each in topic.get("partitions") or ():
                in_sync = [one.get("broker_id", -1) for one in each.get("new_isr_with_epochs") or ()]
                in_sync = sorted(each.get("new_isr") or in_sync)
                if in_sync and "partition_index" in each:
                    change = Change(facts.time_ns, facts.id, request.get("broker_id", -1), tuple(in_sync))
                    kept = self.partitions[facts.kept(name), each["partition_index"]]
                    kept.changes = _first(kept.changes, [change])

    def findings(self) -> Iterator[RulePart]:
        """Replicas that were removed."""
        for (topic, partition), each in self.partitions.items():
            for replica, removals in _removals(each).items():
                yield self.part((str(replica), topic, partition), removals)

    def _message(self, _: Scope, each: Removals) -> str:
        back = f"back after {duration(each.longest_ns)}" if each.longest_ns else ""
        if each.missing:
            back = "not back in the capture"
        return (
            f"removed from the in-sync replicas {times(each.count)} by its leader, node {each.leader}; {back}"
        )


def _removals(each: InSync) -> dict[int, Removals]:
    """By replica."""
    removals: dict[int, Removals] = {}
    gone: dict[int, int] = {}  # since when
    reported_ns, before = each.reported
    for number, change in enumerate(each.changes):
        if not number and reported_ns > change.time_ns:
            before = ()
        for replica in sorted({*before} - {*change.replicas}):
            kept = removals.setdefault(replica, Removals())
            kept.take(change.time_ns, change.exchange)
            kept.leader = change.leader
            kept.missing += 1
            gone[replica] = change.time_ns
        for replica in gone.keys() & {*change.replicas}:
            kept = removals[replica]
            kept.last_ns = change.time_ns
            kept.longest_ns = max(kept.longest_ns, change.time_ns - gone.pop(replica))
            kept.missing -= 1
        before = change.replicas
    return removals
