from __future__ import annotations

import gc
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.limits import Limits
from kdissect.model import Closed, Data, Endpoint, Gap, Packet, PacketBlock, Retransmitted
from kdissect.net.connection import Connection, Connections, Event
from kdissect.net.tcp import Segments
from tests.connections import SECOND, chatter, exchanges, in_one_piece, run, script
from tests.segments import ACK, COOKED, ETHERNET, FIN, MILLISECOND, PSH, RST, START_NS, SYN, Talk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Segment


def test_a_connection_from_syn_to_fin() -> None:
    talk = exchanges(Talk().handshake(), 2).finish()
    events = run(talk.packets)
    assert script(events) == [">ask", "<answer", ">ask", "<answer", "fin"]
    connection = events[0][0]
    assert all(event[0] is connection for event in events)
    assert connection.ends == (Endpoint("10.0.0.1", 40000), Endpoint("10.0.0.2", 9092))
    assert (connection.initiator, connection.first_packet, connection.first_time_ns) == (0, 1, START_NS)
    assert len(connection.id) == 12
    assert int(connection.id, 16) >= 0


def test_the_id_is_unique_and_reproducible() -> None:
    one, again, other_time, other_port = (
        run(exchanges(talk.handshake()).packets)[0][0].id
        for talk in (Talk(), Talk(), Talk(start_ns=START_NS + 1), Talk(("10.0.0.1", 40001)))
    )
    assert one == again
    assert len({one, other_time, other_port}) == 3
    swapped = exchanges(Talk().handshake()).packets
    swapped[0], swapped[1] = swapped[1], swapped[0]
    assert run(swapped)[0][0].id == one


def test_two_connections_at_once() -> None:
    one, two = Talk(("10.0.0.1", 1)).handshake(), Talk(("10.0.0.1", 2)).handshake()
    exchanges(one).finish()
    exchanges(two).finish()
    packets = [packet for pair in zip(one.packets, two.packets, strict=True) for packet in pair]
    assert script(run(packets)) == ["1 >ask", "2 >ask", "1 <answer", "2 <answer", "1 fin", "2 fin"]


def test_no_connection_comes_of_bare_segments() -> None:
    talk = Talk().client_acks().broker_acks()
    talk.put(0, FIN | ACK).put(1, RST | ACK)
    connections = Connections()
    assert run(talk.packets, connections=connections) == []
    assert connections.counts == {"segments_without_connection": 4}


def test_without_an_end() -> None:
    assert script(run(exchanges(Talk().handshake()).packets)) == [">ask", "<answer", "end"]


def test_what_follows_the_end_makes_no_ghost() -> None:
    talk = exchanges(Talk().handshake()).finish()
    talk.put(0, PSH | ACK, b"ask", sequence=1001).put(0, FIN | ACK, sequence=1004).broker_acks().reset()
    connections = Connections()
    assert script(run(talk.packets, connections=connections)) == [">ask", "<answer", "fin"]
    assert connections.counts["connections"] == 1


def test_a_reset_closes_at_its_deadline() -> None:
    talk = exchanges(Talk().handshake())
    talk.reset(1)
    talk.put(0, PSH | ACK, b"late")
    next_one = exchanges(Talk(("10.0.0.7", 7), start_ns=talk.time_ns + SECOND).handshake())
    lines = script(run([*talk.packets, *next_one.packets]))
    assert lines[:4] == ["40000 >ask", "40000 <answer", "40000 >late", "40000 reset"]
    assert lines.index("40000 reset") < lines.index("7 >ask")


def test_a_refused_connection() -> None:
    talk = Talk()
    talk.put(0, SYN, acknowledgment=0)
    talk.put(1, RST | ACK, sequence=0)
    assert script(run(talk.packets)) == ["reset"]


def test_syn_again_is_the_same_connection() -> None:
    talk = Talk()
    talk.put(0, SYN, acknowledgment=0).put(0, SYN, sequence=1000, acknowledgment=0)
    talk.put(1, SYN | ACK).put(1, SYN | ACK, sequence=5000).client_acks()
    exchanges(talk)
    talk.put(0, SYN, sequence=1000, acknowledgment=0)
    exchanges(talk).finish()
    assert script(run(talk.packets)) == [">ask", "<answer", ">ask", "<answer", "fin"]


