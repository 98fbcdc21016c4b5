from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.row_assertions import same

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = (
    *("start", "end", "seconds", "generation_before", "generation_after", "members_before", "members_after"),
    *("joins", "protocol", "leader", "exchange"),
)


def summary_rows(exported: Any) -> list[dict[str, Any]]:
    """The rebalances of all groups."""
    return [
        {"group": history["group"], **each}
        for history in exported.summary["group_history"]
        for each in history["rebalances"]
    ]


def order(row: dict[str, Any]) -> Any:
    return row["group"], row["exchange"], row["generation_after"]


def test_everything_as_the_summary_has_it(everything: Any, run_job: Callable[..., Any]) -> None:
    rows, others = (
        sorted(run_job(everything, "rebalances"), key=order),
        sorted(summary_rows(everything), key=order),
    )
    assert len(rows) == len(others) > 50
    for row, other in zip(rows, others, strict=True):
        same(row, other, ["group", *COLUMNS])
        assert row["cause"] == row["causes"][0]["cause"]
        assert len(row["causes"]) == len(other["causes"])
        for cause, other_cause in zip(row["causes"], other["causes"], strict=True):
            same(cause, other_cause, ["cause", "time", "member_id", "client", "reason"])


def test_counted_by_time(everything: Any, run_job: Callable[..., Any]) -> None:
    rows, others = run_job(everything, "rebalances", window="10s", by=[]), summary_rows(everything)
    assert sum(row["rebalances"] for row in rows) == len(others)
    assert sum(row["joins"] for row in rows) == sum(row["joins"] for row in others)
    causes: Counter[str] = Counter()
    for row in rows:
        causes.update(row["by_cause"])
    assert causes == Counter(row["causes"][0]["cause"] for row in others)
