"""What all connections hold together -> which of them must let go.

A bound for each connection is none for twenty thousand of them. So what they hold (``Dialogue.held``) is
summed up, and past ``Limits.held_bytes_in_all`` the one that was silent for longest lets go of its own. The
sum is brought up to date every ``_EVERY`` items: what comes in between is little.

Holds a number for each connection that holds something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.analysis.dialogue import Dialogue
    from kdissect.limits import Limits

_EVERY = 64


class Holdings:
    """The sum of what dialogues hold.

    Attributes:
        held: bytes, costs included, when they were last summed up.
    """

    __slots__ = ("_bound", "_changed", "_due", "_held_by", "held")

    def __init__(self, limits: Limits) -> None:
        self._bound = limits.held_bytes_in_all
        self._changed: dict[Dialogue, None] = {}
        self._held_by: dict[Dialogue, int] = {}  # silent for longest first
        self._due = _EVERY
        self.held = 0

    def note(self, dialogue: Dialogue) -> bool:
        """One was fed; whether it is time to ask for the ``excess``."""
        self._changed[dialogue] = None
        self._due -= 1
        return not self._due

    def excess(self) -> Iterator[Dialogue]:
        """Those that must let go, one after another, until the rest is within the bound."""
        changed, self._changed, self._due = self._changed, {}, _EVERY
        for dialogue in changed:
            self._account(dialogue)
        for _ in range(len(self._held_by)):
            if self.held <= self._bound:
                break
            silent = next(iter(self._held_by))
            yield silent
            self._account(silent)

    def forget(self, dialogue: Dialogue) -> None:
        """One is over."""
        self._changed.pop(dialogue, None)
        self.held -= self._held_by.pop(dialogue, 0)

    def _account(self, dialogue: Dialogue) -> None:
        self.forget(dialogue)
        if held := dialogue.held:
            self._held_by[dialogue] = held
            self.held += held
