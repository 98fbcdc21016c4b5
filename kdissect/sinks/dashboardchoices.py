"""Keys -> what the person who looks at the dashboard has chosen. Holds just that."""

from __future__ import annotations

from dataclasses import dataclass, field

from kdissect.sinks.dashboardpanes import PANES

PAGE = 10  # rows

KEYS = (
    ("1-5, Tab", "another pane"),
    ("left, right", "sort by another column"),
    ("r", "the other way round"),
    ("up, down, PgUp, PgDn, Home", "rows that are not shown"),
    ("p, Space", "hold the picture still; counting goes on"),
    ("h, ?", "this help"),
    ("q, Ctrl-C", "the end"),
)
"""What keys do, for people."""


@dataclass(slots=True)
class Choices:
    """What was chosen.

    Attributes:
        pane: number in ``PANES``.
        sorts: number of the column that each pane is sorted by.
        reversed: panes that are sorted the other way round.
        scroll: rows passed over in the pane.
    """

    pane: int = 0
    sorts: list[int] = field(default_factory=lambda: [pane.sort for pane in PANES])
    reversed: set[int] = field(default_factory=set)
    scroll: int = 0
    is_paused: bool = False
    is_help: bool = False
    is_over: bool = False

    def press(self, key: str) -> None:
        """Take a key: a character, or the name of one that has none. Others do nothing."""
        if key == "q":
            self.is_over = True
        elif key in ("h", "?"):
            self.is_help = not self.is_help
        elif key == "escape":
            self.is_help = False
        elif key in ("p", " "):
            self.is_paused = not self.is_paused
        elif key in ("tab", "backtab"):
            self._turn_to((self.pane + (1 if key == "tab" else -1)) % len(PANES))
        elif key.isdecimal() and 1 <= int(key) <= len(PANES):
            self._turn_to(int(key) - 1)
        elif key in ("left", "right", "<", ">"):
            columns = len(PANES[self.pane].columns)
            step = 1 if key in ("right", ">") else -1
            self.sorts[self.pane] = (self.sorts[self.pane] + step) % columns
        elif key == "r":
            self.reversed ^= {self.pane}
        else:
            steps = {"down": 1, "j": 1, "up": -1, "k": -1, "pagedown": PAGE, "pageup": -PAGE}
            self.scroll = 0 if key == "home" else max(0, self.scroll + steps.get(key, 0))

    def _turn_to(self, pane: int) -> None:
        if pane != self.pane:
            self.pane, self.scroll = pane, 0
