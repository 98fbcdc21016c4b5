"""What becomes of a connection depends on its own packets and their times alone: on no packet of any other,
and not on where in the capture they stand (docs/decisions/connections-are-islands.md).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect import pipeline
from kdissect.limits import DEFAULT
from kdissect.model import IdleTick
from kdissect.net.tcp import Segments, Shard, reversed_ends
from kdissect.pipeline import Dissection, dissect
from samples.golden import captures, name_of
from tests.damage import DAMAGES
from tests.depth import IS_DEEP
from tests.frames import heartbeat_answers, heartbeats
from tests.rings import packets_of
from tests.segments import MILLISECOND, Talk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kdissect.model import Exchange, Packet
    from kdissect.pipeline import Source

SAMPLES = {name_of(path): path for path in captures()}
NAMES = sorted(SAMPLES) if IS_DEEP else ["quickstart", "midstream"]
HARMED = ["1 % lost", "10 % lost", "mid-frame start", "10 % lost, duplicated, shuffled"]

Rows = dict[str, list[tuple[Any, ...]]]


def by_connection(packets: Iterable[Packet]) -> list[list[Packet]]:
    """The packets of each pair of ends, in their order."""
    segments = Segments()
    result: dict[bytes, list[Packet]] = {}
    for packet in packets:
        segment = segments.feed(packet)
        if segment is not None:
            result.setdefault(min(segment.ends, reversed_ends(segment.ends)), []).append(packet)
    return list(result.values())


def end_of(packets: Sequence[Packet]) -> IdleTick:
    return IdleTick(max(packet.time_ns for packet in packets))


def rows(exchanges: Iterable[Exchange]) -> Rows:
    """All that each connection's exchanges say but the names of topics, which other connections have."""
    result: Rows = {}
    for each in exchanges:
        frames = each.request_frame, each.response_frame
        about = each.api, each.correlation_id, each.latency_us, tuple(each.anomalies)
        result.setdefault(each.connection.id, []).append(
            (each.number, each.kind, each.completed_ns, *about, *frames)
        )
    return result


def left_of(name: str, damage: str | None, seed: int = 1) -> list[Packet]:
    packets = packets_of(SAMPLES[name])
    return DAMAGES[damage](packets, Random(seed)).packets if damage else packets


def interleaved(connections: list[list[Packet]], random: Random) -> list[Packet]:
    """In any order that leaves the packets of each connection in theirs."""
    turns = [place for place, packets in enumerate(connections) for _ in packets]
    random.shuffle(turns)
    following = [iter(packets) for packets in connections]
    return [next(following[turn]) for turn in turns]


@pytest.mark.parametrize("damage", [None, *(DAMAGES if IS_DEEP else HARMED)])
@pytest.mark.parametrize("name", NAMES)
def test_a_connection_alone_gives_what_it_gives_among_others(name: str, damage: str | None) -> None:
    packets = left_of(name, damage)
    alone: Rows = {}
    for own in by_connection(packets):
        alone |= rows(dissect([*own, end_of(packets)]))
    assert rows(dissect(packets)) == alone


@given(st.sampled_from(HARMED), st.integers(0, 2**32))
def test_any_interleaving_of_connections_gives_each_the_same(damage: str, seed: int) -> None:
    packets = left_of("quickstart", damage, seed)
    order = interleaved(by_connection(packets), Random(seed))
    assert rows(dissect(order)) == rows(dissect(packets))


