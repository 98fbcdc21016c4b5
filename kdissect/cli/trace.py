"""``kdissect trace``: exchanges -> a trace for Perfetto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.help import command
from kdissect.cli.options import filter_options, input_options, mode_option, names_option, to_local
from kdissect.cli.run import check_target, end, open_run, replaced, report, take_query
from kdissect.cli.terminal import warn
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.phrases import many, size
from kdissect.query.filters import parse_size
from kdissect.sinks.sink import Each

if TYPE_CHECKING:
    from kdissect.model import Exchange

_MAX_BYTES = "512MB"
EXAMPLES = """\b
Examples:
  kdissect trace capture.pcap -o trace.pftrace
  kdissect trace --client 'orders-*' --since 09:05 --until 09:10 capture.pcap -o trace.pftrace

Open the file at https://ui.perfetto.dev, which reads it in the browser and sends it nowhere. Each broker is
a process with a track for each connection; an exchange is a slice, with the parts of its latency below it.
Arrows lead from a Produce to the Fetches of its batches. Rebalances, lag, transactions and findings have
tracks, too.
"""


def _to_bytes(text: str) -> int:
    try:
        return parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


@command(epilog=EXAMPLES)
@input_options
@names_option()
@filter_options
@click.option(
    "-o", "--output", "target", required=True, callback=to_local, metavar="FILE", help="The trace to write."
)
@click.option(
    "--max-size",
    type=_to_bytes,
    default=_MAX_BYTES,
    show_default=True,
    metavar="SIZE",
    help="Leave out exchanges after this size; the browser has to hold the trace in memory.",
)
@mode_option
def trace(target: str, max_size: int, mode: int | None, **options: Any) -> None:
    """Write a trace for Perfetto: exchanges on a time line.

    Shows when what waited for what: pipelined requests, rebalances, transactions, the way of a batch from its
    producer to its consumers.
    """
    from kdissect.stats.summarizer import Summarizer
    from kdissect.text.perfetto import PerfettoTrace

    query = take_query(options)
    parts = frozenset({"group_history", "transactions", "findings"})
    summarizer = Summarizer(query.limits, parts=parts)
    observer = summarizer.connection_feed(query.limits, filtered=not query.filter.is_empty)
    check_target("-o", target, query.paths, is_capture=False)
    with replaced(target, mode or PRIVATE) as file:
        writer = PerfettoTrace(file, query.limits, max_size)

        def feed(exchange: Exchange) -> None:
            writer.feed(exchange)
            summarizer.feed(exchange)
            observer.exchange(exchange)

        def skip(exchange: Exchange) -> None:
            observer.exchange(exchange, is_selected=False)

        with open_run(query, observer=observer) as run:
            run.into(Each(feed, observer.close, skip=skip))
            check = run.totals.check_document(observer)
            writer.close(summarizer.close(query.paths, run.totals.counts, run.totals.skipped, check))
    report(run, run.shown)
    if writer.left_out:
        warn(f"{many(writer.left_out, 'exchange')} left out after {size(max_size)} (--max-size)")
    end(run, "exchange")
