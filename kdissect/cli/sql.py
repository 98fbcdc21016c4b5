"""``kdissect sql``: captures -> tables in a temporary directory -> the result of a query, as text, JSON lines
or CSV.

The tables are those that the query names, which DuckDB knows before there are any rows: so mistakes are found
before a capture is read.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.inputs import absolute
from kdissect.cli.export import write_tables
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, processes
from kdissect.cli.options import (
    CSV_TEXTS,
    at_least,
    color_option,
    combine,
    filter_options,
    input_options,
    names_option,
)
from kdissect.cli.run import end, report, take_query
from kdissect.cli.terminal import ended_by_signals, output, style_of, wide_option, width
from kdissect.errors import OutputError, UsageError
from kdissect.options import BOTH, PARQUET, ExportOptions
from kdissect.phrases import absent, json_writer, many
from kdissect.spark.tables import is_number, rows, views
from kdissect.tables import duck
from kdissect.tables.lines import printable_cells
from kdissect.tables.manifest import Missing, job_of
from kdissect.tables.rows import DEFAULT_TABLES, RECORDS, TABLES
from kdissect.tables.values import json_bytes
from kdissect.text import page
from kdissect.text.page import PageSection, View, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

    from kdissect.runs.run import Query, Run

ROWS = 1000  # on the page, without --max-rows
_BODIES = re.compile(r"\*|\brequest\b|\bresponse\b", re.IGNORECASE)
_SELECT = re.compile(r"\bselect\b", re.IGNORECASE)

EXAMPLES = """\b
Examples:
  kdissect sql capture.pcap "select api, count(*) n, max(latency_us) from exchanges group by api"
  kdissect sql *.pcapng.gz "from partitions select topic, sum(records) group by all order by 2 desc"
  kdissect sql capture.pcap "select key, value from records where topic = 'orders'"
  kdissect sql --json capture.pcap "from groups where event = 'join'" | jq .
  kdissect sql capture.pcap "describe exchanges"

