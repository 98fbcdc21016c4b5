from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT, Limits
from kdissect.stats.facts import Facts
from kdissect.stats.intervals import SHORTEST_NS, Intervals, Shares
from kdissect.stats.rows import BOUNDS_US
from tests.exchange_factory import START_NS, exchange
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    import pytest

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


def named(clients: list[str], most: int = 600, limits: Limits = DEFAULT) -> Intervals:
    """A second apart, an exchange of each client, and one with an error of the first."""
    result = Intervals(limits, SECOND, frozenset(), most)
    for number, client in enumerate(clients):
        result.feed(heartbeat(number, client_id=client))
    result.feed(failed(clients[0]))
    return result


def failed(client: str) -> Facts:
    body = {"group_id": "g"}
    return Facts(exchange("Heartbeat", 3, body, {"error_code": 25}, time_ns=START_NS, client_id=client))


def test_the_busiest_have_a_number_for_each_interval_and_all_others_one_in_sum() -> None:
    result = named([f"client {number}" for number in range(9)])
    rows = {(row.table, row.name): row for row in result.busiest({}) or ()}
    assert rows["client", "client 0"].exchanges == [2, *[0] * 8]
    assert rows["client", "client 0"].errors == [1, *[0] * 8]
    assert rows["client", "client 6"].exchanges == [0] * 6 + [1, 0, 0]
    assert rows["client", None].exchanges == [0] * 7 + [1, 1]
    assert rows["group", "g"].exchanges == [2, *[1] * 8]
    assert rows["broker", "10.0.0.1:9092"].exchanges == [2, *[1] * 8]
    assert len(rows) == 10
    assert len(result.rows()) == 9
    assert intervals(frozenset(), heartbeat(0)).busiest({}) is None


def test_only_the_busiest_are_added_up_for_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    result = named([f"client {number}" for number in range(100)])
    added: list[int] = []
    of = Shares.of
    monkeypatch.setattr(Shares, "of", lambda self, places: added.append(len(places)) or of(self, places))
    rows = result.busiest({}) or []
    assert len(added) == 100 * (len(rows) + 1) + 2, "a row of each, and a number of each name"


def test_a_table_that_is_full_counts_further_names_together() -> None:
    rows = named(list("abcde"), limits=Limits(summary_rows=2)).busiest({}) or []
    clients = {row.name: row.exchanges for row in rows if row.table == "client"}
    assert clients == {"a": [2, 0, 0, 0, 0], "b": [0, 1, 0, 0, 0], None: [0, 0, 1, 1, 1]}


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=30), st.data())
def test_neither_order_nor_division_changes_the_busiest(clients: list[str], data: st.DataObject) -> None:
    whole = named(clients, MOST)
    cut = data.draw(st.integers(0, len(clients)))
    facts = [heartbeat(number, client_id=client) for number, client in enumerate(clients)]
    one, two = lengthening(*facts[cut:]), lengthening(*facts[:cut])
    two.merge(pickle.loads(pickle.dumps(one)))
    two.feed(failed(clients[0]))
    assert two.busiest({}) == whole.busiest({})


def test_a_topic_has_one_row_however_it_was_named() -> None:
    result = Intervals(DEFAULT, SECOND, frozenset(), MOST)
    data = batch([Item(b"value")])
    records = RecordData(data, 0, len(data))
    for topic in ("orders", "id-of-orders"):
        body = {"topics": [{"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0}]}]}
        answer = {"topic": topic, "partitions": [{"partition_index": 0, "records": records}]}
        result.feed(Facts(exchange("Fetch", 4, body, {"responses": [answer]}, time_ns=START_NS)))
    rows = [row for row in result.busiest({"id-of-orders": "orders"}) or () if row.table == "topic"]
    assert [(row.name, row.fetched_bytes, row.exchanges) for row in rows] == [
        ("orders", [2 * len(data)], None)
    ]
