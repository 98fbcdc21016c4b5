from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.cli.run import show

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_all_rows_or_at_most_max_rows() -> None:
    got: list[int] = []
    assert show(iter(range(5)), got.append, None, str) == (5, False)
    assert show(iter(range(5)), got.append, 2, str) == (2, False)
    assert got == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize(
    ("each", "flushed"), [(True, ["a", "flushed", "b", "flushed"]), (False, ["a", "flushed", "b"])]
)
def test_the_first_row_is_flushed_and_all_if_requested(each: bool, flushed: list[str]) -> None:
    events: list[object] = []
    show("ab", events.append, None, lambda: events.append("flushed"), flush_each=each)
    assert events == flushed


def test_ctrl_c_ends_it_and_what_was_shown_counts() -> None:
    def rows() -> Iterator[str]:
        yield "a"
        raise KeyboardInterrupt

    assert show(rows(), str, None, str) == (1, True)
