from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kdissect.stats.groups import STORM, histories
from tests.exchange_factory import connection, exchange
from tests.groups import (
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    consumer,
    counted,
    heartbeat,
    history,
    join,
    leave,
    sync,
)

if TYPE_CHECKING:
    from kdissect.model import Exchange


CLASSIC = (
    join("a", 1, 1, members=["a"], request_member_id=""),
    sync("a", 2, 1, {"t": [0]}),
    leave("a", 3),
)
HEARTBEATS = ("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")


def refused(error: int) -> tuple[Exchange, ...]:
    return tuple(join("a", 4 + second, 0, error=error) for second in range(4))


@pytest.mark.parametrize("error", [UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED])
def test_a_group_whose_last_member_left_stays_empty_while_joins_are_refused(error: int) -> None:
    group = history(*CLASSIC, *refused(error))
    assert (group.state, group.present, len(group.rebalances)) == ("empty", 0, 1)
    assert group.members[0].left is not None
    unanswered = history(*CLASSIC, join("a", 4, 0, answered=False))
    assert (unanswered.state, unanswered.present) == ("empty", 0)
    joined = history(*CLASSIC, *refused(error), join("a", 9, 2, members=["a"]))
    assert (joined.state, joined.present) == ("rebalancing", 1)


@pytest.mark.parametrize("api", HEARTBEATS)
def test_a_group_with_heartbeats_only_stays_empty_too(api: str) -> None:
    alone = consumer("a", 1, 0, 1, {"t": [0]}, topics=["t"], api=api), consumer("a", 3, -1, -1, api=api)
    refused = [consumer("a", 4 + second, 0, 0, error=UNKNOWN_MEMBER_ID, api=api) for second in range(3)]
    group = history(*alone, *refused)
    assert (group.state, group.present) == ("empty", 0)
    again = history(*alone, *refused, consumer("b", 9, 0, 3, {"t": [0]}, topics=["t"], api=api))
    assert (again.state, again.present) == ("stable", 1)
    assert [cause.cause for each in again.rebalances for cause in each.causes] == ["first", "first"]


def storm(count: int, every: float, first: float = 10) -> list[Exchange]:
    """One member that joins again and again, as when its poll takes longer than max.poll.interval.ms."""
    events = [join("a", 0, 1, members=["a"], request_member_id="", until=3), sync("a", 3, 1, {"t": [0]})]
    for number in range(count):
        at = first + number * every
        events += [
            join("a", at, 2 + number, members=["a"], until=at + 0.1),
            sync("a", at + 0.2, 2 + number, {"t": [0]}),
        ]
    return events


def test_a_storm() -> None:
    group = history(*storm(6, 5))
    (row,) = group.storms
    assert (row.rebalances, row.causes) == (6, {"metadata": 6})
    assert (row.end - row.start).total_seconds() == 25


def test_rebalances_now_and_then_are_none() -> None:
    assert history(*storm(6, 25)).storms == []
    assert history(*storm(STORM - 1, 1)).storms == []


def test_two_storms_are_two() -> None:
    rows = history(*storm(5, 1), *storm(5, 1, 500)[2:]).storms
    # The second one repeats generations 2 to 6: a group that was deleted, and made again.
    assert [row.rebalances for row in rows] == [5, 5]


def test_cooperative_groups_that_grow_have_no_storm() -> None:
    """Each new member costs two rebalances, of which the second is no news."""
    sticky = "cooperative-sticky"
    group = [
        join("a", 0, 1, members=["a"], request_member_id="", until=1, protocol=sticky),
        sync("a", 1, 1, {"t": [0, 1, 2, 3]}),
    ]
    names = ["a"]
    for number, name in enumerate("bcd", start=1):
        names.append(name)
        for is_second_half in (False, True):
            at, generation = 20 * number + 5 * is_second_half, 2 * number + is_second_half
            for place, other in enumerate(names):
                is_new = other == name and not is_second_half
                began = at if is_new else at + 0.1 + place / 100
                group.append(
                    join(
                        other,
                        began,
                        generation,
                        members=[] if place else names,
                        request_member_id="" if is_new else None,
                        until=at + 1,
                        protocol=sticky,
                    )
                )
                group.append(
                    sync(other, at + 1.1, generation, {"t": list(range(4 - number))[: 4 * (not place)]})
                )
    result = history(*group)
    causes = [row.causes[0].cause for row in result.rebalances]
    assert causes == ["first", *("join", "revocation") * 3]
    assert result.storms == []


def test_groups_are_sorted_by_name() -> None:
    others = [
        exchange("Heartbeat", 3, {"group_id": name, "member_id": "m"}, {"error_code": 0}) for name in "zb"
    ]
    assert [each.group for each in histories(counted([*others, heartbeat("a", 1, 1)]))] == ["b", "g", "z"]


def test_a_group_that_changes_its_protocol() -> None:
    group = history(
        join("a", 0, 1, members=["a"], request_member_id="", until=3),
        sync("a", 3, 1, {"t": [0]}),
        consumer("b", 10, 0, 2, {"t": [0]}, topics=["t"]),
    )
    assert group.kind == "consumer"
    assert [row.generation_after for row in group.rebalances] == [1, 2]


def test_members_without_a_client_id() -> None:
    group = history(
        exchange(
            "Heartbeat",
            3,
            {"group_id": "g", "member_id": "m", "generation_id": 4},
            {"error_code": 0},
            connection=connection(client="10.9.8.7"),
            completed_ns=1_790_000_000_200_000_000,
        )
    )
    (member,) = group.members
    assert (member.client, member.joined, member.assignment) == ("10.9.8.7", None, None)


@pytest.mark.parametrize(("now_s", "state"), [(14, ("stable", 1)), (16, ("empty", 0))])
def test_a_member_that_is_silent_for_longer_than_its_session_timeout_is_gone(
    now_s: int, state: tuple[str, int]
) -> None:
    """Of 10 s; the refused JoinGroup of another member shows that time goes on."""
    group = history(*CLASSIC[:2], heartbeat("a", 5, 1), join("b", now_s, 0, error=UNKNOWN_MEMBER_ID))
    assert (group.state, group.present) == state


def test_a_member_that_the_broker_does_not_know_is_gone() -> None:
    unknown = heartbeat("a", 5, 1, error=UNKNOWN_MEMBER_ID)
    group = history(*CLASSIC[:2], unknown)
    assert (group.state, group.present, group.members[0].left) == ("empty", 0, None)
    back = history(*CLASSIC[:2], unknown, join("a", 6, 2, members=["a"]), sync("a", 7, 2, {"t": [0]}))
    assert (back.state, back.present) == ("stable", 1)
