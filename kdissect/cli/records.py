"""``kdissect records``: what was produced and fetched: lines, trees, JSON, CSV, or a file for each record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from kdissect.cli.listening import Given, interface_options, listening, take_wanted
from kdissect.cli.looks import clock, json_option, needs_no_other, refuse_two, times_option
from kdissect.cli.options import (
    colour_option,
    csv_option,
    exchange_option,
    filter_options,
    input_options,
    mode_option,
    to_local,
)
from kdissect.cli.running import Asked, Selection, running
from kdissect.cli.sharing import jobs_option, processes
from kdissect.cli.terminal import wants_colour, warn, width
from kdissect.files import PRIVATE
from kdissect.limits import live
from kdissect.phrases import json_writer, many
from kdissect.tables.columns import RECORD
from kdissect.tables.lines import CsvLines, RecordLines
from kdissect.tables.record_files import RecordFiles
from kdissect.text.table import RecordTable, RecordTally

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol, TextIO

    from kdissect.cli.sharing import SharedRun
    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.model import Exchange
    from kdissect.query.record_filters import RecordFilter
    from kdissect.query.records import Records
    from kdissect.text.style import Times

    class Sink(Protocol):
        """Where records end."""

        def feed(self, record: CarriedRecord) -> None:
            """Show one."""

        def close(self) -> None:
            """Show what is left."""


MOST_UNREADABLE = 20

EXAMPLES = """\b
Examples:
  kdissect records capture.pcap
  kdissect records --topic orders --partition 3 --offset 1000..1999 capture.pcap
  kdissect records --produced --key 'customer-7*' --header trace-id=4bf92f capture.pcap
  kdissect records -V --topic orders --offset 1000 capture.pcap
  kdissect records --trace 4bf92f3577b34da6a3ce929d0e0e4736 capture.pcap
  kdissect records --topic images --unique -o images/ capture.pcap
  kdissect records --control --api Fetch capture.pcap
  kdissect records --json --unique capture.pcap | jq -r .value
  kdissect records --topic __consumer_offsets capture.pcap
  kdissect records -i eth0 --produced --topic orders

The line of a record has the time of its request, api, partition, offset, key and value; "-" stands for null
and for an offset that no response told. Behind them stand the id of the registered schema that the value
begins with, the trace that headers name, "aborted", and after "!" what was wrong with the batch.

