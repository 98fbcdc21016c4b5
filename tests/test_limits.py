from __future__ import annotations

from dataclasses import replace

from kdissect.limits import DEFAULT, LIVE, live


def test_live_bounds_give_way_to_those_that_were_set() -> None:
    assert live(DEFAULT) == LIVE
    assert live(replace(DEFAULT, connections=5)) == replace(LIVE, connections=5)
    assert live(replace(DEFAULT, naming_window_ns=7)).naming_window_ns == 7
