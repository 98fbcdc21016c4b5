"""Elections, brokers that may not join or are not heard, and fetch sessions, exchange by exchange."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdissect import dissect, open_capture, summarize
from kdissect.limits import SECOND_NS
from kdissect.stats.findings.causes import rows
from kdissect.stats.findings.cluster import (
    BrokerFenced,
    BrokerRejected,
    ElectionsLost,
    QuorumUnreachable,
    SessionChurn,
    SessionsEvicted,
)
from tests.exchange_factory import connection
from tests.findings import fed, findings_of
from tests.producers import facts_of

if TYPE_CHECKING:
    from kdissect.stats.facts import Facts

DUPLICATE, NOT_CONTROLLER, NO_SESSION, OTHER_CLUSTER = 101, 41, 70, 104
NOT_AUTHORIZED, INVALID_REQUEST = 31, 42


def vote(after_s: float, candidate: int, *, granted: bool = False) -> Facts:
    request = {"partition_index": 0, "replica_epoch": 4, "replica_id": candidate}
    given = {
        "partition_index": 0,
        "error_code": 0,
        "leader_id": 1,
        "leader_epoch": 4,
        "vote_granted": granted,
    }

    def of(partition: dict[str, object]) -> dict[str, object]:
        return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}], "error_code": 0}

    return facts_of("Vote", 2, after_s, of(request), of(given), f"raft-client-{candidate}")


def test_votes_that_are_refused_again_and_again() -> None:
    (row,) = findings_of(ElectionsLost, [vote(number, 2 + number % 2) for number in range(40)])
    assert (row.severity, row.subject) == ("warning", "topic __cluster_metadata")
    assert row.message == "40 votes refused to nodes 2, 3"
    slow = [vote(15 * number, 2) for number in range(4)]  # as when the other controller hears the leader
    assert [row.count for row in findings_of(ElectionsLost, slow)] == [4]


def test_elections_that_somebody_wins() -> None:
    won = [vote(number, 2, granted=True) for number in range(40)]
    refused = [vote(60 * number, 3) for number in range(40)]
    soon_over = [vote(number / 10, 3) for number in range(60)]
    assert findings_of(ElectionsLost, [*won, *refused]) == findings_of(ElectionsLost, soon_over) == []


def test_votes_without_an_answer() -> None:
    bodies = ({"topics": None}, {"topics": [{"topic_name": None, "partitions": None}]})
    cut = [{"topics": [{"partitions": [{}, {"partition_index": 0}, {"vote_granted": None}]}]}]
    facts = [
        facts_of("Vote", 2, number, request, response, "raft-client-2")
        for number, (request, response) in enumerate(itertools.product((*bodies, *cut), repeat=2))
    ]
    assert findings_of(ElectionsLost, facts * 30) == []


def registration(after_s: float, error: int) -> Facts:
    response = {"throttle_time_ms": 0, "error_code": error, "broker_epoch": -1}
    return facts_of("BrokerRegistration", 4, after_s, {"broker_id": 3}, response, "3")


def test_a_broker_that_may_not_join() -> None:
    (row,) = findings_of(BrokerRejected, [registration(5 * number, DUPLICATE) for number in range(6)])
    assert (row.severity, row.subject, row.impact.requests) == ("warning", 'client "3" at 10.0.0.1', 6)
    assert row.message == "6 requests to join rejected: DUPLICATE_BROKER_REGISTRATION"


def test_a_broker_that_returns_after_a_crash_or_finds_the_controller() -> None:
    early = [registration(2 * number, DUPLICATE) for number in range(5)]
    lost = [registration(5 * number, NOT_CONTROLLER) for number in range(5)]
    assert findings_of(BrokerRejected, [*early, registration(12, 0)]) == []
    assert findings_of(BrokerRejected, lost) == []
    often = [
        registration(3 * 3600 * number + 3 * second, DUPLICATE) for number in range(9) for second in (0, 3)
    ]
    assert findings_of(BrokerRejected, often) == []


def raft_fetch(after_s: float, error: int) -> Facts:
    request = {"replica_id": 3, "cluster_id": "another", "topics": []}
    return facts_of("Fetch", 12, after_s, request, {"error_code": error, "responses": []}, "raft-client-3")


def test_a_broker_of_another_cluster() -> None:
    (row,) = findings_of(BrokerRejected, [raft_fetch(number, OTHER_CLUSTER) for number in range(40)])
    assert row.message == "40 requests to join rejected: INCONSISTENT_CLUSTER_ID"
    assert findings_of(BrokerRejected, [raft_fetch(number, NO_SESSION) for number in range(40)]) == []


def heartbeat(
    after_s: float, broker: int = 3, *, error: int | None = 0, stops: bool = False, latency_s: float = 0
) -> Facts:
    """``error`` None: it gets no response."""
    request = {"broker_id": broker, "broker_epoch": 7, "want_shut_down": stops}
    response = None if error is None else {"error_code": error, "is_fenced": False}
    more = {"latency_ns": round(latency_s * SECOND_NS)} if latency_s else {}
    return facts_of("BrokerHeartbeat", 1, after_s, request, response, str(broker), **more)


def beats(*times_s: float, broker: int = 3) -> list[Facts]:
    return [heartbeat(after_s, broker) for after_s in times_s]


EVERY_2_S = [2.0 * number for number in range(20)]
STOPPED = [*EVERY_2_S[:5], *EVERY_2_S[12:]]  # from 8 to 24 s


def test_a_broker_that_sends_no_heartbeats_for_a_while() -> None:
    others = beats(*EVERY_2_S, broker=10)
    (row,) = findings_of(BrokerFenced, [*beats(*STOPPED), *others])
    assert (row.severity, row.subject) == ("warning", 'client "3" at 10.0.0.1')
    assert row.message == (
        "no heartbeat sent for 16.00s; fenced after broker.session.timeout.ms, 9 s by default"
    )
    assert (row.count, row.impact.lost_us) == (1, 16_000_000)
    assert (row.last - row.first).seconds == 16
    assert findings_of(QuorumUnreachable, [*beats(*STOPPED), *others]) == []


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (beats(*EVERY_2_S), "it goes on"),
        (beats(*EVERY_2_S[:5], *EVERY_2_S[8:]), "for a shorter time than a session"),
        (beats(*EVERY_2_S[:5]), "it is gone for good: others say so"),
        ([*beats(*STOPPED), heartbeat(9, stops=True)], "it is shut down"),
        ([*beats(*STOPPED), registration(22, 0)], "it is started again"),
    ],
    ids=["well", "short", "gone", "shut-down", "started"],
)
def test_brokers_that_are_not_fenced_while_they_run(facts: list[Facts], why: str) -> None:
    both = [*facts, *beats(*EVERY_2_S, broker=10)]
    assert findings_of(BrokerFenced, both) == findings_of(QuorumUnreachable, both) == [], why


@pytest.mark.parametrize("pause", [(8.5, 23), (8.5, 15.7)], ids=["long", "short"])
@pytest.mark.parametrize("later_s", [0, 0.7, 1.3])
def test_a_pause_of_the_capture_fences_nobody(pause: tuple[float, float], later_s: float) -> None:
    """As when the brokers' heartbeats are sent at the same time, or one after the other."""
    others = [after_s + later_s for after_s in EVERY_2_S]
    seen = [[at for at in all_of if not pause[0] < at < pause[1]] for all_of in (EVERY_2_S, others)]
    assert findings_of(BrokerFenced, [*beats(*seen[0]), *beats(*seen[1], broker=10)]) == []


