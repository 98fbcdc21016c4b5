from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import dissect, open_capture
from kdissect.exchanges.fetch_sessions import FetchSessions
from kdissect.kafka.records import RecordData
from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from kdissect.stats.lag import Lag, Samples
from samples.golden import captures, name_of
from tests.exchange_factory import START_NS, connection, exchange
from tests.record_batches import Item, batch

if TYPE_CHECKING:
    from kdissect.stats.document import LagRow

SECOND = 10**9
UNLIKE = {"tls", "http-on-9092"}


def lag(*facts: Facts) -> Lag:
    result = Lag(DEFAULT)
    for each in facts:
        result.feed(each)
    return result


def fetch(
    position: int,
    end: int,
    after_s: int = 0,
    *,
    replica_id: int = -1,
    data: bytes = b"",
    topic: str = "orders",
) -> Facts:
    request_topic = {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": position}]}
    answer = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": end,
        "last_stable_offset": end,
        "records": RecordData(data, 0, len(data)),
    }
    request = {
        "replica_id": replica_id,
        "max_wait_ms": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [request_topic],
    }
    response = {"session_id": 0, "error_code": 0, "responses": [{"topic": topic, "partitions": [answer]}]}
    time_ns = START_NS + after_s * SECOND
    return Facts(
        exchange("Fetch", 7, request, response, time_ns=time_ns, client_id="reader"), FetchSessions(DEFAULT)
    )


def commit(
    offset: int, after_s: int, error: int = 0, *, group: str = "billing", topic: str = "orders"
) -> Facts:
    request_topic = {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}
    response_topic = {"name": topic, "partitions": [{"partition_index": 0, "error_code": error}]}
    return Facts(
        exchange(
            "OffsetCommit",
            7,
            {"group_id": group, "topics": [request_topic]},
            {"topics": [response_topic]},
            time_ns=START_NS + after_s * SECOND,
            connection=connection("beef"),
        )
    )


def row(lag: Lag, kind: str) -> LagRow:
    (result,) = [each for each in lag.rows() if each.kind == kind]
    return result


def test_first_last_and_worst_of_a_client() -> None:
    result = row(lag(fetch(0, 10), fetch(2, 50, 1), fetch(50, 55, 2)), "client")
    assert (result.lag_first, result.lag_worst, result.lag, result.position) == (10, 48, 5, 50)
    assert (result.name, result.high_watermark, result.count) == ("reader", 55, 3)
    assert result.worst is not None
    assert (result.worst - result.first).total_seconds() == 1


def test_a_group_is_behind_what_it_committed() -> None:
    result = lag(fetch(0, 10), commit(4, 1), fetch(10, 90, 2), commit(80, 3), fetch(90, 95, 4))
    result = row(result, "group")
    assert (result.committed_offset, result.high_watermark, result.lag) == (80, 95, 15)
    assert (result.lag_first, result.lag_worst, result.count) == (6, 86, 2)


@pytest.mark.parametrize(("api", "version", "think_us"), [("OffsetCommit", 7, 700), ("OffsetFetch", 7, None)])
def test_the_polling_of_a_group_is_that_of_who_commits(api: str, version: int, think_us: int | None) -> None:
    reads = fetch(0, 10)
    reads.exchange.think_us = 700
    committed = {"partition_index": 0, "error_code": 0, "committed_offset": 4}
    body = {"group_id": "billing", "topics": [{"name": "orders", "partitions": [committed]}]}
    looked = Facts(exchange(api, version, body, body, client_id="reader", time_ns=START_NS + SECOND))
    result = row(lag(reads, looked), "group")
    assert (result.committed_offset, result.think_us) == (4, think_us)


def test_a_commit_that_failed_is_none() -> None:
    assert [each.kind for each in lag(commit(4, 1, error=25)).rows()] == []


def test_a_group_whose_partition_nobody_read_has_no_lag() -> None:
    result = row(lag(commit(4, 1)), "group")
    assert (result.committed_offset, result.high_watermark, result.lag, result.lag_worst) == (
        4,
        None,
        None,
        None,
    )


def test_followers_are_not_readers_but_report_the_high_watermark() -> None:
    result = lag(fetch(3, 9, replica_id=2), commit(4, 1))
    assert [each.kind for each in result.rows()] == ["group"]
    assert row(result, "group").lag == 5


