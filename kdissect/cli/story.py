"""``kdissect story``: a subject and the exchanges that concern it -> lines or a sequence diagram."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.help import command
from kdissect.cli.options import color_option, filter_options, input_options, names_option
from kdissect.cli.output_options import check_exclusive, report_hidden, time_formatter, times_option
from kdissect.cli.run import end, open_run, report, take_query
from kdissect.cli.terminal import style_of, warn, wide_option, width
from kdissect.errors import UsageError
from kdissect.phrases import many
from kdissect.query.subjects import RECORD, parse_subject
from kdissect.sinks.sink import Each

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from kdissect.query.subjects import Subject
    from kdissect.text.story import Entry, Note
    from kdissect.text.style import Times

EXAMPLES = """\b
Examples:
  kdissect story group:billing capture.pcap
  kdissect story client:checkout-7 capture.pcap
  kdissect story txn:payments-1 --diagram capture.pcap
  kdissect story topic:orders *.pcapng.gz
  kdissect story record:orders-3@1041 capture.pcap   from its producer to replicas and consumers
  kdissect story group:billing --mermaid capture.pcap > billing.mmd

Exchanges that a client repeats without an error, such as heartbeats, empty fetches or commits, share one
line until something else happens. AFTER is the time since the exchange on the previous line was sent; if
that line covers several exchanges, since the last of them completed ("-" if none did). "*" marks
rebalances, transactions and idle time.

The story of a record shows when its producer sent it, when replicas and consumers received it (here a
Fetch is listed at the time of its response), and each group's first commit past it.
"""


def _to_subject(text: str) -> Subject:
    """See ``parse_subject``.

    Raises:
        click.BadParameter: the string has none of the forms.
    """
    try:
        return parse_subject(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


@command(epilog=EXAMPLES)
@click.argument("subject", type=_to_subject, metavar="SUBJECT")
@input_options
@filter_options
@names_option()
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object per line: an exchange, a run of repeated exchanges, or a note.",
)
@click.option("--diagram", is_flag=True, help="Draw a sequence diagram, with a column for each participant.")
@click.option("--mermaid", is_flag=True, help="Write a sequence diagram for Mermaid.")
@times_option
@wide_option
@color_option
def story(
    subject: Subject,
    as_json: bool,
    diagram: bool,
    mermaid: bool,
    times: str | None,
    color: str,
    **options: Any,
) -> None:
    """Show what happened to one group, client, transaction, topic or record.

    SUBJECT is group:G, client:C, txn:ID, topic:T or record:T-P@OFFSET. Shows all exchanges that
    involve it, on any connection, in chronological order. Filters narrow the list.
    """
    from kdissect.text.story import Story

    check_exclusive({"--json": as_json, "--diagram": diagram, "--mermaid": mermaid})
    query = take_query(options)
    is_shown = query.filter
    query = replace(
        query, filter=subject.filter(), options=replace(query.options, end_to_end=subject.kind == RECORD)
    )
    collected = Story(subject, query.limits)
    with open_run(query) as run:
        if run.first_ns is not None:
            is_shown.begin(run.first_ns)
        run.into(Each(lambda exchange: collected.feed(exchange, is_shown=is_shown.matches(exchange))))
        rows = collected.close()
        form = partial(time_formatter, run.out, times, run.first_ns, is_table=True)
        if as_json:
            _write_json(rows, run.out)
        elif mermaid:
            from kdissect.text.sequence_diagram import mermaid as lines_of

            run.out.writelines(f"{line}\n" for line in lines_of(rows, style_of(run.out, color)) if rows)
        elif not (diagram and _is_drawn(rows, run.out, form(), color)):
            _write_lines(rows, run.out, form(), color)
    report(run, collected.exchanges + collected.hidden)
    if collected.hidden and not collected.exchanges:
        warn(f"the filters exclude all {many(collected.hidden, 'exchange')} of {subject.kind} {subject.name}")
    end(run, "exchange")


def _write_json(rows: Sequence[Entry | Note], out: TextIO) -> None:
    from kdissect.phrases import json_writer
    from kdissect.tables.values import json_line
    from kdissect.text.story import json_row

    write = json_writer(out)
    for row in rows:
        write(json_line(json_row(row)))


def _is_drawn(rows: Sequence[Entry | Note], out: TextIO, times: Times, color: str) -> bool:
    """Draw the diagram, if it fits."""
    from kdissect.text.sequence_diagram import text_diagram
    from kdissect.text.story import names_of

    columns = width(out)
    lines = text_diagram(rows, times, width=columns, style=style_of(out, color)) if rows else []
    if lines is None:
        participants = many(len(names_of(rows)), "participant")
        warn(f"{participants} do not fit side by side in {columns} columns; --mermaid has no limit")
        return False
    out.writelines(f"{line}\n" for line in lines)
    return True


def _write_lines(rows: Sequence[Entry | Note], out: TextIO, times: Times, color: str) -> None:
    from kdissect.text.story import Note, StoryTable, names_of

    if not rows:
        return
    style = style_of(out, color)
    table = StoryTable(out, times, names_of(rows), width=width(out), style=style, heading=out.isatty())
    for row in rows:
        if isinstance(row, Note):
            table.note(row)
        else:
            table.feed(row)
    report_hidden(table.hidden)
