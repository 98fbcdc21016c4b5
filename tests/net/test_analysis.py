"""The TCP analysis of connections: what tshark counts in the samples, and what RFCs say of segments."""

from __future__ import annotations

import shutil
import subprocess
import sys
from array import array
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdissect.capture.reader import open_capture
from kdissect.limits import SECOND_NS
from kdissect.net.analysis import (
    MAX_PIECES,
    SHORTEST_PIECE_NS,
    STALL_NS,
    TcpAnalysis,
    note_at,
    noted_at,
)
from kdissect.net.tcp import ACK, FIN, RST, SYN, is_d_sack, window_scale
from kdissect.pipeline import Dissection
from tests.segments import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdissect.exchanges.kafka_connection import KafkaConnection
    from kdissect.model import Closed
    from kdissect.net.connection import Connection

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("**/*.pcap*"))
FIELDS = ("retransmission", "duplicate_ack", "zero_window", "ack_rtt")
Directions = defaultdict[tuple[str, str], defaultdict[str, list[str]]]
NOT_ENDED = "kafka-3.9"  # one of its connections goes on after the FINs, which we no longer count


class Analyses:
    """Collects the connections of a dissection."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    def connection(self, connection: Connection, kafka: KafkaConnection, end: Closed) -> None:
        self.connections.append(connection)

    def unopened_connection(self, connection: Connection, end: Closed, *, is_listener: bool) -> None:
        self.connections.append(connection)


@cache
def analyzed(path: Path) -> list[Connection]:
    observer = Analyses()
    with open_capture(str(path)) as capture:
        for _ in Dissection(capture.packet_blocks(), observer=observer):
            pass
    return observer.connections


@cache
def of_tshark() -> dict[Path, Directions]:
    """What tcp.analysis says of each sample. A start of tshark takes longer than most samples do, so it reads
    those that have no connection in common as one file.
    """
    by_path: dict[Path, Directions] = {}
    remaining = {path: {ends_of(each) for each in analyzed(path)} for path in SAMPLES}
    while remaining:
        together: dict[frozenset[str], Path] = {}
        for path, talks in remaining.items():
            if together.keys().isdisjoint(talks):
                together |= dict.fromkeys(talks, path)
                by_path[path] = defaultdict(lambda: defaultdict(list))
        for ends, fields in fields_of([path for path in remaining if path in by_path]):
            if frozenset(ends) in together:
                of_ends = by_path[together[frozenset(ends)]][ends]
                for name, value in zip(FIELDS, fields, strict=True):
                    if value:
                        of_ends[name].append(value)
        remaining = {path: talks for path, talks in remaining.items() if path not in by_path}
    return by_path


def fields_of(paths: list[Path]) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """Of each TCP segment its source and destination, and the values of ``FIELDS``."""
    shown = ("ip.src", "ipv6.src", "tcp.srcport", "ip.dst", "ipv6.dst", "tcp.dstport")
    fields = [f"-e{name}" for name in (*shown, *(f"tcp.analysis.{name}" for name in FIELDS))]
    with TemporaryDirectory() as directory:
        merged = f"{directory}/merged.pcapng"
        subprocess.run(["mergecap", "-a", "-w", merged, *paths], check=True, capture_output=True)
        command = ["tshark", "-r", merged, "-Y", "tcp", "-T", "fields", *fields]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        source, source6, port, target, target6, target_port, *values = line.split("\t")
        yield (f"{source or source6} {port}", f"{target or target6} {target_port}"), values


def ends_of(connection: Connection) -> frozenset[str]:
    return frozenset(f"{end.ip} {end.port}" for end in connection.ends)


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_tshark_counts_the_same(path: Path) -> None:
    tshark = of_tshark()[path]
    for connection in analyzed(path):
        assert connection.tcp is not None
        tcp, ends = connection.tcp, [f"{end.ip} {end.port}" for end in connection.ends]
        for side in (0, 1):
            fields = tshark[ends[side], ends[1 - side]]
            again = tcp.retransmitted(side) + (connection.initiator == side) * tcp.syn_retransmissions
            if NOT_ENDED not in path.name:
                assert again == len(fields["retransmission"])
                assert tcp.duplicate_acks(side) == len(fields["duplicate_ack"])
            assert (tcp.zero_window_ns(side, sys.maxsize) > 0) == bool(fields["zero_window"])
            # The acknowledgments of a side end the round trips of the other. We leave out those of FINs, and
            # of segments that others followed: ours is one of tshark's.
            round_trip_ns = tcp.shortest_round_trip_ns(1 - side)
            theirs = {round(float(value) * 1e9) for value in fields["ack_rtt"]}
            assert round_trip_ns is None or round_trip_ns in theirs


# --- segments -----------------------------------------------------------------------------------------------


class Conversation:
    """Segments of a connection by side, each a millisecond after the one before."""

    def __init__(self) -> None:
        self.tcp = TcpAnalysis()
        self.now_ns = 10**18

    def send(
        self,
        side: int,
        sequence: int,
        acknowledgment: int,
        flags: int = ACK,
        length: int = 0,
        window: int = 100,
        options: bytes | None = b"",
    ) -> None:
        self.now_ns += MILLISECOND
        self.tcp.feed(side, self.now_ns, sequence, acknowledgment, flags, length, window, options)

    def open(self) -> None:
        self.send(0, 99, 0, SYN)
        self.send(1, 499, 100, SYN | ACK)
        self.send(0, 100, 500)


def test_a_connection_takes_at_most_480_bytes() -> None:
    talk = Conversation()
    talk.open()
    talk.send(0, 100, 500, length=10)
    assert sum(sys.getsizeof(each) for each in (talk.tcp, talk.tcp._numbers)) <= 480


def test_the_largest_payload_that_was_acknowledged() -> None:
    talk = Conversation()
    talk.open()
    talk.send(0, 100, 500, length=700)
    assert (talk.tcp.largest(0), talk.tcp.passed(0)) == (700, 0)
    talk.send(1, 500, 400)  # part of it: a segment of 300 bytes arrived for certain
    assert talk.tcp.passed(0) == 300
    talk.send(1, 500, 800)
    talk.send(0, 800, 500, length=1448)
    talk.now_ns += 300 * MILLISECOND
    talk.send(0, 800, 500, length=1448)
    assert (talk.tcp.largest(0), talk.tcp.passed(0), talk.tcp.repeated(0)) == (1448, 700, 1448)
    assert (talk.tcp.largest(1), talk.tcp.passed(1), talk.tcp.repeated(1)) == (0, 0, 0)


def test_silences_that_were_survived_and_the_one_that_was_not() -> None:
    talk = Conversation()
    talk.open()
    talk.now_ns += 30 * SECOND_NS
    talk.send(0, 99, 500)  # a keep-alive probe
    assert talk.tcp.fatal_silence is not None
    talk.send(1, 500, 100)
    assert (talk.tcp.fatal_silence, talk.tcp.survived_ns // SECOND_NS, talk.tcp.keepalives) == (None, 30, 1)
    for wait_s in (60, 15, 30):
        talk.now_ns += wait_s * SECOND_NS
        talk.send(1, 500, 100, length=10)
    silence = talk.tcp.fatal_silence
    assert (silence.length_ns // SECOND_NS, silence.side, talk.now_ns - silence.tried_ns) == (
        60,
        1,
        45 * SECOND_NS + 2 * MILLISECOND,
    )
    talk.send(0, 100, 500, RST)
    assert talk.tcp.fatal_silence == silence


def test_the_shortest_round_trip() -> None:
    talk = Conversation()
    assert talk.tcp.shortest_round_trip_ns(0) is talk.tcp.shortest_round_trip_ns(1) is None
    talk.send(0, 99, 0, SYN)
    talk.now_ns += 7 * MILLISECOND
    talk.send(1, 499, 100, SYN | ACK)
    talk.send(0, 100, 500)
    round_trips = [talk.tcp.shortest_round_trip_ns(side) for side in (0, 1)]
    assert round_trips == [8 * MILLISECOND, MILLISECOND]
    talk.send(0, 100, 500, length=10)
    talk.now_ns += 40 * MILLISECOND
    talk.send(1, 500, 110)  # a delayed ACK
    assert talk.tcp.shortest_round_trip_ns(0) == 8 * MILLISECOND
    talk.send(0, 110, 500, length=10)
    talk.now_ns += 123
    talk.send(1, 500, 120)
    assert talk.tcp.shortest_round_trip_ns(0) == MILLISECOND + 123


def test_of_which_syn_an_acknowledgment_is_is_not_known() -> None:
    talk = Conversation()
    talk.send(0, 99, 0, SYN)
    talk.send(0, 99, 0, SYN)
    talk.send(1, 499, 100, SYN | ACK)
    assert talk.tcp.shortest_round_trip_ns(0) is None


def test_a_handshake() -> None:
    talk = Conversation()
    assert talk.tcp.opening is None
    talk.send(0, 99, 0, SYN)
    talk.send(0, 99, 0, SYN)
    assert (talk.tcp.opening, talk.tcp.syn_retransmissions) == ("unanswered", 1)
    talk.send(1, 499, 100, SYN | ACK)
    assert talk.tcp.opening == "opened"
    assert talk.tcp.connect_ns is None
    talk.send(0, 100, 500)
    assert talk.tcp.connect_ns == 3 * MILLISECOND


def test_a_syn_ack_that_never_arrives() -> None:
    talk = Conversation()
    talk.send(0, 99, 0, SYN)
    talk.send(1, 499, 100, SYN | ACK)
    assert talk.tcp.opening == "opened"
    talk.send(0, 99, 0, SYN)
    talk.send(1, 499, 100, SYN | ACK)
    assert talk.tcp.opening == "one_way"
    talk.send(1, 500, 100, RST | ACK)  # the broker gives up
    assert talk.tcp.opening == "one_way"


@pytest.mark.parametrize(
    ("side", "sequence", "acknowledgment", "flags", "length"),
    [
        pytest.param(0, 100, 500, ACK, 0, id="the ACK arrives at last"),
        pytest.param(0, 100, 0, RST, 0, id="the client resets it"),
        pytest.param(0, 100, 500, FIN | ACK, 0, id="the client closes it"),
        pytest.param(1, 500, 100, ACK, 9, id="the capture missed the ACK"),
    ],
)
def test_a_syn_ack_that_was_repeated(
    side: int, sequence: int, acknowledgment: int, flags: int, length: int
) -> None:
    talk = Conversation()
    talk.send(0, 99, 0, SYN)
    talk.send(1, 499, 100, SYN | ACK)
    talk.send(1, 499, 100, SYN | ACK)
    talk.send(side, sequence, acknowledgment, flags, length)
    assert talk.tcp.opening == "opened"


def test_a_refused_connection() -> None:
    talk = Conversation()
    talk.send(0, 99, 0, SYN)
    talk.send(1, 0, 100, RST | ACK)
    assert talk.tcp.opening == "refused"
    assert talk.tcp.end is not None
    assert (talk.tcp.end.side, talk.tcp.end.reset) == (1, True)


def test_who_ends_it() -> None:
    talk = Conversation()
    talk.open()
    talk.send(1, 500, 100, FIN | ACK)
    ended_ns = talk.now_ns
    talk.send(0, 100, 501, RST | ACK)
    assert talk.tcp.end == (1, False, ended_ns)


def test_a_retransmission_and_a_segment_out_of_order() -> None:
    talk = Conversation()
    talk.open()
    talk.send(0, 200, 500, length=100)
    talk.send(0, 100, 500, length=100)  # sooner than the round trip: overtaken
    assert talk.tcp.retransmitted(0) == 0
    talk.now_ns += 200 * MILLISECOND
    talk.send(0, 200, 500, length=100)
    assert (talk.tcp.segments(0), talk.tcp.retransmitted(0)) == (1, 1)
    assert talk.tcp.unacknowledged(0) == 200
    talk.send(1, 500, 300)
    # Of which copy this is the acknowledgment is not known: the round trip is that of the SYN.
    assert talk.tcp.shortest_round_trip_ns(0) == MILLISECOND


def test_a_keep_alive_probe_is_neither_a_retransmission_nor_its_answer_a_duplicate() -> None:
    talk = Conversation()
    talk.open()
    talk.send(0, 100, 500, length=10)
    talk.send(1, 500, 110)
    for probe in (0, 1):
        talk.send(0, 109, 500, length=probe)
        talk.send(1, 500, 110)
    assert (talk.tcp.retransmitted(0), talk.tcp.duplicate_acks(1)) == (0, 0)
    talk.send(1, 500, 110)
    assert talk.tcp.duplicate_acks(1) == 1


def test_a_zero_window() -> None:
    talk = Conversation()
    talk.open()
    talk.send(1, 500, 100, window=0)
    since_ns = talk.now_ns
    assert talk.tcp.zero_window_ns(1, since_ns + 5) == 5
    talk.send(0, 100, 500, length=1)
    talk.send(1, 500, 100, window=50)
    assert talk.tcp.zero_window_ns(1, since_ns + 10**9) == 2 * MILLISECOND
    assert talk.tcp.zero_window_ns(0, since_ns) == 0


def test_a_stall_is_a_zero_window_without_new_payload() -> None:
    """Times of a second or more count."""
    talk = Conversation()
    talk.open()
    talk.send(1, 500, 100, window=0)
    since_ns = talk.now_ns
    assert talk.tcp.stalled_ns(1, since_ns + STALL_NS - 1) == 0
    assert talk.tcp.stalled_ns(1, since_ns + STALL_NS) == STALL_NS
    for number in range(5):  # it responds all the time
        talk.now_ns += STALL_NS // 2
        talk.send(1, 500 + 10 * number, 100, length=10, window=0)
    last_ns = talk.now_ns
    assert talk.tcp.sent_ns(1) == last_ns
    assert talk.tcp.stalled_ns(1, last_ns + STALL_NS // 2) == 0
    talk.now_ns += 3 * STALL_NS
    talk.send(1, 540, 100, length=10, window=0)  # a retransmission: it sends nothing new
    talk.send(1, 550, 100, window=50)
    assert talk.tcp.stalled_ns(1, talk.now_ns + STALL_NS) == talk.now_ns - last_ns
    assert talk.tcp.sent_ns(1) == last_ns
    assert talk.tcp.stalled_ns(0, talk.now_ns) == 0


def test_bytes_without_acknowledgment() -> None:
    talk = Conversation()
    talk.open()
    talk.send(1, 500, 100)
    talk.send(0, 100, 500, length=30)
    assert talk.tcp.unacknowledged(0) == 30
    talk.send(0, 130, 500, FIN | ACK)
    assert talk.tcp.unacknowledged(0) == 30  # the FIN is no byte
    talk.send(1, 500, 131)
    assert talk.tcp.unacknowledged(0) == 0


def sack(*numbers: int) -> bytes:
    blocks = b"".join(number.to_bytes(4, "big") for number in numbers)
    return b"\1\1\5" + bytes([2 + len(blocks)]) + blocks


def test_d_sack() -> None:
    """RFC 2883, 4: a duplicate below the acknowledgment, or inside the block that follows."""
    timestamps = b"\1\1\x08\x0a" + bytes(8)
    assert is_d_sack(sack(100, 200), 300)
    assert is_d_sack(timestamps + sack(500, 600, 400, 700), 300)
    assert not is_d_sack(sack(400, 500), 300)
    assert not is_d_sack(sack(400, 500, 600, 700), 300)
    assert not is_d_sack(timestamps, 300)
    assert not is_d_sack(sack(100, 200)[:-3], 300)
    assert not is_d_sack(b"\5\0", 300)


SCALE_7, SCALE_2 = bytes.fromhex("020405b401030307"), bytes.fromhex("020405b401030302")
NO_SCALE = bytes.fromhex("020405b4")


def test_window_scale() -> None:
    """RFC 7323, 2.2 and 2.3: three bytes, at most 14; other options may come before."""
    assert [window_scale(options) for options in (SCALE_7, SCALE_2, b"\3\3\0", b"\1\3\3\xff")] == [
        7,
        2,
        0,
        14,
    ]
    without = (b"", NO_SCALE, b"\3\3", b"\3\2\7", b"\3\4\7\0", b"\0\3\3\7", b"\2\0\3\3")
    assert [window_scale(options) for options in without] == [None] * len(without)


@pytest.mark.parametrize(
    ("syn", "answer", "offers", "windows"),
    [
        (SCALE_7, SCALE_2, (True, True), (300 << 7, 200 << 2)),
        (SCALE_7, NO_SCALE, (True, False), (300, 200)),
        (NO_SCALE, NO_SCALE, (False, False), (300, 200)),
        (SCALE_7, None, (True, None), (None, None)),
        (None, SCALE_2, (None, True), (None, None)),
    ],
    ids=["both", "client", "neither", "answer-cut", "request-cut"],
)
def test_windows(
    syn: bytes | None,
    answer: bytes | None,
    offers: tuple[bool | None, bool | None],
    windows: tuple[int | None, int | None],
) -> None:
    """Those of SYNs are not scaled, and do not count; a SYN that was cut says nothing."""
    talk = Conversation()
    talk.send(0, 99, 0, SYN, window=65_535, options=syn)
    talk.send(1, 499, 100, SYN | ACK, window=65_535, options=answer)
    for window in (300, 250):
        talk.send(0, 100, 500, window=window)
        talk.send(1, 500, 100, window=window - 100)
    assert tuple(map(talk.tcp.offers_scaling, (0, 1))) == offers
    assert tuple(map(talk.tcp.window_bytes, (0, 1))) == windows


def test_without_a_syn_a_window_has_no_unit() -> None:
    talk = Conversation()
    talk.send(0, 100, 500, window=300)
    talk.send(1, 500, 100, window=300)
    assert [talk.tcp.offers_scaling(0), talk.tcp.window_bytes(0), talk.tcp.window_bytes(1)] == [None] * 3


@given(st.lists(st.integers(0, 10**15), max_size=200))
def test_when_something_happened_is_known_of_few_pieces_of_time(times_ns: list[int]) -> None:
    numbers = array("q", (7, SHORTEST_PIECE_NS))
    for time_ns in sorted(times_ns):
        note_at(numbers, 1, time_ns, 3)
    pieces, length_ns = noted_at(numbers, 1), numbers[1]
    assert numbers[0] == 7
    assert len(pieces) <= MAX_PIECES
    counts = Counter(time_ns - time_ns % length_ns for time_ns in times_ns)
    assert pieces == [(start_ns, 3 * count) for start_ns, count in sorted(counts.items())]
    if length_ns > SHORTEST_PIECE_NS:
        assert len({time_ns // (length_ns // 2) for time_ns in times_ns}) > MAX_PIECES


def test_a_clock_that_jumps_makes_no_more_pieces() -> None:
    numbers = array("q", (SHORTEST_PIECE_NS,))
    for number in range(100):
        note_at(numbers, 0, 10**18 * (-1) ** number, 1)
    assert sum(count for _, count in noted_at(numbers, 0)) == 100
    assert len(numbers) <= 1 + 2 * MAX_PIECES
