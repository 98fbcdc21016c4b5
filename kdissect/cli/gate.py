"""``--fail`` and ``--fail-on``: verdict and findings -> whether a command fails, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kdissect.anomalies import ERROR, NOTE, WARNING
from kdissect.stats.health import DEGRADED, FAILING, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdissect.stats.document import FindingRow, Verdict

REPORTED = 1  # exit status
LEVELS = (ERROR, WARNING, NOTE)
_VERDICTS = {
    ERROR: (FAILING, UNKNOWN),
    WARNING: (FAILING, DEGRADED, UNKNOWN),
    NOTE: (FAILING, DEGRADED, UNKNOWN),
}


def gate_options(otherwise: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options ``--fail`` and ``--fail-on``.

    Args:
        otherwise: what else makes the command fail, for the help text.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = click.option(
            "--fail-on",
            type=click.Choice(LEVELS),
            metavar="LEVEL",
            help=f"The same, for findings of at least this level: {', '.join(LEVELS)}. [default: warning]",
        )(function)
        return click.option(
            "--fail",
            is_flag=True,
            help="Exit with status 1 if a finding is an error or a warning, the traffic is failing, degraded "
            f"or unknown, or {otherwise}.",
        )(function)

    return decorate


def level_of(fail_on: str | None, *, fail: bool) -> str | None:
    """The level of findings that makes a command fail; None: it never does."""
    return fail_on or (WARNING if fail else None)


def fails(level: str | None, health: Verdict | None, findings: Sequence[FindingRow]) -> bool:
    """Whether the traffic makes a command fail."""
    assert health is not None
    return level is not None and (health.verdict in _VERDICTS[level] or (level == NOTE and bool(findings)))
