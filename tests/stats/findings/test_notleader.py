from __future__ import annotations

from kdissect.stats.findings.leaders import NotLeader
from tests.findings import fetch, findings_of, produce

NOT_LEADER = 6


def test_a_client_that_does_not_learn() -> None:
    (row,) = findings_of(NotLeader, [produce(10 + number / 10, error=NOT_LEADER) for number in range(50)])
    assert row.subject == "client payments, topic orders"
    assert row.message.startswith("50 responses from brokers that do not lead the partition")
    assert (row.count, row.severity) == (50, "warning")
    assert row.evidence[0] == "payments-Produce/10000"


def test_a_leader_that_moved() -> None:
    assert (
        findings_of(
            NotLeader, [produce(number / 10, error=NOT_LEADER if number < 5 else 0) for number in range(50)]
        )
        == []
    )


def test_leaders_that_move_now_and_then() -> None:
    assert findings_of(NotLeader, [produce(number * 60, error=NOT_LEADER) for number in range(100)]) == []


def test_followers_wait_for_their_leader_like_that() -> None:
    assert (
        findings_of(NotLeader, [fetch(number / 10, error=NOT_LEADER, replica_id=2) for number in range(50)])
        == []
    )
