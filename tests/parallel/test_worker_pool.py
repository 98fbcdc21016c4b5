from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

from kdissect.errors import CaptureError, UnexpectedError, WorkerError
from kdissect.parallel.assembling import Stop
from kdissect.parallel.worker_pool import Inbox, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[[Any], object]


class Over(str):
    """The last that a worker says."""

    __slots__ = ()


def heard(pool: WorkerPool, glance: Callable[[], object] = int) -> list[tuple[int, Any]]:
    return list(pool.messages(Over, glance))


def test_what_workers_say_is_heard_until_each_is_done() -> None:
    def job(index: int, send: Send, ear: Inbox) -> None:
        send(f"hello {index}")
        send(Over(ear.receive()))

    with WorkerPool(3, job) as pool:
        for index in range(3):
            pool.send(index, f"bye {index}")
        messages = heard(pool)
    for index in range(3):
        assert [text for who, text in messages if who == index] == [f"hello {index}", f"bye {index}"]


def test_a_worker_says_what_went_wrong() -> None:
    def job(index: int, send: Send, _ear: Inbox) -> None:
        if index:
            raise CaptureError("x.pcap: damaged")
        send(Over("done"))

    with WorkerPool(2, job) as pool, pytest.raises(CaptureError, match=r"x\.pcap: damaged"):
        heard(pool)


def test_what_no_worker_should_do_is_told_in_a_line() -> None:
    def job(_index: int, _send: Send, _ear: Inbox) -> None:
        raise ZeroDivisionError("oh")

    with (
        WorkerPool(1, job) as pool,
        pytest.raises(UnexpectedError, match="unexpected ZeroDivisionError"),
    ):
        heard(pool)


@pytest.mark.parametrize(
    ("end", "told"), [(lambda: os.kill(os.getpid(), 9), "SIGKILL"), (lambda: os._exit(3), "3")]
)
def test_a_worker_that_is_gone_is_missed(end: Callable[[], object], told: str) -> None:
    def job(index: int, send: Send, ear: Inbox) -> None:
        if index:
            end()
        ear.receive()
        send(Over("done"))

    with (
        WorkerPool(2, job) as pool,
        pytest.raises(WorkerError, match=f"worker 2 of 2 was ended .*{told} before"),
    ):
        heard(pool)


def test_workers_are_stopped_when_enough_was_heard() -> None:
    def job(_index: int, send: Send, ear: Inbox) -> None:
        while True:
            send("x" * 10_000)
            if ear.heard() and isinstance(ear.receive(), Stop):
                send(Over(""))
                return

    with WorkerPool(2, job) as pool:
        messages = pool.messages(Over, int)
        for _ in range(5):
            next(messages)
        pool.stop()
        assert {who for who, text in messages if isinstance(text, Over)} == {0, 1}
    assert not any(process.is_alive() for process in pool._processes)


def test_what_is_raised_between_two_messages_leaves_the_others_to_be_heard() -> None:
    def job(_index: int, send: Send, _ear: Inbox) -> None:
        send(Over("done"))

    def glance() -> None:
        raise KeyboardInterrupt

    with WorkerPool(2, job) as pool:
        with pytest.raises(KeyboardInterrupt):
            heard(pool, glance)
        assert len(heard(pool)) == 2


def test_workers_end_with_their_parent() -> None:
    program = """
        import os
        from kdissect.parallel.worker_pool import WorkerPool
        def job(index, send, ear):
            send(os.getpid())
            ear.receive()
        with WorkerPool(2, job) as pool:
            messages = pool.messages(str, int)
            print(next(messages)[1], next(messages)[1], flush=True)
            os.kill(os.getpid(), 9)
    """
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, check=False
    )
    assert made.returncode == -signal.SIGKILL
    for number in map(int, made.stdout.split()):
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
