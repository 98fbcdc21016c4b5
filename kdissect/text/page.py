"""Sections of text cells -> a page for a person: headings, and tables that fit the terminal."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, NamedTuple

from kdissect.phrases import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

_UNBOUNDED = 10_000  # columns of a pipe or file: nothing is cut there


class Heading(NamedTuple):
    """A column of a table.

    Attributes:
        right: numbers stand at their column's right edge.
        gives: whether its cells are cut where a terminal is too narrow; the others never are.
        least: columns that it keeps even then.
    """

    name: str
    right: bool = False
    gives: bool = False
    least: int = 8


class Section(NamedTuple):
    """A table with a heading.

    Attributes:
        title: may be empty, where the table is all that was asked for.
        rows: cells as text, one for each heading; no rows: the notes stand alone.
        notes: lines below the heading.
        left_out: rows that were not passed on, for want of room.
    """

    title: str
    headings: Sequence[Heading] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: tuple[str, ...] = ()
    left_out: int = 0


def picked(cells: Sequence[str], places: Sequence[int]) -> list[str]:
    """The cells of some columns."""
    return [cells[place] for place in places]


def narrowed(section: Section, narrow: bool, kept: set[str]) -> Section:
    """Where there is little room, keep the columns of these names only."""
    if not narrow:
        return section
    places = [place for place, heading in enumerate(section.headings) if heading.name in kept]
    headings = [section.headings[place] for place in places]
    return section._replace(headings=headings, rows=[picked(row, places) for row in section.rows])


def write(out: TextIO, sections: Iterable[Section], *, width: int | None, colour: bool) -> None:
    """Write them.

    Args:
        out: where to; the caller owns it.
        sections: what to write.
        width: of the terminal, None where it is none.
        colour: whether headings are bold and notes faint.
    """
    from rich.console import Console
    from rich.table import Table
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
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
            for heading in section.headings:
                table.add_column(
                    Text(printable(heading.name)),
                    justify="right" if heading.right else "left",
                    no_wrap=not heading.gives,  # rich takes the room it lacks from the others first
                    min_width=heading.least if heading.gives else None,
                )
            for row in section.rows:
                table.add_row(*(Text(printable(cell), no_wrap=True, overflow="ellipsis") for cell in row))
            console.print(table)
        if section.left_out:
            console.print(Text(f"{section.left_out:,} more; use --limit to show them", style="dim"))
    out.write(page.getvalue())
