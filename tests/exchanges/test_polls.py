from __future__ import annotations

from typing import Any

import pytest

from kdissect.exchanges.polls import is_long_poll, replica_id
from tests.exchange_factory import exchange

MS_NS = 1_000_000


def fetch(latency_ms: int, answer: dict[str, Any] | None = None, **request: Any) -> Any:
    fields = {"max_wait_ms": 500, "topics": [], **request}
    return exchange("Fetch", 11, fields, answer or {"responses": []}, latency_ns=latency_ms * MS_NS)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (fetch(500), True),
        (fetch(451), True),
        (fetch(449), False),
        (fetch(500, {"error_code": 70, "responses": []}), False),
        (fetch(500, max_wait_ms=0), False),
        (exchange("Fetch", 11, {"max_wait_ms": 500}), False),
        (exchange("Metadata", 9, {"max_wait_ms": 500}, {}, latency_ns=500 * MS_NS), False),
    ],
)  # fmt: skip
def test_a_long_poll_waits_in_vain(sample: Any, expected: bool) -> None:
    assert is_long_poll(sample) is expected


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (fetch(1, replica_id=-1), None),
        (fetch(1, replica_id=2), 2),
        (exchange("Fetch", 16, {"replica_state": {"replica_id": 3, "replica_epoch": 1}}), 3),
        (exchange("Fetch", 16, {"replica_state": {"replica_id": -1, "replica_epoch": -1}}), None),
        (exchange("Fetch", 16, None, {"responses": []}), None),
        (exchange("OffsetForLeaderEpoch", 3, {"replica_id": 2}), None),
    ],
)  # fmt: skip
def test_replicating_brokers_are_identified(sample: Any, expected: int | None) -> None:
    assert replica_id(sample) == expected
