"""Facts that one connection reveals about others: the only ones that cross connections. Each has the packet
time at which it was learned. Holds at most ``Limits.topic_names`` names of topic IDs.

Connections are independent (docs/decisions/connections-are-islands.md). The parts of a capture can therefore
be dissected separately, if their facts are first collected and merged. The order of merging does not matter:
of two facts about the same thing, the earlier one wins.

An ID is resolved in one of two ways. ``whole``: by what any part of the capture teaches. ``window``: if its
name was learned earlier in packet time, or at most ``Limits.naming_window_ns`` later: as when a capture is
read once, from beginning to end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.limits import DEFAULT
from kdissect.options import WHOLE, WINDOW

if TYPE_CHECKING:
    from kdissect.limits import Limits


class LearnedFacts:
    """Facts learned from a capture or a part of it.

    Args:
        limits: to respect.
        names: how IDs are resolved: ``WHOLE`` or ``WINDOW``.

    Attributes:
        topics: topic ID -> name, and when it was learned: ``completed_ns`` of the exchange with both.
    """

    __slots__ = ("_limits", "_names", "topics")

    def __init__(self, limits: Limits = DEFAULT, names: str = WINDOW) -> None:
        self._limits = limits
        self._names = names
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

    def topic_name(self, topic_id: str, completed_ns: int) -> str | None:
        """The name of a topic ID in an exchange that was completed at this time. None if it is not known."""
        name, time_ns = self.topics.get(topic_id, (None, 0))
        is_in_time = self._names == WHOLE or time_ns < completed_ns + max(1, self._limits.naming_window_ns)
        return name if is_in_time else None
