from __future__ import annotations

from dataclasses import fields, replace

import pytest

from kdissect.limits import (
    ANY,
    DEFAULT,
    GROUPS,
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
PROGRAM = 50 * MB
AIM = 512 * MB


def test_live_bounds_give_way_to_those_that_were_set() -> None:
    assert live(DEFAULT) == LIVE
    assert live(replace(DEFAULT, connections=5)) == replace(LIVE, connections=5)
    assert live(replace(DEFAULT, naming_window_ns=7)).naming_window_ns == 7


@pytest.mark.parametrize(
    ("holding", "most"),
    [
        pytest.param((ROWS, NAMES), 568 * MB, id="read"),
        pytest.param((SUMMARY, GROUPS), 682 * MB, id="summary"),
        pytest.param((ROWS, NAMES, TABLES, GROUPS), 726 * MB, id="export"),
        pytest.param((ROWS, PIPE), 582 * MB, id="live"),
        pytest.param((ROWS, TABLES, GROUPS, PIPE), 740 * MB, id="live -o"),
        pytest.param((TOP, PIPE), 558 * MB, id="live --top"),
        pytest.param((SUMMARY, GROUPS, ROWS, PIPE), 795 * MB, id="live --summary"),
    ],
)
def test_all_that_limits_allow_at_once_is_bounded(holding: tuple[str, ...], most: int) -> None:
    """More than ``AIM``, for two promises: a Metadata response of 200,000 partitions is whole (198 MB with
    its JSON, measured), and 10,000 connections can be open (88 MB). The rest is less than that.
    """
    held = PROGRAM + memory(DEFAULT, ANY, *holding)
    assert held <= most
    assert held - memory(DEFAULT, ANY) + memory(replace(DEFAULT, decoded_bytes=0, connections=0), ANY) < AIM


def test_a_limit_states_the_memory_of_what_it_limits() -> None:
    for bound in fields(Limits):
        each, by = bound.metadata["each"], bound.metadata["by"]
        assert by in (ANY, ROWS, NAMES, SUMMARY, TABLES, GROUPS, PIPE, TOP, OPTION)
        assert not (each and bound.name.endswith("_ns"))
        if each and bound.name.endswith("_bytes"):
            assert each == (14 if bound.name == "export_bytes" else 1)
        if each and not bound.name.endswith("_bytes"):
            assert each * bound.default < 160 * MB
