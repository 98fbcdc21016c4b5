from __future__ import annotations

from functools import cache

import pytest

from kdissect import Summary, dissect, open_capture, summarize
from kdissect.stats.views import limited, ordered, ranked, share_amount, viewed


@cache
def full_summary() -> Summary:
    with open_capture("samples/kafka-4-basics.pcap") as packets:
        return summarize(dissect(packets), by=("partition", "group", "connection"), interval_s=1)


def test_all_tables_unless_one_is_named() -> None:
    assert viewed(full_summary()) == full_summary()
    result = viewed(full_summary(), ["topic"])
    assert result.topics is full_summary().topics
    assert (result.apis, result.errors, result.slowest, result.partitions) == (None, None, None, None)
    assert result.intervals is full_summary().intervals


@pytest.mark.parametrize(
    ("order", "key"),
    [
        ("count", lambda row: -row.exchanges),
        ("bytes", lambda row: -row.request_bytes - row.response_bytes),
        ("service", lambda row: -(row.service_us.p95 or 0)),
        ("errors", lambda row: -row.errors),
        ("throttle", lambda row: -row.throttle_time_ms),
        ("name", lambda row: row.api),
    ],
)
def test_orders(order: str, key: object) -> None:
    result = ordered(full_summary(), order)
    assert result.apis == sorted(full_summary().apis or [], key=key)  # type: ignore[call-overload]
    for table in (
        result.brokers,
        result.clients,
        result.topics,
        result.partitions,
        result.groups,
        result.connections,
    ):
        assert table


def test_shares_add_up_to_what_is_ranked() -> None:
    summary = full_summary()
    assert sum(share_amount(row, None) for row in summary.apis or ()) == summary.capture.exchanges
    topics = summary.topics or ()
    assert [ranked(row, None) for row in topics] == sorted(
        (ranked(row, None) for row in topics), reverse=True
    )
    slow = (summary.apis or ())[0]
    assert ranked(slow, "service") == slow.service_us.p95
    assert share_amount(slow, "service") == pytest.approx((slow.service_us.mean or 0) * slow.service_us.count)


def test_errors_slowest_and_time_keep_their_own_order() -> None:
    result = ordered(full_summary(), "name")
    assert (result.errors, result.slowest, result.intervals) == (
        full_summary().errors,
        full_summary().slowest,
        full_summary().intervals,
    )


def test_limited() -> None:
    assert limited(full_summary(), None) is full_summary()
    result = limited(full_summary(), 2)
    assert [len(table or ()) for table in (result.apis, result.clients, result.errors)] == [2, 2, 2]
    assert result.capture == full_summary().capture
