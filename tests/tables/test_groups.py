from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.tables.groups import GROUPS, rows
from kdissect.tables.values import timestamp
from tests.exchange_factory import exchange
from tests.groups import join

if TYPE_CHECKING:
    from kdissect.model import Exchange


def shown(example: Exchange) -> list[dict[str, Any]]:
    return [{column.name: column.get(event) for column in GROUPS.columns} for event in rows(example)]


def test_a_join() -> None:
    example = join("c1", 1.0, 3, members=["c1", "c2"], topics=["b", "a"])
    (row,) = shown(example)
    assert (row["event"], row["kind"], row["group_id"], row["generation"]) == ("join", "classic", "g", 3)
    assert (row["leads"], row["members"], row["subscribed"]) == (True, ["c1", "c2"], ["a", "b"])
    assert timestamp(row["time"]) == timestamp(example.time_ns)
    assert row["completed"] == example.completed_ns
    assert row["assignment"] is None


def test_an_assignment() -> None:
    assignment = {"topic_partitions": [{"topic_id": "5RzwtLHbTWqVAuyWxeBeRQ", "partitions": [1, 0]}]}
    example = exchange(
        "ConsumerGroupHeartbeat",
        0,
        {"group_id": "g", "member_id": "m", "member_epoch": 0},
        {"error_code": 0, "member_epoch": 1, "assignment": assignment},
        topic_ids={"5RzwtLHbTWqVAuyWxeBeRQ": "orders"},
    )
    (row,) = shown(example)
    assert row["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
    assert (row["kind"], row["event"], row["is_new"]) == ("consumer", "join", True)


def test_exchanges_without_group_events() -> None:
    assert shown(exchange("Heartbeat", 4, {"group_id": "g", "member_id": "m"}, {"error_code": 0})) == []
