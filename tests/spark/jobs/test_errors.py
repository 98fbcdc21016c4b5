from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.row_assertions import by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = ("error", "api", "topic", "client")


def test_everything_as_the_summary_has_it(everything: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(everything, "errors"), *KEY)
    others = by_key(everything.summary["errors"], *KEY)
    assert rows.keys() == others.keys()
    for key, other in others.items():
        same(rows[key], other, ["count", "expected", "first", "last", "example"])


def test_shares_are_of_comparable_exchanges(everything: Any, run_job: Callable[..., Any]) -> None:
    rows = by_key(run_job(everything, "errors", by=["api"]), "api")
    others = by_key(everything.summary["apis"], "api")
    assert rows.keys() == {key for key, row in others.items() if row["errors"] + row["expected_errors"]}
    for key, row in rows.items():
        other = others[key]
        assert (row["exchanges"], row["of_exchanges"]) == (
            other["errors"] + other["expected_errors"],
            other["exchanges"],
        )
        assert row["share"] == pytest.approx(other["errors"] / other["exchanges"], abs=0.0001)
        assert row["count"] >= row["exchanges"]


def test_by_time_alone(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = run_job(lagging, "errors", by=["error"], window="10s")
    assert sum(row["count"] for row in rows) == sum(row["count"] for row in lagging.summary["errors"])
    assert {row["of_exchanges"] for row in rows} <= {
        row["exchanges"] for row in lagging.summary["intervals"] if row["key"] is None
    }
