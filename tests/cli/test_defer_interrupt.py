from __future__ import annotations

import signal

import pytest

from kdissect.cli.live_run import DeferInterrupt


def test_ctrl_c_waits_for_the_function() -> None:
    whole, done = DeferInterrupt(), []

    def feed(row: int) -> None:
        if row == 2:
            signal.raise_signal(signal.SIGINT)
        done.append(row)

    fed = whole(feed)
    with whole.listening():
        fed(0)
        fed(1)
        with pytest.raises(KeyboardInterrupt):
            fed(2)
    assert done == [0, 1, 2]


def test_between_two_it_does_not_wait() -> None:
    whole = DeferInterrupt()
    with whole.listening(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_function_that_fails_does_not_keep_it_waiting() -> None:
    whole = DeferInterrupt()

    def feed(_: int) -> None:
        raise OSError(28, "full")

    with whole.listening():
        with pytest.raises(OSError, match="full"):
            whole(feed)(1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_ignores_ctrl_c_still_does() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferInterrupt().listening():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_afterwards_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with DeferInterrupt().listening():
        pass
    assert signal.getsignal(signal.SIGINT) is before
