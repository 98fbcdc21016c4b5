"""``kdissect records``: produced and fetched records as lines, trees, JSON, CSV, or one file per record."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect import core
from kdissect.cli.help import command
from kdissect.cli.jobs import jobs_option, processes
from kdissect.cli.live_run import LiveOptions, interface_options, open_live_run, take_capture_settings
from kdissect.cli.options import (
    at_least,
    color_option,
    csv_option,
    exchange_option,
    filter_options,
    input_options,
    mode_option,
    names_option,
    to_local,
)
from kdissect.cli.output_options import (
    are_rows_independent,
    check_exclusive,
    check_heading,
    fields_option,
    has_heading,
    heading_option,
    json_option,
    time_formatter,
    times_option,
)
from kdissect.cli.run import end, live_query, open_run, report, take_query
from kdissect.cli.terminal import style_of, warn, wide_option, width
from kdissect.exchanges.content import record_time_ns
from kdissect.files import PRIVATE
from kdissect.limits import live
from kdissect.phrases import json_writer, many, most_frequent
from kdissect.query.where import compile_where
from kdissect.sinks.records import RecordRows
from kdissect.tables.columns import RECORD, RECORD_NAMES, is_about_records, resolve_record, selected
from kdissect.tables.lines import OPTIONAL, CsvLines, FieldLines, JsonLines, RecordColumns, RecordLines
from kdissect.tables.native_rows import are_of_records
from kdissect.tables.record_files import RecordFiles
from kdissect.text.table import RecordTable, RecordTally
from kdissect.text.template import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol, TextIO

    from kdissect.capture.live import CaptureSettings
    from kdissect.exchanges.partition_records import CarriedRecord
    from kdissect.exchanges.registered import RegisteredSchemas
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.query.records import Records
    from kdissect.query.where import Where
    from kdissect.runs.run import Query, Run
    from kdissect.sinks.records import NativeWriter
    from kdissect.sinks.sink import Demand
    from kdissect.tables.columns import Column
    from kdissect.text.style import Times

    class RecordWriter(Protocol):
        """Writes records."""

        def feed(self, record: CarriedRecord) -> None:
            """Write one."""

        def close(self) -> None:
            """Write what is buffered."""


MAX_UNREADABLE = 20
JOINED = frozenset({"e2e_latency_us", "also_in"})
"""Columns for which batches that are produced and fetched are joined."""

EXAMPLES = """\b
Examples:
  kdissect records capture.pcap
  kdissect records --topic orders --partition 3 --offset 1000..1999 capture.pcap
  kdissect records -Y 'partition == 3 and value.order.count > 2' capture.pcap
  kdissect records --produced --key 'customer-7*' --header trace-id=4bf92f capture.pcap
  kdissect records --grep '(?i)timeout|refused' capture.pcap
  kdissect records -V --topic orders --offset 1000 capture.pcap
  kdissect records --trace 4bf92f3577b34da6a3ce929d0e0e4736 capture.pcap
  kdissect records --topic images --unique -o images/ capture.pcap
  kdissect records --control --api Fetch capture.pcap
  kdissect records --json --unique capture.pcap | jq -r .value
  kdissect records --template '%t %p %o %k %s\\n' capture.pcap
  kdissect records --topic __consumer_offsets capture.pcap
  kdissect records -i eth0 --produced --topic orders

Each line shows one record: its time, API, partition, offset, key and value. NULL stands for a null key or
value, "" for an empty one, and "-" for an unknown offset. Then, if present: the schema ID of the value, the
trace ID from its headers,
"[rejected: ERROR]" if the broker rejected it ("[unconfirmed: ERROR]" if the leader may have stored it
anyway), "[before OFFSET]" if the Fetch requested a later offset, "[aborted]" if its transaction was aborted,
and any anomalies of its batch after "!".

The time of a record is that of the request that produced it, or of the response that carried it.
--since and --until compare with this time.

--template: %t topic, %p partition, %o offset, %k key, %s value, %K and %S their lengths (-1 for null), %T
timestamp in milliseconds, %h headers, %% percent sign; \\n \\r \\t \\0 \\xHH \\\\. Bytes are written
unchanged, except on a terminal.

