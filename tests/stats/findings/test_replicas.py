from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect import dissect, open_capture, summarize
from kdissect.limits import DEFAULT, SECOND_NS
from kdissect.model import Anomaly, LatencyParts
from kdissect.stats.findings.replicas import ReplicaOutOfSync
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.stats.facts import Facts


def alter(
    after_s: float, *replicas: int, error: int = 0, epoch: int | None = None, topic: str = "safe", by: int = 3
) -> Facts:
    """A change by a leader, and the partition epoch before it."""
    partition = {
        "partition_index": 0,
        "new_isr_with_epochs": [{"broker_id": replica, "broker_epoch": 1} for replica in replicas],
        **({} if epoch is None else {"partition_epoch": epoch}),
    }
    changed = [] if epoch is None else [{"partition_index": 0, "partition_epoch": epoch + 1}]
    request = {"broker_id": by, "topics": [{"topic_id": f"{topic}-id", "partitions": [partition]}]}
    response = {"error_code": error, "topics": [{"topic_id": f"{topic}-id", "partitions": changed}]}
    return facts_of("AlterPartition", 3, after_s, request, response, "3", topic_ids={f"{topic}-id": topic})


def metadata(after_s: float, *replicas: int, topics: Iterable[str] = ("safe",), error: int = 0) -> Facts:
    partition = {
        "error_code": error,
        "partition_index": 0,
        "replica_nodes": sorted({1, 2, 3, *replicas}),
        "isr_nodes": list(replicas),
    }
    response = {"topics": [{"error_code": 0, "name": name, "partitions": [partition]} for name in topics]}
    return facts_of("Metadata", 7, after_s, {"topics": None}, response, "asker")


def messages(*facts: Facts) -> list[str]:
    return [f"{row.subject}: {row.message}" for row in findings_of(ReplicaOutOfSync, facts)]


def test_a_recording() -> None:
    with open_capture("samples/troubles/follower-stopped.pcap.gz") as packets:
        rows = summarize(dissect(packets), parts=["findings"]).findings or ()
    (row,) = (row for row in rows if row.rule == "replica-out-of-sync")
    assert (row.subject, row.impact.lost_us) == ("replica 1, partition safe-0", 2_089_205)
    assert row.message == (
        "removed from the in-sync replicas once by its leader, node 3; back after 2.09s; acks=all waited for "
        "it up to 6.38s"
    )


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


def written(after_s: float, waited_s: float, *, acks: int = -1, topic: str = "safe") -> Facts:
    """A request that waits so long."""
    request = {"acks": acks, "topic_data": [{"name": topic, "partition_data": [{"index": 0}]}]}
    partitions = [{"index": 0, "error_code": 0, "base_offset": 1}]
    response = {"responses": [{"name": topic, "partition_responses": partitions}]}
    parts = LatencyParts(0, 0, 0, 0, round(1e6 * waited_s))
    latency_ns = round(waited_s * SECOND_NS)
    return facts_of("Produce", 9, after_s, request, response, parts=parts, latency_ns=latency_ns)


def test_what_waits_for_a_replica() -> None:
    removed = metadata(1, 3, 1, 2), alter(10, 3, 2)
    before, after = written(1, 8), written(10.5, 9)
    (row,) = messages(*removed, before, written(3, 7.5), written(4, 6.5), written(9, 1.9), after)
    assert row.endswith("not back in the capture; acks=all waited for it up to 7.50s")
    for other in (before, after, written(3, 7.5, acks=1), written(3, 7.5, topic="another")):
        assert "waited" not in "".join(messages(*removed, other))


def test_replicas_that_return_or_whose_state_is_not_known() -> None:
    assert messages(metadata(1, 3), alter(10, 3, 1), alter(20, 1, 2, 3)) == []  # after a restart
    assert messages(alter(10, 3), metadata(20, 3, 1)) == []
    assert messages(metadata(1, 3, 1), alter(10, 3, error=41)) == []


def test_what_the_controller_removed_is_not_the_leader_s() -> None:
    start = metadata(1, 1, 2, 3)
    assert messages(start, metadata(10, 3), alter(20, 3, 1)) == []
    assert messages(start, metadata(10, 3, error=9), alter(20, 3, 1)) == []  # REPLICA_NOT_AVAILABLE
    assert messages(start, alter(2, 1, 2, 3), metadata(10, 3), alter(20, 3, 1)) == []
    assert messages(alter(2, 1, 2, 3, epoch=4), alter(20, 3, 1, epoch=7)) == []
    assert messages(alter(2, 1, 2, 3), alter(30, 2, by=2)) == []
    (one,) = messages(alter(2, 1, 2, 3, epoch=4), alter(20, 3, 1, epoch=5))
    assert one.startswith("replica 2, partition safe-0: removed")
    assert messages(start, metadata(10, 3), metadata(15, 1, 2, 3), alter(20, 3, 1)) == [one]


def test_a_reassignment() -> None:
    start = [metadata(1, 1, 2, 3), alter(10, 1, 2, 3, 4, 5, 6, epoch=1)]
    assert messages(*start, alter(50, 4, 6)) == []
    assert messages(*start, alter(50, 4, 6, epoch=5, by=4)) == []
    assert messages(metadata(1, 1, 2, 3), alter(50, 3, 4, 5)) == []
    (row,) = messages(*start, metadata(40, 4, 5, 6), alter(50, 4, 6, epoch=5, by=4))
    assert row.startswith(
        "replica 5, partition safe-0: removed from the in-sync replicas once by its leader, "
    )


def test_a_message_that_is_cut_removes_nothing() -> None:
    facts = [metadata(1, 1, 2, 3), alter(10, 3)]
    facts[1].exchange.anomalies.append(Anomaly("truncated_body", "request", ""))
    assert messages(*facts) == []


def test_many_partitions_hide_no_others() -> None:
    names = [f"topic{number}" for number in range(3_000)]
    healthy = metadata(1, 1, 2, 3, topics=names)
    assert len(messages(healthy, alter(2, 2, 3, topic=names[-1]))) == 1
    many = metadata(1, 1, 2, 3, topics=[f"topic{number}" for number in range(20_000)])
    assert len(messages(many, alter(2, 1, 2, 3), alter(3, 2, 3))) == 1


def test_what_is_kept_is_bounded() -> None:
    """A partition has few replicas, and few states; which are kept does not depend on the order."""
    rule = ReplicaOutOfSync(DEFAULT)
    rule.feed(metadata(1, *range(40)))
    rule.feed(alter(2, *range(39)))
    assert (len(rule.reported), len(rule.changes)) == (0, 0)
    for number in range(100):
        rule.feed(metadata(number, 3, number + 4))
        rule.feed(alter(number, 3, number + 4))
    (reported,), (changes,) = rule.reported.values(), rule.changes.values()
    assert (len(reported.sets), len(changes.first)) == (8, 64)
    assert messages(*(metadata(number, 3, 20 - number) for number in range(9)), alter(9.5, 3)) == []
