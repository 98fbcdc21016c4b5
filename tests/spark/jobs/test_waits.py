from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.row_assertions import by_key

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("sample", ["everything", "lagging"])
def test_everything_as_the_summary_has_it(
    sample: str, request: pytest.FixtureRequest, run_job: Callable[..., Any]
) -> None:
    exported = request.getfixturevalue(sample)
    rows = by_key(run_job(exported, "waits"), "wait")
    others = by_key(exported.summary["waits"], "kind")
    assert rows.keys() == others.keys()
    for key, other in others.items():
        row, spread = rows[key], other["us"]
        assert (row["waits"], row["total_us"], row["undetermined"]) == (
            spread["count"],
            other["total_us"],
            other["undetermined"],
        )
        assert (row["min_us"], row["max_us"]) == (spread["min"], spread["max"])
        if 0 < spread["count"] <= 256:  # up to this many, the summary is exact
            assert [row[f"{name}_us"] for name in ("p50", "p95", "p99")] == [
                spread[name] for name in ("p50", "p95", "p99")
            ]


def test_replicas_and_controllers_wait_apart(everything: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(everything, "waits"), "wait")
    assert {("Fetch",), ("Fetch (replica)",), ("Fetch (KRaft)",), ("JoinGroup",), ("queued",)} <= rows.keys()


def test_by_client(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = run_job(lagging, "waits", by=["client", "api"])
    assert {row["wait"] for row in rows if row["api"] != "Fetch"}.isdisjoint({"Fetch"})
    waited = sum(row["wait_us"]["count"] for row in lagging.summary["clients"])
    assert (
        sum(row["waits"] for row in rows if row["wait"] not in ("queued", "throttled", "network")) == waited
    )
