"""What is being captured now -> packets as they come, and lulls: interfaces, a pipe, files that grow.

    interfaces   relay.py, a process of its own, writes pcapng into a pipe
    a pipe       of tcpdump -U -w -, or of anything else that writes a capture
    files        one that grows, or a folder in which one file follows another

So everything that comes live is a capture file that is not yet complete, and one reader reads them all. Holds
what the reader of an open file holds; the pipe, the relay and the kernel hold what was not read yet.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Self

from kdissect.capture.reader import packets_of
from kdissect.capture.relay import REFUSAL
from kdissect.capture.source import BLOCK_BYTES, Source
from kdissect.children import python_environment
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, MIB, MILLISECOND_NS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import TracebackType

    from kdissect.capture.live import CaptureSettings
    from kdissect.capture.source import InterfaceStatistics
    from kdissect.model import IdleTick, Interface, Packet

IDLE_TICK_NS = 50 * MILLISECOND_NS
"""How often a source that waits says up to which time all packets have come, and deadlines may pass."""

_DELIVERY_NS = 50 * MILLISECOND_NS
"""A packet takes less from the kernel to here, unless somebody in between keeps it in a buffer."""

_PIPE_BYTES = 1 * MIB  # what may stand in a pipe


class WaitingSource(Source):
    """A source that gives an empty block when all that has come was read.

    Attributes:
        stopped: what has come shall be read, but no more waited for.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        super().__init__(name, limits)
        self.size = None
        self.stopped = False
        self._received_ns = self._ticked_ns = time.monotonic_ns()

    @property
    def rereads(self) -> bool:
        """What comes, comes once."""
        return False

    def stop(self) -> None:
        """Wait for no more."""
        self.stopped = True

    def close(self) -> None:
        """Let go of what is behind it."""

    def warn(self, text: str) -> None:
        """What ends because it was stopped is not odd."""
        if not self.stopped:
            super().warn(text)

    def note_block(self, block: bytes) -> bytes:
        self.bytes_read += len(block)
        self._received_ns = time.monotonic_ns()
        return block

    def idle_tick_due(self) -> bool:
        """Nothing is there: whether it is time to tell."""
        now_ns = time.monotonic_ns()
        if now_ns - self._ticked_ns < IDLE_TICK_NS:
            return False
        self.idle_ns, self._ticked_ns = now_ns - self._received_ns - _DELIVERY_NS, now_ns
        return True


