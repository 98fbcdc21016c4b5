"""``kdissect report``: exchanges -> one page of HTML for a ticket: verdicts, findings, charts, tables."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli import run as runs
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, opener
from kdissect.cli.options import filter_options, input_options, mode_option, names_option, to_exchange_id
from kdissect.cli.run import check_target, end, open_run, replaced, take_query
from kdissect.cli.terminal import style_of
from kdissect.files import PRIVATE
from kdissect.options import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kdissect.cli.jobs import Opener
    from kdissect.model import Exchange
    from kdissect.runs.run import Query
    from kdissect.stats.document import EvidenceRow, Summary
    from kdissect.stats.quality import Check

EXAMPLES = """\b
Examples:
  kdissect report -o report.html capture.pcap
  kdissect report -o report.html --open --since 09:05 --until 09:20 *.pcapng.gz
  kdissect report --format json -o report.json capture.pcap

The page is one file that needs no network, at most 3 MB: verdicts, findings, charts with one time axis,
tables that can be sorted and filtered, and the quality of the capture. Needs the extra report.
"""


_EVIDENCE = 250  # exchanges that are read again
_SLOWEST = 50  # exchanges whose latency is drawn


class Document(NamedTuple):
    """What is known of captures; ``evidence``: the exchanges that findings name, if files were read."""

    summary: Summary
    check: Check
    evidence: Sequence[EvidenceRow]


@command(epilog=EXAMPLES)
@input_options
@names_option()
@filter_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
    help="File to write.",
)  # fmt: skip
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json"]),
    default="html",
    show_default=True,
    help="html: the page. json: what is in it, as in summary --json and check --json.",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@mode_option
@jobs_option("Always 1 for stdin.")
def report(output: Path, form: str, opens: bool, mode: int | None, jobs: int | None, **options: Any) -> None:
    """Write a page for a ticket: verdicts, findings, charts and tables.

    Credentials are redacted as everywhere. Memory use does not grow with the capture, and neither does the
    page: it has the first rows of each table, and the sum of the others.
    """
    if form == "json":
        from kdissect.tables.values import json_document

        def write(document: Document) -> bytes:
            return json_document(document._asdict())

        read_and_write(output, mode, write, options, opener(jobs), slowest=_SLOWEST, needs_evidence=True)
    else:
        write_page(output, options, opener(jobs), mode, needs_evidence=True)
    if opens:
        click.launch(output.absolute().as_uri())


def write_page(
    output: Path,
    options: dict[str, Any],
    opened: Opener,
    mode: int | None = None,
    *,
    needs_evidence: bool = False,
) -> None:
    """Write the page; see ``read_and_write``."""
    from kdissect.text.report_page import page

    def write(document: Document) -> bytes:
        return page(*document, style_of(sys.stdout, "never")).encode()

    read_and_write(output, mode, write, options, opened, slowest=_SLOWEST, needs_evidence=needs_evidence)


def read_and_write(
    output: Path,
    mode: int | None,
    write: Callable[[Document], bytes],
    options: dict[str, Any],
    opened: Opener,
    *,
    slowest: int = 0,
    needs_evidence: bool = False,
) -> None:
    """Write what a function makes of a ``Document`` to a file.

    Args:
        output: the file.
        mode: its permissions; None: only the owner can read it.
        write: the function.
        options: ``input_options`` and ``filter_options``, which are removed.
        opened: opens captures.
        slowest: number of exchanges with the longest service times.
        needs_evidence: whether files are read again, as far as the last exchange that findings name.
    """
    from kdissect.stats.intervals import MAX_INTERVALS, SHORTEST_NS
    from kdissect.stats.summarizer import PARTS, Summarizer, full_tables

    query = take_query(options)
    check_target("-o", str(output), query.paths, is_capture=False)
    summarizer = Summarizer(
        query.limits,
        parts=frozenset(PARTS),
        interval_ns=SHORTEST_NS,
        max_intervals=MAX_INTERVALS,
        slowest=slowest,
    )
    sink = summarizer.sink(query.options, query.filter)
    observer = sink.connections
    with (
        replaced(str(output), mode or PRIVATE) as file,
        opened(query, observer) as run,
    ):
        run.into(sink)
        totals = run.totals
        check = totals.check_document(observer)
        summary = summarizer.close(query.paths, totals.counts, totals.skipped, check)
        assert summary.health is not None
        check.health = summary.health
        check.counts = {name: count for name, count in sorted(check.counts.items()) if count}  # as with -j 2
        reads_again = needs_evidence and query.are_files and not run.interrupted
        evidence = _evidence(query, summary, summarizer.learned.topics) if reads_again else []
        file.write(write(Document(summary, check, evidence)))
        totals.counts["full_tables"] = full_tables(summarizer)
    runs.report(run, run.shown)
    end(run, "exchange")


def _evidence(query: Query, summary: Summary, topics: Mapping[str, tuple[str, int]]) -> list[EvidenceRow]:
    """The exchanges that the first findings name, in the same order. ``topics``: see ``LearnedFacts``."""
    from kdissect.query.filters import build
    from kdissect.sinks.sink import Each
    from kdissect.stats.facts import Facts
    from kdissect.stats.rows import evidence

    named = dict.fromkeys(each for row in summary.findings or () for each in row.evidence if "/" in each)
    ids = list(named)[:_EVIDENCE]
    rows: dict[str, EvidenceRow] = {}
    names = {topic_id: name for topic_id, (name, _) in topics.items()}

    def keep(exchange: Exchange) -> None:
        row = evidence(Facts(exchange), names)
        rows[row.exchange] = row

    if ids:
        limits = replace(query.limits, naming_window_ns=0)  # names are known
        exchanges = frozenset(map(to_exchange_id, ids))
        chosen = replace(query.options, exchanges=exchanges, names=WINDOW, limits=limits)
        again = replace(query, options=chosen, filter=build(where=None))
        with open_run(again) as run:
            run.into(Each(keep), len(ids))
    return [rows[each] for each in ids if each in rows]
