"""Generates captures of Kafka traffic, for benchmarks, not for tests of correctness.

    python benchmarks/traffic.py WORK MEGABYTES FILE [--codec none|lz4|zstd] [--connections N]

    bulk      Produce requests and Fetch responses of about 100 KB in turn, in packets of 1448 bytes
    loopback  the same in packets of 65,483 bytes, as the loopback interface carries them
    large     Fetch responses of 1 MB, in packets of 1448 bytes
    huge      Fetch responses of 5 MB, 1 MB of each of five partitions: a consumer that catches up
    chatty    exchanges of two small packets: Produce and Fetch of one record, Heartbeat, OffsetCommit
    short     the same, but each on a connection of its own
    sessions  long polls of a Java consumer: a fetch session of 20 partitions, most responses without any
    mixed     samples of rebalances, transactions and admin calls, over and over, many at a time, each time
              from another address

Produce is version 8 and Fetch version 11, the latest whose records tshark 4.0 reads; in sessions, it is 12.
Frames are encoded once and reused with other correlation IDs and offsets, so a gigabyte is written in
seconds; consumers move on, and every record batch has a correct checksum. Connections take turns, one
exchange at a time. Every eighth packet of a large frame is acknowledged. Mixed traffic has the packets of the
samples as they were captured and at their pace, but with other addresses and sequence numbers, and port 9092
for all brokers. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import struct
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from heapq import merge
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kdissect.capture.reader import open_capture
from kdissect.net.tcp import Segments, endpoints
from kdissect.pipeline import dissect
from tests.frames import request, response
from tests.record_batches import BASE_MS, CODECS, Item, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kdissect.model import Endpoint, Segment

ETHERNET_MSS, LOOPBACK_MSS = 1448, 65_483
BROKER_PORT = 9092
MIXED = "mixed"

PRODUCE, FETCH, OFFSET_COMMIT, HEARTBEAT = 0, 1, 8, 12

_SEED = 9
_BEGIN_US = 1_700_000_000_000_000
_CLIENTS_OF_ADDRESS = 20_000
_SAMPLES = (
    "kafka-4-storm.pcap.gz",
    "kafka-4-transactions.pcap",
    "kafka-4-basics.pcap",
    "mock-rebalance.pcapng",
    "tansu-admin.pcap",
)
_AT_A_TIME = 32  # samples that are replayed
_PAUSE_US = 1_000_000
_VARIANTS = 8  # of each kind of exchange
_SESSION_PARTITIONS = 20
_POLLS = 100  # of a session
_ACKNOWLEDGED_EVERY = 8  # packets
_FIN, _SYN, _PSH, _ACK = 0x01, 0x02, 0x08, 0x10
_FILE_HEADER = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)
_PACKET = struct.Struct("<4I")
# Ethernet, IPv4 and TCP with a timestamp option, as every system sends them; checksums are left to the card.
_HEADERS = struct.Struct(">6s6sH BBHHHBBH4s4s HHIIBBHHH 12s")
_TIMESTAMPS = bytes.fromhex("0101080a 00010203 00010203")
_ROUND = bytes.fromhex("5eed0ff5e7")
"""The first bytes of an offset in a template; each time all templates are used, they are higher."""


class Template(NamedTuple):
    """An encoded exchange, without its correlation ID. Offsets begin with ``_ROUND``."""

    request: bytes
    response: bytes
    records: int = 0


class Contents(NamedTuple):
    """What a capture contains."""

    packets: int
    exchanges: int
    records: int


class Work(NamedTuple):
    """How to generate a kind of traffic."""

    mss: int
    templates: Callable[[Random, int], list[Template]]
    alone: bool = False  # each exchange on a connection


def records(random: Random, count: int, size: int, codec: int) -> bytes:
    """A record batch; half of each value is noise, so that it compresses about as well as JSON."""
    values = (random.randbytes(size // 2).hex().encode()[:size] for _ in range(count))
    items = [Item(b"key-%d" % place, value, (), BASE_MS + place) for place, value in enumerate(values)]
    return batch(items, codec=codec)


def produce(topic: str, data: bytes, count: int) -> Template:
    partitions = [{"index": 3, "records": data}]
    response_partitions = [{"index": 3, "base_offset": 123_456, "log_append_time_ms": -1}]
    body = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": partitions}]}
    response_body = {"responses": [{"name": topic, "partition_responses": response_partitions}]}
    return Template(
        request(PRODUCE, 8, body, client_id="producer-1"), response(PRODUCE, 8, response_body), count
    )


def offset(place: int) -> int:
    """A number that rises each time all templates are used."""
    return int.from_bytes(_ROUND + place.to_bytes(3, "big"), "big")


def moved(data: bytes, place: int) -> bytes:
    """A record batch at another offset, which its checksum does not cover."""
    return offset(place).to_bytes(8, "big") + data[8:]


def fetch(topic: str, partitions: list[bytes], count: int, turn: int) -> Template:
    """``count`` records in each partition; the first partition is 1. ``turn``: of the templates."""
    numbered = list(enumerate(partitions, 1))
    first, end = turn * count, (turn + 1) * count
    requested = [
        {"partition": number, "fetch_offset": offset(first), "partition_max_bytes": 1 << 20}
        for number, _ in numbered
    ]
    fetched = [
        {"partition_index": number, "high_watermark": offset(end + 289), "records": moved(data, first)}
        for number, data in numbered
    ]
    body = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "topics": [{"topic": topic, "partitions": requested}],
    }
    response_body = {"session_id": 77, "responses": [{"topic": topic, "partitions": fetched}]}
    records_in_all = count * len(partitions)
    request_bytes = request(FETCH, 11, body, client_id="consumer-1")
    return Template(request_bytes, response(FETCH, 11, response_body), records_in_all)


def bulk(random: Random, codec: int) -> list[Template]:
    templates = []
    for turn in range(_VARIANTS):
        templates.append(produce("orders", records(random, 100, 1_000, codec), 100))
        templates.append(fetch("payments", [records(random, 100, 1_000, codec)], 100, turn))
    return templates


def large(random: Random, codec: int) -> list[Template]:
    return [
        fetch("payments", [records(random, 1_000, 1_000, codec)], 1_000, turn) for turn in range(_VARIANTS)
    ]


def huge(random: Random, codec: int) -> list[Template]:
    partitions = [records(random, 1_000, 1_000, codec) for _ in range(_VARIANTS)]
    return [
        fetch("payments", [*partitions[turn:], *partitions[:turn]][:5], 1_000, turn)
        for turn in range(_VARIANTS)
    ]


def chatty(random: Random, codec: int) -> list[Template]:
    member = {"group_id": "billing", "member_id": "consumer-1-0d3b2a"}
    alive = {**member, "generation_id": 7}
    committed = {"topics": [{"name": "payments", "partitions": [{"partition_index": 1}]}]}
    templates = []
    for turn in range(_VARIANTS):
        offsets = [{"partition_index": 1, "committed_offset": offset(turn + 1)}]
        topics = [{"name": "payments", "partitions": offsets}]
        commit = {**member, "generation_id_or_member_epoch": 7, "topics": topics}
        templates += [
            produce("orders", records(random, 1, 60, codec), 1),
            fetch("payments", [records(random, 1, 60, codec)], 1, turn),
            Template(request(HEARTBEAT, 4, alive, client_id="consumer-1"), response(HEARTBEAT, 4)),
            Template(
                request(OFFSET_COMMIT, 7, commit, client_id="consumer-1"),
                response(OFFSET_COMMIT, 7, committed),
            ),
        ]
    return templates


def sessions(random: Random, codec: int) -> list[Template]:
    templates = []
    for variant in range(_VARIANTS):
        everything = range(_SESSION_PARTITIONS)
        begin = variant * _POLLS
        templates.append(poll(0, dict.fromkeys(everything, begin), dict.fromkeys(everything, b""), begin))
        named: dict[int, int] = {}
        ends = dict.fromkeys(everything, begin)
        for number in range(1, _POLLS):
            partition = number % _SESSION_PARTITIONS
            end = ends[partition]
            returned = {} if number % 4 else {partition: moved(records(random, 1, 60, codec), end)}
            templates.append(poll(number, named, returned, end + 1))
            named = dict.fromkeys(returned, end + 1)
            ends.update(named)
    return templates


def poll(epoch: int, named: dict[int, int], returned: dict[int, bytes], end: int) -> Template:
    """A Fetch of a session: the partitions that it names, with their offsets; what it returns; and the end of
    these partitions.
    """
    partitions = [{"partition": each, "fetch_offset": offset(place)} for each, place in named.items()]
    fetched = [
        {
            "partition_index": each,
            "high_watermark": offset(end),
            "last_stable_offset": offset(end),
            "records": data,
        }
        for each, data in returned.items()
    ]
    request_body = {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "session_id": 77 if epoch else 0,
        "session_epoch": epoch,
        "topics": [{"topic": "payments", "partitions": partitions}] if partitions else [],
    }
    responses = [{"topic": "payments", "partitions": fetched}] if fetched else []
    response_body = {"session_id": 77, "responses": responses}
    return Template(
        request(FETCH, 12, request_body, client_id="consumer-1"),
        response(FETCH, 12, response_body),
        sum(map(bool, returned.values())),
    )


WORKS = {
    "bulk": Work(ETHERNET_MSS, bulk),
    "loopback": Work(LOOPBACK_MSS, bulk),
    "large": Work(ETHERNET_MSS, large),
    "huge": Work(ETHERNET_MSS, huge),
    "chatty": Work(ETHERNET_MSS, chatty),
    "short": Work(ETHERNET_MSS, chatty, alone=True),
    "sessions": Work(ETHERNET_MSS, sessions),
}


class Side(NamedTuple):
    """One end of a connection."""

    address: bytes
    port: int


class Talk(NamedTuple):
    """A connection: client and broker, with their next sequence numbers."""

    ends: tuple[Side, Side]
    numbers: list[int]


_BROKER = Side(b"\x0a\0\0\2", BROKER_PORT)


class Wire:
    """Writes the packets of connections, one every ten microseconds."""

    def __init__(self, file: BinaryIO, mss: int) -> None:
        self._file = file
        self._mss = mss
        self._us = _BEGIN_US
        self.packets = self.written = 0
        file.write(_FILE_HEADER)

    def segment(self, talk: Talk, side: int, flags: int, data: bytes = b"") -> None:
        """The next packet of a connection."""
        ends, numbers = talk.ends if side == 0 else talk.ends[::-1], talk.numbers
        self.packet(ends, (numbers[side], numbers[1 - side] if flags & _ACK else 0), flags, data)
        self._us += 10
        numbers[side] = numbers[side] + len(data) + bool(flags & (_SYN | _FIN)) & 0xFFFF_FFFF

    def packet(
        self,
        ends: tuple[Side, Side],
        numbers: tuple[int, int],
        flags: int,
        data: bytes,
        us: int | None = None,
    ) -> None:
        """A packet with these sequence and acknowledgment numbers, at this time or now."""
        source, target = ends
        total = 52 + len(data)
        head = _HEADERS.pack(
            b"\2\0\0\0\0\2", b"\2\0\0\0\0\1", 0x0800,
            0x45, 0, total, 0, 0x4000, 64, 6, 0, source.address, target.address,
            source.port, target.port, *numbers, 0x80, flags, 0xFFFF, 0, 0, _TIMESTAMPS,
        )  # fmt: skip
        size = len(head) + len(data)
        second, us = divmod(self._us if us is None else us, 1_000_000)
        self._file.write(_PACKET.pack(second, us, size, size) + head + data)
        self.packets += 1
        self.written += _PACKET.size + size

    def open(self, number: int, random: Random) -> Talk:
        """A handshake."""
        client = Side(
            bytes((10, 0, 1 + number // _CLIENTS_OF_ADDRESS, 1)), 40_000 + number % _CLIENTS_OF_ADDRESS
        )
        talk = Talk((client, _BROKER), [random.getrandbits(32), random.getrandbits(32)])
        self.segment(talk, 0, _SYN)
        self.segment(talk, 1, _SYN | _ACK)
        self.segment(talk, 0, _ACK)
        return talk

    def exchange(self, talk: Talk, template: Template, correlation_id: bytes, turn: int = 0) -> None:
        """A request and its response. The correlation ID of a request comes after size, API key and version,
        that of a response after the size. ``turn``: how often the template was used before.
        """
        request, response = (each.replace(_ROUND, turn.to_bytes(5, "big")) for each in template[:2])
        self.frame(talk, 0, request[:8] + correlation_id + request[12:])
        self.frame(talk, 1, response[:4] + correlation_id + response[8:])

    def frame(self, talk: Talk, side: int, data: bytes) -> None:
        """A frame, in as many packets as needed."""
        mss = self._mss
        for count, start in enumerate(range(0, len(data), mss), 1):
            self.segment(talk, side, _ACK | _PSH, data[start : start + mss])
            if not count % _ACKNOWLEDGED_EVERY:
                self.segment(talk, 1 - side, _ACK)

    def close(self, talk: Talk) -> None:
        """Both sides close the connection."""
        for side in (0, 1):
            self.segment(talk, side, _ACK | _FIN)


class Sample(NamedTuple):
    """A recorded capture: its segments by time, its brokers, and its exchanges."""

    segments: list[Segment]
    brokers: list[Endpoint]
    exchanges: int


def sample(name: str) -> Sample:
    path = Path(__file__).resolve().parent.parent / "samples" / name
    with open_capture(path) as capture:
        exchanges = list(dissect(capture.packet_blocks()))
    parse = Segments().feed
    with open_capture(path) as capture:
        segments = [segment for packet in capture if (segment := parse(packet)) is not None]
    brokers = list(dict.fromkeys(exchange.connection.broker for exchange in exchanges))
    return Sample(sorted(segments, key=lambda each: each.time_ns), brokers, len(exchanges))


def make_mixed(path: Path, size: int) -> Contents:
    """Write a capture of at least ``size`` bytes from samples."""
    samples = [sample(name) for name in _SAMPLES]
    with path.open("wb", buffering=1 << 20) as file:
        network = Wire(file, ETHERNET_MSS)
        started: list[Sample] = []

        def replays(place: int) -> Iterator[tuple[int, int, Callable[[], None]]]:
            """Time, place among those that are replayed at a time, and what writes the packet."""
            us = _BEGIN_US + place * _PAUSE_US // _AT_A_TIME
            for each in islice(cycle(samples), place, None):
                if network.written >= size:
                    return
                started.append(each)
                start_us, first_ns = us, each.segments[0].time_ns
                for segment, write in replay(each, len(started), network):
                    us = start_us + (segment.time_ns - first_ns) // 1000
                    yield us, place, partial(write, us)
                us += _PAUSE_US

        for _, _, write in merge(*map(replays, range(_AT_A_TIME))):
            write()
    return Contents(network.packets, sum(each.exchanges for each in started), 0)


def replay(each: Sample, number: int, network: Wire) -> Iterator[tuple[Segment, Callable[[int], None]]]:
    """The segments of a sample, and what writes each of them at a time. ``number`` becomes the address."""
    random = Random(number)
    shifts: dict[int, int] = {}
    address = b"\x0a" + (1 << 16 | number).to_bytes(3, "big")
    for segment in each.segments:
        known = endpoints(segment.ends)
        to_broker = known[1] in each.brokers
        if to_broker == (known[0] in each.brokers):
            continue  # of another protocol
        broker = Side(bytes((10, 0, 0, 2 + each.brokers.index(known[to_broker]))), BROKER_PORT)
        client = Side(address, known[not to_broker].port)
        ends = (client, broker) if to_broker else (broker, client)
        shift = shifts.setdefault(client.port, random.getrandbits(32))
        numbers = (segment.sequence + shift) & 0xFFFF_FFFF, (segment.acknowledgment + shift) & 0xFFFF_FFFF
        yield segment, partial(network.packet, ends, numbers, segment.flags, segment.payload)


def make(
    work: str,
    path: Path,
    size: int,
    *,
    codec: str = "none",
    connections: int = 1,
    wire: Callable[[BinaryIO, int], Wire] = Wire,
) -> Contents:
    """Write a capture of at least ``size`` bytes. ``wire`` gets the file and the size of a segment."""
    if work == MIXED:
        return make_mixed(path, size)
    mss, templates_of, alone = WORKS[work]
    templates = templates_of(Random(_SEED), CODECS[codec])
    random = Random(_SEED)
    exchanges = written = 0
    with path.open("wb", buffering=1 << 20) as file:
        network = wire(file, mss)
        talks = [] if alone else [network.open(number, random) for number in range(connections)]
        while network.written < size:
            template = templates[exchanges % len(templates)]
            talk = network.open(exchanges, random) if alone else talks[exchanges % connections]
            correlation_id = struct.pack(">i", exchanges // connections & 0x7FFF_FFFF)
            network.exchange(talk, template, correlation_id, exchanges // len(templates))
            if alone:
                network.close(talk)
            exchanges += 1
            written += template.records
        for talk in talks:
            network.close(talk)
    return Contents(network.packets, exchanges, written)


def make_apart(work: str, path: Path, size: int, *, codec: str = "none", connections: int = 1) -> Contents:
    """``make`` in a separate process, because the peak memory of this process would count for those it
    starts.
    """
    with ProcessPoolExecutor(1) as process:
        return process.submit(make, work, path, size, codec=codec, connections=connections).result()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("work", choices=[*WORKS, MIXED])
    parser.add_argument("megabytes", type=float)
    parser.add_argument("file", type=Path)
    parser.add_argument("--codec", choices=CODECS, default="none")
    parser.add_argument("--connections", type=int, default=1)
    options = parser.parse_args(arguments)
    size = int(options.megabytes * 1e6)
    packets, exchanges, records_written = make(
        options.work, options.file, size, codec=options.codec, connections=options.connections
    )
    print(f"{options.file}: {packets} packets, {exchanges} exchanges, {records_written} records")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
