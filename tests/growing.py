"""Endless captures, made while they are read: what a run over one of them holds at most.

    python -m tests.growing KIND COUNT [NAME=VALUE,...]

Dissects, writes JSON lines to nowhere, and prints one line of JSON: how many exchanges there were, the peak
of its own resident memory, what was counted and what it says that it gave up. A process for each run, so
that nothing else counts.
"""

from __future__ import annotations

import json
import sys
from itertools import cycle
from random import Random
from struct import Struct
from typing import TYPE_CHECKING

from kdissect.cli.options import to_limits
from kdissect.model import Interface, Packet
from kdissect.pipeline import dissect
from kdissect.tables.lines import JsonLines
from kdissect.text.loss_report import loss_lines
from tests.frames import FETCH, METADATA, PRODUCE, heartbeat_answers, heartbeats, request, response
from tests.peak import peak_kib
from tests.segments import ACK, FIN, PSH, START_NS, SYN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    SegmentSpec = tuple[int, int, int, bytes]
    """Connection, side (0: the client), flags, payload."""

LO = Interface("endless", 0, 1)
STEP_NS = 20_000
BROKER_PORT = 9092
HEADERS = Struct(">12xHBxHHHBBH4s4sHHIIBBHHH")  # Ethernet, IPv4, TCP, without checksums that nobody looks at

BEAT, ANSWER = heartbeats(1)[0], heartbeat_answers(1)[0]
NOISE = Random(1).randbytes(1 << 20)


def handshake(connection: int) -> Iterator[SegmentSpec]:
    yield connection, 0, SYN, b""
    yield connection, 1, SYN | ACK, b""


def sent(connection: int, side: int, payload: bytes, mss: int = 1400) -> Iterator[SegmentSpec]:
    for start in range(0, len(payload), mss):
        yield connection, side, PSH | ACK, payload[start : start + mss]


def finished(count: int) -> Iterator[SegmentSpec]:
    """Connections with one exchange and an end."""
    for number in range(count):
        yield from handshake(number)
        yield from sent(number, 0, BEAT)
        yield from sent(number, 1, ANSWER)
        yield number, 0, FIN | ACK, b""
        yield number, 1, FIN | ACK, b""


def left_open(count: int) -> Iterator[SegmentSpec]:
    """Connections that never end."""
    for number in range(count):
        yield from handshake(number)
        yield from sent(number, 0, BEAT)
        yield from sent(number, 1, ANSWER)


def unanswered(count: int) -> Iterator[SegmentSpec]:
    """Connections that never end, each with a request of 2 KB that nobody answers."""
    produce = request(
        PRODUCE, 9, {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"records": NOISE[:2000]}]}]}
    )
    for number in range(count):
        yield from handshake(number)
        yield from sent(number, 0, produce)


def pipelined(count: int) -> Iterator[SegmentSpec]:
    """One connection with requests of 2 KB that nobody answers."""
    body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"records": NOISE[:2000]}]}]}
    yield from handshake(0)
    for number in range(count):
        yield from sent(0, 0, request(PRODUCE, 9, body, correlation_id=number))


def bottomless(count: int) -> Iterator[SegmentSpec]:
    """Connections whose request announces 900 MiB, a size that may be true, and 2 GiB, which may not; of each
    20 KB come.
    """
    started = request(
        PRODUCE,
        9,
        {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"records": NOISE[:20_000]}]}]},
    )
    sizes = cycle((0x38400000, 0x7FFFFFFF))
    for number, size in zip(range(count), sizes, strict=False):
        yield from handshake(number)
        yield from sent(number, 0, BEAT)
        yield from sent(number, 1, ANSWER)
        yield from sent(number, 0, size.to_bytes(4, "big") + started[4:])


def one_bottomless(count: int) -> Iterator[SegmentSpec]:
    """One connection with a frame that announces 900 MiB, and most of them."""
    yield from bottomless(1)
    for number in range(count):
        yield 0, 0, PSH | ACK, NOISE[number % 1000 : number % 1000 + 1400]


def garbage(count: int) -> Iterator[SegmentSpec]:
    """One connection, begun before the capture, whose bytes are no frames."""
    for number in range(count):
        place = number * 1400 % (len(NOISE) - 1400)
        yield 0, number % 2, PSH | ACK, NOISE[place : place + 1400]


