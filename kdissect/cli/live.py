"""``kdissect live``: exchanges as they happen."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.recording import NEVER
from kdissect.cli.listening import (
    DeferInterrupt,
    LiveOptions,
    keep_options,
    list_interfaces,
    listening,
    source_options,
)
from kdissect.cli.looks import ExchangeOutput, look_options
from kdissect.cli.options import filter_options, live_options, mode_option, to_local, together
from kdissect.cli.running import Query
from kdissect.cli.tables import LIVE_ROTATED_NS, filling, table_options, take_export, tell
from kdissect.cli.terminal import wants_colour, warn, width
from kdissect.cli.watching import Watch, watch_options, watching
from kdissect.phrases import many
from kdissect.query.records import records_of
from kdissect.stats.connection_log import ConnectionLog
from kdissect.tables import manifest
from kdissect.tables.export import Export, ExportJob, tables_of
from kdissect.tables.table_files import locked
from kdissect.text.table import ExchangeTally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kdissect.cli.listening import LiveRun
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.options import ExportOptions
    from kdissect.pipeline import Dissection
    from kdissect.tables.manifest import Earlier
    from kdissect.text.page import PageSection


# ------------------------------------------------------------------------------------------------------------
# Exchanges that came live -> a short page on stderr when it is over: what there was, how fast, and what an
# expert would point at. Holds what a summary holds, which is bounded.
#
# It costs a quarter of what dissecting an exchange costs. So it is there for somebody who sits before a
# terminal, and elsewhere when asked for.
# ------------------------------------------------------------------------------------------------------------


ROWS = 8  # of each table
FINDINGS = "findings"


def is_wanted(asked: bool | None, *, quiet: bool) -> bool:
    """Whether there shall be one, by what ``--summary`` says if anything."""
    if asked is not None:
        return asked
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


class Recap:
    """Counts exchanges."""

    def __init__(self, limits: Limits) -> None:
        from kdissect.stats.summarizer import Summarizer

        self._summarizer = Summarizer(limits, parts=frozenset((FINDINGS,)), slowest=1)
        self.feed = self._summarizer.feed

    def write(self, names: Sequence[str], dissection: Dissection, colour: str) -> None:
        """Write the page."""
        from kdissect.text import page

        if sys.stderr is None:  # closed by whoever started us
            return
        sections = self._sections(names, dissection.counts, dissection.skipped)
        with suppress(OSError):  # the terminal is gone
            page.write(sys.stderr, sections, width=width(sys.stderr), colour=wants_colour(sys.stderr, colour))

    def _sections(
        self, names: Sequence[str], counts: Mapping[str, int], skipped: Mapping[str, int]
    ) -> Iterator[PageSection]:
        from kdissect.text import summary_page
        from kdissect.text.page import PageSection

        document = self._summarizer.close(names, counts, skipped)
        findings = document.findings or []
        shown = replace(document, brokers=[], clients=[], slowest=[], findings=None)
        for section in summary_page.sections(shown, limit=ROWS, narrow=True):
            if section.left_out:
                more = f"{section.title} (first {ROWS} of {ROWS + section.left_out:,})"
                yield section._replace(title=more, left_out=0)
            else:
                yield section
        if findings:
            lines = [f"{row.severity}: {row.about}: {row.sentence}" for row in findings[:ROWS]]
            if len(findings) > ROWS:
                lines.append(f"and {len(findings) - ROWS:,} more")
            yield PageSection("Findings", notes=tuple(lines))


# ------------------------------------------------------------------------------------------------------------
# ``live --export DIR``: what comes live -> typed tables whose files appear while more is captured.
#
# A restart into the same folder adds files to those of the runs before. Holds what an export holds.
# ------------------------------------------------------------------------------------------------------------


export_options = together(
    click.option(
        "--export",
        "export",
        type=click.Path(),
        callback=to_local,
        metavar="DIR",
        help="Write typed tables for Spark, DuckDB, pandas, polars, as kdissect export does; each file "
        "appears in DIR once complete. Exchanges are not shown then unless -P, -V, --json or --csv "
        "is given. An existing live export in DIR is continued.",
    ),
    table_options("With --export: ", "256MB and 5min"),
)
"""What to write tables of, and how."""

_NEEDS_FOLDER = {
    "form": "--format",
    "compression": "--compress",
    "tables": "--tables",
    "bodies": "--bodies",
    "rotate": "--rotate",
    "partition_by": "--partition-by",
}
_SHOWING = ("lines", "tree", "show_bytes", "as_json", "as_csv", "quiet")


def take_tables(options: dict[str, Any]) -> ExportOptions | None:
    """Take what ``export_options`` were given out of a command's options. With tables, ``--records`` is about
    these, unless exchanges are shown too.

    Raises:
        UsageError: an option goes with --export, which was not given.
    """
    folder = options.pop("export")
    if folder is None:
        for name, flag in _NEEDS_FOLDER.items():
            if options.pop(name):
                raise click.UsageError(f"{flag} needs --export DIR")
        return None
    with_records, is_shown = options["with_records"], any(options[name] for name in _SHOWING)
    own = {name: options.pop(name) for name in _NEEDS_FOLDER}
    mode = options["mode"]
    tables = take_export(
        own | {"folder": folder, "with_records": with_records, "mode": mode}, LIVE_ROTATED_NS
    )
    options["with_records"] = with_records and is_shown
    options["lines"] = is_shown
    return tables


@contextmanager
def exporting(
    tables: ExportOptions | None, query: Query, captures: Sequence[str]
) -> Iterator[LiveExport | None]:
    """Have a folder for oneself, and see what is in it; None: nothing is to be exported.

    Raises:
        OutputError: it is somebody else's, or more cannot be added to what it has.
    """
    if tables is None:
        yield None
        return
    export = LiveExport(tables, query, captures)
    with locked(tables.folder, tables.mode):
        export.look()
        yield export


class LiveExport:
    """Tables of what comes live.

    Attributes:
        log: surveys the run.
        whole: lets a second Ctrl-C wait until rows that belong together are written together.
    """

    def __init__(self, tables: ExportOptions, query: Query, captures: Sequence[str]) -> None:
        self.log = ConnectionLog(query.limits)
        self.whole = DeferInterrupt()
        self._records = records_of(query.options)
        self._job = ExportJob(query.options, replace(tables, tables=tables_of(tables)))
        self._files = self._job.files()
        self._described = manifest.job_of(captures, query.options, tables, is_live=True)
        self._earlier: Earlier | None = None
        self._made: Export | None = None

    def look(self) -> None:
        """See what runs before have left, go on behind it, and say so.

        Raises:
            OutputError: more cannot be added to it.
        """
        folder = self._job.export.folder
        self._earlier = manifest.going_on(folder, self._files, self._job.format, self._job.options.limits)
        if self._earlier.files:
            warn(f"{folder} has {many(self._earlier.files, 'file')} from earlier runs; adding more")
        if self._earlier.removed:
            unfinished = many(self._earlier.removed, "unfinished file")
            warn(f"removed {unfinished} in {folder}, left by a run that was killed")

    @contextmanager
    def writing(self, run: LiveRun) -> Iterator[Export]:
        """Rows are written meanwhile, and files appear; at the end the rest of them.

        Raises:
            OutputError: something cannot be written.
        """
        assert self._earlier is not None
        made = self._made = Export(
            self._job, self._files, self._described, self.log, self._records, self._earlier.runs
        )
        run.losses.also.append(self.whole(made.tick))
        run.ongoing.on_source_end = self.whole(made.leave)
        with filling(made, run, self.log):
            yield made
            run.close()  # which counts what was dropped last

    def tell(self) -> None:
        """Say on stderr what was written."""
        assert self._made is not None
        tell(self._made, self._records, self._job.export.folder)


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
  kdissect live -i eth0 --export tables --format parquet --rotate 1min --partition-by date

An exchange is shown as soon as it is complete: within 200 ms of its last packet, or within 400 ms if a
packet of its connection is missing. An exchange that waits for a packet may be shown after later ones.
Connections that are already open are picked up in mid-stream. Topic ids are replaced with names as soon as
the traffic reveals them.

Dropped packets are reported immediately and at the end. Ctrl-C or SIGTERM stops the capture; what was
captured is still shown, with a summary on stderr. A second Ctrl-C exits immediately. If an interface goes
down or disappears, kdissect waits for it and resumes.

--export: tables as in kdissect export. A restart with the same DIR adds files to those of earlier runs, and
removes unfinished files of a run that was killed. manifest.json lists the files, except the most recent, and
whether the run ended normally.

--top: rates cover the last ten seconds of packet time. When a pipe ends, the display stays until you press q.
"""