@pytest.mark.parametrize("reason", ["fin", "reset", "reused"])
def test_a_reused_pair_of_ends(reason: str) -> None:
    first = exchanges(Talk().handshake())
    if reason == "fin":
        first.finish()
    elif reason == "reset":
        first.reset()
    second = exchanges(
        Talk(client_start=77_000, broker_start=99_000, start_ns=first.time_ns).handshake()
    ).finish()
    events = run([*first.packets, *second.packets])
    assert script(events) == [">ask", "<answer", reason, ">ask", "<answer", "fin"]
    assert events[0][0] is not events[-1][0]
    assert events[0][0].id != events[-1][0].id


def test_a_reused_pair_of_ends_whose_syn_was_missed() -> None:
    first = exchanges(Talk().handshake())
    second = exchanges(
        Talk(client_start=77_000, broker_start=99_000, start_ns=first.time_ns).handshake()
    ).finish()
    assert script(run([*first.packets, *second.packets[1:]])) == [
        ">ask",
        "<answer",
        "reused",
        ">ask",
        "<answer",
        "fin",
    ]


def test_a_syn_after_a_reset_begins_anew_even_with_the_same_number() -> None:
    first = Talk()
    first.put(0, SYN, acknowledgment=0)
    first.put(1, RST | ACK, sequence=0)
    second = exchanges(Talk(start_ns=first.time_ns + 500 * MILLISECOND).handshake()).finish()
    assert script(run([*first.packets, *second.packets])) == ["reset", ">ask", "<answer", "fin"]


def test_an_old_segment_after_reuse_does_no_harm() -> None:
    first = exchanges(Talk(client_start=500_000_000, broker_start=600_000_000).handshake()).finish()
    second = exchanges(Talk(client_start=1000, broker_start=5000, start_ns=first.time_ns).handshake())
    stale = first.packets[3:5]
    events = run(
        [*first.packets, *second.packets, *stale, *exchanges(second).packets[len(second.packets) - 2 :]]
    )
    assert script(events) == [">ask", "<answer", "fin", ">ask", "<answer", ">ask", "<answer", "end"]


def test_too_many_connections_the_least_recently_used_goes() -> None:
    talks = [exchanges(Talk(("10.0.0.1", port), start_ns=START_NS + port).handshake()) for port in (1, 2, 3)]
    again = exchanges(Talk(("10.0.0.1", 1), client_start=1003, broker_start=5006))
    connections = Connections(Limits(connections=2))
    packets = [*talks[0].packets, *talks[1].packets, *again.packets, *talks[2].packets]
    lines = script(run(packets, connections=connections))
    assert lines.index("2 evicted") < lines.index("3 >ask")
    assert lines[-2:] == ["1 end", "3 end"]
    assert connections.counts["closed_evicted"] == 1


def test_idle_connections_are_closed_by_packet_time() -> None:
    talk = exchanges(Talk().handshake())
    others = chatter(600, start_ns=talk.time_ns + 20 * 60 * SECOND)
    lines = script(run([*talk.packets, *others]))
    assert lines == ["40000 >ask", "40000 <answer", "40000 idle", "50000 end"]


PATIENCE_NS = Limits().reorder_window_ns


def test_a_deadline_passes_by_the_connections_own_clock() -> None:
    # In mid-stream: nothing says that this is the beginning.
    first, second = Talk().client_sends(b"ask").client_sends(b"!").packets
    for after_ns, lines in ((PATIENCE_NS - 1, []), (PATIENCE_NS, [">ask", ">!"])):
        connections = Connections()
        assert fed(connections, [first]) == []
        assert script(fed(connections, [second._replace(time_ns=first.time_ns + after_ns)])) == lines


def test_a_deadline_passes_when_all_segments_up_to_it_have_come_and_never_by_those_of_others() -> None:
    started = Talk().client_sends(b"ask")
    started_ns = started.packets[0].time_ns
    connections = Connections()
    fed(connections, started.packets)
    others = fed(connections, chatter(1000, start_ns=started_ns + 10 * PATIENCE_NS))
    assert not others
    assert connections.tick(started_ns + PATIENCE_NS - 1) == []
    assert script(connections.tick(started_ns + PATIENCE_NS)) == [">ask"]


