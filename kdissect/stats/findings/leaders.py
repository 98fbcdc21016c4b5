"""Metadata responses, and errors of brokers that do not lead a partition -> leaders that change, topics that
are created again, clients that do not find a leader.
"""

from __future__ import annotations

from operator import or_
from typing import TYPE_CHECKING, Any

from kdissect.anomalies import NOTE, WARNING
from kdissect.kafka.codes import error_code
from kdissect.phrases import many, times, topic_label
from kdissect.stats.contents import EACH
from kdissect.stats.findings.rule import APIS, Bursts, Evidence, Rule
from kdissect.stats.sums import joined, summed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.facts import Facts
    from kdissect.stats.findings.rule import RulePart, Scope
    from kdissect.stats.tallies import Tally

_WARNING_THRESHOLD = 3
_TERMS = 64
_MAX_PARTITIONS, _MAX_LEADERS = 3, 5  # shown in a message


class Leaders:
    """The leaders of a partition, by leader epoch; by broker before Metadata v7."""

    __slots__ = ("terms",)

    def __init__(self) -> None:
        self.terms: dict[
            tuple[int, int], tuple[int, str]
        ] = {}  # leader epoch, leader -> time and exchange of the first report

    def lead(self, leader: int, epoch: int, reported: tuple[int, str]) -> None:
        """Add a leader from a response."""
        term = epoch, leader
        if term in self.terms or len(self.terms) < _TERMS:
            self.terms[term] = min(reported, self.terms.get(term, reported))

    def merge(self, other: Leaders) -> None:
        """Add the leaders of other responses."""
        for (epoch, leader), reported in other.terms.items():
            self.lead(leader, epoch, reported)

    @property
    def in_order(self) -> list[tuple[int, int, str]]:
        """Successive leaders, with time and exchange of the first report; consecutive ones differ."""
        turns: list[tuple[int, int, str]] = []
        with_epoch = {term: reported for term, reported in self.terms.items() if term[0] >= 0}
        terms = with_epoch or self.terms  # those without an epoch cannot be ordered among those with one
        for (_, leader), reported in sorted(terms.items(), key=lambda item: (item[0][0], item[1])):
            if not turns or turns[-1][0] != leader:
                turns.append((leader, *reported))
        return turns


def _topics(tally: Tally) -> Iterator[tuple[str, bytes, list[Any]]]:
    """Name, ID and partitions of the topics in a Metadata response: a name can get another ID, because the
    topic was deleted and created again. The ID is not text, which ``Bounded.rename`` would replace; it is
    empty in versions without IDs (KIP-516).
    """
    exemplar = tally.exemplar
    for topic in ((exemplar and exemplar.response) or {}).get("topics") or ():
        topic_id = topic.get("topic_id") or ""
        if name := topic.get("name") or topic_id:
            yield tally.kept(name), topic_id.encode(), topic.get("partitions") or []


@summed
class Moves(Evidence):
    """Changes of leaders; topic and partition -> its leaders in order."""

    partitions: dict[tuple[str, int], list[int]] = joined(or_, dict)


@summed
class LeadersMoving(Rule):
    """A restart or failure moves leaders once or twice. Leaders that keep moving make all clients wait."""

    name = "leaders-moving"
    severity = NOTE
    of = ("topic",)
    title = "Partition leaders change."
    when = (
        "Any leader change (a note, because it explains errors around that time); "
        f"{_WARNING_THRESHOLD} changes of one partition make it a warning."
    )
    advice = (
        "Check whether a broker was restarted or disconnected at that time; if not, check its load and disks."
    )
    takes = EACH
    apis = APIS
    counts = Leaders

    def feed(self, tally: Tally) -> None:
        """Note leaders; -1 means none."""
        reported = tally.first[0]
        for name, topic_id, partitions in _topics(tally):
            for partition in partitions:
                leader = partition.get("leader_id", -1)
                if leader >= 0:
                    kept = self.kept[name, topic_id, partition.get("partition_index", -1)]
                    kept.lead(leader, partition.get("leader_epoch", -1), reported)

    def findings(self) -> Iterator[RulePart]:
        """Topics whose leaders moved."""
        ids: dict[str, set[bytes]] = {}
        for name, topic_id, _ in self.kept:
            ids.setdefault(name, set()).update({topic_id} - {b""})
        leaders: dict[tuple[str, bytes, int], Leaders] = {}
        for (name, topic_id, partition), each in self.kept.items():
            # Early versions of Metadata have no IDs. Of a name with several, theirs is unknown.
            if topic_id or len(ids[name]) <= 1:
                key = name, topic_id or next(iter(ids[name]), b""), partition
                leaders.setdefault(key, Leaders()).merge(each)
        topics: dict[tuple[str, bytes], Moves] = {}
        for (name, topic_id, partition), each in leaders.items():
            if len(turns := each.in_order) > 1:
                moves = topics.setdefault((name, topic_id), Moves())
                moves.partitions[name, partition] = [leader for leader, *_ in turns]
                for _, time_ns, exchange in turns[1:]:
                    moves.take(time_ns, exchange)
        for (name, _), moves in topics.items():
            left = sorted({str(leader) for turns in moves.partitions.values() for leader in turns[:-1]})
            part = self.part(name, moves)
            part.scope = {**part.scope, "node": left}
            yield part

    def _level(self, each: Moves) -> str:
        return WARNING if max(map(len, each.partitions.values())) > _WARNING_THRESHOLD else NOTE

    def _message(self, scope: Scope, each: Moves) -> str:
        several = len(scope["topic"]) > 1
        named = ", ".join(
            f"{topic_label(topic) + '-' if several else ''}{partition} "
            f"({' -> '.join(map(str, each.partitions[topic, partition][:_MAX_LEADERS]))})"
            for topic, partition in sorted(each.partitions)[:_MAX_PARTITIONS]
        )
        left_out = len(each.partitions) - _MAX_PARTITIONS
        more = f" and {left_out:,} more" if left_out > 0 else ""
        return f"{many(each.count, 'leader change')}: partition {named}{more}"


