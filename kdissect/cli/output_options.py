"""Options that say how exchanges are shown -> a sink for exchanges."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import color_option, combine, complete_columns, csv_option
from kdissect.cli.terminal import style_of, warn, wide_option, width
from kdissect.phrases import json_writer, many
from kdissect.sinks.lines import Count, Lines
from kdissect.sinks.rows import Rows
from kdissect.sinks.sink import Each
from kdissect.text.style import FORMATS, Times
from kdissect.text.table import ExchangeTable, hidden_columns, is_narrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TextIO

    from kdissect.model import Exchange
    from kdissect.runs.run import Query, Run
    from kdissect.sinks.sink import Demand
    from kdissect.tables.columns import Column
    from kdissect.tables.record_bodies import Opener


_TIMES = ", ".join(f"{name}: {text}" for name, text in FORMATS.items())

json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line (keys: kdissect fields)."
)
times_option = click.option(
    "-t",
    "times",
    type=click.Choice(list(FORMATS)),
    help=f"Time format; {_TIMES}. [default: u for lines, otherwise ud]",
)

fields_option = click.option(
    "-e",
    "--fields",
    "fields",
    multiple=True,
    metavar="NAME,...",
    shell_complete=complete_columns,
    callback=lambda _context, _option, texts: tuple(name for text in texts for name in text.split(",")),
    help="Show only these columns, or fields of requests and responses, separated by tabs; as JSON or CSV "
    "with --json or --csv. 'kdissect fields' lists them.",
)

heading_option = click.option(
    "--heading/--no-heading",
    default=None,
    help="Write a line with the column names first. [default: for lines on a terminal]",
)

output_options = combine(
    click.option(
        "-V",
        "tree",
        is_flag=True,
        help="Show all fields, with the meaning of values.",
    ),
    click.option("-x", "show_bytes", is_flag=True, help="Like -V, with the offset and bytes of each field."),
    click.option(
        "--full", is_flag=True, help="With -V and -x: do not truncate long arrays, strings or bytes."
    ),
    click.option(
        "--records",
        "with_records",
        is_flag=True,
        help="With -V, -x, --json and --csv: decode record batches and show their records.",
    ),
    json_option,
    csv_option,
    fields_option,
    heading_option,
    wide_option,
    click.option(
        "--wireshark-filter",
        "as_filter",
        is_flag=True,
        help="Show Wireshark's display filter for the packets of these exchanges: with --exchange, of one.",
    ),
    click.option(
        "--request-log",
        "as_log",
        is_flag=True,
        help="One JSON object per exchange, as in the request log of Kafka's brokers (KIP-673).",
    ),
    click.option("-q", "--quiet", is_flag=True, help="Show only a count of exchanges."),
    times_option,
    color_option,
)
"""How exchanges are shown."""


def check_exclusive(ways: Mapping[str, bool]) -> None:
    """Raise a usage error if several mutually exclusive options were chosen.

    Args:
        ways: whether each was chosen, by option.
    """
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} are mutually exclusive")


def time_formatter(out: TextIO, name: str | None, first_ns: int | None, *, is_table: bool) -> Times:
    """Return the time format of this name. None: no date in lines. Narrow lines have only milliseconds."""
    return Times(
        name or ("u" if is_table else "ud"),
        first_ns=first_ns,
        digits=3 if is_table and is_narrow(width(out)) else 6,
        in_column=is_table,
    )


def are_rows_independent(out: TextIO | None, times: str | None) -> bool:
    """Whether each row can be written without the previous ones, so that several processes can write them."""
    return out is not None and times not in ("d", "dd")


def has_heading(choice: bool | None, out: TextIO) -> bool:
    """Whether lines have a heading: not in a pipe, where it would count as a line."""
    return out.isatty() if choice is None else choice


def check_heading(choice: bool | None, *, is_possible: bool) -> None:
    """Raise a usage error if the output has no heading that can be chosen."""
    if choice is not None and not is_possible:
        raise click.UsageError("--heading and --no-heading are for lines and --fields")


def report_hidden(columns: int) -> None:
    """Report on stderr how many columns lines had no room for."""
    if columns:
        warn(f"{many(columns, 'column')} hidden; --wide shows all")


class ExchangeOutput(NamedTuple):
    """The values of ``output_options``."""

    tree: bool
    show_bytes: bool
    full: bool
    with_records: bool
    as_json: bool
    as_csv: bool
    fields: tuple[str, ...]
    heading: bool | None
    as_filter: bool
    as_log: bool
    quiet: bool
    times: str | None
    color: str

    @classmethod
    def take(cls, options: dict[str, Any], others: dict[str, bool] | None = None) -> ExchangeOutput:
        """Remove ``output_options`` from a command's options and return their values.

        Args:
            options: of the command.
            others: other options of the command that exclude these: whether each was chosen, by option.

        Raises:
            UsageError: two exclusive options were chosen, or --records without one that shows records.
        """
        output = cls(**{name: options.pop(name) for name in cls._fields})
        output._check(others or {})
        return output

    def time_formatter(self, out: TextIO, first_ns: int | None) -> Times:
        """Return the time format."""
        return time_formatter(out, self.times, first_ns, is_table=self.is_table)

    def can_run_in_parallel(self, out: TextIO | None) -> bool:
        """Whether several processes can format the exchanges independently."""
        return not (self.quiet or self.as_filter) and are_rows_independent(out, self.times)

    def report_hidden(self, run: Run) -> None:
        """Report on stderr how many columns were hidden, if there were lines."""
        if self.is_table and run.shown:
            report_hidden(hidden_columns(width(sys.stdout)))

    @property
    def is_table(self) -> bool:
        """Whether exchanges are shown as lines of text."""
        others = (
            self.tree,
            self.show_bytes,
            self.as_json,
            self.as_csv,
            self.fields,
            self.as_filter,
            self.as_log,
            self.quiet,
        )
        return not any(others)

    def sink(
        self,
        out: TextIO,
        times: Times,
        query: Query,
        demand: Demand,
        *,
        flush: bool,
        by_request: bool = False,
        check: Callable[[Exchange], object] | None = None,
    ) -> Each:
        """Return the sink. Other writers than the table are imported only when chosen, to start fast.

        Args:
            out: of the writer.
            times: of the writer. Exchanges that are not selected count for time differences.
            query: its limits, and whether credentials are shown.
            demand: of the sink.
            flush: after each exchange.
            by_request: whether exchanges come in order of request.
            check: called before an exchange is written.
        """

        def skip(exchange: Exchange) -> None:
            times.skip(exchange.time_ns)

        hooks: Any = {"check": check, "skip": skip}
        if self.quiet:
            from kdissect.text.table import ExchangeTally

            return Count(ExchangeTally(out, width=width(out)), demand, **hooks)
        opener = _opener(query) if self.with_records else None
        columns = _columns(opener, self.fields) if self.as_json or self.as_csv or self.fields else ()
        if self.as_json:
            from kdissect.tables.lines import JsonLines

            return Rows(JsonLines(json_writer(out), columns=columns, flush_each=flush), demand, **hooks)
        if self.as_csv:
            from kdissect.tables.lines import CsvLines

            is_terminal = out.isatty()
            rows = CsvLines(out.buffer.write, columns=columns, flush_each=flush, is_terminal=is_terminal)
            return Rows(rows, demand, **hooks)
        if self.as_filter:
            from kdissect.text.wireshark import display_filters

            return Each(*display_filters(out.write), **hooks)
        if self.as_log:
            from kdissect.tables.lines import JsonLines
            from kdissect.tables.request_log import entry
            from kdissect.tables.values import json_line

            log = JsonLines(json_writer(out), flush_each=flush)
            return Each(lambda exchange: log.add(json_line(entry(exchange))), log.close, **hooks)
        if self.fields:
            from kdissect.tables.lines import FieldLines

            fields = FieldLines(out, columns, times.text if self.times else None, heading=bool(self.heading))
            return Rows(fields, demand, **hooks)
        style = style_of(out, self.color)
        if self.tree or self.show_bytes:
            from kdissect.text.tree import ExchangeTree

            tree = ExchangeTree(
                out,
                times,
                style=style,
                show_bytes=self.show_bytes,
                full=self.full,
                width=width(out),
                show_secrets=query.options.show_secrets,
                opener=opener,
            )
            return Each(tree.feed, tree.close, divide=tree.divide, **hooks)
        heading = has_heading(self.heading, out)
        table = ExchangeTable(
            out, times, width=width(out), style=style, heading=heading, by_request=by_request
        )
        return Lines(table, demand, **hooks)

    def _check(self, others: dict[str, bool]) -> None:
        detail = self.tree or self.show_bytes
        ways = {
            "-V or -x": detail,
            "--json": self.as_json,
            "--csv": self.as_csv,
            "--wireshark-filter": self.as_filter,
            "--request-log": self.as_log,
            "-q": self.quiet,
        }
        check_exclusive(ways | others)
        check_exclusive({"--fields": bool(self.fields), "-V or -x": detail, "-q": self.quiet} | others)
        if self.fields:
            _columns(None, self.fields)  # fails here rather than while reading
        is_text = not (self.as_json or self.as_csv)
        check_heading(self.heading, is_possible=self.is_table or bool(self.fields and is_text))
        if self.with_records and not (detail or self.as_json or self.as_csv):
            raise click.UsageError(
                "--records needs -V, -x, --json or --csv; for one line per record: kdissect records"
            )


def _opener(query: Query) -> Opener:
    from kdissect.tables.record_bodies import Opener  # imports every codec

    return Opener(query.options.show_secrets, query.limits)


def _columns(opener: Opener | None, fields: Sequence[str]) -> Sequence[Column]:
    from kdissect.tables.columns import EXCHANGE, selected

    columns: Sequence[Column] = EXCHANGE
    if opener is not None:
        from kdissect.tables.record_bodies import with_records

        columns = with_records(opener)
    return selected(fields, columns) if fields else columns
