from __future__ import annotations

from typing import Any

from kdissect.limits import DEFAULT, Limits
from kdissect.stats.facts import Facts
from kdissect.stats.intervals import Intervals
from tests.exchange_factory import START_NS, exchange

SECOND = 10**9


def heartbeat(after_s: float, **options: Any) -> Facts:
    time_ns = START_NS + round(after_s * SECOND)
    return Facts(exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 0}, time_ns=time_ns, **options))


def intervals(by: frozenset[str], *facts: Facts, limits: Limits = DEFAULT) -> Intervals:
    result = Intervals(limits, SECOND, by)
    for each in facts:
        result.feed(each)
    return result


def test_intervals_start_at_full_seconds() -> None:
    rows = intervals(frozenset(), heartbeat(0), heartbeat(0.5), heartbeat(2.9)).rows()
    assert [(f"{row.start:%S.%f}", row.exchanges, row.per_second) for row in rows] == [
        ("20.000000", 2, 2.0),
        ("23.000000", 1, 1.0),
    ]


def test_each_row_of_a_table_has_its_own() -> None:
    rows = intervals(frozenset({"api", "group"}), heartbeat(0)).rows()
    assert [row.key for row in rows] == [None, "Heartbeat", "g"]


def test_keys_of_every_table() -> None:
    request = {"topics": [{"topic": "orders", "partitions": [{"partition": 3, "fetch_offset": 1}]}]}
    facts = Facts(exchange("Fetch", 4, request, {"responses": []}, client_id="reader"))
    by = frozenset({"client", "broker", "connection", "topic", "partition"})
    keys = {row.key for row in intervals(by, facts).rows()}
    assert keys == {None, "reader", "10.0.0.1:9092", "c0ffee", "orders", "orders:3"}


def test_what_no_row_is_left_for_is_counted() -> None:
    result = intervals(frozenset(), *map(heartbeat, range(5)), limits=Limits(summary_intervals=3))
    assert (len(result.rows()), result.other_counts()) == (3, {"intervals": 2})


def test_merged() -> None:
    result = intervals(frozenset(), heartbeat(0))
    result.merge(intervals(frozenset(), heartbeat(0), heartbeat(1)))
    assert [row.exchanges for row in result.rows()] == [2, 1]
