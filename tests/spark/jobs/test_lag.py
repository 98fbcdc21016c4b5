from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kdissect import open_capture, summarize
from kdissect.options import WINDOW, Options
from kdissect.pipeline import Dissection
from kdissect.spark.report import report
from kdissect.tables.values import json_document
from tests.row_assertions import as_json, by_key, same
from tests.spark.jobs.conftest import SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.jobs.conftest import Exported

KEY = ("kind", "name", "topic", "partition")
NUMBERS = (
    *("position", "committed_offset", "high_watermark", "last_stable_offset", "log_start_offset"),
    *("lag", "lag_first", "lag_worst", "worst", "think_us", "waited_us", "first"),
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
        same(row, other, NUMBERS)
        if key[0] == "group":
            same(row, other, ["last", "count"])
        else:
            assert row["last"] <= other["last"]
            assert row["count"] <= other["count"]


def test_of_a_consumer_that_is_stuck(everything: Any, run_job: Callable[..., Any]) -> None:
    """Its position is the offset that it fetches again and again."""
    rows = by_key(run_job(everything, "lag"), *KEY)
    row = rows["client", "backup", "state", 0]
    assert (row["position"], row["high_watermark"], row["lag"], row["count"]) == (120, 5000, 4880, 30)


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


def test_a_time_window_has_what_the_summary_of_its_exchanges_has(lagging: Exported, database: Any) -> None:
    """An exchange belongs to the window of its response."""
    answered = defaultdict[int, list[Any]](list)
    with open_capture(SAMPLES["kafka-4-lag"]) as packets:
        for exchange in Dissection(packets, Options(names=WINDOW, cluster="samples")):
            time_us = exchange.time_ns // 1000 + (exchange.latency_us or 0)
            answered[time_us - time_us % 1_000_000].append(exchange)
    ((_, frame),) = report(database, str(lagging.directory), ["lag"], "1s")
    windows = defaultdict[int, list[Any]](list)
    for row in as_json(frame):
        windows[round(datetime.fromisoformat(row["start"]).timestamp() * 1e6)].append(row)
    assert len(windows) > 3
    thought = 0
    for start_us, rows in windows.items():
        document = orjson.loads(json_document(summarize(answered[start_us], parts=["lag"])))
        others = by_key(document["lag"], *KEY)
        active = {key: row for key, row in by_key(rows, *KEY).items() if row["count"]}
        assert active.keys() == others.keys()
        for key, row in active.items():
            same(row, others[key], ["think_us", "waited_us", "first", "last", "count"])
            thought += row["think_us"] or 0
    assert thought


def test_a_group_that_commits_nothing_lags_in_later_windows(lagging: Exported, database: Any) -> None:
    ((_, frame),) = report(database, str(lagging.directory), ["lag"], "1s")
    rows = [row for row in as_json(frame) if row["kind"] == "group"]
    silent = [row for row in rows if not row["count"]]
    assert silent
    for row in silent:
        before = [
            each for each in rows if each["start"] < row["start"] and all(each[n] == row[n] for n in KEY)
        ]
        assert row["committed_offset"] == max(before, key=itemgetter("start"))["committed_offset"]
        assert row["lag"] == max(0, row["high_watermark"] - row["committed_offset"])
        assert row["first"] is row["last"] is None
