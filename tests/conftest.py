"""What is true of every test run.

* Hypothesis profiles: few repeatable examples by default, many with ``KDISSECT_HYPOTHESIS=deep``.
* Tests marked ``deep`` or ``browser`` run only when ``-m`` selects them; ``--short`` runs the last case of
  each test marked ``deep``, and no others; not of those marked ``deep(short=False)``, a case of which takes
  a minute.
* Tests marked ``tools`` or ``tshark`` may be skipped where tshark or tcpdump is missing; not in CI, which
  installs both. Those marked ``live`` may be skipped where no packet socket can be opened, those marked
  ``spark`` where pyspark or Java is missing; not in CI as root. Those marked ``core`` may be skipped where
  kdissect is installed without its native core; not in CI.
* Nothing reads the configuration file of the user, nor do child processes.
* With ``-n`` several processes run the units of tests/workers.py.
* The garbage collector passes over what collection made, also in processes that are forked from this one.
"""

from __future__ import annotations

import gc
import os
import signal
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from kdissect.cli.config_file import CONFIG_VARIABLE, PROFILE_VARIABLE
from tests.core import HAS_CORE, without_core
from tests.depth import PROFILE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

_REPORT_LINE = "report_line"
_NEVER_SKIPPED_IN_CI = ("tools", "tshark", "core", *(["live", "spark"] if os.geteuid() == 0 else []))

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
os.environ[CONFIG_VARIABLE] = os.devnull
os.environ.pop(PROFILE_VARIABLE, None)
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # readline, which pytest imports, sets it for child processes only

settings.register_profile(
    "quick", max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(PROFILE)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: the garbage collector need not look at these millions of objects,
    or copy them in a process that is forked from this one.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not even imported, because altair and selenium take seconds."""
    return True if collection_path.name == "browser" and not config.option.markexpr else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="of each test marked deep, the last case alone")


def _has_short_form(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("deep")
    return marker is not None and marker.kwargs.get("short", True)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-randomly shuffles them
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    if not config.option.markexpr:
        deep = {item: item.nodeid.partition("[")[0] for item in items if item.get_closest_marker("deep")}
        last = {test: item for item, test in deep.items() if _has_short_form(item)}
        chosen = {*last.values()} if config.option.short else {*items} - {*deep}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    marked = [name for name in _NEVER_SKIPPED_IN_CI if item.get_closest_marker(name)]
    if skipped and marked and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which tests marked {marked[0]} may not be in CI: {report.longrepr}"
    return report


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    from tests.workers import Units

    by_default = config.option.dist == "load"  # --dist may ask for another
    return Units(config, log) if by_default else None


@pytest.fixture
def report_line(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Add a line to a section that is printed at the end of the run."""

    def add(line: str, section: str = "captures with loss and damage") -> None:
        # pytest-xdist transfers user properties from worker processes.
        request.node.user_properties.append((_REPORT_LINE, (section, line)))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sections: dict[str, list[str]] = {}
    for report in chain(*terminalreporter.stats.values()):
        for name, value in getattr(report, "user_properties", ()):
            if name == _REPORT_LINE and report.when == "call":
                sections.setdefault(value[0], []).append(value[1])
    for section, lines in sections.items():
        terminalreporter.section(section)
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture(params=["core", "pure"])
def with_core_and_without(request: pytest.FixtureRequest) -> Generator[None]:
    """The test runs twice: with the native core, if there is one, and without it."""
    if request.param == "pure":
        with without_core():
            yield
    elif HAS_CORE:
        yield
    else:
        pytest.skip("there is no native core")


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    directory = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    directory.mkdir(exist_ok=True)
    return directory
