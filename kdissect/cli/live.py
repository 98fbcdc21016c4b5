"""``kdissect live``: exchanges as they happen."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.recording import NEVER
from kdissect.cli.export_options import (
    LIVE_ROTATED_NS,
    finish_or_abandon,
    report_export,
    table_options,
    take_export,
)
from kdissect.cli.help import command
from kdissect.cli.live_run import (
    DeferInterrupt,
    LiveOptions,
    keep_options,
    list_interfaces,
    open_live_run,
    source_options,
)
from kdissect.cli.monitor import MonitorOptions, monitor_options, open_monitor
from kdissect.cli.options import (
    KEY_LOG_PREFERENCE,
    at_least,
    combine,
    filter_options,
    live_options,
    mode_option,
    to_key_log,
    to_local,
)
from kdissect.cli.output_options import ExchangeOutput, output_options
from kdissect.cli.run import end, live_query, report
from kdissect.cli.terminal import style_of, warn, width
from kdissect.phrases import many
from kdissect.query.records import records_of
from kdissect.sinks.columns import Columns
from kdissect.sinks.lines import Count, Fan
from kdissect.sinks.sink import Each
from kdissect.stats.connection_log import ConnectionFeed, ConnectionLog
from kdissect.tables import manifest
from kdissect.tables.export import Export, ExportJob, tables_of
from kdissect.tables.rows import RECORDS
from kdissect.tables.table_files import locked
from kdissect.text.table import ExchangeTally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.cli.live_run import LiveInput
    from kdissect.cli.monitor import Monitor
    from kdissect.options import ExportOptions
    from kdissect.runs.run import Query, Run, Totals
    from kdissect.sinks.sink import Sink
    from kdissect.stats.document import Summary
    from kdissect.stats.survey import Survey
    from kdissect.tables.manifest import Earlier
    from kdissect.text.page import PageSection


# ------------------------------------------------------------------------------------------------------------
# Live exchanges -> the first screen of a summary and some tables, on stderr at the end. In bounded memory.
#
# It costs about as much as dissecting the exchanges. So it is the default only on a terminal.
# ------------------------------------------------------------------------------------------------------------


ROWS = 8  # of each table


def shows_summary(choice: bool | None, *, quiet: bool) -> bool:
    """Whether to print a summary. ``choice``: the value of ``--summary``; None: not set."""
    if choice is not None:
        return choice
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


class LiveSummary:
    """Counts exchanges."""

    def __init__(self, query: Query, *, is_recorded: bool) -> None:
        from kdissect.stats.summarizer import PARTS, Summarizer

        self._is_recorded = is_recorded
        self._summarizer = Summarizer(query.limits, parts=frozenset(PARTS))
        self.feed = partial(self._summarizer.feed, is_partition=query.filter.is_partition)
        self.connect = self._summarizer.connect
        self.resolved = self._summarizer.resolved

    def write(self, names: Sequence[str], totals: Totals, observer: Survey, color: str) -> None:
        """Write the page. ``observer`` has seen the same packets and connections."""
        from kdissect.text import page

        if sys.stderr is None:  # closed by the parent process
            return
        check = totals.check_document(observer)
        sections = self._sections(
            self._summarizer.close(names, totals.counts, totals.skipped, check), width(sys.stderr)
        )
        with suppress(OSError):  # the terminal was closed
            page.write(sys.stderr, sections, width=width(sys.stderr), style=style_of(sys.stderr, color))

    def _sections(self, summary: Summary, columns: int | None) -> Iterator[PageSection]:
        from kdissect.stats.views import viewed
        from kdissect.text import summary_page
        from kdissect.text.overview import overview

        yield overview(summary, columns, is_recorded=self._is_recorded)
        shown = replace(viewed(summary), brokers=[], clients=[], slowest=[])
        for section in summary_page.sections(shown, limit=ROWS):
            if section.left_out:
                more = f"{section.title} (first {ROWS} of {ROWS + section.left_out:,})"
                yield section._replace(title=more, left_out=0)
            else:
                yield section


# ------------------------------------------------------------------------------------------------------------
# ``live -o DIR``: live traffic -> typed tables, whose files appear during the capture.
#
# A restart with the same directory adds files to those of earlier runs.
# ------------------------------------------------------------------------------------------------------------


def _to_directory(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> str | None:
    """Callback of -o: returns the directory; key logs become ``preferences``, as in other commands."""
    directories = [text for text in texts if not text.startswith(f"{KEY_LOG_PREFERENCE}:")]
    context.params["preferences"] = tuple(to_key_log(text) for text in texts if text not in directories)
    if len(directories) > 1:
        raise click.BadParameter("use only one DIR", param=parameter)
    return to_local(context, parameter, directories[0]) if directories else None


export_options = combine(
    click.option(
        "-o",
        "--output",
        "directory",
        type=click.Path(),
        multiple=True,
        callback=_to_directory,
        metavar="DIR",
        help=(
            "Write typed tables, as kdissect export does; each file appears in DIR once complete. Exchanges "
            "are then shown only with -P, -V, --json or --csv. An existing live export in DIR is continued. "
            f"-o {KEY_LOG_PREFERENCE}:FILE is the same as --tls-keylog FILE."
        ),
    ),
    table_options("With -o: ", "256MB and 5min"),
)
"""Where and how to write tables of live traffic."""

_TABLE_OPTIONS = {
    "form": "--format",
    "compression": "--compress",
    "tables": "--tables",
    "bodies": "--bodies",
    "rotate": "--rotate",
    "partition_by": "--partition-by",
}
_DISPLAY_OPTIONS = ("lines", "tree", "show_bytes", "as_json", "as_csv", "fields", "quiet")


def take_tables(options: dict[str, Any]) -> ExportOptions | None:
    """Remove ``export_options`` from a command's options and return their values. With -o, --records
    adds a table; it applies to stdout only if exchanges are shown too.

    Raises:
        UsageError: an option needs -o, which is not set.
    """
    directory = options.pop("directory")
    if directory is None:
        for name, flag in _TABLE_OPTIONS.items():
            if options.pop(name):
                raise click.UsageError(f"{flag} needs -o DIR")
        return None
    with_records, is_shown = options["with_records"], any(options[name] for name in _DISPLAY_OPTIONS)
    own = {name: options.pop(name) for name in _TABLE_OPTIONS}
    mode = options["mode"]
    tables = take_export(
        own | {"directory": directory, "with_records": with_records, "mode": mode}, LIVE_ROTATED_NS
    )
    options["with_records"] = with_records and is_shown
    options["lines"] = is_shown
    return tables


@contextmanager
def open_live_export(
    tables: ExportOptions | None, query: Query, captures: Sequence[str]
) -> Iterator[LiveExport | None]:
    """Lock the directory of an export and read what earlier runs wrote to it. None: no export.

    Raises:
        OutputError: another process uses the directory, or files cannot be added to its contents.
    """
    if tables is None:
        yield None
        return
    export = LiveExport(tables, query, captures)
    with locked(tables.directory, tables.mode):
        export.resume()
        yield export


class LiveExport:
    """Tables of live traffic.

    Attributes:
        log: observes the connections of the run.
        defer: makes a second Ctrl-C wait until rows that belong together are written.
    """

    def __init__(self, tables: ExportOptions, query: Query, captures: Sequence[str]) -> None:
        self.log = ConnectionLog(query.limits)
        self.defer = DeferInterrupt()
        self._records = records_of(query.options)
        self._job = ExportJob(query.options, replace(tables, tables=tables_of(tables)))
        self._files = self._job.files()
        self._description = manifest.job_of(captures, query.options, tables, is_live=True)
        self._earlier: Earlier | None = None
        self._writer: Export | None = None

    def resume(self) -> None:
        """Read what earlier runs wrote, continue after it, and report it on stderr.

        Raises:
            OutputError: files cannot be added to it.
        """
        directory = self._job.export.directory
        self._earlier = manifest.resume(directory, self._files, self._job.format, self._job.options.limits)
        if self._earlier.files:
            warn(f"{directory} has {many(self._earlier.files, 'file')} from earlier runs; adding more")
        if self._earlier.removed:
            unfinished = many(self._earlier.removed, "unfinished file")
            warn(f"removed {unfinished} in {directory}, left by a killed run")

    @contextmanager
    def writing(self, run: Run, live_input: LiveInput) -> Iterator[Export]:
        """Return the writer of the rows of a run; its last files are finished after the block.

        Raises:
            OutputError: a file cannot be written.
        """
        assert self._earlier is not None
        writer = self._writer = Export(
            self._job, self._files, self._description, self.log, self._records, self._earlier.runs
        )
        live_input.drop_reporter.time_observers.append(self.defer(writer.tick))
        live_input.ongoing.on_source_end = self.defer(writer.finish_capture)
        with finish_or_abandon(writer, run):
            yield writer
            live_input.close()  # counts the last dropped packets

    def report(self) -> None:
        """Report on stderr what was written."""
        assert self._writer is not None
        report_export(self._writer, self._records, self._job.export.directory)


# ------------------------------------------------------------------------------------------------------------


EXAMPLES = """\b
Examples:
  kdissect live -D
  kdissect live -i eth0
  kdissect live -i any -f 'tcp portrange 9092-9094' --slower-than 100ms
  kdissect live -i eth0 --error '*' --json | jq -c '[.time, .api, .errors]'
  kdissect live -i eth0 -q -w ring.pcapng -b filesize:100MB -b files:10
  tcpdump -i eth0 -U -w - port 9092 | kdissect live -
  kubectl exec broker-0 -- tcpdump -i any -U -w - tcp | kdissect live -
  kdissect live --follow /var/captures
  kdissect live -i eth0 --top
  kdissect live -i eth0 -q --prometheus :9464
  kdissect live -i eth0 -o tables --format parquet --rotate 1min --partition-by date

