from __future__ import annotations

from typing import TYPE_CHECKING

from kdissect.stats.findings.clients import ClientIds
from tests.exchange_factory import connection
from tests.findings import findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts


def beat(
    after_s: float,
    member: str,
    client: str = "app",
    library: str | None = "librdkafka",
    principal: str | None = None,
) -> Facts:
    request = {"group_id": "g", "generation_id": 1, "member_id": member}
    facts = facts_of(
        "Heartbeat", 3, after_s, request, {"error_code": 0}, client, connection=connection(f"of-{member}")
    )
    facts.exchange.client_software_name, facts.exchange.principal = library, principal
    return facts


def test_two_applications_that_share_a_client_id() -> None:
    libraries = ["librdkafka", "apache-kafka-java"]
    beats = [
        beat(number + place / 10, f"m{place}", library=libraries[place])
        for number in range(5)
        for place in (0, 1)
    ]
    (row,) = findings_of(ClientIds, beats)
    assert (row.subject, row.severity, row.count) == ("client app", "note", 10)
    assert row.message == "used by apache-kafka-java and librdkafka"


def test_two_principals_that_share_a_client_id() -> None:
    users = ["User:a", "User:b", None]
    beats = [
        beat(number + place / 10, f"m{place}", principal=users[place])
        for number in range(5)
        for place in range(3)
    ]
    (row,) = findings_of(ClientIds, beats)
    assert row.message == "used by User:a and User:b"


def test_replicas_of_one_application() -> None:
    beats = [beat(number + place / 10, f"m{place}") for number in range(5) for place in range(3)]
    beats += [beat(number, "m4", library=None) for number in range(5)]  # its handshake was not captured
    assert findings_of(ClientIds, beats) == []


def test_one_application_after_the_other() -> None:
    libraries = ["kafka-python"] * 5 + ["librdkafka"] * 5
    assert (
        findings_of(ClientIds, [beat(number, "m", library=each) for number, each in enumerate(libraries)])
        == []
    )
