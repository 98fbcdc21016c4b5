"""A job -> worker processes that do it, and the messages they send. Holds a pipe to each.

Workers are forked: they start with the parent's memory, and pickle only messages. They ignore Ctrl-C, which
the parent handles; they exit when the parent dies, and the parent terminates them when it leaves the pool.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from kdissect.errors import KdissectError, UnexpectedError, WorkerError
from kdissect.parallel.assembling import Failed, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

_POLL_S = 0.25  # most time until a signal between two messages is noticed
_EXIT_S = 5.0


class Inbox:
    """The parent's messages, received from the pipe by a thread, so that the parent never blocks on send."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._queue: SimpleQueue[Any] = SimpleQueue()
        Thread(target=self._receive_all, daemon=True).start()

    def receive(self) -> Any:
        """Wait for the next message."""
        return self._queue.get()

    def has_message(self) -> bool:
        """Whether a message has arrived."""
        return not self._queue.empty()

    def _receive_all(self) -> None:
        try:
            while True:
                self._queue.put(self._pipe.recv())
        except (EOFError, OSError):
            os._exit(1)  # the parent is gone


class WorkerPool:
    """The workers.

    Args:
        count: number of workers.
        job: what each does; called with its index, a function that sends a message, and its inbox.
    """

    def __init__(self, count: int, job: Callable[[int, Callable[[Any], object], Inbox], None]) -> None:
        sys.stdout.flush()  # otherwise each worker would write the contents of its buffer again
        context = get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for index in range(count):
            parent_end, child_end = context.Pipe()
            self._pipes.append(parent_end)
            process = context.Process(
                target=_work,
                args=(index, job, child_end, tuple(self._pipes)),
                daemon=True,
                name=f"worker {index + 1}",
            )
            process.start()
            child_end.close()
            self._processes.append(process)
        self._unfinished = {pipe: index for index, pipe in enumerate(self._pipes)}

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

    def messages(self, last_type: type, poll: Callable[[], object]) -> Iterator[tuple[int, Any]]:
        """Yield the messages of all workers, each with the worker's index, until every worker is done. After
        an exception another call yields the rest.

        Args:
            last_type: type of a worker's last message.
            poll: called several times a second.

        Raises:
            KdissectError: an error of a worker, or a worker died.
        """
        unfinished = self._unfinished
        while unfinished:
            poll()
            for pipe in wait(list(unfinished), _POLL_S):
                assert isinstance(pipe, Connection)
                index = unfinished[pipe]
                try:
                    message = pipe.recv()
                except (EOFError, OSError):
                    raise WorkerError(self._exit_message(index)) from None
                if isinstance(message, Failed):
                    raise message.error
                if isinstance(message, last_type):
                    del unfinished[pipe]
                yield index, message

    def send(self, index: int, message: Any) -> None:
        """Send to a worker. ``messages`` reports a worker that died."""
        with suppress(OSError):
            self._pipes[index].send(message)

    def stop(self) -> None:
        """Tell all workers to stop."""
        for index in range(len(self._pipes)):
            self.send(index, Stop())

    def _exit_message(self, index: int) -> str:
        process = self._processes[index]
        process.join(_EXIT_S)
        code = process.exitcode
        if code is not None and code < 0:
            cause = f"was killed by {signal.Signals(-code).name}"
        else:
            cause = f"exited with status {code}"
        return f"worker {index + 1} of {len(self._processes)} {cause}"


def _work(
    index: int,
    job: Callable[[int, Callable[[Any], object], Inbox], None],
    pipe: Connection,
    others: Sequence[Connection],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # the parent's ends: a worker notices the parent's death only if all are closed
        other.close()
    try:
        job(index, pipe.send, Inbox(pipe))
    except BrokenPipeError:
        pass  # the parent is gone
    except KdissectError as error:
        pipe.send(Failed(error))
    except Exception as error:  # noqa: BLE001  # the parent reports it
        pipe.send(Failed(UnexpectedError.of(error)))
