from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.row_assertions import by_key, same

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = ("kind", "name", "topic", "partition")
OFFSETS = (
    *("position", "committed_offset", "high_watermark", "last_stable_offset", "log_start_offset"),
    *("lag", "first"),
)


@pytest.mark.parametrize("captures", ["lagging", "everything"])
def test_as_the_summary_has_it(
    captures: str, run_job: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    exported = request.getfixturevalue(captures)
    rows, others = by_key(run_job(exported, "lag"), *KEY), by_key(exported.summary["lag"], *KEY)
    assert rows.keys() == others.keys()
    for key, other in others.items():
        row = rows[key]
        same(row, other, OFFSETS)
        same(row, other, ["think_us", "waited_us"])
        if key[0] == "group":
            same(row, other, ["last", "count"])
        else:
            same(row, other, ["lag_first", "lag_worst", "worst"])
            assert row["last"] <= other["last"]
            assert row["count"] <= other["count"]


def test_of_a_consumer_that_is_stuck(everything: Any, run_job: Callable[..., Any]) -> None:
    """Its position is the offset that it fetches again and again."""
    rows = by_key(run_job(everything, "lag"), *KEY)
    row = rows["client", "backup", "state", 0]
    assert (row["position"], row["high_watermark"], row["lag"], row["count"]) == (120, 5000, 4880, 30)


def test_of_few_commits_the_summary_knows_all(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows, others = by_key(run_job(lagging, "lag"), *KEY), by_key(lagging.summary["lag"], *KEY)
    for key, other in others.items():
        same(rows[key], other, ["lag_first", "lag_worst"])


def test_how_old_the_newest_record_is(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows, others = by_key(run_job(lagging, "lag"), *KEY), by_key(lagging.summary["lag"], *KEY)
    slow = [row for (kind, name, _, _), row in rows.items() if (kind, name) == ("client", "slow")]
    assert len(slow) == 2
    for row in slow:
        same(row, others[tuple(row[name] for name in KEY)], ["seconds", "seconds_worst"])
        assert row["seconds"] > 1


def test_the_last_piece_of_time_says_how_it_ended(lagging: Any, run_job: Callable[..., Any]) -> None:
    rows = run_job(lagging, "lag", window="1s")
    assert len(rows) > 20
    expected = by_key(lagging.summary["lag"], *KEY)
    ended = by_key(sorted(rows, key=lambda row: row["start"]), *KEY)  # the last row of each key remains
    assert {key: row["lag"] for key, row in ended.items()} == {
        key: row["lag"] for key, row in expected.items()
    }
    assert max(row["lag_worst"] for row in rows) == max(row["lag_worst"] for row in expected.values())