@pytest.mark.parametrize("damage", [None, *HARMED])
def test_whenever_it_is_noticed_that_a_deadline_has_passed(
    damage: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = left_of("quickstart", damage)
    seldom = rows(dissect(packets))
    monkeypatch.setattr(pipeline, "_TICK_PACKETS", 1)
    assert rows(dissect(packets)) == seldom


@pytest.mark.parametrize("damage", [None, *HARMED])
@pytest.mark.parametrize("every", [1, 7, 1000])
def test_rows_stand_at_their_time(damage: str | None, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late it is noticed that they were given up; what a search finds may be late."""
    monkeypatch.setattr(pipeline, "_TICK_PACKETS", every)
    packets = sorted(left_of("kafka-4-basics", damage), key=lambda packet: (packet.time_ns, packet.number))
    dissection = dissect(packets)
    order = [exchange.order for exchange in dissection]
    late = sum(one > other for one, other in pairwise(order))
    assert late <= dissection.counts["gaps"] + dissection.counts["connections"]
    assert damage or not late


@pytest.mark.parametrize("of", [1, 2, 7, 64])
@pytest.mark.parametrize("damage", [None, *HARMED])
def test_shards_together_give_what_one_process_gives(of: int, damage: str | None) -> None:
    packets = left_of("quickstart", damage)
    together: Rows = {}
    for number in range(of):
        together |= rows(Dissection(packets, shard=Shard(number, of)))
    assert together == rows(dissect(packets))


def talk() -> Talk:
    """Three heartbeats answered; a fourth, after which the broker resets the connection."""
    built = Talk().handshake()
    for first in (1, 2, 3):
        built.client_sends(b"".join(heartbeats(1, first=first)))
        built.broker_sends(b"".join(heartbeat_answers(1, first=first)))
    return built.client_sends(b"".join(heartbeats(1, first=4))).reset(1)


@pytest.mark.parametrize("places", range(1, 10))
def test_a_reset_that_was_recorded_early_loses_no_pair(places: int) -> None:
    *before, reset = talk().packets
    others = Talk(("10.0.0.9", 50_000)).handshake()
    while len(others.packets) < 300:  # others do not hurry it
        others.broker_acks()
    early = [*before[:-places], reset, *others.packets, *before[-places:]]
    expected = rows(dissect([*before, reset, *others.packets]))
    assert [row[1] for row in next(iter(expected.values()))] == ["answered"] * 3 + ["unanswered"]
    assert rows(dissect(early)) == expected


@given(st.integers(0, 2**32))
def test_the_same_segments_in_any_order_and_any_number_of_times(seed: int) -> None:
    random = Random(seed)
    packets = talk().packets
    again = [packet for packet in packets for _ in range(random.choice((1, 1, 2, 3)))]
    random.shuffle(again)
    assert packets[-1].time_ns - packets[0].time_ns < DEFAULT.reorder_window_ns
    assert rows(dissect(again)) == rows(dissect(packets))


def test_a_live_run_and_its_saved_capture_agree() -> None:
    """An idle tick says up to which time all packets were delivered."""
    packets = left_of("quickstart", "10 % lost")
    live: list[Source] = []
    for packet in packets:
        if live and packet.time_ns - live[-1].time_ns > 100 * MILLISECOND:
            live.append(IdleTick(packet.time_ns - 1))
        live.append(packet)
    assert rows(dissect(live)) == rows(dissect(packets))


def test_idle_does_not_depend_on_other_connections() -> None:
    """Also behind a connection whose clock is ahead, because a deadline of its own has passed."""
    idle_ns = DEFAULT.connection_idle_ns
    waits = Talk(("10.0.0.5", 1)).handshake().client_skips(3).client_sends(b"".join(heartbeats(1, first=1)))
    silent = Talk(("10.0.0.9", 2), start_ns=waits.packets[0].time_ns + 1)
    silent.handshake().client_sends(b"".join(heartbeats(1, first=7)))
    others = Talk(("10.0.0.1", 3), start_ns=silent.time_ns + idle_ns + MILLISECOND).handshake()
    packets = sorted((*waits.packets, *silent.packets, *others.packets), key=lambda packet: packet.time_ns)
    alone: Rows = {}
    for own in by_connection(packets):
        alone |= rows(dissect([*own, end_of(packets)]))
    assert rows(dissect(packets)) == alone
    assert silent.time_ns + idle_ns - MILLISECOND in {row[2] for each in alone.values() for row in each}
