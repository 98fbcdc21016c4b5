"""Options that say what to capture and when to stop -> a run over live packets.

options = LiveOptions.take(...)
with options.open(query) as ongoing, open_live_run(query, options, ongoing) as (run, _):
run.into(sink)
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from kdissect import __version__
from kdissect.capture.following import FollowedPath
from kdissect.capture.live import (
    ANY,
    DEFAULT_BUFFER_BYTES,
    DEFAULT_FILTER,
    DEFAULT_SNAPLEN,
    CaptureSettings,
    listed,
)
from kdissect.capture.ongoing import InterfaceSource, LiveSources, PipeSource
from kdissect.capture.privileges import check_output, chosen_user, drop_privileges
from kdissect.capture.recording import NEVER, Recording, Thresholds
from kdissect.cli.options import at_least, combine, to_local
from kdissect.cli.run import EXPECTED, key_log
from kdissect.cli.terminal import SIGNALLED, check_stdin, output, warn
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.limits import KIB
from kdissect.phrases import many, printable
from kdissect.query.filters import parse_duration, parse_size
from kdissect.runs.run import Here, Run, ctrl_c, faults_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from kdissect.capture.source import InterfaceStatistics
    from kdissect.model import IdleTick, PacketBlock
    from kdissect.runs.run import Query
    from kdissect.stats.survey import Survey


_STDIN = "-"


def to_buffer_bytes(text: str) -> int:
    """A size; a bare number is in KiB, as in tcpdump.

    Raises:
        click.BadParameter: the string is not a size.
    """
    try:
        return int(text) * KIB if text.isdecimal() else parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def to_condition(text: str) -> tuple[str, int]:
    """``filesize:1000``, ``duration:60``, ``files:5`` or ``packets:1000`` -> a field of ``Thresholds``
    and its value. Bare numbers are kB and seconds, as in dumpcap.

    Raises:
        click.BadParameter: the string has another form.
    """
    name, _, value = text.partition(":")
    try:
        if name == "filesize":
            return "bytes", int(value) * 1000 if value.isdecimal() else parse_size(value)
        if name == "duration":
            return "duration_ns", parse_duration(f"{value}s" if value.isdecimal() else value)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    if name in ("files", "packets") and value.isdecimal() and int(value):
        return name, int(value)
    raise click.BadParameter(
        f'invalid condition "{text}": use filesize:100MB, duration:1h, files:10 or packets:1000'
    )


interface_options = combine(
    click.option(
        "-i",
        "interfaces",
        multiple=True,
        metavar="IFACE",
        help="Capture on this interface (any: all of them). Can be repeated.",
    ),
    click.option(
        "-f",
        "bpf",
        metavar="FILTER",
        help=f'Capture filter, applied by the kernel: "tcp port 9092". [default: {DEFAULT_FILTER}]',
    ),
    click.option("-s", "snaplen", type=at_least(64), metavar="BYTES", help="Snapshot length in bytes."),
    click.option(
        "-B",
        "buffer_bytes",
        type=to_buffer_bytes,
        metavar="SIZE",
        help="Kernel buffer size, in KiB or with a unit: 64MiB. [default: 16MiB]",
    ),
    click.option(
        "--no-promiscuous",
        is_flag=True,
        help="Disable promiscuous mode: capture only packets to or from this machine.",
    ),
    click.option(
        "-Z",
        "user",
        metavar="USER",
        help="As root: switch to this user after opening the interfaces. Output files belong to USER. "
        "[default: the user who ran sudo]",
    ),
)
"""Which interfaces to capture on, and how."""

source_options = combine(
    click.argument("pipe", required=False, metavar="[-]"),
    interface_options,
    click.option(
        "--follow",
        metavar="PATH",
        help="Read a growing capture, or a directory of rotated captures (tcpdump -G, -C and -W; dumpcap "
        "-b), oldest first.",
    ),
    click.option("-D", "lists", is_flag=True, help="List interfaces and exit."),
)
"""What to capture."""

keep_options = combine(
    click.option(
        "-w",
        "target",
        callback=to_local,
        metavar="FILE",
        help="Also write all captured packets to a pcapng file, regardless of filters. As with tcpdump, it "
        "includes any credentials on the wire.",
    ),
    click.option(
        "-b",
        "ring",
        multiple=True,
        type=to_condition,
        metavar="filesize:|duration:|files:",
        help="With -w: start a new file after filesize:100MB or duration:1h; files:10 keeps only the "
        "newest 10.",
    ),
    click.option(
        "-a",
        "stop",
        multiple=True,
        type=to_condition,
        metavar="duration:|packets:|filesize:|files:",
        help="Stop after duration:60s, packets:1000, or with -w filesize:100MB, files:10.",
    ),
)
"""Where to write the packets, and when to stop."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The values of ``source_options`` and ``keep_options``."""

    settings: CaptureSettings | None
    follow: str | None = None
    target: Path | None = None
    mode: int = PRIVATE
    ring: Thresholds = NEVER
    stop: Thresholds = NEVER

    @classmethod
    def take(cls, options: dict[str, Any]) -> LiveOptions:
        """Remove these options from a command's options and return their values.

        Raises:
            UsageError: there is no source or more than one, or an option needs another one.
        """
        pipe, follow = options.pop("pipe", None), options.pop("follow", None)
        if pipe not in (None, _STDIN):
            raise click.UsageError(
                f"{pipe} is not an interface; use -i IFACE, --follow PATH, or: kdissect read {pipe}"
            )
        ways = {"-": pipe is not None, "-i": bool(options["interfaces"]), "--follow": follow is not None}
        chosen = [name for name, is_chosen in ways.items() if is_chosen]
        if not chosen:
            raise click.UsageError(
                "specify an interface (-i IFACE; -D lists them), a pipe (-), or --follow PATH"
            )
        if len(chosen) > 1:
            raise click.UsageError(f"{' and '.join(chosen)} are mutually exclusive")
        if pipe is not None:
            check_stdin()
        settings = take_capture_settings(options)
        target, mode = options.pop("target", None), options.pop("mode", None)
        ring, stop = Thresholds(**dict(options.pop("ring", ()))), Thresholds(**dict(options.pop("stop", ())))
        if target is None and (ring != NEVER or stop.bytes is not None or stop.files is not None):
            raise click.UsageError("-b, -a filesize: and -a files: need -w FILE")
        if ring != NEVER and ring.bytes is None and ring.duration_ns is None:
            raise click.UsageError("-b files: also needs -b filesize: or -b duration:")
        if ring.packets is not None:
            raise click.UsageError("-b does not take packets:; use -a packets: to stop")
        return cls(settings, follow, None if target is None else Path(target), mode or PRIVATE, ring, stop)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the interfaces or of the input."""
        return self.settings.names if self.settings is not None else (self.follow or _STDIN,)

    @contextmanager
    def open(self, query: Query, directory: Path | None = None) -> Iterator[LiveSources]:
        """Start the capture. On interfaces: then drop all privileges, in this process too.

        Args:
            query: for its limits.
            directory: where other files than ``target`` will be written.

        Raises:
            CaptureError: it cannot be started.
            UsageError: the user without privileges cannot write the files.
        """
        if self.settings is None:
            with self._waiting(query) as ongoing:
                yield ongoing
            return
        user = chosen_user(self.settings.user)
        with LiveSources([InterfaceSource(self.settings, query.limits, warn, user)]) as ongoing:
            drop_privileges(user)
            if self.target is not None:
                check_output(self.target, user, is_directory=False)
            if directory is not None:
                check_output(directory, user, is_directory=True)
            yield ongoing

    def _waiting(self, query: Query) -> LiveSources:
        if self.follow is not None:
            files = FollowedPath(self.follow, query.limits)
            return LiveSources(files, files.stop)
        return LiveSources([PipeSource(_STDIN, query.limits, sys.stdin.fileno())])


def take_capture_settings(options: dict[str, Any]) -> CaptureSettings | None:
    """Remove ``interface_options`` from a command's options and return their values; None: no interface.

    Raises:
        UsageError: an option needs an interface, and there is none.
    """
    interfaces = options.pop("interfaces")
    settings = {
        "-f": options.pop("bpf"),
        "-s": options.pop("snaplen"),
        "-B": options.pop("buffer_bytes"),
        "--no-promiscuous": options.pop("no_promiscuous") or None,
        "-Z": options.pop("user"),
    }
    if interfaces:
        bpf, snaplen, buffer_bytes, no_promiscuous, user = settings.values()
        return CaptureSettings(
            tuple(dict.fromkeys(interfaces)) if ANY not in interfaces else (ANY,),
            DEFAULT_FILTER if bpf is None else bpf,
            snaplen or DEFAULT_SNAPLEN,
            buffer_bytes or DEFAULT_BUFFER_BYTES,
            not no_promiscuous,
            user,
        )
    for name, value in settings.items():
        if value is not None:
            raise click.UsageError(f"{name} needs -i IFACE")
    return None


def list_interfaces() -> None:
    """Write the interfaces of this machine to stdout."""
    interfaces = [each._replace(name=printable(each.name)) for each in listed()]
    width = max((len(each.name) for each in interfaces), default=0)
    for each in interfaces:
        state = "up  " if each.is_up else "down"
        click.echo(f"{each.name:{width}}  {state}  {', '.join(each.addresses)}".rstrip())
    click.echo(f"{ANY:{width}}  all of them")


class LiveInput:
    """The packets of a live capture, counted and recorded.

    Attributes:
        ongoing: their source.
        stop_signals: stop it.
        drop_reporter: counts dropped packets.
        recording: writes packets to files (``-w``), and counts them.
        packets: iterate over them once.
    """

    def __init__(self, options: LiveOptions, ongoing: LiveSources, stop_signals: StopSignals) -> None:
        self.ongoing = ongoing
        self.stop_signals = stop_signals
        self.drop_reporter = DropReporter(ongoing)
        self.recording = Recording(
            options.target, options.ring, options.stop, f"kdissect {__version__}", options.mode
        )
        self.packets = self.recording.watch(self.drop_reporter.watch(ongoing))
        self._has_counters = options.settings is not None
        self._is_closed = False

    def close(self) -> None:
        """Finish the recording and count dropped packets. Does nothing when called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._has_counters:
            self.ongoing.finish()
        self.drop_reporter.poll()
        self.recording.close(self.ongoing.statistics, time.time_ns())

    def report(self, total: int, shown: int) -> None:
        """Report the number of packets on stderr, and of all exchanges and those that were shown."""
        drops = self.drop_reporter
        dropped = f"{drops.by_kernel:,} dropped by the kernel, {drops.by_us:,} by kdissect"
        exchanges = many(total, "exchange")
        if self.ongoing.interrupted and drops.delivered > self.recording.packets:
            warn(
                f"{many(drops.delivered - self.recording.packets, 'captured packet')} not processed: stopped "
                "by a second Ctrl-C"
            )
        and_shown = f"{exchanges}, {shown:,} shown" if shown != total else exchanges
        warn(f"{many(self.recording.packets, 'packet')}, {dropped}; {and_shown}")

    def end(self) -> None:
        """See ``StopSignals``."""
        self.stop_signals.end()


