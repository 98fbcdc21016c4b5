from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.row_assertions import by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable


def test_everything_as_the_summary_has_it(everything: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(everything, "throttle"), "client")
    others = by_key((row for row in everything.summary["clients"] if row["throttled"]), "client")
    assert rows.keys() == others.keys()
    for key, other in others.items():
        same(rows[key], other, ["exchanges", "throttled", "throttle_time_ms"])


def test_it_adds_up_by_time(everything: Any, run_job: Callable[..., Any]) -> None:
    by_time = run_job(everything, "throttle", by=["api"], window="10s")
    others = everything.summary["apis"]
    assert sum(row["throttle_time_ms"] for row in by_time) == sum(row["throttle_time_ms"] for row in others)
    assert all(0 < row["min_ms"] <= row["p50_ms"] <= row["max_ms"] for row in by_time)
    assert by_time == sorted(by_time, key=lambda row: row["start"])
