"""``kdissect check``: a capture -> what it contains and how complete it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.help import command
from kdissect.cli.options import color_option, input_options, names_option
from kdissect.cli.run import Query, open_run
from kdissect.cli.terminal import style_of, width
from kdissect.stats.quality import GOOD

if TYPE_CHECKING:
    from kdissect.cli.run import Run
    from kdissect.stats.quality import Check
    from kdissect.stats.survey import Survey

NOT_GOOD = 1  # exit status with --fail

EXAMPLES = """\b
Examples:
  kdissect check capture.pcap
  kdissect check ring-*.pcapng.gz
  kdissect check --json capture.pcap | jq -r .verdict
  tcpdump -i eth0 -w - -c 10000 port 9092 | kdissect check -

The verdict is the worst that applies: empty, no Kafka, lossy, cut (Kafka messages cut by the snapshot
length), one-sided, damaged (a file), partly unread (messages that could not be decoded), good. An exchange
is complete if its request and response were captured and fully decoded. Requests still waiting for a
response when the capture ends are not complete, but do not affect the verdict.
"""


@command(epilog=EXAMPLES)
@input_options
@names_option()
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document (schema: docs/check.schema.json)."
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="Rows per list. [default: 20]",
)
@click.option("--fail", is_flag=True, help="Exit with status 1 unless the verdict is good.")
@color_option
def check(as_json: bool, max_rows: int, fail: bool, color: str, **options: Any) -> None:
    """Report what a capture contains and how complete it is.

    A verdict with reasons and remedies; then files, interfaces and drops, skipped packets, gaps, connections
    that are not Kafka, and messages that could not be decoded, each with an example.
    """
    from kdissect.stats.survey import Survey

    query = Query.take(options).without_latency_parts()
    observer = Survey(query.limits)
    with open_run(query, bar=lambda _: True, observer=observer) as run:
        run.show(run.selected(), observer.exchange)
        document = _appraised(run, observer)
        _write(run, document, max_rows, color, as_json=as_json)
    run.end("exchange")
    if fail and document.verdict != GOOD:
        raise click.exceptions.Exit(NOT_GOOD)


def _appraised(run: Run, observer: Survey) -> Check:
    from kdissect.stats.appraisal import appraise

    totals = run.totals
    return appraise(totals.sources, observer, totals.counts, totals.skipped, totals.problems, totals.notices)


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
