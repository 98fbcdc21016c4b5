"""Facts that one connection reveals about others: the only ones that cross connections. Each has the packet
time at which it was learned. Holds at most ``Limits.topic_names`` names of topic IDs.

Connections are independent (docs/decisions/connections-are-islands.md). The parts of a capture can therefore
be dissected separately, if their facts are first collected and merged. The order of merging does not matter:
of two facts about the same thing, the earlier one wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT

if TYPE_CHECKING:
    from kdissect.limits import Limits


class LearnedFacts:
    """Facts learned from a capture or a part of it.

    Attributes:
        topics: topic ID -> name, and when it was learned: ``completed_ns`` of the exchange with both.
    """

    __slots__ = ("_limits", "topics")

    def __init__(self, limits: Limits = DEFAULT) -> None:
        self._limits = limits
        self.topics: dict[str, tuple[str, int]] = {}

    def learn_topic(self, topic_id: str, name: str, time_ns: int) -> None:
        before = self.topics.get(topic_id)
        if before is None and len(self.topics) >= self._limits.topic_names:
            return
        if before is None or time_ns < before[1]:
            self.topics[topic_id] = name, time_ns

    def merge(self, other: LearnedFacts) -> None:
        for topic_id, (name, time_ns) in other.topics.items():
            self.learn_topic(topic_id, name, time_ns)

    def topic_name(self, topic_id: str, until_ns: int) -> str | None:
        """The name of a topic ID, if it was learned before ``until_ns``."""
        name, time_ns = self.topics.get(topic_id, (None, 0))
        return name if time_ns < until_ns else None
