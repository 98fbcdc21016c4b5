from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kdissect.limits import DEFAULT, Limits
from kdissect.stats.facts import Facts
from kdissect.stats.intervals import SHORTEST_NS, Intervals
from kdissect.stats.rows import BOUNDS_US
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


MOST = 4


def lengthening(*facts: Facts) -> Intervals:
    result = Intervals(DEFAULT, SHORTEST_NS, frozenset(), MOST)
    for each in facts:
        result.feed(each)
    return result


def test_the_intervals_double_when_there_are_too_many() -> None:
    facts = list(map(heartbeat, range(20)))
    assert lengthening(*facts[:4]).length_ns == SHORTEST_NS
    result = lengthening(*facts)
    rows = result.rows()
    assert result.length_ns == 8 * SECOND
    assert [row.seconds for row in rows] == [8.0] * len(rows)
    assert sum(row.exchanges for row in rows) == 20
    assert sum(row.service_us.count for row in rows) == 20


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.data())
def test_neither_order_nor_division_changes_lengthening_intervals(
    tenths: list[int], data: st.DataObject
) -> None:
    facts = [heartbeat(tenth / 10) for tenth in tenths]
    whole = lengthening(*facts)
    assert len(whole.rows()) <= MOST
    shuffled = data.draw(st.permutations(facts))
    cut = data.draw(st.integers(0, len(facts)))
    merged = lengthening(*shuffled[:cut])
    merged.merge(pickle.loads(pickle.dumps(lengthening(*shuffled[cut:]))))
    assert (merged.length_ns, merged.rows()) == (whole.length_ns, whole.rows())


def test_what_a_chart_needs_besides_a_load() -> None:
    failed = exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 25}, time_ns=START_NS)
    unnamed = exchange("Heartbeat", 3, {"group_id": "g"}, {"error_code": 9999}, time_ns=START_NS)
    [row] = intervals(frozenset(), heartbeat(0), Facts(failed), Facts(unnamed)).rows()
    assert row.apis == {"Heartbeat": 3}
    assert row.api_bytes == {"Heartbeat": row.request_bytes + row.response_bytes}
    assert row.error_names == {"UNKNOWN_MEMBER_ID": 1, "unknown": 1}
    assert len(row.service_counts) == len(BOUNDS_US) + 1
    assert sum(row.service_counts) == row.service_us.count
