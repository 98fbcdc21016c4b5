"""Sections of text cells -> a page for people: headings, and tables with the columns that fit."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from kdissect.phrases import (
    ABSENT,
    columns_of,
    duration,
    encodable_bars,
    many,
    printable,
    truncate,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from kdissect.text.style import Style

_UNBOUNDED = 10_000  # columns where nothing is truncated
_GAP = 2  # between columns
IPV4, IPV4_PORT = len("255.255.255.255"), len("255.255.255.255:65535")  # terminal columns
_NAME = 24  # columns of a name that must be shown, before there is room for columns that need not


@dataclass(frozen=True, slots=True)
class View:
    """A column of a table for people.

    Attributes:
        cell: makes the text from a row.
        right: whether to align right, for numbers.
        keep: whether to show it even if that leaves no room for others.
        shrinks: whether a page cuts its cells if the terminal is too narrow; other columns are never cut.
        is_rare: whether the column is left out of a table in which all its cells would be absent.
        width: in terminal columns; on a page the minimum of a column that shrinks.
        note: what to know about the column; a line above the first table that shows the column.
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
    notes: tuple[str, ...] = (),
    left_out: int = 0,
) -> PageSection:
    """A table of rows.

    Args:
        title: of the section.
        views: its columns.
        rows: all rows, except ``left_out``.
        limit: how many to show; None: all.
        notes: lines above the table.
        left_out: number of rows that the caller has already left out.
    """
    if are_of_several_clusters(rows):
        views = (_CLUSTER, *views)
    shown = [
        view for view in views if not (view.is_rare and all(view.cell(row) == ABSENT for row in rows[:limit]))
    ]
    cells = [[view.cell(row) for view in shown] for row in rows[:limit]]
    return PageSection(title, shown, cells, notes, left_out + len(rows) - len(cells))


def are_of_several_clusters(rows: Sequence[Any]) -> bool:
    """Whether rows must be shown with their cluster."""
    from kdissect.stats.document import OfCluster  # with all rows of a summary, which take long to load

    clusters = {getattr(row, "cluster_id", None) for row in rows}
    return len(clusters - {None}) > 1 or (len(clusters) > 1 and isinstance(rows[0], OfCluster))


def number(value: int | None) -> str:
    """A count, an offset: ``1,234``."""
    return ABSENT if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """A duration."""
    return ABSENT if value is None else duration(round(value * 1e9))


def fitting(views: Sequence[View], cells: Sequence[Sequence[str]], width: int | None) -> dict[int, int]:
    """The columns that fit: those with ``keep``, then others from the left. One that shrinks needs only its
    minimum, and gets a fair share of the room that is left. Columns in which all cells are absent are last.

    Returns:
        The width of each, by its index.
    """
    usual, minimal = {}, {}
    for index, view in enumerate(views):
        texts = (printable(view.heading), *(row[index] for row in cells))
        usual[index] = max(map(columns_of, texts))
        smallest = max(view.width, *map(len, view.heading.split(" "))) if view.shrinks else usual[index]
        minimal[index] = min(usual[index], smallest)
    if width is None:
        return usual
    empty = {index for index in minimal if all(row[index] == ABSENT for row in cells)}
    kept = [index for index, view in enumerate(views) if view.keep and index not in empty]
    widths = {index: max(minimal[index], min(usual[index], _NAME)) for index in kept}
    room = width + _GAP - sum(columns + _GAP for columns in widths.values())
    if room < 0:  # only these, with all the room there is
        widths = {index: minimal[index] for index in kept}
    for index, columns in minimal.items():
        if index not in widths and index not in empty and columns + _GAP <= room:
            widths[index] = columns
            room -= columns + _GAP
    room -= sum(usual[index] - columns for index, columns in widths.items())
    for index in sorted(empty - widths.keys()):
        if usual[index] + _GAP <= room:
            widths[index] = usual[index]
            room -= usual[index] + _GAP
    widths = widths or {0: minimal[0]}
    room = width + _GAP - sum(columns + _GAP for columns in widths.values())
    while room > 0 and (short := [index for index in widths if widths[index] < usual[index]]):
        widths[min(short, key=widths.__getitem__)] += 1
        room -= 1
    while room < 0 and max(widths.values()) > 1:  # what must be shown is too wide
        widths[max(widths, key=widths.__getitem__)] -= 1
        room += 1
    return dict(sorted(widths.items()))


def _hidden(counts: Sequence[tuple[str, int]]) -> str:
    """A line about columns that did not fit, by title of their table."""
    columns = many(sum(count for _, count in counts), "column")
    tables = f"{len(counts)} tables" if len(counts) > 1 else counts[0][0]
    return f"{columns}{f' of {tables}' * bool(tables)} hidden; --wide shows all"


def write(out: TextIO, sections: Iterable[PageSection], *, width: int | None, style: Style) -> None:
    """Write the page.

    Args:
        out: owned by the caller.
        sections: what to write. At the end, a line says how many columns did not fit.
        width: columns of the terminal; None: any number.
        style: of headings and notes, and names of hosts.
    """
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    page = StringIO()  # because rich handles a closed pipe differently from kdissect
    console = Console(
        file=page,
        width=(width or _UNBOUNDED) + _GAP,  # after the last column
        force_terminal=style.is_colored,
        no_color=not style.is_colored,
        color_system="standard" if style.is_colored else None,
        highlight=False,
        soft_wrap=False,
        legacy_windows=False,
    )
    is_first = True
    hidden: list[tuple[str, int]] = []
    explained: set[str] = set()
    for section in sections:
        if not is_first:
            console.print()
        is_first = False
        if section.title:
            for line in wrapped(style.named(printable(section.title)), width):
                console.print(Text(truncate(line, width or _UNBOUNDED), style=style.heading), soft_wrap=True)
        cells = [[style.named(printable(cell)) for cell in row] for row in section.rows]
        fits = fitting(section.views, cells, width) if cells else {}
        if cells and len(fits) < len(section.views):
            hidden.append((section.title, len(section.views) - len(fits)))
        of_columns = dict.fromkeys(section.views[index].note for index in fits)
        notes = (*section.notes, *(note for note in of_columns if note and note not in explained))
        explained |= of_columns.keys()
        looks = section.styles or ["faint" if section.is_dim else ""] * len(notes)
        for note, look in zip(notes, looks, strict=True):
            for line in wrapped(style.named(printable(note)), width, "  " if note.startswith("- ") else ""):
                console.print(Text(line, style=style.looks[look]), soft_wrap=True)
        if cells:
            row_style = style.faint if section.is_dim else ""
            grid = RichTable(box=None, pad_edge=True, padding=(0, _GAP, 0, 0), header_style=style.faint)
            for index, columns in fits.items():
                view = section.views[index]
                grid.add_column(
                    Text(printable(view.heading), no_wrap=True, overflow="ellipsis"),
                    justify="right" if view.right else "left",
                    width=columns,
                )
            for row in cells:
                grid.add_row(
                    *(Text(row[index], style=row_style, no_wrap=True, overflow="ellipsis") for index in fits)
                )
            console.print(grid)
        if section.left_out:
            console.print(Text(f"{section.left_out:,} more; use --max-rows to show them", style=style.faint))
    if hidden:
        console.print()
        for line in wrapped(_hidden(hidden), width):
            console.print(Text(line, style=style.faint), soft_wrap=True)
    text = "\n".join(line.rstrip(" ") for line in page.getvalue().split("\n"))
    out.write(encodable_bars(text, out.encoding))
