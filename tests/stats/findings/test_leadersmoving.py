from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.findings.leaders import LeadersMoving, TopicRecreated
from tests.exchange_factory import connection
from tests.findings import findings_of, metadata

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def test_a_leader_that_moved_and_came_back() -> None:
    seen = [metadata(number, [(1, 5), term]) for number, term in enumerate([(2, 0), (3, 1), (2, 2)])]
    (row,) = findings_of(LeadersMoving, seen)
    assert (row.subject, row.severity) == ("topic orders", "note")
    assert row.message == "2 leader changes: partition 1 (2 -> 3 -> 2)"
    assert row.evidence == ["asker-Metadata/1000", "asker-Metadata/2000"]


def test_a_move_that_every_client_sees_counts_once() -> None:
    seen = [
        metadata(number, [(1, 0) if number < 5 else (2, 1)], connection=connection(f"c{number}"))
        for number in range(10)
    ]
    (row,) = findings_of(LeadersMoving, seen)
    assert (row.count, row.evidence) == (1, ["c5/5000"])


def test_leaders_that_move_all_the_time() -> None:
    (row,) = findings_of(LeadersMoving, [metadata(n, [(n % 3, n)]) for n in range(20)])
    assert row.severity == "warning"


def test_late_responses_do_not_count_twice() -> None:
    terms = [(2, 0), (3, 1), (2, 0), (3, 1)]
    (row,) = findings_of(LeadersMoving, [metadata(n, [term]) for n, term in enumerate(terms)])
    assert row.message == "1 leader change: partition 0 (2 -> 3)"


def test_responses_without_an_epoch_are_ignored_next_to_those_with_one() -> None:
    assert (
        findings_of(LeadersMoving, [metadata(1, [(2, -1)]), metadata(2, [(1, 5)]), metadata(3, [(1, -1)])])
        == []
    )
    (row,) = findings_of(LeadersMoving, [metadata(1, [(2, -1)]), metadata(2, [(1, -1)])])
    assert row.message == "1 leader change: partition 0 (2 -> 1)"


def test_elections_that_the_same_broker_wins_and_no_leader_at_all() -> None:
    assert findings_of(LeadersMoving, [metadata(n, [(1, n)]) for n in range(5)]) == []
    assert findings_of(LeadersMoving, [metadata(1, [(1, 0)]), metadata(2, [(-1, 1)])]) == []


def reported(after_s: float, topic_id: str, *leaders: tuple[int, int], cluster: str = "one") -> Facts:
    facts = metadata(after_s, leaders)
    response = facts.exchange.response
    assert response is not None
    response["topics"][0]["topic_id"] = topic_id
    response["cluster_id"] = cluster
    return facts


def test_a_topic_created_again_has_no_moved_leaders() -> None:
    seen = [reported(1, "A", (1, 0)), reported(2, "B", (2, 0)), metadata(3, [(3, 0)])]
    assert findings_of(LeadersMoving, seen) == []
    (row,) = findings_of(TopicRecreated, seen)
    assert (row.subject, row.message) == (
        "topic orders",
        "deleted and created again once: its topic ID changed",
    )
    assert row.evidence == ["asker-Metadata/2000"]


def test_a_leader_moved_whether_or_not_a_client_sees_topic_ids() -> None:
    (row,) = findings_of(LeadersMoving, [reported(1, "A", (1, 0)), metadata(2, [(2, 1)])])
    assert row.message == "1 leader change: partition 0 (1 -> 2)"
    assert findings_of(TopicRecreated, [reported(1, "A", (1, 0)), reported(2, "A", (2, 1))]) == []


def test_two_clusters_have_topics_of_one_name() -> None:
    seen = [reported(1, "A", (1, 0)), reported(2, "B", (2, 0), cluster="two")]
    assert findings_of(TopicRecreated, seen) == []
    assert findings_of(LeadersMoving, seen) == []
