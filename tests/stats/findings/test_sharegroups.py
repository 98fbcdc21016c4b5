from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.model import Anomaly
from kdissect.stats.findings.share_groups import ShareRedelivery
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts

INVALID_RECORD_STATE = 121
IDS = {"jobs-id": "jobs"}


def acknowledgments(*batches: tuple[int, int, list[int]]) -> list[dict[str, Any]]:
    listed = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": types}
        for first, last, types in batches
    ]
    partition = {"partition_index": 0, "acknowledgement_batches": listed}
    return [{"topic_id": "jobs-id", "partitions": [partition]}]


def fetch(
    after_s: float, *acquired: tuple[int, int, int], topics: Any = (), error: int = 0, member: str = "a"
) -> Facts:
    """Records by first and last offset, and how often they were delivered."""
    listed = [
        {"first_offset": first, "last_offset": last, "delivery_count": count}
        for first, last, count in acquired
    ]
    partition = {"partition_index": 0, "acknowledge_error_code": error, "acquired_records": listed}
    response = {"error_code": 0, "responses": [{"topic_id": "jobs-id", "partitions": [partition]}]}
    request = {"group_id": "workers", "member_id": member, "topics": list(topics)}
    return facts_of("ShareFetch", 1, after_s, request, response, member, topic_ids=IDS)


def acknowledge(after_s: float, *batches: tuple[int, int, list[int]], error: int = 0) -> Facts:
    partition = {"partition_index": 0, "error_code": error}
    response = {"error_code": 0, "responses": [{"topic_id": "jobs-id", "partitions": [partition]}]}
    request = {"group_id": "workers", "member_id": "a", "topics": acknowledgments(*batches)}
    return facts_of("ShareAcknowledge", 1, after_s, request, response, "a", topic_ids=IDS)


def test_records_that_are_released_come_again() -> None:
    facts = [
        fetch(1, (0, 9, 1)),
        fetch(2, (1, 2, 2), topics=acknowledgments((0, 4, [1, 2, 2, 3, 0]), (5, 9, [1]))),
        acknowledge(3, (1, 2, [1])),
    ]
    assert findings_of(ShareRedelivery, facts) == []


def test_a_lock_that_runs_out() -> None:
    facts = [
        fetch(1, (0, 9, 1)),
        fetch(40, (0, 9, 2), member="other"),
        acknowledge(41, (0, 7, [1]), (8, 9, [3]), error=INVALID_RECORD_STATE),
    ]
    (row,) = findings_of(ShareRedelivery, facts)
    assert (row.severity, row.subject, row.count) == ("warning", "group workers, topic jobs", 2)
    assert row.message == (
        "acknowledged too late once; 10 records delivered again; 8 accepted, 0 released, 2 rejected"
    )
    assert (row.impact.requests, row.impact.records) == (1, 10)
    (row,) = findings_of(ShareRedelivery, facts[:2])
    assert row.severity == "note"


def test_acknowledgments_that_were_not_captured() -> None:
    """Whether the records were released is not known then; a late acknowledgment is known."""
    partial = acknowledge(1, (0, 0, [1]))
    partial.exchange.anomalies.append(Anomaly("truncated_body", "request", ""))
    again = fetch(2, (1, 2, 2))
    (row,) = findings_of(ShareRedelivery, [again])
    assert row.message == "2 records delivered again; 0 accepted, 0 released, 0 rejected"
    assert findings_of(ShareRedelivery, [partial, again]) == []
    (row,) = findings_of(ShareRedelivery, [partial, again, acknowledge(3, error=INVALID_RECORD_STATE)])
    assert row.message == "acknowledged too late once; 2 records delivered again"