@summed
class TopicRecreated(Rule):
    """The records of the old topic are gone, offsets begin at 0 again, and groups keep their old offsets."""

    name = "topic-recreated"
    severity = WARNING
    of = ("topic",)
    is_event = True
    title = "A topic is deleted and created again under the same name."
    when = (
        "Any topic name for which Metadata responses (version 10 and later) of a cluster have two topic IDs."
    )
    advice = (
        "Check who deleted the topic. Reset the offsets of its groups (kafka-consumer-groups "
        "--reset-offsets), and restart clients that still use the old topic."
    )
    takes = EACH
    apis = frozenset({"Metadata"})

    def feed(self, tally: Tally) -> None:
        """Note the IDs of topics that exist."""
        exemplar = tally.exemplar
        cluster_id = ((exemplar and exemplar.response) or {}).get("cluster_id") or ""
        for name, topic_id, partitions in _topics(tally):
            if topic_id and partitions:
                self.kept[cluster_id, name, topic_id].take(*tally.first[0])

    def findings(self) -> Iterator[RulePart]:
        """Names with several IDs, each of which replaces the one before."""
        topics: dict[tuple[str, str], list[Evidence]] = {}
        for (cluster_id, name, _), each in self.kept.items():
            topics.setdefault((cluster_id, name), []).append(each)
        for (_, name), ids in topics.items():
            evidence = Evidence()
            for each in sorted(ids, key=lambda each: each.first_ns)[1:]:
                evidence.take(each.first_ns, each.examples[0])
            if evidence.count:
                yield self.part(name, evidence)

    def _message(self, _: Scope, each: Evidence) -> str:
        return f"deleted and created again {times(each.count)}: its topic ID changed"


# ------------------------------------------------------------------------------------------------------------
# Responses from brokers that do not lead the partition -> clients that cannot find the leader.
# ------------------------------------------------------------------------------------------------------------


_LEADERSHIP = frozenset(
    map(
        error_code,
        (
            *("NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "FENCED_LEADER_EPOCH"),
            *("UNKNOWN_LEADER_EPOCH", "REPLICA_NOT_AVAILABLE"),
        ),
    )
)
_STORM = 20


@summed
class NotLeader(Rule):
    """After one such response a client should look for the new leader. Many mean that it does not."""

    name = "not-leader-storm"
    needs_flaws = True
    severity = WARNING
    of = ("client", "topic")
    failed = "count"
    title = "A client keeps sending requests to brokers that do not lead the partition."
    when = (
        f"{_STORM} NOT_LEADER_OR_FOLLOWER errors for a topic within 10 seconds; a normal leader "
        "change causes a few per client."
    )
    advice = (
        "Check whether the partitions have a leader, then whether the client can reach it and refreshes "
        "its metadata."
    )
    counts = Bursts

    def feed(self, facts: Facts) -> None:
        """Count responses to clients; followers wait for their leader this way."""
        if facts.replica or not facts.errors:
            return
        for topic in dict.fromkeys(each.topic for each in facts.touched if each.error in _LEADERSHIP):
            self.kept[facts.client, topic].add(facts)

    def _reports(self, each: Bursts) -> bool:
        return each.busiest >= _STORM

    def _message(self, _: Scope, each: Bursts) -> str:
        return f"{each.count:,} responses from brokers that do not lead the partition, {each.peak}"
