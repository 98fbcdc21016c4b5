"""``kdissect live``: exchanges as they happen."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import click

from kdissect.cli.listening import Given, keep_options, list_interfaces, listening, source_options
from kdissect.cli.looks import Look, look_options
from kdissect.cli.options import filter_options, live_options
from kdissect.cli.running import Asked
from kdissect.cli.terminal import warn
from kdissect.sinks.tally import Tally

if TYPE_CHECKING:
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

An exchange is shown as soon as it is complete, 200 ms after its last packet at the latest; it may come before
one that was complete earlier, if that one has to wait for a packet. Connections that exist already are picked
up where they are. Topics are named as soon as the traffic has told their names.

Packets that were dropped, by the kernel or by kdissect, are told at once and at the end. Ctrl-C and SIGTERM
end it: what was captured is shown, and counted on stderr. Pressed again, Ctrl-C ends it at once.
"""


@click.command(epilog=EXAMPLES)
@source_options
@keep_options
@live_options
@filter_options
@click.option(
    "-c", "count", type=click.IntRange(min=1), metavar="N", help="Stop after N exchanges were shown."
)
@look_options
def live(count: int | None, lists: bool, **options: Any) -> None:
    """Show what Kafka clients and brokers say, as they say it.

    Listens to interfaces of this machine (-i, on Linux, as root or with cap_net_raw), to a pipe (-), or to a
    capture that grows (--follow). Exit status: 0 when enough was captured or the pipe ended, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    if lists:
        list_interfaces()
        return
    asked = Asked.live(options)
    given = Given.take(options)
    look = Look.take(options)
    told = StringIO()
    tally = Tally(told)
    with listening(asked, given) as run:
        times = look.clock(run.out, run.first_ns)
        sink = look.sink(run.out, times, asked, flush=True)

        def feed(exchange: Exchange) -> None:
            tally.feed(exchange)
            sink.feed(exchange)

        selected = run.selected(lambda exchange: times.pass_over(exchange.time_ns))
        run.show(selected, feed, count, flush=True)
        sink.close()
    if run.shown and not look.quiet:
        tally.close()
        warn(told.getvalue().rstrip())
    run.tell(run.shown)
    run.end("exchange")
