"""Sections of text cells -> a page for a person: headings, and tables that fit the terminal."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.phrases import ABSENT, duration, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

_UNBOUNDED = 10_000  # columns of a pipe or file: nothing is cut there


@dataclass(frozen=True, slots=True)
class View:
    """A column of a table for people.

    Attributes:
        cell: a row's text.
        right: numbers stand at their column's right edge.
        keep: shown even where there is little room.
        gives: whether a page cuts its cells where the terminal is too narrow; those of others are never cut.
        width: columns of the terminal: of a page the fewest that are left of a column that gives.
    """

    heading: str
    cell: Callable[[Any], str]
    _: KW_ONLY
    right: bool = False
    keep: bool = False
    shrinks: bool = False
    width: int = 8


class PageSection(NamedTuple):
    """A table with a heading.

    Attributes:
        title: may be empty, where the table is all that was asked for.
        rows: cells as text, one for each view; no rows: the notes stand alone.
        notes: lines below the heading.
        left_out: rows that were not passed on, for want of room.
    """

    title: str
    views: Sequence[View] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: tuple[str, ...] = ()
    left_out: int = 0


def table(
    title: str,
    views: Iterable[View],
    rows: Sequence[Any],
    *,
    limit: int | None = None,
    narrow: bool = False,
    notes: tuple[str, ...] = (),
    left_out: int = 0,
) -> PageSection:
    """A table of rows.

    Args:
        title: of the section.
        views: what is shown of each row.
        rows: all that there are, but for those ``left_out``.
        limit: how many are shown; None: all.
        narrow: whether there is room only for columns to keep.
        notes: lines above them.
        left_out: rows that are not even there.
    """
    shown = [view for view in views if view.keep or not narrow]
    cells = [[view.cell(row) for view in shown] for row in rows[:limit]]
    return PageSection(title, shown, cells, notes, left_out + len(rows) - len(cells))


def number(value: int | None) -> str:
    """A count, an offset: ``1,234``."""
    return ABSENT if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """A length of time."""
    return ABSENT if value is None else duration(round(value * 1e9))


def write(out: TextIO, sections: Iterable[PageSection], *, width: int | None, colour: bool) -> None:
    """Write them.

    Args:
        out: where to; the caller owns it.
        sections: what to write.
        width: of the terminal, None where it is none.
        colour: whether headings are bold and notes faint.
    """
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    page = StringIO()  # what rich does about a closed pipe is not what this program does
    console = Console(
        file=page,
        width=width or _UNBOUNDED,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
        highlight=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    is_first = True
    for section in sections:
        if not is_first:
            console.print()
        is_first = False
        if section.title:
            console.print(Text(printable(section.title), style="bold"), overflow="ellipsis")
        for line in section.notes:
            console.print(Text(printable(line)), overflow="fold")
        if section.rows:
            grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
            for view in section.views:
                grid.add_column(
                    Text(printable(view.heading)),
                    justify="right" if view.right else "left",
                    no_wrap=not view.shrinks,  # rich takes the room it lacks from the others first
                    min_width=view.width if view.shrinks else None,
                )
            for row in section.rows:
                grid.add_row(*(Text(printable(cell), no_wrap=True, overflow="ellipsis") for cell in row))
            console.print(grid)
        if section.left_out:
            console.print(Text(f"{section.left_out:,} more; use --limit to show them", style="dim"))
    out.write(page.getvalue())
