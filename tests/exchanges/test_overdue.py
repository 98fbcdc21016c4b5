"""Requests that are overdue while their connection is open, packet by packet."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kdissect.exchanges import overdue
from kdissect.limits import DEFAULT, SECOND_NS
from kdissect.model import ANSWERED, IdleTick
from kdissect.pipeline import Dissection
from kdissect.stats.facts import Facts
from kdissect.stats.pulse import OTHER, Pulse
from kdissect.text.metrics import Metrics
from tests.exchange_factory import exchange
from tests.frames import FETCH, heartbeat_answers, heartbeats, request
from tests.producers import facts_of
from tests.pulses import beat
from tests.segments import START_NS, Talk

if TYPE_CHECKING:
    import pytest

    from kdissect.model import Exchange

BEATS, ANSWERS = heartbeats(5), heartbeat_answers(5)


class Live:
    """Packets and idle ticks as they come, into the dashboard's counts."""

    def __init__(self, *talks: Talk) -> None:
        self.pulse = Pulse()
        self.seen: list[tuple[float, str | None]] = []
        packets = [packet for talk in talks for packet in talk.packets]
        times = [packet.time_ns for packet in packets]
        ticks = [IdleTick(time_ns) for time_ns in range(min(times), max(times), SECOND_NS)]
        self.inputs = sorted([*packets, *ticks], key=attrgetter("time_ns"))
        self.dissection = Dissection(self._until_now())
        self.dissection.watch_overdue(self._overdue)
        self.no_answer: list[tuple[float, int, int]] = []  # when it changed, with those overdue among them

    def run(self) -> Live:
        for each in self.dissection:
            self.pulse.feed(Facts(each))
        self._note(self.inputs[-1].time_ns)
        return self

    def _until_now(self) -> Any:
        for each in self.inputs:
            yield each
            self._note(each.time_ns)

    def _note(self, time_ns: int) -> None:
        now = self.pulse.now().all
        if (now.no_answer, now.overdue) != (self.no_answer[-1][1:] if self.no_answer else (0, 0)):
            seconds = (time_ns - START_NS) / SECOND_NS
            self.no_answer.append((round(seconds), now.no_answer, now.overdue))

    def _overdue(self, outstanding: Exchange, unanswered: Exchange) -> None:
        assert not outstanding.kind
        assert outstanding.response is None
        facts = Facts(unanswered)
        self.seen.append(((unanswered.completed_ns - START_NS) / SECOND_NS, facts.api))
        self.pulse.overdue(outstanding, facts)


def requested(*requests: bytes, place: int = 0) -> Talk:
    """Requests that the broker acknowledges."""
    talk = Talk(client=("10.0.0.1", 40_000 + place)).handshake()
    for each in requests:
        talk.client_sends(each)
    return talk.broker_acks()


def test_a_broker_that_does_not_answer_is_counted_before_the_connection_ends() -> None:
    live = Live(requested(*BEATS[:2]).waits(60).finish()).run()
    assert [api for _, api in live.seen] == ["Heartbeat", "Heartbeat"]
    assert live.no_answer == [(31, 2, 2), (60, 2, 0)]  # at the end they are exchanges of their own
    (client,) = live.pulse.now().clients
    assert (client.no_answer, client.overdue, client.address) == (2, 0, "10.0.0.1")


def test_a_late_response_makes_it_answered() -> None:
    live = Live(requested(BEATS[0]).waits(45).broker_sends(ANSWERS[0]).waits(9).finish()).run()
    assert live.no_answer == [(31, 1, 1), (45, 0, 0)]


def test_it_may_take_as_long_as_it_allows() -> None:
    fetch = request(FETCH, 11, {"max_wait_ms": 20_000})
    live = Live(requested(fetch, BEATS[0]).waits(60).finish()).run()
    assert [api for _, api in live.seen] == ["Heartbeat", "Fetch"]
    assert live.no_answer == [(31, 1, 1), (51, 2, 2), (60, 2, 0)]


def test_what_is_answered_or_may_be_in_a_gap_is_not_overdue() -> None:
    answered = requested(BEATS[0]).broker_sends(ANSWERS[0]).waits(60)
    answered.client_sends(BEATS[1]).broker_sends(ANSWERS[1]).finish()
    assert Live(answered).run().seen == []
    gap = requested(BEATS[0], BEATS[1]).broker_sends(ANSWERS[0]).broker_skips(16).broker_acks().client_acks()
    gap.waits(60).client_sends(BEATS[2]).broker_sends(ANSWERS[2])
    assert Live(gap).run().seen == []
    requests_only = Talk().handshake().client_sends(BEATS[0]).waits(60).client_sends(BEATS[1])
    requests_only.packets = [packet for packet in requests_only.packets if packet.number != 2]
    assert Live(requests_only).run().seen == []


def test_silent_connections_are_shown_though_nothing_else_happens() -> None:
    silent, other = requested(BEATS[0]), Talk(client=("10.0.0.9", 50_000)).handshake()
    for _ in range(20):
        other.waits(10).client_sends(BEATS[0]).broker_sends(ANSWERS[0])
    live = Live(silent, other)
    live.run()
    assert live.no_answer[0] == (31, 1, 1)
    assert live.pulse.now().all.no_answer == 1


def test_rows_and_metrics_of_overdue_requests() -> None:
    pulse = Pulse(replace(DEFAULT, top_rows=1))
    metrics = Metrics(DEFAULT, pulse.now, lambda: (0, 0)).registry
    pulse.feed(beat(0, "app"))
    outstanding = [exchange("Metadata"), exchange("Metadata")]
    for each in outstanding:
        each.kind = ""
        pulse.overdue(each, facts_of("Metadata", 9, 1, {"topics": []}, None, "shop"))

    def shown() -> list[float | None]:
        return [
            metrics.get_sample_value(f"kdissect_{name}", labels)
            for name, labels in (
                ("overdue_requests", {"api": OTHER}),
                ("overdue_requests", {"api": "Heartbeat"}),
                ("client_overdue_requests", {"client": OTHER}),
            )
        ]

    assert shown() == [2, 0, 2]
    pulse.feed(beat(100, "app"))  # all others are idle
    assert shown() == [2, 0, 2]
    outstanding[0].kind = ANSWERED
    assert shown() == [1, 0, 1]


def test_each_connection_is_looked_at_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each packet, and not each of its requests for itself."""
    looks = []
    look_at = overdue.Overdue._look_at

    def counted(self: overdue.Overdue, kafka: Any, now_ns: int) -> int | None:
        looks.append(now_ns)
        return look_at(self, kafka, now_ns)

    monkeypatch.setattr(overdue.Overdue, "_look_at", counted)
    busy = Talk().handshake()
    for one, answer in zip(heartbeats(600), heartbeat_answers(600), strict=True):
        busy.client_sends(one).waits(0.1).broker_sends(answer)
    silent = requested(*heartbeats(400), place=1)
    live = Live(busy, silent).run()
    assert len(live.seen) == 400
    assert len(looks) <= 2 * 3  # in a minute


def test_connections_that_ended_are_forgotten() -> None:
    watch = Live(*(requested(BEATS[0], place=place).finish() for place in range(300)))
    watch.run()
    overdue_requests = watch.dissection._watcher
    assert overdue_requests is not None
    assert not overdue_requests._passed_on
    assert len(overdue_requests._due) <= 64 + 4
