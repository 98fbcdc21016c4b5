"""Stories of groups that only know heartbeats."""

from __future__ import annotations

from tests import groups as g
from tests.groups import commit, consumer, history


def alone() -> list[g.Exchange]:
    return [
        consumer("a", 0, 0, 1, {"t": [0, 1]}, topics=["t"]),
        consumer("a", 5, 1, 1),
    ]


def second_comes() -> list[g.Exchange]:
    return [
        consumer("b", 10, 0, 2, {}, topics=["t"]),
        consumer("a", 11, 1, 1, {"t": [0]}),
        consumer("a", 11.1, 1, 2),
        consumer("b", 15, 2, 2, {"t": [1]}),
    ]


def causes(group: g.GroupHistory) -> list[list[tuple[str, str | None]]]:
    return [[(each.cause, each.client) for each in row.causes] for row in group.rebalances]


def test_the_first_member() -> None:
    group = history(*alone())
    assert group.kind == "consumer"
    (row,) = group.rebalances
    assert causes(group) == [[("first", "a")]]
    assert (row.generation_before, row.generation_after) == (None, 1)
    assert (row.members_before, row.members_after, row.joins) == (0, 1, 1)
    assert row.seconds == 0.001
    assert group.members[0].heartbeats == 1


def test_a_second_member_until_it_has_its_part() -> None:
    group = history(*alone(), *second_comes())
    assert causes(group) == [[("first", "a")], [("join", "b")]]
    row = group.rebalances[1]
    assert (row.generation_before, row.generation_after) == (1, 2)
    assert (row.members_before, row.members_after) == (1, 2)
    assert row.seconds == 5.001
    assert [member.assignment for member in group.members] == [{"t": [0]}, {"t": [1]}]


def test_a_member_that_leaves() -> None:
    group = history(
        *alone(), *second_comes(), consumer("b", 20, -1, -1), consumer("a", 21, 2, 3, {"t": [0, 1]})
    )
    assert causes(group)[-1] == [("leave", "b")]
    assert (group.rebalances[-1].members_before, group.rebalances[-1].members_after) == (2, 1)
    assert group.members[1].left is not None


def test_a_member_that_is_fenced_and_joins_again() -> None:
    group = history(
        *alone(),
        *second_comes(),
        consumer("b", 70, 2, 0, error=g.FENCED_MEMBER_EPOCH),
        consumer("b", 70.1, 0, 3, {}, topics=["t"]),
        consumer("a", 71, 2, 3),
    )
    assert causes(group)[-1] == [("timeout", "b"), ("join", "b")]
    assert group.errors == {"FENCED_MEMBER_EPOCH": 1}


def test_a_static_member_that_is_away_for_a_while() -> None:
    static = {"instance_id": "static-b"}
    group = history(
        *alone(),
        consumer("b", 10, 0, 2, {"t": [1]}, topics=["t"], **static),
        consumer("b", 20, -2, -2, **static),
        consumer("b-2", 22, 0, 2, {"t": [1]}, topics=["t"], **static),
        consumer("a", 40, 2, 3, {"t": [0, 2]}),
    )
    assert causes(group) == [[("first", "a")], [("join", "b")], [("unknown", None)]]
    assert group.members[2].group_instance_id == "static-b"


def test_other_topics() -> None:
    group = history(*alone(), consumer("a", 6, 1, 2, {"t": [0, 1], "u": [0]}, topics=["t", "u"]))
    assert causes(group) == [[("first", "a")], [("subscription", "a")]]


def test_what_only_the_broker_knows() -> None:
    group = history(*alone(), consumer("a", 6, 1, 2, {"t": [0, 1, 2]}))
    assert causes(group) == [[("first", "a")], [("unknown", None)]]


def test_the_last_member_leaves_and_the_group_begins_again() -> None:
    group = history(*alone(), consumer("a", 6, -1, -1), consumer("b", 30, 0, 3, {"t": [0, 1]}, topics=["t"]))
    assert causes(group) == [[("first", "a")], [("first", "b")]]


def test_a_capture_that_begins_in_the_middle() -> None:
    group = history(consumer("a", 0, 7, 7, {"t": [0]}), consumer("b", 1, 0, 8, {}, topics=["t"]))
    assert causes(group) == [[("join", "b")]]
    assert group.rebalances[0].members_before is None
    assert history(consumer("a", 0, -1, -1), commit("a", 1, {0: 1})).rebalances == []


def test_a_rebalance_that_a_member_holds_up_has_no_duration() -> None:
    """It does not give up its partition, and keeps its epoch."""
    held = [consumer("a", 11 + number, 1, 1, {"t": [0]}) for number in range(3)]
    group = history(*alone(), consumer("b", 10, 0, 2, {}, topics=["t"]), *held)
    assert [row.seconds for row in group.rebalances] == [0.001, None]
    silent = history(*alone(), consumer("b", 10, 0, 2, {}, topics=["t"]))  # a is gone, or not captured
    assert [row.seconds for row in silent.rebalances] == [0.001, 0.001]
