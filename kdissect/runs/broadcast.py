"""Packets of captures, or of a live capture -> all workers, each of which dissects its shard of the
connections.

One process reads the packets, and writes them once, to memory that it shares with all workers. It holds what
reading holds, and ``_BATCH_BYTES``. Packets that workers have not dissected yet are in that memory: if it is
full, this process waits for the slowest worker, and a live capture drops packets where it always does, in the
process that takes them from the kernel.
"""

from __future__ import annotations

import pickle
import select
import time
from contextlib import suppress
from multiprocessing import Pipe
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any, cast

from kdissect import core
from kdissect.capture.reader import Readable, open_capture
from kdissect.errors import CaptureError
from kdissect.limits import MIB
from kdissect.model import IdleTick, Packet, PacketBlock
from kdissect.runs.assembling import Progress, ReaderEnd, Stop
from kdissect.runs.worker_pool import InRing, MessageRing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from kdissect.capture.reader import Capture
    from kdissect.limits import Limits
    from kdissect.model import Interface
    from kdissect.runs.worker_pool import Inbox, Outbox
    from kdissect.stats.survey import Census

Packets = PacketBlock | Packet | IdleTick

_BATCH_BYTES = MIB
"""Sent at a time: each message costs every worker something."""

_BATCH_PACKETS = 1000  # where those of several files or interfaces alternate
_BATCH_BLOCKS = 64
"""What announces more would take more than ``PIPE_BUF``, and might be written in part."""

_FEW_PACKETS = 8
"""Fewer are sent in the message itself, and not divided."""

_WAIT_S = 0.001  # until there may be room again
_POLL_MS = 250  # most time until it is noticed that nobody needs more
_REPORTED_BYTES = 4 * MIB  # between two messages to the parent
_MAX_INTERFACES = 256  # that are known


