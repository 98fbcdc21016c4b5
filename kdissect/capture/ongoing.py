"""A live capture (interfaces, a pipe or growing files) -> blocks of packets as they arrive, and idle ticks.

    interfaces   relay.py, a separate process, writes pcapng to a pipe
    a pipe       from tcpdump -U -w -, or from any other program that writes a capture
    files one that grows, or a directory to which files are added

So every live source is a capture file that is not yet complete, and reader.py reads them all. Memory: that of
the reader; packets not read yet are in the pipe, the relay and the kernel.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Self, cast

from kdissect.capture.live import check_names
from kdissect.capture.reader import packet_blocks_of
from kdissect.capture.relay import REFUSAL
from kdissect.capture.source import BLOCK_BYTES, Source
from kdissect.children import python_environment
from kdissect.errors import CaptureError
from kdissect.limits import DEFAULT, MIB, MILLISECOND_NS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import GeneratorType, TracebackType

    from kdissect.capture.live import CaptureSettings
    from kdissect.capture.privileges import User
    from kdissect.capture.source import InterfaceStatistics
    from kdissect.model import IdleTick, Interface, PacketBlock

IDLE_TICK_NS = 50 * MILLISECOND_NS
"""Interval of the idle ticks of a waiting source."""

_DELIVERY_NS = 50 * MILLISECOND_NS
"""The longest that a packet takes from the kernel to here, unless a program in between buffers it."""

_PIPE_BYTES = 1 * MIB  # largest capacity of a pipe


class WaitingSource(Source):
    """A source that yields an empty block as an idle tick when everything that has arrived was read.

    Attributes:
        stopped: whether to stop waiting; what has arrived is still read.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        super().__init__(name, limits)
        self.size = None
        self.stopped = False
        self._received_ns = self._ticked_ns = time.monotonic_ns()

    @property
    def rereads(self) -> bool:
        """No: a live source can be read only once."""
        return False

    def stop(self) -> None:
        """Stop waiting for more."""
        self.stopped = True

    def close(self) -> None:
        """Release its resources."""

    def leave(self) -> None:
        """In a forked process: leave it to the other one."""

    def warn(self, text: str) -> None:
        """Add a warning, except after ``stop``: then an incomplete file is expected."""
        if not self.stopped:
            super().warn(text)

    def note_block(self, block: bytes) -> bytes:
        self.bytes_read += len(block)
        self._received_ns = time.monotonic_ns()
        return block

    def idle_tick_due(self) -> bool:
        """Whether an idle tick is due, when nothing has arrived. Updates ``idle_ns``."""
        now_ns = time.monotonic_ns()
        if now_ns - self._ticked_ns < IDLE_TICK_NS:
            return False
        self.idle_ns, self._ticked_ns = now_ns - self._received_ns - _DELIVERY_NS, now_ns
        return True


class PipeSource(WaitingSource):
    """A pipe or any other file descriptor."""

    def __init__(self, name: str, limits: Limits, pipe: int) -> None:
        super().__init__("-", limits)
        self.name = name
        self._pipe = pipe

    def blocks(self) -> Iterator[bytes]:
        """Blocks as they arrive; see ``WaitingSource``."""
        remaining = _PIPE_BYTES  # to read after stop: the writer may continue
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


