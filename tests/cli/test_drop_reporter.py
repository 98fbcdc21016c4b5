from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kdissect.capture.source import InterfaceStatistics
from kdissect.cli.live_run import DropReporter
from kdissect.model import IdleTick

if TYPE_CHECKING:
    import pytest


def counted(by_system: int, accepted: int, delivered: int) -> InterfaceStatistics:
    return InterfaceStatistics(None, None, by_system, accepted, delivered)


def test_drops_are_reported_at_once_but_not_repeatedly(capsys: pytest.CaptureFixture[str]) -> None:
    ongoing: Any = SimpleNamespace(statistics={})
    reporter = DropReporter(ongoing)
    ticks = reporter.watch(IdleTick(number) for number in range(4))
    next(ticks)
    assert capsys.readouterr().err == ""
    ongoing.statistics = {"eth0": counted(2, 10, 5), "eth1": counted(1, 4, 3)}
    next(ticks)
    assert (reporter.by_kernel, reporter.by_us) == (3, 3)
    assert capsys.readouterr().err == (
        "kdissect: 3 packets dropped by the kernel; use a larger buffer (-B SIZE)\n"
        "kdissect: 3 packets dropped by kdissect, which cannot keep up; use a narrower "
        "capture filter (-f FILTER)\n"
    )
    ongoing.statistics = {"eth0": counted(2000, 4000, 5)}
    next(ticks)
    assert (reporter.by_kernel, reporter.by_us) == (2000, 1995)
    assert capsys.readouterr().err == ""


def test_time_observers_are_called() -> None:
    ongoing: Any = SimpleNamespace(statistics={})
    reporter = DropReporter(ongoing)
    times: list[int] = []
    reporter.time_observers.append(times.append)
    list(reporter.watch(IdleTick(number) for number in (3, 5)))
    assert times == [3, 5]
