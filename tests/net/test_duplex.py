from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kdissect.limits import Limits
from kdissect.model import Data, Gap
from kdissect.net.duplex import NEVER_NS, ConnectionIds, Duplex, Event
from kdissect.net.stream import PIECE_COST
from kdissect.net.tcp import Segments
from tests.segments import ACK, FIN, PSH, RST, SYN, Talk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kdissect.model import Packet


def script(events: Iterable[Event]) -> str:
    """What was passed on: > from the client, < from the broker."""
    parts = []
    for connection, side, item in events:
        arrow = "><"[side] if connection.ends[0].port == 40000 else "<>"[side]
        if isinstance(item, Data):
            parts.append(f"{arrow}{item.payload.decode()}")
        elif isinstance(item, Gap):
            parts.append(f"{arrow}({item.length} {item.reason})")
    return " ".join(parts)


class Player:
    """Feeds packets to one connection and returns its events in short form."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.duplex: Duplex | None = None
        self.limits = limits or Limits()

    def feed(self, *packets: Packet) -> str:
        out: list[Event] = []
        for packet in packets:
            segment = Segments().feed(packet)
            assert segment is not None
            if self.duplex is None:
                self.duplex = Duplex(
                    segment.ends,
                    segment.time_ns,
                    self.limits,
                    self.counts,
                    ConnectionIds(self.limits, self.counts),
                )
            self.duplex.feed(int(segment.ends != self.duplex.ends), segment, out)
            self.duplex.cause = segment
        return script(out)

    def expires(self, after_ns: int = Limits().reorder_window_ns) -> str:
        """Let the current deadline pass."""
        assert self.duplex is not None
        out: list[Event] = []
        self.duplex.due_ns = NEVER_NS
        self.duplex.set_deadline()
        if self.duplex.due_ns <= self.duplex.now_ns + after_ns:
            self.duplex.expire(out)
        return script(out)

    def flush(self) -> str:
        assert self.duplex is not None
        out: list[Event] = []
        self.duplex.flush(out)
        return script(out)


def talk(*, client_start: int = 1000, broker_start: int = 5000, step_ns: int = 1_000_000) -> Talk:
    return Talk(mss=100, client_start=client_start, broker_start=broker_start, step_ns=step_ns)


def test_nothing_is_passed_on_until_both_beginnings_are_known() -> None:
    packets = talk().handshake().client_sends(b"ask").packets
    syn, syn_ack, ack, request = packets
    for order in ([syn, request, syn_ack], [request, syn_ack, ack, syn]):
        player = Player()
        assert player.feed(*order[:-1]) == ""
        assert player.feed(order[-1]) == ">ask"


def test_the_initiator() -> None:
    syn, syn_ack, _, request = talk().handshake().client_sends(b"ask").packets
    for order, initiator in (
        ([syn, syn_ack], 0),
        ([syn_ack, syn], 1),
        ([request, syn, syn_ack], 0),
    ):
        player = Player()
        player.feed(*order)
        assert player.duplex is not None
        assert player.duplex.connection is not None
        assert player.duplex.connection.initiator == initiator
        assert player.duplex.connection.first_packet == min(packet.number for packet in order)


def test_a_response_never_overtakes_its_request() -> None:
    packets = talk().handshake().client_sends(b"ask").broker_sends(b"answer").packets
    player = Player()
    assert player.feed(*packets[:3]) == ""
    assert player.feed(packets[4]) == ""
    assert player.feed(packets[3]) == ">ask <answer"


def test_order_is_kept_across_a_gap() -> None:
    conversation = (
        talk().handshake().client_skips(9).broker_sends(b"a").client_sends(b"two").broker_sends(b"b")
    )
    player = Player()
    assert player.feed(*conversation.packets) == ""
    assert player.expires() == ">(9 lost) <a >two <b"
    player = Player()
    assert player.feed(*conversation.packets) == ""
    assert player.flush() == ">(9 lost) <a >two <b"


def test_a_response_whose_request_was_missed_comes_at_the_deadline() -> None:
    conversation = talk().handshake()
    conversation.client_skips(30).broker_sends(b"answer").client_sends(b"next")
    player = Player()
    assert player.feed(*conversation.packets) == ""
    assert player.expires() == ">(30 lost) <answer >next"


def test_an_acknowledged_hole_becomes_a_gap_at_the_deadline() -> None:
    conversation = talk().handshake().client_sends(b"one").client_skips(5).client_sends(b"two")
    player = Player()
    assert player.feed(*conversation.packets) == ">one"
    assert player.expires() == ""
    assert player.feed(*conversation.broker_acks().packets[-1:]) == ""
    assert player.expires() == ">(5 lost) >two"


def test_a_hole_that_was_acknowledged_may_still_fill() -> None:
    packets = (
        talk()
        .handshake()
        .client_sends(b"one")
        .client_sends(b"two")
        .client_sends(b"three")
        .broker_acks()
        .packets
    )
    player = Player()
    assert player.feed(*packets[:4], *packets[5:]) == ">one"
    assert player.feed(packets[4]) == ">two >three"
    assert player.expires() == ""


def test_copies_that_acknowledge_more_do_not_lock_both_sides() -> None:
    conversation = talk().handshake().client_sends(b"ask").broker_sends(b"answer")
    conversation.put(0, PSH | ACK, b"ask", sequence=1001)  # a retransmission, acknowledging the answer
    *handshake, request, answer, again = conversation.packets
    player = Player()
    assert player.feed(*handshake, again, answer) == ""
    assert player.feed(request) == ">ask <answer"
    other = Player()
    other.feed(*handshake, again, answer)
    assert other.expires() == ">ask <answer"


def test_mid_stream_begins_at_the_lowest_number() -> None:
    packets = talk().client_sends(b"one").client_sends(b"two").broker_sends(b"answer").packets
    player = Player()
    assert player.feed(packets[1], packets[0], packets[2]) == ""
    assert player.expires() == ">one >two <answer"


def test_mid_stream_begins_at_the_acknowledgment_where_there_are_no_bytes() -> None:
    conversation = talk().client_sends(b"one").broker_acks()
    player = Player()
    player.feed(*conversation.packets)
    assert player.expires() == ">one"
    responses = conversation.broker_sends(b"a").broker_sends(b"b").packets[-2:]
    assert player.feed(responses[1]) == ""
    assert player.feed(responses[0]) == "<a <b"


def test_mid_stream_with_a_wrap() -> None:
    packets = talk(client_start=2**32 - 2, broker_start=2**32 - 1).client_sends(b"one").client_sends(b"two")
    player = Player()
    player.feed(*reversed(packets.broker_sends(b"answer").packets))
    assert player.expires() == ">one >two <answer"


@pytest.mark.parametrize("side", [0, 1])
def test_one_direction_is_not_kept_waiting_by_the_other(side: int) -> None:
    conversation = talk().handshake()
    for _ in range(3):
        conversation.client_sends(b"ask").broker_sends(b"answer")
    client, broker = conversation.ends
    port = (client, broker)[side][1].to_bytes(2, "big")
    packets = [packet for packet in conversation.packets if packet.data[34:36] == port]
    player = Player()
    assert player.feed(packets[0]) == ""
    assert player.expires() == ""
    assert player.feed(*packets[1:]) == (">ask >ask >ask" if side == 0 else "<answer <answer <answer")


def test_the_other_direction_may_appear_late() -> None:
    conversation = talk().client_sends(b"ask").client_sends(b"ask")
    player = Player()
    player.feed(*conversation.packets)
    player.expires()
    more = conversation.broker_sends(b"answer").client_sends(b"more").broker_sends(b"again").packets[2:]
    assert player.feed(*more) == "<answer >more <again"


def test_keep_alive_probes_and_zero_windows_change_nothing() -> None:
    conversation = talk().handshake().client_sends(b"one").broker_acks()
    conversation.put(0, ACK, sequence=1003)
    conversation.put(0, ACK, b"\0", sequence=1003)
    conversation.broker_acks().broker_acks().client_sends(b"two").broker_sends(b"answer")
    player = Player()
    assert player.feed(*conversation.packets) == ">one >two <answer"
    assert player.expires() == ""
    assert player.counts == {"keep_alive_probes": 2}


def test_a_probe_before_any_data() -> None:
    conversation = talk().handshake()
    conversation.put(0, ACK, b"\0", sequence=1000).broker_acks().client_sends(b"ask")
    player = Player()
    assert player.feed(*conversation.packets) == ">ask"
    assert player.counts == {"keep_alive_probes": 1}


def test_data_with_the_syn() -> None:
    conversation = talk()
    conversation.put(0, SYN, b"early")
    conversation.put(1, SYN | ACK).client_sends(b"late")
    assert Player().feed(*conversation.packets) == ">early >late"


def test_data_with_the_syn_that_was_not_accepted_comes_again() -> None:
    conversation = talk()
    conversation.put(0, SYN, b"early").put(1, SYN | ACK, acknowledgment=1001)
    conversation.put(0, PSH | ACK, b"early", sequence=1001).client_sends(b"late").broker_sends(b"answer")
    player = Player()
    assert player.feed(*conversation.packets) == ">early >late <answer"
    assert player.counts == {"retransmitted_bytes": 5, "repeated_segments": 1}


def test_data_with_a_reset_and_urgent_data() -> None:
    conversation = talk().handshake().put(0, PSH | ACK | 0x20, b"urgent").client_sends(b"ask")
    conversation.put(1, RST | ACK, b"no such listener")
    player = Player()
    assert player.feed(*conversation.packets) == ">urgent >ask"
    assert player.duplex is not None
    assert player.duplex.reset_ns is not None


def test_data_after_a_fin_is_ignored() -> None:
    conversation = talk().handshake().client_sends(b"ask").put(0, FIN | ACK)
    conversation.client_sends(b"more").broker_sends(b"answer")
    player = Player()
    assert player.feed(*conversation.packets) == ">ask <answer"
    assert player.expires() == ""
    assert player.counts == {"bytes_after_fin": 4}


def test_data_with_a_fin() -> None:
    conversation = talk().handshake().put(0, FIN | PSH | ACK, b"ask")
    conversation.put(0, FIN | PSH | ACK, b"ask", sequence=1001).put(0, FIN | ACK, sequence=1004)
    player = Player()
    assert player.feed(*conversation.broker_sends(b"answer").packets) == ">ask <answer"
    assert player.counts == {"retransmitted_bytes": 3, "repeated_segments": 2}


def test_half_open_one_side_has_forgotten_the_other() -> None:
    conversation = talk().handshake().client_sends(b"ask")
    conversation.put(1, RST, sequence=5001)
    player = Player()
    assert player.feed(*conversation.packets) == ">ask"
    assert player.expires() == ""
    only_syn = talk().put(0, SYN, acknowledgment=0).put(0, SYN, acknowledgment=0, sequence=1000)
    player = Player()
    assert player.feed(*only_syn.packets) == ""
    assert player.expires() == ""
    assert player.counts == {"repeated_segments": 1}


def test_more_than_4_gib_on_one_connection() -> None:
    segment = Segments().feed(talk().client_sends(b"x" * 8).packets[0])
    handshake = [Segments().feed(packet) for packet in talk().handshake().packets]
    assert segment is not None
    player, out = Player(), list[Event]()
    duplex = Duplex(
        segment.ends,
        segment.time_ns,
        player.limits,
        player.counts,
        ConnectionIds(player.limits, player.counts),
    )
    for each in handshake:
        assert each is not None
        duplex.feed(int(each.ends != segment.ends), each, out)
    length, sequence, total = 15_000_000, 1001, 0
    numbers = list(range(600))  # 9 GB: twice around
    for number in range(0, 600, 3):  # each third comes early
        numbers[number : number + 2] = reversed(numbers[number : number + 2])
    for number in numbers:
        start = (sequence + number * length) % 2**32
        each = segment._replace(sequence=start, payload=b"%08d" % number, length=length)
        duplex.feed(0, each, out)
    items = [item for _, _, item in out if isinstance(item, Data | Gap)]
    assert [int(item.payload) for item in items if isinstance(item, Data)] == list(range(600))
    total = sum(len(item.payload) if isinstance(item, Data) else item.length for item in items)
    assert total == 600 * length
    assert duplex.streams[0].next == (sequence + total) % 2**32


def test_simultaneous_open() -> None:
    conversation = talk()
    conversation.put(0, SYN, acknowledgment=0).put(1, SYN, acknowledgment=0)
    conversation.put(0, SYN | ACK, sequence=1000).put(1, SYN | ACK, sequence=5000)
    assert Player().feed(*conversation.client_sends(b"ask").broker_sends(b"answer").packets) == ">ask <answer"


def test_half_closed_one_side_may_go_on() -> None:
    conversation = talk().handshake().client_sends(b"ask")
    conversation.put(0, FIN | ACK).broker_sends(b"a").broker_sends(b"b")
    player = Player()
    assert player.feed(*conversation.packets) == ">ask <a <b"
    assert player.duplex is not None
    assert not player.duplex.is_finished
    player.feed(*conversation.put(1, FIN | ACK).packets[-1:])
    assert player.duplex.is_finished


def test_a_fin_may_come_before_the_bytes_before_it() -> None:
    conversation = talk().handshake().client_sends(b"one").client_sends(b"two")
    packets = conversation.put(0, FIN | ACK).put(1, FIN | ACK).broker_acks().packets
    player = Player()
    assert player.feed(*packets[:3], packets[5], *packets[6:], packets[3]) == ">one"
    assert player.feed(packets[4]) == ">two"
    assert player.duplex is not None
    assert player.duplex.is_finished


def test_both_sides_miss_something() -> None:
    conversation = talk().handshake().client_skips(2).client_sends(b"a").broker_skips(3).broker_sends(b"b")
    player = Player()
    assert player.feed(*conversation.client_sends(b"c").broker_acks().packets) == ""
    assert player.expires() == ">(2 lost) >a <(3 lost) <b >c"


def test_a_fin_that_was_missed_is_no_gap() -> None:
    conversation = talk().handshake().client_sends(b"ask").client_skips(1).broker_sends(b"answer")
    player = Player()
    assert player.feed(*conversation.packets) == ">ask"
    assert player.expires() == "<answer"


def test_a_segment_of_an_earlier_connection_is_not_believed() -> None:
    conversation = talk().handshake()
    conversation.put(0, PSH | ACK, b"old", sequence=500_000_000)
    conversation.put(1, ACK, acknowledgment=700_000_000)
    conversation.client_sends(b"ask").broker_sends(b"answer")
    player = Player()
    assert player.feed(*conversation.packets) == ">ask <answer"
    assert player.counts["stray_segments"] == 1
    assert player.expires() == ""


def test_a_long_outage_of_the_capture_is_believed_at_the_second_segment() -> None:
    conversation = talk().handshake().client_sends(b"one").client_skips(500_000_000)
    conversation.client_sends(b"lost").client_sends(b"two").broker_acks()
    player = Player()
    assert player.feed(*conversation.packets) == ">one"
    assert player.expires() == ">(500000004 lost) >two"


def test_cut_segments() -> None:
    conversation = Talk(snaplen=58).handshake().client_sends(b"0123456789").broker_sends(b"abcdef")
    assert Player().feed(*conversation.packets) == ">0123 >(6 cut) <abcd <(2 cut)"


def test_limits_of_a_stream() -> None:
    holes = talk().handshake()
    for letter in (b"a", b"b", b"c", b"d"):
        holes.client_skips(2).client_sends(letter)
    assert Player(Limits(stream_gaps=2)).feed(*holes.packets) == ">(2 lost) >a >(2 lost) >b"

    much = talk().handshake().client_skips(2)
    for letter in (b"a", b"b", b"c", b"d"):
        much.client_sends(letter * 50)
    player = Player(Limits(stream_bytes=3 * (PIECE_COST + 50)))
    assert player.feed(*much.packets[:-1]) == ""
    assert player.feed(much.packets[-1]).startswith(">(2 lost) >aaa")

    old = talk(step_ns=1_000_000_000).handshake().client_skips(2)
    for letter in (b"a", b"b", b"c", b"d"):
        old.client_sends(letter)
    player = Player(Limits(gap_age_ns=2_000_000_000))
    assert player.feed(*old.packets) == ""
    held_ns = old.packets[3].time_ns - old.packets[0].time_ns
    assert player.expires(held_ns + 1_999_999_999) == ""
    assert player.expires(held_ns + 2_000_000_000) == ">(2 lost) >a >b >c >d"


def test_a_long_beginning_is_limited() -> None:
    conversation = talk()
    for _ in range(10):
        conversation.client_sends(b"x" * 100)
    player = Player(Limits(stream_bytes=3 * (PIECE_COST + 100)))
    assert player.feed(*conversation.packets[:3]) == ""
    assert player.feed(conversation.packets[3]).count(">") == 4


def test_flushed_in_order_of_time_with_gaps() -> None:
    conversation = talk().handshake().client_sends(b"one").client_skips(3).client_sends(b"two")
    conversation.broker_sends(b"answer").client_skips(7).broker_acks()
    player = Player()
    assert player.feed(*conversation.packets) == ">one"
    assert player.flush() == ">(3 lost) >two <answer >(7 lost)"
    assert player.duplex is not None
    assert player.duplex.held == 0
