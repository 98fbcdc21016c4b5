from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.names import kept
from tests.row_assertions import same

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = (
    "client",
    "software",
    "api",
    "api_key",
    "version",
    "since",
    "removed",
    "count",
    "first",
    "last",
    "example",
)


def test_everything_as_the_summary_has_it(everything: Any, run_job: Callable[..., Any]) -> None:
    rows, others = run_job(everything, "versions"), everything.summary["versions"]["used"]
    assert len(rows) == len(others) > 100
    for row, other in zip(rows, others, strict=True):
        same({name: kept(value) for name, value in row.items()}, other, COLUMNS)
        assert row["addresses"][:20] == other["addresses"]
    assert rows[0]["removed"] is not None
