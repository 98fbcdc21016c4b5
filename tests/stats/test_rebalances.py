"""Histories of classic groups, each from the exchanges that its members would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import groups as g
from tests.groups import heartbeat, history, join, leave, sync

if TYPE_CHECKING:
    from kdissect.model import Exchange
    from kdissect.stats.document import GroupHistory, RebalanceRow


def alone(at: float = 0, generation: int = 1) -> list[Exchange]:
    """A joins an empty group (KIP-394: in two steps) and gets all."""
    return [
        join("a", at, 0, request_member_id="", error=g.MEMBER_ID_REQUIRED),
        join("a", at + 0.01, generation, members=["a"], until=at + 3),
        sync("a", at + 3.1, generation, {"t": [0, 1]}),
    ]


def both(at: float, generation: int, **leader: object) -> list[Exchange]:
    """A and b, who are members, join again and share."""
    return [
        join("a", at, generation, members=["a", "b"], until=at + 1, **leader),  # type: ignore[arg-type]
        join("b", at + 0.5, generation, until=at + 1),
        sync("a", at + 1.1, generation, {"t": [0]}),
        sync("b", at + 1.2, generation, {"t": [1]}),
    ]


def second_comes(at: float = 10) -> list[Exchange]:
    return [
        join("b", at, 2, request_member_id="", until=at + 1),
        heartbeat("a", at + 0.2, 1, g.REBALANCE_IN_PROGRESS),
        join("a", at + 0.3, 2, members=["a", "b"], until=at + 1),
        sync("a", at + 1.1, 2, {"t": [0]}),
        sync("b", at + 1.1, 2, {"t": [1]}),
    ]


def causes(row: RebalanceRow) -> list[tuple[str, str | None]]:
    return [(each.cause, each.client) for each in row.causes]


def started_by(group: GroupHistory) -> list[list[tuple[str, str | None]]]:
    return [causes(row) for row in group.rebalances]


def test_the_first_member() -> None:
    (row,) = history(*alone()).rebalances
    assert causes(row) == [("first", "a")]
    assert (row.generation_before, row.generation_after) == (None, 1)
    assert (row.members_before, row.members_after) == (0, 1)
    assert (row.joins, row.protocol, row.leader, row.exchange) == (2, "range", "a", "of-a/1")
    assert row.seconds == 3.101  # from the JoinGroup that only got its member ID


def test_a_second_member() -> None:
    group = history(*alone(), *second_comes())
    row = group.rebalances[1]
    assert causes(row) == [("join", "b")]
    assert (row.generation_before, row.generation_after) == (1, 2)
    assert (row.members_before, row.members_after, row.joins) == (1, 2, 2)
    assert row.seconds == 1.101
    assert [member.assignment for member in group.members] == [{"t": [0]}, {"t": [1]}]


def test_a_member_that_leaves_and_says_why() -> None:
    group = history(
        *alone(),
        *second_comes(),
        leave("b", 20, "the consumer is being closed"),
        join("a", 20.5, 3, members=["a"], until=20.6),
        sync("a", 20.7, 3, {"t": [0, 1]}),
    )
    row = group.rebalances[-1]
    assert causes(row) == [("leave", "b")]
    assert (row.start, row.exchange, row.seconds) == (row.causes[0].time, "of-b/20001", 0.701)
    assert row.causes[0].reason == "the consumer is being closed"
    assert (row.members_before, row.members_after) == (2, 1)
    assert group.members[1].left is not None


def test_a_member_that_falls_silent() -> None:
    """Its session is over ten seconds after its last heartbeat; then the other one has to join again."""
    group = history(
        *alone(),
        *second_comes(),
        heartbeat("b", 13, 2),
        heartbeat("a", 23, 2, g.REBALANCE_IN_PROGRESS),
        join("a", 23.1, 3, members=["a"], until=23.2),
        sync("a", 23.3, 3, {"t": [0, 1]}),
    )
    row = group.rebalances[-1]
    assert causes(row) == [("timeout", "b")]
    assert row.causes[0].time is not None
    assert 22.9 < (row.causes[0].time - group.first).total_seconds() < 23.1
    assert ((row.start - group.first).total_seconds(), row.exchange, row.seconds) == (23, "of-a/23001", 0.301)


def test_a_member_that_joins_too_late_did_not_start_it() -> None:
    group = history(
        *alone(),
        *second_comes(),
        heartbeat("b", 20, 2),
        join("c", 21, 3, request_member_id="", until=50),
        join("a", 21.5, 3, members=["a", "c"], until=50),
        sync("a", 50.1, 3, {"t": [0]}),
        sync("c", 50.1, 3, {"t": [1]}),
    )
    assert causes(group.rebalances[-1]) == [("join", "c"), ("timeout", "b")]


def test_a_static_member_that_comes_back_in_time_disturbs_nobody() -> None:
    """KIP-345: it is given its old assignment, in the generation that there is."""
    start = [
        join("a", 0, 1, members=[("a", "static-a")], request_member_id="", instance="static-a", until=3),
        sync("a", 3, 1, {"t": [0, 1]}),
        join(
            "a", 9, 1, members=[("a-2", "static-a")], request_member_id="", instance="static-a", member="a-2"
        ),
        sync("a", 9.1, 1, {"t": [0, 1]}, member="a-2", instance="static-a"),
    ]
    group = history(*start)
    (row,) = group.rebalances
    assert row.seconds == 3.001
    assert [member.member_id for member in group.members] == ["a", "a-2"]


def test_a_static_member_that_comes_back_with_other_wishes() -> None:
    group = history(
        join("a", 0, 1, members=[("a", "static-a")], request_member_id="", instance="static-a", until=3),
        sync("a", 3, 1, {"t": [0, 1]}),
        join(
            "a",
            9,
            2,
            members=[("a-2", "static-a")],
            request_member_id="",
            instance="static-a",
            member="a-2",
            until=9.5,
        ),
        sync("a", 9.6, 2, {"t": [0, 1]}, member="a-2", instance="static-a"),
    )
    assert started_by(group) == [[("first", "a")], [("return", "a")]]


def test_the_leader_joins_again_because_topics_changed() -> None:
    group = history(*alone(), *second_comes(), *both(20, 3, reason="cached metadata has changed"))
    assert causes(group.rebalances[-1]) == [("metadata", "a")]
    assert group.rebalances[-1].causes[0].reason == "cached metadata has changed"


def test_a_follower_joins_again() -> None:
    again = [
        join("b", 20, 3, until=21, reason="rebalance enforced by user"),
        join("a", 20.5, 3, members=["a", "b"], until=21),
    ]
    group = history(*alone(), *second_comes(), *again)
    row = group.rebalances[-1]
    assert causes(row) == [("rejoin", "b")]
    assert row.causes[0].reason == "rebalance enforced by user"
    assert (row.end, row.seconds) == (None, None)


def test_a_member_that_subscribes_to_other_topics() -> None:
    group = history(*alone(), *second_comes(), *both(20, 3, topics=["t", "u"]))
    assert causes(group.rebalances[-1]) == [("subscription", "a")]


def test_another_assignor() -> None:
    group = history(*alone(), *second_comes(), *both(20, 3, protocol="roundrobin"))
    assert causes(group.rebalances[-1]) == [("protocol", "a")]
    assert group.protocols == ["range", "roundrobin"]


def cooperative(protocol: str) -> GroupHistory:
    """A second member comes; the first gives up what it is to have, and joins again so that it gets it."""
    return history(
        join("a", 0, 1, members=["a"], request_member_id="", until=3, protocol=protocol),
        sync("a", 3, 1, {"t": [0, 1]}),
        join("b", 10, 2, request_member_id="", until=11, protocol=protocol),
        join("a", 10.5, 2, members=["a", "b"], until=11, protocol=protocol),
        sync("a", 11.1, 2, {"t": [0]}),
        sync("b", 11.1, 2, {}),
        join("a", 11.2, 3, members=["a", "b"], until=12, protocol=protocol),
        join("b", 11.6, 3, until=12, protocol=protocol),
        sync("a", 12.1, 3, {"t": [0]}),
        sync("b", 12.1, 3, {"t": [1]}),
    )


def test_a_cooperative_rebalance_has_two_halves() -> None:
    assert started_by(cooperative("cooperative-sticky"))[1:] == [[("join", "b")], [("revocation", "a")]]
    assert started_by(cooperative("stream"))[2] == [("revocation", "a")]


def test_an_eager_one_has_not() -> None:
    assert started_by(cooperative("range"))[2] == [("metadata", "a")]


def test_a_group_that_was_empty_begins_again() -> None:
    group = history(*alone(), leave("a", 8), join("b", 20, 2, request_member_id="", members=["b"], until=23))
    assert started_by(group) == [[("first", "a")], [("first", "b")]]
    assert group.rebalances[1].members_before == 0


def test_a_capture_that_begins_in_the_middle() -> None:
    group = history(heartbeat("a", 0, 6, g.REBALANCE_IN_PROGRESS), *both(1, 7))
    (row,) = group.rebalances
    assert causes(row) == [("unknown", None)]
    assert (row.generation_before, row.generation_after) == (6, 7)
    assert (row.members_before, row.members_after) == (None, 2)
    group = history(join("c", 0, 7, request_member_id="", until=2), *both(1, 7))
    assert causes(group.rebalances[0])[0] == ("join", "c")


def test_a_member_seen_before_was_there_before() -> None:
    group = history(heartbeat("a", 0, 6), join("b", 20, 7, request_member_id="", members=["b"], until=25))
    assert started_by(group) == [[("join", "b")]]
    assert group.rebalances[0].members_before is None


def test_a_group_that_was_deleted_and_recreated() -> None:
    """Its generations begin anew; what comes later is not taken for an answer that comes late."""
    group = history(
        join("a", 0, 1, members=["a"], request_member_id="", until=3),
        sync("a", 3.1, 1, {"t": [0]}),
        leave("a", 5),
        join("b", 60, 1, members=["b"], request_member_id="", until=63),
        sync("b", 63.1, 1, {"t": [0]}),
    )
    assert started_by(group) == [[("first", "a")], [("first", "b")]]
    assert [row.seconds for row in group.rebalances] == [3.101, 3.101]


def test_followers_alone_are_seen() -> None:
    """The leader's connection was not captured: nobody is said to be gone, nobody new who is not."""
    group = history(
        join("b", 0, 4, until=1),
        join("c", 0.1, 4, until=1),
        join("b", 20, 5, until=21),
        sync("b", 21.1, 5, {"t": [0]}),
    )
    assert started_by(group) == [[("unknown", None)], [("rejoin", "b")]]
    assert [row.members_after for row in group.rebalances] == [2, 1]


