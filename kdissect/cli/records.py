"""``kdissect records``: what was produced and fetched: lines, trees, JSON, CSV, or a file for each record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from kdissect.cli.listening import LiveOptions, interface_options, listening, take_wanted
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
from kdissect.cli.running import Query, Selection, running
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

    class RecordSink(Protocol):
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

Each line shows one record: time of its request, API, partition, offset, key and value; "-" stands for null
and for an unknown offset. Then, if present: the schema id of the value, the trace id from its headers,
"aborted", and after "!" anomalies of its batch.

-o DIR writes values to DIR/TOPIC/PARTITION/OFFSET.value, keys to OFFSET.key, and an empty OFFSET.null for a
null value. If the offset is unknown, the name is CONNECTION-NUMBER-INDEX: the exchange, and the index of the
record in it. Duplicates are written once; credentials are not written without --show-secrets. DIR must be
empty or new.
"""


@click.command(epilog=EXAMPLES)
@input_options
@interface_options
@filter_options
@exchange_option("Only records carried by this exchange.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Key or pattern: 'customer-*'.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Records with this header, or this header and value; both can be patterns.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="ID",
    help="Records of this trace: by the headers traceparent, b3, X-B3-TraceId or sw8.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="ID",
    help="Records whose key or value has this registered schema: an id or a GUID.",
)
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="A..B",
    help="Offset or inclusive range: 5, 5..9, 5.. or ..9.",
)
@click.option(
    "--control/--no-control",
    default=None,
    help="Only control records (transaction markers, KRaft), or none of them.",
)
@click.option("--produced", is_flag=True, help="Only records sent by clients.")
@click.option("--fetched", is_flag=True, help="Only records sent by brokers, to clients or to each other.")
@click.option(
    "--unique", is_flag=True, help="Show only the first of records with the same topic, partition and offset."
)
@click.option("-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after showing N records.")
@click.option("-V", "tree", is_flag=True, help="Show each record as a tree, with all its fields.")
@click.option("--full", is_flag=True, help="With -V: do not truncate long strings, bytes or headers.")
@json_option
@csv_option
@click.option(
    "-o",
    "folder",
    type=click.Path(),
    callback=to_local,
    metavar="DIR",
    help="Write keys and values to separate files, unchanged; see below.",
)
@mode_option
@click.option("-q", "--quiet", is_flag=True, help="Show only a count of records.")
@times_option
@jobs_option("These use one process: --unique, -o, -q, -t d and dd, lines on a terminal.")
@click.option("-l", "flush", is_flag=True, help="Flush after each record (line-buffered).")
@colour_option
def records(count: int | None, jobs: int | None, **options: Any) -> None:
    """Show the records that were produced and fetched.

    Batches are decompressed and their checksums verified. Records of Kafka's internal topics are decoded,
    with credentials redacted. The exchange filters select the requests and responses to search. With -i,
    records are captured from an interface instead of FILE.
    """
    from kdissect.query.record_filters import RecordCriteria, RecordFilter
    from kdissect.query.records import Records

    wanted = take_wanted(options)
    query = Query.take(options) if wanted is None else _of_interface(options)
    look = RecordOutput(**{name: options.pop(name) for name in RecordOutput._fields})
    look.check()
    criteria = query.options.criteria
    topics, partitions = criteria.get("topic", ()), criteria.get("partition", ())
    are_meant = RecordFilter(RecordCriteria(topics=topics, partitions=partitions, **options), query.limits)
    found = Records(are_meant, query.limits, show_secrets=query.options.show_secrets)
    can_share = wanted is None and not options["unique"] and look.can_be_shared
    jobs = processes(query, jobs, by_default=not (count or look.flush), ever=can_share)
    if jobs > 1:
        shared = _share(query, look, found, are_meant, jobs, count)
        _tell(found, shared.shown, complete=shared.complete)
        shared.end("record")
        return
    opened = (
        listening(query, LiveOptions(wanted))
        if wanted is not None
        else running(query, bar=lambda out: look.is_silent or not out.isatty())
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
            f"--unique forgot {places}; duplicates of these are shown again; raise the limit with "
            "--limits unique_records=N"
        )
    if isinstance(sink, RecordFiles):
        warn(sink.told())
    run.end("record")


def _share(
    query: Query, look: RecordOutput, found: Records, are_meant: RecordFilter, jobs: int, count: int | None
) -> SharedRun:
    """Several processes show them; ``found`` is told what they found."""
    from kdissect.cli.sharing import sharing
    from kdissect.parallel.worker import Page, Text

    with sharing(query, bar=lambda out: not out.isatty()) as run:
        page = cast("Any", Page(run.out))
        sink: Any = _sink(look, page, clock(run.out, look.times, run.first_ns, is_tree=look.tree))
        is_whole = isinstance(sink, RecordLines) and are_meant.takes_all and not count

        def rows(exchange: Exchange) -> Iterable[tuple[int, Any]]:
            if is_whole:
                return ((len(batch), batch) for batch in found.batches((exchange,)))
            return ((1, record) for record in found.of((exchange,)))

        feed = sink.feed_batch if is_whole else sink.feed
        work = Text(Selection(query), page, feed, rows, per_row=bool(count), end=found.told)
        run.write(jobs, page, sink, work, count)
    for told in run.made:
        found.add(told)
    run.tell(found.exchanges)
    return run


def _of_interface(options: dict[str, Any]) -> Query:
    """What to show of an interface, as it comes."""
    files, also_files = options.pop("files"), options.pop("also_files")
    if files or also_files:
        raise click.UsageError("-i captures on an interface and takes no FILE")
    del options["no_progress"]
    options |= {"limits": live(options["limits"]), "flush": True}
    return Query.live(options)


class RecordOutput(NamedTuple):
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
            raise click.UsageError("--mode needs -o DIR")


def _sink(look: RecordOutput, out: TextIO, times: Times) -> RecordSink:
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
        warn(f"{many(found.unfinished_snapshots, 'snapshot')} with a missing slice")
    if found.anomalies:
        counted = sorted(found.anomalies.items(), key=lambda item: (-item[1], item[0]))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counted)
        warn(f"anomalies in record batches: {kinds}")
    if complete and found.exchanges and not shown:
        warn(f"no match in {many(found.exchanges, 'exchange')}")
