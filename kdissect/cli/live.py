"""``kdissect live``: exchanges as they happen."""

from __future__ import annotations

from contextlib import ExitStack
from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from kdissect.capture.recording import NEVER
from kdissect.cli import recap
from kdissect.cli.listening import Given, keep_options, list_interfaces, listening, source_options
from kdissect.cli.liveexport import export_options, exporting, take_tables
from kdissect.cli.looks import Look, look_options
from kdissect.cli.options import filter_options, live_options, mode_option
from kdissect.cli.running import Asked
from kdissect.cli.terminal import warn
from kdissect.cli.watching import Watch, watch_options, watching
from kdissect.sinks.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.model import Exchange

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

An exchange is shown as soon as it is complete, 200 ms after its last packet at the latest; it may come before
one that was complete earlier, if that one has to wait for a packet. Connections that exist already are picked
up where they are. Topics are named as soon as the traffic has told their names.

Packets that were dropped, by the kernel or by kdissect, are told at once and at the end. Ctrl-C and SIGTERM
end it: what was captured is shown, and counted on stderr. Pressed again, Ctrl-C ends it at once. An interface
that goes down or away is waited for, and listened to again when it is there.

Tables: as in kdissect export. A restart into the same DIR adds files to those of the runs before; what a run
that was killed did not finish is removed then. manifest.json names the files, those of the last moments
excepted, and says whether the run that wrote them has ended as it should.

--top: rates are those of the last ten seconds of packet time. When a pipe ends, the picture stays until q.
"""


@click.command(epilog=EXAMPLES)
@source_options
@keep_options
@export_options
@mode_option
@live_options
@filter_options
@click.option(
    "-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after N exchanges were shown."
)
@click.option("-P", "--lines", is_flag=True, help="With --export: show exchanges too.")
@click.option(
    "--summary/--no-summary",
    "summary",
    default=None,
    help="At the end, tell on stderr who did what, how fast, and what was wrong. [default: on a terminal, "
    "without -q]",
)
@watch_options
@look_options
def live(count: int | None, lists: bool, summary: bool | None, **options: Any) -> None:
    """Show what Kafka clients and brokers say, as they say it.

    Listens to interfaces of this machine (-i, on Linux, as root or with cap_net_raw), to a pipe (-), or to a
    capture that grows (--follow). Exit status: 0 when enough was captured or the pipe ended, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    if lists:
        list_interfaces()
        return
    tables = take_tables(options)
    if options["mode"] is not None and options["target"] is None and tables is None:
        raise click.UsageError("--mode goes with -w FILE or --export DIR")
    is_shown = options.pop("lines") or tables is None
    asked = Asked.live(options)
    given = Given.take(options)
    watch = Watch.take(options)
    look = Look.take(options, {"--top": watch.top})
    told = StringIO()
    tally = Tally(told)
    story = recap.Recap(asked.limits) if recap.is_wanted(summary, quiet=look.quiet) else None
    with (
        exporting(tables, asked, given.names) as export,
        watching(watch, asked.limits, given.names, look.colour) as pulse,
        listening(asked, given, *((export.log, export.whole) if export is not None else ())) as run,
        ExitStack() as written,
    ):
        times = look.clock(run.out, run.first_ns)
        feeds: list[Callable[[Exchange], object]] = [tally.feed]
        passed: list[Callable[[Exchange], object]] = [lambda exchange: times.pass_over(exchange.time_ns)]
        if pulse is not None:
            pulse.begin(run)
            feeds.append(pulse.feed)
        if is_shown and not watch.top:
            sink = look.sink(run.out, times, asked, flush=True)
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
