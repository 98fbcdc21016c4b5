"""Brokers that serve nobody for a time, packet by packet; and clients that are cut off themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.frames import heartbeat_answers, heartbeats, request, response
from tests.segments import ACK, RST, SYN
from tests.stats.findings.test_troubles import BROKER as BROKER_ADDRESS
from tests.stats.findings.test_troubles import ELSEWHERE, findings, refused, served, talk, unanswered

if TYPE_CHECKING:
    from kdissect.stats.document import FindingRow
    from tests.segments import Talk

RULE = "broker-unreachable"
FIND_COORDINATOR, NOT_AVAILABLE = 10, 15


def killed(
    place: int, at_s: float, client: str = "10.0.0.1", broker: tuple[str, int] = BROKER_ADDRESS
) -> Talk:
    """A connection that the broker resets with a request outstanding, a second after it began."""
    one = talk(place, broker, at_s, client).handshake()
    one.client_sends(b"".join(heartbeats(1))).broker_sends(heartbeat_answers(1)[0]).waits(1)
    return one.client_sends(heartbeats(1, first=2)[0]).put(1, RST | ACK)


def outages(*talks: Talk) -> list[FindingRow]:
    return [row for row in findings(*talks) if row.rule == RULE]


def test_a_broker_that_restarts_is_one_cause() -> None:
    clients = "10.0.0.1", "10.0.0.5", "10.0.0.6"
    rows = findings(
        *(killed(place, 10, client) for place, client in enumerate(clients)),
        *(refused(100 + 10 * place + number, 12 + number, client=client)
          for place, client in enumerate(clients) for number in range(3)),
        *(served(50 + place, at_s=20, client=client) for place, client in enumerate(clients)),
    )  # fmt: skip
    assert [(row.rule, row.explained_by) for row in rows] == [
        *((RULE, None), ("broker-resets", RULE), ("connection-refused", RULE))
    ]
    gone, resets, refusals = rows
    assert gone.subject == "broker 10.0.0.2:9092"
    assert gone.message == "served nobody: 3 connections ended, 9 attempts to connect refused; it came back"
    assert (gone.severity, gone.first.second, gone.last.second) == ("warning", 31, 40)  # of 22:13
    assert (gone.scope.hosts.count, gone.impact.connections, len(resets.parts), len(refusals.parts)) == (
        3,
        9,
        3,
        3,
    )


def test_a_broker_that_does_not_come_back_is_an_error() -> None:
    (row,) = outages(killed(0, 0), *(refused(1 + number, 3 + number) for number in range(3)))
    assert row.severity == "error"
    assert row.message.endswith("; it did not come back in the capture")
    (row,) = outages(
        killed(0, 0),
        *(refused(1 + number, 3 + number) for number in range(3)),
        served(70, broker=ELSEWHERE, at_s=90),
    )
    assert row.message.endswith("; nobody tried again")


def test_a_single_refusal_is_an_outage_only_after_the_broker_ended_a_connection() -> None:
    assert outages(served(), refused(1, 5)) == []
    assert len(outages(killed(0, 0), refused(1, 5))) == 1


def test_a_broker_that_serves_others_meanwhile_is_there() -> None:
    other = talk(70, client="10.0.0.5").handshake()
    for number in range(20):
        other.client_sends(heartbeats(1, first=number)[0]).broker_sends(heartbeat_answers(1, first=number)[0])
        other.waits(1)
    refusals = [refused(1 + number, 5 + number) for number in range(5)]
    assert len(outages(served(), *refusals)) == 1
    assert outages(served(), other.finish(), *refusals) == []


def test_who_was_never_served_is_no_witness() -> None:
    assert outages(served(), *(refused(1 + number, 5, client="10.0.0.66") for number in range(5))) == []


def test_attempts_without_an_answer_are_an_outage_only_if_their_clients_reach_others() -> None:
    silent = [unanswered(1 + number, 5) for number in range(3)]
    assert outages(served(), *silent) == [], "the client may have been cut off"
    elsewhere = [served(20 + second, broker=ELSEWHERE, at_s=second) for second in range(12)]
    (row,) = outages(served(), *elsewhere, *silent)
    assert (
        row.message == "served nobody: 3 attempts to connect unanswered; it did not come back in the capture"
    )


def test_a_broker_that_restarts_again_and_again_is_one_finding() -> None:
    (row,) = outages(
        *(each for start in (0, 60, 120) for each in (killed(start, start), refused(start + 1, start + 5))),
        served(200, at_s=180),
    )
    assert row.message.startswith(
        "served nobody 3 times, 2.9 minutes in all: 3 connections ended, 3 attempts"
    )


def test_how_long_a_broker_was_gone_is_not_known_if_nobody_tried() -> None:
    attempts = [refused(1 + number, 5 + number) for number in range(3)]
    (soon,) = outages(served(), *attempts, served(50, at_s=30))
    (late,) = outages(served(), *attempts, served(50, at_s=300))
    assert (soon.message, soon.severity) == (late.message, late.severity)
    assert (soon.last - soon.first).total_seconds() == 25
    assert (late.last - late.first).total_seconds() == 2


def left_waiting(place: int, at_s: float, client: str) -> Talk:
    """A client whose requests the host still acknowledged; it gives up after its time-out."""
    one = talk(place, at_s=at_s, client=client).handshake()
    one.client_sends(heartbeats(1)[0]).broker_sends(heartbeat_answers(1)[0]).client_acks().waits(1)
    one.client_sends(heartbeats(1, first=2)[0]).broker_acks().waits(40)
    return one.put(0, RST | ACK)


def tries(place: int, at_s: float, client: str) -> Talk:
    """An attempt to connect that nobody answers."""
    one = talk(place, at_s=at_s, client=client)
    for _ in range(3):
        one.put(0, SYN, sequence=1000, acknowledgment=0).waits(1)
    return one


def searches(place: int, at_s: float, client: str, times: int) -> Talk:
    """A client that asks another broker for the coordinator, which is on the host that is gone."""
    one = talk(place, ELSEWHERE, at_s, client).handshake()
    for number in range(1, times + 1):
        body = {"key": "billing", "key_type": 0}
        one.client_sends(request(FIND_COORDINATOR, 2, body, correlation_id=number))
        one.broker_sends(
            response(FIND_COORDINATOR, 2, {"error_code": NOT_AVAILABLE, "node_id": -1}, correlation_id=number)
        ).waits(0.5)
    return one


def test_a_host_that_is_gone_is_one_row_and_its_consequences() -> None:
    clients = "10.0.0.1", "10.0.0.5", "10.0.0.6"
    rows = findings(
        *(left_waiting(place, 10, client) for place, client in enumerate(clients)),
        *(tries(100 + 20 * place + number, 12 + 4 * number, client)
          for place, client in enumerate(clients) for number in range(8)),
        *(searches(300 + place, 11, client, 80) for place, client in enumerate(clients)),
    )  # fmt: skip
    assert [(row.rule, row.explained_by) for row in rows] == [
        (RULE, None),
        ("coordinator-unavailable", RULE),  # the storm
        ("broker-silent", RULE),
        ("request-timeouts", RULE),
        ("connect-timeout", RULE),
    ]
    gone, storm, _, time_outs, _ = rows
    assert (gone.severity, gone.scope.hosts.count, gone.impact.connections) == ("error", 3, 24)
    assert (storm.count, time_outs.count) == (240, 3)


def restart(place: int, at_s: float, broker: tuple[str, int], client: str = "10.0.0.1") -> list[Talk]:
    """A broker ends its connection, refuses two attempts, and serves the client again 5 seconds later."""
    attempts = [refused(place + 1 + number, at_s + 2 + number, broker, client) for number in range(2)]
    again = served(place + 8, broker=broker, at_s=at_s + 6, client=client)
    return [killed(place, at_s, client, broker), *attempts, again]


def test_brokers_that_restart_one_after_the_other_are_one_finding() -> None:
    first, second = BROKER_ADDRESS, ELSEWHERE
    (row,) = outages(*restart(0, 0, first), *restart(20, 60, second))
    assert row.subject == "2 brokers: 10.0.0.2:9092 and 10.0.0.9:9092"
    assert row.message == (
        "served nobody one after the other, 9.99s in all: "
        "2 connections ended, 4 attempts to connect refused; all came back"
    )
    assert row.severity == "warning"
    for others in (
        restart(20, 3, second),  # at the same time
        restart(20, 900, second),  # much later
        restart(20, 60, second, client="10.0.0.7"),
        restart(20, 60, second)[:-1],  # it does not come back
    ):
        assert len(outages(*restart(0, 0, first), *others)) == 2
