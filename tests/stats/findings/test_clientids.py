from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.findings.brokers import ClientIds
from tests.findings import findings_of
from tests.made_exchanges import connection
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def beat(after_s: float, member: str, client: str = "app") -> Facts:
    request = {"group_id": "g", "generation_id": 1, "member_id": member}
    return facts_of(
        "Heartbeat", 3, after_s, request, {"error_code": 0}, client, connection=connection(f"of-{member}")
    )


def test_members_that_share_a_client_id() -> None:
    beats = [beat(number + place / 10, f"m{place}") for number in range(5) for place in range(3)]
    (row,) = findings_of(ClientIds, beats)
    assert (row.subject, row.severity, row.count) == ("group g, client app", "note", 15)
    assert row.message == "3 members with this client id were active at the same time"


def test_members_with_client_ids_of_their_own() -> None:
    assert findings_of(ClientIds, [beat(n, f"m{n % 2}", f"app-{n % 2}") for n in range(10)]) == []


def test_a_member_that_came_back() -> None:
    assert findings_of(ClientIds, [beat(number, "m1" if number < 5 else "m2") for number in range(10)]) == []
    assert findings_of(ClientIds, [beat(1, "m1"), beat(2, "m2"), beat(3, "m3")]) == []
