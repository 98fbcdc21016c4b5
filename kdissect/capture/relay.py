"""Interfaces -> a pcapng stream on stdout. A separate program, started by capture/ongoing.py:

    python -m kdissect.capture.relay '{"names": ["eth0"], ...}'

It is a process rather than a thread because the dissecting thread repeatedly holds Python's global lock for
milliseconds, and the kernel's buffer would overflow meanwhile. It ends when its stdin is closed. Messages for
the user go to stderr, a line each.

Packets are taken as they arrive. If they are many, they are taken once a millisecond, because waking up costs
more than the packets do.

Memory: packets that could not be written yet, at most ``live_bytes`` of limits.py. Further packets are
dropped. Statistics blocks in the stream count drops: of the accepted packets, the kernel dropped some
(``dropped_by_system``), and the relay dropped the rest of those not delivered.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import Counter, deque
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from kdissect.capture.live import CaptureSettings, InterfaceDown, PacketSocket, is_there, is_up
from kdissect.capture.privileges import User, drop_privileges, why_root
from kdissect.capture.source import InterfaceStatistics
from kdissect.capture.write import PcapngWriter, packet_block
from kdissect.errors import CaptureError, UnexpectedError
from kdissect.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.model import Interface, Packet

REFUSAL = "refused: "  # prefix of the message that says why nothing can be captured

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_PACKETS_PER_TURN = 1024  # packets of one interface before the next interface's turn
_BUSY_ROUNDS, _BUSY_S = 10, 0.02  # more rounds than this are busy: then each waits for more packets
_SLEEP_S = 0.001
_PIECES_PER_WRITE = 1024  # IOV_MAX
_PIPE_BYTES = 1 * MIB  # default of /proc/sys/fs/pipe-max-size
_COUNT_EVERY_S = 0.5
_REOPEN_EVERY_S = 0.2  # whether an interface is up
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python 3.11 does not define on all systems


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
        self.listener = PacketSocket(name, number, settings)
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
        except InterfaceDown:
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
        try:
            packets = list(self.listener.take(_PACKETS_PER_TURN))
        except InterfaceDown:
            return self._go_down()
        self._taken += len(packets)
        return packets

    def take_encoded(self, number: int) -> tuple[bytes, int]:
        """The same, as blocks of a pcapng file in which the interface has this number; and how many."""
        try:
            blocks, count = self.listener.take_encoded(_PACKETS_PER_TURN, number)
        except InterfaceDown:
            return b"", len(self._go_down())
        self._taken += count
        return blocks, count

    def _go_down(self) -> list[Packet]:
        self.is_up = False
        self._reported_down = True
        _report(f"{self._name} went down; waiting until it is up again")
        return []

    def backlog(self) -> int:
        """Number of packets that the kernel has and that were not taken yet."""
        now = self.listener.statistics()
        return (now.accepted or 0) - (now.dropped_by_system or 0) - self._taken

    def statistics(self) -> tuple[Interface, InterfaceStatistics] | None:
        """Its counters so far; None if it was never up."""
        if not self._was_up:
            return None
        # What was taken: the kernel may hold packets that arrived after the end.
        by_system = self.listener.statistics().dropped_by_system or 0
        accepted, delivered = by_system + self._taken, self._taken - self.dropped
        return self.listener.interface, InterfaceStatistics(None, None, by_system, accepted, delivered)


class Relay:
    """The interfaces, and the pipe to which their packets are written."""

    def __init__(self, settings: CaptureSettings, max_bytes: int, to: int) -> None:
        self._readers = [
            InterfaceReader(name, number, settings) for number, name in enumerate(settings.names)
        ]
        self._max_bytes = max_bytes
        self._to = to
        self._queue = Queue()
        self._writer = PcapngWriter(self._queue, "kdissect")  # type: ignore[arg-type]  # it only writes
        self._reported: dict[Interface, InterfaceStatistics] = {}

    def run(self, until: int) -> None:
        """Write packets until file descriptor ``until`` becomes readable or is closed."""
        next_count = next_reopen = busy_since = 0.0
        rounds, is_busy = 0, False
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
            taken = self._take([listening[number] for number in ready if number in listening])
            if self._queue:
                self._queue.write_to(self._to)
            now = time.monotonic()
            rounds += taken > 0
            if rounds == _BUSY_ROUNDS:
                is_busy, busy_since, rounds = now - busy_since < _BUSY_S, now, 0
            if taken and is_busy:
                time.sleep(_SLEEP_S)
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

    def _take(self, ready: Sequence[InterfaceReader]) -> int:
        """Take packets of these interfaces, and queue those for which there is room. Returns their number."""
        number_of = self._writer.number_of
        if len(ready) == 1:
            (reader,) = ready
            blocks, count = reader.take_encoded(number_of(reader.listener.interface))
            numbers = Counter({reader.listener.interface.index: count})
        else:
            packets = [packet for reader in ready for packet in reader.take()]
            packets.sort(key=lambda packet: packet.time_ns)
            blocks = b"".join(packet_block(number_of(packet.interface), packet) for packet in packets)
            numbers = Counter(packet.interface.index for packet in packets)
        if self._queue.bytes + len(blocks) > self._max_bytes:
            for index, count in numbers.items():
                self._readers[index].dropped += count
        elif blocks:
            self._queue.write(blocks)
        return numbers.total()

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
            while backlog > 0 and (taken := self._take([reader])):
                backlog -= taken
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
    """Capture as specified by the one argument, as JSON: ``CaptureSettings``, ``max_bytes`` and ``user``."""
    request = json.loads(arguments[0])
    max_bytes, user = request.pop("max_bytes"), request.pop("user")
    settings = CaptureSettings(**{**request, "names": tuple(request["names"])})
    try:
        _enlarge(_STDOUT)
        os.set_blocking(_STDOUT, False)
        with closing(Relay(settings, max_bytes, _STDOUT)) as relay:
            if user is None and os.geteuid() == 0:
                why = f" ({reason})" if (reason := why_root()) else ""
                text = f"still running as root{why}, but without capabilities; use -Z USER to switch users"
                _report(f"warning: {text}")
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