@pytest.mark.parametrize("name", ["restarts", "leader-leaves"])
def test_a_pause_of_a_recording_fences_nobody(name: str) -> None:
    """Without the seconds 3 to 13: what stops and starts is another matter, but no broker pauses."""
    with open_capture(Path(f"samples/troubles/{name}.pcap.gz")) as packets:
        every = list(packets)
    begin_ns = every[0].time_ns
    seen = [each for each in every if not 3 <= (each.time_ns - begin_ns) / SECOND_NS < 13]
    findings = summarize(dissect(seen), parts=["findings"]).findings or []
    assert not {"broker-fenced", "quorum-unreachable"} & {row.rule for row in findings}


def test_an_answer_that_was_not_captured_may_have_come() -> None:
    """As at a hole of the capture, which has the response to the last heartbeat before it."""
    unclear = heartbeat(10, error=None)
    silent = [*beats(*STOPPED[:5]), unclear, *beats(*STOPPED[5:])]
    assert [row.rule for row in findings_of(QuorumUnreachable, silent)] == ["quorum-unreachable"]
    unclear.outcome = None
    assert findings_of(QuorumUnreachable, silent) == []
    assert findings_of(QuorumUnreachable, [*silent, *beats(*STOPPED, broker=10)]) == []
    others = beats(*EVERY_2_S, broker=10)
    assert len(findings_of(QuorumUnreachable, [*silent, *others])) == 1, "then there is no hole"


