from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kdissect.stats.facts import Facts
from kdissect.stats.findings.consumers import PollTimeout, RebalanceStorm
from kdissect.stats.groups import histories
from tests.findings import findings_of
from tests.groups import counted, heartbeat, join, leave, sync

if TYPE_CHECKING:
    from kdissect.model import Exchange


def restless(times: int, every: float) -> list[Facts]:
    """A member that stays, and one that comes and leaves so many times."""
    facts_of: list[Exchange] = [join("stays", 0, 1, members=["stays"], request_member_id="", until=1)]
    facts_of.append(sync("stays", 1, 1, {"t": [0, 1]}))
    for number in range(times):
        at, generation = 10 + number * every, 2 + 2 * number
        name = f"comes-{number}"
        facts_of += [
            join(name, at, generation, request_member_id="", until=at + 0.3),
            join("stays", at + 0.1, generation, members=["stays", name], until=at + 0.3),
            sync("stays", at + 0.4, generation, {"t": [0]}),
            sync(name, at + 0.4, generation, {"t": [1]}),
            leave(name, at + 1),
            heartbeat("stays", at + 1.1, generation, error=27),
            join("stays", at + 1.2, generation + 1, members=["stays"], until=at + 1.3),
            sync("stays", at + 1.4, generation + 1, {"t": [0, 1]}),
        ]
    return [Facts(each) for each in facts_of]


def test_a_member_that_comes_and_leaves() -> None:
    (row,) = findings_of(RebalanceStorm, restless(3, 5))
    assert (row.severity, row.subject, row.count) == ("warning", "group g", 4)
    assert row.message == (
        "4 rebalances within 9 s (2 leaves, 2 joins); "
        "triggered by clients comes-1 (2 times), comes-0 (1 time), comes-2 (1 time)"
    )
    assert len(row.evidence) == 4


def test_many_that_come_are_not_all_named() -> None:
    (row,) = findings_of(RebalanceStorm, restless(5, 3))
    assert row.message.endswith("comes-3 (2 times) and 2 more")


def test_members_that_come_now_and_then() -> None:
    assert findings_of(RebalanceStorm, restless(1, 5)) == []
    assert findings_of(RebalanceStorm, restless(6, 300)) == []


def starts_and_stops(members: int) -> list[Facts]:
    """Members that join one after the other, and later leave one after the other."""
    names = [f"m{number}" for number in range(members)]
    exchanges: list[Exchange] = []
    for number, name in enumerate(names):
        at, present = 1 + 2 * number, names[: number + 1]
        exchanges += [
            join(
                each,
                at + 0.1 * (each != name),
                number + 1,
                members=present if each == names[0] else (),
                request_member_id="" if each == name else None,
                until=at + 0.5,
            )
            for each in present
        ]
        exchanges += [sync(each, at + 0.6, number + 1, {"t": []}) for each in present]
    for number in range(members - 1):
        at, generation, present = 30 + 2 * number, members + number + 1, names[: members - number - 1]
        exchanges.append(leave(names[members - number - 1], at))
        exchanges += [heartbeat(each, at + 0.1, generation - 1, error=27) for each in present]
        exchanges += [
            join(each, at + 0.2, generation, members=present if each == names[0] else (), until=at + 0.5)
            for each in present
        ]
        exchanges += [sync(each, at + 0.6, generation, {"t": []}) for each in present]
    return [Facts(each) for each in exchanges]


def test_members_that_start_and_stop_one_after_the_other() -> None:
    started = starts_and_stops(8)
    assert findings_of(RebalanceStorm, started) == []
    group = histories(counted(each.exchange for each in started))[0]
    assert Counter(row.causes[0].cause for row in group.rebalances) == {"first": 1, "join": 7, "leave": 7}


def returning(names: list[str], every: float) -> list[Facts]:
    """Clients, each alone in the group for a second."""
    facts_of: list[Exchange] = []
    for number, name in enumerate(names):
        at, generation = 1 + number * every, 1 + 2 * number
        facts_of += [
            join(name, at, generation, members=[name], request_member_id="", until=at + 0.1),
            sync(name, at + 0.2, generation, {"t": [0, 1]}),
            leave(name, at + 1),
        ]
    return [Facts(each) for each in facts_of]


def test_members_that_return_to_an_empty_group() -> None:
    (row,) = findings_of(RebalanceStorm, returning(["a"] * 6, 5))
    assert row.message == (
        "5 rebalances within 20 s (5 first joins); 5 of an empty group; triggered by client a (5 times)"
    )


def test_restarts_now_and_then_and_clients_that_take_turns() -> None:
    assert findings_of(RebalanceStorm, returning(["a"] * 4, 5)) == []
    assert findings_of(RebalanceStorm, returning(["a"] * 9, 30)) == []
    assert findings_of(RebalanceStorm, returning(list("abcdefgh"), 5)) == []


def test_the_reason_that_members_give() -> None:
    facts = restless(3, 5)
    for each in facts:
        if each.api == "LeaveGroup":
            each.exchange.request["members"][0]["reason"] = "closed"  # type: ignore[index]
    (row,) = findings_of(RebalanceStorm, facts)
    assert row.message.endswith('; reason: "closed" (2 times)')


def test_a_member_whose_poll_takes_too_long() -> None:
    reason = "consumer poll timeout has expired."
    left = [
        Facts(leave("slow", 5, reason)),
        Facts(leave("slow", 9, reason)),
        Facts(leave("other", 9, "closed")),
    ]
    (row,) = findings_of(PollTimeout, left)
    assert (row.subject, row.count) == ("group g, client slow at 10.0.0.4", 2)
    assert row.message == "left the group 2 times: it did not call poll() within max.poll.interval.ms"