An exchange is shown as soon as it is complete: within 200 ms of its last packet, or within 400 ms if a
packet of its connection is missing. An exchange that waits for a packet may be shown after later ones.
Connections that are already open are picked up mid-stream. Topic IDs are replaced with names as soon as
the names appear in the traffic.

Dropped packets are reported immediately and at the end. Ctrl-C or SIGTERM stops the capture; what was
captured is still shown, with a summary on stderr. A second Ctrl-C exits immediately. If an interface goes
down or disappears, kdissect waits for it and resumes.

Run as root, kdissect uses its privileges only to open the interfaces. It then drops all capabilities and
switches to the user given with -Z, or else to the user who ran sudo; that user owns the output files. If
there is neither, or that user cannot read where kdissect is installed, it remains root, without
capabilities.

-o: tables as in kdissect export. Restarting with the same DIR adds files, and removes unfinished ones
left by a killed run. manifest.json lists the finished files, and says whether the run ended normally.

--top: rates cover the last ten seconds, by packet timestamps. When a pipe ends, the display stays until you
press q.
"""


@command(epilog=EXAMPLES)
@source_options
@keep_options
@export_options
@mode_option
@live_options
@filter_options
@click.option("-c", "--count", type=at_least(1), metavar="N", help="Stop after showing N exchanges.")
@click.option(
    "-j",
    "--jobs",
    "jobs",
    type=at_least(1),
    default=1,
    metavar="N",
    help="Worker processes; connections are divided among them. The output is the same, without a summary. "
    "Useful if one process cannot keep up and there are idle cores. Not with -q, -o, --top, --prometheus, "
    "--summary or --tls-keylog; always 1 for -t d and -t dd. [default: 1]",
)
@click.option("-l", is_flag=True, expose_value=False, hidden=True, help="Always so; as in tshark -l.")
@click.option("-P", "--lines", is_flag=True, help="With -o: show exchanges too.")
@click.option(
    "--summary/--no-summary",
    "summary",
    default=None,
    help="Print a summary to stderr at the end. [default: on a terminal, without -q]",
)
@monitor_options
@output_options
def live(count: int | None, lists: bool, summary: bool | None, jobs: int, **options: Any) -> None:
    """Show live traffic on an interface.

    Reads from interfaces of this machine (-i; Linux only, as root or with cap_net_raw), a pipe (-), or a
    growing capture (--follow). Stops at a stop condition (-a, -c), at the end of the pipe, or on Ctrl-C.
    """
    if lists:
        list_interfaces()
        return
    tables = take_tables(options)
    if options["mode"] is not None and options["target"] is None and tables is None:
        raise click.UsageError("--mode needs -w FILE or -o DIR")
    is_shown = options.pop("lines") or tables is None
    query = live_query(options)
    if tables is not None and RECORDS in tables.tables:
        query = replace(query, options=replace(query.options, end_to_end=True))
    source = LiveOptions.take(options)
    monitor_choice = MonitorOptions.take(options)
    output = ExchangeOutput.take(options, {"--top": monitor_choice.top})
    if jobs > 1:
        is_other = tables is not None or monitor_choice.top or monitor_choice.address or output.quiet
        if is_other or summary or query.options.key_logs:
            raise click.UsageError(
                "-j cannot be used with -q, -o, --top, --prometheus, --summary or --tls-keylog"
            )
        if output.can_run_in_parallel(sys.stdout):
            with source.open(query) as ongoing, open_live_run(query, source, ongoing, jobs=jobs) as (run, _):
                times = output.time_formatter(run.out, run.first_ns)
                run.into(
                    output.sink(run.page, times, query, run.demand(), flush=False),
                    count,
                )
            report(run, run.shown)
            output.report_hidden(run)
            end(run, "exchange")
            return
    tally_text = StringIO()
    live_summary = None
    if shows_summary(summary, quiet=output.quiet):
        is_recorded = source.target is not None or source.follow is not None
        live_summary = LiveSummary(query, is_recorded=is_recorded)
    with (
        source.open(query, None if tables is None else tables.directory) as ongoing,
        open_live_export(tables, query, source.names) as export,
        open_monitor(monitor_choice, query.limits, source.names, output.color) as monitor,
        open_live_run(
            query,
            source,
            ongoing,
            log := _log(query, export, live_summary, monitor),
            None if export is None else export.defer,
        ) as (run, live_input),
        ExitStack() as stack,
    ):
        times = output.time_formatter(run.out, run.first_ns)
        demand = run.demand()
        sinks: list[Sink] = [Count(ExchangeTally(tally_text), demand)]
        if monitor is not None:
            monitor.begin(run, live_input)
            sinks.append(Each(monitor.feed))
        if is_shown and not monitor_choice.top:
            sinks.append(output.sink(run.out, times, query, demand, flush=True))
        if live_summary is not None:
            sinks.append(Each(live_summary.feed))
        if export is None and log is not None:
            sinks.append(Each(log.exchange, log.close, skip=partial(log.exchange, is_selected=False)))
        if export is not None:
            writer = stack.enter_context(export.writing(run, live_input))
            sinks.append(Columns(writer, demand, export.defer))
        run.into(Fan(sinks), count, flush=True)
        if monitor is not None:
            monitor.end(keep_open=run.complete and source.stop == NEVER)
    if live_summary is not None:
        assert log is not None
        live_summary.write(source.names, run.totals, log, output.color)
    if run.shown and not output.quiet:
        warn(*tally_text.getvalue().rstrip().split("\n"))
    if export is not None:
        export.report()
    report(run, run.shown)
    output.report_hidden(run)
    if monitor is None or not monitor.was_quit:
        end(run, "exchange")


def _log(
    query: Query, export: LiveExport | None, live_summary: LiveSummary | None, monitor: Monitor | None
) -> ConnectionLog | None:
    """An observer of connections that passes them to all of these; None: there are none."""
    callbacks = [each.connect for each in (live_summary, monitor) if each is not None]
    if export is None and not callbacks:
        return None
    filtered = not query.filter.is_empty
    log = ConnectionFeed(query.limits, filtered=filtered) if export is None else export.log
    log.on_row += callbacks
    log.on_name += [live_summary.resolved] if live_summary is not None else []
    return log
