"""``kdissect plot``: exchanges -> one chart as an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, opener
from kdissect.cli.options import at_least, filter_options, input_options, mode_option, names_option
from kdissect.cli.report import read_and_write
from kdissect.cli.terminal import warn

if TYPE_CHECKING:
    from kdissect.cli.report import Document

KINDS = (
    *("overview", "findings", "throughput", "bytes", "latency", "distribution", "waits", "errors"),
    *("by-broker", "by-client", "by-topic", "by-group"),
    *("anomalies", "retransmissions", "lost", "connections", "matrix", "lifetimes", "lag"),
    *("groups", "transactions"),
)
"""Names of charts: those of ``text.charts.KINDS``, which takes a second to load."""
FORMS = ("svg", "png", "pdf")

EXAMPLES = """\b
Examples:
  kdissect plot latency -o p99.svg capture.pcap
  kdissect plot errors --topic orders -o errors.png capture.pcap
  kdissect plot throughput --width 1200 -o throughput.pdf *.pcapng.gz

The charts are those of kdissect report. Needs the extra report.
"""


def _to_image(text: str) -> Path:
    """A file that is named after a format.

    Raises:
        click.BadParameter: it is not.
    """
    path = Path(text)
    if path.suffix[1:].lower() not in FORMS:
        raise click.BadParameter(f'"{text}" must end in .svg, .png or .pdf')
    return path


@command(epilog=EXAMPLES)
@click.argument("chart", type=click.Choice(KINDS), metavar="KIND")
@input_options
@names_option()
@filter_options
@click.option(
    "-o", "--output", type=_to_image, required=True, metavar="FILE",
    help="File to write; its name ends in .svg, .png or .pdf.",
)  # fmt: skip
@click.option(
    "--width",
    type=at_least(100),
    default=900,
    show_default=True,
    metavar="PIXELS",
    help="Width of the chart.",
)
@mode_option
@jobs_option("Always 1 for stdin.")
def plot(chart: str, output: Path, width: int, mode: int | None, jobs: int | None, **options: Any) -> None:
    """Draw one chart: SVG, PNG or PDF.

    KIND is what to show over time: overview (exchanges and errors), findings, throughput (exchanges by API),
    bytes (by API), latency (percentiles of service times), distribution (of service times), waits, errors,
    by-broker, by-client and by-group (exchanges), by-topic (bytes of records), anomalies, retransmissions,
    lost (bytes missing from the capture), connections (opened and ended), lifetimes (of connections), lag,
    groups (rebalances and generations), transactions; or matrix (client hosts x brokers).
    """
    from kdissect.text import charts

    def write(document: Document) -> bytes:
        drawn = charts.chart(chart, document.summary)
        if drawn is None:
            warn(f"nothing to draw: no {chart} in the exchanges that were read")
            return b""  # and no file
        return charts.drawn(drawn, output.suffix[1:].lower(), width)

    read_and_write(output, mode, write, options, opener(jobs))
