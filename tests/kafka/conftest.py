"""Counts what the other implementations were compared on, and prints it at the end of the run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSIONS = pytest.StashKey[Counter[str]]()
_INSTANCES = pytest.StashKey[Counter[str]]()
_LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def oracle(pytestconfig: pytest.Config) -> Callable[..., None]:
    """Say that one more message version was compared on so many random instances."""
    versions = pytestconfig.stash.setdefault(_VERSIONS, Counter())
    counts = pytestconfig.stash.setdefault(_INSTANCES, Counter())

    def compared(what: str, *, instances: int) -> None:
        versions[what] += 1
        counts[what] += instances

    return compared


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Have a line printed at the end of the run."""
    return pytestconfig.stash.setdefault(_LINES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    versions = config.stash.get(_VERSIONS, Counter())
    lines = [
        f"{what}: {versions[what]}, random instances: {config.stash[_INSTANCES][what]}"
        for what in sorted(versions)
    ]
    if _LINES in config.stash:
        lines += config.stash[_LINES]
    if lines:
        terminalreporter.section("compared with other implementations")
        for line in lines:
            terminalreporter.line(line)
