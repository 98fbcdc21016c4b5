from __future__ import annotations

from dataclasses import fields

import pytest

from kdissect.errors import UsageError
from kdissect.limits import DEFAULT, MIB, Limits
from kdissect.query.bounds import name_of, parse_limits, value_text


def test_values_with_units() -> None:
    output = parse_limits(["connections=50000,stream-bytes=2MiB", "REORDER_WINDOW=1s"])
    assert (output.connections, output.stream_bytes, output.reorder_window_ns) == (
        50_000,
        2 * MIB,
        1_000_000_000,
    )


def test_every_value_round_trips() -> None:
    for bound in fields(Limits):
        assert parse_limits([f"{name_of(bound)}={value_text(bound, DEFAULT)}"]) == DEFAULT


def test_what_is_no_bound_is_refused() -> None:
    with pytest.raises(UsageError, match='unknown limit "conections"; did you mean "connections"'):
        parse_limits(["conections=5"])
