"""Sections of text cells -> a page for people: headings, and tables that fit the terminal."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.phrases import ABSENT, duration, encodable_bars, printable, truncate, wrapped
from kdissect.stats.document import OfCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from typing import TextIO

    from kdissect.text.style import Style

_UNBOUNDED = 10_000  # columns of a pipe or file, where nothing is truncated


@dataclass(frozen=True, slots=True)
class View:
    """A column of a table for people.

    Attributes:
        cell: makes the text from a row.
        right: whether to align right, for numbers.
        keep: whether to show it on narrow terminals too.
        shrinks: whether a page cuts its cells if the terminal is too narrow; other columns are never cut.
        is_rare: whether the column is left out of a table in which all its cells would be absent.
        width: in terminal columns; on a page the minimum of a column that shrinks.
        note: what to know about the column; a line above the table if the column is shown.
    """

    heading: str
    cell: Callable[[Any], str]
    _: KW_ONLY
    right: bool = False
    keep: bool = False
    shrinks: bool = False
    is_rare: bool = False
    width: int = 8
    note: str = ""


def cluster_label(row: Any) -> str:
    """The cluster of a row, if there are several."""
    return row.cluster_id or ABSENT


_CLUSTER = View("CLUSTER", cluster_label, keep=True, shrinks=True)
"""The first column, if the rows are of several clusters."""


class PageSection(NamedTuple):
    """A table with a heading.

    Attributes:
        title: may be empty, for a page with a single table.
        rows: cells as text, one for each view; may be empty.
        notes: lines below the heading.
        left_out: number of rows that are not shown because of a limit.
        is_dim: whether it is less important than the rest of the page.
        styles: of each note, a name in ``Style.looks``; may be empty.
    """

    title: str
    views: Sequence[View] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: tuple[str, ...] = ()
    left_out: int = 0
    is_dim: bool = False
    styles: tuple[str, ...] = ()


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
        views: its columns.
        rows: all rows, except ``left_out``.
        limit: how many to show; None: all.
        narrow: whether only columns with ``keep`` fit.
        notes: lines above the table.
        left_out: number of rows that the caller has already left out.
    """
    if are_of_several_clusters(rows):
        views = (_CLUSTER, *views)
    shown = [
        view
        for view in views
        if (view.keep or not narrow)
        and not (view.is_rare and all(view.cell(row) == ABSENT for row in rows[:limit]))
    ]
    cells = [[view.cell(row) for view in shown] for row in rows[:limit]]
    notes += tuple(dict.fromkeys(view.note for view in shown if view.note))
    return PageSection(title, shown, cells, notes, left_out + len(rows) - len(cells))


def are_of_several_clusters(rows: Sequence[Any]) -> bool:
    """Whether rows must be shown with their cluster."""
    clusters = {getattr(row, "cluster_id", None) for row in rows}
    return len(clusters - {None}) > 1 or (len(clusters) > 1 and isinstance(rows[0], OfCluster))


def number(value: int | None) -> str:
    """A count, an offset: ``1,234``."""
    return ABSENT if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """A duration."""
    return ABSENT if value is None else duration(round(value * 1e9))


def between(first: datetime, last: datetime, digits: int = 6) -> str:
    """``2026-11-21 12:56:38.528 to 12:57:34.775 UTC``: the second date only if it differs."""
    shown = "%H:%M:%S.%f" if first.date() == last.date() else "%Y-%m-%d %H:%M:%S.%f"
    rest = 6 - digits
    first_text, last_text = f"{first:%Y-%m-%d %H:%M:%S.%f}", f"{last:{shown}}"
    return f"{first_text[: len(first_text) - rest]} to {last_text[: len(last_text) - rest]} UTC"


def write(out: TextIO, sections: Iterable[PageSection], *, width: int | None, style: Style) -> None:
    """Write the page.

    Args:
        out: owned by the caller.
        sections: what to write.
        width: of the terminal; None if ``out`` is not a terminal.
        style: of headings and notes, and names of hosts.
    """
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    page = StringIO()  # because rich handles a closed pipe differently from kdissect
    console = Console(
        file=page,
        width=width or _UNBOUNDED,
        force_terminal=style.is_colored,
        no_color=not style.is_colored,
        color_system="standard" if style.is_colored else None,
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
            for line in wrapped(style.named(printable(section.title)), width):
                console.print(Text(truncate(line, width or _UNBOUNDED), style=style.heading), soft_wrap=True)
        looks = section.styles or ["faint" if section.is_dim else ""] * len(section.notes)
        for note, look in zip(section.notes, looks, strict=True):
            for line in wrapped(style.named(printable(note)), width, "  " if note.startswith("- ") else ""):
                console.print(Text(line, style=style.looks[look]), soft_wrap=True)
        if section.rows:
            row_style = style.faint if section.is_dim else ""
            grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=style.faint)
            for view in section.views:
                grid.add_column(
                    Text(printable(view.heading)),
                    justify="right" if view.right else "left",
                    no_wrap=not view.shrinks,  # rich shrinks columns that wrap first
                    min_width=view.width if view.shrinks else None,
                )
            for row in section.rows:
                grid.add_row(
                    *(
                        Text(style.named(printable(cell)), style=row_style, no_wrap=True, overflow="ellipsis")
                        for cell in row
                    )
                )
            console.print(grid)
        if section.left_out:
            console.print(Text(f"{section.left_out:,} more; use --max-rows to show them", style=style.faint))
    text = "\n".join(line.rstrip(" ") for line in page.getvalue().split("\n"))
    out.write(encodable_bars(text, out.encoding))