def test_a_segment_from_before_a_tick_is_counted() -> None:
    talk = Talk().handshake().client_sends(b"one").client_sends(b"late").client_sends(b"two").broker_acks()
    *before, late, two, acknowledges = talk.packets
    connections = Connections()
    events = fed(connections, [*before, two, acknowledges])
    events += connections.tick(acknowledges.time_ns + PATIENCE_NS)
    events += fed(connections, [late])
    assert script(events) == [">one", ">(4 lost)", ">two"]
    assert connections.counts["late_segments"] == 1


def test_a_clock_that_is_set_back_ends_what_was_waited_for() -> None:
    talk = Talk().handshake().client_skips(3).client_sends(b"two").broker_acks().client_sends(b"three")
    packets = [*talk.packets[:-1], talk.packets[-1]._replace(time_ns=START_NS - 3600 * SECOND)]
    connections = Connections()
    assert script(fed(connections, packets)) == [">(3 lost)", ">two", ">three"]


def fed(connections: Connections, packets: Iterable[Packet]) -> list[Event]:
    segments = Segments()
    parsed = (segments.feed(packet) for packet in packets)
    return [event for segment in parsed if segment for event in connections.feed(segment)]


def test_bytes_held_in_all_are_limited() -> None:
    packets = []
    for port in range(1, 21):
        talk = Talk(("10.0.0.1", port)).handshake().client_sends(b"a").client_skips(10)
        for _ in range(10):
            talk.client_sends(bytes(1000))
        packets += talk.packets
    connections = Connections(Limits(total_stream_bytes=100_000))
    out = []
    segments = Segments()
    for packet in packets:
        segment = segments.feed(packet)
        assert segment is not None
        out += connections.feed(segment)
        assert connections._held_in_all <= 100_000
    assert connections.counts["gaps"] >= 10
    connections.close(packets[-1].time_ns)
    assert connections._held_in_all == 0
    assert connections.counts["gaps"] == 20


def test_closed_connections_are_forgotten() -> None:
    connections, segments = Connections(), Segments()
    for number in range(3000):
        talk = exchanges(
            Talk(("10.0.0.1", 1024 + number), start_ns=START_NS + number * 10 * MILLISECOND).handshake()
        )
        if number % 3 == 0:
            talk.reset()
        else:
            talk.finish()
        for packet in talk.packets:
            segment = segments.feed(packet)
            assert segment is not None
            connections.feed(segment)
        connections.tick(talk.time_ns - SECOND)
        assert connections.remembered < 150
    assert len(connections._flows) < 300
    assert len(connections._deadlines._heap) < 400
    assert connections.counts["closed_fin"] > 1900


def test_a_closed_connection_is_freed_without_garbage_collection() -> None:
    packets = exchanges(Talk().handshake(), 3).finish().packets
    run(packets, connections=Connections())  # what is made only once is made now
    while gc.collect():  # what the core held of other tests is garbage once the core's part is freed
        pass
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        connections = Connections()
        run(packets, connections=connections)
        del connections
        gc.collect()
        ours = [
            each for each in gc.garbage if type(each).__module__.startswith("kdissect.")
        ]  # not of threads
        assert not ours
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_both_ends_the_same() -> None:
    talk = Talk(("10.0.0.2", 9092), ("10.0.0.2", 9092))
    talk.put(0, SYN, acknowledgment=0).put(0, SYN | ACK, sequence=1000).client_sends(b"me")
    assert script(run(talk.packets))[-1] == "end"


# Properties over whole captures

MESSAGES = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=12)
SEEDS = st.integers(0, 2**32)
STARTS = st.one_of(st.integers(2**32 - 200, 2**32 - 1), st.integers(0, 2**32 - 1))


