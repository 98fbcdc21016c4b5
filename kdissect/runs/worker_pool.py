"""A job -> worker processes that do it, and the messages they send; perhaps one more process, which reads
what they work on. Holds a pipe and a ring to each.

Workers are forked: they start with the parent's memory, and pickle only messages. They ignore Ctrl-C, which
the parent handles; they exit when the parent dies, and the parent terminates them when it leaves the pool.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from mmap import mmap
from multiprocessing import get_context
from queue import SimpleQueue
from selectors import EVENT_READ, DefaultSelector
from struct import Struct
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from kdissect.errors import KdissectError, UnexpectedError, WorkerError
from kdissect.runs.assembling import Failed, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from types import TracebackType

_POLL_S = 0.25  # most time until a signal between two messages is noticed
_EXIT_S = 5.0
_RING_BYTES = 1 << 23  # more than a worker may be ahead
_PIPED_BYTES = 1 << 11  # of a message that takes the pipe; larger ones are put into the ring
_TAKEN = Struct("Q")  # native: written and read at once, never half of it
READER = "the process that reads the input"


class Inbox:
    """The parent's messages, received from the pipe by a thread, so that the parent never blocks on send.

    Attributes:
        arrived: a file descriptor that can be read if messages have arrived since ``clear_arrived``.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.arrived, self._announced = os.pipe()
        for end in (self.arrived, self._announced):
            os.set_blocking(end, False)
        Thread(target=self._receive_all, daemon=True).start()

    def receive(self) -> Any:
        """Wait for the next message."""
        return self._queue.get()

    def has_message(self) -> bool:
        """Whether a message has arrived."""
        return not self._queue.empty()

    def clear_arrived(self) -> None:
        """Forget which messages have arrived, as far as ``arrived`` is concerned."""
        with suppress(BlockingIOError):
            os.read(self.arrived, _PIPED_BYTES)

    def _receive_all(self) -> None:
        try:
            while True:
                self._queue.put(self._pipe.recv())
                with suppress(BlockingIOError):  # it is full already
                    os.write(self._announced, b"!")
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone


def own_memory(size: int) -> memoryview:
    """Memory of this size that no other process has."""
    return memoryview(bytearray(size))


class InRing(NamedTuple):
    """A message that is in the ring, or whose buffers are.

    Attributes:
        pickled: the message without its buffers; None: it is in the ring, before these.
        places: where each begins and where it ends.
        taken: how many bytes have been taken with it.
    """

    pickled: bytes | None
    places: list[tuple[int, int]]
    taken: int


class MessageRing:
    """Large messages, in memory that their sender shares with those who take them: a pipe would copy them
    twice, in small pieces. The memory begins with how many bytes each of these has taken.

    Args:
        receivers: number of processes that take every message.
    """

    def __init__(self, receivers: int = 1) -> None:
        self._taken = Struct(f"{receivers}Q")
        self._memory = memoryview(mmap(-1, self._taken.size + _RING_BYTES))
        self._put = self._sent = 0  # by the sender: in all, and with messages that were sent
        self._reserved: tuple[memoryview | None, tuple[int, int]] = None, (0, 0)
        self._in_use: deque[tuple[int, list[memoryview]]] = deque()  # by a receiver: ``taken`` and buffers

    def fits(self, size: int) -> bool:
        """Whether a message of this size finds room once all before it have been taken."""
        return 2 * size <= _RING_BYTES

    def memory(self, size: int) -> memoryview:
        """Memory for a buffer of the next message, which ``put`` need not copy; one at a time."""
        place = self._place(size)
        if place is None:
            return own_memory(size)
        memory = self._memory[slice(*place)]
        self._reserved = memory, place
        return memory

    def put(self, pickled: bytes, buffers: Sequence[pickle.PickleBuffer]) -> InRing | None:
        """Put a message there; None if there is no room for it now."""
        is_large = len(pickled) > _PIPED_BYTES
        memory, reserved = self._reserved
        places = []
        for buffer in [pickle.PickleBuffer(pickled), *buffers] if is_large else buffers:
            raw = buffer.raw()
            place = reserved if raw.obj is memory else self._copied(raw)
            if place is None:
                self._put = self._sent
                return None
            places.append(place)
        self._sent = self._put
        return InRing(None if is_large else pickled, places, self._put)

    def take(self, message: InRing) -> Any:
        """A message; its buffers stay in the ring until ``free`` releases them."""
        buffers = [self._memory[begin:end] for begin, end in message.places]
        self._in_use.append((message.taken, buffers))
        if message.pickled is not None:
            return pickle.loads(message.pickled, buffers=buffers)
        return pickle.loads(buffers[0], buffers=buffers[1:])

    def free(self, receiver: int = 0) -> None:
        """Release the buffers of messages, except of those that something has exported and the ones after
        them.
        """
        while self._in_use:
            taken, buffers = self._in_use[0]
            try:
                for buffer in buffers:
                    buffer.release()
            except BufferError:
                return
            self._in_use.popleft()
            _TAKEN.pack_into(self._memory, receiver * _TAKEN.size, taken)

    def _copied(self, raw: memoryview) -> tuple[int, int] | None:
        place = self._place(raw.nbytes)
        if place is not None:
            self._memory[slice(*place)] = raw
        return place

    def _place(self, size: int) -> tuple[int, int] | None:
        """The next place of this size; None if there is no room for it."""
        taken = min(self._taken.unpack_from(self._memory))
        end, begin = self._put, self._put % _RING_BYTES
        if begin + size > _RING_BYTES:
            end, begin = end + _RING_BYTES - begin, 0
        end += size
        if end - taken > _RING_BYTES:
            return None
        self._put = end
        return self._taken.size + begin, self._taken.size + begin + size


