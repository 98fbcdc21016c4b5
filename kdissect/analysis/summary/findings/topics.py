"""Metadata answers -> how many partitions and replicas topics have. Holds two numbers of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.analysis.summary.bounded import Bounded

if TYPE_CHECKING:
    from kdissect.analysis.summary.facts import Facts
    from kdissect.limits import Limits

APIS = frozenset({"Metadata", "DescribeTopicPartitions"})


class Topic:
    """The most partitions and replicas that were told."""

    __slots__ = ("partitions", "replicas")

    def __init__(self) -> None:
        self.partitions = 0
        self.replicas = 0

    def merge(self, other: Topic) -> None:
        """Take in what other answers told."""
        self.partitions = max(self.partitions, other.partitions)
        self.replicas = max(self.replicas, other.replicas)


class Topics(Bounded[str, Topic]):
    """By name, or id where there is no name."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits.summary_rows, Topic)
        self._limits = limits

    def __reduce__(self) -> tuple[object, ...]:
        return Topics, (self._limits,), None, None, iter(self.items())

    def learn(self, facts: Facts) -> None:
        """Learn from an answer."""
        for told in (facts.exchange.response or {}).get("topics") or ():
            name = told.get("name") or facts.exchange.topic_names.get(told.get("topic_id", ""))
            partitions = told.get("partitions")
            if name and partitions:
                topic = self[name]
                topic.partitions = max(topic.partitions, len(partitions))
                topic.replicas = max(
                    topic.replicas, *(len(each.get("replica_nodes") or ()) for each in partitions)
                )