def conversation(messages: list[tuple[int, int]], *, mss: int, starts: tuple[int, int]) -> tuple[Talk, bytes]:
    """Alternating requests and responses, and all their bytes in order. No byte equals its neighbors."""
    talk = Talk(mss=mss, client_start=starts[0], broker_start=starts[1]).handshake()
    sent_bytes = bytearray()
    for request, response in messages:
        payload = bytes((len(sent_bytes) + index) % 251 for index in range(request))
        sent_bytes += payload
        talk.client_sends(payload)
        answer = bytes((len(sent_bytes) + index) % 251 for index in range(response))
        sent_bytes += answer
        talk.broker_sends(answer)
    return talk.finish(), bytes(sent_bytes)


def received(events: Iterable[Event]) -> bytes:
    assert not any(isinstance(item, Gap) for _, _, item in events)
    return b"".join(item.payload for _, _, item in events if isinstance(item, Data))


def duplicated(packets: list[Packet], random: Random) -> list[Packet]:
    return [packet for packet in packets for _ in range(random.choice((1, 1, 1, 2, 3)))]


def displaced(packets: list[Packet], random: Random, distance: int = 16) -> list[Packet]:
    order = sorted(range(len(packets)), key=lambda place: place + random.randint(0, distance))
    return [packets[place] for place in order]


@given(MESSAGES, st.integers(1, 40), st.tuples(STARTS, STARTS), SEEDS)
def test_any_local_disorder_gives_the_same(
    messages: list[tuple[int, int]], mss: int, starts: tuple[int, int], seed: int
) -> None:
    talk, sent_bytes = conversation(messages, mss=mss, starts=starts)
    random = Random(seed)
    packets = displaced(duplicated(talk.packets, random), random)
    connections = Connections()
    events = run(packets, connections=connections)
    assert received(events) == sent_bytes
    assert len({connection.id for connection, _, _ in events}) == 1
    if not connections.counts["segments_without_connection"]:
        assert events[-1][2].reason == "fin"


@given(MESSAGES, st.integers(1, 40), st.tuples(STARTS, STARTS), SEEDS)
def test_any_disorder_at_all_gives_the_same_within_the_limits(
    messages: list[tuple[int, int]], mss: int, starts: tuple[int, int], seed: int
) -> None:
    talk, sent_bytes = conversation(messages, mss=mss, starts=starts)
    packets = duplicated(talk.packets, Random(seed))
    Random(seed).shuffle(packets)
    events = run(packets, Limits(reorder_window_ns=10**18, gap_age_ns=10**18, stream_gaps=10**6))
    assert received(events) == sent_bytes


@given(MESSAGES, st.integers(1, 40), SEEDS)
def test_segments_cut_differently_when_sent_again(
    messages: list[tuple[int, int]], mss: int, seed: int
) -> None:
    random = Random(seed)
    starts = (2**32 - 9, 2**32 - 30)
    talk = Talk(mss=mss, client_start=starts[0], broker_start=starts[1]).handshake()
    sent = [b"", b""]
    for message in messages:
        for side in (0, 1):
            data = random.randbytes(message[side])
            sent[side] += data
            (talk.client_sends, talk.broker_sends)[side](data)
            if random.random() < 0.5:
                begin = random.randint(max(0, len(sent[side]) - 100), len(sent[side]))
                again = sent[side][begin : begin + random.randint(0, 40)]
                talk.put(side, PSH | ACK, again, sequence=starts[side] + 1 + begin)
    streams = per_side(run(displaced(talk.finish().packets, random, 8)))
    assert streams == {end: list(data) for end, data in zip(talk.ends, sent, strict=True) if data}


@given(MESSAGES, SEEDS, st.integers(0, 30))
def test_mid_stream_begins_alike_in_any_local_disorder(
    messages: list[tuple[int, int]], seed: int, missed: int
) -> None:
    talk, _ = conversation(messages * 3, mss=20, starts=(2**32 - 9, 2**32 - 30))
    packets = talk.packets[min(3 + missed, len(talk.packets) - 4) :]
    streams = [per_side(run(each)) for each in (packets, displaced(packets, Random(seed)))]
    assert streams[0] == streams[1]


def per_side(events: Iterable[Event]) -> dict[tuple[str, int], list[int | None]]:
    """Bytes by sender, None where one is missing."""
    out: dict[tuple[str, int], list[int | None]] = {}
    for connection, side, item in events:
        if isinstance(item, Data | Gap):
            stream = out.setdefault(connection.ends[side], [])
            stream += list(item.payload) if isinstance(item, Data) else [None] * item.length
    return out