class Broadcast:
    """The sender's end. Made before the workers are.

    Args:
        workers: their number.
        divides: whether each worker may get only the packets of its shard.
    """

    def __init__(self, workers: int, *, divides: bool) -> None:
        self._divides = divides
        self._ring = MessageRing(workers)
        self._pipes = [Pipe(duplex=False) for _ in range(workers)]

    def send(self, packets: Sequence[Packets | None], is_over: Callable[[], bool]) -> bool:
        """Send packets to all workers, once there is room for them. None, alone, ends a pass.

        Returns:
            False if nothing more need be sent: ``is_over`` returned true, or a worker has ended.
        """
        buffers: list[pickle.PickleBuffer] = []
        shared = [self._shared(each) if isinstance(each, PacketBlock) else each for each in packets]
        data = pickle.dumps(shared, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        message: Any = shared
        if self._ring.fits(len(data) + sum(buffer.raw().nbytes for buffer in buffers)):
            while (message := self._ring.put(data, buffers)) is None and not is_over():
                time.sleep(_WAIT_S)
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with suppress(BrokenPipeError):  # the parent notices workers that have ended
            return all(_is_sent(data, sender, is_over) for _, sender in self._pipes)
        return False

    def start(self) -> None:
        """Close the receiving ends in the sender, once the workers have started: sending to one that ended
        then fails.
        """
        for receiver, _ in self._pipes:
            receiver.close()

    def leave(self) -> None:
        """Close all ends, in a process that neither sends nor receives."""
        for ends in self._pipes:
            for end in ends:
                end.close()

    def inbox(self, worker: int, inbox: Inbox) -> PacketInbox:
        """A worker's end."""
        pipe, _ = self._pipes[worker]
        for receiver, sender in self._pipes:
            sender.close()
            if receiver is not pipe:
                receiver.close()
        return PacketInbox(inbox, pipe, self._ring, worker)

    def _shared(self, block: PacketBlock) -> PacketBlock:
        """The block, in buffers that can be shared, without the data around its packets if that is more than
        half. Its places are the core's records if the core can divide the packets, otherwise a list. A
        block of few packets is not worth that.
        """
        number, interface, data, places = block
        begin, end = places[0][1], places[-1][2]
        is_small = len(places) < _FEW_PACKETS
        if not is_small and 2 * (end - begin) >= len(data):
            begin, end = 0, len(data)
        records = None
        if not is_small and self._divides and core.is_used and isinstance(places, core.native.Places):
            records = core.native.divide_packets(data, places, interface.link_type, len(self._pipes), begin)
        shared = (
            [(time_ns, first - begin, last - begin, length) for time_ns, first, last, length in places]
            if records is None
            else pickle.PickleBuffer(records)
        )
        own = data[begin:end]
        buffer = own if is_small else pickle.PickleBuffer(own)
        return PacketBlock(number, interface, buffer, shared)  # type: ignore[arg-type]


def _is_sent(data: bytes, sender: Connection, is_over: Callable[[], bool]) -> bool:
    """Send data, once the pipe has room: the process at its other end may have ended, or never read again."""
    poll = select.poll()
    poll.register(sender, select.POLLOUT)
    while not is_over():
        if poll.poll(_POLL_MS):
            sender.send_bytes(data)
            return True
    return False


class Stopped(Exception):
    """The parent has sent ``Stop``."""


class PacketInbox:
    """A worker's end: packets from the sender, and messages from the parent.

    Args:
        inbox: of the parent's messages.
        pipe: from the sender of packets.
        ring: the memory that packets are in.
        worker: index of this worker, and of its shard.
    """

    def __init__(self, inbox: Inbox, pipe: Connection, ring: MessageRing, worker: int) -> None:
        self._inbox = inbox
        self._pipe = pipe
        self._ring = ring
        self._worker = worker
        self._is_stopped = False
        self._interfaces: dict[Interface, Interface] = {}
        self._any = DefaultSelector()
        self._any.register(pipe, EVENT_READ)
        self._any.register(inbox.arrived, EVENT_READ)

    def receive(self) -> Any:
        """Wait for the parent's next message.

        Raises:
            Stopped: it is, or was, ``Stop``.
        """
        if not self._is_stopped:
            message = self._inbox.receive()
            self._is_stopped = isinstance(message, Stop)
        if self._is_stopped:
            raise Stopped
        return message

    def has_message(self) -> bool:
        """Whether a message of the parent has arrived."""
        return self._is_stopped or self._inbox.has_message()

    def packets(
        self, take_other: Callable[[], object], idle: Callable[[], object] = int, patience_s: float = 0
    ) -> Iterator[Packets]:
        """The packets of a pass.

        Args:
            take_other: called when a message from the parent has arrived; must receive it.
            idle: called if no packets have arrived for a while, before more are waited for.
            patience_s: that while.
        """
        while True:
            while self.has_message():
                take_other()
            ready = self._wait(patience_s)
            if not ready:
                idle()
                ready = self._wait()
            if self._pipe in ready:
                for each in self._taken(self._next()):
                    if each is None:
                        return
                    yield each

    def _wait(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for packets or a message of the parent. Returns what has arrived; nothing after the time."""
        ready = [key.fileobj for key, _ in self._any.select(timeout_s)]
        if self._inbox.arrived in ready:
            self._inbox.clear_arrived()
        return ready

    def _next(self) -> Any:
        """The next message with packets."""
        try:
            return self._pipe.recv()
        except EOFError:
            while True:  # the sender has died: the parent ends this process
                self.receive()

    def _taken(self, message: InRing | list[Packets | None]) -> list[Packets | None]:
        """Copies of the packets in a message, as far as this worker needs them."""
        packets = self._ring.take(message) if isinstance(message, InRing) else message
        own = [self._own(each) if isinstance(each, PacketBlock | Packet) else each for each in packets]
        del packets
        self._ring.free(self._worker)
        return own

    def _own(self, packets: PacketBlock | Packet) -> PacketBlock | Packet:
        if len(self._interfaces) >= _MAX_INTERFACES:
            self._interfaces.clear()
        known = self._interfaces.setdefault(
            packets.interface, packets.interface
        )  # messages have copies of it
        if isinstance(packets, Packet):
            return packets._replace(interface=known)
        number, _, data, places = packets
        if isinstance(places, list):
            return PacketBlock(number, known, bytes(data), places)
        assert core.is_used
        records = cast("pickle.PickleBuffer", places)
        return PacketBlock(number, known, *core.native.packets_of_shard(data, records, number, self._worker))


def read_captures(
    paths: Sequence[str],
    limits: Limits,
    passes: int,
    census: Census | None,
    broadcast: Broadcast,
    outbox: Outbox,
    inbox: Inbox,
) -> None:
    """Read captures, and send their packets to all workers: the main function of the process that reads.

    Args:
        paths: names of the captures; several are merged.
        limits: of the dissection.
        passes: how often they are read. In all but the last pass, a capture that cannot be read is skipped.
        census: counts the packets, if given.
        broadcast: takes the packets.
        outbox: for messages to the parent.
        inbox: of ``Stop``.

    Raises:
        CaptureError: nothing can be read.
    """
    bytes_before = reported = 0
    broadcast.start()

    def send_all(packets: Iterable[Packets], capture: Capture) -> None:
        nonlocal bytes_before, reported
        is_over = inbox.has_message  # only Stop is sent here
        for batch in () if is_over() else _batches(packets):
            if not broadcast.send(batch, is_over):
                break
            if (bytes_read := bytes_before + capture.bytes_read) - reported >= _REPORTED_BYTES:
                reported = bytes_read
                outbox.send(Progress(bytes_read))
        bytes_before += capture.bytes_read
        broadcast.send([None], is_over)

    for _ in range(passes - 1):
        try:
            with open_capture(*paths, limits=limits) as capture:
                send_all(Readable(capture.packet_blocks()), capture)
        except CaptureError:
            broadcast.send([None], inbox.has_message)
    with open_capture(*paths, limits=limits) as capture:
        readable = Readable(capture.packet_blocks())
        send_all(readable if census is None else census.watch(readable), capture)
        outbox.send(ReaderEnd(capture.warnings, capture.sources, readable.fault, capture.unreadable, census))


def _batches(packets: Iterable[Packets]) -> Iterator[list[Packets]]:
    """The packets, as many together as are worth a message."""
    batch: list[Packets] = []
    size = blocks = 0
    for each in packets:
        batch.append(each)
        if isinstance(each, PacketBlock):
            size += each.places[-1][2] - each.places[0][1]
            blocks += len(each.places) >= _FEW_PACKETS
        elif isinstance(each, Packet):
            size += len(each.data)
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_PACKETS or blocks >= _BATCH_BLOCKS:
            yield batch
            batch, size, blocks = [], 0, 0
    if batch:
        yield batch