@pytest.mark.parametrize("error", [INVALID_REQUEST, NOT_AUTHORIZED])
def test_a_broker_whose_heartbeats_are_refused_sends_them(error: int) -> None:
    refused = [heartbeat(after_s, error=error) for after_s in EVERY_2_S[5:12]]
    both = [*beats(*STOPPED), *refused, *beats(*EVERY_2_S, broker=10)]
    assert findings_of(BrokerFenced, both) == findings_of(QuorumUnreachable, both) == []


def test_a_broker_that_must_wait_for_its_registration_was_restarted() -> None:
    both = [*beats(*STOPPED), registration(20, DUPLICATE), *beats(*EVERY_2_S, broker=10)]
    assert findings_of(BrokerFenced, both) == []


@pytest.mark.parametrize("before", [70, 700])
def test_an_outage_after_many_errors(before: int) -> None:
    """A broker finds the wrong controller again and again, and does not reach it later."""
    refused = [heartbeat(number * 20 / before, error=NOT_CONTROLLER) for number in range(before)]
    failed = [heartbeat(60 + 2 * number, error=None) for number in range(100)]
    both = [*beats(*(20 + 2 * number for number in range(20))), *beats(260), *refused, *failed]
    others = beats(*(2 * number for number in range(130)), broker=10)
    assert findings_of(BrokerFenced, [*both, *others]) == []
    (row,) = findings_of(QuorumUnreachable, both)
    assert (row.impact.requests, row.impact.lost_us) == (before + 100, 222_005_000)


@pytest.mark.parametrize("error", [None, NOT_CONTROLLER], ids=["unanswered", "no-controller"])
def test_a_broker_that_does_not_reach_the_controllers(error: int | None) -> None:
    failed = [heartbeat(after_s, error=error) for after_s in EVERY_2_S[5:12]]
    both = [*beats(*STOPPED), *failed]
    (row,) = findings_of(QuorumUnreachable, both)
    assert row.message == (
        "no heartbeat answered by 10.0.0.1:9092 for 16.00s, 7 requests failed; fenced after "
        "broker.session.timeout.ms, 9 s by default"
    )
    assert row.impact.requests == 7
    assert findings_of(BrokerFenced, [*both, *beats(*EVERY_2_S, broker=10)]) == []


def test_an_answer_that_comes_too_late() -> None:
    late = [*beats(*STOPPED[:5]), heartbeat(10, latency_s=20), *beats(31, 33, 35)]
    (row,) = findings_of(QuorumUnreachable, late)
    assert row.message.startswith("no heartbeat answered by 10.0.0.1:9092 for 22.00s, 1 request failed")


def test_a_broker_that_never_reached_them_and_one_that_just_began() -> None:
    failed = [heartbeat(after_s, error=None) for after_s in EVERY_2_S]
    assert [row.count for row in findings_of(QuorumUnreachable, failed)] == [len(failed)]
    assert findings_of(QuorumUnreachable, failed[:4]) == []
    (row,) = findings_of(QuorumUnreachable, [*failed[:8], *beats(*EVERY_2_S[8:])])
    assert row.message.startswith("no heartbeat answered by 10.0.0.1:9092 for 16.00s, 8 requests failed")
    rejected = [heartbeat(after_s, error=DUPLICATE) for after_s in EVERY_2_S]
    assert findings_of(QuorumUnreachable, rejected) == [], "it reaches them"


def fetch(
    after_s: float, client: str, error: int = NO_SESSION, *, epoch: int = 3, session: int = 0, **more: Any
) -> Facts:
    response = {"throttle_time_ms": 0, "error_code": error, "session_id": session, "responses": []}
    request = {"session_id": 7 if epoch else 0, "session_epoch": epoch, "topics": []}
    return facts_of("Fetch", 12, after_s, request, response, client, **more)


