from __future__ import annotations

from dataclasses import fields, replace

import pytest

from kdissect.limits import (
    ANY,
    DEFAULT,
    LIVE,
    NAMES,
    OPTION,
    PIPE,
    ROWS,
    SUMMARY,
    TABLES,
    TOP,
    Limits,
    live,
    memory,
)

MB = 1_000_000
PROGRAM = 65 * MB
MOST = 736 * MB  # 208 of which so that a Metadata response of 200,000 partitions and a large batch are whole


def test_live_bounds_give_way_to_those_that_were_set() -> None:
    assert live(DEFAULT) == LIVE
    assert live(replace(DEFAULT, connections=5)) == replace(LIVE, connections=5)
    assert live(replace(DEFAULT, naming_window_ns=7)).naming_window_ns == 7


@pytest.mark.parametrize(
    "holding",
    [
        pytest.param((ROWS, NAMES), id="read"),
        pytest.param((SUMMARY,), id="summary"),
        pytest.param((ROWS, TABLES), id="export"),
        pytest.param((ROWS, PIPE), id="live"),
        pytest.param((TOP, PIPE), id="live --top"),
    ],
)
def test_all_that_limits_allow_at_once_is_bounded(holding: tuple[str, ...]) -> None:
    assert PROGRAM + memory(DEFAULT, ANY, *holding) <= MOST


def test_a_limit_states_the_memory_of_what_it_limits() -> None:
    for bound in fields(Limits):
        each, by = bound.metadata["each"], bound.metadata["by"]
        assert by in (ANY, ROWS, NAMES, SUMMARY, TABLES, PIPE, TOP, OPTION)
        assert not (each and bound.name.endswith("_ns"))
        if each and bound.name.endswith("_bytes"):
            assert each == 1
        if each and not bound.name.endswith("_bytes"):
            assert each * bound.default < 160 * MB
