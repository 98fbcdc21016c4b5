"""Interfaces -> a pcapng stream on stdout. A separate program, started by capture/ongoing.py:

    python -m kdissect.capture.relay '{"names": ["eth0"], ...}'

It is a process rather than a thread because the dissecting thread repeatedly holds Python's global lock for
milliseconds, and the kernel's buffer would overflow meanwhile. It ends when its stdin is closed. Messages for
the user go to stderr, a line each.

Memory: packets that could not be written yet, at most ``live_bytes`` and ``live_packets`` of limits.py.
Further packets are dropped. Statistics blocks in the stream count drops: of the accepted packets, the kernel
dropped some (``dropped_by_system``), and the relay dropped the rest of those not delivered.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import deque
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kdissect.capture.live import CaptureSettings, Listener, WentDown, is_there, is_up
from kdissect.capture.privileges import User, drop_privileges
from kdissect.capture.source import InterfaceStatistics
from kdissect.capture.write import PcapngWriter
from kdissect.errors import CaptureError, UnexpectedError
from kdissect.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Interface, Packet

REFUSAL = "refused: "  # prefix of the message that says why nothing can be captured

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_TAKEN_AT_ONCE = 256  # packets of one interface before the next interface's turn
_PIECES_PER_WRITE = 1024  # IOV_MAX
_PIPE_BYTES = 1 * MIB  # default of /proc/sys/fs/pipe-max-size
_COUNT_EVERY_S = 0.5
_REOPEN_EVERY_S = 0.2  # whether an interface is up
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python 3.11 does not define on all systems


class Bounds(NamedTuple):
    """Limits on the data that waits to be written."""

    bytes: int
    packets: int


class Queue:
    """Data waiting to be written; a file object for ``PcapngWriter``.

    Attributes:
        bytes: amount of data.
    """

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def write(self, piece: bytes) -> int:
        """Append data."""
        self._pieces.append(piece)
        self.bytes += len(piece)
        return len(piece)

    def write_to(self, to: int) -> None:
        """Write as much to a pipe as it accepts now.

        Raises:
            BrokenPipeError: its reader has closed it.
        """
        pieces = self._pieces
        try:
            written = os.writev(to, list(islice(pieces, _PIECES_PER_WRITE)))
        except BlockingIOError:
            return
        self.bytes -= written
        while written:
            first = pieces.popleft()
            if written < len(first):
                pieces.appendleft(memoryview(first)[written:])
                break
            written -= len(first)


class InterfaceReader:
    """One of the interfaces to capture, whether it is up or not.

    Raises:
        CaptureError: it cannot be captured.
    """

    def __init__(self, name: str, number: int, settings: CaptureSettings) -> None:
        self.listener = Listener(name, number, settings)
        self.is_up = False
        self.dropped = 0  # by us
        self._taken = 0
        self._name, self._filter = name, settings.filter
        self._was_up = self._reported_down = self._reported_gone = False
        self._attach()

    def _attach(self) -> None:
        """Start capturing if the interface is up."""
        try:
            self.listener.attach()
        except WentDown:
            if not self._reported_down:
                self._reported_down = True
                _report(f"{self._name} is down; waiting until it is up")
            return
        text = f'listening on {self._name}, filter "{self._filter}"'
        _report(f"{self._name} is up again" if self._reported_down else text)
        if not self._was_up:
            for note in self.listener.notes:
                _report(f"{self._name}: {note}")
        self.is_up = self._was_up = True
        self._reported_down = self._reported_gone = False

    def attach_if_up(self) -> None:
        """Capture on an interface that was down and is up now; report one that disappeared."""
        if self.is_up:
            return
        if is_up(self._name):
            try:
                self._attach()
            except CaptureError as error:
                if not self._reported_gone:
                    self._reported_gone = True
                    _report(str(error))
        elif not self._reported_gone and not is_there(self._name):
            self._reported_gone = True
            _report(f"{self._name} disappeared; waiting for it to come back")

    def take(self) -> list[Packet]:
        """Some of the packets that have arrived."""
        packets: list[Packet] = []
        try:
            for packet in self.listener.take(_TAKEN_AT_ONCE):
                packets.append(packet)  # noqa: PERF402  (those before the interface goes down are kept)
        except WentDown:
            with suppress(WentDown):
                while more := list(self.listener.take(_TAKEN_AT_ONCE)):
                    packets += more
            self.is_up = False
            self._reported_down = True
            _report(f"{self._name} went down; waiting until it is up again")
        self._taken += len(packets)
        return packets

    def backlog(self) -> int:
        """Number of packets that the kernel has and that were not taken yet."""
        now = self.listener.statistics()
        return (now.accepted or 0) - (now.dropped_by_system or 0) - self._taken

    def statistics(self) -> tuple[Interface, InterfaceStatistics] | None:
        """Its counters so far; None if it was never up."""
        if not self._was_up:
            return None
        _, _, by_system, accepted, *_ = self.listener.statistics()
        delivered = (accepted or 0) - (by_system or 0) - self.dropped
        return self.listener.interface, InterfaceStatistics(None, None, by_system, accepted, delivered)


class Relay:
    """The interfaces, and the pipe to which their packets are written."""

    def __init__(self, settings: CaptureSettings, bounds: Bounds, to: int) -> None:
        self._readers = [
            InterfaceReader(name, number, settings) for number, name in enumerate(settings.names)
        ]
        self._bounds = bounds
        self._to = to
        self._queue = Queue()
        self._writer = PcapngWriter(self._queue, "kdissect")  # type: ignore[arg-type]  # it only writes
        self._reported: dict[Interface, InterfaceStatistics] = {}

    def run(self, until: int) -> None:
        """Write packets until file descriptor ``until`` becomes readable or is closed."""
        next_count = next_reopen = 0.0
        while True:
            poller = select.poll()
            poller.register(until, select.POLLIN)
            listening = {reader.listener.fileno(): reader for reader in self._readers if reader.is_up}
            for number in listening:
                poller.register(number, select.POLLIN)
            if self._queue:
                poller.register(self._to, select.POLLOUT)
            ready = [number for number, _ in poller.poll(_REOPEN_EVERY_S * 1000)]
            if until in ready:
                break
            self._take(
                packet for number in ready if number in listening for packet in listening[number].take()
            )
            if self._queue:
                self._queue.write_to(self._to)
            now = time.monotonic()
            if now >= next_count:
                next_count = now + _COUNT_EVERY_S
                self._count(only_drops=True)
            if now >= next_reopen:
                next_reopen = now + _REOPEN_EVERY_S
                for reader in self._readers:
                    reader.attach_if_up()
        self._finish()

    def close(self) -> None:
        """Close the interfaces."""
        for reader in self._readers:
            reader.listener.close()

    def _take(self, arrived: Iterable[Packet]) -> None:
        packets = list(arrived)
        if len(self._readers) > 1:
            packets.sort(key=lambda packet: packet.time_ns)
        queue, bounds = self._queue, self._bounds
        for packet in packets:
            if len(queue) >= bounds.packets or queue.bytes + len(packet.data) > bounds.bytes:
                self._readers[packet.interface.index].dropped += 1
            else:
                self._writer.write(packet)

    def _count(self, *, only_drops: bool) -> None:
        for reader in self._readers:
            if (statistics := reader.statistics()) is None:
                continue
            interface, now = statistics
            before = self._reported.get(interface)
            drops = now.dropped_by_system, reader.dropped
            if only_drops and drops == (
                (before.dropped_by_system, before.dropped_by_interface) if before else (0, 0)
            ):
                continue
            self._reported[interface] = now._replace(dropped_by_interface=reader.dropped)
            self._writer.count(interface, now, time.time_ns())

    def _finish(self) -> None:
        """Write all packets captured so far, including those that the kernel still has."""
        os.set_blocking(self._to, True)
        for reader in self._readers:
            backlog = reader.backlog()
            while backlog > 0 and (packets := reader.take()):
                backlog -= len(packets)
                self._take(packets)
                self._write_all()
        self._count(only_drops=False)
        self._write_all()

    def _write_all(self) -> None:
        while self._queue:
            self._queue.write_to(self._to)


def _report(text: str) -> None:
    os.write(_STDERR, f"{text}\n".encode("utf-8", "backslashreplace"))


def _enlarge(pipe: int) -> None:
    import fcntl

    try:
        fcntl.fcntl(pipe, _SET_PIPE_SIZE, _PIPE_BYTES)
    except OSError:  # not a pipe, or the user's limit for all pipes is reached
        return


def main(arguments: list[str]) -> int:
    """Capture as specified by the one argument: ``CaptureSettings`` with ``bounds`` and ``user``, as JSON."""
    request = json.loads(arguments[0])
    bounds, user = Bounds(**request.pop("bounds")), request.pop("user")
    settings = CaptureSettings(**{**request, "names": tuple(request["names"])})
    try:
        _enlarge(_STDOUT)
        os.set_blocking(_STDOUT, False)
        with closing(Relay(settings, bounds, _STDOUT)) as relay:
            if user is None and os.geteuid() == 0:
                _report(
                    "warning: running as root, but without capabilities; use -Z USER to run as another user"
                )
            drop_privileges(None if user is None else User(*user))
            relay.run(until=_STDIN)
    except CaptureError as error:
        _report(f"{REFUSAL}{error}")
        return 2
    except BrokenPipeError:
        return 0  # the parent process has ended
    except Exception as error:  # noqa: BLE001  # reported in one line like other errors
        _report(f"{REFUSAL}{UnexpectedError.of(error)}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