@contextmanager
def open_live_run(
    query: Query,
    options: LiveOptions,
    ongoing: LiveSources,
    observer: Survey | None = None,
    defer: DeferInterrupt | None = None,
    jobs: int = 1,
) -> Iterator[tuple[Run, LiveInput]]:
    """Wait for the first packet of a capture, which is finished after the block.

    Args:
        query: what to select.
        options: what to capture.
        ongoing: the capture, from ``options.open``.
        observer: sees each connection at its end.
        defer: functions wrapped by it are not interrupted by a second Ctrl-C.
        jobs: number of processes that dissect.
    """
    with output() as out:
        stop_signals = StopSignals(ongoing) if defer is None else StopSignals(ongoing, defer.press)
        with stop_signals.installed(options.stop.duration_ns):
            live_input = LiveInput(options, ongoing, stop_signals)
            try:
                run = Run(query, ongoing, live_input.packets, out, live_input)
                if jobs > 1:
                    from kdissect.runs.workers import Workers

                    run.place = Workers(run, jobs)
                else:
                    run.place = Here(run, observer=observer, key_log=key_log(query, ongoing))
                with faults_named(query, run.readable, EXPECTED):
                    yield run, live_input
            finally:
                live_input.close()


# ------------------------------------------------------------------------------------------------------------
# Ctrl-C, SIGTERM or a duration -> the end of a capture.
# ------------------------------------------------------------------------------------------------------------


