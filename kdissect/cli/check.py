"""``kdissect check``: a capture -> what it contains and how complete it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.gate import REPORTED, fails, gate_options, level_of
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, processes
from kdissect.cli.options import (
    at_least,
    color_option,
    filter_options,
    input_options,
    names_option,
    preference_option,
)
from kdissect.cli.run import end, open_run, report_selection, take_query
from kdissect.cli.terminal import style_of, warn, wide_option, width
from kdissect.stats.quality import GOOD
from kdissect.text.loss_report import loss_lines

if TYPE_CHECKING:
    from kdissect.runs.run import Run
    from kdissect.stats.quality import Check

EXAMPLES = """\b
Examples:
  kdissect check capture.pcap
  kdissect check ring-*.pcapng.gz
  kdissect check --json capture.pcap | jq -r .verdict
  kdissect check --client billing --fail capture.pcap
  tcpdump -i eth0 -w - -c 10000 port 9092 | kdissect check -

The verdict on the capture is the worst that applies: empty, no Kafka, lossy (packets were dropped, or bytes
are missing from Kafka connections), truncated (the snapshot length cut off Kafka messages), one-sided (only
one direction of most Kafka connections), damaged (a file has invalid bytes), partly decoded (some messages
could not be decoded), incomplete (more than 1 in 20 exchanges not fully captured; responses to requests from
before the capture are not counted), good. A request without a response counts as fully captured if the broker
did not send one.

The verdict on the traffic: failing (a finding that is an error, or at least half of the requests unanswered
or with errors), degraded (a warning, or at least 1 in 20 requests unanswered or with errors), good; unknown
if no request was answered or failed, as when only one side was captured. Filters select the exchanges that it
is about; the rest of the page is about the whole capture. kdissect summary shows what led to it.
"""


@command(epilog=EXAMPLES)
@input_options
@preference_option
@names_option()
@filter_options
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document (schema: docs/check.schema.json)."
)
@click.option(
    "--max-rows",
    type=at_least(1),
    default=20,
    metavar="N",
    help="Rows per list. [default: 20]",
)
@gate_options("the capture is not good")
@jobs_option(
    "Always 1 for stdin.", "Which rows a full table keeps may differ; otherwise the output is the same."
)
@wide_option
@color_option
def check(
    as_json: bool,
    max_rows: int,
    fail: bool,
    fail_on: str | None,
    jobs: int | None,
    color: str,
    **options: Any,
) -> None:
    """Report what a capture contains and how complete it is.

    Gives two verdicts, on the capture and on the traffic in it, with reasons and advice; then lists files,
    interfaces and drops, skipped packets, gaps, connections that are not Kafka, and messages that could not
    be decoded, each with an example.
    """
    from kdissect.stats.health import health
    from kdissect.stats.summarizer import HealthCounts, full_tables

    query = take_query(options)
    counts = HealthCounts(query.limits)
    sink = counts.sink(query.options, query.filter)
    with open_run(query, jobs=processes(query, jobs), observer=sink.connections) as run:
        run.into(sink)
        rows = counts.findings.rows()
        document = run.totals.check_document(
            sink.connections, health(rows, counts.load), counts.load.exchanges
        )
        _write(run, document, max_rows, color, as_json=as_json)
    for line in loss_lines({"full_tables": full_tables(counts)}):
        warn(line)
    report_selection(run)
    end(run, "exchange")
    level = level_of(fail_on, fail=fail)
    if fails(level, document.health, rows) or (level is not None and document.verdict != GOOD):
        raise click.exceptions.Exit(REPORTED)


def _write(run: Run, document: Check, max_rows: int, color: str, *, as_json: bool) -> None:
    if as_json:
        from kdissect.phrases import json_writer
        from kdissect.tables.values import json_document

        json_writer(run.out)(json_document(document))
        return
    from kdissect.text import check_page, page

    page.write(
        run.out,
        check_page.sections(document, limit=max_rows),
        width=width(run.out),
        style=style_of(run.out, color),
    )
