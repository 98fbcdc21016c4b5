from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.stats.document import FindingRow
from kdissect.stats.health import health
from kdissect.stats.load import Load

AT = datetime(2026, 11, 22, tzinfo=UTC)


def load(
    answered: int = 0, no_answer: int = 0, failed: int = 0, orphans: int = 0, unclear: int = 0, acks0: int = 0
) -> Load:
    result = Load()
    result.kinds.update({ANSWERED: answered, UNANSWERED: no_answer + unclear, ORPHAN: orphans})
    result.kinds[UNACKNOWLEDGED] = acks0
    result.no_answer, result.failed = no_answer, failed
    return result


def finding(severity: str) -> list[FindingRow]:
    return [
        FindingRow(
            rule="a-rule", severity=severity, subject="client a", message="it failed", advice="", count=1,
            first=AT, last=AT, evidence=[],
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "severity", "verdict"),
    [
        (load(100), None, "good"),
        (load(100), "note", "good"),
        (load(100), "warning", "degraded"),
        (load(100), "error", "failing"),
        (load(100, no_answer=5), None, "good"),
        (load(100, no_answer=6), None, "degraded"),
        (load(100, failed=5), None, "degraded"),
        (load(10, no_answer=10), None, "failing"),
        (load(0, no_answer=27), None, "failing"),
        (load(), None, "unknown"),
        (load(orphans=9), None, "unknown"),
        (load(unclear=9), None, "unknown"),
        (load(acks0=1, unclear=9), None, "unknown"),
        (load(acks0=1), None, "good"),
        (load(), "error", "failing"),
    ],
)
def test_verdicts(counts: Load, severity: str | None, verdict: str) -> None:
    result = health([] if severity is None else finding(severity), counts)
    assert result.verdict == verdict
    assert (result.reason is None) == (severity in (None, "note"))


def test_the_figures_say_what_is_missing() -> None:
    assert health([], load(8, no_answer=2)).message == "10 requests, 2 unanswered, 0 with errors"
    assert health([], load(orphans=9)).message == "9 orphan responses"
    assert health([], load(unclear=1)).message == (
        "1 request, 0 unanswered, 1 whose response may not have been captured, 0 with errors"
    )
    assert health(finding("error"), load()).reason == "a-rule: it failed (client a)"
