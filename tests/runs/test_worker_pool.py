from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import CaptureError, UnexpectedError, WorkerError
from kdissect.runs.assembling import Stop
from kdissect.runs.worker_pool import Inbox, Outbox, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable


class Last(str):
    """The last message of a worker."""

    __slots__ = ()


def messages_of(pool: WorkerPool, poll: Callable[[], object] = int) -> list[tuple[int, Any]]:
    return list(pool.messages(Last, poll))


def test_messages_are_yielded_until_each_worker_is_done() -> None:
    def job(index: int, outbox: Outbox, inbox: Inbox) -> None:
        outbox.send(f"hello {index}")
        outbox.send(Last(inbox.receive()))

    with WorkerPool(3, job) as pool:
        for index in range(3):
            pool.send(index, f"bye {index}")
        messages = messages_of(pool)
    for index in range(3):
        assert [text for who, text in messages if who == index] == [f"hello {index}", f"bye {index}"]


def test_messages_of_any_size_arrive_whole() -> None:
    sizes = [10, 5_000, 700_000, 900_000, 3_000_000, 0, 1_200_000, 600_001]

    def job(_index: int, outbox: Outbox, _inbox: Inbox) -> None:
        for number, size in enumerate(sizes):
            outbox.send((bytes([number]) * size, PickleBuffer(bytes([100 + number]) * size)))
        outbox.send(Last(""))

    with WorkerPool(2, job) as pool:
        received: list[list[tuple[bytes, bytes]]] = [[], []]
        for who, message in pool.messages(Last, int):
            if not isinstance(message, Last):
                copied, buffer = message
                received[who].append((copied, bytes(buffer)))
    expected = [(bytes([place]) * size, bytes([100 + place]) * size) for place, size in enumerate(sizes)]
    assert received == [expected, expected]


def test_memory_for_a_message_is_not_copied() -> None:
    def job(_index: int, outbox: Outbox, inbox: Inbox) -> None:
        for number in range(20):
            memory = outbox.memory(1_000_000)
            is_shared = not isinstance(memory.obj, bytearray)
            memory[:] = bytes([number]) * len(memory)
            outbox.send((is_shared, PickleBuffer(memory)))
        outbox.send(Last(inbox.receive()))

    with WorkerPool(1, job) as pool:
        messages = pool.messages(Last, int)
        kept = [PickleBuffer(next(messages)[1][1]) for _ in range(20)]  # exported: none is overwritten
        assert [{*bytes(each)} for each in kept] == [{number} for number in range(20)]
        pool.send(0, "")
        assert len(list(messages)) == 1


def test_memory_of_messages_is_used_again() -> None:
    def job(_index: int, outbox: Outbox, inbox: Inbox) -> None:
        for _ in range(50):
            memory = outbox.memory(1_000_000)
            outbox.send((not isinstance(memory.obj, bytearray), PickleBuffer(memory)))
            inbox.receive()
        outbox.send(Last(""))

    with WorkerPool(1, job) as pool:
        for _, message in pool.messages(Last, int):
            if not isinstance(message, Last):
                assert message[0]  # is shared
                pool.send(0, "")


def test_an_error_of_a_worker_is_raised() -> None:
    def job(index: int, outbox: Outbox, _inbox: Inbox) -> None:
        if index:
            raise CaptureError("x.pcap: damaged")
        outbox.send(Last("done"))

    with WorkerPool(2, job) as pool, pytest.raises(CaptureError, match=r"x\.pcap: damaged"):
        messages_of(pool)


def test_an_unexpected_error_is_reported_in_one_line() -> None:
    def job(_index: int, _outbox: Outbox, _inbox: Inbox) -> None:
        raise ZeroDivisionError("oh")

    with (
        WorkerPool(1, job) as pool,
        pytest.raises(UnexpectedError, match="unexpected ZeroDivisionError"),
    ):
        messages_of(pool)


@pytest.mark.parametrize(
    ("end", "reason"), [(lambda: os.kill(os.getpid(), 9), "SIGKILL"), (lambda: os._exit(3), "3")]
)
def test_a_dead_worker_is_reported(end: Callable[[], object], reason: str) -> None:
    def job(index: int, outbox: Outbox, inbox: Inbox) -> None:
        if index:
            end()
        inbox.receive()
        outbox.send(Last("done"))

    with (
        WorkerPool(2, job) as pool,
        pytest.raises(WorkerError, match=f"worker 2 of 2 .*{reason}"),
    ):
        messages_of(pool)


def test_workers_can_be_stopped_early() -> None:
    def job(_index: int, outbox: Outbox, inbox: Inbox) -> None:
        while True:
            outbox.send("x" * 10_000)
            if inbox.has_message() and isinstance(inbox.receive(), Stop):
                outbox.send(Last(""))
                return

    with WorkerPool(2, job) as pool:
        messages = pool.messages(Last, int)
        for _ in range(5):
            next(messages)
        pool.stop()
        assert {who for who, text in messages if isinstance(text, Last)} == {0, 1}
    assert not any(process.is_alive() for process in pool._processes)


def test_an_exception_between_two_messages_loses_none() -> None:
    def job(_index: int, outbox: Outbox, _inbox: Inbox) -> None:
        outbox.send(Last("done"))

    def poll() -> None:
        raise KeyboardInterrupt

    with WorkerPool(2, job) as pool:
        with pytest.raises(KeyboardInterrupt):
            messages_of(pool, poll)
        assert len(messages_of(pool)) == 2


def test_workers_end_with_their_parent() -> None:
    program = """
        import os
        from kdissect.runs.worker_pool import WorkerPool
        def job(index, outbox, inbox):
            outbox.send(os.getpid())
            inbox.receive()
        with WorkerPool(2, job) as pool:
            messages = pool.messages(str, int)
            print(next(messages)[1], next(messages)[1], flush=True)
            os.kill(os.getpid(), 9)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, check=False
    )
    assert result.returncode == -signal.SIGKILL
    for number in map(int, result.stdout.split()):
        deadline = time.monotonic() + 10
        while is_alive(number) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_alive(number)


def is_alive(number: int) -> bool:
    try:
        with open(f"/proc/{number}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
