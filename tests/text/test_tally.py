from __future__ import annotations

import io

from kdissect.model import Anomaly
from kdissect.text.table import ExchangeTally
from tests.exchange_factory import exchange

ANOMALY = Anomaly("trailing_bytes", "response", "3 bytes")


def tally(*codes: int, unanswered: int = 0) -> str:
    out = io.StringIO()
    sink = ExchangeTally(out)
    for code in codes:
        anomalies = [ANOMALY, ANOMALY] if code == 3 else []
        sink.feed(exchange("Heartbeat", 3, {}, {"error_code": code}, anomalies=anomalies))
    for _ in range(unanswered):
        sink.feed(exchange("Heartbeat", 3, {}))
    sink.close()
    return out.getvalue()


def test_one_line() -> None:
    assert tally() == "0 exchanges\n"
    assert tally(0) == "1 exchange, answered\n"
    assert tally(0, 0) == "2 exchanges, all answered\n"
    assert tally(unanswered=3) == "3 exchanges, all unanswered\n"
    assert tally(0, 0, 3, 27, unanswered=2) == (
        "6 exchanges, 4 answered, 2 unanswered, 1 with anomalies, "
        "errors: 1 REBALANCE_IN_PROGRESS, 1 UNKNOWN_TOPIC_OR_PARTITION\n"
    )


def test_many_errors_are_not_all_named() -> None:
    assert tally(*range(1, 8)).endswith(", 2 more kinds\n")
