from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kdissect.limits import DEFAULT
from kdissect.stats.facts import Facts
from kdissect.stats.pulse_groups import EMPTY, REBALANCING, SILENT, STABLE, GroupSnapshot, PulseGroups
from kdissect.stats.rebalances import FIRST, JOINED, LEFT
from tests.groups import (
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    consumer,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.pulses import at, commit, fetch, produce

if TYPE_CHECKING:
    from kdissect.limits import Limits
    from kdissect.model import Exchange


def fed(*exchanges: Exchange | Facts, limits: Limits = DEFAULT) -> PulseGroups:
    groups = PulseGroups(limits)
    for each in exchanges:
        facts = each if isinstance(each, Facts) else Facts(each)
        groups.feed(facts, facts.exchange.completed_ns or facts.exchange.time_ns)
    return groups


def only(groups: PulseGroups, seconds: float) -> GroupSnapshot:
    (row,) = groups.rows(at(seconds))
    return row


FORMED = (
    join("a", 1, 1, members=["a"], request_member_id=""),
    sync("a", 2, 1, {"t": [0, 1]}),
)
REFORMED = (
    join("b", 5, 2, request_member_id="", error=MEMBER_ID_REQUIRED),
    heartbeat("a", 5.5, 1, REBALANCE_IN_PROGRESS),
    join("b", 5.1, 2, until=6),
    join("a", 5.6, 2, members=["a", "b"], until=6),
)
ASSIGNED = (sync("a", 6.1, 2, {"t": [0]}), sync("b", 6.2, 2, {"t": [1]}))


def test_a_group_forms() -> None:
    assert only(fed(FORMED[0]), 1.5).state == REBALANCING
    row = only(fed(*FORMED, heartbeat("a", 3, 1)), 3)
    assert (row.kind, row.state, row.members, row.generation, row.rebalances) == ("classic", STABLE, 1, 1, 1)


def test_a_joining_member_is_reported_as_a_rebalance() -> None:
    assert only(fed(*FORMED, *REFORMED[:2]), 5.6).state == REBALANCING
    groups = fed(*FORMED, *REFORMED)
    assert only(groups, 6).state == REBALANCING
    groups = fed(*FORMED, *REFORMED, *ASSIGNED, heartbeat("a", 7, 2))
    row = only(groups, 7)
    assert (row.state, row.members, row.generation, row.rebalances) == (STABLE, 2, 2, 2)
    latest, earliest = groups.rebalances()
    assert [each.rebalance.causes[0].cause for each in (latest, earliest)] == [JOINED, FIRST]
    assert latest.rebalance.generation_before == 1
    assert groups.rebalances() == [latest, earliest]


def test_a_heartbeat_does_not_end_a_rebalance_before_everybody_has_an_assignment() -> None:
    groups = fed(*FORMED, *REFORMED, heartbeat("a", 6.05, 2))
    assert only(groups, 6.05).state == REBALANCING
    groups = fed(*FORMED, *REFORMED, heartbeat("a", 12, 2))  # the SyncGroups were not captured
    assert only(groups, 12).state == STABLE


def test_members_leave() -> None:
    groups = fed(*FORMED, *REFORMED, *ASSIGNED, leave("b", 8))
    assert (only(groups, 8).state, only(groups, 8).members) == (REBALANCING, 1)
    groups.feed(Facts(leave("a", 9)), at(9))
    assert (only(groups, 9).state, only(groups, 9).members) == (EMPTY, 0)
    assert only(groups, 300).state == EMPTY
    assert groups.rows(at(700)) == []


@pytest.mark.parametrize("error", [UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS])
def test_refused_joins_leave_a_group_empty(error: int) -> None:
    groups = fed(*FORMED, leave("a", 3), *(join("a", second, 0, error=error) for second in (4, 5, 6)))
    row = only(groups, 7)
    assert (row.state, row.members, row.rebalances) == (EMPTY, 0, 1)


def test_a_group_that_falls_silent() -> None:
    groups = fed(*FORMED)
    assert only(groups, 50).state == STABLE
    assert (only(groups, 80).state, only(groups, 80).members) == (SILENT, 0)


def test_a_group_that_only_knows_heartbeats() -> None:
    joined = consumer("a", 1, 0, 1, {"t": [0, 1]}, topics=["t"])
    alive = consumer("a", 2, 1, 1)
    assert only(fed(joined), 1.5).state == REBALANCING
    assert only(fed(joined, alive), 2.5).state == STABLE
    second = consumer("b", 3, 0, 2, {}, topics=["t"])
    assigned = consumer("a", 4, 1, 2, {"t": [0]})
    late = consumer("b", 4.5, 1, 1)  # the older epoch, reported late: nothing new
    groups = fed(joined, alive, second, assigned, late, consumer("a", 5, 2, 2))
    row = only(groups, 5)
    assert (row.kind, row.state, row.members, row.generation, row.rebalances) == ("consumer", STABLE, 2, 2, 2)
    causes = [each.rebalance.causes[0].cause for each in groups.rebalances()]
    assert causes == [JOINED, FIRST]
    groups.feed(Facts(consumer("b", 6, -1, -1)), at(6))
    assert only(groups, 6).members == 1
    groups.feed(Facts(consumer("a", 7, 2, 3, {"t": [0, 1]})), at(7))
    assert groups.rebalances()[0].rebalance.causes[0].cause == LEFT


def test_lag_is_what_is_between_commits_and_ends() -> None:
    groups = fed(fetch(1, end=100), commit(2, 40), fetch(3, "other", end=7), commit(4, 1, topic="other"))
    row = only(groups, 5)
    assert (row.kind, row.state, row.lag, row.worst_partition) == (None, None, 66, ("orders", 0, 60))
    groups.feed(commit(6, 100), at(6))
    assert only(groups, 6).lag == 6
    groups.feed(produce(7, offset=190), at(7))
    assert only(groups, 7).lag == 106


@pytest.mark.parametrize("known", [commit(1, 5), fetch(1)])
def test_without_both_there_is_no_lag(known: Facts) -> None:
    assert [row.lag for row in fed(known).rows(at(2))] in ([None], [])


def test_everything_is_bounded() -> None:
    limits = replace(DEFAULT, top_rows=3, top_group_events=4, top_partitions=5)
    groups = PulseGroups(limits)
    for number in range(200):
        name = f"group-{number % 7}"
        for item in (
            join(f"m{number}", number, number + 1, members=[f"m{number}"]),
            heartbeat("x", number, 1),
        ):
            assert item.request is not None
            item.request["group_id"] = name
            groups.feed(Facts(item), at(number))
        groups.feed(commit(number, number, name, f"topic-{number}"), at(number))
        groups.feed(produce(number, f"topic-{number}"), at(number))
        groups.rebalances()
    assert len(groups.rows(at(200))) == 3
    assert all(len(group.events) <= 4 for group in groups._groups.values())
    assert len(groups._members) == len(groups._ends) == len(groups._commits) == 5
    assert len(groups._recent) == 50


def test_a_rebalance_is_listed_once_while_its_first_events_are_forgotten() -> None:
    groups = PulseGroups(replace(DEFAULT, top_group_events=18))  # with the members and partitions in them
    for number in range(10):
        start = 10 * number
        for item in (
            leave("b", start),
            heartbeat("a", start + 1, number, REBALANCE_IN_PROGRESS),
            join("a", start + 2, number + 1, members=["a", "b"], until=start + 4),
            join("b", start + 3, number + 1, until=start + 4),
            sync("a", start + 5, number + 1, {"t": [0]}),
        ):
            groups.feed(Facts(item), at(start))
            groups.rebalances()
    generations = [each.rebalance.generation_after for each in groups.rebalances()]
    assert generations == list(range(10, 0, -1))