def test_one_that_is_cut_short_by_the_next() -> None:
    """As Kafka 0.9 does, which waits for nobody: the SyncGroup that waits is refused."""
    group = history(
        join("a", 0, 1, members=["a"], request_member_id=""),
        sync("a", 0.1, 1, error=g.REBALANCE_IN_PROGRESS),
        join("b", 2, 2, request_member_id="", until=2.5),
        join("a", 2.1, 2, members=["a", "b"], until=2.5),
        sync("a", 2.6, 2, {"t": [0]}),
        sync("b", 2.6, 2, {"t": [1]}),
    )
    assert [row.seconds for row in group.rebalances] == [None, 0.601]
    assert group.errors == {}


def test_who_never_was_answered_counts_as_a_join() -> None:
    group = history(join("z", 0, 0, request_member_id="", answered=False), *alone(0.5))
    assert group.rebalances[0].joins == 3
    assert [member.client for member in group.members] == ["a"]


def test_an_answer_that_comes_late_belongs_to_its_own_generation() -> None:
    group = history(
        *alone(),
        join(
            "b", 10, 2, request_member_id="", until=12.5
        ),  # the capture saw it after the answers of generation 3
        join("a", 10.5, 2, members=["a", "b"], until=11),
        join("a", 11.5, 3, members=["a", "b"], until=12),
    )
    assert [row.generation_after for row in group.rebalances] == [1, 2, 3]


