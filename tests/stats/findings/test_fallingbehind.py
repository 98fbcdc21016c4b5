from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka.records import RecordData
from kdissect.stats.findings.consumers import FallingBehind, SlowPoll
from tests.exchange_factory import connection
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdissect.stats.facts import Facts


def fetch(
    after_s: float, position: int, end: int, *, partition: int = 0, replica_id: int = -1, **more: Any
) -> Facts:
    """Of one partition, without a fetch session; nothing comes."""
    topic = more.pop("topic", "orders")
    request_topic = {"topic": topic, "partitions": [{"partition": partition, "fetch_offset": position}]}
    answer = {
        "partition_index": partition,
        "error_code": more.pop("error", 0),
        "high_watermark": end,
        "last_stable_offset": end,
        "records": RecordData(b"", 0, 0),
    }
    request = {"replica_id": replica_id, "max_wait_ms": 1, "session_id": 0, "session_epoch": -1}
    response = {"session_id": 0, "error_code": 0, "responses": [{"topic": topic, "partitions": [answer]}]}
    return facts_of("Fetch", 7, after_s, request | {"topics": [request_topic]}, response, "reader", **more)


def fetches(
    positions: Callable[[int], int], ends: Callable[[int], int], seconds: int = 20, **more: Any
) -> list[Facts]:
    return [fetch(1 + second, positions(second), ends(second), **more) for second in range(seconds)]


def test_one_who_reads_half_of_what_is_written() -> None:
    facts = fetches(lambda second: 50 * second, lambda second: 200 * second)
    (row,) = findings_of(FallingBehind, facts)
    assert (row.severity, row.subject, row.count) == ("warning", "client reader, topic orders", 19)
    assert (
        row.message == "fetch lag 2,850 records at the end, 0 when first seen; the client reads 50 records/s"
    )


def test_all_partitions_of_a_topic_count_together() -> None:
    facts = fetches(lambda second: 10 * second, lambda second: 50 * second)
    facts += fetches(lambda second: 10 * second, lambda second: 50 * second, partition=1)
    (row,) = findings_of(FallingBehind, facts)
    assert (
        row.message == "fetch lag 1,520 records at the end, 0 when first seen; the client reads 20 records/s"
    )


def test_consumers_that_catch_up_or_keep_up_are_not_reported() -> None:
    catches_up = fetches(lambda second: 1000 * second, lambda second: 100_000 + 10 * second)
    assert findings_of(FallingBehind, catches_up) == []
    had_a_break = fetches(lambda second: 1000 * max(0, second - 9), lambda second: 500 * second)
    assert findings_of(FallingBehind, had_a_break) == []
    has_much_to_read = fetches(lambda second: 10_000 * second, lambda second: 10_200 * second)
    assert findings_of(FallingBehind, has_much_to_read) == []
    seen_once = [fetch(1, 0, 5000)]
    assert findings_of(FallingBehind, seen_once) == []


def test_replicas_and_rejections_are_not_reported() -> None:
    for why_not in ({"replica_id": 2}, {"error": 1}):
        facts = fetches(lambda second: 50 * second, lambda second: 200 * second, **why_not)
        assert findings_of(FallingBehind, facts) == []


# --- what consumers do between fetches ----------------------------------------------------------------------


def thinking(facts: list[Facts], think_us: int) -> list[Facts]:
    for each in facts:
        each.exchange.think_us = think_us
    return facts


def test_one_who_is_slow_itself() -> None:
    facts = fetches(lambda second: 50 * second, lambda second: 200 * second)
    (row,) = findings_of(SlowPoll, thinking(facts, 900_000))
    assert (row.severity, row.count) == ("warning", 20)
    assert row.subject == "client reader at 10.0.0.6, topic orders"
    assert row.message == (
        "20 pauses of 0.5 s or more between fetches, 99% of the time; the fetches took 5.00ms on average; "
        "fetch lag 2,850 records at the end, 0 when first seen"
    )
    assert (row.impact.records, row.impact.lost_us) == (2850, 18_000_000)


def test_pauses_are_in_all_topics_of_a_consumer() -> None:
    orders, clicks = (
        fetches(lambda second: 50 * second, lambda second: 200 * second, seconds=10, topic=topic)
        for topic in ("orders", "clicks")
    )
    (row,) = findings_of(SlowPoll, thinking(orders + clicks, 900_000))
    assert row.subject == "client reader at 10.0.0.6, 2 topics: clicks and orders"
    assert (row.count, row.impact.records, row.impact.lost_us) == (20, 2 * 1350, 18_000_000)


def test_processes_with_the_same_client_id_are_different_readers() -> None:
    lags = fetches(lambda second: 50 * second, lambda second: 200 * second)
    pauses = fetches(
        lambda second: 200 * second,
        lambda second: 200 * second,
        partition=1,
        connection=connection("other", "10.0.0.7"),
    )
    assert findings_of(SlowPoll, thinking(lags, 1000) + thinking(pauses, 900_000)) == []


def test_who_fetches_soon_or_keeps_up_is_not_slow() -> None:
    facts = fetches(lambda second: 50 * second, lambda second: 200 * second)
    assert findings_of(SlowPoll, thinking(facts, 400_000)) == []
    assert findings_of(SlowPoll, thinking(facts[:2], 900_000)) == []
    keeps_up = fetches(lambda second: 200 * second, lambda second: 200 * second)
    assert findings_of(SlowPoll, thinking(keeps_up, 900_000)) == []


def test_who_waits_for_brokers_is_not_slow() -> None:
    facts = fetches(lambda second: 50 * second, lambda second: 200 * second)
    for each in thinking(facts, 600_000):
        each.total_us = 700_000
    assert findings_of(SlowPoll, facts) == []
