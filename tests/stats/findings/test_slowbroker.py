from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from kdissect.stats.findings.latencies import SlowBroker
from tests.exchange_factory import connection
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.stats.facts import Facts


def beats(broker: int, latency_ms: float, count: int = 30) -> Iterator[Facts]:
    used = connection(f"c{broker}", broker=f"10.0.1.{broker}")
    for number in range(count):
        after_s = number + broker / 100
        yield facts_of(
            "Heartbeat",
            3,
            after_s,
            {},
            {"error_code": 0},
            connection=used,
            latency_ns=round(latency_ms * 1e6),
        )


def test_a_broker_that_is_slower_than_its_peers() -> None:
    (row,) = findings_of(SlowBroker, chain(beats(1, 2), beats(2, 3), beats(3, 40)))
    assert row.subject == "broker 10.0.1.3:9092, Heartbeat"
    assert row.message.startswith("median of 30 exchanges 40.0ms, of which the broker 40.0ms")
    assert row.message.endswith("3.00ms")
    assert row.evidence[0].startswith("c3/")


def test_brokers_that_are_alike_or_fast_or_alone_or_seldom_used() -> None:
    assert findings_of(SlowBroker, chain(beats(1, 40), beats(2, 41), beats(3, 100))) == []
    assert findings_of(SlowBroker, chain(beats(1, 1), beats(2, 9))) == []
    assert findings_of(SlowBroker, beats(1, 500)) == []
    assert findings_of(SlowBroker, chain(beats(1, 2), beats(2, 2), beats(3, 400, count=5))) == []


def test_waits_are_no_slowness() -> None:
    request = {"max_wait_ms": 500, "min_bytes": 1, "session_epoch": -1, "topics": [{"topic": "orders"}]}
    facts = [
        facts_of(
            "Fetch",
            11,
            number + broker / 100,
            request,
            {"error_code": 0, "throttle_time_ms": 0, "responses": []},
            connection=connection(f"c{broker}", broker=f"10.0.1.{broker}"),
            latency_ns=500_000_000 if broker else 2_000_000,
        )
        for number in range(30)
        for broker in range(2)
    ]
    assert all(each.service_us is None for each in facts)
    assert findings_of(SlowBroker, facts) == []
