from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.cli.showing import show

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_all_rows_or_as_many_as_were_asked_for() -> None:
    got: list[int] = []
    assert show(iter(range(5)), got.append, None, None) == (5, False)
    assert show(iter(range(5)), got.append, 2, None) == (2, False)
    assert got == [0, 1, 2, 3, 4, 0, 1]


def test_each_row_is_flushed_where_somebody_watches() -> None:
    told: list[object] = []
    show("ab", told.append, None, lambda: told.append("flushed"))
    assert told == ["a", "flushed", "b", "flushed"]


def test_ctrl_c_ends_it_and_what_was_shown_counts() -> None:
    def rows() -> Iterator[str]:
        yield "a"
        raise KeyboardInterrupt

    assert show(rows(), str, None, None) == (1, True)