@click.command(epilog=EXAMPLES)
@source_options
@keep_options
@export_options
@mode_option
@live_options
@filter_options
@click.option("-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after showing N exchanges.")
@click.option("-P", "--lines", is_flag=True, help="With --export: show exchanges too.")
@click.option(
    "--summary/--no-summary",
    "summary",
    default=None,
    help="Print a summary to stderr at the end. [default: on a terminal, without -q]",
)
@watch_options
@look_options
def live(count: int | None, lists: bool, summary: bool | None, **options: Any) -> None:
    """Show exchanges as they happen on an interface.

    Reads from interfaces of this machine (-i; on Linux, as root or with cap_net_raw), a pipe (-), or a
    growing capture (--follow). Exit status: 0 at a stop condition (-a, -c) or the end of the pipe, 130
    after Ctrl-C, 143 after SIGTERM.
    """
    if lists:
        list_interfaces()
        return
    tables = take_tables(options)
    if options["mode"] is not None and options["target"] is None and tables is None:
        raise click.UsageError("--mode needs -w FILE or --export DIR")
    is_shown = options.pop("lines") or tables is None
    query = Query.live(options)
    given = LiveOptions.take(options)
    watch = Watch.take(options)
    look = ExchangeOutput.take(options, {"--top": watch.top})
    told = StringIO()
    tally = ExchangeTally(told)
    story = Recap(query.limits) if is_wanted(summary, quiet=look.quiet) else None
    with (
        exporting(tables, query, given.names) as export,
        watching(watch, query.limits, given.names, look.colour) as pulse,
        listening(query, given, *((export.log, export.whole) if export is not None else ())) as run,
        ExitStack() as written,
    ):
        times = look.clock(run.out, run.first_ns)
        feeds: list[Callable[[Exchange], object]] = [tally.feed]
        passed: list[Callable[[Exchange], object]] = [lambda exchange: times.pass_over(exchange.time_ns)]
        if pulse is not None:
            pulse.begin(run)
            feeds.append(pulse.feed)
        if is_shown and not watch.top:
            sink = look.sink(run.out, times, query, flush=True)
            feeds.append(sink.feed)
            written.callback(sink.close)
        if story is not None:
            feeds.append(story.feed)
        if export is not None:
            made = written.enter_context(export.writing(run))
            feeds.append(export.whole(made.feed))
            passed.append(export.whole(made.pass_over))
        run.show(run.selected(all_of(passed)), all_of(feeds), count, flush=True)
        if pulse is not None:
            pulse.end(stays=run.complete and given.stop == NEVER)
    if story is not None:
        story.write(given.names, run.dissection, look.colour)
    if run.shown and not look.quiet:
        tally.close()
        warn(*told.getvalue().rstrip().split("\n"))
    if export is not None:
        export.tell()
    run.tell(run.shown)
    if pulse is None or not pulse.has_left:
        run.end("exchange")


def all_of(feeds: Sequence[Callable[[Exchange], object]]) -> Callable[[Exchange], None]:
    """One function for all, called in this order."""

    def feed(exchange: Exchange) -> None:
        for each in feeds:
            each(exchange)

    return feed
