"""What the clients of the samples say of their groups; parts of a capture add up to the whole."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import dissect, open_capture
from kdissect.exchanges.group_events import group_events
from kdissect.limits import Limits
from kdissect.stats.facts import Facts
from kdissect.stats.groups import Groups, histories
from samples.golden import captures, name_of
from tests.groups import commit, counted, heartbeat, history, join, leave, sync

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.stats.document import GroupHistory

NOT_READABLE = {"tls", "http-on-9092"}
SAMPLES = [path for path in captures() if name_of(path) not in NOT_READABLE]
# Its client was closed before its program got the last assignment.
REPORTED_LESS = {("tansu-kafka-python", "kp-group-1")}


@cache
def exchanges(path: Path) -> list[Exchange]:
    with open_capture(path) as packets:
        return [each for each in dissect(packets) if group_events(each, include_alive=True)]


def truth(path: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(Path(f"samples/{name_of(path)}.truth.json").read_text())
    return truth


def histories_of(path: Path) -> dict[str, GroupHistory]:
    return {each.group: each for each in histories(counted(exchanges(path)))}


def owned(path: Path) -> dict[tuple[str, str, str | None], set[tuple[str, int]]]:
    """What each member had after it was given something for the last time."""
    now: dict[tuple[str, str, str | None], set[tuple[str, int]]] = defaultdict(set)
    last = {}
    for event in truth(path)["groups"]:
        key = event["group_id"], event["client_id"], event.get("member_id")
        partitions = {(topic, number) for topic, number in event["partitions"]}
        if event["event"] == "assigned":
            now[key] |= partitions
            last[key] = set(now[key])
        else:
            now[key] -= partitions
    return last


# In midstream the assignment was before the capture.
@pytest.mark.parametrize("path", [path for path in SAMPLES if name_of(path) != "midstream"], ids=name_of)
def test_members_have_what_their_clients_say(path: Path) -> None:
    groups = histories_of(path)
    for (group, client, member_id), partitions in owned(path).items():
        members = [
            member
            for member in groups[group].members
            if (member.client == client if member_id is None else member.member_id == member_id)
        ]
        assert members, (group, client)
        is_reported = (
            groups[group].kind != "streams"
        )  # its members are given tasks, their listeners say topics
        if is_reported and (name_of(path), client) not in REPORTED_LESS:
            last_assignments = members[-1].assignment or {}
            assert {
                (topic, each) for topic, numbers in last_assignments.items() for each in numbers
            } == partitions


@pytest.mark.parametrize("path", SAMPLES, ids=name_of)
def test_commits_are_those_of_the_clients(path: Path) -> None:
    logged = defaultdict(list)
    for each in truth(path)["commits"]:
        if each["offset"] >= 0:
            logged[each["group_id"], each["topic"], each["partition"]].append(each["offset"])
    groups = histories_of(path)
    for (group, topic, partition), offsets in logged.items():
        (row,) = (row for row in groups[group].committed if (row.topic, row.partition) == (topic, partition))
        assert (row.first_offset, row.last_offset, row.commits) == (offsets[0], offsets[-1], len(offsets))


@pytest.mark.parametrize("path", [path for path in SAMPLES if name_of(path) != "kafka-4-storm"], ids=name_of)
def test_no_other_sample_has_a_storm(path: Path) -> None:
    assert [each.storms for each in histories_of(path).values() if each.storms] == []


def test_the_rebalances_of_the_samples() -> None:
    """As the scripts that recorded them have their groups do."""
    expected = {
        ("mock-rebalance", "workers-range"): ["first", "join"],
        ("mock-rebalance", "workers-cooperative-sticky"): ["first", "join", "revocation"],
        ("mock-next-groups", "next"): ["first", "join"],
        ("mock-next-groups", "sharers"): ["first"],
        ("kafka-2.8", "eager"): ["first", "join", "leave"],
        ("kafka-2.8", "cooperative"): ["first", "join", "revocation"],
        ("kafka-4-basics", "kp-group"): ["first", "metadata", "join"],
        ("kafka-4-basics", "readers"): ["first"],
        ("kafka-4-basics", "java-readers"): ["first"],
    }
    seen = {}
    for path in SAMPLES:
        for name, group in histories_of(path).items():
            if (name_of(path), name) in expected:
                causes = [row.causes[0].cause for row in group.rebalances]
                seen[name_of(path), name] = causes
    assert seen == expected


@given(st.data())
def test_parts_divided_by_connection_merge_into_one_run(data: st.DataObject) -> None:
    all_of = exchanges(data.draw(st.sampled_from(SAMPLES)))
    ids = sorted({each.connection.id for each in all_of})
    part_of = {each: data.draw(st.integers(0, 2)) for each in ids}
    parts = [Groups(), Groups(), Groups()]
    for each in all_of:
        parts[part_of[each.connection.id]].feed(Facts(each))
    merged = Groups()
    for part in data.draw(st.permutations(parts)):
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert histories(merged) == histories(counted(all_of))


def test_a_member_that_came_back_has_not_left() -> None:
    group = history(
        join("a", 0, 1, members=["a"], request_member_id=""),
        leave("a", 5),
        join("a", 9, 2, members=["a"]),
        sync("a", 9.1, 2, {"t": [0]}),
        heartbeat("a", 10, 2),
    )
    (member,) = group.members
    assert member.left is None
    assert (member.generation, member.heartbeats, member.client, member.address) == (2, 1, "a", "10.0.0.1")
    assert (member.joined, member.subscribed) == (group.first, ["t"])


def test_rate_of_commits() -> None:
    group = history(
        commit("a", 0, {0: 10, 1: 5}),
        commit("a", 5, {0: 60}),
        commit("a", 6, {0: 90}, error=22),
        commit("b", 2, {0: 20}),
    )
    assert group.kind is None
    first, second = group.committed
    assert (first.first_offset, first.last_offset, first.commits, first.failed) == (10, 60, 3, 1)
    assert first.per_second == 10.0
    assert (second.commits, second.per_second) == (1, None)
    assert group.errors == {"ILLEGAL_GENERATION": 1}


def test_what_is_dropped_is_counted() -> None:
    several = [join("a", at, at + 1, members=["a"]) for at in range(10)]
    group = history(*several, limits=Limits(summary_group_events=16))  # with a topic, and a member twice
    assert (len(group.rebalances), group.events_dropped) == (4, 6)
    assert history(*several, limits=Limits(summary_total_group_events=12)).events_dropped == 7
    assert group.members[0].generation == 10

    limits = Limits(summary_rows=1, summary_group_members=1, summary_group_partitions=1)
    groups = counted(
        [*several, commit("a", 20, {0: 1}), commit("b", 21, {1: 1}), commit("c", 22, {0: 1}, group="other")],
        limits,
    )
    assert groups.other_counts() == {"group_history": 1, "group_members": 1, "group_commits": 1}
    assert [each.group for each in histories(groups)] == ["g"]
    assert counted(several).other_counts() == {}


def test_bounds_hold_where_parts_are_put_together() -> None:
    limits = Limits(summary_group_events=16)  # with a topic, and a member twice
    one = counted([join("a", at, 1 + at, members=["a"]) for at in range(3)], limits)
    one.merge(counted([join("b", at + 0.5, 1, members=["b"]) for at in range(3)], limits))
    assert len(one.groups["g"].events) == 4
    assert one.groups["g"].left_out == 2
