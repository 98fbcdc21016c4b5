"""Exchanges lost in gaps: each is counted once, and noted on those captured in part."""

from __future__ import annotations

from collections import Counter

from kdissect.exchanges.kafka_connection import INCOMPLETE, LOST, GapLosses
from kdissect.exchanges.pairing import Pairing
from kdissect.limits import DEFAULT
from kdissect.model import ANSWERED, ORPHAN, UNANSWERED, ConnectionInfo, Endpoint, Exchange
from tests.frames import HEARTBEAT, frame, request_payload, response_payload


class Line:
    """A connection: what is said on it is paired and judged."""

    def __init__(self) -> None:
        info = ConnectionInfo("1", Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))
        self.counts: Counter[str] = Counter()
        self.pairing = Pairing(info, DEFAULT)
        self.losses = GapLosses(self.pairing, self.counts)
        self.completed: list[Exchange] = []

    def sends(self, *correlation_ids: int) -> None:
        for correlation_id in correlation_ids:
            self._judge(
                self.pairing.request(frame(request_payload(HEARTBEAT, 4, correlation_id=correlation_id)))
            )
            if self.losses.awaits_request:
                self.losses.request(correlation_id)

    def answers(self, *correlation_ids: int) -> None:
        for correlation_id in correlation_ids:
            self._judge(
                self.pairing.response(frame(response_payload(HEARTBEAT, 4, correlation_id=correlation_id)))
            )

    def ends(self) -> None:
        self._judge(self.pairing.complete_unanswered(0))

    def _judge(self, exchanges: list[Exchange]) -> None:
        for exchange in exchanges:
            self.losses.finish(exchange)
            self.completed.append(exchange)

    @property
    def damaged(self) -> list[tuple[int | None, str, str]]:
        return [
            (one.correlation_id, one.kind, anomaly.where)
            for one in self.completed
            for anomaly in one.anomalies
            if anomaly.kind == "gap"
        ]


def test_responses_in_a_gap_are_those_that_a_later_one_passes_over() -> None:
    line = Line()
    line.sends(1, 2, 3)
    line.losses.in_responses()
    line.sends(4)
    line.answers(3, 4)
    assert line.damaged == [(1, UNANSWERED, "response"), (2, UNANSWERED, "response")]
    assert line.counts[LOST] == 2
    assert [one.kind for one in line.completed[2:]] == [ANSWERED, ANSWERED]


def test_responses_that_never_come_were_perhaps_in_the_gap() -> None:
    line = Line()
    line.sends(1)
    line.losses.in_responses()
    line.sends(2)
    line.ends()
    assert line.damaged == [(1, UNANSWERED, "response")]


def test_what_is_pending_when_the_capture_ends_is_not_lost() -> None:
    line = Line()
    line.sends(1, 2)
    line.losses.in_responses()
    line.answers(2)  # overtakes 1, whose response was in the gap
    line.sends(3)
    line.losses.in_responses()
    line.losses.capture_ended(1)
    line.ends()
    assert line.damaged == [(1, UNANSWERED, "response")]
    assert line.counts[LOST] == 1


def test_requests_in_a_gap_are_those_of_the_responses_without_one() -> None:
    line = Line()
    line.answers(0)  # to a request before the capture
    line.sends(1)
    line.losses.in_requests()
    line.answers(1, 2)
    line.sends(4)
    line.answers(3, 4)
    assert line.damaged == [(2, ORPHAN, "request"), (3, ORPHAN, "request")]
    assert line.counts[LOST] == 2


def test_correlation_ids_show_what_was_lost_in_both_directions() -> None:
    line = Line()
    line.sends(1, 2, 3)
    line.answers(1, 2, 3)
    line.losses.in_requests()
    line.answers(5)
    line.sends(8)  # 4 to 7 were lost, and one of them is counted
    line.answers(7, 8)
    line.losses.in_requests()
    line.losses.in_responses()
    line.sends(10)
    line.answers(10)
    assert line.damaged == [(5, ORPHAN, "request"), (7, ORPHAN, "request")]
    assert line.counts[LOST] == 5


def test_a_client_that_counts_otherwise_is_ignored() -> None:
    line = Line()
    line.sends(1, 5, 9, 10)
    line.answers(1, 5, 9, 10)
    line.losses.in_requests()
    line.sends(20)
    line.answers(20)
    assert line.counts[LOST] == 0


def test_a_client_that_begins_to_count_anew_has_lost_nothing() -> None:
    line = Line()
    line.sends(1, 2, 3)
    line.answers(1, 2, 3)
    line.losses.in_requests()
    line.sends(2_000_000)
    line.losses.in_requests()
    line.sends(1)
    assert line.counts[LOST] == 0


def test_what_is_not_whole_is_counted() -> None:
    line = Line()
    line.sends(1)
    payload = response_payload(HEARTBEAT, 4, correlation_id=1)
    (exchange,) = line.pairing.response(frame(payload[:6], size=len(payload)))
    line.losses.finish(exchange)
    assert (line.counts[INCOMPLETE], line.damaged) == (1, [])


def test_nothing_is_held_once_all_is_reported() -> None:
    line = Line()
    line.sends(1, 2)
    line.losses.in_responses()
    line.answers(2)
    assert not line.losses._waited