def test_produce_and_list_offsets_report_the_high_watermark() -> None:
    request_topic = {"topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    answer = {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 70}
    listed = Facts(
        exchange("ListOffsets", 4, request_topic, {"topics": [{"name": "orders", "partitions": [answer]}]})
    )
    assert row(lag(commit(4, 1), listed), "group").lag == 66


def test_merged_it_is_the_lag_of_all() -> None:
    parts = [fetch(0, 10), commit(4, 1), fetch(10, 90, 2), commit(80, 3), fetch(90, 95, 4)]
    one = lag(*(part for part in parts if part.api == "Fetch"))
    one.merge(lag(*(part for part in parts if part.api != "Fetch")))
    assert one.rows() == lag(*parts).rows()


def test_the_lag_of_a_group_is_that_of_all_its_partitions() -> None:
    facts = [
        *(fetch(0, 10), commit(4, 1), fetch(10, 90, 2), commit(80, 3)),
        *(fetch(0, 7, 2, topic="refunds"), commit(2, 4, topic="refunds"), commit(7, 5, topic="refunds")),
        *(commit(1, 1, group="idle", topic="nobody reads it"), commit(9, 1, group="early")),
    ]
    expected = [
        ("billing", 86, [(1, 6), (2, 86), (3, 10), (4, 15), (5, 10)]),
        ("early", 81, [(1, 1), (2, 81)]),
    ]
    parts = [lag(*facts[number::3]) for number in range(3)]
    for part in parts[1:]:
        parts[0].merge(part)
    for result in (lag(*facts), parts[0]):
        assert [
            (
                row.group,
                row.lag_worst,
                [(round(point.time.timestamp() - START_NS / SECOND), point.lag) for point in row.points],
            )
            for row in result.over_time()
        ] == expected


def test_over_time_there_are_few_groups_with_few_points() -> None:
    ends = [fetch(0, 1000 + number, number) for number in range(300)]
    commits = [commit(number, 1, group=f"group {number:02}") for number in range(30)]
    rows = lag(*ends, *commits).over_time()
    assert [row.group for row in rows] == [f"group {number:02}" for number in range(20)]
    for number, row in enumerate(rows):
        assert 20 < len(row.points) <= 65
        assert row.points[-1].lag == row.lag_worst == 1299 - number


def test_samples_keep_the_first_and_the_last() -> None:
    result = Samples()
    for number in range(10_000):
        result.add(START_NS + number * SECOND, number)
    in_order = result.in_order()
    assert 20 < len(in_order) <= 65
    assert (in_order[0], in_order[-1]) == ((START_NS, 0), (START_NS + 9999 * SECOND, 9999))
    assert (result.last, result.count) == (in_order[-1], 10_000)


@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 9), st.booleans()), max_size=300))
def test_samples_of_parts_merge_into_those_of_one_run(values: list[tuple[int, int, bool]]) -> None:
    everything, one, two = Samples(), Samples(), Samples()
    for time_ns, value, is_first in values:
        everything.add(time_ns, value)
        (one if is_first else two).add(time_ns, value)
    one.merge(two)
    assert (one.in_order(), one.last, one.count) == (everything.in_order(), everything.last, everything.count)


@pytest.mark.parametrize("path", [path for path in captures() if name_of(path) not in UNLIKE], ids=name_of)
def test_commits_equal_those_of_the_clients(path: Path) -> None:
    """The last offset that a client says it committed is the last, or one that a later commit passed."""
    truth: dict[str, Any] = json.loads(Path(f"samples/{name_of(path)}.truth.json").read_text())
    logged: dict[tuple[str, str, int], int] = {}
    for each in truth.get("commits", ()):
        if each["offset"] < 0:  # librdkafka's word for a partition of which nothing was to commit
            continue
        logged[each["group_id"], each["topic"], each["partition"]] = each["offset"]
    result = Lag(DEFAULT)
    with open_capture(path) as packets:
        for one in dissect(packets):
            result.feed(Facts(one))
    rows = {(each.name, each.topic, each.partition): each for each in result.rows() if each.kind == "group"}
    wrong = Counter(
        key for key, offset in logged.items() if key not in rows or (rows[key].committed_offset or 0) < offset
    )
    assert wrong == Counter()


def test_the_time_lag_of_a_reader_that_stands_still_grows() -> None:
    record = batch([Item(timestamp_ms=START_NS // 10**6)], base_ms=START_NS // 10**6)
    fetches = [fetch(0, 1, data=record), *(fetch(1, 1 + each, each) for each in range(1, 9))]
    ages = [row(lag(*fetches[:count]), "client").seconds for count in (3, 6, 9)]
    assert ages == [2, 5, 8]
