from __future__ import annotations

import pytest

from kdissect.model import ANSWERED, ORPHAN, UNACKNOWLEDGED, UNANSWERED
from kdissect.stats.health import health
from kdissect.stats.tallies import Load
from tests.findings import finding


def load(
    answered: int = 0, no_answer: int = 0, failed: int = 0, orphans: int = 0, unclear: int = 0, acks0: int = 0
) -> Load:
    result = Load()
    result.kinds.update({ANSWERED: answered, UNANSWERED: no_answer + unclear, ORPHAN: orphans})
    result.kinds[UNACKNOWLEDGED] = acks0
    result.exchanges = result.kinds.total()
    result.no_answer, result.failed = no_answer, failed
    return result


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
    result = health([] if severity is None else [finding("a-rule", severity)], counts)
    assert result.verdict == verdict
    assert (result.reason is None) == (severity in (None, "note"))


def test_the_figures_say_what_is_missing() -> None:
    assert health([], load(8, no_answer=2)).message == "10 requests, 2 unanswered, 0 with errors"
    assert health([], load(orphans=9)).message == "9 orphan responses"
    assert health([], load(unclear=1)).message == (
        "1 request, 0 unanswered, 1 whose response may not have been captured, 0 with errors"
    )
    assert health([finding("a-rule", "error")], load()).reason == "00:00:00 a-rule: client a: it failed"


def test_what_another_finding_explains_does_not_count() -> None:
    cause, other = finding("a-rule", "warning"), finding("another-rule", "error")
    beside = health([other, cause], load(100))
    assert (beside.verdict, beside.message.partition("errors, ")[2]) == (
        "failing",
        "1 error finding, 1 warning",
    )
    other.explained_by = cause.rule
    below = health([cause, other], load(100))
    assert (below.verdict, below.message.partition("errors, ")[2]) == ("degraded", "1 warning")
