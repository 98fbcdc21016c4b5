from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kdissect.kafka.internal.payloads import UNKNOWN, GroupProtocol, GroupProtocols
from kdissect.limits import Limits
from tests.exchange_factory import connection, exchange

if TYPE_CHECKING:
    from kdissect.model import Exchange


def join(
    group: str = "readers",
    offered: tuple[str, ...] = ("range", "sticky"),
    response: dict[str, Any] | None = None,
    **more: Any,
) -> Exchange:
    protocols = [{"name": name, "metadata": b""} for name in offered]
    request = {"group_id": group, "protocol_type": "consumer", "protocols": protocols}
    return exchange("JoinGroup", 5, request, response, **more)


def test_a_join_shows_the_protocol_of_the_group() -> None:
    protocols = GroupProtocols()
    assert protocols.learn(join(response={"protocol_name": "sticky"})) == GroupProtocol("consumer", "sticky")
    sync = exchange("SyncGroup", 3, {"group_id": "readers"}, {"assignment": b""})
    assert protocols.learn(sync) == GroupProtocol("consumer", "sticky")
    assert protocols.lookup(("c0ffee", 0), "readers") == GroupProtocol("consumer", "sticky")


def test_the_last_join_counts() -> None:
    protocols = GroupProtocols()
    protocols.learn(join(response={"protocol_name": "range"}))
    protocols.learn(join(response={"protocol_name": "sticky"}))
    assert protocols.lookup(("c0ffee", 0), "readers").name == "sticky"


def test_without_an_answer_the_only_protocol_offered_is_the_one() -> None:
    assert GroupProtocols().learn(join(offered=("range",))) == GroupProtocol("consumer", "range")
    assert GroupProtocols().learn(join()) == GroupProtocol("consumer", None)
    refused = join(offered=("range",), response={"protocol_name": "", "error_code": 79})
    assert GroupProtocols().learn(refused) == GroupProtocol("consumer", "range")


def test_a_newer_response_has_the_type() -> None:
    orphan = exchange("JoinGroup", 7, None, {"protocol_type": "connect", "protocol_name": "sessioned"})
    assert GroupProtocols().learn(orphan) == GroupProtocol("connect", "sessioned")


def test_connections_and_groups_are_kept_apart() -> None:
    protocols = GroupProtocols()
    protocols.learn(join(offered=("range",), connection=connection("a")))
    assert protocols.lookup(("b", 0), "readers") == UNKNOWN
    assert protocols.lookup(("a", 0), "others") == UNKNOWN
    assert protocols.lookup(("a", 0), None) == UNKNOWN


def test_the_group_that_joined_longest_ago_is_forgotten() -> None:
    protocols = GroupProtocols(Limits(group_protocols=2))
    for group in ("one", "two", "one", "three"):
        protocols.learn(join(group))
    assert [protocols.lookup(("c0ffee", 0), group).type for group in ("one", "two", "three")] == [
        "consumer",
        None,
        "consumer",
    ]


def test_an_exchange_of_which_nothing_was_decoded_shows_nothing() -> None:
    assert GroupProtocols().learn(exchange("JoinGroup", 5, {}, {})) == UNKNOWN
    assert GroupProtocols().learn(exchange("Metadata", 9)) == UNKNOWN