@given(MESSAGES, st.integers(1, 40), st.sampled_from([0.01, 0.1, 0.5]), st.sampled_from([0, 60, 70]), SEEDS)
def test_what_was_lost_becomes_gaps_and_nothing_else(
    messages: list[tuple[int, int]], mss: int, loss: float, snaplen: int, seed: int
) -> None:
    talk, _ = conversation(messages * 4, mss=mss, starts=(2**32 - 9, 2**32 - 30))
    truth = per_side(run(talk.packets))
    random = Random(seed)
    kept = [packet for packet in talk.packets if packet.number <= 3 or random.random() > loss]
    if snaplen:
        kept = [packet._replace(data=packet.data[:snaplen]) for packet in kept]
    captured = sum(max(0, len(packet.data) - 54) for packet in kept)
    streams = per_side(run(displaced(kept, random, 4)))
    for end, stream in streams.items():
        sent_bytes = truth[end]
        # Where the last byte and the FIN are both missing, the FIN's number is taken for one more byte.
        assert len(stream) <= len(sent_bytes) + (stream[-1] is None)
        assert all(byte is None or byte == sent_bytes[place] for place, byte in enumerate(stream))
    assert sum(byte is not None for stream in streams.values() for byte in stream) == captured


COMPLETE = [
    exchanges(Talk(link_type=link_type).handshake(), 3).finish().packets for link_type in (1, 101, 113)
]
CHANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 70), st.integers(0, 255)), max_size=12)


@given(st.sampled_from(COMPLETE), CHANGES, SEEDS, st.booleans())
def test_mutated_packets_raise_nothing(
    packets: list[Packet], changes: list[tuple[int, int, int]], seed: int, small: bool
) -> None:
    random = Random(seed)
    mutated = displaced(duplicated(packets, random), random, 3)
    for index, place, value in changes:
        packet = mutated[index % len(mutated)]
        data = bytearray(packet.data)
        data[place % len(data)] = value
        mutated[index % len(mutated)] = packet._replace(data=bytes(data), time_ns=packet.time_ns + value)
    tiny = Limits(
        connections=1,
        stream_gaps=1,
        stream_bytes=600,
        total_stream_bytes=900,
        reorder_window_ns=1,
    )
    connections = Connections(tiny if small else Limits())
    closed: Counter[Connection] = Counter()
    for connection, _, item in run(mutated, connections=connections):
        assert closed[connection] == 0, "nothing follows the end of a connection"
        closed[connection] += isinstance(item, Closed)
    ends = {name: count for name, count in connections.counts.items() if name.startswith("closed_")}
    assert sum(ends.values()) == connections.counts["connections"]
    assert closed.total() == len(closed) <= connections.counts["connections"]  # the others never opened
    assert connections._held_in_all == 0
    assert connections.remembered == 0


def test_a_fin_with_data_in_its_place_is_none() -> None:
    talk = Talk().handshake()
    talk.client_sends(b"ask").broker_sends(b"answer")
    # It waits for bytes that it acknowledges and that are not in the capture; then comes a FIN of its number.
    talk.put(1, PSH | ACK, b"more", sequence=5007, acknowledgment=1050)
    talk.put(1, FIN | ACK, sequence=5007)
    assert script(run(talk.packets)) == [">ask", "<answer", ">(46 lost)", "<more", "end"]


def test_nothing_of_a_closed_connection_is_kept_if_the_clock_stands_still() -> None:
    segments, connections = Segments(), Connections(Limits(connections=3))
    for number in range(200):
        talk = Talk(client=("10.0.0.1", 40000 + number), step_ns=0).handshake().client_sends(b"ask")
        for packet in talk.packets:
            segment = segments.feed(packet)
            assert segment is not None
            connections.feed(segment)
    gc.collect()
    ours = {id(stream) for flow in connections._flows.values() for stream in flow.duplex.streams}
    assert len(ours) == 6
    assert len(connections._deadlines._heap) < 100


