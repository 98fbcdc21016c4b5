"""``kdissect summary``: exchanges -> one page: totals, then APIs, brokers, clients, topics, errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.gate import REPORTED, fails, gate_options, level_of
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, opener
from kdissect.cli.options import (
    at_least,
    color_option,
    combine,
    complete_words,
    filter_options,
    input_options,
    names_option,
    preference_option,
)
from kdissect.cli.run import end, report, take_query
from kdissect.cli.terminal import output, style_of, wide_option, width
from kdissect.errors import WriteError
from kdissect.nearest import did_you_mean
from kdissect.query.filters import parse_duration
from kdissect.stats.grouped import columns_of
from kdissect.stats.traffic import BY

if TYPE_CHECKING:
    from kdissect.cli.jobs import Opener
    from kdissect.stats.summarizer import Summarizer

ORDERS = ("count", "bytes", "service", "errors", "throttle", "name")
FINDINGS = "findings"
ROWS = 10  # of each table on the page, without --max-rows

EXAMPLES = """\b
Examples:
  kdissect summary capture.pcap
  kdissect summary --by topic --order-by bytes --max-rows 50 *.pcapng.gz
  kdissect summary --by client,topic capture.pcap
  kdissect summary --by client --interval 10s --api Produce capture.pcap
  kdissect summary --versions --fail capture.pcap   exit status 1 if an upgrade would break a client
  kdissect summary --fail-on error capture.pcap     exit status 1 if a finding is an error
  kdissect summary --lag --group 'billing*' capture.pcap
  kdissect summary --sketches monday.jsonl monday.pcap
  kdissect summary --json capture.pcap | jq '.topics[] | [.topic, .producers]'

