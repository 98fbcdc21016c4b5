from __future__ import annotations

import signal

import pytest

from kdissect.cli.live_run import DeferInterrupt


def test_ctrl_c_waits_for_the_function() -> None:
    defer, done = DeferInterrupt(), []

    def feed(row: int) -> None:
        if row == 2:
            signal.raise_signal(signal.SIGINT)
        done.append(row)

    deferred = defer(feed)
    with defer.installed():
        deferred(0)
        deferred(1)
        with pytest.raises(KeyboardInterrupt):
            deferred(2)
    assert done == [0, 1, 2]


def test_ctrl_c_between_two_calls_does_not_wait() -> None:
    defer = DeferInterrupt()
    with defer.installed(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_function_that_fails_ends_the_wait() -> None:
    defer = DeferInterrupt()

    def feed(_: int) -> None:
        raise OSError(28, "full")

    with defer.installed():
        with pytest.raises(OSError, match="full"):
            defer(feed)(1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with DeferInterrupt().installed():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with DeferInterrupt().installed():
        pass
    assert signal.getsignal(signal.SIGINT) is before