class Piped(WaitingSource):
    """A pipe, or whatever else a file descriptor stands for."""

    def __init__(self, name: str, limits: Limits, pipe: int) -> None:
        super().__init__("-", limits)
        self.name = name
        self._pipe = pipe

    def blocks(self) -> Iterator[bytes]:
        """Blocks as they come; see ``WaitingSource``."""
        remaining = _PIPE_BYTES  # whoever writes into it need not stop when we do
        while not self.stopped or (remaining > 0 and self._is_ready(0)):
            if self.stopped:
                remaining -= BLOCK_BYTES
            elif not self._is_ready(0):
                if self.idle_tick_due():
                    yield b""
                if not self._is_ready(IDLE_TICK_NS // MILLISECOND_NS):
                    continue
            block = os.read(self._pipe, BLOCK_BYTES)
            if not block:
                return
            yield self.note_block(block)

    def _is_ready(self, wait_ms: int) -> bool:
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        return bool(poller.poll(wait_ms))


class Listening(Piped):
    """Interfaces, through a relay.

    Args:
        wanted: which, and what of them.
        limits: how much may wait.
        tell: takes what a person should know, a line each time.
    """

    def __init__(self, settings: CaptureSettings, limits: Limits, report: Callable[[str], None]) -> None:
        bounds = {"bytes": limits.live_bytes, "packets": limits.live_packets}
        arguments = json.dumps({**settings._asdict(), "bounds": bounds})
        # A group of its own: Ctrl-C is for us, who then end it.
        try:
            self._relay = subprocess.Popen(
                [sys.executable, "-m", "kdissect.capture.relay", arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
                env=os.environ | python_environment(),
            )
        except OSError as error:
            raise CaptureError(f"cannot start {sys.executable}: {error.strerror}") from None
        assert self._relay.stdout is not None
        super().__init__(",".join(settings.names), limits, self._relay.stdout.fileno())
        assert self._relay.stderr is not None
        self._report = report
        self._stderr = self._relay.stderr
        self._half_line = b""
        self._refusal: CaptureError | None = None

    def capture_name(self, interface: str | None) -> str:
        """Packets come from an interface, whichever others are listened to."""
        return interface or self.name

    def format_error(self, fault: str | Exception) -> str:
        """What the relay says names the interface already."""
        return str(fault) if fault is self._refusal else super().format_error(fault)

    def stop(self) -> None:
        """Let the relay end; what it has captured is read."""
        assert self._relay.stdin is not None
        self._relay.stdin.close()

    def blocks(self) -> Iterator[bytes]:
        """Blocks as they come, to the last that the relay writes."""
        try:
            yield from super().blocks()
            while data := os.read(self._stderr.fileno(), BLOCK_BYTES):
                self._read_messages(data)
            if self._relay.wait():
                self._refusal = self._refusal or CaptureError(
                    f"capture process exited with status {self._relay.returncode}"
                )
                raise self._refusal
        finally:
            self.close()

    def close(self) -> None:
        with self._relay:  # which closes all pipes, and waits
            pass

    def _is_ready(self, wait_ms: int) -> bool:
        pipe, messages = self._pipe, self._stderr.fileno()
        poller = select.poll()
        poller.register(pipe, select.POLLIN)
        poller.register(messages, select.POLLIN)
        ready = [number for number, event in poller.poll(wait_ms) if event & select.POLLIN or number == pipe]
        if messages in ready:
            self._read_messages(os.read(messages, BLOCK_BYTES))
        return pipe in ready

    def _read_messages(self, data: bytes) -> None:
        *lines, self._half_line = (self._half_line + data).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "backslashreplace")
            if text.startswith(REFUSAL):
                self._refusal = CaptureError(text.removeprefix(REFUSAL))
            else:
                self._report(text)


class Ongoing:
    """What comes live, read once, from one source after another; to be used like ``reader.Capture``.

    Args:
        sources: each is asked for when the one before has ended.
        stop: where one may follow another: lets them end. What cannot be read of one is a warning then.

    Attributes:
        stopped: whether it was told to end.
        left: is told of each source that was read to its end, when another one follows.
    """

    bytes_total = None

    def __init__(self, sources: Iterable[WaitingSource], stop: Callable[[], object] | None = None) -> None:
        self._sources = iter(sources)
        self._stop = stop
        self._current: WaitingSource | None = None
        self._warnings: list[str] = []
        self._bytes_before = 0
        self._failed_before = False
        self._packets = self._read()
        self.stopped = False
        self.on_source_end: Callable[[Source], object] = lambda _: None

    def __iter__(self) -> Iterator[Packet | IdleTick]:
        return self._packets

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._packets.close()
        if self._current is not None:
            self._current.close()

    def stop(self) -> None:
        """End it when what has come is read. May be called from a signal's handler."""
        self.stopped = True
        if self._stop is not None:
            self._stop()
        if self._current is not None:
            self._current.stop()

    def finish(self) -> None:
        """End it, and read the last counters, which stand behind all packets."""
        self.stop()
        with suppress(CaptureError):  # there are none, then
            for _ in self._packets:
                pass

    @property
    def bytes_read(self) -> int:
        return self._bytes_before + (self._current.bytes_read if self._current is not None else 0)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The source that is being read."""
        return () if self._current is None else (self._current,)

    @property
    def warnings(self) -> list[str]:
        """What was odd so far, a line each that begins with the source's name."""
        return self._warnings + (self._current.warnings if self._current is not None else [])

    @property
    def failed(self) -> bool:
        """Whether a bug of ours kept us from reading all of them."""
        return self._failed_before or (self._current is not None and self._current.failed)

    @property
    def statistics(self) -> dict[Interface, InterfaceStatistics]:
        """The last counters of each interface."""
        return self._current.statistics if self._current is not None else {}

    def _read(self) -> Generator[Packet | IdleTick, None, None]:
        for source in self._sources:
            self._retire()
            self._current = source
            try:
                with closing(packets_of(source)) as packets:
                    yield from packets
            except CaptureError as error:
                if self._stop is None:
                    raise
                self._warn(str(error))
            if self.stopped:
                return

    def _retire(self) -> None:
        if self._current is not None:
            self._bytes_before += self._current.bytes_read
            self._failed_before |= self._current.failed
            for warning in self._current.warnings:
                self._warn(warning)
            self.on_source_end(self._current)

    def _warn(self, text: str) -> None:
        if len(self._warnings) < DEFAULT.notices:
            self._warnings.append(text)
