"""A job, so many times -> processes that do it, and what they send. Holds a pipe to each.

Workers are forked: they begin with all that the parent knows, and pickle nothing but what they send. They
leave Ctrl-C to the parent, end when it is gone, and are ended when it has heard enough.
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

_POLL_S = 0.25  # how long a signal that came between two messages may wait
_EXIT_S = 5.0


class Inbox:
    """The parent's messages, taken from the pipe by a thread of its own, so that the parent never waits."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._queue: SimpleQueue[Any] = SimpleQueue()
        Thread(target=self._receive_all, daemon=True).start()

    def receive(self) -> Any:
        """The next message, once there is one."""
        return self._queue.get()

    def has_message(self) -> bool:
        """Whether there is one."""
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
        count: how many.
        job: what each does: is given its index, sends messages, gets some.
    """

    def __init__(self, count: int, job: Callable[[int, Callable[[Any], object], Inbox], None]) -> None:
        sys.stdout.flush()  # or each worker would write again what is in its buffer
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
        """What the workers send, with the index of who does, until each has sent one of type ``last_type``. Can be
        asked for again, for what was not told before.

        Args:
            over: the last that a worker sends.
            glance: called now and then.

        Raises:
            KdissectError: a worker's own, or it is gone.
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
        """Tell a worker; one that is gone will be missed when it is listened to."""
        with suppress(OSError):
            self._pipes[index].send(message)

    def stop(self) -> None:
        """Tell all to come to an end."""
        for index in range(len(self._pipes)):
            self.send(index, Stop())

    def _exit_message(self, index: int) -> str:
        process = self._processes[index]
        process.join(_EXIT_S)
        code = process.exitcode
        cause = (
            f"with exit status {code}" if code is None or code >= 0 else f"by {signal.Signals(-code).name}"
        )
        return f"worker {index + 1} of {len(self._processes)} was ended {cause} before its work was done"


def _work(
    index: int,
    job: Callable[[int, Callable[[Any], object], Inbox], None],
    pipe: Connection,
    others: Sequence[Connection],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # the parent's: while one is open here, its worker would not see the parent go
        other.close()
    try:
        job(index, pipe.send, Inbox(pipe))
    except BrokenPipeError:
        pass  # the parent is gone
    except KdissectError as error:
        pipe.send(Failed(error))
    except Exception as error:  # noqa: BLE001  # the parent tells of it
        pipe.send(Failed(UnexpectedError.of(error)))
