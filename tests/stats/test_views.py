from __future__ import annotations

from functools import cache

import pytest

from kdissect import Summary, dissect, open_capture, summarize
from kdissect.stats.views import limited, ordered, viewed


@cache
def whole() -> Summary:
    with open_capture("samples/kafka-4-basics.pcap") as packets:
        return summarize(dissect(packets), by=("partition", "group", "connection"), interval_s=1)


def test_all_tables_unless_one_is_named() -> None:
    assert viewed(whole(), None) is whole()
    made = viewed(whole(), "topic")
    assert made.topics is whole().topics
    assert (made.apis, made.errors, made.slowest, made.partitions) == (None, None, None, None)
    assert made.intervals is whole().intervals


@pytest.mark.parametrize(
    ("order", "key"),
    [
        ("count", lambda row: -row.exchanges),
        ("bytes", lambda row: -row.request_bytes - row.response_bytes),
        ("latency", lambda row: -(row.latency_us.p99 or 0)),
        ("errors", lambda row: -row.errors),
        ("throttle", lambda row: -row.throttle_time_ms),
        ("name", lambda row: row.api),
    ],
)
def test_orders(order: str, key: object) -> None:
    made = ordered(whole(), order)
    assert made.apis == sorted(whole().apis or [], key=key)  # type: ignore[call-overload]
    for table in (made.brokers, made.clients, made.topics, made.partitions, made.groups, made.connections):
        assert table


def test_errors_slowest_and_time_keep_their_own_order() -> None:
    made = ordered(whole(), "name")
    assert (made.errors, made.slowest, made.intervals) == (
        whole().errors,
        whole().slowest,
        whole().intervals,
    )


def test_limited() -> None:
    assert limited(whole(), None) is whole()
    made = limited(whole(), 2)
    assert [len(table or ()) for table in (made.apis, made.clients, made.errors)] == [2, 2, 2]
    assert made.capture == whole().capture
