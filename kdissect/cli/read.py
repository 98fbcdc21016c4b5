"""``kdissect read``: exchanges of a capture as lines, trees, JSON or CSV."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.analysis import filters
from kdissect.analysis.where import compile_where
from kdissect.capture.reader import open_capture
from kdissect.cli import closing
from kdissect.cli.options import (
    CRITERIA,
    ExchangeId,
    all_ports,
    filter_options,
    input_options,
    to_exchange_id,
)
from kdissect.cli.readable import Readable
from kdissect.cli.showing import show
from kdissect.cli.terminal import INTERRUPTED, check_stdin, output, progress, wants_colour, warn, width
from kdissect.pipeline import dissect
from kdissect.sinks import columns
from kdissect.sinks.csvlines import CsvLines
from kdissect.sinks.jsonlines import JsonLines
from kdissect.sinks.phrases import many
from kdissect.sinks.table import Table, is_narrow
from kdissect.sinks.tally import Tally
from kdissect.sinks.times import FORMATS, Times
from kdissect.sinks.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
def read(
    files: tuple[str, ...],
    also_files: tuple[str, ...],
    decode_as: tuple[frozenset[int], ...],
    ports: tuple[frozenset[int], ...],
    show_secrets: bool,
    no_progress: bool,
    where: str | None,
    exchanges: tuple[ExchangeId, ...],
    count: int | None,
    **options: Any,
) -> None:
    """Show what Kafka clients and brokers said in a capture.

    FILE is pcap or pcapng, plain or compressed by gzip, zstd or lz4; - is stdin. Several files are one
    capture, merged by time. Kafka is recognised on any port.
    """
    paths = (*also_files, *files)
    if not paths:
        raise click.UsageError("no FILE was named; - is stdin")
    if "-" in paths:
        check_stdin()
    criteria = {name: options.pop(name) for name in CRITERIA}
    wanted = filters.build(**criteria, where=compile_where(where, columns.resolve) if where else None)
    look = Look(**options)
    look.check()
    with open_capture(*paths) as capture, output() as out:
        shows_bar = not no_progress and (look.quiet or not out.isatty())
        with progress(capture, wanted=shows_bar) as packets:
            readable = Readable(packets)
            first = next(readable, None)
            times = _times(look, out)
            if first is not None:
                times.first_ns = first.time_ns
                wanted.begin(first.time_ns)
            dissection = dissect(
                chain(() if first is None else (first,), readable),
                ports=all_ports(ports),
                kafka_ports=all_ports(decode_as),
                show_secrets=show_secrets,
            )
            sink = _sink(look, out, times, show_secrets=show_secrets)
            selected = _select(dissection, wanted, frozenset(exchanges), times)
            shown, is_interrupted = show(selected, sink.feed, count, out.flush if look.flush else None)
        sink.close()  # behind the bar's own line
    if readable.fault is not None:
        warn(f"warning: {readable.fault}; what follows was not read")
    is_complete = not is_interrupted and shown != count
    closing.close(capture, dissection, shown=shown, complete=is_complete, unmet=wanted.unmet)
    if is_interrupted:
        packets_read = many(dissection.counts["packets"], "packet")
        warn(f"interrupted after {packets_read}, {many(shown, 'exchange')} shown")
        raise click.exceptions.Exit(INTERRUPTED)


def _times(look: Look, out: TextIO) -> Times:
    """The time format asked for; else what fits: a terminal gets no date, a narrow one no microseconds."""
    columns_of_terminal = width(out)
    is_line = not (look.tree or look.show_bytes)
    usual = "u" if is_line and columns_of_terminal is not None else "ud"
    return Times(look.times or usual, digits=3 if is_line and is_narrow(columns_of_terminal) else 6)


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


def _select(
    found: Iterable[Exchange], wanted: filters.Filter, ids: frozenset[ExchangeId], times: Times
) -> Iterator[Exchange]:
    is_first = True
    for exchange in found:
        is_meant = not ids or (exchange.connection.id, exchange.number) in ids
        if is_meant and wanted.matches(exchange):
            is_first = False
            yield exchange
            continue
        times.pass_over(exchange.time_ns)
        if is_first:
            wanted.pass_over(exchange)