def much_garbage(count: int) -> Iterator[SegmentSpec]:
    """Many connections like that, ten packets of each."""
    for number in range(count):
        for place in range(10):
            yield number, place % 2, PSH | ACK, NOISE[place * 1400 : place * 1400 + 1400]


def requests_only(count: int) -> Iterator[SegmentSpec]:
    """A hundred connections, begun before the capture, of which the broker's side was not captured."""
    beats = heartbeats(2000)
    for number in range(count):
        yield from sent(number % 100, 0, beats[number // 100 % 2000])


def responses_only(count: int) -> Iterator[SegmentSpec]:
    """The same of the client's side."""
    answers = heartbeat_answers(2000)
    for number in range(count):
        yield from sent(number % 100, 1, answers[number // 100 % 2000])


def gaps(count: int) -> Iterator[SegmentSpec]:
    """Ten connections in which every tenth packet is missing."""
    beats, answers = heartbeats(2000), heartbeat_answers(2000)
    for number in range(count):
        which = number // 10 % 2000
        flags = PSH | ACK if number * 7919 // 10 % 10 else 0  # 0: sent, but not captured
        yield number % 10, 0, flags, beats[which]
        flags = PSH | ACK if number * 104729 // 10 % 10 else 0
        yield number % 10, 1, flags, answers[which]


def topics(count: int) -> Iterator[SegmentSpec]:
    """One connection that names a new topic ID in each exchange, and requests one without a name."""
    yield from handshake(0)
    for number in range(count):
        yield from sent(0, 0, request(METADATA, 12, {}, correlation_id=2 * number))
        topic = {"name": f"a-topic-with-a-name-{number}", "topic_id": f"{number:021d}A"}
        yield from sent(0, 1, response(METADATA, 12, {"topics": [topic]}, correlation_id=2 * number))
        topic = {"topic_id": f"{number:021d}Q"}
        yield from sent(0, 0, request(FETCH, 13, {"topics": [topic]}, correlation_id=2 * number + 1))
        yield from sent(0, 1, response(FETCH, 13, {}, correlation_id=2 * number + 1))


KINDS: dict[str, Callable[[int], Iterator[SegmentSpec]]] = {
    kind.__name__: kind
    for kind in (
        finished, left_open, unanswered, pipelined, bottomless, one_bottomless, garbage, much_garbage,
        requests_only, responses_only, gaps, topics,
    )
}  # fmt: skip


def packets(specs: Iterator[SegmentSpec]) -> Iterator[Packet]:
    """As they would be captured."""
    next_of: dict[int, list[int]] = {}  # of connections that are not over
    number = 0
    for connection, side, flags, payload in specs:
        places = next_of.get(connection)
        if places is None:
            places = next_of[connection] = [1000, 5000]
            if len(next_of) > 200:  # those before are done
                del next_of[next(iter(next_of))]
        sequence, acknowledgment = places[side], places[1 - side]
        places[side] = (sequence + len(payload) + bool(flags & (SYN | FIN))) & 0xFFFFFFFF
        if not flags:
            continue
        client = (0x0B00_0000 + connection // 50_000).to_bytes(4, "big"), 10_000 + connection % 50_000
        ends = [client, (b"\x0a\0\0\1", BROKER_PORT)]
        (source, source_port), (destination, destination_port) = ends[side], ends[1 - side]
        head = HEADERS.pack(
            *(0x0800, 0x45, 40 + len(payload), 1, 0, 64, 6, 0, source, destination),
            *(source_port, destination_port, sequence, acknowledgment, 0x50, flags, 64_000, 0, 0),
        )
        number += 1
        data = head + payload
        yield Packet(number, START_NS + number * STEP_NS, LO, data, len(data))


def main(kind: str, count: str, limits: str = "") -> None:
    """Run one, and tell."""
    sink = JsonLines(len)
    exchanges = 0
    run = dissect(packets(KINDS[kind](int(count))), limits=to_limits([limits] if limits else []))
    for exchange in run:
        sink.feed(exchange)
        exchanges += 1
    sink.close()
    reported = {
        "exchanges": exchanges,
        "peak_kib": peak_kib(),
        "says": loss_lines(run.counts),
        "counts": run.counts,
    }
    sys.stdout.write(json.dumps(reported) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
