"""AlterPartition and Metadata exchanges -> followers that leaders remove from the in-sync replicas.

Produce requests with acks=all wait for such a follower: how long, those say that took seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from kdissect.anomalies import WARNING
from kdissect.phrases import duration, times
from kdissect.stats.contents import EACH, ONE
from kdissect.stats.facts import SLOW_US
from kdissect.stats.findings.rule import Evidence, Rule, partitions_in
from kdissect.stats.quantiles import Bounded
from kdissect.stats.sums import Summed, joined, largest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally

Replicas: TypeAlias = tuple[int, ...]
Span: TypeAlias = tuple[int, int]

_CHANGES, _WAITS = 64, 64  # kept per partition: the first
_SETS = 8  # that Metadata reports, kept per partition
_REPLICAS = 32  # replicas of a partition; those of more are not followed
_UNKNOWN = -1
_REPORTED = 4  # partitions kept of Metadata, for each of which changes are kept


class Change(NamedTuple):
    """In-sync replicas as the leader set them.

    Attributes:
        epochs: partition epochs before and after it; the controller's changes raise them too.
    """

    time_ns: int
    exchange: str
    leader: int
    replicas: Replicas
    epochs: tuple[int, int]

    def follows(self, other: Change) -> bool:
        """Whether nothing changed between the other and this, as far as is known."""
        after, before = other.epochs[1], self.epochs[0]
        return self.leader == other.leader and (after == before or _UNKNOWN in (after, before))


def _first(one: list[Change], other: list[Change]) -> list[Change]:
    return sorted({*one, *other})[:_CHANGES]


@summed
class Changes(Summed):
    """The changes of a partition."""

    first: list[Change] = joined(_first, list)


def _seen(one: dict[Replicas, Span], other: dict[Replicas, Span]) -> dict[Replicas, Span]:
    for replicas, (first_ns, last_ns) in other.items():
        span = one.get(replicas, (first_ns, last_ns))
        one[replicas] = min(first_ns, span[0]), max(last_ns, span[1])
    for replicas in sorted(one)[_SETS:] if len(one) > _SETS else ():  # the same whatever came first
        del one[replicas]
    return one


@summed
class ReportedSets(Summed):
    """In-sync replicas of a partition that Metadata reports, with the first and last time."""

    sets: dict[Replicas, Span] = joined(_seen, dict)

    def before(self, time_ns: int) -> tuple[int, Replicas]:
        """The latest before a time, and when; none if there are too many."""
        times = [
            (each_ns, replicas)
            for replicas, span in self.sets.items()
            for each_ns in span
            if each_ns < time_ns and len(self.sets) < _SETS
        ]
        return max(times, default=(0, ()))


def _earliest(one: list[Span], other: list[Span]) -> list[Span]:
    return sorted({*one, *other})[:_WAITS]


@summed
class WriteWaits(Summed):
    """When requests to a partition were sent, and answered."""

    first: list[Span] = joined(_earliest, list)

    def longest_us(self, time_ns: int) -> int:
        """Of those that waited at a time; 0: none did."""
        return max((end - begin for begin, end in self.first if begin <= time_ns <= end), default=0) // 1000


@summed
class SlowWrites(Summed):
    """Produce requests with acks=all that took long, by topic and partition."""

    partitions: Bounded[tuple[str, int], WriteWaits] = merged()

    takes = frozenset({ONE})
    apis = frozenset({"Produce"})
    needs_flaws = True

    def __init__(self, limits: Limits) -> None:
        self.partitions = Bounded(limits.summary_rows, WriteWaits)

    def feed(self, facts: Facts) -> None:
        """Note when those that took long with acks=all were sent, and answered."""
        if (facts.service_us or 0) >= SLOW_US and (facts.exchange.request or {}).get("acks") == -1:
            span = facts.time_ns, facts.time_ns + 1000 * (facts.latency_us or 0)
            for each in facts.touched:
                kept = self.partitions[each.topic, each.partition]
                kept.first = _earliest(kept.first, [span])


@summed
class Removals(Evidence):
    """Changes after which a replica was not in sync.

    Attributes:
        leader: that removed it.
        waited_us: the longest that a request waited until then.
        longest_ns: until it was back; ``missing``: how often it was not, in the capture.
    """

    leader: int = largest(-1)
    waited_us: int = largest()
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
        "Any AlterPartition without a replica that was in sync, according to the AlterPartition or Metadata "
        "before it. Brokers send it to the controller, so its port must be captured. A broker that is shut "
        "down is removed by the controller, without one."
    )
    advice = (
        "See what stops the follower: its log at that time, garbage collection, its disk, and the path to "
        "the leader (--connections)."
    )
    takes = EACH
    apis = frozenset({"AlterPartition", "Metadata"})
    follows = SlowWrites

    changes: Bounded[tuple[str, int], Changes] = merged()
    reported: Bounded[tuple[str, int], ReportedSets] = merged()

    def __init__(self, limits: Limits) -> None:
        Rule.__init__(self, limits)
        self.changes = Bounded(limits.summary_rows, Changes)
        self.reported = Bounded(_REPORTED * limits.summary_rows, ReportedSets)

    def feed(self, tally: Tally) -> None:
        """Add in-sync replicas."""
        if tally.exchange is not None and not tally.is_whole:
            return
        if tally.api == "Metadata":
            self._learn(tally, tally.exemplar)
        elif tally.exchange is not None and not tally.errors:
            self._change(tally)

    def _change(self, facts: Facts) -> None:
        """Add what a leader changed."""
        request = facts.exchange.request or {}
        changed = partitions_in(facts, facts.exchange.response)
        after = {of: each.get("partition_epoch", _UNKNOWN) for of, each in changed}
        for of, each in partitions_in(facts, request):
            in_sync = each.get("new_isr") or [
                one.get("broker_id") for one in each.get("new_isr_with_epochs") or ()
            ]
            if 0 < len(in_sync) <= _REPLICAS:
                epochs = each.get("partition_epoch", _UNKNOWN), after.get(of, _UNKNOWN)
                leader = request.get("broker_id", _UNKNOWN)
                change = Change(facts.time_ns, facts.id, leader, tuple(sorted(in_sync)), epochs)
                kept = self.changes[of]
                kept.first = _first(kept.first, [change])

    def _learn(self, tally: Tally, exemplar: Exchange | None) -> None:
        """Add those of Metadata responses, which may have very many partitions."""
        first_ns, last_ns, table = tally.first_ns or 0, tally.last_ns or 0, self.reported
        known = table.get
        for of, each in partitions_in(tally, None if exemplar is None else exemplar.response):
            kept = known(of)
            if kept is None and table.other is not None:
                continue
            in_sync = each.get("isr_nodes") or ()
            if 1 < len(each.get("replica_nodes") or in_sync) <= _REPLICAS:
                sets = (kept or table[of]).sets
                replicas = tuple(sorted(in_sync))
                span = sets.get(replicas)
                if span is None or first_ns < span[0]:
                    _seen(sets, {replicas: (first_ns, last_ns)})
                elif last_ns > span[1]:
                    sets[replicas] = span[0], last_ns

    def findings(self) -> Iterator[RulePart]:
        """Replicas that were removed."""
        for of, changes in self.changes.items():
            reported, waits = self.reported.get(of), self.followed.partitions.get(of)
            removals = _removals(changes.first, reported or ReportedSets(), waits or WriteWaits())
            for replica, each in removals.items():
                yield self.part((str(replica), *of), each)

    def _message(self, _: Scope, each: Removals) -> str:
        back = f"back after {duration(each.longest_ns)}" if each.longest_ns else ""
        if each.missing:
            back = "not back in the capture"
        waited = f"; acks=all waited for it up to {duration(each.waited_us * 1000)}" if each.waited_us else ""
        removed = f"removed from the in-sync replicas {times(each.count)} by its leader, node {each.leader}"
        return f"{removed}; {back}{waited}"


def _removals(changes: list[Change], reported: ReportedSets, waits: WriteWaits) -> dict[int, Removals]:
    """By replica. The controller removes replicas too, without a change: those are not the leader's."""
    removals: dict[int, Removals] = {}
    gone: dict[int, int] = {}  # since when
    last: Change | None = None
    for change in changes:
        now = {*change.replicas}
        reported_ns, replicas = reported.before(change.time_ns)
        before = {*replicas}
        if last is not None and reported_ns <= last.time_ns:
            before = {*last.replicas} if change.follows(last) else set()
        elif last is not None and change.follows(last):
            before &= {*last.replicas}
        # A leader is in sync, and adds replicas or removes some, never both.
        for replica in sorted(before - now) if now < before and change.leader in now else ():
            kept = removals.setdefault(replica, Removals())
            kept.take(change.time_ns, change.exchange)
            kept.leader = change.leader
            kept.waited_us = max(kept.waited_us, waits.longest_us(change.time_ns))
            kept.missing += 1
            gone[replica] = change.time_ns
        for replica in gone.keys() & now:
            kept = removals[replica]
            kept.last_ns = change.time_ns
            kept.longest_ns = max(kept.longest_ns, change.time_ns - gone.pop(replica))
            kept.missing -= 1
        last = change
    return removals