The temporary directory is in $TMPDIR, usually /tmp, and is removed at the end, after Ctrl-C too. It has only
the tables that STATEMENT names. Most of their size are bodies, which are left out unless STATEMENT has a *,
no SELECT, or the words request or response. To query a capture more than once: kdissect export, then spark
sql --engine duckdb.
"""

result_options = combine(
    click.option("--json", "form", flag_value="json", help="JSON lines."),
    click.option("--csv", "form", flag_value="csv", help=f"CSV with a header line. {CSV_TEXTS}"),
    click.option(
        "--max-rows",
        type=at_least(1),
        metavar="N",
        help=f"Maximum rows. [default: {ROWS}; with --json and --csv all]",
    ),
    wide_option,
    color_option,
)
"""How the result of a query is shown."""


@command(epilog=EXAMPLES)
@input_options
@click.argument("statement", metavar="STATEMENT")
@names_option()
@filter_options
@result_options
@jobs_option("Always 1 for stdin.", "The rows are the same.")
def sql(
    statement: str, form: str | None, max_rows: int | None, color: str, jobs: int | None, **options: Any
) -> None:
    """Query captures with SQL.

    Writes the tables that STATEMENT names (as kdissect export does) to a temporary directory and runs DuckDB
    on them. Filters select exchanges. Columns: docs/columns.md, or kdissect spark schema TABLE.
    """
    if (reason := duck.why_not()) is not None:
        raise UsageError(reason)
    if Path(statement).exists():
        raise click.UsageError(f'the last argument is the query: kdissect sql {statement} "select ..."')
    names = _tables_in(statement) or DEFAULT_TABLES
    with (
        ended_by_signals(),
        TemporaryDirectory(prefix="kdissect-sql-") as directory,
        duck.connection() as database,
    ):
        run = _export(take_query(options), Path(directory), names, _has_bodies(statement), jobs)
        views(database, directory)
        with output() as out:
            show(out, duck.sql(database, statement), form, max_rows, color)
    end(run, "exchange")


def _tables_in(statement: str) -> list[str]:
    """The names of the tables that a query is about.

    Raises:
        UsageError: DuckDB rejects the query.
    """
    named = duck.tables_in(statement, {name: known.binary_columns for name, known in TABLES.items()})
    return [name for name in TABLES if name in named]


def _has_bodies(statement: str) -> bool:
    is_all = _SELECT.search(statement) is None  # "from exchanges" has all columns
    return is_all or _BODIES.search(statement.replace("count(*)", "")) is not None


def _export(query: Query, directory: Path, names: Sequence[str], has_bodies: bool, jobs: int | None) -> Run:
    """Write tables of captures. Returns the run, after a report on stderr.

    Raises:
        Exit: Ctrl-C was pressed.
        OutputError: there is no room for them.
    """
    tables = ExportOptions(directory, PARQUET, tables=tuple(names), bodies=BOTH if has_bodies else "none")
    paths = tuple(absolute(path) for path in query.paths)
    query = replace(query, paths=paths, options=replace(query.options, end_to_end=RECORDS in names))
    try:
        result = write_tables(query, tables, job_of(paths, query.options, tables), processes(query, jobs))
    except OutputError as error:
        raise type(error)(f"{error}; TMPDIR names a directory with more room") from None
    assert not isinstance(result, Missing)  # nothing was there before
    run = result[0]
    report(run, run.shown)
    if run.interrupted:
        end(run, "exchange")
    return run


# ------------------------------------------------------------------------------------------------------------
# The result of a query -> text, JSON lines or CSV. Holds the rows of a page.
# ------------------------------------------------------------------------------------------------------------


def show(out: TextIO, frame: Any, form: str | None, max_rows: int | None, color: str) -> None:
    """Write the result.

    Args:
        out: where to.
        frame: a data frame of Spark or DuckDB.
        form: json, csv; None: a page.
        max_rows: most rows; None: ``ROWS`` on a page, otherwise all.
        color: see ``style_of``.

    Raises:
        UsageError: JSON cannot have its columns.
    """
    if form is None:
        _page(out, frame, max_rows or ROWS, color)
    else:
        write = _json if form == "json" else _csv
        write(out, frame.columns, rows(frame, max_rows))


def _json(out: TextIO, names: Sequence[str], result_rows: Iterator[list[Any]]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise click.UsageError(f"two columns are named {twice}; rename one of them: {twice} AS NAME")
    write = json_writer(out)
    for row in result_rows:
        write(json_bytes(dict(zip(names, row, strict=True))) + b"\n")


def _csv(out: TextIO, names: Sequence[str], result_rows: Iterator[list[Any]]) -> None:
    lines = csv.writer(out)
    texts = ([None if value is None else _text(value) for value in row] for row in result_rows)
    lines.writerows(map(printable_cells, chain([names], texts)) if out.isatty() else chain([names], texts))


def _page(out: TextIO, frame: Any, max_rows: int, color: str) -> None:
    result_rows = list(rows(frame, max_rows + 1))
    if frame.columns:
        page.write(
            out, [_section(frame, result_rows, max_rows)], width=width(out), style=style_of(out, color)
        )


def _section(frame: Any, result_rows: Sequence[Sequence[Any]], max_rows: int) -> PageSection:
    def view(index: int, name: str) -> View:
        def cell(row: Sequence[Any]) -> str:
            return absent(None if row[index] is None else _text(row[index]))

        is_right = is_number(frame, index)
        return View(name, cell, right=is_right, shrinks=not is_right)

    views = [view(index, name) for index, name in enumerate(frame.columns)]
    more = (
        (f"first {many(max_rows, 'row')}; use --max-rows to show more",)
        if len(result_rows) > max_rows
        else ()
    )
    return table("", views, result_rows[:max_rows], notes=more if result_rows else ("no rows",))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_bytes(value).decode()
