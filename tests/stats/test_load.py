from __future__ import annotations

from kdissect.stats.facts import Facts
from kdissect.stats.tallies import Load
from tests.exchange_factory import START_NS, exchange


def load(*facts: Facts) -> Load:
    result = Load()
    for each in facts:
        result.add(each)
    return result


def heartbeat(
    error: int = 0, *, throttle_ms: int = 0, latency_ns: int = 5_000_000, after_ns: int = 0
) -> Facts:
    answer = {"throttle_time_ms": throttle_ms, "error_code": error}
    return Facts(
        exchange(
            "Heartbeat", 3, {"group_id": "g"}, answer, latency_ns=latency_ns, time_ns=START_NS + after_ns
        )
    )


def test_what_is_counted() -> None:
    result = load(heartbeat(), heartbeat(27, throttle_ms=40, latency_ns=7_000_000, after_ns=9))
    assert result.exchanges == 2
    assert dict(result.kinds) == {"answered": 2}
    assert (result.request_bytes, result.response_bytes) == (200, 400)
    assert (result.service_us.min, result.service_us.max) == (5000, 7000)
    assert (result.failed, result.throttled, result.throttle_ms) == (1, 1, 40)
    assert (result.first_ns, result.last_ns) == (START_NS, START_NS + 9)


def test_what_has_no_answer_has_no_latency() -> None:
    result = load(Facts(exchange("Heartbeat", 3, {"group_id": "g"})))
    assert dict(result.kinds) == {"unanswered": 1}
    assert result.service_us.count == 0
    assert result.response_bytes == 0


def test_merged_it_is_the_load_of_all() -> None:
    first, second = heartbeat(after_ns=5), heartbeat(27, throttle_ms=3)
    result = load(first)
    result.merge(load(second))
    result.merge(Load())
    both = load(first, second)
    for name in ("kinds", "request_bytes", "response_bytes", "failed", "throttled", "throttle_ms"):
        assert getattr(result, name) == getattr(both, name)
    assert (result.first_ns, result.last_ns) == (both.first_ns, both.last_ns) == (START_NS, START_NS + 5)
    assert result.service_us.count == 2
