from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect import dissect, open_capture, summarize
from kdissect.stats.findings.replicas import ReplicaOutOfSync
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def alter(after_s: float, *replicas: int, error: int = 0) -> Facts:
    isr = [{"broker_id": replica, "broker_epoch": 1} for replica in replicas]
    partition = {"partition_index": 0, "new_isr_with_epochs": isr}
    request = {"broker_id": 3, "topics": [{"topic_id": "safe-id", "partitions": [partition]}]}
    response = {"error_code": error, "topics": []}
    return facts_of("AlterPartition", 3, after_s, request, response, "3", topic_ids={"safe-id": "safe"})


def metadata(after_s: float, *replicas: int) -> Facts:
    partition = {"error_code": 0, "partition_index": 0, "isr_nodes": list(replicas)}
    response = {"topics": [{"error_code": 0, "name": "safe", "partitions": [partition]}]}
    return facts_of("Metadata", 7, after_s, {"topics": None}, response, "asker")


def messages(*facts: Facts) -> list[str]:
    return [f"{row.subject}: {row.message}" for row in findings_of(ReplicaOutOfSync, facts)]


def test_a_recording() -> None:
    with open_capture("samples/troubles/follower-stopped.pcap.gz") as packets:
        rows = summarize(dissect(packets), parts=["findings"]).findings or ()
    (row,) = (row for row in rows if row.rule == "replica-out-of-sync")
    assert (row.subject, row.impact.lost_us) == ("replica 1, partition safe-0", 2_089_205)
    assert row.message == ("removed from the in-sync replicas once by its leader, node 3; back after 2.09s")


def test_replicas_that_leave_and_return() -> None:
    start = "removed from the in-sync replicas"
    facts = [metadata(1, 3, 1, 2), alter(10, 3, 2), alter(20, 1, 2, 3), alter(30, 2, 3), alter(35, 3)]
    assert messages(*facts) == [
        f"replica 1, partition safe-0: {start} 2 times by its leader, node 3; not back in the capture",
        f"replica 2, partition safe-0: {start} once by its leader, node 3; not back in the capture",
    ]
    assert messages(*facts[:3]) == [
        f"replica 1, partition safe-0: {start} once by its leader, node 3; back after 10.00s"
    ]


def test_replicas_that_return_or_whose_state_is_not_known() -> None:
    assert messages(metadata(1, 3), alter(10, 3, 1), alter(20, 1, 2, 3)) == []  # after a restart
    assert messages(alter(10, 3), metadata(20, 3, 1)) == []
    assert messages(metadata(1, 3, 1), alter(10, 3, error=41)) == []