def opened(
    after_s: float, client: str, *, session: int = 9, place: int = 0, epoch: int = 0, host: str = ""
) -> Facts:
    """A Fetch that asks for a session."""
    link = connection(f"{client}-{host}-{place}", host or f"10.0.0.{len(client)}")
    return fetch(after_s, client, 0, epoch=epoch, session=session, connection=link)


def test_fetch_sessions_that_are_evicted() -> None:
    (row,) = findings_of(SessionsEvicted, [fetch(number, "reader") for number in range(5)])
    assert row.subject == "client reader at 10.0.0.6, broker 10.0.0.1:9092"
    assert row.message == "5 fetch sessions evicted while in use"
    (row,) = findings_of(SessionsEvicted, [fetch(60 * number, "reader") for number in range(10)])
    assert row.count == 10


def test_a_session_that_is_gone_once_is_none() -> None:
    restarted = [fetch(number / 10, f"reader-{number:02}") for number in range(20)]
    served = [fetch(number, "reader", error=0) for number in range(20)]
    assert (
        findings_of(SessionsEvicted, [*restarted, *served, *(fetch(20 * n, "reader") for n in range(4))])
        == []
    )


def test_a_broker_that_opens_no_session_any_more() -> None:
    """As recorded: a client loses its session once, and gets none afterward."""
    denied = [opened(number, "reader", session=0) for number in range(1, 9)]
    (row,) = findings_of(SessionsEvicted, [fetch(0, "reader"), *denied])
    assert row.message == "1 fetch session evicted while in use and 8 requests for a fetch session got none"
    (row,) = findings_of(SessionsEvicted, [opened(0, "other"), *denied])
    assert row.message == "8 requests for a fetch session got none"


def test_a_broker_without_sessions() -> None:
    assert findings_of(SessionsEvicted, [opened(number, "reader", session=0) for number in range(50)]) == []


def test_a_client_that_opens_sessions_again_and_again() -> None:
    churn = [opened(number, "job", place=number) for number in range(30)]
    (row,) = findings_of(SessionChurn, [*churn, *(opened(number, "reader") for number in range(10))])
    assert (row.severity, row.subject) == ("note", "client job at 10.0.0.3, broker 10.0.0.1:9092")
    assert row.message == "30 fetch sessions started on 30 connections, 75% of all there"
    denied = [opened(number, "reader", session=0) for number in range(30)]
    (row,) = findings_of(SessionChurn, [*churn, *denied])
    assert (row.severity, row.message.split(", ")[1]) == ("warning", "97% of all there")


def test_clients_that_open_sessions_now_and_then() -> None:
    seldom = [opened(10 * number, "job", place=number) for number in range(60)]
    few = [opened(number, "job", place=number) for number in range(19)]
    denied = [opened(number, "reader", session=0) for number in range(60)]
    for facts in (seldom, few, denied):
        assert findings_of(SessionChurn, facts) == []


def test_many_sessions_on_one_connection() -> None:
    (row,) = findings_of(SessionChurn, [opened(number, "job") for number in range(30)])
    assert row.message == "30 fetch sessions started on 1 connection, 100% of all there"


@pytest.mark.parametrize("apart_s", [0.01, 1], ids=["at-once", "one-by-one"])
def test_consumers_that_start_together_open_one_session_each(apart_s: float) -> None:
    started = [opened(place * apart_s, "job", place=place) for place in range(25)]
    used = [opened(40, "job", place=place, epoch=1) for place in range(25)]
    assert findings_of(SessionChurn, [*started, *used]) == []
    at_once = [opened(place / 100, "job", place=place) for place in range(25)]
    assert findings_of(SessionChurn, at_once) == [], "they ended, but that is all"


def test_the_share_of_hosts_that_do_the_same() -> None:
    churn = [
        opened(number, "job", place=number, host=host)
        for number in range(30)
        for host in ("10.0.0.5", "10.0.0.6")
    ]
    (row,) = rows(fed(churn, SessionChurn).rows(), {SessionChurn.name: 0})
    assert row.message == "60 fetch sessions started on 60 connections, 100% of all there"
    assert len(row.parts) == 2
