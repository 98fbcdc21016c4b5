"""JoinGroup and ConsumerGroupHeartbeat exchanges -> members that do not fit together or hold others up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.limits import SECOND_NS
from kdissect.model import Embedded
from kdissect.phrases import duration, listed, many, times, topic_label
from kdissect.stats.findings.rule import Evidence, Rule
from kdissect.stats.quantiles import Distinct
from kdissect.stats.sums import largest, latest, merged, summed, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope

Part: TypeAlias = tuple[set[str], set[str]]

_NAMES = 3  # shown in a message
_INCONSISTENT = "INCONSISTENT_GROUP_PROTOCOL"
_UUID = 37  # length of what brokers append to a client ID to make a member ID


@summed
class Mixture(Evidence):
    """JoinGroups that were refused, or that show members without a topic in common.

    Attributes:
        refused: number of the former; ``offering``: their clients and assignors.
        chosen: assignors of the group.
        apart: topics of members that have none in common with the others, and these members.
    """

    refused: int = total()
    offering: Distinct = merged(Distinct)
    chosen: Distinct = merged(Distinct)
    apart: Distinct = merged(Distinct)


@summed
class MixedGroup(Rule):
    """Two applications with one group.id: their members refuse each other's assignors, or each deployment of
    one interrupts the other.
    """

    name = "mixed-group"
    severity = ERROR
    of = ("group",)
    failed = "refused"
    title = "Members of a group do not fit together, as if two applications had one group.id."
    when = (
        f"Any JoinGroup refused with {_INCONSISTENT} is an error; members of one generation that have no "
        "topic in common are a note: it works, but a restart of one interrupts all. Classic groups only."
    )
    advice = (
        "Give each application its own group.id. If it is one application, let all members have an assignor "
        "in common: to change partition.assignment.strategy, first roll out both, then only the new one."
    )
    apis = frozenset({"JoinGroup"})
    counts = Mixture

    def feed(self, facts: Facts) -> None:
        """Add members that are refused, and those that the leader learns about."""
        request, response = facts.exchange.request or {}, facts.exchange.response or {}
        if (group := facts.group) is None:
            return
        kept = self.kept[group]
        if _INCONSISTENT in facts.errors:
            kept.add(facts)
            kept.refused += 1
            assignors = [each.get("name") or "?" for each in request.get("protocols") or ()]
            kept.offering.add(facts.kept(f"{facts.client} ({', '.join(assignors)})"))
        elif not facts.errors and response.get("protocol_name"):
            kept.chosen.add(facts.kept(response["protocol_name"]))
        parts = _apart(response.get("members") or ()) if facts.is_whole else []
        if len(parts) > 1:
            kept.add(facts)
            for topics, members in parts:
                of = ", ".join(topic_label(each) for each in sorted(topics)[:_NAMES])
                kept.apart.add(facts.kept(f"{of} ({', '.join(sorted(members)[:_NAMES])})"))

    def _level(self, each: Mixture) -> str:
        return ERROR if each.refused else NOTE

    def _message(self, _: Scope, each: Mixture) -> str:
        texts = []
        if each.refused:
            chosen = listed(each.chosen.first(_NAMES))
            other = f": the group has {chosen}" if chosen else f": {_INCONSISTENT}"
            texts.append(f"{listed(each.offering.first(_NAMES))} refused {times(each.refused)}{other}")
        if len(each.apart):
            texts.append(f"members have no topic in common: {listed(each.apart.first(_NAMES))}")
        return "; ".join(texts)


def _apart(members: Iterable[Any]) -> list[Part]:
    """Topics that no others are subscribed to, and the clients of their members."""
    parts: dict[str, Part] = {}  # by topic
    for member in members:
        metadata = member.get("metadata")
        known = metadata.decoded if isinstance(metadata, Embedded) else None
        part: Part = {topic for topic in (known or {}).get("topics") or () if topic}, set()
        part[1].add((member.get("member_id") or "")[:-_UUID] or "?")
        joined = _distinct([part, *(parts[topic] for topic in part[0] if topic in parts)])
        largest = max(joined, key=_size)  # the others join it: no name moves more than some times
        for each in joined:
            if each is not largest:
                largest[0].update(each[0])
                largest[1].update(each[1])
                parts.update(dict.fromkeys(each[0], largest))
        parts.update(dict.fromkeys(part[0], largest))
    return _distinct(parts.values())


def _distinct(parts: Iterable[Part]) -> list[Part]:
    return list({id(part): part for part in parts}.values())


def _size(part: Part) -> int:
    return len(part[0]) + len(part[1])


# ------------------------------------------------------------------------------------------------------------
# ConsumerGroupHeartbeat -> members that keep partitions which the coordinator gave to others.
#
# A response with fewer partitions than the member said it owns asks it to give some back. It has when a
# request names its partitions again. Holds some numbers per member.
# ------------------------------------------------------------------------------------------------------------


_HELD_NS = 10 * SECOND_NS
_GIVEN, _LEFT, _REMOVED = "given", "left", "removed"
_ENDS = {
    _GIVEN: "gave back {} only after {}",
    _LEFT: "gave back {} only by leaving the group, after {}",
    _REMOVED: "did not give back {} in {}, and was removed from the group",
    "": "has not given back {} after {}",
}
_FENCED = frozenset({"FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"})


@summed
class Revocations(Evidence):
    """The partitions of a member.

    Attributes:
        owned: when it last listed them, and how many they are.
        requested: when it was last asked to give some back; how many, and how many are to remain. 0: it has,
            or may keep them.
        longest: the longest time until it had; how many they were, and how that ended.
    """

    owned: tuple[int, int] = latest((0, 0))
    requested: tuple[int, int, int] = latest((0, 0, 0))
    longest: tuple[int, int, str] = largest((0, 0, ""))

    @property
    def held_ns(self) -> int:
        """The longest time."""
        return self.longest[0]


@summed
class RevocationHeld(Rule):
    """With the new group protocol (KIP-848) others wait for exactly those partitions that a member has not
    given back yet: nobody reads them meanwhile, or only the one that is slow.
    """

    name = "revocation-held"
    severity = WARNING
    of = ("group", "client")
    lost = "held_ns"
    title = "A member does not give back partitions that the coordinator has assigned to others."
    when = (
        f"{_HELD_NS // SECOND_NS} s or more from a ConsumerGroupHeartbeat response with fewer partitions "
        "to the request without them; a member revokes in poll(), so shorter times are usual."
    )
    advice = (
        "See what the member does between two polls and when partitions are revoked. The coordinator removes "
        "it after its max.poll.interval.ms."
    )
    apis = frozenset({"ConsumerGroupHeartbeat"})
    counts = Revocations

    def feed(self, facts: Facts) -> None:
        """Follow the partitions of a member; its heartbeats are on one connection."""
        request, response = facts.exchange.request or {}, facts.exchange.response or {}
        member = request.get("member_id") or response.get("member_id")
        if facts.group is None or not member:
            return
        kept = self.kept[facts.group, facts.client, member, facts.exchange.connection.id]
        if not facts.is_whole:  # it may have given them back
            kept.owned, kept.requested = (facts.time_ns, 0), (facts.time_ns, 0, 0)
            return
        has_left = (request.get("member_epoch") or 0) < 0
        owned = 0 if has_left else _count(request.get("topic_partitions"))
        requested_ns, given, remaining = kept.requested
        if given:
            is_fenced = not _FENCED.isdisjoint(facts.errors)
            has_given = owned is not None and owned <= remaining
            end = _REMOVED if is_fenced else _LEFT if has_left else _GIVEN if has_given else ""
            held_ns = facts.time_ns - requested_ns
            kept.longest = max(kept.longest, (held_ns, given, end))
            if held_ns >= _HELD_NS:
                kept.add(facts)
                kept.first_ns = min(kept.first_ns, requested_ns)
            if end:
                kept.requested = facts.time_ns, 0, 0
        if owned is not None:
            kept.owned = facts.time_ns, owned
        assigned = _count((response.get("assignment") or {}).get("topic_partitions"))
        if assigned is not None and assigned >= kept.owned[1]:
            kept.requested = facts.time_ns, 0, 0
        elif assigned is not None and not kept.requested[1]:
            kept.requested = facts.time_ns, kept.owned[1] - assigned, assigned

    def findings(self) -> Iterator[RulePart]:
        """Members that took long."""
        for (group, client, _, _), each in self.kept.items():
            if each.held_ns >= _HELD_NS:
                yield self.part((group, client), each)

    def _message(self, _: Scope, each: Revocations) -> str:
        held_ns, given, end = each.longest
        return _ENDS[end].format(many(given, "partition"), duration(held_ns))


def _count(topics: Any) -> int | None:
    """The number of partitions; None if the message does not say."""
    return None if topics is None else sum(len(each.get("partitions") or ()) for each in topics)