-o DIR writes DIR/TOPIC/PARTITION/OFFSET.value, beside it OFFSET.key where there is a key, and an empty
OFFSET.null in place of a null value. Where no response tells the offset, the name is CONNECTION-NUMBER-PLACE:
the exchange, and the record's place in it. What was seen before is not written again; credentials never are,
unless --show-secrets. DIR must be empty or new.
"""


@click.command(epilog=EXAMPLES)
@input_options
@interface_options
@filter_options
@exchange_option("What this exchange alone carried.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="A key, or a pattern: 'customer-*'.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Has a header of this name, and of this value; both can be patterns.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="ID",
    help="Belongs to this trace: by its headers traceparent, b3, X-B3-TraceId or sw8.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="ID",
    help="Value or key is written in this schema of a registry: an id, or a GUID.",
)
@click.option(
    "--offset", "offsets", multiple=True, metavar="A..B", help="5, 5..9, 5.. or ..9; both ends are inside."
)
@click.option(
    "--control/--no-control",
    default=None,
    help="Only, or none of, the marks of transactions and of KRaft.",
)
@click.option("--produced", is_flag=True, help="Only what clients sent.")
@click.option("--fetched", is_flag=True, help="Only what brokers sent, to clients or to each other.")
@click.option(
    "--unique", is_flag=True, help="Show the first only of those with the same topic, partition and offset."
)
@click.option("-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after N records were shown.")
@click.option("-V", "tree", is_flag=True, help="Show all that is known of each record, as a small tree.")
@click.option("--full", is_flag=True, help="With -V: cut no long text, bytes or headers.")
@json_option
@csv_option
@click.option(
    "-o",
    "folder",
    type=click.Path(),
    callback=to_local,
    metavar="DIR",
    help="Write values and keys to files of their own, as they are; see below.",
)
@mode_option
@click.option("-q", "--quiet", is_flag=True, help="Show no record, only count them.")
@times_option
@jobs_option("One process does what has to know of all: --unique, -o, -q, -t d and dd, lines on a terminal.")
@click.option(
    "-l", "flush", is_flag=True, help="Write each record at once, for a pipe that somebody watches."
)
@colour_option
def records(count: int | None, jobs: int | None, **options: Any) -> None:
    """Show the records that were produced and fetched.

    Batches are decompressed, and their checksums compared. Records of Kafka's own topics are decoded,
    credentials in them withheld. The filters for exchanges say which requests and responses are looked into.
    With -i no FILE is read: records are shown as they pass an interface.
    """
    from kdissect.query.record_filters import RecordFilter, Wanted
    from kdissect.query.records import Records

    wanted = take_wanted(options)
    asked = Asked.take(options) if wanted is None else _asked(options)
    look = Look(**{name: options.pop(name) for name in Look._fields})
    look.check()
    topics, partitions = asked.criteria["topic"], asked.criteria["partition"]
    are_meant = RecordFilter(Wanted(topics=topics, partitions=partitions, **options), asked.limits)
    found = Records(are_meant, asked.limits, show_secrets=asked.show_secrets)
    can_share = wanted is None and not options["unique"] and look.can_be_shared
    jobs = processes(asked, jobs, by_default=not (count or look.flush), ever=can_share)
    if jobs > 1:
        shared = _share(asked, look, found, are_meant, jobs, count)
        _tell(found, shared.shown, complete=shared.complete)
        shared.end("record")
        return
    opened = (
        listening(asked, Given(wanted))
        if wanted is not None
        else running(asked, bar=lambda out: look.is_silent or not out.isatty())
    )
    with opened as run:
        times = clock(run.out, look.times, run.first_ns, is_tree=look.tree)
        sink = _sink(look, run.out, times)
        selected = run.selected(lambda exchange: times.pass_over(exchange.time_ns))
        if isinstance(sink, RecordLines) and are_meant.takes_all and not (count or look.flush):
            run.show(found.batches(selected), sink.feed_batch, size=len)
        else:
            run.show(found.of(selected), sink.feed, count, flush=look.flush)
        sink.close()
    run.tell(found.exchanges)
    _tell(found, run.shown, complete=run.complete)
    if forgotten := are_meant.forgotten:
        places = many(forgotten, "record")
        warn(
            f"--unique forgot {places}, shown again if they came again; --limits unique_records=N keeps more"
        )
    if isinstance(sink, RecordFiles):
        warn(sink.told())
    run.end("record")


def _share(
    asked: Asked, look: Look, found: Records, are_meant: RecordFilter, jobs: int, count: int | None
) -> SharedRun:
    """Several processes show them; ``found`` is told what they found."""
    from kdissect.cli.sharing import sharing
    from kdissect.parallel.worker import Page, Text

    with sharing(asked, bar=lambda out: not out.isatty()) as run:
        page = cast("Any", Page(run.out))
        sink: Any = _sink(look, page, clock(run.out, look.times, run.first_ns, is_tree=look.tree))
        is_whole = isinstance(sink, RecordLines) and are_meant.takes_all and not count

        def rows(exchange: Exchange) -> Iterable[tuple[int, Any]]:
            if is_whole:
                return ((len(batch), batch) for batch in found.batches((exchange,)))
            return ((1, record) for record in found.of((exchange,)))

        feed = sink.feed_batch if is_whole else sink.feed
        work = Text(Selection(asked), page, feed, rows, cuts=bool(count), end=found.told)
        run.write(jobs, page, sink, work, count)
    for told in run.made:
        found.add(told)
    run.tell(found.exchanges)
    return run


def _asked(options: dict[str, Any]) -> Asked:
    """What is asked of an interface, which is shown as it comes."""
    files, also_files = options.pop("files"), options.pop("also_files")
    if files or also_files:
        raise click.UsageError("-i listens to an interface, and reads no FILE")
    del options["no_progress"]
    options |= {"limits": live(options["limits"]), "flush": True}
    return Asked.live(options)


class Look(NamedTuple):
    """How records are shown, as the options say it."""

    tree: bool
    full: bool
    as_json: bool
    as_csv: bool
    folder: str | None
    mode: int | None
    quiet: bool
    times: str | None
    flush: bool
    colour: str

    @property
    def is_silent(self) -> bool:
        """Whether nothing is written to stdout while records come."""
        return self.quiet or self.folder is not None

    @property
    def can_be_shared(self) -> bool:
        """Whether several processes can show them: none needs to know what another one shows."""
        is_table = not (self.is_silent or self.tree or self.as_json or self.as_csv)
        return not self.is_silent and needs_no_other(sys.stdout, self.times, is_table=is_table)

    def check(self) -> None:
        """Refuse two ways at once."""
        refuse_two(
            {
                "-V": self.tree,
                "--json": self.as_json,
                "--csv": self.as_csv,
                "-o": self.folder is not None,
                "-q": self.quiet,
            }
        )
        if self.mode is not None and self.folder is None:
            raise click.UsageError("--mode goes with -o DIR")


def _sink(look: Look, out: TextIO, times: Times) -> Sink:
    if look.quiet:
        return RecordTally(out)
    if look.folder is not None:
        return RecordFiles(Path(look.folder), look.mode or PRIVATE)
    if look.as_json:
        return RecordLines(json_writer(out), flush_each=look.flush)
    if look.as_csv:
        is_terminal = out.isatty()
        return CsvLines(out.buffer.write, columns=RECORD, flush_each=look.flush, is_terminal=is_terminal)
    colour = wants_colour(out, look.colour)
    if look.tree:
        from kdissect.text.tree import RecordTree

        return RecordTree(out, times, colour=colour, whole=look.full)
    return RecordTable(out, times, width=width(out), colour=colour)


def _tell(found: Records, shown: int, *, complete: bool) -> None:
    """Say what was wrong with batches, and that there was nothing to show."""
    for text in found.unreadable[:MOST_UNREADABLE]:
        warn(f"no readable record: {text}")
    if (more := found.unread - len(found.unreadable[:MOST_UNREADABLE])) > 0:
        warn(f"{more:,} more {'batch' if more == 1 else 'batches'} like these")
    if found.unfinished_snapshots:
        warn(f"a slice is missing of {many(found.unfinished_snapshots, 'snapshot')}")
    if found.anomalies:
        counted = sorted(found.anomalies.items(), key=lambda item: (-item[1], item[0]))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counted)
        warn(f"wrong or odd in record batches: {kinds}")
    if complete and found.exchanges and not shown:
        warn(f"no such record in {many(found.exchanges, 'exchange')}")
