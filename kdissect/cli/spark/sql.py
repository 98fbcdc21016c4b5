"""``kdissect spark sql``: a SQL query on tables -> its result as text, JSON lines or CSV."""

from __future__ import annotations

import csv
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.help import command
from kdissect.cli.options import CSV_TEXTS, at_least, color_option
from kdissect.cli.spark import target_options
from kdissect.cli.spark.report import addresses, check_engine
from kdissect.cli.spark.target_options import DUCKDB, SPARK
from kdissect.cli.terminal import output, style_of, wide_option, width
from kdissect.phrases import absent, json_writer, many
from kdissect.spark.tables import is_number, is_spark, rows, views
from kdissect.tables import duck
from kdissect.tables.lines import printable_cells
from kdissect.tables.values import json_bytes
from kdissect.text import page
from kdissect.text.page import PageSection, View, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

ROWS = 1000  # on the page, without --max-rows

EXAMPLES = """\b
Examples:
  kdissect spark sql tables "select api, count(*) n, max(latency_us) from exchanges group by api"
  kdissect spark sql tables "select topic, sum(records) from partitions group by all order by 2 desc"
  kdissect spark sql --json tables "select * from groups where event = 'join'" | jq .
  kdissect spark sql tables "select distinct parse_json(response):cluster_id::string from exchanges"
  kdissect spark sql tables "show tables"
  kdissect spark sql --engine duckdb tables "select api, count(*) from exchanges group by all"
"""


@command(epilog=EXAMPLES)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.argument("statement", metavar="STATEMENT")
@click.option("--json", "form", flag_value="json", help="JSON lines.")
@click.option("--csv", "form", flag_value="csv", help=f"CSV with a header line. {CSV_TEXTS}")
@click.option(
    "--max-rows",
    type=at_least(1),
    metavar="N",
    help=f"Maximum rows. [default: {ROWS}; with --json and --csv all]",
)
@click.option(
    "--engine",
    type=click.Choice([SPARK, DUCKDB]),
    default=SPARK,
    show_default=True,
    help="Engine and SQL dialect; DuckDB starts sooner, and needs neither Spark nor Java.",
)
@wide_option
@color_option
@target_options.spark_options
def sql(
    directories: tuple[str, ...],
    statement: str,
    form: str | None,
    max_rows: int | None,
    engine: str,
    color: str,
    **options: Any,
) -> None:
    """Query tables with SQL.

    DIR is a directory written by kdissect export or kdissect spark decode; each of its tables can be queried
    by name. With several, or a pattern such as 'days/*', a table has the rows of all. Columns:
    docs/columns.md, or kdissect spark schema TABLE.
    """
    spark_target, log = target_options.take(options)
    where = addresses(directories, spark_target)
    check_engine(engine, where)
    with output() as out, target_options.engine(engine, spark_target, log) as session:
        views(session, where)
        frame = session.sql(statement) if is_spark(session) else duck.sql(session, statement)
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