def test_a_rebalance_that_another_connection_started() -> None:
    """Only a rejected Heartbeat shows it, so the leader's JoinGroup is not the cause."""
    group = history(*alone(), *second_comes(), heartbeat("a", 19.9, 2, g.REBALANCE_IN_PROGRESS), *both(20, 3))
    row = group.rebalances[-1]
    assert causes(row) == [("unknown", None)]
    assert (row.exchange, row.seconds) == ("of-a/19901", 1.301)


def test_the_leave_request_of_an_uncaptured_generation_starts_no_later_one() -> None:
    group = history(*alone(), *second_comes(), leave("b", 20), join("a", 60, 4, members=["a"], until=61))
    row = group.rebalances[-1]
    assert causes(row) == [("leave", "b")]
    assert (row.generation_before, row.generation_after, row.exchange) == (2, 4, "of-a/60001")


def test_a_heartbeat_that_waited_behind_a_sync_request() -> None:
    """It was sent before the generation became stable: only its response is a sign."""
    late = heartbeat("a", 11.05, 2, g.REBALANCE_IN_PROGRESS)
    late.completed_ns += 10 * g.SECOND_NS
    rejoin = [join("a", 21.1, 3, members=["a"], until=21.2), sync("a", 21.3, 3, {"t": [0, 1]})]
    row = history(*alone(), *second_comes(), late, *rejoin).rebalances[-1]
    assert causes(row) == [("timeout", "b")]
    assert (row.exchange, row.seconds) == ("of-a/11051", 0.25)