@pytest.mark.parametrize("link_type", [ETHERNET, COOKED])
def test_the_usual_packet_goes_the_shortest_way(link_type: int) -> None:
    talk = exchanges(Talk(link_type=link_type).handshake(), 5).finish()
    packets, segments, connections = talk.packets, Segments(), Connections()
    others = []

    def segment_of(packet: Packet) -> Segment | None:
        others.append(packet)
        return segments.feed(packet)

    block = in_one_piece(packets)
    events = [event for batch in connections.feed_block(block, segment_of) for event in batch]
    assert others == []
    assert connections.packet == packets[-1].number
    assert script(events + connections.close(packets[-1].time_ns)) == script(run(packets))
    assert (block.time_ns, block.packets) == (packets[0].time_ns, packets)


def expecting(packets: Iterable[Packet], count: int) -> list[Event]:
    """Events for a reader that always expects ``count`` bytes together."""
    connections, segments, out, packets = Connections(), Segments(), [], list(packets)
    for packet in packets:
        for events in connections.feed_block(PacketBlock.of(packet), segments.feed):
            for event in events:
                event[0].expect(event[1], count)
                out.append(event)
    return out + connections.close(packets[-1].time_ns)


def sizes(events: Iterable[Event]) -> list[int | str]:
    return [
        len(item.payload) if isinstance(item, Data) else type(item).__name__
        for _, _, item in events
        if not isinstance(item, Retransmitted)
    ]


def test_bytes_expected_together_are_passed_on_together() -> None:
    talk = Talk(mss=100).handshake().client_sends(bytes(range(250)) * 4).broker_acks()
    plain, gathered = run(talk.finish().packets), expecting(talk.packets, 300)
    assert sizes(plain) == [100] * 10 + ["Closed"]
    assert sizes(gathered) == [100, 300, 300, 300, "Closed"]
    data = [[item for _, _, item in events if isinstance(item, Data)] for events in (plain, gathered)]
    assert b"".join(item.payload for item in data[0]) == b"".join(item.payload for item in data[1])
    assert data[1][1][:3] == data[0][3][:3]  # reported with the packet that came last


def test_what_was_gathered_comes_before_anything_unusual() -> None:
    talk = Talk(mss=100).handshake().client_sends(bytes(400))
    talk.client_skips(100).client_sends(bytes(100)).finish()
    assert sizes(expecting(talk.packets, 10_000)) == [100, 300, "Gap", 100, "Closed"]
    assert sizes(expecting(talk.packets[:6], 10_000)) == [100, 200, "Closed"]


def test_large_segments_are_not_gathered_and_of_small_ones_not_many() -> None:
    talk = Talk(mss=100).handshake().client_sends(bytes(300))
    assert sizes(expecting(talk.packets, 199)) == [100, 100, 100, "Closed"]
    talk = Talk(mss=1).handshake().client_sends(bytes(200))
    assert max(size for size in sizes(expecting(talk.packets, 10_000)) if isinstance(size, int)) == 64


def test_few_streams_gather_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    talks = [Talk(("10.0.0.1", port), mss=100).handshake().client_sends(bytes(400)) for port in (1, 2)]
    packets = [packet for pair in zip(*(talk.packets for talk in talks), strict=True) for packet in pair]
    assert sizes(expecting(packets, 1000)) == [100, 100, 300, "Closed", 300, "Closed"]
    monkeypatch.setattr("kdissect.net.connection._GATHERING_STREAMS", 1)
    assert sizes(expecting(packets, 1000)) == [100, 100, 100, 100, 100, 300, "Closed", "Closed"]


@pytest.mark.parametrize("analyzes", [False, True])
def test_a_connection_that_never_opens_is_counted_and_has_no_events(analyzes: bool) -> None:
    connections = Connections(Limits(), analyzes=analyzes)
    segments = Segments()
    (packet,) = Talk().put(0, SYN, acknowledgment=0).packets
    segment = segments.feed(packet)
    assert segment is not None
    events = [*connections.feed(segment), *connections.close(segment.time_ns)]
    assert [type(item) for _, _, item in events] == ([Closed] if analyzes else [])
    assert (connections.counts["connections"], connections.counts["closed_end"]) == (1, 1)
