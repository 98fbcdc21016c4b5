"""``live --top`` and ``--prometheus``: live exchanges -> the dashboard and the metrics, via ``Pulse``.

    choice = MonitorOptions.take(options)
    with open_monitor(choice, ...) as monitor, open_live_run(...) as (run, _):
        monitor.begin(run, ...)
        run.into(...)
        monitor.end(...)

The dissecting thread updates the counts. The threads that draw and serve read them, under a lock.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, suppress
from socket import SHUT_RDWR
from threading import BoundedSemaphore, Lock, Thread, Timer
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kdissect.cli.options import combine
from kdissect.cli.terminal import OK, style_of, warn
from kdissect.errors import CaptureError
from kdissect.runs.run import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from socket import socket

    from kdissect.cli.live_run import LiveInput
    from kdissect.cli.top import Top
    from kdissect.limits import Limits
    from kdissect.model import Exchange
    from kdissect.runs.run import Run
    from kdissect.stats.connection_log import ConnectionLogRow
    from kdissect.stats.pulse import PulseSnapshot
    from kdissect.text.metrics import Metrics


# ------------------------------------------------------------------------------------------------------------
# Metrics -> an HTTP endpoint for Prometheus, served by a thread until the command ends.
# ------------------------------------------------------------------------------------------------------------


LOOPBACK = "127.0.0.1"
_PORTS = 1 << 16
_CONNECTIONS = 16
"""That the endpoint serves at once. Prometheus keeps one open for each server that scrapes."""
_CONNECTION_S = 10.0
"""After which one is closed. A scrape takes milliseconds, and Prometheus times out after 10 s."""

Address = tuple[str, int]


def to_address(text: str) -> Address:
    """``:9464``, ``9464``, ``0.0.0.0:9464`` or ``[::1]:9464`` -> host and port; without a host, loopback.

    Raises:
        click.BadParameter: the string has another form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < _PORTS):
        raise click.BadParameter(f'invalid address "{text}": use :9464, or 0.0.0.0:9464 for all interfaces')
    return host or LOOPBACK, int(port)


@contextmanager
def serve_metrics(
    metrics: Metrics, address: Address, certificate: str | None = None, key: str | None = None
) -> Iterator[int]:
    """Serve metrics; returns the port, and reports it on stderr.

    Args:
        metrics: to serve.
        address: where.
        certificate: a PEM file, to serve them over TLS.
        key: a PEM file with its private key; None: that is in the same file.

    Raises:
        click.ClickException: the address or the certificate cannot be used.
    """
    from ssl import Purpose, SSLError, create_default_context

    from prometheus_client import start_http_server

    host, port = address
    shown = f"[{host}]" if ":" in host else host
    try:
        if certificate is not None:  # before the server opens its socket, which it would not close
            create_default_context(Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except SSLError:
        raise click.ClickException(f"--prometheus-cert: {certificate}: no certificate with its key") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"--prometheus-cert: {certificate}: {reason}") from None
    try:
        server, thread = start_http_server(port, host, metrics.registry, certificate, key or certificate)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"--prometheus: cannot serve on {shown}:{port}: {reason}") from None
    _limit_connections(server)
    port = server.server_port
    warn(f"serving metrics on {'http' if certificate is None else 'https'}://{shown}:{port}/metrics")
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _limit_connections(server: Any) -> None:
    """Limit the connections of a threading server and their time: otherwise each half of a request holds a
    thread for as long as its sender likes.
    """
    server.socket.listen(_CONNECTIONS)  # beyond the default of 5, a client would connect a second later
    free = BoundedSemaphore(_CONNECTIONS)
    serve = server.process_request_thread

    def end(connection: socket) -> None:
        with suppress(OSError):  # it has ended by itself
            connection.shutdown(SHUT_RDWR)

    def serve_for_a_while(connection: socket, address: Any) -> None:
        timer = Timer(_CONNECTION_S, end, (connection,))
        timer.start()
        try:
            serve(connection, address)
        finally:
            timer.cancel()
            free.release()

    def take(connection: socket, address: Any) -> None:
        if free.acquire(blocking=False):
            Thread(target=serve_for_a_while, args=(connection, address), daemon=True).start()
        else:
            server.shutdown_request(connection)

    server.process_request = take
    server.handle_error = lambda *_: None  # it would write a traceback for a client that hangs up
    if hasattr(server.socket, "do_handshake_on_connect"):
        server.socket.do_handshake_on_connect = False  # but in the thread of the connection


# ------------------------------------------------------------------------------------------------------------


monitor_options = combine(
    click.option(
        "--top",
        is_flag=True,
        help="Show a dashboard instead of lines: rates, latencies and errors by API, topic and client; "
        "group lag; errors and rebalances. Filters select what is counted; press h for help.",
    ),
    click.option(
        "--prometheus",
        "address",
        type=to_address,
        metavar="[HOST]:PORT",
        help="Serve the numbers shown by --top as Prometheus metrics (docs/metrics.md); without HOST, "
        "on loopback only.",
    ),
    click.option(
        "--prometheus-cert",
        "certificate",
        metavar="FILE",
        help="With --prometheus: serve over TLS, with the certificate in this PEM file.",
    ),
    click.option(
        "--prometheus-key",
        "key",
        metavar="FILE",
        help="The private key of that certificate. [default: in the same file]",
    ),
)
"""How to monitor live traffic."""


