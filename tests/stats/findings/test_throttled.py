from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.findings.latencies import Throttled
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def answer(number: int, throttle_ms: int) -> Facts:
    response = {"error_code": 0, "throttle_time_ms": throttle_ms}
    return facts_of("Heartbeat", 3, number, {"group_id": "g"}, response)


def test_a_client_that_waits_for_long_or_often() -> None:
    (row,) = findings_of(Throttled, [answer(1, 0), answer(2, 1500)])
    assert row.subject == "client payments, broker 10.0.0.1:9092"
    assert row.message == "1 response with a throttle time, 1.50s in total, longest 1.50s"
    (row,) = findings_of(Throttled, [answer(number, number + 1) for number in range(20)])
    assert row.message == "20 responses with a throttle time, 210.0ms in total, longest 20.0ms"


def test_a_client_that_waits_a_moment_or_not_at_all() -> None:
    assert findings_of(Throttled, [answer(1, 200), answer(2, 100)]) == []
    assert findings_of(Throttled, [answer(number, 0) for number in range(100)]) == []
