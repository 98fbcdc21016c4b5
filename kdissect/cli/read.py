"""``kdissect read``: exchanges of a capture as lines, trees, JSON or CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import filter_options, input_options, to_exchange_id
from kdissect.cli.running import Asked, running
from kdissect.cli.terminal import wants_colour, width
from kdissect.sinks.csvlines import CsvLines
from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.table import Table, is_narrow
from kdissect.sinks.tally import Tally
from kdissect.sinks.times import FORMATS, Times
from kdissect.sinks.tree import Tree

if TYPE_CHECKING:
    from typing import Protocol, TextIO

    from kdissect.model import Exchange

    class Sink(Protocol):
        """Where exchanges end."""

        def feed(self, exchange: Exchange) -> None:
            """Show one."""

        def close(self) -> None:
            """Show what is left."""


EXAMPLES = """\b
Examples:
  kdissect read capture.pcap
  kdissect read -V --exchange 1f0c9a2be4d7/12 capture.pcap
  kdissect read --api Fetch --topic 'orders-*' --slower-than 50ms *.pcapng.gz
  kdissect read --error '*' -t ad capture.pcap
  kdissect read --where 'api == "Fetch" and latency_us > 50000' capture.pcap
  kdissect read --where '"NOT_LEADER_OR_FOLLOWER" in errors' capture.pcap
  kdissect read --where 'request.topics.partitions.fetch_offset > 5' capture.pcap
  kdissect read --json capture.pcap | jq .latency_us
  tcpdump -i eth0 -U -w - port 9092 | kdissect read -l -

The line of an exchange has its time, client, broker, client id, api and version, latency (or "no
answer", "acks=0", "orphan"), what it was about, the errors in the response, and anomalies after "!".
A terminal too narrow for that shows less; a file or a pipe gets all of it.
"""

_TIMES = "; ".join(f"{name}: {text}" for name, text in FORMATS.items())


class Look(NamedTuple):
    """How exchanges are shown, as the options say it."""

    tree: bool
    show_bytes: bool
    full: bool
    as_json: bool
    as_csv: bool
    quiet: bool
    times: str | None
    flush: bool
    colour: str

    def check(self) -> None:
        """Refuse two ways at once."""
        detail = self.tree or self.show_bytes
        ways = {
            "-V or -x": detail,
            "--json": self.as_json,
            "--csv": self.as_csv,
            "-q": self.quiet,
        }
        chosen = [name for name, is_chosen in ways.items() if is_chosen]
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} exclude each other")


@click.command(epilog=EXAMPLES)
@input_options
@filter_options
@click.option(
    "--exchange",
    "exchanges",
    multiple=True,
    type=to_exchange_id,
    metavar="CONNECTION/NUMBER",
    help="This exchange alone.",
)
@click.option(
    "-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after N exchanges were shown."
)
@click.option(
    "-V", "tree", is_flag=True, help="Show every field of request and response, and what values mean."
)
@click.option("-x", "show_bytes", is_flag=True, help="The same, with the offset and the bytes of each field.")
@click.option("--full", is_flag=True, help="With -V and -x: cut no long array, text or bytes.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line; docs/columns.md tells the keys."
)
@click.option("--csv", "as_csv", is_flag=True, help="The same columns as CSV.")
@click.option("-q", "--quiet", is_flag=True, help="Show no exchange, only count them.")
@click.option(
    "-t",
    "times",
    type=click.Choice(list(FORMATS)),
    metavar="FORMAT",
    help=f"How times are written. {_TIMES}.",
)
@click.option(
    "-l", "flush", is_flag=True, help="Write each exchange at once, for a pipe that somebody watches."
)
@click.option(
    "--color",
    "--colour",
    "colour",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)
def read(count: int | None, **options: Any) -> None:
    """Show what Kafka clients and brokers said in a capture.

    FILE is pcap or pcapng, plain or compressed by gzip, zstd or lz4; - is stdin. Several files are one
    capture, merged by time. Kafka is recognised on any port.
    """
    asked = Asked.take(options)
    look = Look(**options)
    look.check()
    with running(asked, bar=lambda out: look.quiet or not out.isatty()) as run:
        times = _times(look, run.out, run.first_ns)
        sink = _sink(look, run.out, times, show_secrets=asked.show_secrets)
        selected = run.selected(lambda exchange: times.pass_over(exchange.time_ns))
        run.show(selected, sink.feed, count, flush=look.flush)
        sink.close()
    run.tell(run.shown)
    run.end("exchange")


def _times(look: Look, out: TextIO, first_ns: int | None) -> Times:
    """The time format asked for; else what fits: a terminal gets no date, a narrow one no microseconds."""
    columns_of_terminal = width(out)
    is_line = not (look.tree or look.show_bytes)
    usual = "u" if is_line and columns_of_terminal is not None else "ud"
    digits = 3 if is_line and is_narrow(columns_of_terminal) else 6
    return Times(look.times or usual, first_ns=first_ns, digits=digits)


def _sink(look: Look, out: TextIO, times: Times, *, show_secrets: bool) -> Sink:
    if look.quiet:
        return Tally(out)
    if look.as_json:
        return JsonLines(out.buffer.write, flush_each=look.flush)
    if look.as_csv:
        return CsvLines(out.buffer.write, flush_each=look.flush)
    colour = wants_colour(out, look.colour)
    if look.tree or look.show_bytes:
        return Tree(
            out, times, colour=colour, show_bytes=look.show_bytes, whole=look.full, show_secrets=show_secrets
        )
    return Table(out, times, width=width(out), colour=colour)
