"""Options that want to know what happens now -> the dashboard, the metrics, and the pulse that both read.

    wanted = Watch.take(options)
    with watching(wanted, ...) as pulse, listening(...) as run:
        pulse.begin(run)
        run.show(..., pulse.feed)
        pulse.end()

Exchanges are counted by the thread that dissects, and read by those that draw and serve, one at a time.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import together
from kdissect.cli.terminal import OK, wants_colour, warn
from kdissect.errors import CaptureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdissect.cli.live_run import LiveRun
    from kdissect.cli.top import Top
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.stats.pulse import Now
    from kdissect.text.metrics import Metrics


# ------------------------------------------------------------------------------------------------------------
# Metrics -> a page over HTTP for Prometheus, served by a thread until the command ends. Holds a socket.
# ------------------------------------------------------------------------------------------------------------


LOOPBACK = "127.0.0.1"
_PORTS = 1 << 16

Address = tuple[str, int]


def to_address(text: str) -> Address:
    """``:9464``, ``9464``, ``0.0.0.0:9464``, ``[::1]:9464`` -> host and port; without a host, loopback.

    Raises:
        click.BadParameter: it is none.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < _PORTS):
        raise click.BadParameter(f'invalid address "{text}": use :9464, or 0.0.0.0:9464 for all interfaces')
    return host or LOOPBACK, int(port)


@contextmanager
def serving(metrics: Metrics, address: Address) -> Iterator[int]:
    """Serve them; which port it is, told on stderr too.

    Raises:
        click.ClickException: nothing can be served there.
    """
    from prometheus_client import start_http_server

    host, port = address
    shown = f"[{host}]" if ":" in host else host
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise click.ClickException(f"--prometheus: cannot serve on {shown}:{port}: {said}") from None
    port = server.server_port
    warn(f"serving metrics on http://{shown}:{port}/metrics")
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ------------------------------------------------------------------------------------------------------------


watch_options = together(
    click.option(
        "--top",
        is_flag=True,
        help="Show a dashboard instead of lines: rates, latencies and errors by API, topic and client; "
        "group lag; errors and rebalances. Filters select what it counts; press h for its keys.",
    ),
    click.option(
        "--prometheus",
        "address",
        type=to_address,
        metavar="[HOST]:PORT",
        help="Serve the same numbers as Prometheus metrics (docs/metrics.md); without HOST, on loopback "
        "only.",
    ),
)
"""Whether somebody wants to know what happens now."""


class Watch(NamedTuple):
    """What the options say."""

    top: bool
    address: Address | None

    @classmethod
    def take(cls, options: dict[str, Any]) -> Watch:
        """Take its own out of a command's options, and leave those of the command.

        Raises:
            ClickException: there is no terminal to draw on.
        """
        watch = cls(options.pop("top"), options.pop("address"))
        if watch.top:
            from kdissect.cli.top import check_terminal

            check_terminal()
        return watch


class Watching:
    """What is watched.

    Attributes:
        has_left: whether somebody ended the dashboard.
    """

    def __init__(self, limits: Limits) -> None:
        from kdissect.stats.facts import Facts
        from kdissect.stats.pulse import Pulse

        self.top: Top | None = None
        self.metrics: Metrics | None = None
        self._facts = Facts
        self._pulse = Pulse(limits)
        self._reading = Lock()
        self._run: LiveRun | None = None

    @property
    def has_left(self) -> bool:
        """Whether somebody ended the dashboard."""
        return self.top is not None and self.top.is_over

    def begin(self, run: LiveRun) -> None:
        """Packets come."""
        self._run = run
        run.losses.also.append(self._tick)

    def feed(self, exchange: Exchange) -> None:
        """Count an exchange."""
        facts = self._facts(exchange)
        with self._reading:
            self._pulse.feed(facts)
        if self.metrics is not None:
            self.metrics.feed(facts)

    def end(self, *, stays: bool) -> None:
        """No more packets come; a dashboard ``stays`` until somebody ends it."""
        run = self._run
        assert run is not None
        with self._reading:
            self._pulse.tick(self._pulse.now_ns or run.first_ns or 0, run.dissection.counts["packets"])
        if stays and self.top is not None:
            self.top.linger(lambda: run.ending.signal is None)

    def now(self) -> Now:
        """What happens."""
        with self._reading:
            return self._pulse.now()

    def drops(self) -> tuple[int, int]:
        """Packets dropped by the kernel, and by us."""
        return (0, 0) if self._run is None else (self._run.losses.by_kernel, self._run.losses.by_us)

    def _tick(self, time_ns: int) -> None:
        assert self._run is not None
        with self._reading:
            self._pulse.tick(time_ns, self._run.dissection.counts["packets"])


@contextmanager
def watching(watch: Watch, limits: Limits, names: Sequence[str], colour: str) -> Iterator[Watching | None]:
    """Begin to draw and to serve; None where nobody wants to know.

    Args:
        watch: who does.
        limits: bounds of tables and labels.
        names: of what is listened to.
        colour: ``auto``, ``always`` or ``never``.

    Raises:
        ClickException: metrics cannot be served.
    """
    if not watch.top and watch.address is None:
        yield None
        return
    with ExitStack() as stack:
        made = Watching(limits)
        if watch.address is not None:
            from kdissect.text.metrics import Metrics  # and with it prometheus_client, which few have

            made.metrics = Metrics(limits, made.now, made.drops)
            stack.enter_context(serving(made.metrics, watch.address))
        if watch.top:
            from kdissect.cli.top import Top  # and with it rich
            from kdissect.stats.quantiles import library

            library()  # or the first busy second waits for it
            out = sys.stdout
            top = Top(made.now, made.drops, ", ".join(names), out, colour=wants_colour(out, colour))
            made.top = stack.enter_context(top)
        try:
            yield made
        except CaptureError:
            if made.has_left:  # before anything came
                raise click.exceptions.Exit(OK) from None
            raise
