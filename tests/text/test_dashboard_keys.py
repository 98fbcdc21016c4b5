from __future__ import annotations

import pytest

from kdissect.text.dashboard import UiState
from kdissect.text.dashboard_panes import EVENTS, PANES


def pressed(*keys: str) -> UiState:
    choices = UiState()
    for key in keys:
        choices.press(key)
    return choices


@pytest.mark.parametrize(
    ("keys", "pane"),
    [
        ((), 0),
        ("3", 2),
        (("tab", "tab"), 2),
        (("backtab",), EVENTS),
        (("backtab", "tab"), 0),
        ("9", 0),
        ("0", 0),
    ],
)
def test_panes(keys: tuple[str, ...], pane: int) -> None:
    assert pressed(*keys).pane == pane


def test_each_pane_is_sorted_by_a_column_of_its_own() -> None:
    choices = pressed("right", "2", "left", "r")
    assert choices.sorts[:3] == [PANES[0].sort + 1, PANES[1].sort - 1, PANES[2].sort]
    assert choices.reversed == {1}
    choices.press("r")
    assert choices.reversed == set()
    assert pressed(*["left"] * 2).sorts[0] == len(PANES[0].columns) - 1


def test_scrolling_begins_anew_in_another_pane() -> None:
    assert pressed("down", "pagedown", "up").scroll == 10
    assert pressed("up").scroll == 0
    assert pressed("pagedown", "home").scroll == 0
    assert pressed("pagedown", "2").scroll == 0
    assert pressed("pagedown", "1").scroll == 10


def test_pause_help_and_the_end() -> None:
    assert pressed("p").is_paused
    assert not pressed("p", " ").is_paused
    assert pressed("?").is_help
    assert not pressed("h", "escape").is_help
    assert pressed("q").is_quitting


def test_other_keys_do_nothing() -> None:
    assert pressed("x", "\x1b[99~", "é", "", "redraw") == UiState()