Percentiles are of service times: how long the broker worked on a request. N is their number. The table
"Waits and delays" has the rest of the latency: requests wait behind earlier ones on their connection, for a
quota, for a retransmission, or for new records and group members. Details: docs/columns.md.
"""


def _to_columns(text: str) -> tuple[str, ...]:
    """Comma-separated names of columns, as for ``spark report --by``.

    Raises:
        click.BadParameter: there is no such column.
    """
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in BY:
            hint = did_you_mean(name, BY)
            raise click.BadParameter(f'cannot group by "{name}"{hint}; known: {", ".join(BY)}')
    return names


def _to_interval(text: str) -> int:
    """A duration in nanoseconds.

    Raises:
        click.BadParameter: it is shorter than a millisecond.
    """
    length_ns = parse_duration(text)
    if length_ns < 1_000_000:
        raise click.BadParameter(f'"{text}" is too short; use 10s, 1m')
    return length_ns


summary_options = combine(
    input_options,
    preference_option,
    names_option(),
    filter_options,
    click.option(
        "--by",
        "columns",
        type=_to_columns,
        multiple=True,
        shell_complete=complete_words(lambda: BY),
        metavar="COLUMN,...",
        help=f"Show only one table, by one column or several: {', '.join(BY)}. Rows count records if there "
        "is a topic, otherwise exchanges.",
    ),
    click.option(
        "--order-by",
        "order",
        type=click.Choice(ORDERS),
        metavar="ORDER",
        help=f"Sort order of rows: {', '.join(ORDERS).replace('service', 'service (P95 of service times)')}.",
    ),
    click.option(
        "--max-rows",
        type=at_least(1),
        metavar="N",
        help=f"Rows per table. [default: {ROWS}; with --json all]",
    ),
    click.option(
        "--interval",
        "interval_ns",
        type=_to_interval,
        metavar="TIME",
        help="Time series with this interval: 10s, 1m, 1h.",
    ),
    click.option(
        "--groups", "group_history", is_flag=True, help="Group members, rebalances and their causes."
    ),
    click.option("--lag", is_flag=True, help="Consumer lag of clients and groups, by partition."),
    click.option(
        "--versions",
        is_flag=True,
        help="Upgrade check: clients using versions that newer Kafka releases reject.",
    ),
    click.option("--transactions", is_flag=True, help="Producers: transactions, fencing, sequence gaps."),
    click.option(
        "--connections",
        "client_connections",
        is_flag=True,
        help="TCP connections of each client to each broker: how they opened and ended, round trips, "
        "retransmissions.",
    ),
    click.option("--findings", is_flag=True, help="Likely problems, with evidence and advice."),
    click.option(
        "--list", "lists_rules", is_flag=True, help="With --findings: describe the rules; needs no FILE."
    ),
    gate_options("a client would break on a newer Kafka (not with --findings)"),
    click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document (schema: docs/summary.schema.json)."
    ),
    click.option(
        "--sketches",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the buckets of service times, waits and totals (both transfers and the latency) to FILE "
        "as JSON lines, which add up with those of other captures.",
    ),
)
"""What is counted, and how it is shown."""


@command(epilog=EXAMPLES)
@summary_options
@jobs_option(
    "Always 1 for stdin.",
    "Which rows a full table keeps may differ; otherwise the output is the same.",
)
@wide_option
@color_option
def summary(jobs: int | None, **options: Any) -> None:
    """Summarize clients, topics, latencies and errors.

    The first screen shows what needs attention: verdicts, findings, groups, errors, unanswered requests. Then
    come tables of APIs, brokers, clients, topics, errors and the slowest exchanges. Memory use does not grow
    with the capture.
    """
    summarize(opener(jobs), **options)


def summarize(
    opened: Opener,
    *,
    columns: tuple[tuple[str, ...], ...],
    order: str | None,
    max_rows: int | None,
    interval_ns: int | None,
    lists_rules: bool,
    fail: bool,
    fail_on: str | None,
    as_json: bool,
    sketches: Path | None,
    color: str,
    **options: Any,
) -> None:
    """Write the summary of the captures that ``opened`` opens to stdout; the rest is as typed."""
    from kdissect.phrases import json_writer
    from kdissect.stats.summarizer import PARTS, Summarizer, full_tables
    from kdissect.stats.views import limited, ordered, viewed
    from kdissect.tables.values import json_document
    from kdissect.text import page, summary_page
    from kdissect.text.overview import overview, verdicts

    parts = frozenset(name for name in PARTS if options.pop(name))
    if lists_rules:
        if FINDINGS not in parts:
            raise click.UsageError("--list needs --findings")
        _list_rules(color, as_json=as_json)
        return
    grouped = columns_of([name for names in columns for name in names])
    by = grouped[0] if len(grouped) == 1 else None
    if len(grouped) > 1 and (interval_ns or sketches is not None):
        raise click.UsageError("--interval and --sketches can be used with only one column of --by")
    query = take_query(options)
    shows_overview = not grouped and not parts and not as_json
    summarizer = Summarizer(
        query.limits,
        by=frozenset({by} if by else ()),
        grouped=grouped if by is None else (),
        parts=frozenset(PARTS) if shows_overview else parts | {FINDINGS},
        interval_ns=interval_ns or 0,
    )
    sink = summarizer.sink(query.options, query.filter)
    observer = sink.connections
    with opened(query, observer) as run:
        run.into(sink)
        totals = run.totals
        check = totals.check_document(observer)
        summary = summarizer.close(query.paths, totals.counts, totals.skipped, check)
        totals.counts["full_tables"] = full_tables(summarizer)
        document = ordered(viewed(summary, grouped, parts), order)
        if as_json:
            json_writer(run.out)(json_document(limited(document, max_rows)))
        else:
            room = width(run.out)
            first = (
                overview(summary, room)
                if shows_overview
                else verdicts(summary, room, shows_reason=FINDINGS not in parts)
            )
            tables = summary_page.sections(
                document,
                limit=max_rows or ROWS,
                order=order,
                has_histogram=by == "api",
                interval_ns=interval_ns or 0,
                by=by,
            )
            page.write(run.out, (first, *tables), width=room, style=style_of(run.out, color))
        if sketches is not None:
            _sketch(sketches, summarizer, by)
    report(run, run.shown)
    end(run, "exchange")
    level = level_of(fail_on, fail=fail)
    breaks = level is not None and summary.versions is not None and summary.versions.rejected
    if breaks or fails(level, summary.health, summary.findings or ()):
        raise click.exceptions.Exit(REPORTED)


def _sketch(path: Path, summarizer: Summarizer, by: str | None) -> None:
    from kdissect.text import summary_page

    try:
        with path.open("wb") as file:
            file.writelines(summary_page.lines(summarizer, by))
    except OSError as error:
        raise WriteError.of(path, error) from None


def _list_rules(color: str, *, as_json: bool) -> None:
    from kdissect.stats.findings.rules import ALL_RULES
    from kdissect.tables.values import json_document
    from kdissect.text import page, summary_page

    rows = [rule.row() for rule in ALL_RULES]
    with output() as out:
        if as_json:
            out.buffer.write(json_document(rows))
        else:
            page.write(out, summary_page.rules(rows), width=width(out), style=style_of(out, color))