def test_a_heartbeat_before_the_assignments_is_no_sign() -> None:
    """Older brokers reject it, although the rebalance to its generation is the one that goes on."""
    early = heartbeat("b", 11.05, 2, g.REBALANCE_IN_PROGRESS)
    group = history(*alone(), *second_comes(), early, *both(20, 3, topics=["t", "u"]))
    assert causes(group.rebalances[-1]) == [("subscription", "a")]
    assert group.rebalances[-1].seconds == 1.201


def test_a_new_member_is_the_first_sign_even_if_a_heartbeat_was_sent_before() -> None:
    slow = heartbeat("a", 9.9, 1, g.REBALANCE_IN_PROGRESS)
    slow.completed_ns += g.SECOND_NS // 2
    row = history(*alone(), slow, *second_comes()).rebalances[-1]
    assert causes(row) == [("join", "b")]
    assert row.seconds == 1.101


def test_a_member_that_commits_but_does_not_rejoin_is_gone() -> None:
    """Brokers accept commits until the members of the new generation are known."""
    group = history(
        *alone(),
        *second_comes(),
        join("c", 20, 3, request_member_id="", until=40),
        g.commit("b", 20.5, {0: 7}),
        join("a", 20.6, 3, members=["a", "c"], until=40),
        sync("a", 40.1, 3, {"t": [0]}),
        sync("c", 40.1, 3, {"t": [1]}),
    )
    assert (group.state, group.present) == ("stable", 2)
    assert group.rebalances[-1].members_after == 2


def test_one_that_not_all_members_see_the_end_of_has_no_duration() -> None:
    """A member joined, but died before it got its assignment."""
    group = history(
        join("a", 0, 1, members=["a", "b"], request_member_id="", until=1),
        join("b", 0.5, 1, request_member_id="", until=1),
        sync("a", 1.1, 1, {"t": [0]}),
    )
    assert [row.seconds for row in group.rebalances] == [None]
    assert group.state == "rebalancing"
