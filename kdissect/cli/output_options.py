"""How exchanges are shown: options of the commands that show them -> a sink. Holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import colour_option, csv_option, together
from kdissect.cli.terminal import wants_colour, width
from kdissect.phrases import json_writer
from kdissect.text.style import FORMATS, Times
from kdissect.text.table import ExchangeTable, is_narrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol, TextIO

    from kdissect.cli.run import Query
    from kdissect.model import Exchange
    from kdissect.tables.columns import Column
    from kdissect.tables.record_bodies import Opener

    class ExchangeSink(Protocol):
        """Where exchanges end."""

        def feed(self, exchange: Exchange) -> None:
            """Show one."""

        def close(self) -> None:
            """Show what is left."""


_TIMES = "; ".join(f"{name}: {text}" for name, text in FORMATS.items())

json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line (keys: docs/columns.md)."
)
times_option = click.option(
    "-t",
    "times",
    type=click.Choice(list(FORMATS)),
    metavar="FORMAT",
    help=f"Time format. {_TIMES}.",
)

look_options = together(
    click.option(
        "-V",
        "tree",
        is_flag=True,
        help="Show all fields of requests and responses, with the meaning of values.",
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
    click.option("-q", "--quiet", is_flag=True, help="Show only a count of exchanges."),
    times_option,
    colour_option,
)
"""How exchanges are shown."""


def refuse_two(ways: Mapping[str, bool]) -> None:
    """Refuse mutually exclusive ways to show rows: by option, whether it was chosen."""
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} are mutually exclusive")


def clock(out: TextIO, name: str | None, first_ns: int | None, *, is_tree: bool) -> Times:
    """The time format of this name; None: what fits. A line on a terminal has no date, on a narrow one no
    fraction beyond milliseconds.
    """
    columns_of_terminal = None if is_tree else width(out)
    usual = "ud" if columns_of_terminal is None else "u"
    return Times(name or usual, first_ns=first_ns, digits=3 if is_narrow(columns_of_terminal) else 6)


def needs_no_other(out: TextIO | None, times: str | None, *, is_table: bool) -> bool:
    """Whether a row can be written without those before it, so that several processes can share them."""
    return out is not None and times not in ("d", "dd") and not (is_table and out.isatty())


class ExchangeOutput(NamedTuple):
    """How exchanges are shown, as the options say it."""

    tree: bool
    show_bytes: bool
    full: bool
    with_records: bool
    as_json: bool
    as_csv: bool
    quiet: bool
    times: str | None
    colour: str

    @classmethod
    def take(cls, options: dict[str, Any], others: dict[str, bool] | None = None) -> ExchangeOutput:
        """Take its own out of a command's options, and leave those of the command.

        Args:
            options: of the command.
            others: ways of the command's own that exclude these, by option, and whether they were chosen.

        Raises:
            UsageError: two ways were chosen, or --records without one that shows them.
        """
        look = cls(**{name: options.pop(name) for name in cls._fields})
        look._check(others or {})
        return look

    def clock(self, out: TextIO, first_ns: int | None) -> Times:
        """What writes times."""
        return clock(out, self.times, first_ns, is_tree=self.tree or self.show_bytes)

    def can_be_shared(self, out: TextIO | None) -> bool:
        """Whether several processes can show them: none needs to know what another one shows."""
        is_table = not (self.tree or self.show_bytes or self.as_json or self.as_csv or self.quiet)
        return not self.quiet and needs_no_other(out, self.times, is_table=is_table)

    def sink(self, out: TextIO, times: Times, query: Query, *, flush: bool) -> ExchangeSink:
        """What shows them; ``flush`` each at once. Lines begin at once: what shows other things is imported
        when it is chosen.
        """
        if self.quiet:
            from kdissect.text.table import ExchangeTally

            return ExchangeTally(out)
        opener = _opener(query) if self.with_records else None
        if self.as_json:
            from kdissect.tables.lines import JsonLines

            return JsonLines(json_writer(out), columns=_columns(opener), flush_each=flush)
        if self.as_csv:
            from kdissect.tables.lines import CsvLines

            columns = _columns(opener)
            return CsvLines(out.buffer.write, columns=columns, flush_each=flush, is_terminal=out.isatty())
        colour = wants_colour(out, self.colour)
        if self.tree or self.show_bytes:
            from kdissect.text.tree import ExchangeTree

            return ExchangeTree(
                out,
                times,
                colour=colour,
                show_bytes=self.show_bytes,
                whole=self.full,
                show_secrets=query.options.show_secrets,
                opener=opener,
            )
        return ExchangeTable(out, times, width=width(out), colour=colour)

    def _check(self, others: dict[str, bool]) -> None:
        detail = self.tree or self.show_bytes
        ways = {"-V or -x": detail, "--json": self.as_json, "--csv": self.as_csv, "-q": self.quiet}
        refuse_two(ways | others)
        if self.with_records and not (detail or self.as_json or self.as_csv):
            raise click.UsageError(
                "--records needs -V, -x, --json or --csv; for one line per record: kdissect records"
            )


def _opener(query: Query) -> Opener:
    from kdissect.tables.record_bodies import Opener  # and with it every codec, which other ways do not need

    return Opener(query.options.show_secrets, query.limits)


def _columns(opener: Opener | None) -> Sequence[Column]:
    if opener is None:
        from kdissect.tables.columns import EXCHANGE

        return EXCHANGE
    from kdissect.tables.record_bodies import with_records

    return with_records(opener)