class InterfaceSource(PipeSource):
    """Network interfaces, captured by a relay process.

    Args:
        settings: which interfaces, and what to capture.
        limits: on packets that were captured but not read yet.
        report: is called with each message for the user, one line.
        user: the one whom the relay becomes after opening the interfaces; None: it stays.

    Raises:
        CaptureError: an interface does not exist, or the relay cannot be started.
    """

    def __init__(
        self,
        settings: CaptureSettings,
        limits: Limits,
        report: Callable[[str], None],
        user: User | None = None,
    ) -> None:
        check_names(settings.names)
        arguments = json.dumps({**settings._asdict(), "max_bytes": limits.live_bytes, "user": user})
        # In its own process group: Ctrl-C reaches only this process, which then ends the relay.
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
        """Packets are named after their interface."""
        return interface or self.name

    def format_error(self, fault: str | Exception) -> str:
        """Format an error; messages of the relay already name the interface."""
        return str(fault) if fault is self._refusal else super().format_error(fault)

    def stop(self) -> None:
        """End the relay; packets it has captured are still read."""
        assert self._relay.stdin is not None
        self._relay.stdin.close()

    def blocks(self) -> Iterator[bytes]:
        """Blocks as they arrive, up to the last one that the relay writes."""
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
        with self._relay:  # closes all pipes, and waits for the process
            pass

    def leave(self) -> None:
        """Close the pipes: the relay ends when no process has its stdin open."""
        for pipe in (self._relay.stdin, self._relay.stdout, self._relay.stderr):
            if pipe is not None:
                pipe.close()

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


class LiveSources:
    """A live capture from one source after another, with the interface of ``reader.Capture``.

    Args:
        sources: the next one is taken when one has ended.
        stop: if several sources may follow each other: ends ``sources``. A damaged source then gives a
            warning.

    Attributes:
        stopped: whether ``stop`` was called.
        interrupted: whether ``interrupt`` was.
        on_source_end: is called with each source that was read to its end, when another one follows.
    """

    bytes_total = None
    unreadable = False  # a live source that cannot be opened ends the command

    def __init__(self, sources: Iterable[WaitingSource], stop: Callable[[], object] | None = None) -> None:
        self._sources = iter(sources)
        self._stop = stop
        self._current: WaitingSource | None = None
        self._warnings: list[str] = []
        self._bytes_before = 0
        self._failed_before = False
        self._packet_blocks = self._read()
        self.stopped = self.interrupted = False
        self.on_source_end: Callable[[Source], object] = lambda _: None

    def __iter__(self) -> Iterator[PacketBlock | IdleTick]:
        """Packets as they arrive: a block ends where nothing more has arrived yet."""
        for packets in self._packet_blocks:
            if self.interrupted:
                return
            yield packets

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._packet_blocks.close()
        if self._current is not None:
            self._current.close()

    def leave(self) -> None:
        """In a forked process: leave the capture to the other one."""
        if self._current is not None:
            self._current.leave()

    def stop(self) -> None:
        """End the capture after reading what has arrived. May be called from a signal handler."""
        self.stopped = True
        if self._stop is not None:
            self._stop()
        if self._current is not None:
            self._current.stop()

    def interrupt(self) -> bool:
        """Yield no more packets after the read that runs now; an exception inside it would lose the final
        counters. Returns False if nothing is being read, or when called again. For a signal handler, after
        ``stop``: then a read is short.
        """
        is_reading = cast("GeneratorType[Any, Any, Any]", self._packet_blocks).gi_running
        ends_later = is_reading and not self.interrupted
        self.interrupted = True
        return ends_later

    def finish(self) -> None:
        """End the capture, and read the final counters, which come after all packets."""
        self.stop()
        with suppress(CaptureError):  # then there are none
            for _ in self._packet_blocks:
                pass

    @property
    def bytes_read(self) -> int:
        return self._bytes_before + (self._current.bytes_read if self._current is not None else 0)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The current source."""
        return () if self._current is None else (self._current,)

    @property
    def warnings(self) -> list[str]:
        """Warnings so far, a line each that begins with the source's name."""
        return self._warnings + (self._current.warnings if self._current is not None else [])

    @property
    def failed(self) -> bool:
        """Whether a bug in kdissect prevented reading one of them completely."""
        return self._failed_before or (self._current is not None and self._current.failed)

    @property
    def statistics(self) -> dict[Interface, InterfaceStatistics]:
        """The last counters of each interface."""
        return self._current.statistics if self._current is not None else {}

    def _read(self) -> Generator[PacketBlock | IdleTick, None, None]:
        for source in self._sources:
            self._retire()
            self._current = source
            try:
                with closing(packet_blocks_of(source)) as packet_blocks:
                    yield from packet_blocks
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