class Outbox:
    """A worker's messages to its parent.

    Args:
        pipe: they are sent through it.
        ring: large ones are put there.
    """

    def __init__(self, pipe: Connection, ring: MessageRing) -> None:
        self._pipe = pipe
        self._ring = ring
        self.memory = ring.memory

    def send(self, message: Any) -> None:
        """Send a message; waits if the pipe is full."""
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        if buffers or len(data) > _PIPED_BYTES:
            placed = self._ring.put(data, buffers)
            data = pickle.dumps(message if placed is None else placed, pickle.HIGHEST_PROTOCOL)
        self._pipe.send_bytes(data)


class WorkerPool:
    """The workers.

    Args:
        count: number of workers.
        job: what each does; called with its index, its outbox and its inbox.
        reader: what one more process does, if given. Its index is ``count``.
    """

    def __init__(
        self,
        count: int,
        job: Callable[[int, Outbox, Inbox], None],
        reader: Callable[[Outbox, Inbox], None] | None = None,
    ) -> None:
        sys.stdout.flush()  # otherwise each worker would write the contents of its buffer again
        context = get_context("fork")
        self._pipes: list[Connection] = []
        self._rings: list[MessageRing] = []
        self._processes = []
        jobs = [(f"worker {index + 1} of {count}", partial(job, index)) for index in range(count)]
        for name, own_job in jobs if reader is None else [*jobs, (READER, reader)]:
            parent_end, child_end = context.Pipe()
            self._pipes.append(parent_end)
            self._rings.append(MessageRing())
            process = context.Process(
                target=_work,
                args=(own_job, child_end, self._rings[-1], tuple(self._pipes)),
                daemon=True,
                name=name,
            )
            process.start()
            child_end.close()
            self._processes.append(process)
        self._unfinished = {pipe: index for index, pipe in enumerate(self._pipes)}
        self._sending = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join(_EXIT_S)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()

    def messages(
        self, last_type: type | tuple[type, ...], poll: Callable[[], object]
    ) -> Iterator[tuple[int, Any]]:
        """Yield the messages of all processes, each with the index of its process, until every one is done.
        After an exception another call yields the rest. Buffers in a message are gone when the next one is
        taken, unless something has exported them.

        Args:
            last_type: type of a process's last message.
            poll: called several times a second.

        Raises:
            KdissectError: an error of a process, or one died.
        """
        unfinished = self._unfinished
        with DefaultSelector() as selector:
            for pipe in unfinished:
                selector.register(pipe, EVENT_READ)
            while unfinished:
                poll()
                for key, _ in selector.select(_POLL_S):
                    pipe = cast("Connection", key.fileobj)
                    index = unfinished[pipe]
                    try:
                        message = pipe.recv()
                    except (EOFError, OSError):
                        raise WorkerError(self._exit_message(index)) from None
                    if isinstance(message, InRing):
                        message = self._rings[index].take(message)
                    if isinstance(message, Failed):
                        raise message.error
                    if isinstance(message, last_type):
                        del unfinished[pipe]
                        selector.unregister(pipe)
                    yield index, message
                    del message
                    self._rings[index].free()

    def send(self, index: int, message: Any) -> None:
        """Send to a worker, from the thread of ``messages``, which reports a worker that died."""
        self._rings[index].free()  # before the worker learns that it may go on
        self._send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), self._pipes[index])

    def stop(self) -> None:
        """Tell all processes to stop; any thread may."""
        data = pickle.dumps(Stop(), pickle.HIGHEST_PROTOCOL)
        for pipe in self._pipes:
            self._send(data, pipe)

    def _send(self, data: bytes, pipe: Connection) -> None:
        with self._sending, suppress(OSError):
            pipe.send_bytes(data)

    def _exit_message(self, index: int) -> str:
        process = self._processes[index]
        process.join(_EXIT_S)
        code = process.exitcode
        if code is not None and code < 0:
            cause = f"was killed by {signal.Signals(-code).name}"
        else:
            cause = f"exited with status {code}"
        return f"{process.name} {cause}"


def _work(
    job: Callable[[Outbox, Inbox], None],
    pipe: Connection,
    ring: MessageRing,
    others: Sequence[Connection],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # the parent's ends: a worker notices the parent's death only if all are closed
        other.close()

    outbox = Outbox(pipe, ring)
    try:
        job(outbox, Inbox(pipe))
    except BrokenPipeError:
        pass  # the parent is gone
    except KdissectError as error:
        outbox.send(Failed(error))
    except Exception as error:  # noqa: BLE001  # the parent reports it
        outbox.send(Failed(UnexpectedError.of(error)))
