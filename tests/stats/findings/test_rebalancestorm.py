from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.facts import Facts
from kdissect.stats.findings.consumers import RebalanceStorm
from tests.findings import findings_of
from tests.groups import heartbeat, join, leave, sync

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
    assert (row.severity, row.subject, row.count) == ("warning", "group g", 6)
    assert row.message == (
        "6 rebalances within 11 s (3 joins, 3 leaves); "
        "triggered by clients comes-0 (2 times), comes-1 (2 times), comes-2 (2 times)"
    )
    assert len(row.evidence) == 5


def test_many_that_come_are_not_all_named() -> None:
    (row,) = findings_of(RebalanceStorm, restless(4, 3))
    assert row.message.endswith("comes-2 (2 times) and 1 more")


def test_members_that_come_now_and_then() -> None:
    assert findings_of(RebalanceStorm, restless(1, 5)) == []
    assert findings_of(RebalanceStorm, restless(6, 300)) == []
