"""Live packets -> all workers, each of which dissects its shard of the connections.

The parent holds nothing. Packets that workers have not dissected yet are in their inboxes: at most
``_AHEAD_BYTES`` of the slowest one, then the parent waits, and a live capture drops packets where it always
does, in the process that takes them from the kernel.
"""

from __future__ import annotations

from collections import deque
from threading import Condition
from typing import TYPE_CHECKING, Any

from kdissect.limits import MIB
from kdissect.model import IdleTick, Packet, PacketBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.model import Interface
    from kdissect.parallel.worker_pool import Inbox, WorkerPool

_AHEAD_BYTES = 8 * MIB
_WAIT_S = 0.25  # until a signal is noticed
_PACKET_BYTES = 32  # of a place in a message
_MAX_INTERFACES = 256  # that are known

Packets = PacketBlock | IdleTick


class Broadcast:
    """The parent's end.

    Args:
        pool: the workers.
        count: their number.
    """

    def __init__(self, pool: WorkerPool, count: int) -> None:
        self._pool = pool
        self._until = [0] * count
        self._sent: deque[tuple[int, int]] = deque()  # place after each message, and its size
        self._ahead_bytes = self._place = 0
        self._is_over = False
        self._changed = Condition()

    def send(self, packets: Packets | Packet) -> bool:
        """Send packets, once the workers are not too far behind. Returns whether they need more."""
        if isinstance(packets, Packet):
            packets = PacketBlock.of(packets)
        size = _PACKET_BYTES
        self._place += 2  # as in ``Dissection.place``
        if isinstance(packets, PacketBlock):
            packets = _compact(packets)
            count = len(packets.places)
            size = len(packets.data) + count * _PACKET_BYTES
            self._place += 2 * (count - 1)
        with self._changed:
            while self._ahead_bytes > _AHEAD_BYTES and not self._is_over:
                self._changed.wait(_WAIT_S)
            self._sent.append((self._place, size))
            self._ahead_bytes += size
        if not self._is_over:
            self._pool.send_to_all(packets)
        return not self._is_over

    def end(self) -> None:
        """Tell the workers that no packets follow."""
        self._pool.send_to_all(None)

    def note(self, worker: int, until: int) -> None:
        """Note the place up to which a worker has dissected. Called by another thread."""
        with self._changed:
            self._until[worker] = until
            reached = min(self._until)
            while self._sent and self._sent[0][0] <= reached:
                self._ahead_bytes -= self._sent.popleft()[1]
            self._changed.notify()

    def stop(self) -> None:
        """Note that the workers need no more. Called by another thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify()


def _compact(block: PacketBlock) -> PacketBlock:
    """The block, without most of what its buffer has besides its packets."""
    number, interface, data, places = block
    begin, end = places[0][1], places[-1][2]
    if 2 * (end - begin) >= len(data):
        return block
    moved = [(time_ns, start - begin, stop - begin, length) for time_ns, start, stop, length in places]
    return PacketBlock(number, interface, data[begin:end], moved)


class PacketInbox:
    """A worker's end: its messages, sorted into packets and all others."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._packets: deque[Packets | None] = deque()
        self._others: deque[Any] = deque()
        self._interfaces: dict[Interface, Interface] = {}

    def receive(self) -> Any:
        """Wait for the next message that is not packets."""
        while not self._others:
            self._sort(self._inbox.receive())
        return self._others.popleft()

    def has_message(self) -> bool:
        """Whether a message that is not packets has arrived."""
        self._sort_arrived()
        return bool(self._others)

    def has_packets(self) -> bool:
        """Whether packets, or their end, have arrived."""
        self._sort_arrived()
        return bool(self._packets)

    def packets(self, take_other: Callable[[], object]) -> Iterator[Packets]:
        """The packets to the end; ``take_other`` is called when another message has arrived."""
        while True:
            while self.has_message():
                take_other()
            if not self._packets:
                self._sort(self._inbox.receive())
            elif (packets := self._packets.popleft()) is None:
                return
            else:
                yield packets

    def _sort_arrived(self) -> None:
        while self._inbox.has_message():
            self._sort(self._inbox.receive())

    def _sort(self, message: Any) -> None:
        if isinstance(message, PacketBlock):
            if len(self._interfaces) >= _MAX_INTERFACES:
                self._interfaces.clear()
            known = self._interfaces.setdefault(message.interface, message.interface)
            message = message._replace(interface=known)  # messages have copies of it
        is_of_packets = message is None or isinstance(message, PacketBlock | IdleTick)
        (self._packets if is_of_packets else self._others).append(message)
