"""``kdissect read``: exchanges of a capture as lines, trees, JSON or CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import filter_options, input_options, to_exchange_id
from kdissect.cli.running import Asked, running
from kdissect.cli.terminal import wants_colour, width
from kdissect.sinks.columns import EXCHANGE
from kdissect.sinks.csvlines import CsvLines
from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.table import Table, is_narrow
from kdissect.sinks.tally import Tally
from kdissect.sinks.times import FORMATS, Times
from kdissect.sinks.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol, TextIO

    from kdissect.model import Exchange
    from kdissect.sinks.columns import Column
    from kdissect.sinks.opened import Opener

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
  kdissect read -V --records --api Fetch -c 1 capture.pcap
  kdissect read --api Fetch --topic 'orders-*' --slower-than 50ms *.pcapng.gz
  kdissect read --error '*' -t ad capture.pcap
  kdissect read --where 'api == "Fetch" and latency_us > 50000' capture.pcap
  kdissect read --where '"NOT_LEADER_OR_FOLLOWER" in errors' capture.pcap
  kdissect read --where 'request.topics.partitions.fetch_offset > 5' capture.pcap
  kdissect read --json capture.pcap | jq .latency_us
  kdissect read --error '*' -w failed.pcapng capture.pcap
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
    with_records: bool
    as_json: bool
    as_csv: bool
    quiet: bool
    target: str | None
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
            "-w": self.target is not None,
        }
        chosen = [name for name, is_chosen in ways.items() if is_chosen]
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
        if self.with_records and not (detail or self.as_json or self.as_csv):
            raise click.UsageError("--records goes with -V, -x, --json or --csv; for lines: kdissect records")


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
    "--records",
    "with_records",
    is_flag=True,
    help="With -V, -x, --json and --csv: open the batches, and show the records in them.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line; docs/columns.md tells the keys."
)
@click.option("--csv", "as_csv", is_flag=True, help="The same columns as CSV.")
@click.option("-q", "--quiet", is_flag=True, help="Show no exchange, only count them.")
@click.option(
    "-w",
    "target",
    metavar="FILE",
    help="Show nothing, but write the connections found, with all their packets, to a pcapng file, which is "
    "overwritten if it exists; - is stdout. What comes through a pipe is kept in a temporary file meanwhile. "
    "Connections on which credentials passed are left out, unless --show-secrets is given.",
)
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
    if look.target is not None:
        from kdissect.cli.writing import write

        write(asked, look.target, count)
        return
    with running(asked, bar=lambda out: look.quiet or not out.isatty()) as run:
        times = _times(look, run.out, run.first_ns)
        sink = _sink(look, run.out, times, asked)
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


def _sink(look: Look, out: TextIO, times: Times, asked: Asked) -> Sink:
    if look.quiet:
        return Tally(out)
    opener = _opener(asked) if look.with_records else None
    if look.as_json or look.as_csv:
        machine = JsonLines if look.as_json else CsvLines
        return machine(out.buffer.write, columns=_columns(opener), flush_each=look.flush)
    colour = wants_colour(out, look.colour)
    if look.tree or look.show_bytes:
        return Tree(
            out,
            times,
            colour=colour,
            show_bytes=look.show_bytes,
            whole=look.full,
            show_secrets=asked.show_secrets,
            opener=opener,
        )
    return Table(out, times, width=width(out), colour=colour)


def _opener(asked: Asked) -> Opener:
    from kdissect.sinks.opened import Opener  # and with it every codec, which other ways do not need

    return Opener(asked.show_secrets, asked.limits)


def _columns(opener: Opener | None) -> Sequence[Column]:
    if opener is None:
        return EXCHANGE
    from kdissect.sinks.recordbodies import with_records

    return with_records(opener)
