"""Options that say what to listen to -> a run over packets as they come; and what is said of it at the end.

    given = LiveOptions.take(options)
    with listening(query, given) as run:
        run.show(...)
    run.tell(...)

Holds nothing but what it runs.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdissect import __version__
from kdissect.capture.following import Following
from kdissect.capture.live import (
    ANY,
    DEFAULT_BUFFER_BYTES,
    DEFAULT_FILTER,
    DEFAULT_SNAPLEN,
    CaptureSettings,
    listed,
)
from kdissect.capture.ongoing import Listening, Ongoing, Piped
from kdissect.capture.recording import NEVER, Recording, Thresholds
from kdissect.cli.options import to_local, together
from kdissect.cli.running import Run, faults_named
from kdissect.cli.terminal import FAILED, check_stdin, ctrl_c, output, warn
from kdissect.errors import UsageError
from kdissect.files import PRIVATE
from kdissect.limits import KIB
from kdissect.model import IdleTick
from kdissect.phrases import many, printable
from kdissect.query.filters import parse_duration, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType
    from typing import TextIO

    from kdissect.capture.source import InterfaceStatistics
    from kdissect.cli.running import Query
    from kdissect.model import Packet
    from kdissect.stats.survey import Survey


SIGNALLED = 128  # an exit status: this, and the number of the signal that ended the command
_STDIN = "-"


def to_buffer_bytes(text: str) -> int:
    """``4096`` is KiB, as tcpdump has it; ``64MiB`` is what it says.

    Raises:
        click.BadParameter: it is neither.
    """
    try:
        return int(text) * KIB if text.isdecimal() else parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def to_condition(text: str) -> tuple[str, int]:
    """``filesize:1000``, ``duration:60``, ``files:5`` or ``packets:1000`` -> a field of ``Thresholds``, and
    its value. As dumpcap has it, bare numbers are kB and seconds.

    Raises:
        click.BadParameter: it is none of these.
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


interface_options = together(
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
    click.option(
        "-s", "snaplen", type=click.IntRange(min=64), metavar="BYTES", help="Snapshot length in bytes."
    ),
    click.option(
        "-B",
        "buffer_bytes",
        type=to_buffer_bytes,
        metavar="SIZE",
        help="Size of the kernel's buffer, in KiB or like 64MiB. [default: 16MiB]",
    ),
    click.option(
        "--no-promiscuous",
        is_flag=True,
        help="Do not use promiscuous mode: capture only packets to or from this machine.",
    ),
)
"""Which interfaces to listen to, and how."""

source_options = together(
    click.argument("pipe", required=False, metavar="[-]"),
    interface_options,
    click.option(
        "--follow",
        metavar="PATH",
        help="Read a growing capture, or a folder of rotated captures (tcpdump -G, -C and -W; dumpcap "
        "-b), oldest first.",
    ),
    click.option("-D", "lists", is_flag=True, help="List interfaces and exit."),
)
"""What to listen to."""