class MonitorOptions(NamedTuple):
    """The values of ``monitor_options``."""

    top: bool
    address: Address | None
    certificate: str | None = None
    key: str | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> MonitorOptions:
        """Remove these options from a command's options and return their values.

        Raises:
            ClickException: --top without a terminal, or an option without the one that it needs.
        """
        own = cls(**{name: options.pop(name) for name in cls._fields})
        if own.certificate is not None and own.address is None:
            raise click.UsageError("--prometheus-cert needs --prometheus")
        if own.key is not None and own.certificate is None:
            raise click.UsageError("--prometheus-key needs --prometheus-cert")
        if own.top:
            from kdissect.cli.top import check_terminal

            check_terminal()
        return own


class Monitor:
    """Counts live exchanges for the dashboard and the metrics."""

    def __init__(self, limits: Limits) -> None:
        from kdissect.stats.by_cluster import ClusterNames
        from kdissect.stats.facts import Facts
        from kdissect.stats.pulse import Pulse

        self.top: Top | None = None
        self.metrics: Metrics | None = None
        self._facts = Facts
        self._cluster_names = ClusterNames(limits)
        self._pulse = Pulse(limits)
        self._lock = Lock()
        self._run: Run | None = None
        self._input: LiveInput | None = None

    @property
    def was_quit(self) -> bool:
        """Whether the user quit the dashboard."""
        return self.top is not None and self.top.is_closed

    def begin(self, run: Run, live_input: LiveInput) -> None:
        """Attach a run that has started."""
        self._run, self._input = run, live_input
        live_input.drop_reporter.time_observers.append(self._tick)
        matches = Selection(run.query)

        def overdue(outstanding: Exchange, unanswered: Exchange) -> None:
            if matches(unanswered):
                self._count_overdue(outstanding, unanswered)

        run.dissection.watch_overdue(overdue)

    def feed(self, exchange: Exchange) -> None:
        """Count an exchange."""
        facts = self._facts(exchange)
        self._cluster_names.apply(facts)
        with self._lock:
            self._pulse.feed(facts)
        if self.metrics is not None:
            self.metrics.feed(facts)

    def _count_overdue(self, outstanding: Exchange, unanswered: Exchange) -> None:
        facts = self._facts(unanswered)
        with self._lock:
            self._pulse.overdue(outstanding, facts)

    def connect(self, row: ConnectionLogRow) -> None:
        """Count a connection that has ended."""
        with self._lock:
            self._pulse.connect(row)
            did_not_open = self._pulse.did_not_open(row)
        if self.metrics is not None:
            self.metrics.connect(row, did_not_open=did_not_open)

    def end(self, *, keep_open: bool) -> None:
        """Take the final counts. ``keep_open``: show the dashboard until the user quits."""
        run = self._run
        assert run is not None
        assert self._input is not None
        with self._lock:
            self._pulse.tick(self._pulse.now_ns or run.first_ns or 0, run.dissection.counts["packets"])
        if keep_open and self.top is not None:
            stop_signals = self._input.stop_signals
            self.top.linger(lambda: stop_signals.signal is None)

    def now(self) -> PulseSnapshot:
        """Return the current rates and counts."""
        with self._lock:
            return self._pulse.now()

    def drops(self) -> tuple[int, int]:
        """Return the packets dropped by the kernel and by kdissect."""
        if self._input is None:
            return 0, 0
        return self._input.drop_reporter.by_kernel, self._input.drop_reporter.by_us

    def _tick(self, time_ns: int) -> None:
        assert self._run is not None
        with self._lock:
            self._pulse.tick(time_ns, self._run.dissection.counts["packets"])


@contextmanager
def open_monitor(
    options: MonitorOptions, limits: Limits, names: Sequence[str], color: str
) -> Iterator[Monitor | None]:
    """Start the dashboard and the metrics endpoint. None: neither was requested.

    Args:
        options: which of them.
        limits: of tables and labels.
        names: of the interfaces or of the input, for the dashboard.
        color: ``auto``, ``always`` or ``never``.

    Raises:
        ClickException: metrics cannot be served.
    """
    if not options.top and options.address is None:
        yield None
        return
    with ExitStack() as stack:
        monitor = Monitor(limits)
        if options.address is not None:
            from kdissect.text.metrics import Metrics  # imports prometheus_client, which is optional

            monitor.metrics = Metrics(limits, monitor.now, monitor.drops)
            stack.enter_context(
                serve_metrics(monitor.metrics, options.address, options.certificate, options.key)
            )
        if options.top:
            from kdissect.cli.top import Top  # imports rich

            out = sys.stdout
            top = Top(monitor.now, monitor.drops, ", ".join(names), out, style_of(out, color))
            monitor.top = stack.enter_context(top)
        try:
            yield monitor
        except CaptureError:
            if monitor.was_quit:  # before the first packet
                raise click.exceptions.Exit(OK) from None
            raise
