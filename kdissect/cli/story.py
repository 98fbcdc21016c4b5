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
from kdissect.exchanges.learned import Listeners
from kdissect.model import Endpoint
from kdissect.options import WINDOW
from kdissect.phrases import many
from kdissect.query.subjects import RECORD, parse_subject
from kdissect.sinks.sink import Each

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from kdissect.model import Exchange
    from kdissect.query.subjects import Subject
    from kdissect.runs.run import Query
    from kdissect.text.story import Entry, Note
    from kdissect.text.style import Times

EXAMPLES = """\b
Examples:
  kdissect story group:billing capture.pcap
  kdissect story client:checkout-7 capture.pcap
  kdissect story txn:payments-1 --diagram capture.pcap
  kdissect story topic:orders *.pcapng.gz
  kdissect story record:orders-3@1041 capture.pcap   from its producer to replicas and consumers
  kdissect story broker:3 capture.pcap               by node ID; or broker:10.0.0.9:9092
  kdissect story host:10.0.0.7 capture.pcap
  kdissect story quorum capture.pcap                 elections, and brokers that join
  kdissect story group:billing --html capture.pcap > billing.html   a diagram for a browser

The first lines are the verdict: what happened, since when, and why, according to the findings about these
exchanges and their connections ("kdissect summary --findings" has advice), or that the evidence does not
decide.

Exchanges that a client repeats without an error, such as heartbeats, empty fetches or commits, share one
line until something else happens. AFTER is the time since the exchange on the previous line was sent; if
that line covers several exchanges, since the last of them completed ("-" if none did). "*" marks
rebalances, transactions and idle time; for a broker or host, also its connections.

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
@click.option("--svg", is_flag=True, help="Write a sequence diagram as an SVG picture.")
@click.option("--html", is_flag=True, help="Write a sequence diagram as a page of HTML.")
@times_option
@wide_option
@color_option
def story(
    subject: Subject,
    as_json: bool,
    diagram: bool,
    mermaid: bool,
    svg: bool,
    html: bool,
    times: str | None,
    color: str,
    **options: Any,
) -> None:
    """Show what happened to a group, client, transaction, topic, record, broker, host or quorum.

    SUBJECT is group:G, client:C, txn:ID, topic:T, record:T-P@OFFSET, broker:N, host:IP or quorum. Shows all
    exchanges that involve it, on any connection, in chronological order. Filters narrow the list, but not the
    verdict.
    """
    from kdissect.text.story import Story

    check_exclusive(
        {"--json": as_json, "--diagram": diagram, "--mermaid": mermaid, "--svg": svg, "--html": html}
    )
    query = take_query(options)
    is_shown = query.filter
    if subject.is_node:
        subject = subject._replace(addresses=_addresses(subject.name, query))
    query = replace(
        query, filter=subject.filter(), options=replace(query.options, end_to_end=subject.kind == RECORD)
    )
    collected = Story(subject, query.limits)
    log = collected.connection_feed

    def feed(exchange: Exchange) -> None:
        collected.feed(exchange, is_shown=is_shown.matches(exchange))
        log.exchange(exchange)

    def skip(exchange: Exchange) -> None:
        collected.skip(exchange)
        log.exchange(exchange, is_selected=False)

    with open_run(query, observer=log) as run:
        if run.first_ns is not None:
            is_shown.begin(run.first_ns)
        run.into(Each(feed, skip=skip))
        rows = collected.close()
        opening = [collected.verdict(rows)] if rows else []
        form = partial(time_formatter, run.out, times, run.first_ns, is_table=True)
        if as_json:
            _write_json([*opening, *rows], run.out)
        elif mermaid:
            from kdissect.text.sequence_diagram import mermaid as lines_of

            run.out.writelines(
                f"{line}\n" for line in lines_of([*opening, *rows], style_of(run.out, color)) if rows
            )
        elif rows and (svg or html):
            from kdissect.text import sequence_drawing

            draw = sequence_drawing.svg if svg else sequence_drawing.html
            title = f"Story of {subject.kind} {subject.name}"
            run.out.write(draw(rows, opening[0], form(), title, style_of(run.out, color)))
        elif rows:
            _write(rows, opening[0], run.out, form, color, as_diagram=diagram)
    report(run, collected.exchanges + collected.hidden + collected.connections)
    if collected.hidden and not collected.exchanges:
        warn(f"the filters exclude all {many(collected.hidden, 'exchange')} of {subject.kind} {subject.name}")
    end(run, "exchange")


def _addresses(node_id: str, query: Query) -> frozenset[str]:
    """Where a broker is, by its node ID.

    Raises:
        click.UsageError: the input cannot be read twice.
    """
    from kdissect.query.filters import build
    from kdissect.stats.cluster import NODE_APIS, Cluster
    from kdissect.stats.facts import Facts

    if not query.are_files:
        raise click.UsageError("broker:N reads the input twice, so it needs files; use broker:HOST:PORT")
    cluster, brokers = Cluster(query.limits), Listeners(query.limits)
    naming = replace(query, filter=build(api=sorted(NODE_APIS)), options=replace(query.options, names=WINDOW))

    def feed(exchange: Exchange) -> None:
        brokers.add(exchange.connection.broker)
        cluster.feed(Facts(exchange))

    with open_run(naming) as run:
        run.into(Each(feed, skip=lambda exchange: brokers.add(exchange.connection.broker)))
    ends = {str(end): cluster.node(str(end)) for end in brokers}
    ends |= {
        str(Endpoint(node.host, node.port)): node for node in cluster.nodes.values()
    }  # nobody reached it
    return frozenset(end for end, node in ends.items() if node is not None and str(node.id) == node_id)


def _write_json(rows: Sequence[Entry | Note], out: TextIO) -> None:
    from kdissect.phrases import json_writer
    from kdissect.tables.values import json_line
    from kdissect.text.story import json_row

    write = json_writer(out)
    for row in rows:
        write(json_line(json_row(row)))


def _write(
    rows: Sequence[Entry | Note],
    verdict: Note,
    out: TextIO,
    times: Callable[[], Times],
    color: str,
    *,
    as_diagram: bool,
) -> None:
    """Write the verdict, then a diagram if it fits, otherwise lines."""
    from kdissect.text.sequence_diagram import text_diagram
    from kdissect.text.story import Note, StoryTable, names_of, verdict_lines

    columns, style, names = width(out), style_of(out, color), names_of(rows)
    out.writelines(verdict_lines(verdict, times(), columns, style))
    if as_diagram:
        lines = text_diagram(rows, times(), width=columns, style=style)
        if lines is not None:
            out.writelines(f"{line}\n" for line in lines)
            return
        participants = many(len(names), "participant")
        warn(f"{participants} do not fit side by side in {columns} columns; --mermaid has no limit")
    table = StoryTable(out, times(), names, width=columns, style=style, heading=out.isatty())
    for row in rows:
        if isinstance(row, Note):
            table.note(row)
        else:
            table.feed(row)
    report_hidden(table.hidden)