keep_options = together(
    click.option(
        "-w",
        "target",
        callback=to_local,
        metavar="FILE",
        help="Also write all captured packets to a pcapng file, regardless of the filters below. As "
        "with tcpdump, it includes any credentials on the wire.",
    ),
    click.option(
        "-b",
        "ring",
        multiple=True,
        type=to_condition,
        metavar="filesize:|duration:|files:",
        help="With -w: start a new file after filesize:100MB or duration:1h; keep files:10 of them.",
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
"""What to keep of the packets, and when to stop."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """What ``source_options`` and ``keep_options`` were given, as values."""

    wanted: CaptureSettings | None
    follow: str | None = None
    target: Path | None = None
    mode: int = PRIVATE
    ring: Thresholds = NEVER
    stop: Thresholds = NEVER

    @classmethod
    def take(cls, options: dict[str, Any]) -> LiveOptions:
        """Take its own out of a command's options, and leave those of the command.

        Raises:
            UsageError: nothing to listen to was named, or two things; or an option goes with another one.
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
        wanted = take_wanted(options)
        target, mode = options.pop("target", None), options.pop("mode", None)
        ring, stop = Thresholds(**dict(options.pop("ring", ()))), Thresholds(**dict(options.pop("stop", ())))
        if target is None and (ring != NEVER or stop.bytes is not None or stop.files is not None):
            raise click.UsageError("-b, -a filesize: and -a files: need -w FILE")
        if ring != NEVER and ring.bytes is None and ring.duration_ns is None:
            raise click.UsageError("-b needs filesize: or duration: to know when to start a new file")
        if ring.packets is not None:
            raise click.UsageError("-b does not take packets:; use -a packets: to stop")
        return cls(wanted, follow, None if target is None else Path(target), mode or PRIVATE, ring, stop)

    @property
    def names(self) -> tuple[str, ...]:
        """Of what is listened to."""
        return self.wanted.names if self.wanted is not None else (self.follow or _STDIN,)

    def open(self, query: Query) -> Ongoing:
        """Begin to listen.

        Raises:
            CaptureError: there is nothing to listen to.
        """
        if self.wanted is not None:
            return Ongoing([Listening(self.wanted, query.limits, warn)])
        if self.follow is not None:
            files = Following(self.follow, query.limits)
            return Ongoing(files, files.stop)
        return Ongoing([Piped(_STDIN, query.limits, sys.stdin.fileno())])


def take_wanted(options: dict[str, Any]) -> CaptureSettings | None:
    """Take what ``interface_options`` were given out of a command's options; None: no interface.

    Raises:
        UsageError: an option goes with an interface, and there is none.
    """
    interfaces = options.pop("interfaces")
    settings = {
        "-f": options.pop("bpf"),
        "-s": options.pop("snaplen"),
        "-B": options.pop("buffer_bytes"),
        "--no-promiscuous": options.pop("no_promiscuous") or None,
    }
    if interfaces:
        bpf, snaplen, buffer_bytes, is_modest = settings.values()
        return CaptureSettings(
            tuple(dict.fromkeys(interfaces)) if ANY not in interfaces else (ANY,),
            DEFAULT_FILTER if bpf is None else bpf,
            snaplen or DEFAULT_SNAPLEN,
            buffer_bytes or DEFAULT_BUFFER_BYTES,
            not is_modest,
        )
    for name, value in settings.items():
        if value is not None:
            raise click.UsageError(f"{name} needs -i IFACE")
    return None


def list_interfaces() -> None:
    """Write the interfaces of this machine to stdout."""
    found = [each._replace(name=printable(each.name)) for each in listed()]
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        state = "up  " if each.is_up else "down"
        click.echo(f"{each.name:{width}}  {state}  {', '.join(each.addresses)}".rstrip())
    click.echo(f"{ANY:{width}}  all of them")


class LiveRun(Run):
    """A run over packets as they come.

    Attributes:
        ongoing: where they come from.
        losses: counts those that were dropped, and calls whoever wants to know of the time.
    """

    def __init__(
        self,
        query: Query,
        given: LiveOptions,
        ongoing: Ongoing,
        ending: StopSignals,
        out: TextIO,
        observer: Survey | None,
    ) -> None:
        self.ongoing = ongoing
        self.ending = ending
        self.losses = DropReporter(ongoing)
        self.recording = Recording(
            given.target, given.ring, given.stop, f"kdissect {__version__}", given.mode
        )
        self._has_counters = given.wanted is not None
        packets = self.recording.watch(self.losses.watch(ongoing))
        self._is_closed = False
        super().__init__(query, ongoing, packets, out, ExitStack(), observer=observer)

    def close(self) -> None:
        """Finish what is written, and count what was dropped; the second time there is nothing left to do."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._has_counters:
            self.ongoing.finish()
        self.losses.look()
        self.recording.close(self.capture.statistics, time.time_ns())

    def tell(self, exchanges: int) -> None:
        """Say on stderr what was not looked at, and why; then how many packets there were."""
        super().tell(exchanges)
        dropped = f"{self.losses.by_kernel:,} dropped by the kernel, {self.losses.by_us:,} by kdissect"
        found = self.dissection.counts["exchanges"]
        shown = (
            f"{many(found, 'exchange')}, {exchanges:,} shown"
            if exchanges != found
            else many(found, "exchange")
        )
        warn(f"{many(self.recording.packets, 'packet')}, {dropped}; {shown}")

    def end(self, noun: str) -> None:  # noqa: ARG002  (tell has told)
        """End the command as the signal wants it, if there was one, and say so if not all could be read.

        Raises:
            Exit: with a status other than 0.
        """
        if self.ending.signal is not None:
            raise click.exceptions.Exit(SIGNALLED + self.ending.signal)
        if self.failed:
            raise click.exceptions.Exit(FAILED)


@contextmanager
def listening(
    query: Query, given: LiveOptions, observer: Survey | None = None, whole: DeferInterrupt | None = None
) -> Iterator[LiveRun]:
    """Start to capture and wait for the first packet. ``observer`` sees each connection at its end; what
    ``whole`` defers is not interrupted by a second Ctrl-C.
    """
    with given.open(query) as ongoing, output() as out:
        ending = StopSignals(ongoing) if whole is None else StopSignals(ongoing, whole.press)
        with ending.waited_for(given.stop.duration_ns):
            run = LiveRun(query, given, ongoing, ending, out, observer)
            try:
                with faults_named(query, run.readable):
                    yield run
            finally:
                run.close()


# ------------------------------------------------------------------------------------------------------------
# Ctrl-C, SIGTERM, a time that is over -> the end of what is ongoing. Holds which signal it was.
# ------------------------------------------------------------------------------------------------------------


class StopSignals:
    """Ctrl-C and SIGTERM -> the end of a capture, so that what was captured is shown and counted. The second
    time it ends at once.

    Args:
        ongoing: what is captured.
        again: ends it the second time; by KeyboardInterrupt unless something else is said.

    Attributes:
        signal: which it was; None: none yet.
    """

    def __init__(
        self, ongoing: Ongoing, again: Callable[[int, FrameType | None], object] = signal.default_int_handler
    ) -> None:
        self.signal: int | None = None
        self._ongoing = ongoing
        self._again = again

    @contextmanager
    def waited_for(self, duration_ns: int | None) -> Iterator[None]:
        """Be ready for them, and end after some time where that is given."""
        before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: self._ongoing.stop())
        if duration_ns is not None:
            signal.setitimer(signal.ITIMER_REAL, duration_ns / 1_000_000_000)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self._again(number, frame)
            return
        self.signal = number
        self._ongoing.stop()


# ------------------------------------------------------------------------------------------------------------
# What was counted of interfaces -> lines on stderr: how many packets were dropped, and by whom. Holds both
# counts.
# ------------------------------------------------------------------------------------------------------------


_SAY_EVERY_S = 5.0
_LOOK_EVERY = 256  # packets


class DropReporter:
    """Tells of dropped packets soon after they were, but not all the time.

    Attributes:
        by_kernel, by_us: dropped so far.
        also: told of packet time whenever there is a look at it: while packets come, and twenty times a
            second while none do.
    """

    def __init__(self, ongoing: Ongoing) -> None:
        self.by_kernel = self.by_us = 0
        self._ongoing = ongoing
        self._said = (0, 0)
        self._say_at = 0.0
        self.also: list[Callable[[int], object]] = []

    def watch(self, packets: Iterable[Packet | IdleTick]) -> Iterator[Packet | IdleTick]:
        """Let packets pass, and look at what was counted from time to time."""
        for number, packet in enumerate(packets):
            if not number % _LOOK_EVERY or isinstance(packet, IdleTick):
                self.look()
                for tell in self.also:
                    tell(packet.time_ns)
            yield packet
        self.look()

    def look(self) -> None:
        """Count, and say what is new if it is time to."""
        self._count(self._ongoing.statistics.values())
        now = self.by_kernel, self.by_us
        if now == self._said or time.monotonic() < self._say_at:
            return
        kernel, us = (count - before for count, before in zip(now, self._said, strict=True))
        self._said, self._say_at = now, time.monotonic() + _SAY_EVERY_S
        if kernel:
            warn(f"{many(kernel, 'packet')} dropped by the kernel; use a larger buffer (-B SIZE)")
        if us:
            warn(
                f"{many(us, 'packet')} dropped by kdissect, which cannot keep up; use a narrower "
                "capture filter (-f FILTER)"
            )

    def _count(self, counted: Iterable[InterfaceStatistics]) -> None:
        by_kernel = by_us = 0
        for each in counted:
            by_kernel += each.dropped_by_system or 0
            if each.accepted is not None and each.delivered is not None:
                by_us += each.accepted - (each.dropped_by_system or 0) - each.delivered
        self.by_kernel, self.by_us = by_kernel, by_us


# ------------------------------------------------------------------------------------------------------------
# Ctrl-C at any time -> between two rows, so that what belongs together is written together. Holds whether
# it was pressed.
# ------------------------------------------------------------------------------------------------------------


Row = TypeVar("Row")


class DeferInterrupt:
    """Wraps functions that are not to be interrupted.

    While one of them works Ctrl-C waits; while the capture is read, which may take for ever on a quiet
    interface, it does not.
    """

    def __init__(self) -> None:
        self._is_busy = self._was_pressed = False

    def __call__(self, feed: Callable[[Row], object]) -> Callable[[Row], None]:
        """The same function, done before it is interrupted."""

        def fed(row: Row) -> None:
            self._is_busy = True
            try:
                feed(row)
            finally:
                self._is_busy = False
            if self._was_pressed:
                raise KeyboardInterrupt

        return fed

    def listening(self) -> AbstractContextManager[None]:
        """Take Ctrl-C over meanwhile."""
        return ctrl_c(self.press)

    def press(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-C was pressed.

        Raises:
            KeyboardInterrupt: nothing is being done that has to be whole.
        """
        if not self._is_busy:
            raise KeyboardInterrupt
        self._was_pressed = True
