"""Findings, missing answers and errors -> the verdict on the traffic. Holds no state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.anomalies import ERROR, WARNING
from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED
from kdissect.phrases import many
from kdissect.stats.document import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdissect.stats.document import FindingPart, FindingRow
    from kdissect.stats.tallies import Load

# The worst first.
FAILING, DEGRADED, UNKNOWN, GOOD = "failing", "degraded", "unknown", "good"

NO_VERDICT = Verdict(verdict=UNKNOWN, message="no requests", reason=None)

_FAILING, _DEGRADED = 2, 20  # one in this many requests unanswered or with errors
_SECONDS = 600  # from here on in minutes
_VERDICTS = {ERROR: FAILING, WARNING: DEGRADED}


def health(findings: Sequence[FindingRow], load: Load) -> Verdict:
    """The verdict.

    Args:
        findings: the worst first. Those that others explain do not count.
        load: of all exchanges.
    """
    findings = [finding for finding in findings if finding.explained_by is None]
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
    """A finding in one line: when, who, and what happened."""
    return f"{when(finding)} {finding.rule}: {finding.subject}: {finding.message}"


def when(finding: FindingRow | FindingPart) -> str:
    """``07:14:02-07:14:23 (21 s)``; ``07:14:02`` if it took less than a second."""
    first, last = f"{finding.first:%H:%M:%S}", f"{finding.last:%H:%M:%S}"
    seconds = round((finding.last - finding.first).total_seconds())
    if not seconds:
        return first
    if (days := (finding.last.date() - finding.first.date()).days) > 0:
        last = f"{last} +{many(days, 'day')}"
    length = f"{seconds:,} s" if seconds < _SECONDS else f"{round(seconds / 60):,} min"
    return f"{first}-{last} ({length})"


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
