"""Interfaces -> a pcapng stream on stdout. A program of its own, which capture/ongoing.py starts:

    python -m kdissect.capture.relay '{"names": ["eth0"], ...}'

A process and not a thread, because a thread that dissects keeps Python's lock for milliseconds, again and
again, and no kernel's buffer is large enough for that. It ends when its stdin is closed. Stderr gets what a
person should know, a line each.

Holds packets that could not be written yet: at most ``live_bytes`` and ``live_packets`` of limits.py. What
comes then is dropped. How many that were, and how many the kernel dropped, is told by statistics blocks in
the stream: of the packets accepted, some were dropped by the system, and the rest that was not delivered was
dropped here.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kdissect.capture.live import CaptureSettings, Listener, WentDown, check_names, is_there, is_up
from kdissect.capture.source import InterfaceStatistics
from kdissect.capture.write import PcapngWriter
from kdissect.errors import CaptureError, UnexpectedError
from kdissect.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Interface, Packet

REFUSAL = "refused: "  # before why nothing can be captured

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_AT_ONCE = 256  # packets of one interface, before others have their turn
_PIECES = 1024  # of one write: IOV_MAX
_PIPE_BYTES = 1 * MIB  # what /proc/sys/fs/pipe-max-size allows
_COUNT_EVERY_S = 0.5
_LOOK_AGAIN_S = 0.2  # whether an interface is up
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python 3.11 has no name for on all systems


class Bounds(NamedTuple):
    """How much may wait to be written."""

    bytes: int
    packets: int


class Queue:
    """What waits to be written; a file for ``PcapngWriter``.

    Attributes:
        bytes: held.
    """

    def __init__(self) -> None:
        self._pieces: deque[bytes | memoryview] = deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def write(self, piece: bytes) -> int:
        """Put it behind all others."""
        self._pieces.append(piece)
        self.bytes += len(piece)
        return len(piece)

    def pass_on(self, to: int) -> None:
        """Write as much as a pipe takes now.

        Raises:
            BrokenPipeError: nobody reads it any more.
        """
        pieces = self._pieces
        try:
            written = os.writev(to, list(islice(pieces, _PIECES)))
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
    """One of the interfaces that are wanted, whether it is up or not, and what was counted of it."""

    def __init__(self, name: str, number: int, wanted: CaptureSettings) -> None:
        self.listener: Listener | None = None
        self.dropped = 0  # by us
        self._taken = 0
        self._name, self._number, self._wanted = name, number, wanted
        self._accepted = self._dropped_by_system = 0  # before the interface went down for the last time
        self._said_down = self._said_gone = False
        self._interface: Interface | None = None
        self.open()

    def open(self) -> None:
        """Listen, if it is up.

        Raises:
            CaptureError: it cannot be listened to.
        """
        try:
            listener = self.listener = Listener(self._name, self._number, self._wanted)
        except WentDown:
            if not self._said_down:
                self._said_down = True
                _say(f"{self._name} is down; waiting until it is up")
            return
        self._interface = listener.interface
        text = f'listening on {self._name}, filter "{self._wanted.filter}"'
        _say(f"{self._name} is up again" if self._said_down else text)
        self._said_down = self._said_gone = False
        for note in listener.notes:
            _say(f"{self._name}: {note}")

    def look(self) -> None:
        """An interface that was down may be up by now, or there no more."""
        if self.listener is not None:
            return
        if is_up(self._name):
            try:
                self.open()
            except CaptureError as error:
                _say(str(error))
        elif not self._said_gone and not is_there(self._name):
            self._said_gone = True
            _say(f"{self._name} disappeared; waiting for it to come back")

    def take(self) -> list[Packet]:
        """Some of the packets that are there."""
        listener, packets = self.listener, []
        if listener is not None:
            try:
                for packet in listener.take(_AT_ONCE):
                    packets.append(packet)  # noqa: PERF402  (those before the interface goes down are kept)
            except WentDown:
                packets += self._lose(listener)
        self._taken += len(packets)
        return packets

    def left(self) -> int:
        """Packets that the kernel has, and that were not taken yet."""
        if self.listener is None or (counted := self.counted()) is None:
            return 0
        now = counted[1]
        return (now.accepted or 0) - (now.dropped_by_system or 0) - self._taken

    def counted(self) -> tuple[Interface, InterfaceStatistics] | None:
        """What was counted of it so far; None if it was never up."""
        if self._interface is None:
            return None
        accepted, by_system = self._accepted, self._dropped_by_system
        if self.listener is not None:
            now = self.listener.counted()
            accepted += now.accepted or 0
            by_system += now.dropped_by_system or 0
        delivered = accepted - by_system - self.dropped
        return self._interface, InterfaceStatistics(None, None, by_system, accepted, delivered)

    def _lose(self, listener: Listener) -> list[Packet]:
        """It went down: what came before."""
        packets: list[Packet] = []
        with suppress(WentDown):
            while more := list(listener.take(_AT_ONCE)):
                packets += more
        now = listener.counted()
        self._accepted += now.accepted or 0
        self._dropped_by_system += now.dropped_by_system or 0
        listener.close()
        self.listener = None
        self._said_down = True
        _say(f"{self._name} went down; waiting until it is up again")
        return packets


class Relay:
    """All interfaces, and the pipe to who reads their packets."""

    def __init__(self, wanted: CaptureSettings, bounds: Bounds, to: int) -> None:
        self._readers = [InterfaceReader(name, number, wanted) for number, name in enumerate(wanted.names)]
        self._bounds = bounds
        self._to = to
        self._queue = Queue()
        self._writer = PcapngWriter(self._queue, "kdissect")  # type: ignore[arg-type]  # it only writes
        self._told: dict[Interface, InterfaceStatistics] = {}

    def run(self, until: int) -> None:
        """Pass packets on, until a file descriptor says that it is over."""
        next_count = next_look = 0.0
        while True:
            poller = select.poll()
            poller.register(until, select.POLLIN)
            listening = {
                reader.listener.fileno(): reader for reader in self._readers if reader.listener is not None
            }
            for number in listening:
                poller.register(number, select.POLLIN)
            if self._queue:
                poller.register(self._to, select.POLLOUT)
            ready = [number for number, _ in poller.poll(_LOOK_AGAIN_S * 1000)]
            if until in ready:
                break
            self._take(
                packet for number in ready if number in listening for packet in listening[number].take()
            )
            if self._queue:
                self._queue.pass_on(self._to)
            now = time.monotonic()
            if now >= next_count:
                next_count = now + _COUNT_EVERY_S
                self._count(only_losses=True)
            if now >= next_look:
                next_look = now + _LOOK_AGAIN_S
                for reader in self._readers:
                    reader.look()
        self._finish()

    def _take(self, came: Iterable[Packet]) -> None:
        packets = list(came)
        if len(self._readers) > 1:
            packets.sort(key=lambda packet: packet.time_ns)
        queue, bounds = self._queue, self._bounds
        for packet in packets:
            if len(queue) >= bounds.packets or queue.bytes + len(packet.data) > bounds.bytes:
                self._readers[packet.interface.index].dropped += 1
            else:
                self._writer.write(packet)

    def _count(self, *, only_losses: bool) -> None:
        for reader in self._readers:
            if (counted := reader.counted()) is None:
                continue
            interface, now = counted
            before = self._told.get(interface)
            losses = now.dropped_by_system, reader.dropped
            if only_losses and losses == (
                (before.dropped_by_system, before.dropped_by_interface) if before else (0, 0)
            ):
                continue
            self._told[interface] = now._replace(dropped_by_interface=reader.dropped)
            self._writer.count(interface, now, time.time_ns())

    def _finish(self) -> None:
        """Write what was captured before it was over, that which the kernel still has included."""
        os.set_blocking(self._to, True)
        for reader in self._readers:
            left = reader.left()
            while left > 0 and (packets := reader.take()):
                left -= len(packets)
                self._take(packets)
                self._write_all()
        self._count(only_losses=False)
        self._write_all()

    def _write_all(self) -> None:
        while self._queue:
            self._queue.pass_on(self._to)


def _say(text: str) -> None:
    os.write(_STDERR, f"{text}\n".encode("utf-8", "backslashreplace"))


def _enlarge(pipe: int) -> None:
    import fcntl

    try:
        fcntl.fcntl(pipe, _SET_PIPE_SIZE, _PIPE_BYTES)
    except OSError:  # it is no pipe, or all pipes of this user together have what they may have
        return


def main(arguments: list[str]) -> int:
    """Capture as the one argument says, JSON of a ``CaptureSettings`` and the bounds."""
    told = json.loads(arguments[0])
    bounds = Bounds(**told.pop("bounds"))
    wanted = CaptureSettings(**{**told, "names": tuple(told["names"])})
    try:
        check_names(wanted.names)
        _enlarge(_STDOUT)
        os.set_blocking(_STDOUT, False)
        Relay(wanted, bounds, _STDOUT).run(until=_STDIN)
    except CaptureError as error:
        _say(f"{REFUSAL}{error}")
        return 2
    except BrokenPipeError:
        return 0  # who started us has gone
    except Exception as error:  # noqa: BLE001  # a person gets one line of this too
        _say(f"{REFUSAL}{UnexpectedError.of(error)}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
