"""Findings, missing answers and errors -> the verdict on the traffic. Holds no state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED
from kdissect.phrases import many
from kdissect.stats.document import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.stats.document import FindingRow
    from kdissect.stats.load import Load

# The worst first.
FAILING, DEGRADED, UNKNOWN, GOOD = "failing", "degraded", "unknown", "good"

NO_VERDICT = Verdict(verdict=UNKNOWN, message="no requests", reason=None)

_FAILING, _DEGRADED = 2, 20  # one in this many requests unanswered or with errors
_VERDICTS = {ERROR: FAILING, WARNING: DEGRADED}


def health(findings: Sequence[FindingRow], load: Load) -> Verdict:
    """The verdict.

    Args:
        findings: the worst first.
        load: of all exchanges.
    """
    worst = findings[0] if findings and findings[0].severity in _VERDICTS else None
    requests = load.exchanges - load.kinds[ORPHAN]
    failed = load.no_answer + load.broken_off + load.failed
    if (worst is not None and worst.severity == ERROR) or (failed and failed * _FAILING >= requests):
        verdict = FAILING
    elif worst is not None or (failed and failed * _DEGRADED >= requests):
        verdict = DEGRADED
    elif not load.kinds[ANSWERED] and (load.unclear or not load.kinds[UNACKNOWLEDGED]):
        verdict = UNKNOWN
    else:
        verdict = GOOD
    return Verdict(
        verdict=verdict,
        message=_figures(load, requests, findings),
        reason=None if worst is None else headline(worst) + _and_others(findings),
    )


def headline(finding: FindingRow) -> str:
    """A finding in one line, what happened first."""
    return f"{finding.rule}: {finding.message} ({finding.subject})"


def _and_others(findings: Sequence[FindingRow]) -> str:
    others = sum(finding.severity in _VERDICTS for finding in findings) - 1
    return f"; {many(others, 'more finding')}" if others else ""


def _figures(load: Load, requests: int, findings: Sequence[FindingRow]) -> str:
    if not requests:
        orphans = load.kinds[ORPHAN]
        return f"{many(orphans, 'orphan response')}" if orphans else NO_VERDICT.message
    texts = [
        many(requests, "request"),
        f"{load.no_answer:,} unanswered",
        f"{load.abandoned:,} abandoned" if load.abandoned else "",
        f"{load.pending:,} pending" if load.pending else "",
        f"{load.incomplete:,} incomplete" if load.incomplete else "",
        f"{load.unclear:,} whose response may not have been captured" if load.unclear else "",
        f"{load.failed:,} with errors",
    ]
    severities = [finding.severity for finding in findings]
    for severity, noun in ((ERROR, "error finding"), (WARNING, "warning")):
        texts.append(many(severities.count(severity), noun) if severity in severities else "")
    return ", ".join(filter(None, texts))