-o DIR writes values to DIR/TOPIC/PARTITION/OFFSET.value, keys to OFFSET.key, and an empty OFFSET.null for a
null value. If the offset is unknown, the name is CONNECTION-NUMBER-INDEX: the exchange, and the index of the
record in it. Duplicates are written once; credentials are not written without --show-secrets. DIR must be
empty or new.
"""


@command(epilog=EXAMPLES)
@input_options
@names_option()
@interface_options
@filter_options
@exchange_option("Only records carried by this exchange.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Key or glob: 'customer-*'.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Records with this header, or this header and value; both can be globs.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="ID",
    help="Records with this trace ID in the header traceparent, b3, X-B3-TraceId or sw8.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="ID",
    help="Records whose key or value has this registered schema (ID or GUID).",
)
@click.option(
    "--schemas",
    "registry",
    metavar="DIR|URL",
    help="Decode keys and values with registered schemas (Avro, JSON Schema, Protobuf), from files ID.avsc, "
    "ID.json or ID.proto, or from a schema registry. Needs the extra schemas.",
)
@click.option(
    "--offset",
    "offsets",
    multiple=True,
    metavar="A..B",
    help="Offset or inclusive range: 5, 5..9, 5.. or ..9.",
)
@click.option(
    "--grep",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Records whose key or value bytes match this regular expression (RE2).",
)
@click.option(
    "--control/--no-control",
    default=None,
    help="Only control records (transaction markers, KRaft), or none of them.",
)
@click.option("--produced", is_flag=True, help="Only records sent by clients.")
@click.option("--fetched", is_flag=True, help="Only records sent by brokers, to clients or to each other.")
@click.option("--unique", is_flag=True, help="Show each record (topic, partition and offset) only once.")
@click.option("-c", "--count", type=at_least(1), metavar="N", help="Stop after showing N records.")
@click.option("-V", "tree", is_flag=True, help="Show each record as a tree, with all its fields.")
@click.option("-x", "show_bytes", is_flag=True, help="Like -V, with a hex dump of key and value.")
@click.option("--full", is_flag=True, help="With -V and -x: do not truncate long strings, bytes or headers.")
@json_option
@csv_option
@fields_option
@heading_option
@wide_option
@click.option(
    "--template",
    metavar="TEXT",
    help="Write each record in this format, like kcat -f: '%t %p %o %k %s\\n'; see below.",
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(),
    callback=to_local,
    metavar="DIR",
    help="Write keys and values to separate files, unchanged; see below.",
)
@mode_option
@click.option("-q", "--quiet", is_flag=True, help="Show only a count of records.")
@times_option
@jobs_option(
    "Always 1 for --unique, -o, -q, -t d, -t dd, and stdin, and if the native core writes the records to a "
    "file or pipe, which is faster."
)
@click.option("-l", "flush", is_flag=True, help="Flush after each record (line-buffered).")
@color_option
def records(count: int | None, jobs: int | None, registry: str | None, **options: Any) -> None:
    """Show the records that were produced and fetched.

    Batches are decompressed and their checksums verified. Records of Kafka's internal topics are decoded,
    with credentials redacted. The exchange filters select the requests and responses to search. With -i
    IFACE, packets are captured live instead of read from FILE.
    """
    from kdissect.query.record_filters import RecordCriteria, RecordFilter
    from kdissect.query.records import Records

    settings = take_capture_settings(options)
    where = _take_where(options)
    query = take_query(options) if settings is None else _interface_query(options)
    output = RecordOutput(**{name: options.pop(name) for name in RecordOutput._fields})
    output.check()
    names = {*output.fields, *(where.names if where is not None else ())}
    query = query.with_fields(names)
    if all(RECORD_NAMES[name.partition(".")[0]] in RECORD for name in names):
        query = query.without_latency_parts()
    # Lines from a pipe do not wait for another copy of their batch.
    is_linked = output.is_table and query.are_files
    end_to_end = output.shows_all_columns or is_linked or not JOINED.isdisjoint(names)
    query = replace(query, options=replace(query.options, end_to_end=end_to_end))
    query.filter.use_record_times()
    criteria = query.options.criteria
    topics, partitions = criteria.get("topic", ()), criteria.get("partition", ())
    record_filter = RecordFilter(
        RecordCriteria(topics=topics, partitions=partitions, where=where, **options), query.limits
    )
    schemas = None if registry is None else _open_schemas(registry, query.limits)
    source = Records(record_filter, query.limits, show_secrets=query.options.show_secrets, schemas=schemas)
    is_whole = record_filter.matches_all and schemas is None
    can_run_in_parallel = settings is None and not options["unique"] and output.can_run_in_parallel
    is_native = core.is_used and output.is_native and schemas is None and record_filter.is_simple
    is_faster_alone = is_native and not (sys.stdout and sys.stdout.isatty())
    by_default = not (count or output.flush)
    jobs = processes(query, jobs, by_default=by_default, allowed=can_run_in_parallel and not is_faster_alone)
    run_context = (
        _open_interfaces(query, settings, output)
        if settings is not None
        else open_run(query, bar=output.is_silent, jobs=jobs)
    )
    with run_context as run:
        times = time_formatter(run.out, output.times, run.first_ns, is_table=output.is_table)
        writer = _writer(output, run.page, times)
        flush = output.flush and jobs == 1
        by_batch = is_whole and not (count or flush)
        # Batches are joined after the core has written them.
        joined_later = replace(query, options=replace(query.options, end_to_end=False))
        demand = joined_later.demand(one_by_one=not (is_native and jobs == 1))
        max_rows = count if jobs == 1 else None
        sink = _sink(source, writer, by_batch=by_batch, max_rows=max_rows, times=times, demand=demand)
        if flush:
            sink.after_row = run.out.flush
        run.into(sink, count)
    report(run, source.exchanges)
    _report(source, run.shown, complete=run.complete)
    if forgotten := record_filter.forgotten:
        forgotten_records = many(forgotten, "record")
        warn(
            f"--unique forgot {forgotten_records}; duplicates of these are shown again; raise the limit with "
            "--limits unique_records=N"
        )
    if isinstance(writer, RecordFiles):
        warn(writer.summary_line())
    end(run, "record")


def _open_schemas(place: str, limits: Limits) -> RegisteredSchemas:
    from kdissect.cli.registry import open_schemas  # needs packages of an extra

    return open_schemas(place, limits)


def _take_where(options: dict[str, Any]) -> Where | None:
    """Remove ``--where`` from the options if it is about records; otherwise it selects exchanges, which is
    faster.
    """
    if options["where"] is None:
        return None
    where = compile_where(options["where"], resolve_record)
    if not any(map(is_about_records, where.names)):
        return None
    options["where"] = None
    return where


def _interface_query(options: dict[str, Any]) -> Query:
    """Return the query of a live capture."""
    files, also_files = options.pop("files"), options.pop("also_files")
    if files or also_files:
        raise click.UsageError("-i captures on an interface and takes no FILE")
    del options["no_progress"]
    options |= {"limits": live(options["limits"]), "flush": True}
    return live_query(options)


class RecordOutput(NamedTuple):
    """The options that say how records are shown."""

    tree: bool
    show_bytes: bool
    full: bool
    as_json: bool
    as_csv: bool
    fields: tuple[str, ...]
    heading: bool | None
    template: str | None
    directory: str | None
    mode: int | None
    quiet: bool
    times: str | None
    flush: bool
    color: str

    @property
    def is_silent(self) -> bool:
        """Whether nothing is written to stdout before the end."""
        return self.quiet or self.directory is not None

    @property
    def shows_all_columns(self) -> bool:
        """Whether the output has all columns, end-to-end latency among them."""
        return self.is_tree or self.as_json or self.as_csv

    @property
    def is_tree(self) -> bool:
        """Whether records are shown as trees."""
        return self.tree or self.show_bytes

    @property
    def is_table(self) -> bool:
        """Whether records are shown as lines of text."""
        others = (self.is_silent, self.is_tree, self.as_json, self.as_csv, self.fields)
        return not any(others) and self.template is None

    @property
    def columns(self) -> Sequence[Column]:
        """Those that are shown."""
        return selected(self.fields, RECORD_NAMES.values()) if self.fields else RECORD

    @property
    def is_native(self) -> bool:
        """Whether the native core may write it."""
        if self.flush or self.is_table:
            return not self.flush
        has_columns = bool(self.as_json or self.as_csv or (self.fields and not self.times))
        return has_columns and are_of_records(self.columns, OPTIONAL)

    @property
    def can_run_in_parallel(self) -> bool:
        """Whether several processes can format the records independently."""
        return not self.is_silent and are_rows_independent(sys.stdout, self.times)

    def check(self) -> None:
        """Raise a usage error if options exclude each other."""
        tree = {"-x" if self.show_bytes else "-V": self.is_tree}
        formats = {"--json": self.as_json, "--csv": self.as_csv}
        others = {
            "--template": self.template is not None,
            "-o": self.directory is not None,
            "-q": self.quiet,
        }
        check_exclusive(tree | formats | others)
        check_exclusive({"--fields": bool(self.fields)} | tree | others)
        is_text = not (self.as_json or self.as_csv)
        check_heading(self.heading, is_possible=self.is_table or bool(self.fields and is_text))
        if self.template is not None:
            Template(self.template, len)  # fails here rather than while reading
        _ = self.columns  # fails here rather than while reading
        if self.mode is not None and self.directory is None:
            raise click.UsageError("--mode needs -o DIR")


@contextmanager
def _open_interfaces(query: Query, settings: CaptureSettings, output: RecordOutput) -> Iterator[Run]:
    options = LiveOptions(settings)
    directory = None if output.directory is None else Path(output.directory)
    with options.open(query, directory) as ongoing, open_live_run(query, options, ongoing) as (run, _):
        yield run


def _sink(
    source: Records,
    writer: RecordWriter,
    *,
    by_batch: bool,
    max_rows: int | None,
    times: Times,
    demand: Demand,
) -> RecordRows:
    def skip(exchange: Exchange) -> None:
        times.skip(record_time_ns(exchange))

    write: Callable[[Any], object] = writer.feed
    takes_batches = False
    if by_batch and isinstance(writer, RecordLines | RecordTable):
        write, takes_batches = writer.feed_batch, True
    return RecordRows(
        source,
        write,
        writer.close,
        by_batch=takes_batches,
        max_rows=max_rows,
        native=_native_writer(writer),
        demand=demand,
        skip=skip,
        divide=getattr(writer, "divide", int),  # of a tree
    )


def _native_writer(writer: RecordWriter) -> NativeWriter | None:
    if isinstance(writer, RecordLines | RecordTable):
        return writer
    return RecordColumns(writer) if isinstance(writer, JsonLines | CsvLines | FieldLines) else None


def _writer(output: RecordOutput, out: TextIO, times: Times) -> RecordWriter:
    if output.quiet:
        return RecordTally(out, width=width(out))
    if output.directory is not None:
        return RecordFiles(Path(output.directory), output.mode or PRIVATE)
    columns = output.columns
    if output.as_json:
        write = json_writer(out)
        if output.fields:
            return JsonLines(write, columns=columns, flush_each=output.flush)
        return RecordLines(write, flush_each=output.flush)
    if output.as_csv:
        write, is_terminal = out.buffer.write, out.isatty()
        return CsvLines(write, columns=columns, flush_each=output.flush, is_terminal=is_terminal)
    if output.template is not None:
        return Template(output.template, out.buffer.write, is_terminal=out.isatty())
    if output.fields:
        return FieldLines(out, columns, times.text if output.times else None, heading=bool(output.heading))
    style = style_of(out, output.color)
    if output.is_tree:
        from kdissect.text.tree import RecordTree

        dump_row = 0 if not output.show_bytes else 16 if (width(out) or 80) >= 80 else 8
        return RecordTree(out, times, style=style, full=output.full, width=width(out), dump_row=dump_row)
    heading = has_heading(output.heading, out)
    return RecordTable(out, times, width=width(out), style=style, heading=heading)


def _report(source: Records, shown: int, *, complete: bool) -> None:
    """Report unreadable batches and anomalies on stderr, and that nothing matched."""
    for text in source.unreadable[:MAX_UNREADABLE]:
        warn(f"no readable record: {text}")
    if (more := source.unread - len(source.unreadable[:MAX_UNREADABLE])) > 0:
        warn(f"{more:,} more {'batch' if more == 1 else 'batches'} like these")
    for reason, times in most_frequent(source.undecoded, MAX_UNREADABLE):
        warn(f"{many(times, 'key or value', 'keys or values')} not decoded: {reason}")
    if (more := len(source.undecoded) - MAX_UNREADABLE) > 0:
        warn(f"{many(more, 'more reason')} like these")
    if source.unfinished_snapshots:
        incomplete = many(source.unfinished_snapshots, "incomplete KRaft snapshot")
        warn(f"{incomplete} not shown: the capture lacks some FetchSnapshot responses")
    if source.anomalies:
        counted = sorted(source.anomalies.items(), key=lambda item: (-item[1], item[0]))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in counted)
        warn(f"anomalies in record batches: {kinds}; details: kdissect read -V --records")
    if complete and source.exchanges and not shown:
        warn(f"no records to show in {many(source.exchanges, 'exchange')}")