class StopSignals:
    """Ctrl-C and SIGTERM stop a capture, so that what was captured is still shown and counted. The second
    signal ends the command without reading the rest, which is counted.

    Args:
        ongoing: the capture.
        on_repeat: handles the second signal; raises KeyboardInterrupt by default.

    Attributes:
        signal: the first signal; None: none yet.
    """

    def __init__(
        self,
        ongoing: LiveSources,
        on_repeat: Callable[[int, FrameType | None], object] = signal.default_int_handler,
    ) -> None:
        self.signal: int | None = None
        self._ongoing = ongoing
        self._on_repeat = on_repeat

    @contextmanager
    def installed(self, duration_ns: int | None) -> Iterator[None]:
        """Handle the signals inside the block, and stop the capture after ``duration_ns`` if set."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: self._ongoing.stop())
        if duration_ns is not None:
            signal.setitimer(signal.ITIMER_REAL, duration_ns / 1_000_000_000)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def end(self) -> None:
        """End the command with the exit status of a signal, if there was one.

        Raises:
            Exit: with this status.
        """
        if self.signal is not None:
            raise click.exceptions.Exit(SIGNALLED + self.signal)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if not self._ongoing.interrupt():
                self._on_repeat(number, frame)
            return
        self.signal = number
        self._ongoing.stop()


# ------------------------------------------------------------------------------------------------------------
# Statistics of interfaces -> lines on stderr: how many packets the kernel and kdissect dropped.
# ------------------------------------------------------------------------------------------------------------


_REPORT_EVERY_S = 5.0


class DropReporter:
    """Reports dropped packets soon, but not more often than every few seconds.

    Attributes:
        by_kernel, by_us: packets dropped so far.
        delivered: those that were not, according to the last counters.
        time_observers: called with the packet time before each block of packets, and 20 times a second while
            there are none.
    """

    def __init__(self, ongoing: LiveSources) -> None:
        self.by_kernel = self.by_us = self.delivered = 0
        self._ongoing = ongoing
        self._reported = (0, 0)
        self._next_report_s = 0.0
        self.time_observers: list[Callable[[int], object]] = []

    def watch(self, packets: Iterable[PacketBlock | IdleTick]) -> Iterator[PacketBlock | IdleTick]:
        """Yield the packets unchanged, and poll the statistics."""
        for block in packets:
            self.poll()
            for observe in self.time_observers:
                observe(block.time_ns)
            yield block
        self.poll()

    def poll(self) -> None:
        """Update the counts, and report new drops unless the last report is too recent."""
        self._count(self._ongoing.statistics.values())
        now = self.by_kernel, self.by_us
        if now == self._reported or time.monotonic() < self._next_report_s:
            return
        kernel, us = (count - before for count, before in zip(now, self._reported, strict=True))
        self._reported, self._next_report_s = now, time.monotonic() + _REPORT_EVERY_S
        if kernel:
            warn(f"{many(kernel, 'packet')} dropped by the kernel; use a larger buffer (-B SIZE)")
        if us:
            warn(
                f"{many(us, 'packet')} dropped by kdissect, which cannot keep up; use a narrower "
                "capture filter (-f FILTER)"
            )

    def _count(self, counted: Iterable[InterfaceStatistics]) -> None:
        by_kernel = by_us = delivered = 0
        for each in counted:
            by_kernel += each.dropped_by_system or 0
            if each.accepted is not None and each.delivered is not None:
                by_us += each.accepted - (each.dropped_by_system or 0) - each.delivered
                delivered += each.delivered
        self.by_kernel, self.by_us, self.delivered = by_kernel, by_us, delivered


# ------------------------------------------------------------------------------------------------------------
# Ctrl-C during a row -> KeyboardInterrupt after it, so that files that belong together agree.
# ------------------------------------------------------------------------------------------------------------


P = ParamSpec("P")


class DeferInterrupt:
    """Wraps functions that must not be interrupted.

    Ctrl-C waits while one of them runs. It does not wait while the capture is read, which can take forever on
    a quiet interface.
    """

    def __init__(self) -> None:
        self._is_busy = self._was_pressed = False

    def __call__(self, feed: Callable[P, object]) -> Callable[P, None]:
        """Wrap a function: Ctrl-C while it runs raises KeyboardInterrupt after it."""

        def deferred(*args: P.args, **kwargs: P.kwargs) -> None:
            self._is_busy = True
            try:
                feed(*args, **kwargs)
            finally:
                self._is_busy = False
            if self._was_pressed:
                raise KeyboardInterrupt

        return deferred

    def installed(self) -> AbstractContextManager[None]:
        """Handle Ctrl-C inside the block."""
        return ctrl_c(self.press)

    def press(self, _number: int, _frame: FrameType | None) -> None:
        """Handle Ctrl-C.

        Raises:
            KeyboardInterrupt: none of the functions is running.
        """
        if not self._is_busy:
            raise KeyboardInterrupt
        self._was_pressed = True
